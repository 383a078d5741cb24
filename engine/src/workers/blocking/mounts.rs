//! One limit for each mounted file system, whichever services use it.
//!
//! A mount that hangs keeps the workers of every service that asks it. So what they may have of the
//! workers together is one limit, found by the kernel's number for the mount.
//!
//! Invariant: of each number there is at most one limit. A number that the kernel uses again while
//! jobs are inside the old mount is shared with them.
//!
//! Cost: a lock and a search in a map, once for each mount and service.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use flatpath_structures::lock::Lock;

use super::{BlockingLimit, Inner, WaitLimits};

static LIMITS: Lock<BTreeMap<u64, Weak<Inner>>> = Lock::new(BTreeMap::new());

impl WaitLimits {
    /// What a mount allows. Twice as many wait as there may be workers. It is stuck after 150 ms,
    /// which is short because clients wait meanwhile.
    pub const MOUNT: Self = Self {
        waiting_max: 256,
        stuck_after: Duration::from_millis(150),
    };
}

impl BlockingLimit {
    /// The limit of a mount, by the kernel's number for it: `STATX_MNT_ID`, or the first column of
    /// `/proc/self/mountinfo`. Everything in this process that names the number gets the same one;
    /// `name` is for the log if nothing has named it yet.
    pub fn of_mount(number: u64, name: impl Into<String>) -> Self {
        // Nothing that could panic runs under the lock.
        let mut limits = LIMITS.lock();
        if let Some(known) = limits.get(&number).and_then(Weak::upgrade) {
            return Self(known);
        }
        // OURS: limits without a job.
        limits.retain(|_, limit| limit.strong_count() > 0);
        let limit = Self::new(name, WaitLimits::MOUNT);
        limits.insert(number, Arc::downgrade(&limit.0)); // OURS: it was not there.
        limit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_has_one_limit_for_as_long_as_it_is_used() {
        // Beyond what a kernel counts to.
        let (one, other) = (u64::MAX, u64::MAX - 1);
        let first = BlockingLimit::of_mount(one, "first");
        assert!(BlockingLimit::of_mount(one, "second").is(&first));
        assert!(!BlockingLimit::of_mount(other, "other").is(&first));
        drop(first);
        assert_eq!(BlockingLimit::of_mount(one, "third").name(), "third");
    }
}
