//! Whether a path can be trusted: who may write to its directory decides what is there.
//!
//! A user who may write to a directory can put a file or a socket in the place of ours before it is
//! used. So where a path decides which peer this process hears or what it trusts (the socket of a
//! handover, a file of keys), its directory and all above it must belong to root or to the user of
//! this process, and no other user may write to them. A directory above may be one like `/tmp`,
//! where all may write but none may rename what is another user's (the sticky bit).
//!
//! Not looked at: access control lists, and what root mounts. Like `StrictModes` of sshd(8), this
//! checks what is there now; only users who pass the check could change the answer afterwards.

use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, Stat, stat};

/// Checks the directory of a path, and those above it. The path itself need not exist.
///
/// # Errors
/// `PermissionDenied`, with the name of the directory and what is wrong with it, where another user
/// could replace what is at the path; what the system reports where one cannot be looked at.
pub(crate) fn check_directory_of(path: &Path) -> io::Result<()> {
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let directory = directory.canonicalize().map_err(|cause| {
        let directory = directory.display();
        io::Error::new(cause.kind(), format!("directory {directory}: {cause}"))
    })?;
    let own = flatpath_sys::process::user();
    let mut found = Vec::new();
    for ancestor in directory.ancestors() {
        found.push((ancestor.to_owned(), Rights::of(&stat(ancestor)?)));
    }
    match unsafe_one(&found, own) {
        None => Ok(()),
        Some((directory, why)) => Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            format!("directory {} is not safe: {why}", directory.display()),
        )),
    }
}

/// Of a directory.
#[derive(Clone, Copy, Debug)]
struct Rights {
    owner: u32,
    mode: Mode,
}

impl Rights {
    fn of(stat: &Stat) -> Rights {
        Rights {
            owner: stat.st_uid,
            mode: Mode::from_raw_mode(stat.st_mode),
        }
    }
}

/// The first of a directory and those above it that another user than root and `own` controls.
fn unsafe_one(found: &[(PathBuf, Rights)], own: u32) -> Option<(&Path, String)> {
    found
        .iter()
        .enumerate()
        .find_map(|(height, (path, rights))| {
            let Rights { owner, mode } = *rights;
            let is_shared = mode.intersects(Mode::WGRP | Mode::WOTH);
            // What is below one with the sticky bit cannot be replaced by others; it was looked at.
            let is_sticky = mode.contains(Mode::SVTX) && height > 0;
            if owner != 0 && owner != own {
                return Some((&**path, format!("it belongs to user {owner}")));
            }
            let bits = mode.bits() & 0o7777;
            (is_shared && !is_sticky)
                .then(|| (&**path, format!("others may write to it (mode {bits:04o})")))
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn found(chain: &[(u32, u32)]) -> Vec<(PathBuf, Rights)> {
        let rights = chain.iter().map(|&(owner, mode)| Rights {
            owner,
            mode: Mode::from_raw_mode(mode),
        });
        let names = (0..).map(|height| PathBuf::from(format!("/{height}")));
        names.zip(rights).collect()
    }

    #[test]
    fn what_another_user_could_replace_is_not_trusted() {
        const OWN: u32 = 1_000;
        for (chain, is_safe) in [
            (&[(OWN, 0o755), (0, 0o755)][..], true),
            (&[(0, 0o755)], true),
            (&[(OWN, 0o700), (0, 0o1777), (0, 0o755)], true),
            // Its owner may do as they like.
            (&[(7, 0o755), (0, 0o755)], false),
            (&[(OWN, 0o755), (7, 0o755)], false),
            (&[(OWN, 0o775), (0, 0o755)], false),
            (&[(OWN, 0o777), (0, 0o755)], false),
            // The first that comes binds there.
            (&[(0, 0o1777), (0, 0o755)], false),
            (&[(OWN, 0o755), (0, 0o777), (0, 0o755)], false),
        ] {
            assert_eq!(
                unsafe_one(&found(chain), OWN).is_none(),
                is_safe,
                "{chain:?}"
            );
        }
    }

    #[test]
    fn a_directory_that_others_may_write_to_is_named() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("socket");
        check_directory_of(&path).expect("it is this user's alone");
        let all = std::fs::Permissions::from_mode(0o777);
        std::fs::set_permissions(directory.path(), all).expect("changed");
        let refused = check_directory_of(&path)
            .expect_err("all may write")
            .to_string();
        let name = directory.path().file_name().expect("a name");
        assert!(refused.contains(&*name.to_string_lossy()), "{refused}");
        assert!(refused.contains("mode 0777"), "{refused}");
    }
}
