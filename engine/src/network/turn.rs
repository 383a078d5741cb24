//! One turn after the other: wait, handle what has come, and what it brings with it.

use std::io;

use flatpath_driver::{Completion, Driver};

use crate::connection::Closing;
use crate::free_list::Trimmed;
use crate::lifecycle::ServerState;
use crate::limits::{IDLE_BYTES_KEPT, SHARE_PATIENCE_NS, TRIM_PERIOD_NS, TURN_COMPLETIONS_MAX};
use crate::phase::Stall;
use crate::turn::{Turn, end_ns};

use super::listening::Listener;
use super::thread::Network;
use super::user_data::{GENERATION_MASK, KIND_ACCEPT, KIND_SEND, KIND_WATCH, kind_of, parts};
use super::waits::Wait;

/// What the thread does after a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum After {
    GoOn,
    /// The server drains and this thread has nothing left.
    Done,
}

impl<D: Driver> Network<D> {
    /// Waits for something to happen and handles all of it.
    ///
    /// The order follows from what each step makes for the others:
    ///
    /// 1. Completions first, then jobs, what other threads return, and deadlines: a connection that
    ///    has just been heard of does not expire, and a job that is back ends a stall before the
    ///    deadline of the stall is looked at.
    /// 2. Drain, and what events have left for later. Then those that wait for room, because the
    ///    steps before have made some; holders are ended only after that.
    /// 3. Long input and then the connections that others notify: whomever the input of this turn
    ///    concerns is called in the same turn, so that a place is given up in the turn in which it
    ///    is taken. Long output after all short replies.
    /// 4. Receives last, as everything before may have freed pages or filled output: those that
    ///    starve, then those that crowd. FINs go to those that no step has closed.
    /// 5. The turn's end for the protocols, and then the door: only now is it known how many
    ///    connections are open. The wake-up of a worker is the very last, for all jobs together.
    ///
    /// Most turns have nothing to do for most steps: whether one is due is asked here, so that a
    /// turn with a request in it is the path of that request.
    ///
    /// # Errors
    /// The driver has lost completions or cannot go on: the thread must end.
    pub(crate) fn turn(&mut self) -> io::Result<After> {
        self.wait_for_events()?;
        self.complete_all();
        if self.has_jobs() {
            self.collect_jobs();
        }
        self.take_returns();
        self.take_watches();
        self.retry_sources();
        self.fire_deadlines();
        if self.thread.common.shared.server_state() > ServerState::Running {
            self.follow_state();
        }
        self.reconcile_again();
        if self.has_waiting() {
            self.retry_waiting();
        }
        if self.relief_is_due() {
            self.relieve();
        }
        self.run_deferred();
        self.run_notified();
        self.run_long_sends();
        self.rearm_starved();
        self.arm_crowding();
        self.send_fins();
        self.end_turn_of_listeners();
        if !self.door_is_quiet() {
            self.tend_door();
        }
        if self.thread.common.turn.now_ns >= self.trimmed_ns + TRIM_PERIOD_NS {
            self.trim();
        }
        let common = &mut self.thread.common;
        if common.dispatcher.holds_back() {
            common.dispatcher.log_waits(common.ring, common.turn.now_ns);
        }
        common.dispatcher.flush();
        if self.server_state > ServerState::Running {
            return Ok(self.after());
        }
        Ok(After::GoOn)
    }

    fn wait_for_events(&mut self) -> io::Result<()> {
        let timeout_ns = self.timeout_ns();
        let (driver, common) = (&mut self.thread.driver, &mut self.thread.common);
        let (ring, server_state) = (common.ring, self.server_state);
        let (shared, returns) = (&*common.shared, &*common.returns);
        let inbox = &shared.inboxes[usize::from(ring)];
        let ready = || {
            !inbox.arrived.is_empty()
                || shared.server_state() != server_state
                || returns.any()
                || inbox.watches.any()
                || shared.has_parked(ring)
        };
        driver.wait(timeout_ns, &ready, &mut self.completions)?;
        common.turn = Turn {
            number: common.turn.number + 1,
            now_ns: driver.now_ns(),
            wall_seconds: driver.wall_seconds(),
        };
        shared.lifecycle.turn_began(ring, common.turn.now_ns);
        Ok(())
    }

    /// Handles completions, oldest first: as many as a turn allows of connections that are open,
    /// and fewer new ones after them. However fast clients come, and go again, the others wait for
    /// a bounded part of a turn; the rest of the crowd waits for the next.
    fn complete_all(&mut self) {
        let mut left = TURN_COMPLETIONS_MAX;
        while left > 0
            && let Some(completion) = self.backlog.pop_front()
        {
            left -= 1;
            self.complete(completion);
        }
        let mut completions = std::mem::take(&mut self.completions);
        for completion in completions.drain(..) {
            if kind_of(completion.user_data) == KIND_ACCEPT {
                self.complete(completion);
            } else if left > 0 {
                left -= 1;
                self.complete(completion);
            } else {
                self.backlog.push_back(completion);
            }
        }
        self.completions = completions;
        self.trim_due |= left < TURN_COMPLETIONS_MAX || !self.arrivals.is_empty();
        if !self.arrivals.is_empty() {
            self.let_in();
        }
    }

    /// Finds whom a completion concerns, once for all that follows from it.
    fn complete(&mut self, completion: Completion) {
        let (kind, operation, generation, index) = parts(completion.user_data);
        match kind {
            KIND_ACCEPT => return self.accept_completed(index, operation, completion),
            KIND_WATCH => return self.watch_completed(completion),
            _ => {}
        }
        let Some(mut event) = self.event_at(index) else {
            return self.thread.discard(completion.outcome);
        };
        let key = event.key;
        let current = match kind {
            KIND_SEND => event.connection.send_operation,
            _ => event.connection.receive_operation,
        };
        if key.generation & GENERATION_MASK != generation || current != operation {
            return event.thread.discard(completion.outcome);
        }
        if event.connection.peer.is_some() {
            return self.spliced_completed(key, kind, completion);
        }
        let fate = match kind {
            KIND_SEND => event.send_completed(completion),
            _ => event.receive_completed(completion),
        };
        self.conclude(key, fate);
    }

    /// Looks at the connections that other threads spoke of: fragments are back, a stall is over.
    fn take_returns(&mut self) {
        if !self.thread.common.returns.any() {
            return;
        }
        for key in self.thread.common.returns.take() {
            self.on(key, |event| {
                event.connection.holds_too_much = false;
                if event.connection.stalled == Some(Stall::Outside) {
                    event.resume();
                }
            });
        }
    }

    /// Calls the connections that others wanted to be called. Whom these want in turn is for the
    /// next turn, which follows at once.
    fn run_notified(&mut self) {
        if self.thread.common.dispatcher.notified.is_empty() {
            return;
        }
        for id in self.thread.common.dispatcher.notified.take() {
            let connection = self.connections.get(id.key);
            if connection.is_some_and(|it| it.control.closing == Closing::No) {
                self.on(id.key, |event| {
                    event.call(|protocol, io| protocol.notified(io));
                });
            }
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

    fn end_turn_of_listeners(&mut self) {
        for listener in &mut self.listeners {
            if std::mem::take(&mut listener.was_called) {
                listener.protocol.turn_ended();
            }
        }
    }

    /// How long the next wait may last.
    fn timeout_ns(&mut self) -> Option<u64> {
        const WAITING_NS: u64 = 10_000_000;
        let has_more = !self.backlog.is_empty() || !self.arrivals.is_empty();
        let waits = &self.thread.waits;
        if has_more || waits.are_due() || !self.thread.common.dispatcher.notified.is_empty() {
            return Some(0);
        }
        self.next_episode_end_ns = self.episode_end_ns();
        let (waits, common) = (&self.thread.waits, &self.thread.common);
        let now_ns = self.thread.driver.now_ns();
        let mut timeout = self.thread.wheel.next_ns(now_ns);
        let mut sooner = |ns: u64| timeout = Some(timeout.map_or(ns, |old| old.min(ns)));
        if waits.any() || common.dispatcher.waiting_for_memory() > 0 || self.sources_refused > 0 {
            sooner(WAITING_NS);
        }
        if self.accepts_are_due
            && let Some(ns) = self.accept_timeout_ns(now_ns)
        {
            sooner(ns);
        }
        if let Some(end_ns) = self.next_episode_end_ns {
            sooner(end_ns.saturating_sub(now_ns));
        }
        if self.trim_due {
            sooner((self.trimmed_ns + TRIM_PERIOD_NS).saturating_sub(now_ns));
        }
        if common.dispatcher.holds_back() {
            sooner(SHARE_PATIENCE_NS);
        }
        if self.server_state == ServerState::Draining {
            let end = end_ns(self.drain_started_ns, common.limits.drain_timeout);
            sooner(end.saturating_sub(now_ns));
        }
        timeout
    }

    /// Gives idle pooled memory and idle jobs back, once per period. Asks no more often than that,
    /// so the path does not pay for it.
    fn trim(&mut self) {
        self.trimmed_ns = self.thread.common.turn.now_ns;
        self.thread.common.shared.pools.trim(IDLE_BYTES_KEPT);
        let mut trimmed = Trimmed::default();
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

    fn after(&mut self) -> After {
        let idle = self.connections.is_empty()
            && self.arrivals.is_empty()
            && self.listeners.iter().all(Listener::is_quiet);
        if self.server_state > ServerState::Running && idle {
            if self.server_state == ServerState::Draining {
                let common = &mut self.thread.common;
                common.dispatcher.let_all_go(common.turn.now_ns);
            }
            self.end_watches();
            After::Done
        } else {
            After::GoOn
        }
    }
}
