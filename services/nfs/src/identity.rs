//! A caller's identity for the file system: squashing, and letting a thread act as that user.
//!
//! A server that runs as root lets the kernel decide: the thread takes on the caller's user and
//! groups for the operation, so mode bits, access control lists and ownership of new files are the
//! kernel's own. A server that does not run as root has one identity; every caller is that user.
//!
//! Invariants
//! - I1: a thread, a worker or a network thread, leaves every operation with the identity that it
//!   had; where that fails the process ends, because the rights of the next request there would be
//!   unknown.

use flatpath_rpc::{Credential, Groups};
use flatpath_sys::file_identity::{FileIdentity, set_file_identity};
use rustix::process::{Gid, getegid, geteuid, getgroups};

/// The number of the user and the group `nobody`.
pub(crate) const NOBODY: u32 = 65_534;

/// Which callers become `nobody`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Squash {
    /// User 0 and group 0, wherever they are listed.
    #[default]
    Root,
    /// Only callers without credentials.
    Anonymous,
}

/// A caller after squashing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Who {
    pub(crate) user: u32,
    pub(crate) group: u32,
    pub(crate) groups: Groups,
}

impl Who {
    pub(crate) fn new(credential: &Credential, squash: Squash) -> Who {
        let Credential::System {
            user,
            group,
            groups,
        } = *credential
        else {
            return Who {
                user: NOBODY,
                group: NOBODY,
                groups: Groups::default(),
            };
        };
        if squash == Squash::Anonymous {
            return Who {
                user,
                group,
                groups,
            };
        }
        let map = |number: u32| if number == 0 { NOBODY } else { number };
        let groups = Groups::new(groups.as_slice().iter().map(|group| map(*group)));
        Who {
            user: map(user),
            group: map(group),
            groups,
        }
    }
}

/// The server's own identity, and so which others it can take on.
#[derive(Clone, Debug)]
pub(crate) struct Server {
    user: u32,
    group: u32,
    groups: Vec<u32>,
    switches: bool,
}

impl Server {
    /// As this process runs now.
    ///
    /// # Errors
    /// When the kernel does not tell its groups.
    pub(crate) fn current() -> std::io::Result<Server> {
        let user = geteuid().as_raw();
        let groups = getgroups()?.into_iter().map(Gid::as_raw).collect();
        Ok(Server {
            user,
            group: getegid().as_raw(),
            groups,
            switches: user == 0,
        })
    }

    /// True when each caller acts as itself; false when every caller is the server's user.
    pub(crate) fn switches(&self) -> bool {
        self.switches
    }

    /// The identity of `who` for the file system of this server.
    pub(crate) fn acting(&self, who: Who) -> Who {
        if self.switches {
            return who;
        }
        Who {
            user: self.user,
            group: self.group,
            groups: Groups::default(),
        }
    }

    /// Lets this thread act as `who` until the result is dropped.
    ///
    /// # Errors
    /// The kernel refuses it; the thread keeps its identity.
    pub(crate) fn act_as(&self, who: &Who) -> std::io::Result<Acting<'_>> {
        let groups = who.groups.as_slice();
        let is_itself = who.user == self.user && who.group == self.group && groups.is_empty();
        if !self.switches || is_itself {
            return Ok(Acting(None));
        }
        let acting = Acting(Some(self));
        set_file_identity(FileIdentity {
            user: who.user,
            group: who.group,
            groups,
        })?;
        Ok(acting)
    }
}

/// A thread that acts as another. Dropped, it is the server's own again, panic or not (I1).
#[must_use = "the thread is itself again when this is dropped"]
pub(crate) struct Acting<'a>(Option<&'a Server>);

impl Drop for Acting<'_> {
    fn drop(&mut self) {
        let Some(server) = self.0 else {
            return;
        };
        let own = FileIdentity {
            user: server.user,
            group: server.group,
            groups: &server.groups,
        };
        if set_file_identity(own).is_err() {
            log::error!("a thread could not return to its own identity");
            std::process::abort();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn system(user: u32, group: u32, groups: &[u32]) -> Credential {
        Credential::System {
            user,
            group,
            groups: Groups::new(groups.iter().copied()),
        }
    }

    #[test]
    fn root_is_nobody_in_every_place() {
        let who = Who::new(&system(0, 0, &[0, 5, 0]), Squash::Root);
        assert_eq!((who.user, who.group), (NOBODY, NOBODY));
        assert_eq!(who.groups.as_slice(), [NOBODY, 5, NOBODY]);
        let who = Who::new(&system(1000, 100, &[27]), Squash::Root);
        assert_eq!(
            (who.user, who.group, who.groups.as_slice()),
            (1000, 100, &[27][..])
        );
    }

    #[test]
    fn callers_without_a_name_are_nobody_whatever_the_squash() {
        for squash in [Squash::Root, Squash::Anonymous] {
            assert_eq!(Who::new(&Credential::None, squash).user, NOBODY);
        }
        assert_eq!(Who::new(&system(0, 0, &[0]), Squash::Anonymous).user, 0);
    }

    #[test]
    fn a_thread_is_itself_again_after_acting_even_after_a_panic() {
        let server = Server::current().expect("groups");
        if !server.switches() {
            return;
        }
        let directory = tempfile::tempdir().expect("a directory");
        let closed: std::fs::Permissions = std::os::unix::fs::PermissionsExt::from_mode(0o700);
        std::fs::set_permissions(directory.path(), closed).expect("chmod");
        let secret = directory.path().join("secret");
        std::fs::write(&secret, b"").expect("a file");
        let who = Who::new(&system(1234, 1234, &[]), Squash::Root);
        let acting = server.act_as(&who).expect("root may");
        let refused = std::fs::read(&secret);
        drop(acting);
        assert!(refused.is_err(), "the directory is for its owner");
        let panicked = std::panic::catch_unwind(|| {
            let _acting = server.act_as(&who);
            panic!("on purpose");
        });
        assert!(panicked.is_err());
        assert!(std::fs::read(&secret).is_ok(), "root again");
    }
}
