//! The loop: one turn after the other, whole in [`Network::turn`].
//!
//! A turn waits for the kernel and handles its completions; most turns have nothing else to do.
//! Whether any chore is due is one question, so a turn with a request in it is the path of that
//! request. The steps are a list, each with the reason for its place, or the groups of those that
//! may run in any order. Two mutations of the drill (`turn_…`) turn a pair around and have a test
//! fail.
//!
//! Calls go one way: this file, the files with the steps, `conclude.rs`, `splice.rs` for a
//! pair, `reconcile.rs`, and those that receive, send and charge. None of them calls back up.

use std::io;
use std::sync::Arc;

use flatpath_driver::{Completion, Driver};

use crate::limits::{LISTENER_PATIENCE_NS, TURN_COMPLETIONS_MAX, TURN_WOKEN_MAX};
use crate::network::waits::Wait;
use crate::observe::access_log::AGAIN_NS;
use crate::protocol;
use crate::protocol::common::Common;
use crate::protocol::discard::has_gathered;
use crate::protocol::phase::Stall;
use crate::server::lifecycle::ServerState;

use super::reconcile::Fate;
use super::thread::Network;
use super::timers::{Chore, Left};
use super::user_data::{
    GENERATION_MASK, KIND_ACCEPT, KIND_DATAGRAMS, KIND_SEND, KIND_WATCH, kind_of, parts,
};

/// What the thread does after a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum After {
    GoOn,
    /// The server drains and this thread has nothing left.
    Done,
}

/// Whether other threads have left something for this one.
fn has_news(common: &Common) -> bool {
    common.mailbox().has_any() || common.wakes().any()
}

impl<D: Driver> Network<D> {
    /// Waits for something to happen and handles all of it.
    ///
    /// # Errors
    /// The driver has lost completions or cannot continue: the thread must end.
    pub(crate) fn turn(&mut self) -> io::Result<After> {
        self.wait_for_events()?; // All that the turn before wants from the kernel is submitted.
        self.complete_all(); // A connection that has just been heard of does not expire below.
        self.admit_arrivals(); // Connections that are open come first, however many arrive.
        let is_quiet = self.is_quiet();
        if !is_quiet {
            self.begin_chores(); // What is due from now on was said by a step of this turn.
            // In any order: what workers and other threads have left.
            self.collect_jobs(); // A job that is back ends a stall before that expires.
            self.take_returns(); // Pages that came back likewise.
            self.take_reads();
            self.take_news(); // New limits are there before deadlines are looked at.
            self.retry_sources(); // Of those that were taken just now none was refused.
            // In any order: new limits, deadlines by these, and the state of the server.
            self.relimit_connections();
            self.fire_deadlines(); // Whatever was to move a connection has done so.
            self.follow_state();
            // In any order: connections that a drain concerns, that have more to do, and that wait
            // for room.
            self.notify_drain();
            self.reconcile_again(); // What the events before have not finished.
            self.retry_waiting();
            self.free_memory(); // Only what has found no room now is a reason to end others.
            self.end_overdrawn(); // The same for jobs and files.
            self.run_long_input(); // Long input, after all short requests of the turn.
            self.run_notified(); // Input wakes others: these are called in the same turn.
            self.introduce_read(); // Long input may have held the PROXY header.
            self.open_wished(); // Nearly all that calls protocols came before.
            self.run_long_sends(); // Long output, after all short replies.
            self.look_at_wide(); // Long output may have found no place for a wide socket.
            self.rearm_starved(); // All before may have freed pages, or filled output.
            self.arm_bulk(); // After those that starve, which brought less.
            self.send_fins(); // Only what no step before has closed.
        }
        self.end_turn_of_listeners(); // No protocol is called after this, but for evictions.
        if !is_quiet {
            // In any order: what is asked once for all of the turn.
            self.end_episodes();
            self.reconcile_accepts();
            self.receive_datagrams();
            self.trim();
            self.evict_ciphers();
            self.log_long_waits();
            self.end_chores(); // What evictions have left for the next turn counts.
        }
        self.check_memory(); // What connections hold at the end of a turn counts.
        self.hand_over_jobs(); // One wake-up for all jobs of the turn.
        self.thread.turn_ended();
        match self.thread.common.server_state() {
            ServerState::Running | ServerState::Leaving => Ok(After::GoOn),
            ServerState::Draining | ServerState::Forced => Ok(self.after()),
        }
    }

    /// Whether no chore is due. What a chore needs is found here in one of three ways:
    ///
    /// - Its queue is not empty, or another thread has left something: asked here, in every turn.
    /// - It is due at a time, no earlier than the timers of the thread say (`timers.rs`).
    /// - An event needs a look at all of it: it has all of them due at once.
    pub(crate) fn is_quiet(&self) -> bool {
        let (thread, common) = (&self.thread, &self.thread.common);
        let awaits_pages = thread.memory.pages.any_waits();
        let has_waiting = thread.waits.any() || awaits_pages || common.dispatcher.has_waiting();
        !has_waiting
            && !thread.timers.is_due(thread.now_ns())
            && !thread.memory.is_short()
            && !has_news(common)
            && self.accepts_are_settled()
    }

    fn wait_for_events(&mut self) -> io::Result<()> {
        let thread = &mut self.thread;
        let (driver, common) = (&mut thread.driver, &mut thread.common);
        let timeout_ns = thread.timers.timeout_ns(|| driver.now_ns());
        // What is being sent may be what they wait for.
        if thread.waits.take_hurry()
            || common.dispatcher.has_waiting()
            || common.server_state() != ServerState::Running
        {
            driver.hurry();
        }
        // What a send that has just been made leaves behind is not to wait for the next event.
        let ready = || has_news(common) || has_gathered();
        driver.wait(timeout_ns, &ready, self.pending.room())?;
        common.turn_began(driver.now_ns(), driver.wall_seconds());
        thread.sends.begin_turn();
        Ok(())
    }

    /// Handles completions, oldest first: as many of connections that are open as a turn allows.
    /// However fast clients send, the others wait for a bounded part of a turn; what is left waits
    /// for the next. Accepts are not counted: what they bring has a bound of its own.
    fn complete_all(&mut self) {
        let mut left = TURN_COMPLETIONS_MAX;
        while left > 0
            && let Some(completion) = self.pending.next_left_over()
        {
            left -= 1;
            self.complete(completion);
        }
        let mut completions = self.pending.take();
        for completion in completions.drain(..) {
            if kind_of(completion.user_data) == KIND_ACCEPT {
                self.complete(completion);
            } else if left > 0 {
                left -= 1;
                self.complete(completion);
            } else {
                self.pending.leave(completion);
                self.thread.timers.at_once(Chore::All);
            }
        }
        self.pending.recycle(completions);
        if left < TURN_COMPLETIONS_MAX
            && let Some(trim_ns) = self.thread.memory.note_use()
        {
            self.thread.timers.set(Chore::Trim, Some(trim_ns));
        }
    }

    /// Finds the connection that a completion is of, once for all that follows from it.
    fn complete(&mut self, completion: Completion) {
        let (kind, operation, generation, index) = parts(completion.user_data);
        match kind {
            KIND_ACCEPT => return self.accept_completed(index, operation, completion),
            KIND_WATCH => return self.watch_completed(completion),
            KIND_DATAGRAMS => return self.datagrams_completed((index, operation), completion),
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
        if event.connection.is_spliced() {
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

    fn datagrams_completed(&mut self, which: (u32, u8), completion: Completion) {
        if !completion.more {
            self.thread.timers.at_once(Chore::Datagrams);
        }
        let thread = (&mut self.thread.driver, &mut self.thread.common);
        self.datagrams.completed(thread, which, completion);
    }

    /// Arms what receives datagrams and is not armed.
    fn receive_datagrams(&mut self) {
        let now_ns = self.thread.now_ns();
        let due_ns = self.datagrams.arm(&mut self.thread.driver, now_ns);
        self.thread.timers.set(Chore::Datagrams, due_ns);
    }

    /// Takes what other threads have left beside jobs.
    fn take_news(&mut self) {
        if self.thread.common.mailbox().take_news() {
            self.take_watches();
            self.take_limits();
            self.take_endings();
        }
    }

    /// Connections that held too much look again, as some of it has come back.
    fn take_returns(&mut self) {
        let wakes = Arc::clone(self.thread.common.wakes());
        for index in wakes.returned.indices() {
            self.on(wakes.returned.take(index), |event| {
                event.connection.quota_has_room();
            });
        }
    }

    /// Calls the connections that were woken, oldest first: a bounded part of them in one turn, so
    /// that a broadcast to all leaves the turn short. What these wake is for the next turn, which
    /// follows at once.
    fn run_notified(&mut self) {
        let wakes = Arc::clone(self.thread.common.wakes());
        self.pending.wake(wakes.woken.indices());
        for _ in 0..self.pending.woken().min(TURN_WOKEN_MAX) {
            let Some(index) = self.pending.next_woken() else {
                break;
            };
            self.on(wakes.woken.take(index), |event| {
                let connection = &event.connection;
                if connection.is_spliced() || connection.is_closing() {
                    return;
                }
                event.report(protocol::Event::Woken);
                let stalled = event.connection.stalled();
                if stalled.is_some_and(Stall::may_end_by_wake) {
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
            listener.turn_ended();
        }
        self.thread.successors.turn_ended();
        if let Some(has_room) = self.thread.common.flush_log() {
            let again_ns = self.thread.now_ns() + AGAIN_NS;
            let again_ns = (!has_room).then_some(again_ns);
            self.thread.timers.set(Chore::AccessLog, again_ns);
        }
    }

    fn log_long_waits(&mut self) {
        let common = &mut self.thread.common;
        if common.dispatcher.holds_back() {
            common.shared().log_long_waits(common.turn.now_ns);
        }
        let is_due = common.dispatcher.holds_back();
        let due_ns = is_due.then_some(common.turn.now_ns + LISTENER_PATIENCE_NS);
        self.thread.timers.set(Chore::LongWaits, due_ns);
    }

    /// The jobs of the turn go to workers, and what the program's code has dropped to the bin.
    fn hand_over_jobs(&mut self) {
        self.thread.common.dispatcher.flush();
        self.thread.common.shared().bin_gathered();
    }

    fn begin_chores(&mut self) {
        let now_ns = self.thread.now_ns();
        self.thread.timers.begin_chores(now_ns);
    }

    /// Says when those chores are due of which any step may have changed what decides. The others
    /// have said so themselves.
    fn end_chores(&mut self) {
        let (waits, common) = (&self.thread.waits, &self.thread.common);
        let left = Left {
            is_due: self.pending.any()
                || self.acceptors.arrivals() > 0
                || self.thread.drain.has_open()
                || common.admission.is_relimiting()
                || common.has_wishes()
                || waits.are_due(),
            waits_for_room: waits.any() || common.dispatcher.waiting_for_memory() > 0,
            next_round_ns: self.next_round_ns(),
            episode_end_ns: self.episode_end_ns(),
        };
        let now_ns = self.thread.now_ns();
        self.thread.timers.end_chores(now_ns, &left);
    }

    /// The end of a turn of a server that drains.
    fn after(&mut self) -> After {
        self.notify_late();
        let wishes_nothing = !self.thread.common.has_wishes();
        let idle = self.connections.is_empty() && self.acceptors.are_quiet() && wishes_nothing;
        let is_forced = self.thread.common.server_state() == ServerState::Forced;
        let driver = &mut self.thread.driver;
        if idle && self.datagrams.end(driver, is_forced) {
            let no_pairs = self.thread.pairs.is_empty();
            debug_assert!(no_pairs, "J1: a pair is over before its connections are");
            let common = &mut self.thread.common;
            if common.server_state() == ServerState::Draining {
                common.dispatcher.let_all_go(common.turn.now_ns);
            }
            self.end_watches();
            After::Done
        } else {
            After::GoOn
        }
    }
}
