//! The deadlines of a connection: since when each runs, and which has passed.
//!
//! The wheel holds one of them, and never a later one than the earliest. A deadline that moves away
//! is left where it is: the wheel fires early, and the deadline is armed anew.
//!
//! - A head has an absolute deadline, from accept or from its first byte.
//! - A body has a maximum silence and a minimum rate; a burst earns no more time than that silence.
//! - A send has a maximum time without progress. Progress is what the peer's TCP acknowledges,
//!   because a full socket takes nothing for long.
//! - A stall for room in the server has one deadline from its beginning, which only progress moves.
//! - While the server does not read (a stall, no receive buffer) the clock of the phase stands
//!   still: the client is neither charged for that time nor given it.

use std::time::Duration;

use crate::connection::{Closing, Connection, Send};
use crate::limits::{Limits, WRITE_LOOKS};
use crate::phase::{Phase, Stall};
use crate::turn::end_ns;

/// Which deadline has passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Overdue {
    Send,
    /// A send takes long: time to see whether the peer acknowledges anything.
    Look,
    Stall,
    Linger,
    Phase(Phase),
}

impl Connection {
    /// True while it is this server that does not receive; the peer is not charged for that time.
    fn waits_for_us(&self) -> bool {
        self.stalled.is_some() || self.holds_too_much || self.starved || self.waits.is_deferred()
    }

    /// Stops the clock of the phase while the server does not receive, and lets it run on from
    /// where it stood afterwards. True: it has begun or ended.
    fn suspend(&mut self, now_ns: u64) -> bool {
        let waits = self.waits_for_us();
        if waits == (self.clocks.suspended_ns > 0) {
            return false;
        }
        if waits {
            self.clocks.suspended_ns = now_ns.max(1);
        } else {
            // A phase that began meanwhile was suspended since then.
            let since_ns = std::mem::take(&mut self.clocks.suspended_ns).max(self.clocks.phase_ns);
            self.clocks.phase_ns += now_ns.saturating_sub(since_ns);
        }
        true
    }

    /// Suspends the phase, or lets it run on. True: the earliest deadline may be before the one
    /// that the wheel holds. Called once after each event.
    ///
    /// The deadlines of phases and sends begin with an event, at `now_ns`, and are `shortest_ns`
    /// later at least. What began before was looked at then, unless it did not count: while the
    /// phase was suspended. A connection that is stalled, or ends, has others.
    #[inline]
    pub(crate) fn has_new_deadline(&mut self, now_ns: u64, shortest_ns: u64) -> bool {
        let resumes = self.suspend(now_ns);
        if self.clocks.stall_ns > 0 && !self.stalled.is_some_and(Stall::is_timed) {
            self.clocks.stall_ns = 0;
        }
        let has_others = self.stalled.is_some() || self.control.closing != Closing::No;
        resumes || has_others || self.clocks.armed_ns > now_ns.saturating_add(shortest_ns)
    }

    /// Counts received bytes of the current phase. In a body they earn time at the minimum rate,
    /// but never more than the grace time from now on: no burst pays for a silence after it.
    pub(crate) fn received(&mut self, bytes: usize, now_ns: u64, limits: &Limits) {
        let clocks = &mut self.clocks;
        clocks.phase_bytes += bytes as u64;
        if self.control.phase == Phase::Body
            && earned_ns(clocks.phase_bytes, limits) > now_ns.saturating_sub(clocks.phase_ns)
        {
            clocks.phase_ns = now_ns;
            clocks.phase_bytes = 0;
        }
    }

    /// The earliest deadline that guards the connection now; `u64::MAX` for none.
    pub(crate) fn deadline_ns(&self, limits: &Limits) -> u64 {
        let mut deadline = u64::MAX;
        self.each_deadline(limits, |ns, _| deadline = deadline.min(ns));
        deadline
    }

    /// The deadline that has passed at `now_ns`, the most serious first.
    pub(crate) fn overdue(&self, limits: &Limits, now_ns: u64) -> Option<Overdue> {
        let mut found = None;
        self.each_deadline(limits, |ns, what| {
            if ns <= now_ns && found.is_none() {
                found = Some(what);
            }
        });
        found
    }

    fn each_deadline(&self, limits: &Limits, mut visit: impl FnMut(u64, Overdue)) {
        if self.control.closing == Closing::Abort {
            return;
        }
        // A spliced one may be slow while anything moves between the two: `Phase::Spliced`.
        if self.send != Send::Off && self.control.phase != Phase::Spliced {
            visit(
                end_ns(self.clocks.send_ns, limits.write_timeout),
                Overdue::Send,
            );
            let looked_ns = self.clocks.send_ns.max(self.clocks.acked_ns);
            let interval = limits.write_timeout / WRITE_LOOKS;
            visit(end_ns(looked_ns, interval), Overdue::Look);
        }
        let is_timed = match self.stalled {
            // What is with workers or on its way out comes back; anything else never would.
            Some(Stall::Share) => self.control.jobs_out == 0 && self.is_sent(),
            stalled => stalled.is_some_and(Stall::is_timed),
        };
        if is_timed {
            visit(
                end_ns(self.clocks.stall_ns, limits.stall_timeout),
                Overdue::Stall,
            );
        }
        if self.fin_sent {
            visit(
                end_ns(self.clocks.linger_ns, limits.linger_timeout),
                Overdue::Linger,
            );
        }
        if self.control.closing == Closing::No && !self.waits_for_us() {
            let phase = self.control.phase;
            let mut since_ns = self.clocks.phase_ns;
            let timeout = match phase {
                Phase::Idle => limits.idle_timeout,
                Phase::Head => limits.head_timeout,
                Phase::Body => {
                    let earned_ns = earned_ns(self.clocks.phase_bytes, limits);
                    since_ns = since_ns.saturating_add(earned_ns);
                    limits.body_timeout
                }
                Phase::Wait => limits.wait_timeout,
                Phase::Push => limits.push_interval,
                Phase::Spliced => limits.spliced_timeout,
                Phase::Work => return,
            };
            visit(end_ns(since_ns, timeout), Overdue::Phase(phase));
        }
    }
}

/// The shortest time that a phase or a send has; see [`Connection::has_new_deadline`].
pub(crate) fn shortest_ns(limits: &Limits) -> u64 {
    let shortest = limits.write_timeout / WRITE_LOOKS;
    let of_phases = [
        limits.head_timeout,
        limits.idle_timeout,
        limits.body_timeout,
        limits.wait_timeout,
        limits.push_interval,
        limits.spliced_timeout,
    ];
    end_ns(0, of_phases.into_iter().fold(shortest, Duration::min))
}

/// How long `bytes` of a body may take at the minimum rate.
fn earned_ns(bytes: u64, limits: &Limits) -> u64 {
    bytes.saturating_mul(1_000_000_000) / limits.body_rate_min.max(1)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use flatpath_driver::epoll::Epoll;
    use flatpath_driver::simulation::Random;
    use flatpath_driver::{Driver, DriverConfig};
    use flatpath_structures::slots::Slots;

    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn connection() -> Connection {
        // Any socket and any session will do: nothing here touches them.
        let mut driver = Epoll::new(&DriverConfig::default()).expect("epoll is everywhere");
        let (one, _) = UnixStream::pair().expect("a pair");
        let socket = driver.register(one.into()).expect("registered");
        let session = Slots::new(1).insert(()).expect("room");
        Connection::new(socket, 0, session, 10 * SECOND)
    }

    #[test]
    fn a_new_connection_is_guarded_by_the_head_deadline_from_its_accept() {
        let limits = Limits::default();
        assert_eq!(
            connection().deadline_ns(&limits),
            end_ns(10 * SECOND, limits.head_timeout)
        );
    }

    #[test]
    fn a_body_earns_time_by_bytes_and_never_more_than_the_grace_time() {
        let limits = Limits {
            body_rate_min: 100,
            body_timeout: Duration::from_secs(1),
            ..Limits::default()
        };
        let mut connection = connection();
        connection.control.phase = Phase::Body;
        assert_eq!(connection.deadline_ns(&limits), 11 * SECOND);
        // Five seconds late 250 bytes come, which are worth half of that.
        connection.clocks.phase_ns = 10 * SECOND;
        connection.received(250, 15 * SECOND, &limits);
        assert_eq!(connection.deadline_ns(&limits), 13 * SECOND + SECOND / 2);
        // What is ahead of the rate has the grace time from its last byte, and no more.
        connection.received(1 << 30, 16 * SECOND, &limits);
        assert_eq!(connection.deadline_ns(&limits), 17 * SECOND);
        connection.received(1, 18 * SECOND, &limits);
        assert_eq!(connection.deadline_ns(&limits), 17 * SECOND + SECOND / 100);
    }

    #[test]
    fn work_has_no_deadline_but_sending_has() {
        let limits = Limits::default();
        let mut connection = connection();
        connection.control.phase = Phase::Work;
        assert_eq!(connection.deadline_ns(&limits), u64::MAX);
        connection.send = Send::Going;
        connection.clocks.send_ns = 20 * SECOND;
        let look_ns = end_ns(20 * SECOND, limits.write_timeout / WRITE_LOOKS);
        assert_eq!(connection.deadline_ns(&limits), look_ns);
        assert_eq!(connection.overdue(&limits, look_ns), Some(Overdue::Look));
        let last_ns = end_ns(20 * SECOND, limits.write_timeout);
        assert_eq!(connection.overdue(&limits, last_ns), Some(Overdue::Send));
    }

    #[test]
    fn a_stall_for_room_suspends_the_phase_and_has_its_own_deadline() {
        let limits = Limits::default();
        let mut connection = connection();
        connection.clocks.stall_ns = 12 * SECOND;
        connection.stalled = Some(Stall::Jobs);
        assert_eq!(
            connection.deadline_ns(&limits),
            end_ns(12 * SECOND, limits.stall_timeout)
        );
        connection.stalled = Some(Stall::Output);
        assert_eq!(connection.deadline_ns(&limits), u64::MAX);
    }

    #[test]
    fn a_stalled_write_is_more_serious_than_a_late_head() {
        let limits = Limits::default();
        let mut connection = connection();
        connection.send = Send::Going;
        connection.clocks.send_ns = 10 * SECOND;
        let late = 10_000 * SECOND;
        assert_eq!(connection.overdue(&limits, late), Some(Overdue::Send));
        assert_eq!(connection.overdue(&limits, 10 * SECOND), None);
    }

    /// One event of random content at `now_ns`.
    fn random_event(connection: &mut Connection, random: &mut Random, now_ns: u64) {
        let control = &mut connection.control;
        match random.below(9) {
            0 => {
                let phases = [
                    Phase::Idle,
                    Phase::Head,
                    Phase::Body,
                    Phase::Work,
                    Phase::Wait,
                    Phase::Push,
                ];
                control.phase = phases[random.below(phases.len())];
                connection.clocks.phase_ns = now_ns;
                connection.clocks.phase_bytes = 0;
            }
            1 => {
                connection.send = Send::Going;
                connection.clocks.send_ns = now_ns;
            }
            2 => connection.send = Send::Off,
            3 => {
                let stalls = [Stall::Jobs, Stall::Output, Stall::Share, Stall::Outside];
                connection.stall(stalls[random.below(4)], now_ns);
            }
            4 => connection.stalled = None,
            5 => control.jobs_out = random.below(2) as u32,
            6 => connection.received(random.below(1000), now_ns, &Limits::default()),
            7 => connection.starved = !connection.starved,
            _ if random.below(50) == 0 => {
                control.close(Closing::Lingering);
                connection.fin_sent = true;
                connection.clocks.linger_ns = now_ns;
            }
            _ => {}
        }
    }

    #[test]
    fn model_the_wheel_never_holds_a_later_deadline_than_the_earliest() {
        for seed in 1..200 {
            let (limits, mut random) = (Limits::default(), Random::new(seed));
            let (mut connection, mut now_ns) = (connection(), 10 * SECOND);
            for step in 0..200 {
                now_ns += random.up_to(4 * SECOND);
                if connection.clocks.armed_ns <= now_ns {
                    connection.clocks.armed_ns = u64::MAX;
                }
                random_event(&mut connection, &mut random, now_ns);
                let is_new = connection.has_new_deadline(now_ns, shortest_ns(&limits));
                let deadline_ns = connection.deadline_ns(&limits);
                if is_new {
                    let armed_ns = &mut connection.clocks.armed_ns;
                    *armed_ns = deadline_ns.min(*armed_ns);
                }
                let armed_ns = connection.clocks.armed_ns;
                assert!(armed_ns <= deadline_ns, "seed {seed}, step {step}");
            }
        }
    }
}
