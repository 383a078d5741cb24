//! When an answer from the cache is right without asking a worker.
//!
//! There are two ways to know, by where the file lies:
//!
//! - A file on the directory's own mount, where that is local: its checks run before the entry is
//!   used for the first time in a turn. Whatever is answered during a turn was received before the
//!   turn began, so no answer is older than its request; and a file that many clients ask for in
//!   one turn is checked once.
//! - Any other file: the network thread never looks, as that may block. The answer is good for
//!   `age_ns_max` from the moment a worker last began to look. After a part of that time one
//!   request, and no more, goes to a worker, whose answer renews the entry.
//!
//! All entries end when the home changes ([`Versions::home`](crate::versions::Versions::home)):
//! with another root, and when the mounts below the root are others, as a walk to the file might
//! lead into a new one.
//!
//! An answer depends on more than the file that is sent: no directory above it may have become a
//! link, no better compressed sibling may have appeared, and the plain file must still be beside
//! its sibling. Each is a [`FreshnessCheck`]: one `statx` that follows no link at the end of its
//! path. Every directory of the path has a check of its own, so a link anywhere on the path is
//! noticed. An answer that a link led to has no checks and is not cached.
//!
//! Cost: `statx` times the number of checks, once per turn, or a comparison of times. One check for
//! a file in the root and a client without `Accept-Encoding`.

use std::ffi::{CStr, CString};
use std::time::Instant;

use rustix::fs::FileType;
use rustix::io::Errno;

use crate::identity::Identity;
use crate::limits::{CACHE_DEPTH_MAX, STAT_AGE_REFRESH_DIVISOR};
use crate::root::Root;
use crate::stat::Locality;

/// A worker's knowledge when it began to look at a file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LookupStart {
    pub(crate) at: Instant,
    /// [`Versions::home`](crate::versions::Versions::home) at that moment.
    pub(crate) home_version: u64,
    /// How many files had been written through this service.
    pub(crate) writes: u64,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Lookup {
    pub(crate) began: LookupStart,
    pub(crate) locality: Locality,
}

/// The moment of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    pub(crate) turn_number: u64,
    /// Monotonic.
    pub(crate) now_ns: u64,
    /// How many files have been written through this service.
    pub(crate) writes: u64,
}

/// How an entry is known to be right.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Validity {
    /// By its checks, in each turn.
    Turn {
        /// The turn in which they were asked last. Turns count from 1.
        confirmed: u64,
    },
    /// By its age alone.
    Age {
        looked_ns: u64,
        /// A request was sent to look again.
        is_asked: bool,
        writes: u64,
    },
}

/// The outcome of a request for an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// It is answered with it.
    Answer,
    /// It goes to a worker, which looks again; the entry stays.
    Renew,
    /// It goes to a worker; the entry is not right, or too old.
    Drop,
}

impl Validity {
    pub(crate) fn ask(
        &mut self,
        moment: Moment,
        age_ns_max: u64,
        hold: impl FnOnce() -> bool,
    ) -> Use {
        match self {
            Self::Turn { confirmed } => {
                if *confirmed == moment.turn_number {
                    return Use::Answer;
                }
                if !hold() {
                    return Use::Drop;
                }
                *confirmed = moment.turn_number;
                Use::Answer
            }
            Self::Age {
                looked_ns,
                is_asked,
                writes,
            } => {
                let age_ns = moment.now_ns.saturating_sub(*looked_ns);
                if age_ns >= age_ns_max || *writes != moment.writes {
                    return Use::Drop;
                }
                let is_due = age_ns >= age_ns_max / STAT_AGE_REFRESH_DIVISOR;
                if is_due && !*is_asked {
                    *is_asked = true;
                    return Use::Renew;
                }
                Use::Answer
            }
        }
    }
}

impl Lookup {
    pub(crate) fn validity(self, now_ns: u64) -> Validity {
        let began = self.began;
        if self.locality == Locality::Local {
            return Validity::Turn { confirmed: 0 };
        }
        // The turn's clock was read before this one, so the age is never taken for less than it is.
        let age_ns = u64::try_from(began.at.elapsed().as_nanos()).unwrap_or(u64::MAX);
        Validity::Age {
            looked_ns: now_ns.saturating_sub(age_ns),
            is_asked: false,
            writes: began.writes,
        }
    }
}

/// A worker's findings beneath the root, by path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Observation {
    File(Vec<u8>, Identity),
    /// In which a file was looked for in vain, or in place of one.
    Directory(Vec<u8>, Identity),
    Nothing(Vec<u8>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FreshnessCheck {
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

impl Expected {
    /// What is at a path now; `None` for a link, and what is neither file nor directory.
    fn at(root: &Root, path: &CStr) -> Option<Self> {
        let statx = match root.inspect(path) {
            Ok(statx) => statx,
            Err(Errno::NOENT) => return Some(Self::Nothing),
            Err(_) => return None,
        };
        let identity = Identity::from_statx(&statx);
        match FileType::from_raw_mode(u32::from(statx.stx_mode)) {
            FileType::Directory => Some(Self::directory(&identity)),
            FileType::RegularFile => Some(Self::File(identity)),
            _ => None,
        }
    }

    fn directory(identity: &Identity) -> Self {
        let Identity { device, inode, .. } = *identity;
        Self::Directory { device, inode }
    }
}

impl FreshnessCheck {
    /// The checks of some observations; `None` if they do not hold (any more), or only by way of a
    /// link, or the file lies too deep.
    pub(crate) fn of_observations(
        root: &Root,
        observations: &[Observation],
    ) -> Option<Box<[Self]>> {
        let checks = Self::of_direct(root, observations)?;
        let hold = checks.iter().all(|check| check.confirms(root));
        hold.then_some(checks)
    }

    /// The same of what was found without a link a moment ago: they are not asked here, but before
    /// each use of their entry.
    pub(crate) fn of_direct(root: &Root, observations: &[Observation]) -> Option<Box<[Self]>> {
        let mut checks = Vec::with_capacity(observations.len() + 1);
        observations.first()?;
        for observation in observations {
            let (path, expected) = match observation {
                Observation::File(path, identity) => (path, Expected::File(*identity)),
                Observation::Directory(path, identity) => (path, Expected::directory(identity)),
                Observation::Nothing(path) => (path, Expected::Nothing),
            };
            if Self::push_directories(root, path, expected, &mut checks)? {
                checks.push(Self {
                    path: CString::new(path.as_slice()).ok()?,
                    expected,
                });
            }
        }
        Some(checks.into())
    }

    /// Checks of the directories above a path, once each, so that none is walked through that has
    /// become a link. False: one of them is not there, or is a file, which says already that there
    /// is nothing below.
    fn push_directories(
        root: &Root,
        path: &[u8],
        expected: Expected,
        checks: &mut Vec<Self>,
    ) -> Option<bool> {
        let slashes = path.iter().enumerate().filter(|(_, byte)| **byte == b'/');
        for (depth, (end, _)) in slashes.enumerate() {
            if depth == CACHE_DEPTH_MAX {
                return None;
            }
            let directory = CString::new(&path[..end]).ok()?;
            let known = checks.iter().find(|check| check.path == directory);
            let found = match known.map(|check| check.expected) {
                Some(known) => known,
                None => {
                    let found = Expected::at(root, &directory)?;
                    checks.push(Self {
                        path: directory,
                        expected: found,
                    });
                    found
                }
            };
            let leads_on = matches!(found, Expected::Directory { .. });
            if !leads_on {
                return (expected == Expected::Nothing).then_some(false);
            }
        }
        Some(true)
    }

    pub(crate) fn confirms(&self, root: &Root) -> bool {
        let found = root.inspect(&self.path);
        match (self.expected, found) {
            (Expected::Nothing, found) => found.is_err_and(|errno| errno == Errno::NOENT),
            (_, Err(_)) => false,
            // The inode is that of a regular file, and the same change time means the same file.
            (Expected::File(identity), Ok(statx)) => Identity::from_statx(&statx) == identity,
            (Expected::Directory { device, inode }, Ok(statx)) => {
                let found = Identity::from_statx(&statx);
                let kind = FileType::from_raw_mode(u32::from(statx.stx_mode));
                kind == FileType::Directory && (found.device, found.inode) == (device, inode)
            }
        }
    }

    /// Bytes that it takes in addition to its own size.
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

    use crate::tests::wait_until_stable;

    fn observation(root: &Root, path: &str) -> Observation {
        let found = root.find(path.as_bytes()).expect("found");
        Observation::File(path.into(), found.identity)
    }

    fn folder() -> (tempfile::TempDir, Root) {
        let folder = tempfile::tempdir().expect("tempdir");
        fs::create_dir_all(folder.path().join("a/b")).expect("mkdir");
        fs::write(folder.path().join("a/b/file"), "content").expect("write");
        let root = Root::open(folder.path()).expect("open");
        (folder, root)
    }

    fn holds(checks: &[FreshnessCheck], root: &Root) -> bool {
        checks.iter().all(|check| check.confirms(root))
    }

    fn checks(root: &Root) -> Box<[FreshnessCheck]> {
        let absent = Observation::Nothing(b"a/b/file.br".to_vec());
        FreshnessCheck::of_observations(root, &[absent, observation(root, "a/b/file")])
            .expect("they hold")
    }

    /// The checks of `a/b/file` without `a/b/file.br` hold, and after `change` they do not.
    fn assert_noticed(change: impl FnOnce(&Path)) {
        let (folder, root) = folder();
        let checks = checks(&root);
        assert!(holds(&checks, &root));
        // Before Linux 6.13 two changes of one tick have one time: what is that new is not kept.
        wait_until_stable();
        change(folder.path());
        assert!(!holds(&checks, &root));
    }

    #[test]
    fn a_file_has_its_directories_for_witnesses() {
        let (_folder, root) = folder();
        let paths: Vec<_> = checks(&root)
            .iter()
            .map(|check| check.path.clone())
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
                FreshnessCheck::of_observations(&root, &[observation(&root, path)]),
                None,
                "{path}"
            );
        }
    }

    #[test]
    fn a_claim_that_does_not_hold_has_no_witnesses() {
        let (_folder, root) = folder();
        let wrong = Observation::Nothing(b"a/b/file".to_vec());
        assert_eq!(FreshnessCheck::of_observations(&root, &[wrong]), None);
        let gone = Observation::File(
            b"gone".to_vec(),
            root.find(b"a/b/file").expect("found").identity,
        );
        assert_eq!(FreshnessCheck::of_observations(&root, &[gone]), None);
        assert_eq!(FreshnessCheck::of_observations(&root, &[]), None);
    }

    #[test]
    fn a_file_too_deep_has_no_witnesses() {
        let (folder, root) = folder();
        let deepest = "d/".repeat(CACHE_DEPTH_MAX);
        fs::create_dir_all(folder.path().join(&deepest).join("d")).expect("mkdir");
        for (directory, is_kept) in [(deepest.clone(), true), (deepest + "d/", false)] {
            let path = directory + "file";
            fs::write(folder.path().join(&path), "").expect("write");
            let checks = FreshnessCheck::of_observations(&root, &[observation(&root, &path)]);
            assert_eq!(checks.is_some(), is_kept, "{path}");
        }
    }
}
