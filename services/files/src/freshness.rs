//! When an answer from the cache is right without asking a worker.
//!
//! There are two ways to know, by where the file lies:
//!
//! - A file on the directory's own mount, where that is local: its witnesses are asked before it is
//!   used for the first time in a turn. Whatever is answered during a turn was received before the
//!   turn began, so no answer is older than its request; and a file that many clients ask for in
//!   one turn is looked at once.
//! - Any other file: the network thread never looks, as that may block. The answer is good for
//!   `age_ns_max` from the moment a worker last began to look. After a part of that time one
//!   request, and no more, goes to a worker, whose answer renews the entry.
//!
//! Entries of the first kind also end when the mounts below the directory change: a walk to the
//! file might lead into a new one.
//!
//! Cost: the witnesses once per turn, or a comparison of times.

use std::time::Instant;

use crate::limits::STAT_AGE_REFRESH_DIVISOR;
use crate::look::Locality;

/// What a worker knew when it began to look at a file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Began {
    /// When that was.
    pub(crate) at: Instant,
    /// [`Mounts::version`](crate::mounts::Mounts::version) at that moment.
    pub(crate) mounts_version: u64,
    /// How many files had been written through this service.
    pub(crate) writes: u64,
}

/// Where the file of a note lies, which decides how it is checked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Looked {
    pub(crate) began: Began,
    pub(crate) locality: Locality,
}

/// The moment of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    pub(crate) turn_number: u64,
    /// Monotonic.
    pub(crate) now_ns: u64,
    pub(crate) mounts_version: u64,
    /// How many files have been written through this service.
    pub(crate) writes: u64,
}

/// How an entry is known to be right.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Check {
    /// By its witnesses, in each turn.
    Turn {
        /// The turn in which they were asked last. Turns count from 1.
        confirmed: u64,
        mounts_version: u64,
    },
    /// By its age alone.
    Age {
        /// When a worker began to look.
        looked_ns: u64,
        /// A request was sent to look again.
        renewal: Renewal,
        writes: u64,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Renewal {
    NotAsked,
    Asked,
}

/// What becomes of a request for an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// It is answered with it.
    Answer,
    /// It goes to a worker, which looks again; the entry stays.
    Renew,
    /// It goes to a worker; the entry is not right, or too old.
    Drop,
}

impl Check {
    pub(crate) fn ask(
        &mut self,
        moment: Moment,
        age_ns_max: u64,
        hold: impl FnOnce() -> bool,
    ) -> Use {
        match self {
            Self::Turn {
                confirmed,
                mounts_version,
            } => {
                if *confirmed == moment.turn_number {
                    return Use::Answer;
                }
                // The versions first: the witnesses must not be asked of a mount.
                if *mounts_version != moment.mounts_version || !hold() {
                    return Use::Drop;
                }
                *confirmed = moment.turn_number;
                Use::Answer
            }
            Self::Age {
                looked_ns,
                renewal,
                writes,
            } => {
                let age_ns = moment.now_ns.saturating_sub(*looked_ns);
                if age_ns >= age_ns_max || *writes != moment.writes {
                    return Use::Drop;
                }
                let is_due = age_ns >= age_ns_max / STAT_AGE_REFRESH_DIVISOR;
                if is_due && *renewal == Renewal::NotAsked {
                    *renewal = Renewal::Asked;
                    return Use::Renew;
                }
                Use::Answer
            }
        }
    }
}

impl Looked {
    pub(crate) fn check(self, now_ns: u64) -> Check {
        let began = self.began;
        if self.locality == Locality::Local {
            return Check::Turn {
                confirmed: 0,
                mounts_version: began.mounts_version,
            };
        }
        // The turn's clock was read before this one, so the age is never taken for less than it is.
        let age_ns = u64::try_from(began.at.elapsed().as_nanos()).unwrap_or(u64::MAX);
        Check::Age {
            looked_ns: now_ns.saturating_sub(age_ns),
            renewal: Renewal::NotAsked,
            writes: began.writes,
        }
    }
}
