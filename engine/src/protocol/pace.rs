//! The pace of a body that arrives: how long it may be silent, and how slow it may be.
//!
//! Bytes earn time at the minimum rate, but never more than the silence that is allowed from then
//! on: no burst pays for a silence after it. One rule for the body of a connection
//! (`connection/deadlines.rs`) and for those of a protocol that takes several at a time.

use std::time::Duration;

use crate::limits::{LINGER_TIMES_MAX, Limits};
use crate::protocol::turn::{Turn, end_ns};

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    pub(crate) since_ns: u64,
    pub(crate) bytes: u64,
}

impl Pace {
    /// That of a body that begins now, or of anything else that is awaited from now on.
    pub fn begin(turn: Turn) -> Pace {
        Pace::since(turn.now_ns)
    }

    pub(crate) fn since(now_ns: u64) -> Pace {
        Pace {
            since_ns: now_ns,
            bytes: 0,
        }
    }

    /// Bytes of the body have arrived.
    pub fn received(&mut self, bytes: usize, turn: Turn, limits: &Limits) {
        self.bytes += bytes as u64;
        self.earn(turn.now_ns, limits);
    }

    pub(crate) fn earn(&mut self, now_ns: u64, limits: &Limits) {
        if earned_ns(self.bytes, limits) > now_ns.saturating_sub(self.since_ns) {
            *self = Pace::since(now_ns);
        }
    }

    /// The server did not read for so long: it does not count.
    pub fn stood_still(&mut self, time: Duration) {
        self.since_ns = end_ns(self.since_ns, time);
    }

    /// When a silence of this time ends that counts from where the bytes have brought it.
    pub fn end(&self, silence: Duration, limits: &Limits) -> Duration {
        Duration::from_nanos(self.end_ns(silence, limits))
    }

    /// When the wait for the end of a body is over of which nothing is read, the answer being sent
    /// since then: it has the silence of `linger_timeout`, the rate of a body, and a longest time,
    /// which is one silence where the server drains.
    pub fn linger_end(&self, answered: Duration, drains: bool, limits: &Limits) -> Duration {
        let times = if drains { 1 } else { LINGER_TIMES_MAX };
        let longest = limits.linger_timeout.saturating_mul(times);
        let last = answered.saturating_add(longest);
        self.end(limits.linger_timeout, limits).min(last)
    }

    pub(crate) fn end_ns(&self, silence: Duration, limits: &Limits) -> u64 {
        let earned_ns = self.since_ns.saturating_add(earned_ns(self.bytes, limits));
        end_ns(earned_ns, silence)
    }
}

/// How long `bytes` of a body may take at the minimum rate.
fn earned_ns(bytes: u64, limits: &Limits) -> u64 {
    bytes.saturating_mul(1_000_000_000) / limits.body_rate_min.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(seconds: u64) -> Turn {
        Turn::new(1, Duration::from_secs(seconds), Duration::ZERO)
    }

    #[test]
    fn bytes_earn_time_and_a_burst_no_more_than_the_silence() {
        let limits = Limits {
            body_rate_min: 100,
            ..Limits::default()
        };
        let silence = Duration::from_secs(5);
        let mut pace = Pace::begin(turn(10));
        let end = |pace: &Pace| pace.end(silence, &limits).as_secs();
        assert_eq!(end(&pace), 15);
        pace.received(200, turn(14), &limits);
        assert_eq!(end(&pace), 17, "two seconds at the minimum rate");
        pace.received(100_000, turn(16), &limits);
        assert_eq!(end(&pace), 21, "from now on");
        pace.stood_still(Duration::from_secs(3));
        assert_eq!(end(&pace), 24);
    }
}
