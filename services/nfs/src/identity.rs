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

use std::sync::Arc;

use flatpath_rpc::{Credential, Groups};
use flatpath_sys::file_identity::{FileIdentity, set_file_identity};
use rustix::process::{Gid, getegid, geteuid, getgroups};
use rustix::thread::{CapabilitySet, capabilities};

use crate::rights::{NOBODY, Rights, Squash};

/// Further groups of a caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum GroupList {
    /// As the call names them.
    Sent(Groups),
    /// As this machine knows them.
    Known(Arc<[u32]>),
}

impl Default for GroupList {
    fn default() -> GroupList {
        GroupList::Sent(Groups::default())
    }
}

impl GroupList {
    pub(crate) fn as_slice(&self) -> &[u32] {
        match self {
            GroupList::Sent(groups) => groups.as_slice(),
            GroupList::Known(groups) => groups,
        }
    }

    /// The same with another number for root's group.
    fn without_root(self, anonymous: u32) -> GroupList {
        if !self.as_slice().contains(&0) {
            return self;
        }
        let map = |group: &u32| if *group == 0 { anonymous } else { *group };
        match self {
            GroupList::Sent(groups) => {
                GroupList::Sent(Groups::new(groups.as_slice().iter().map(map)))
            }
            GroupList::Known(groups) => GroupList::Known(groups.iter().map(map).collect()),
        }
    }
}

/// A caller after squashing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Who {
    pub(crate) user: u32,
    pub(crate) group: u32,
    pub(crate) groups: GroupList,
}

/// Nobody.
impl Default for Who {
    fn default() -> Who {
        Who {
            user: NOBODY,
            group: NOBODY,
            groups: GroupList::default(),
        }
    }
}

impl Who {
    /// The caller with these rights; `known` are its groups, where this machine says which they
    /// are.
    pub(crate) fn new(credential: &Credential, rights: &Rights, known: Option<Arc<[u32]>>) -> Who {
        let anonymous = Who {
            user: rights.anonymous_user,
            group: rights.anonymous_group,
            groups: GroupList::default(),
        };
        let Credential::System {
            user,
            group,
            groups,
        } = *credential
        else {
            return anonymous;
        };
        let groups = known.map_or(GroupList::Sent(groups), GroupList::Known);
        let instead = |number: u32, anonymous: u32| if number == 0 { anonymous } else { number };
        match rights.squash {
            Squash::All => anonymous,
            Squash::Anonymous => Who {
                user,
                group,
                groups,
            },
            Squash::Root => Who {
                user: instead(user, anonymous.user),
                group: instead(group, anonymous.group),
                groups: groups.without_root(anonymous.group),
            },
        }
    }
}

/// What a caller may do to files of others (capabilities(7)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Powers {
    /// Give files away (`CAP_CHOWN`).
    pub(crate) gives_away: bool,
    /// What owners may (`CAP_FOWNER`).
    pub(crate) owns_all: bool,
    /// The server itself may what owners may, and so can do it for a caller.
    pub(crate) lent: bool,
}

/// The server's own identity, and so which others it can take on.
#[derive(Clone, Debug)]
pub(crate) struct Server {
    user: u32,
    group: u32,
    groups: Vec<u32>,
    switches: bool,
    capabilities: CapabilitySet,
}

impl Server {
    /// As this process runs now.
    ///
    /// # Errors
    /// When the kernel does not tell its groups or capabilities.
    pub(crate) fn current() -> std::io::Result<Server> {
        let user = geteuid().as_raw();
        let capabilities = capabilities(None)?.effective;
        let groups = getgroups()?.into_iter().map(Gid::as_raw).collect();
        Ok(Server {
            user,
            group: getegid().as_raw(),
            groups,
            switches: user == 0,
            capabilities,
        })
    }

    /// What the kernel lets `who` do to files of others, as a thread that acts as it: another user
    /// than root has lost what overrides permissions of files.
    pub(crate) fn powers(&self, who: &Who) -> Powers {
        let acts_with_all = !self.switches || who.user == 0;
        let has = |capability| self.capabilities.contains(capability);
        Powers {
            gives_away: acts_with_all && has(CapabilitySet::CHOWN),
            owns_all: acts_with_all && has(CapabilitySet::FOWNER),
            lent: has(CapabilitySet::FOWNER),
        }
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
            groups: GroupList::default(),
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

    fn rights(squash: Squash) -> Rights {
        Rights {
            squash,
            ..Rights::default()
        }
    }

    /// User, group and groups of a caller.
    fn numbers(who: &Who) -> (u32, u32, &[u32]) {
        (who.user, who.group, who.groups.as_slice())
    }

    #[test]
    fn root_is_nobody_in_every_place() {
        let root = rights(Squash::Root);
        let who = Who::new(&system(0, 0, &[0, 5, 0]), &root, None);
        assert_eq!(numbers(&who), (NOBODY, NOBODY, &[NOBODY, 5, NOBODY][..]));
        let who = Who::new(&system(5, 0, &[0; 16]), &root, None);
        assert_eq!(numbers(&who), (5, NOBODY, &[NOBODY; 16][..]));
        let who = Who::new(&system(1000, 100, &[27]), &root, None);
        assert_eq!(numbers(&who), (1000, 100, &[27][..]));
        let other = Rights {
            anonymous_user: 7,
            anonymous_group: 8,
            ..root
        };
        let who = Who::new(&system(0, 0, &[0, 5]), &other, None);
        assert_eq!(numbers(&who), (7, 8, &[8, 5][..]));
    }

    #[test]
    fn callers_without_a_name_are_nobody_whatever_the_squash() {
        for squash in [Squash::Root, Squash::Anonymous, Squash::All] {
            let who = Who::new(&Credential::None, &rights(squash), None);
            assert_eq!(numbers(&who), (NOBODY, NOBODY, &[][..]));
        }
        let who = Who::new(&system(0, 0, &[0]), &rights(Squash::Anonymous), None);
        assert_eq!(numbers(&who), (0, 0, &[0][..]));
    }

    #[test]
    fn all_become_one_where_all_are_squashed_and_keep_no_group() {
        let all = Rights {
            anonymous_user: 7,
            anonymous_group: 8,
            ..rights(Squash::All)
        };
        for user in [0, 1000] {
            let known: Arc<[u32]> = [0, 27].into();
            let who = Who::new(&system(user, 0, &[0; 16]), &all, Some(known));
            assert_eq!(numbers(&who), (7, 8, &[][..]));
        }
    }

    #[test]
    fn known_groups_take_the_place_of_those_that_were_sent() {
        let known: Arc<[u32]> = (0..40).collect();
        let sent = system(1000, 100, &[0, 4711]);
        let who = Who::new(&sent, &rights(Squash::Anonymous), Some(Arc::clone(&known)));
        assert_eq!(numbers(&who), (1000, 100, &known[..]));
        let who = Who::new(&sent, &rights(Squash::Root), Some(Arc::clone(&known)));
        assert_eq!(who.groups.as_slice()[..3], [NOBODY, 1, 2]);
        assert_eq!(who.groups.as_slice().len(), 40);
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
        let who = Who::new(&system(1234, 1234, &[]), &rights(Squash::Root), None);
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
