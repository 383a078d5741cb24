//! What must still be so for a cached answer to be right, and how to make sure of it.
//!
//! An answer hangs on more than the file that is sent: on the directories above it not having
//! become links, on a better compressed sibling still not being there, on the plain file still
//! being there beside its sibling. Each is a witness, asked with one `statx` that follows no link
//! at its end; since every directory of the path is a witness of its own, no link anywhere on the
//! path goes unnoticed. An answer that a link led to has no witnesses and is not cached.
//!
//! Cost: `statx` times the number of witnesses; one for a file in the root and a client without
//! `Accept-Encoding`.

use std::ffi::CString;

use rustix::fs::FileType;
use rustix::io::Errno;

use crate::identity::Identity;
use crate::limits::HOT_DEPTH_MAX;
use crate::root::Root;

/// What a worker found beneath the root, by path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    /// A regular file in this state.
    File(Vec<u8>, Identity),
    /// Nothing at all.
    Nothing(Vec<u8>),
}

/// One thing to look at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Witness {
    path: CString,
    expected: Expected,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expected {
    File(Identity),
    /// Which directory; what is in it may change.
    Directory {
        device: u64,
        inode: u64,
    },
    Nothing,
}

impl Witness {
    /// The witnesses of some claims, all about files of one directory; `None` if the claims do not
    /// hold (any more), or only by way of a link, or the file lies too deep.
    pub(crate) fn of_claims(root: &Root, claims: &[Claim]) -> Option<Box<[Self]>> {
        let mut witnesses = Vec::with_capacity(claims.len() + 1);
        let (Claim::File(path, _) | Claim::Nothing(path)) = claims.first()?;
        let slashes = path.iter().enumerate().filter(|(_, byte)| **byte == b'/');
        for (depth, (end, _)) in slashes.enumerate() {
            if depth == HOT_DEPTH_MAX {
                return None;
            }
            let directory = CString::new(&path[..end]).ok()?;
            let statx = root.inspect(&directory).ok()?;
            let Identity { device, inode, .. } = Identity::from_statx(&statx);
            let expected = Expected::Directory { device, inode };
            witnesses.push(Self {
                path: directory,
                expected,
            });
        }
        for claim in claims {
            let (path, expected) = match claim {
                Claim::File(path, identity) => (path, Expected::File(*identity)),
                Claim::Nothing(path) => (path, Expected::Nothing),
            };
            witnesses.push(Self {
                path: CString::new(path.as_slice()).ok()?,
                expected,
            });
        }
        let hold = witnesses.iter().all(|witness| witness.confirms(root));
        hold.then(|| witnesses.into())
    }

    /// Whether it is still so.
    pub(crate) fn confirms(&self, root: &Root) -> bool {
        let found = root.inspect(&self.path);
        match (self.expected, found) {
            (Expected::Nothing, found) => found.is_err_and(|errno| errno == Errno::NOENT),
            (_, Err(_)) => false,
            // The inode is that of a regular file, and the change time says that it is no other.
            (Expected::File(identity), Ok(statx)) => Identity::from_statx(&statx) == identity,
            (Expected::Directory { device, inode }, Ok(statx)) => {
                let found = Identity::from_statx(&statx);
                let kind = FileType::from_raw_mode(u32::from(statx.stx_mode));
                kind == FileType::Directory && (found.device, found.inode) == (device, inode)
            }
        }
    }

    /// Bytes that it takes beside its own size.
    pub(crate) fn path_bytes(&self) -> usize {
        self.path.as_bytes_with_nul().len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::Path;

    fn claim(root: &Root, path: &str) -> Claim {
        let found = root.find(path.as_bytes()).expect("found");
        Claim::File(path.into(), found.identity)
    }

    fn folder() -> (tempfile::TempDir, Root) {
        let folder = tempfile::tempdir().expect("tempdir");
        fs::create_dir_all(folder.path().join("a/b")).expect("mkdir");
        fs::write(folder.path().join("a/b/file"), "content").expect("write");
        let root = Root::open(folder.path()).expect("open");
        (folder, root)
    }

    fn holds(witnesses: &[Witness], root: &Root) -> bool {
        witnesses.iter().all(|witness| witness.confirms(root))
    }

    fn witnesses(root: &Root) -> Box<[Witness]> {
        let absent = Claim::Nothing(b"a/b/file.br".to_vec());
        Witness::of_claims(root, &[absent, claim(root, "a/b/file")]).expect("they hold")
    }

    /// The witnesses of `a/b/file` without `a/b/file.br` hold, and after `change` they do not.
    fn assert_noticed(change: impl FnOnce(&Path)) {
        let (folder, root) = folder();
        let witnesses = witnesses(&root);
        assert!(holds(&witnesses, &root));
        change(folder.path());
        assert!(!holds(&witnesses, &root));
    }

    #[test]
    fn a_file_has_its_directories_for_witnesses() {
        let (_folder, root) = folder();
        let paths: Vec<_> = witnesses(&root)
            .iter()
            .map(|witness| witness.path.clone())
            .collect();
        assert_eq!(
            paths,
            [c"a", c"a/b", c"a/b/file.br", c"a/b/file"].map(CString::from)
        );
    }

    #[test]
    fn every_change_that_matters_is_noticed() {
        assert_noticed(|root| fs::write(root.join("a/b/file"), "contents").expect("write"));
        assert_noticed(|root| fs::remove_file(root.join("a/b/file")).expect("remove"));
        assert_noticed(|root| fs::write(root.join("a/b/file.br"), "").expect("write"));
        assert_noticed(|root| symlink("nothing", root.join("a/b/file.br")).expect("symlink"));
        assert_noticed(|root| fs::rename(root.join("a/b"), root.join("c")).expect("rename"));
        assert_noticed(|root| {
            fs::write(root.join("new"), "content").expect("write");
            fs::rename(root.join("new"), root.join("a/b/file")).expect("rename");
        });
        assert_noticed(|root| {
            use std::os::unix::fs::PermissionsExt;
            let permissions = fs::Permissions::from_mode(0o400);
            fs::set_permissions(root.join("a/b/file"), permissions).expect("chmod");
        });
    }

    #[test]
    fn a_directory_moved_away_and_linked_to_is_noticed() {
        let elsewhere = tempfile::tempdir().expect("tempdir");
        assert_noticed(|root| {
            fs::rename(root.join("a"), elsewhere.path().join("a")).expect("rename");
            symlink(elsewhere.path().join("a"), root.join("a")).expect("symlink");
        });
    }

    #[test]
    fn a_file_moved_away_and_linked_to_is_noticed() {
        assert_noticed(|root| {
            fs::rename(root.join("a/b/file"), root.join("a/other")).expect("rename");
            symlink("../other", root.join("a/b/file")).expect("symlink");
        });
    }

    #[test]
    fn what_a_link_led_to_has_no_witnesses() {
        let (folder, root) = folder();
        symlink("a", folder.path().join("link")).expect("symlink");
        symlink("b/file", folder.path().join("a/link")).expect("symlink");
        for path in ["link/b/file", "a/link", "link/link"] {
            assert_eq!(
                Witness::of_claims(&root, &[claim(&root, path)]),
                None,
                "{path}"
            );
        }
    }

    #[test]
    fn a_claim_that_does_not_hold_has_no_witnesses() {
        let (_folder, root) = folder();
        let wrong = Claim::Nothing(b"a/b/file".to_vec());
        assert_eq!(Witness::of_claims(&root, &[wrong]), None);
        let gone = Claim::File(
            b"gone".to_vec(),
            root.find(b"a/b/file").expect("found").identity,
        );
        assert_eq!(Witness::of_claims(&root, &[gone]), None);
        assert_eq!(Witness::of_claims(&root, &[]), None);
    }

    #[test]
    fn a_file_too_deep_has_no_witnesses() {
        let (folder, root) = folder();
        let deepest = "d/".repeat(HOT_DEPTH_MAX);
        fs::create_dir_all(folder.path().join(&deepest).join("d")).expect("mkdir");
        for (directory, is_kept) in [(deepest.clone(), true), (deepest + "d/", false)] {
            let path = directory + "file";
            fs::write(folder.path().join(&path), "").expect("write");
            let witnesses = Witness::of_claims(&root, &[claim(&root, &path)]);
            assert_eq!(witnesses.is_some(), is_kept, "{path}");
        }
    }
}
