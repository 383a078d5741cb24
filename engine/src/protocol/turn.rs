//! The pass of a network thread that a call belongs to, and its clocks.

use std::time::{Duration, SystemTime};

/// One pass of a network thread over everything that has arrived.
///
/// Every byte given during a turn had been received before the turn's number was given out, so
/// what a service looks up during the turn is never older than the requests it answers.
#[derive(Clone, Copy, Debug)]
pub struct Turn {
    /// Counts up from 1; never repeats on one network thread.
    pub number: u64,
    pub(crate) now_ns: u64,
    pub(crate) wall_seconds: u64,
}

impl Turn {
    /// For tests: the turn with this number, at `now` of the monotonic clock and `wall` after the
    /// epoch.
    pub const fn new(number: u64, now: Duration, wall: Duration) -> Turn {
        Turn {
            number,
            now_ns: now.as_nanos() as u64,
            wall_seconds: wall.as_secs(),
        }
    }

    /// The monotonic clock, read once per turn; all threads of a server have the same.
    pub const fn now(self) -> Duration {
        Duration::from_nanos(self.now_ns)
    }

    /// The wall clock in whole seconds, read once per turn.
    pub fn wall(self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(self.wall_seconds)
    }
}

/// The end of a time that begins at `start_ns`; later than any clock for one of centuries.
pub(crate) fn end_ns(start_ns: u64, time: Duration) -> u64 {
    let seconds_ns = time.as_secs().saturating_mul(1_000_000_000);
    let time_ns = seconds_ns.saturating_add(u64::from(time.subsec_nanos()));
    start_ns.saturating_add(time_ns)
}
