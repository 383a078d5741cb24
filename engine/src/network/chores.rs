//! What a turn does besides handling completions, in turns in which some of it is due.

use std::sync::Arc;

use flatpath_driver::Driver;

use crate::limits::{IDLE_BYTES_KEPT, LISTENER_PATIENCE_NS, TRIM_PERIOD_NS, TURN_WOKEN_MAX};
use crate::phase::Stall;

use super::thread::Network;
use super::waits::Wait;

/// How long those wait that wait for room, if nothing happens: another thread may make it.
const WAITING_NS: u64 = 10_000_000;

impl<D: Driver> Network<D> {
    /// The order follows from what each step makes for the others:
    ///
    /// 1. Jobs, what other threads return, limits, and deadlines, all after the completions: a
    ///    connection that has just been heard of does not expire, and a job that is back ends a
    ///    stall before the deadline of the stall is looked at.
    /// 2. Drain, and what events have left for later. Then those that wait for room, because the
    ///    steps before have made some; holders are ended only after that.
    /// 3. Long input and then the connections that were woken: whomever the input of this turn
    ///    concerns is called in the same turn, so that a place is given up in the turn in which it
    ///    is taken. Long output after all short replies.
    /// 4. Receives last, as everything before may have freed pages or filled output: those that
    ///    starve, then those that crowd. FINs go to those that no step has closed.
    pub(super) fn do_chores(&mut self) {
        self.collect_jobs();
        self.take_returns();
        self.take_watches();
        self.retry_sources();
        self.follow_limits();
        self.fire_deadlines();
        self.follow_state();
        self.tell_drain();
        self.reconcile_again();
        self.retry_waiting();
        self.relieve();
        self.end_overdrawn();
        self.run_deferred();
        self.run_notified();
        self.run_long_sends();
        self.rearm_starved();
        self.arm_crowding();
        self.send_fins();
    }

    /// After the protocols' end of the turn: the door, because only now is it known how many
    /// connections are open, and when chores are due again.
    pub(super) fn end_chores(&mut self) {
        if !self.door_is_quiet() {
            self.tend_door();
        }
        if self.thread.now_ns() >= self.trimmed_ns + TRIM_PERIOD_NS {
            self.trim();
        }
        let common = &mut self.thread.common;
        if common.dispatcher.holds_back() {
            common.shared.log_long_waits(common.turn.now_ns);
        }
        self.thread.due_ns = self.next_due_ns();
    }

    /// When a chore is due although nothing happens before: 0 for at once, `u64::MAX` for never.
    fn next_due_ns(&mut self) -> u64 {
        let waits_for_nothing = !self.backlog.is_empty()
            || !self.arrivals.is_empty()
            || !self.woken.is_empty()
            || !self.untold.is_empty();
        if waits_for_nothing || self.thread.waits.are_due() || self.is_relimiting() {
            return 0;
        }
        let now_ns = self.thread.now_ns();
        self.next_episode_end_ns = self.episode_end_ns();
        let (waits, common) = (&self.thread.waits, &self.thread.common);
        let timer_ns = self.thread.wheel.next_ns(now_ns);
        let is_waited_for =
            waits.any() || common.dispatcher.waiting_for_memory() > 0 || self.sources_refused > 0;
        let accept_ns = match self.accepts_are_due {
            true => self.accept_timeout_ns(now_ns),
            false => None,
        };
        let times = [
            timer_ns.map(|ns| now_ns.saturating_add(ns)),
            accept_ns.map(|ns| now_ns.saturating_add(ns)),
            is_waited_for.then_some(now_ns + WAITING_NS),
            self.next_episode_end_ns,
            self.next_round_ns(),
            self.trim_due.then_some(self.trimmed_ns + TRIM_PERIOD_NS),
            common
                .dispatcher
                .holds_back()
                .then_some(now_ns + LISTENER_PATIENCE_NS),
            self.state_ends_ns(),
            self.late_told_ns(),
            Some(self.thread.rested_ns).filter(|rested_ns| *rested_ns > now_ns),
        ];
        times.into_iter().flatten().min().unwrap_or(u64::MAX)
    }

    /// Connections that held too much look again, as some of it has come back.
    fn take_returns(&mut self) {
        let wakes = Arc::clone(&self.thread.common.wakes);
        for index in wakes.returned.indices() {
            self.on(wakes.returned.take(index), |event| {
                event.connection.quota_has_room();
            });
        }
    }

    /// Calls the connections that were woken, oldest first: a bounded part of them in one turn, so
    /// that a broadcast to all leaves the turn short. Whom these wake in turn is for the next turn,
    /// which follows at once.
    fn run_notified(&mut self) {
        let wakes = Arc::clone(&self.thread.common.wakes);
        self.woken.extend(wakes.woken.indices());
        for _ in 0..self.woken.len().min(TURN_WOKEN_MAX) {
            let Some(index) = self.woken.pop_front() else {
                break;
            };
            self.on(wakes.woken.take(index), |event| {
                let connection = &event.connection;
                if connection.peer().is_some() || connection.is_closing() {
                    return;
                }
                event.call(|protocol, io| protocol.notified(io));
                if event.connection.stalled() == Some(Stall::Outside) {
                    event.resume();
                }
            });
        }
    }

    /// Carries out what one event did not finish.
    fn reconcile_again(&mut self) {
        for _ in 0..self.thread.waits.len(Wait::Again) {
            if let Some(key) = self.next_waiting(Wait::Again) {
                self.on(key, |_| {});
            }
        }
    }

    /// Gives idle pooled memory and idle jobs back, once per period. Asks no more often than that,
    /// so the path does not pay for it.
    fn trim(&mut self) {
        self.trimmed_ns = self.thread.common.turn.now_ns;
        self.thread.common.shared.pools.trim(IDLE_BYTES_KEPT);
        let mut trimmed = self.thread.successors.trim();
        for listener in &mut self.listeners {
            let one = listener.protocol.trim();
            trimmed.any |= one.any;
            trimmed.more |= one.more;
        }
        if trimmed.any && !trimmed.more {
            flatpath_sys::allocator::give_back();
        }
        self.trim_due = trimmed.more;
    }
}
