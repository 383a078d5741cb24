//! The clocks, read once per wait: a monotonic one for durations, the wall clock for dates.
//!
//! Built with `--cfg slow_clock`, the first counts its readings, a microsecond each: in the trace
//! of a server that is slowed down many times, nothing is due more often than in one that is not.
//!
//! Cost: two reads without a system call (vDSO).

use rustix::time::{ClockId, clock_gettime};

/// The clock of the real drivers' [`Driver::now_ns`](crate::Driver::now_ns), in nanoseconds:
/// CLOCK_MONOTONIC.
pub fn monotonic_ns() -> u64 {
    #[cfg(slow_clock)]
    {
        use std::sync::atomic::{AtomicU64, Ordering};
        static READINGS: AtomicU64 = AtomicU64::new(0);
        READINGS.fetch_add(1, Ordering::Relaxed) * 1_000
    }
    #[cfg(not(slow_clock))]
    monotonic_of_kernel_ns()
}

#[cfg(not(slow_clock))]
fn monotonic_of_kernel_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    unsigned(now.tv_sec) * 1_000_000_000 + unsigned(now.tv_nsec)
}

/// The same clock as of the kernel's last tick, up to 10 ms ago: cheaper to read.
pub fn monotonic_coarse_ns() -> u64 {
    let now = clock_gettime(ClockId::MonotonicCoarse);
    unsigned(now.tv_sec) * 1_000_000_000 + unsigned(now.tv_nsec)
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    now_ns: u64,
    wall_seconds: u64,
}

impl Clock {
    pub(crate) fn new() -> Clock {
        let mut clock = Clock {
            now_ns: 0,
            wall_seconds: 0,
        };
        clock.read();
        clock
    }

    pub(crate) fn read(&mut self) {
        self.now_ns = monotonic_ns();
        self.wall_seconds = unsigned(clock_gettime(ClockId::RealtimeCoarse).tv_sec);
    }

    pub(crate) fn now_ns(&self) -> u64 {
        self.now_ns
    }

    pub(crate) fn wall_seconds(&self) -> u64 {
        self.wall_seconds
    }
}

/// Clock readings are never negative; a wall clock set before 1970 reads as 1970.
fn unsigned(value: i64) -> u64 {
    u64::try_from(value).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_monotonic_clock_does_not_go_back() {
        let mut clock = Clock::new();
        for _ in 0..1000 {
            let before = clock.now_ns();
            clock.read();
            assert!(clock.now_ns() >= before);
        }
        assert!(clock.wall_seconds() > 1_700_000_000);
    }
}
