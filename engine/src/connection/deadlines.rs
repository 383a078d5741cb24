//! The deadlines of a connection: since when each runs, and which has passed.
//!
//! The wheel holds one of them, and never a later one than the earliest. A deadline that moves away
//! is left where it is: the wheel fires early, and the deadline is armed anew.
//!
//! - A head has an absolute deadline, from accept or from its first byte.
//! - A body has a maximum silence and a minimum rate; a burst earns no more time than that silence.
//! - What comes to one that lingers has the silence and the rate of a body, and a longest time.
//! - A connect has its own time, and nothing else has one meanwhile.
//! - A send has a maximum time without progress. Progress is what the peer's TCP acknowledges,
//!   because a full socket takes nothing for long.
//! - A stall for room in the server has one deadline from its beginning, which only progress moves.
//! - While the server does not read (a stall, no receive buffer) the clock of the phase stands
//!   still: the client is neither charged for that time nor given it.
//!
//! A connection whose phase is that of a client which may be silent *rests*, unless something of it
//! is in work. Since when it does decides who gives up its place first (`admission.rs`).

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use flatpath_driver::Delivery;

use crate::limits::{Limits, REST_STEP_NS, WRITE_LOOKS, WRITE_SPARED_MAX};
use crate::protocol::pace::Pace;
use crate::protocol::phase::{Phase, Stall};
use crate::protocol::turn::end_ns;
use crate::server::listener_limits::ListenerLimits;

use super::Connection;
use super::state::{Closing, Marks, Writing};

/// No phase in which a connection may rest.
pub(super) const NOTHING_NOTED: (Phase, u64) = (Phase::Work, 0);

/// Which deadline has passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Overdue {
    Send,
    /// A send takes long: time to see whether the peer acknowledges anything.
    Look,
    Stall,
    Linger,
    /// The connection is being opened, and its peer does not answer.
    Connect,
    Phase(Phase),
}

impl Connection {
    /// Starts a phase, or starts it anew.
    #[inline]
    pub(crate) fn start_phase(&mut self, phase: Phase, now_ns: u64) {
        self.phase = phase;
        self.clocks.phase = Pace::since(now_ns);
    }

    /// Starts a phase that is over at `end_ns`.
    pub(crate) fn start_phase_until(&mut self, phase: Phase, end_ns: u64, limits: &Limits) {
        let time = self.limits_within(limits).of_phase(phase);
        let time = time.unwrap_or_default();
        let time_ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.start_phase(phase, end_ns.saturating_sub(time_ns));
        if end_ns < self.clocks.armed_ns {
            // It did not begin with this event: the wheel is to be asked.
            self.disarm();
        }
    }

    /// When the phase began.
    pub(crate) fn phase_ns(&self) -> u64 {
        self.clocks.phase.since_ns
    }

    /// The phase has all its time again.
    pub(crate) fn touch(&mut self, now_ns: u64) {
        self.clocks.phase.since_ns = now_ns;
    }

    /// Whether the protocol, called because a phase expired that began at `since_ns`, has restarted
    /// that phase or begun another.
    pub(crate) fn has_restarted(&self, phase: Phase, since_ns: u64) -> bool {
        (self.phase, self.clocks.phase.since_ns) != (phase, since_ns) && !self.is_closing()
    }

    /// Whether a deadline for a head means that its protocol has forgotten a phase, in all
    /// likelihood: something was sent since the deadline runs, and nothing that was received waits
    /// to be understood.
    pub(crate) fn was_answered_in_phase(&self) -> bool {
        let was_answered = self.clocks.send_ns > self.clocks.phase.since_ns && self.is_sent();
        was_answered && !self.inbox.has_remainder()
    }

    /// Whether a client whose first head is awaited has said nothing of it: nothing at all, or,
    /// with TLS, nothing that waits to be understood.
    pub(crate) fn is_silent_before_head(&self) -> bool {
        match self.is_secured() {
            true => self.inbox.is_empty(),
            false => !self.has_received(),
        }
    }

    /// A deadline has passed. False: it is not the first one.
    pub(crate) fn expire(&mut self) -> bool {
        !self.marks.set(Marks::EXPIRED, true)
    }

    /// The wheel holds no deadline any more.
    pub(crate) fn disarm(&mut self) {
        self.clocks.armed_ns = u64::MAX;
    }

    /// The earliest deadline, if the wheel would fire too late for it.
    pub(crate) fn arm(&mut self, limits: &Limits) -> Option<u64> {
        let deadline_ns = self.deadline_ns(limits);
        let is_new = deadline_ns < self.clocks.armed_ns;
        is_new.then(|| {
            self.clocks.armed_ns = deadline_ns;
            deadline_ns
        })
    }

    /// Whether the peer has acknowledged bytes since the last look; then the deadline for sending
    /// begins anew. The socket of a slow reader takes nothing until about a third of what it holds,
    /// which is megabytes, has been acknowledged: that is not the peer's silence.
    ///
    /// Nor is a closed window. A reader's kernel opens it by steps of up to half of its buffer, so
    /// one that takes a few kilobytes a second acknowledges nothing for minutes. At the deadline a
    /// peer whose TCP answers is given as long again, a bounded number of times, and only if
    /// `may_spare`.
    pub(crate) fn peer_reads(
        &mut self,
        overdue: Overdue,
        delivery: Option<Delivery>,
        may_spare: bool,
        now_ns: u64,
    ) -> bool {
        let rare = self.rare();
        let is_first = rare.acked_ns == 0;
        rare.acked_ns = now_ns;
        let Some(delivery) = delivery else {
            return false;
        };
        let bytes = delivery.acked_bytes;
        let has_moved = bytes > std::mem::replace(&mut rare.acked_bytes, bytes) && !is_first;
        let is_spared = overdue == Overdue::Send
            && delivery.is_answered
            && rare.spared < WRITE_SPARED_MAX
            && may_spare;
        if has_moved {
            rare.spared = 0;
        } else if is_spared {
            rare.spared += 1;
        }
        if has_moved || is_spared {
            self.clocks.send_ns = now_ns;
        }
        has_moved || is_spared
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
            let since_ns =
                std::mem::take(&mut self.clocks.suspended_ns).max(self.clocks.phase.since_ns);
            self.clocks.phase.since_ns += now_ns.saturating_sub(since_ns);
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
        let stalled = self.stalled();
        if self.clocks.reading_ns > 0
            && !stalled.is_some_and(Stall::is_timed)
            && !self.is_dropping()
        {
            self.clocks.reading_ns = 0;
        }
        let has_others = stalled.is_some() || self.is_closing();
        resumes || has_others || self.clocks.armed_ns > now_ns.saturating_add(shortest_ns)
    }

    /// Counts received bytes where they matter: of one that lingers, and in a body. There they earn
    /// time at the minimum rate, but never more than the grace time from now on: no burst pays for
    /// a silence after it.
    pub(crate) fn received(&mut self, bytes: usize, now_ns: u64, limits: &Limits) {
        if self.is_dropping() || self.phase == Phase::Body {
            let limits = self.limits_within(limits);
            self.clocks.phase.bytes += bytes as u64;
            self.clocks.phase.earn(now_ns, &limits);
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

    /// The deadlines of its listener, but for those of its own. Those of a server that drains hold
    /// for all.
    pub(crate) fn limits_within<'l>(&self, listener: &'l Limits) -> Cow<'l, Limits> {
        let own = self.rare.as_ref().and_then(|rare| rare.timeouts.as_ref());
        let Some(own) = own else {
            return Cow::Borrowed(listener);
        };
        let mut limits = own.of_server(listener);
        if drains(listener) {
            limits.idle_timeout = limits.idle_timeout.min(listener.idle_timeout);
        }
        Cow::Owned(limits)
    }

    /// Has deadlines of its own from now on, or those of its listener again. True: it had others.
    pub(crate) fn set_timeouts(&mut self, own: Option<&Arc<ListenerLimits>>) -> bool {
        let before = self.rare.as_ref().and_then(|rare| rare.timeouts.as_ref());
        let is_same = match (before, own) {
            (None, None) => true,
            (Some(before), Some(own)) => Arc::ptr_eq(before, own),
            _ => false,
        };
        if !is_same {
            self.rare().timeouts = own.cloned();
            // The wheel is to be asked at the end of this event.
            self.disarm();
        }
        !is_same
    }

    fn each_deadline(&self, listener: &Limits, mut visit: impl FnMut(u64, Overdue)) {
        if self.closing == Closing::Abort {
            return;
        }
        let limits = &*self.limits_within(listener);
        // A spliced one may be slow while anything moves between the two: `Phase::Spliced`.
        if self.is_sending() && self.phase != Phase::Spliced {
            if self.writing == Writing::Connecting {
                return visit(self.clocks.send_ns, Overdue::Connect);
            }
            visit(
                end_ns(self.clocks.send_ns, limits.write_timeout),
                Overdue::Send,
            );
            let acked_ns = self.rare.as_ref().map_or(0, |rare| rare.acked_ns);
            let looked_ns = self.clocks.send_ns.max(acked_ns);
            let interval = limits.write_timeout / WRITE_LOOKS;
            visit(end_ns(looked_ns, interval), Overdue::Look);
        }
        let is_timed = match self.stalled() {
            // What is with workers or on its way out comes back; anything else never would.
            Some(Stall::Share) => self.jobs_out == 0 && self.is_sent(),
            stalled => stalled.is_some_and(Stall::is_timed),
        };
        if is_timed {
            visit(
                end_ns(self.clocks.reading_ns, limits.stall_timeout),
                Overdue::Stall,
            );
        }
        if self.is_dropping() {
            let answered = Duration::from_nanos(self.clocks.reading_ns);
            let end = self
                .clocks
                .phase
                .linger_end(answered, drains(limits), limits);
            visit(end_ns(0, end), Overdue::Linger);
        }
        if !self.is_closing() && !self.waits_for_us() {
            let (phase, pace) = (self.phase, self.clocks.phase);
            let Some(timeout) = limits.of_phase(phase) else {
                return;
            };
            let end_ns = match phase {
                Phase::Body => pace.end_ns(timeout, limits),
                _ => end_ns(pace.since_ns, timeout),
            };
            visit(end_ns, Overdue::Phase(phase));
        }
    }

    /// What the connection waits for while nothing of it is in work, held back or on its way out:
    /// [`Phase::Idle`] or [`Phase::Head`]. Such a connection may be closed for a newcomer. So may
    /// one that lingers: its reply is with the client's kernel, and it counts as idle.
    pub(crate) fn rests(&self) -> Option<Phase> {
        if self.lingers() {
            return Some(Phase::Idle);
        }
        let is_busy = self.is_closing()
            || self.jobs_out > 0
            || self.is_becoming()
            || self.is_spliced()
            || self.waits_for_us()
            || !self.is_sent();
        let phase = self.phase;
        (!is_busy && matches!(phase, Phase::Idle | Phase::Head)).then_some(phase)
    }

    /// The phase, if the connection may rest in it, and it is another one than this has told last
    /// or has begun `REST_STEP_NS` after that one.
    #[inline]
    pub(crate) fn may_rest_anew(&mut self) -> Option<Phase> {
        let (phase, since_ns) = (self.phase, self.clocks.phase.since_ns);
        let (noted, noted_ns) = self.noted;
        if noted == phase && since_ns < noted_ns.saturating_add(REST_STEP_NS)
            || !matches!(phase, Phase::Idle | Phase::Head)
        {
            return None;
        }
        self.noted = (phase, since_ns);
        Some(phase)
    }

    /// The phase in which it rests, and since when. If it does not, `may_rest_anew` reports it
    /// once more.
    pub(crate) fn rests_since(&mut self) -> Option<(Phase, u64)> {
        let rests = self.rests();
        if rests.is_none() {
            self.noted = NOTHING_NOTED;
        }
        // One that lingers has rested since then, whatever has come.
        let since_ns = match self.lingers() {
            true => self.clocks.reading_ns,
            false => self.clocks.phase.since_ns,
        };
        Some((rests?, since_ns))
    }
}

/// Whether these are the limits of a server that drains.
fn drains(limits: &Limits) -> bool {
    limits.idle_timeout <= limits.drain_idle_timeout
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

#[cfg(test)]
mod tests {
    use flatpath_driver::simulation::Random;

    use super::super::tests;
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn connection() -> Connection {
        tests::connection(10 * SECOND)
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
        connection.phase = Phase::Body;
        assert_eq!(connection.deadline_ns(&limits), 11 * SECOND);
        // Five seconds late 250 bytes come, which are worth half of that.
        connection.clocks.phase.since_ns = 10 * SECOND;
        connection.received(250, 15 * SECOND, &limits);
        assert_eq!(connection.deadline_ns(&limits), 13 * SECOND + SECOND / 2);
        // What is ahead of the rate has the grace time from its last byte, and no more.
        connection.received(1 << 30, 16 * SECOND, &limits);
        assert_eq!(connection.deadline_ns(&limits), 17 * SECOND);
        connection.received(1, 18 * SECOND, &limits);
        assert_eq!(connection.deadline_ns(&limits), 17 * SECOND + SECOND / 100);
    }

    #[test]
    fn a_connection_with_deadlines_of_its_own_has_those_unless_the_server_drains() {
        let limits = Limits::default();
        let own = Arc::new(ListenerLimits {
            idle_timeout: Some(Duration::from_secs(200)),
            body_timeout: Some(Duration::from_secs(1)),
            ..ListenerLimits::default()
        });
        let mut connection = connection();
        connection.start_phase(Phase::Idle, 10 * SECOND);
        assert!(connection.set_timeouts(Some(&own)) && !connection.set_timeouts(Some(&own)));
        assert_eq!(connection.deadline_ns(&limits), 210 * SECOND);
        let draining = Limits {
            idle_timeout: limits.drain_idle_timeout,
            ..limits.clone()
        };
        let end = end_ns(10 * SECOND, limits.drain_idle_timeout);
        assert_eq!(connection.deadline_ns(&draining), end);
        connection.start_phase(Phase::Body, 10 * SECOND);
        assert_eq!(connection.deadline_ns(&limits), 11 * SECOND);
        connection.received(1 << 30, 20 * SECOND, &limits);
        assert_eq!(
            connection.deadline_ns(&limits),
            21 * SECOND,
            "no burst earns more"
        );
        connection.start_phase(Phase::Head, 10 * SECOND);
        let head = end_ns(10 * SECOND, limits.head_timeout);
        assert_eq!(
            connection.deadline_ns(&limits),
            head,
            "it has none of these"
        );
        connection.start_phase(Phase::Idle, 10 * SECOND);
        assert!(connection.set_timeouts(None) && !connection.set_timeouts(None));
        let idle = end_ns(10 * SECOND, limits.idle_timeout);
        assert_eq!(connection.deadline_ns(&limits), idle);
    }

    #[test]
    fn work_has_no_deadline_but_sending_has() {
        let limits = Limits::default();
        let mut connection = connection();
        connection.phase = Phase::Work;
        assert_eq!(connection.deadline_ns(&limits), u64::MAX);
        connection.begin_send(20 * SECOND);
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
        connection.stall(Stall::Jobs, 12 * SECOND);
        assert_eq!(
            connection.deadline_ns(&limits),
            end_ns(12 * SECOND, limits.stall_timeout)
        );
        connection.stall(Stall::Output, 13 * SECOND);
        assert_eq!(connection.deadline_ns(&limits), u64::MAX);
    }

    #[test]
    fn a_stalled_write_is_more_serious_than_a_late_head() {
        let limits = Limits::default();
        let mut connection = connection();
        connection.begin_send(10 * SECOND);
        let late = 10_000 * SECOND;
        assert_eq!(connection.overdue(&limits, late), Some(Overdue::Send));
        assert_eq!(connection.overdue(&limits, 10 * SECOND), None);
    }

    #[test]
    fn a_connection_with_a_job_out_does_not_rest() {
        let mut connection = tests::connection(0);
        assert_eq!(connection.rests(), Some(Phase::Head));
        connection.job_went_out();
        assert_eq!(connection.rests(), None);
    }

    #[test]
    fn a_phase_is_noted_once_and_once_more_where_the_connection_was_found_busy() {
        let mut connection = tests::connection(1);
        assert_eq!(connection.may_rest_anew(), Some(Phase::Head));
        assert_eq!(connection.may_rest_anew(), None);
        assert_eq!(connection.rests_since(), Some((Phase::Head, 1)));
        assert_eq!(connection.may_rest_anew(), None);
        connection.start_phase(Phase::Idle, 1);
        assert_eq!(connection.may_rest_anew(), Some(Phase::Idle));
        connection.start_phase(Phase::Idle, REST_STEP_NS);
        assert_eq!(connection.may_rest_anew(), None, "a moment later");
        connection.start_phase(Phase::Idle, REST_STEP_NS + 1);
        assert_eq!(connection.may_rest_anew(), Some(Phase::Idle));
        connection.job_went_out();
        assert_eq!(connection.rests_since(), None);
        assert_eq!(connection.may_rest_anew(), Some(Phase::Idle));
        connection.start_phase(Phase::Work, 2);
        assert_eq!(connection.may_rest_anew(), None);
    }

    /// One event of random content at `now_ns`.
    fn random_event(connection: &mut Connection, random: &mut Random, now_ns: u64) {
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
                connection.start_phase(phases[random.below(phases.len())], now_ns);
            }
            1 => {
                connection.begin_send(now_ns);
            }
            2 => connection.send_ended(),
            3 => {
                let stalls = [Stall::Jobs, Stall::Output, Stall::Share, Stall::Outside];
                connection.stall(stalls[random.below(4)], now_ns);
            }
            4 => {
                connection.take_stall();
            }
            5 => connection.jobs_out = random.below(2) as u32,
            6 => connection.received(random.below(1000), now_ns, &Limits::default()),
            7 if connection.end_starving().is_some() => {}
            7 => {
                connection.begin_starving();
            }
            _ if random.below(50) == 0 => {
                connection.close(Closing::Lingering);
                connection.drop_input(now_ns);
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
                    connection.disarm();
                }
                random_event(&mut connection, &mut random, now_ns);
                let is_new = connection.has_new_deadline(now_ns, shortest_ns(&limits));
                if is_new {
                    connection.arm(&limits);
                }
                let deadline_ns = connection.deadline_ns(&limits);
                let armed_ns = connection.clocks.armed_ns;
                assert!(armed_ns <= deadline_ns, "seed {seed}, step {step}");
            }
        }
    }
}
