//! The end of a connection whose client may be sending: our end is out, and what comes is dropped.
//!
//! Closed at once, its socket would answer those bytes with a reset, which takes the last reply
//! from a client that has not read it yet (RFC 9112 section 9.6). What is bounded is the time, not
//! the bytes: a client may send all of a body before it reads. It has the silence and the rate that
//! a body has, and a longest time (`deadlines.rs`); it holds no memory and no worker, and its place
//! is another's that needs it (`admission.rs`).

use crate::protocol::pace::Pace;

use super::Connection;
use super::state::{Closing, Reading};

impl Connection {
    /// Our FIN is out: what still comes is dropped. False: that is so already.
    pub(crate) fn drop_input(&mut self, now_ns: u64) -> bool {
        let begins = self.reading != Reading::Dropping;
        if begins {
            self.reading = Reading::Dropping;
            self.clocks.reading_ns = now_ns.max(1);
            self.clocks.phase = Pace::since(now_ns);
        }
        begins
    }

    /// It lingers: our FIN is out.
    pub(super) fn is_dropping(&self) -> bool {
        self.reading == Reading::Dropping
    }

    /// The same, and nothing has cut that short.
    pub(crate) fn lingers(&self) -> bool {
        self.closing == Closing::Lingering && self.is_dropping()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use crate::connection::Overdue;
    use crate::limits::Limits;
    use crate::protocol::phase::Phase;

    use super::super::tests::connection;
    use super::*;

    #[test]
    fn what_comes_after_our_end_has_a_rate_and_a_longest_time_whatever_the_phase() {
        const SECOND: u64 = 1_000_000_000;
        let limits = Limits {
            linger_timeout: Duration::from_secs(1),
            body_rate_min: 100,
            ..Limits::default()
        };
        for phase in [Phase::Idle, Phase::Body] {
            let mut connection = connection(0);
            connection.start_phase(phase, 0);
            connection.close(Closing::Lingering);
            connection.received(1 << 30, 1, &limits);
            assert!(!connection.lingers() && connection.drop_input(SECOND));
            assert_eq!(connection.deadline_ns(&limits), 2 * SECOND, "{phase:?}");
            connection.received(50, 2 * SECOND, &limits);
            assert_eq!(connection.deadline_ns(&limits), 2 * SECOND + SECOND / 2);
            // However much comes, the silence from then on is all it earns.
            for second in 2..=11 {
                connection.received(1 << 40, second * SECOND, &limits);
                assert_eq!(connection.deadline_ns(&limits), (second + 1) * SECOND);
            }
            for second in 12..=13 {
                connection.received(1 << 40, second * SECOND, &limits);
                assert_eq!(connection.deadline_ns(&limits), 13 * SECOND, "no longer");
            }
            let overdue = connection.overdue(&limits, 13 * SECOND);
            assert_eq!(overdue, Some(Overdue::Linger), "{phase:?}");
        }
    }

    #[test]
    fn a_server_that_drains_lingers_no_longer_than_a_silence_lasts() {
        let limits = Limits::default();
        let draining = Limits {
            idle_timeout: limits.drain_idle_timeout,
            ..limits.clone()
        };
        let mut connection = connection(0);
        connection.close(Closing::Lingering);
        assert!(connection.drop_input(1));
        connection.received(1 << 30, 1_000_000_000, &limits);
        let last_ns = connection.deadline_ns(&draining);
        assert_eq!(Duration::from_nanos(last_ns - 1), limits.linger_timeout);
        assert!(connection.deadline_ns(&limits) > last_ns);
    }

    #[test]
    fn one_that_lingers_rests_since_its_end_went_out() {
        let mut connection = connection(0);
        connection.job_went_out();
        connection.close(Closing::Lingering);
        assert_eq!(connection.rests(), None, "its reply is not sent");
        assert!(connection.drop_input(20));
        connection.received(1 << 30, 30, &Limits::default());
        assert_eq!(connection.rests_since(), Some((Phase::Idle, 20)));
        connection.close_without_lingering();
        assert_eq!(connection.rests_since(), None, "it gives way already");
    }
}
