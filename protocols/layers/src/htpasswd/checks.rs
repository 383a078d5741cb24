//! How many passwords are checked at a time, and in which memory: one bound for all files that have
//! it, as they share processors and memory.

use std::time::Duration;

use flatpath::blocking::{BlockingLimit, WaitLimits};
use flatpath::memory::SharePart;

use super::processors;
use crate::limits::{CHECKS_PART, CHECKS_WAITING_MAX};

/// A check that has begun ends in a second or two; so nothing has moved for long enough after ten.
const STUCK_AFTER: Duration = Duration::from_secs(10);

/// A bound on checks of passwords, for one [`Htpasswd`](super::Htpasswd) or several. A clone is the
/// same.
///
/// Further checks wait for their turn, and beyond a number of those they are refused.
#[derive(Clone, Debug)]
pub struct PasswordChecks {
    pub(super) limit: BlockingLimit,
    pub(super) memory: SharePart,
}

impl PasswordChecks {
    /// One of four processors checks at a time, and one at least; the memory is not bounded.
    #[must_use]
    pub fn new() -> Self {
        Self::at_most(Self::usual())
    }

    /// As many as [`PasswordChecks::new`] has.
    #[must_use]
    pub fn usual() -> u32 {
        let checks = u32::try_from(processors() / CHECKS_PART);
        checks.unwrap_or(u32::MAX).max(1)
    }

    /// So many at a time, and one at least.
    #[must_use]
    pub fn at_most(checks: u32) -> Self {
        let limits = WaitLimits {
            waiting_max: CHECKS_WAITING_MAX,
            stuck_after: STUCK_AFTER,
        };
        Self {
            limit: BlockingLimit::at_most(checks, "checks of passwords", limits),
            memory: SharePart::default(),
        }
    }

    /// Takes the memory of checks from this part of a share. It should own what as many checks
    /// need ([`Htpasswd::check_bytes`](super::Htpasswd::check_bytes)): one that finds no memory is
    /// refused, and a file whose checks never would is not taken.
    #[must_use]
    pub fn memory(self, part: SharePart) -> Self {
        Self {
            memory: part,
            ..self
        }
    }
}

impl Default for PasswordChecks {
    fn default() -> Self {
        Self::new()
    }
}
