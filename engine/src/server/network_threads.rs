//! How many network threads a server has, and what [`NetworkThreads::Auto`] makes of a machine.
//!
//! A second thread serves more only where the first is at its limit and a processor is free; it
//! makes many requests dearer, because a thread finds fewer of them at a time. Measured for up to
//! four processors: up to three, one thread is the better choice; at four, two serve more at the
//! limit, and one is kept because few servers reach it. Load below the limit was not measured, nor
//! were larger machines (`docs/figures.md`).

use std::fmt;
use std::num::NonZero;
use std::sync::OnceLock;
use std::thread::available_parallelism;

/// Processors for each network thread: workers, the kernel's network and other programs have the
/// rest.
const PROCESSORS_EACH: usize = 4;

/// More are not chosen: each has receive memory, caches and a share of the connections of its own,
/// which become small.
const AUTO_MAX: usize = 16;

/// How many network threads a server has.
///
/// ```
/// use flatpath::{NetworkThreads, Server};
///
/// let server = Server::new().network_threads(NetworkThreads::Auto);
/// let server = Server::new().network_threads(2);
/// # drop(server);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum NetworkThreads {
    /// What suits the processors that this process may use: those of its affinity, and no more
    /// than its control group's quota pays for (`cpu.max`; version 1: `cpu.cfs_quota_us`). One
    /// for up to seven processors, then one for every four, sixteen at most.
    #[default]
    Auto,
    /// This number, at least one.
    Exactly(usize),
}

impl NetworkThreads {
    /// How many these are in this process. `Auto` is chosen once: every caller gets the same
    /// number, also when the affinity or the quota has changed since.
    #[must_use]
    pub fn count(self) -> usize {
        static CHOSEN: OnceLock<usize> = OnceLock::new();
        match self {
            NetworkThreads::Auto => *CHOSEN.get_or_init(|| for_processors(processors())),
            NetworkThreads::Exactly(count) => count,
        }
    }
}

impl From<usize> for NetworkThreads {
    fn from(count: usize) -> NetworkThreads {
        NetworkThreads::Exactly(count)
    }
}

/// As the command line has it: `auto`, or the number.
impl fmt::Display for NetworkThreads {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NetworkThreads::Auto => formatter.pad("auto"),
            NetworkThreads::Exactly(count) => fmt::Display::fmt(count, formatter),
        }
    }
}

/// Processors that this process may use; one where the kernel does not tell.
pub(crate) fn processors() -> usize {
    available_parallelism().map_or(1, NonZero::get)
}

fn for_processors(processors: usize) -> usize {
    (processors / PROCESSORS_EACH).clamp(1, AUTO_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_machines_have_one_and_large_ones_no_more_than_is_known_to_be_good() {
        let chosen = [1, 2, 4, 7, 8, 15, 16, 64, 512].map(for_processors);
        assert_eq!(chosen, [1, 1, 1, 1, 2, 3, 4, 16, 16]);
    }

    #[test]
    fn auto_is_the_same_for_all_who_ask() {
        assert_eq!(NetworkThreads::default(), NetworkThreads::Auto);
        let count = NetworkThreads::Auto.count();
        assert_eq!(count, for_processors(processors()));
        assert_eq!(NetworkThreads::from(3).count(), 3);
        let words = [NetworkThreads::Auto, NetworkThreads::Exactly(3)].map(|it| it.to_string());
        assert_eq!(words, ["auto", "3"]);
    }
}
