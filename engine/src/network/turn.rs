//! One turn after the other: wait, handle what has come, then the chores, if any is due.

use std::io;

use flatpath_driver::{Completion, Driver};

use crate::access_log::AGAIN_NS;
use crate::common::Common;
use crate::discard::has_gathered;
use crate::lifecycle::ServerState;
use crate::limits::{TRIM_PERIOD_NS, TURN_COMPLETIONS_MAX};
use crate::turn::Turn;

use super::listening::Acceptor;
use super::thread::Network;
use super::user_data::{GENERATION_MASK, KIND_ACCEPT, KIND_SEND, KIND_WATCH, kind_of, parts};

/// What the thread does after a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum After {
    GoOn,
    /// The server drains and this thread has nothing left.
    Done,
}

/// Whether other threads have left something for this one.
fn has_news(common: &Common) -> bool {
    let (shared, thread) = (&*common.shared, common.number);
    let inbox = &shared.inboxes[usize::from(thread)];
    !inbox.arrived.is_empty()
        || shared.server_state() > common.server_state
        || shared.changed_limits.version() != common.limits_version
        || common.wakes.any()
        || inbox.watches.any()
        || shared.relief.is_asked(thread)
}

impl<D: Driver> Network<D> {
    /// Waits for something to happen and handles all of it.
    ///
    /// Completions are handled first. Most turns have nothing else to do, so whether any chore is
    /// due is one question, and a turn with a request in it is the path of that request.
    ///
    /// # Errors
    /// The driver has lost completions or cannot go on: the thread must end.
    pub(crate) fn turn(&mut self) -> io::Result<After> {
        self.wait_for_events()?;
        self.complete_all();
        let is_quiet = self.is_quiet();
        if !is_quiet {
            self.do_chores();
        }
        self.end_turn_of_listeners();
        if !is_quiet {
            self.end_chores();
        }
        if self.thread.now_ns() >= self.weigh_ns {
            self.weigh_memory();
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
        let has_waiting =
            thread.waits.any() || thread.starved.any() || common.dispatcher.has_waiting();
        !has_waiting
            && thread.now_ns() < thread.due_ns
            && !thread.holders.is_short()
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
        if left < TURN_COMPLETIONS_MAX && !self.trim_due {
            self.trim_due = true;
            self.thread.due(self.trimmed_ns + TRIM_PERIOD_NS);
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
            KIND_SEND => event.connection.send_operation(),
            _ => event.connection.receive_operation(),
        };
        if key.generation & GENERATION_MASK != generation || current != operation {
            return event.thread.discard(completion.outcome);
        }
        if event.connection.peer().is_some() {
            return self.spliced_completed(key, kind, completion);
        }
        let fate = match kind {
            KIND_SEND => event.send_completed(completion),
            _ => event.receive_completed(completion),
        };
        self.conclude(key, fate);
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

    /// The end of a turn of a server that drains.
    fn after(&mut self) -> After {
        self.tell_late();
        let idle = self.connections.is_empty()
            && self.arrivals.is_empty()
            && self.acceptors.iter().all(Acceptor::is_quiet);
        if idle {
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
