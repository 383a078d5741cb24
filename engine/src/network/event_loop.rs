//! The loop: one turn after the other, whole in [`Network::turn`].
//!
//! A turn waits for the kernel and handles its completions; most turns have nothing else to do.
//! Whether anything else is due is one question, so a turn with a request in it is the path of that
//! request. The order of the rest follows from what each step makes for the others:
//!
//! 1. What other threads have left, and deadlines, all after the completions: a connection that has
//!    just been heard of does not expire, and a job that is back ends a stall before the deadline
//!    of the stall is looked at.
//! 2. Drain, and what events have left for later. Then those that wait for room, because the steps
//!    before have made some; holders are ended only after that.
//! 3. Long input and then the connections that were woken: whomever the input of this turn concerns
//!    is called in the same turn, so that a place is given up in the turn in which it is taken.
//!    Then connections whose PROXY header was read. Long output after all short replies, and what
//!    some of it has found no room for.
//! 4. Receives, as everything before may have freed pages or filled output: those that starve, then
//!    those that crowd. FINs go to those that no step has closed.
//! 5. After the protocols' end of the turn, accept, because only now is it known how many
//!    connections are open; datagrams, whose pages are free by now; and when the next step is due.
//!
//! An event goes one way: this file, the files with the steps, `conclude.rs`, `splice.rs` for a
//! pair, `reconcile.rs`, and those that receive, send and charge. None of them calls back up.

use std::io;
use std::sync::Arc;

use flatpath_driver::{Completion, Driver};

use crate::access_log::AGAIN_NS;
use crate::common::Common;
use crate::discard::has_gathered;
use crate::lifecycle::ServerState;
use crate::limits::{LISTENER_PATIENCE_NS, TURN_COMPLETIONS_MAX, TURN_WOKEN_MAX};
use crate::phase::Stall;
use crate::protocol;
use crate::turn::Turn;
use crate::waits::Wait;

use super::listening::Acceptor;
use super::reconcile::Fate;
use super::thread::Network;
use super::user_data::{
    GENERATION_MASK, KIND_ACCEPT, KIND_DATAGRAMS, KIND_SEND, KIND_WATCH, kind_of, parts,
};

/// How long those wait that wait for room, if nothing happens: another thread may make it.
const WAITING_NS: u64 = 10_000_000;

/// What the thread does after a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum After {
    GoOn,
    /// The server drains and this thread has nothing left.
    Done,
}

/// Whether other threads have left something for this one.
fn has_news(common: &Common) -> bool {
    common.mailbox().has_any() || common.wakes.any()
}

impl<D: Driver> Network<D> {
    /// Waits for something to happen and handles all of it. See the module.
    ///
    /// # Errors
    /// The driver has lost completions or cannot go on: the thread must end.
    pub(crate) fn turn(&mut self) -> io::Result<After> {
        self.wait_for_events()?;
        self.complete_all();
        let is_quiet = self.is_quiet();
        if !is_quiet {
            // 1
            let has_news = self.thread.common.mailbox().take_news();
            self.collect_jobs();
            self.take_returns();
            self.take_reads();
            if has_news {
                self.take_watches();
                self.take_limits();
                self.take_endings();
            }
            self.retry_sources();
            self.relimit_connections();
            self.fire_deadlines();
            // 2
            self.follow_state();
            self.tell_drain();
            self.reconcile_again();
            self.retry_waiting();
            self.free_memory();
            self.end_overdrawn();
            // 3
            self.run_deferred();
            self.run_notified();
            self.introduce_read();
            self.run_long_sends();
            self.look_at_wide();
            // 4
            self.rearm_starved();
            self.arm_crowding();
            self.send_fins();
        }
        self.end_turn_of_listeners();
        if !is_quiet {
            // 5
            if !self.door_is_quiet() {
                self.tend_door();
            }
            self.receive_datagrams();
            self.trim();
            self.freeze();
            self.log_long_waits();
            self.thread.due_ns = self.next_due_ns();
        }
        if self.thread.memory.is_check_due(self.thread.now_ns()) {
            self.check_memory();
        }
        self.thread.common.dispatcher.flush();
        self.thread.common.shared.bin_gathered();
        self.thread.turn_ended();
        match self.thread.common.server_state {
            ServerState::Running | ServerState::Leaving => Ok(After::GoOn),
            ServerState::Draining | ServerState::Forced => Ok(self.after()),
        }
    }

    /// Whether no chore is due. What a chore needs is found here in one of three ways:
    ///
    /// - Its queue is not empty, or another thread has left something: asked here, in every turn.
    /// - It is due at a time. `due_ns` is no later than the first of these: what is armed within a
    ///   turn lowers it ([`Thread::due`](super::thread::Thread::due)), and every turn with chores
    ///   ends with computing it anew (`next_due_ns`).
    /// - An event needs a look at all of it: it sets `due_ns` to 0.
    pub(crate) fn is_quiet(&self) -> bool {
        let (thread, common) = (&self.thread, &self.thread.common);
        let awaits_pages = thread.memory.pages.any_waits();
        let has_waiting = thread.waits.any() || awaits_pages || common.dispatcher.has_waiting();
        !has_waiting
            && thread.now_ns() < thread.due_ns
            && !thread.memory.is_short()
            && !has_news(common)
            && self.door_is_quiet()
    }

    fn wait_for_events(&mut self) -> io::Result<()> {
        let thread = &mut self.thread;
        let (driver, common) = (&mut thread.driver, &mut thread.common);
        let timeout_ns = match thread.due_ns {
            u64::MAX => None,
            due_ns => Some(due_ns.saturating_sub(driver.now_ns())),
        };
        // What is being sent may be what they wait for.
        if thread.waits.take_hurry()
            || common.dispatcher.has_waiting()
            || common.server_state != ServerState::Running
        {
            driver.hurry();
        }
        // What a send that has just been made leaves behind is not to wait for the next event.
        let ready = || has_news(common) || has_gathered();
        driver.wait(timeout_ns, &ready, &mut self.completions)?;
        common.turn = Turn {
            number: common.turn.number + 1,
            now_ns: driver.now_ns(),
            wall_seconds: driver.wall_seconds(),
        };
        let lifecycle = &common.shared.lifecycle;
        lifecycle.turn_began(common.number, common.turn.now_ns);
        thread.long_send_bytes = 0;
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
                self.thread.due_ns = 0;
            }
        }
        self.completions = completions;
        if !self.arrivals.is_empty() {
            self.let_in();
        }
        if left < TURN_COMPLETIONS_MAX
            && let Some(trim_ns) = self.thread.memory.note_use()
        {
            self.thread.due(trim_ns);
        }
    }

    /// Finds whom a completion concerns, once for all that follows from it.
    fn complete(&mut self, completion: Completion) {
        let (kind, operation, generation, index) = parts(completion.user_data);
        match kind {
            KIND_ACCEPT => return self.accept_completed(index, operation, completion),
            KIND_WATCH => return self.watch_completed(completion),
            KIND_DATAGRAMS => return self.datagrams_completed(index, operation, completion),
            _ => {}
        }
        let Some(mut event) = self.event_at(index) else {
            return self.thread.discard(completion.outcome);
        };
        let key = event.key;
        let current = match kind {
            KIND_SEND => event.connection.send_operation(),
            _ => event.connection.receive_operation(),
        };
        if key.generation & GENERATION_MASK != generation || current != operation {
            return event.thread.discard(completion.outcome);
        }
        if event.connection.peer().is_some() {
            return self.spliced_completed(key, kind, completion);
        }
        if kind == KIND_SEND {
            if event.note_sent(completion) == Fate::Gone {
                return self.remove(key);
            }
        } else {
            event.receive_completed(completion);
        }
        let fate = event.reconcile();
        self.conclude(key, fate);
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
                event.report(protocol::Event::Woken);
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

    /// The connections whose PROXY header was read become those of their clients.
    fn introduce_read(&mut self) {
        for _ in 0..self.thread.waits.len(Wait::Introduction) {
            let Some(key) = self.next_waiting(Wait::Introduction) else {
                break;
            };
            if let Some(connection) = self.connections.get_mut(key)
                && connection.take_becoming().is_some()
                && !connection.is_closing()
            {
                self.introduce(key);
            }
        }
    }

    fn end_turn_of_listeners(&mut self) {
        for listener in &mut self.listeners {
            if std::mem::take(&mut listener.was_called) {
                listener.protocol.turn_ended();
            }
        }
        self.thread.successors.turn_ended();
        if let Some(log) = &mut self.thread.common.access_log
            && !log.flush()
        {
            self.thread.due(self.thread.now_ns() + AGAIN_NS);
        }
    }

    fn log_long_waits(&mut self) {
        let common = &mut self.thread.common;
        if common.dispatcher.holds_back() {
            common.shared.log_long_waits(common.turn.now_ns);
        }
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
        let episode_end_ns = self.episode_end_ns();
        if episode_end_ns.is_some() {
            self.door = None;
        }
        let (waits, common) = (&self.thread.waits, &self.thread.common);
        let timer_ns = self.thread.wheel.next_ns(now_ns);
        let is_waited_for =
            waits.any() || common.dispatcher.waiting_for_memory() > 0 || self.sources_refused > 0;
        let times = [
            timer_ns.map(|ns| now_ns.saturating_add(ns)),
            self.accept_timeout_ns(now_ns)
                .map(|ns| now_ns.saturating_add(ns)),
            is_waited_for.then_some(now_ns + WAITING_NS),
            episode_end_ns,
            self.next_round_ns(),
            self.thread.memory.trim_ns(),
            common
                .dispatcher
                .holds_back()
                .then_some(now_ns + LISTENER_PATIENCE_NS),
            self.state_ends_ns(),
            self.late_told_ns(),
            self.datagrams.due_ns(),
            Some(self.thread.rested_ns).filter(|rested_ns| *rested_ns > now_ns),
        ];
        times.into_iter().flatten().min().unwrap_or(u64::MAX)
    }

    /// The end of a turn of a server that drains.
    fn after(&mut self) -> After {
        self.tell_late();
        let idle = self.connections.is_empty()
            && self.arrivals.is_empty()
            && self.acceptors.iter().all(Acceptor::is_quiet);
        if idle && self.end_datagrams() {
            let common = &mut self.thread.common;
            if common.server_state == ServerState::Draining {
                common.dispatcher.let_all_go(common.turn.now_ns);
            }
            self.end_watches();
            After::Done
        } else {
            After::GoOn
        }
    }
}
