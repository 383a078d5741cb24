//! The pass of a network thread that a call belongs to, and its clocks.

use std::time::{Duration, SystemTime};

/// One pass of a network thread over everything that has arrived.
///
/// Every byte offered during a turn had been received before the turn's number was given out, so
/// what a service looks up during the turn is never older than the requests it answers.
#[derive(Clone, Copy, Debug)]
pub struct Turn {
    /// Counts up from 1; never repeats on one network thread.
    pub number: u64,
    /// Monotonic nanoseconds, read once per turn.
    pub now_ns: u64,
    /// Wall clock in whole seconds since the epoch, read once per turn.
    pub wall_seconds: u64,
}

impl Turn {
    /// The wall clock of this turn as the standard library's type. Whole seconds.
    pub fn wall(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(self.wall_seconds)
    }
}

/// The end of a time that begins at `start_ns`; later than any clock for one of centuries.
pub(crate) fn end_ns(start_ns: u64, time: Duration) -> u64 {
    let seconds_ns = time.as_secs().saturating_mul(1_000_000_000);
    let time_ns = seconds_ns.saturating_add(u64::from(time.subsec_nanos()));
    start_ns.saturating_add(time_ns)
}
