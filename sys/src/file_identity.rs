//! A thread's identity for the file system (`setfsuid`, `setfsgid`, `setgroups` of one thread).
//!
//! The kernel then decides what the thread may open, with mode bits, access control lists and all,
//! and new files belong to that user. Leaving user 0 drops the capabilities that override file
//! permissions for as long as it lasts; nothing else of the process changes.
//!
//! Cost: three system calls.

use std::io;

/// A user with groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileIdentity<'a> {
    /// User.
    pub user: u32,
    /// Group of new files.
    pub group: u32,
    /// Further groups, all of them.
    pub groups: &'a [u32],
}

/// Lets the calling thread, and only it, act as `identity` on files.
///
/// # Errors
/// When the kernel refused any part of it. What was set before that is still set: set another
/// identity, or end the thread.
pub fn set_file_identity(identity: FileIdentity<'_>) -> io::Result<()> {
    // To a user without capabilities last, away from it first: only user 0 may set groups.
    if identity.user == 0 {
        set_user(0)?;
    }
    set_groups(identity.groups)?;
    set_group(identity.group)?;
    if identity.user != 0 {
        set_user(identity.user)?;
    }
    Ok(())
}

/// Of this thread: the C library's `setgroups` changes those of all.
fn set_groups(groups: &[u32]) -> io::Result<()> {
    // SAFETY: the kernel reads as many numbers as there are.
    let outcome = unsafe { libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr()) };
    if outcome == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

fn set_user(user: u32) -> io::Result<()> {
    // SAFETY: the call takes a number and touches no memory.
    unsafe { libc::setfsuid(user) };
    // The call reports the user before, so a second one with an impossible user tells whether the
    // first succeeded.
    // SAFETY: as above.
    let now = unsafe { libc::setfsuid(u32::MAX) };
    confirm(now, user)
}

fn set_group(group: u32) -> io::Result<()> {
    // SAFETY: as for `set_user`.
    unsafe { libc::setfsgid(group) };
    // SAFETY: as for `set_user`.
    let now = unsafe { libc::setfsgid(u32::MAX) };
    confirm(now, group)
}

fn confirm(now: i32, wanted: u32) -> io::Result<()> {
    if now.cast_unsigned() == wanted {
        Ok(())
    } else {
        Err(io::Error::from_raw_os_error(libc::EPERM))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_made_by_and_kept_from_the_identity_of_the_thread() {
        use std::os::unix::fs::{MetadataExt, PermissionsExt};
        if crate::process::user() != 0 {
            let groups = [];
            let other = FileIdentity {
                user: 1,
                group: 1,
                groups: &groups,
            };
            assert!(set_file_identity(other).is_err(), "only root may");
            return;
        }
        let directory = std::env::temp_dir().join(format!("identity-{}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("a directory");
        std::fs::set_permissions(&directory, PermissionsExt::from_mode(0o777)).expect("chmod");
        let secret = directory.join("secret");
        std::fs::write(&secret, b"").expect("a file");
        std::fs::set_permissions(&secret, PermissionsExt::from_mode(0o600)).expect("chmod");
        let groups = [4321];
        let other = FileIdentity {
            user: 1234,
            group: 4321,
            groups: &groups,
        };
        let made = directory.join("made");
        let thread = std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                set_file_identity(other).expect("root may");
                let refused = std::fs::read(&secret).is_err();
                std::fs::write(&made, b"").expect("the directory is open to all");
                let root = FileIdentity {
                    user: 0,
                    group: 0,
                    groups: &[],
                };
                set_file_identity(root).expect("and back");
                refused && std::fs::read(&secret).is_ok()
            });
            thread.join()
        });
        assert_eq!(thread.ok(), Some(true));
        let made = std::fs::metadata(&made).expect("made");
        assert_eq!((made.uid(), made.gid()), (1234, 4321));
        assert!(std::fs::read(&secret).is_ok(), "this thread is who it was");
        std::fs::remove_dir_all(&directory).expect("clean up");
    }
}
