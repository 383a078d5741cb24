//! Accept: as many as have come, up to a bound per turn.
//!
//! A listener is watched exclusively, so that one of several drivers is woken per connection, and
//! only while an accept that had to wait is armed: a driver that pauses does not swallow the
//! others' wake-ups. One that is shared with a [`Predecessor`](crate::Predecessor), which may
//! swallow them, is not watched exclusively. A refused accept (EMFILE) ends the operation, so there
//! is nothing to spin on.
//!
//! Invariants
//! - A1: a listener is watched only while an accept on it is armed. With the final completion the
//!   caller may close it, and its number may be another file's then.
//!
//! Cost: a single accept that had to wait takes two calls more than its part of one multishot
//! accept, to begin and to end watching.

use std::os::fd::AsRawFd;

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::net::{SocketFlags, accept_with};

use super::table::{AcceptState, Accepting};
use super::{Epoll, LISTENER, Work};
use crate::completion::{Completion, Errno, Outcome};
use crate::driver::OperationMode;
use crate::socket::{ACCEPTS_PER_TURN_MAX, Listener};

impl Epoll {
    pub(super) fn start_accept(
        &mut self,
        listener: &Listener,
        user_data: u64,
        mode: OperationMode,
    ) {
        let descriptor = listener.prepare(&mut self.counters.system_calls);
        self.counters.accepts_armed += 1;
        self.counters.submissions += 1;
        assert!(
            !self.listeners.has_on(&descriptor),
            "C2: a second accept on listener {descriptor}"
        );
        let index = self.listeners.insert(Accepting {
            user_data,
            on: descriptor,
            state: AcceptState {
                mode,
                predecessor: listener.shared().map(|shared| shared.predecessor),
                watched: false,
                queued: false,
            },
        });
        // A1: it is not watched, so try.
        self.listener_ready(index);
    }

    /// Connections may have come. An event of an accept that has ended is dropped; for the next
    /// owner of its entry it costs a call in vain.
    pub(super) fn listener_ready(&mut self, index: usize) {
        if let Some(accepting) = self.listeners.get_mut(index)
            && !accepting.state.queued
        {
            accepting.state.queued = true;
            self.work.push_back(Work::Accept(index));
        }
    }

    pub(super) fn run_accept(&mut self, index: usize, completions: &mut Vec<Completion>) {
        for _ in 0..ACCEPTS_PER_TURN_MAX {
            // Ended, or cancelled.
            let Some(accepting) = self.listeners.get_mut(index) else {
                return;
            };
            accepting.state.queued = false;
            let (user_data, mode) = (accepting.user_data, accepting.state.mode);
            self.counters.system_calls += 1;
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            match accept_with(accepting.listener(), flags) {
                Ok(socket) => {
                    let more = mode == OperationMode::Multishot;
                    if !more {
                        self.end_accept(index);
                    }
                    let outcome = Outcome::Accepted(self.open(socket));
                    completions.push(Completion::new(user_data, more, outcome));
                }
                Err(Errno::AGAIN) => {
                    let armed = match accepting.outlives_its_predecessor() {
                        true => Err(Errno::CANCELED),
                        false => self.watch(index),
                    };
                    if let Err(errno) = armed {
                        completions.push(self.fail_accept(index, errno));
                    }
                    return;
                }
                // The connection is gone already: on to the next one.
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(errno) => return completions.push(self.fail_accept(index, errno)),
            }
        }
        // Work that the bound left over.
        self.listener_ready(index);
    }

    /// Waits for connections.
    fn watch(&mut self, index: usize) -> Result<(), Errno> {
        let accepting = &mut self.listeners[index];
        if !accepting.state.watched {
            let data = EventData::new_u64(LISTENER | index as u64);
            let exclusion = match accepting.state.predecessor {
                None => EventFlags::EXCLUSIVE,
                Some(_) => EventFlags::empty(),
            };
            let flags = EventFlags::IN | EventFlags::ET | exclusion;
            self.counters.system_calls += 1;
            epoll::add(&self.epoll, accepting.listener(), data, flags)?;
            accepting.state.watched = true;
        }
        Ok(())
    }

    /// Stops watching with the end of an accept (A1), so that other drivers get the wake-ups.
    fn end_accept(&mut self, index: usize) -> Accepting {
        let accepting = self.listeners.remove(index);
        if accepting.state.watched {
            self.counters.system_calls += 1;
            // It does not fail: the listener is open, and watched.
            let _ = epoll::delete(&self.epoll, accepting.listener());
        }
        accepting
    }

    fn fail_accept(&mut self, index: usize, errno: Errno) -> Completion {
        let Accepting { user_data, .. } = self.end_accept(index);
        Completion::last(user_data, Outcome::Failed(errno))
    }

    pub(super) fn cancel_accept(&mut self, listener: &Listener, user_data: u64) {
        let Some(descriptor) = listener.descriptor() else {
            return;
        };
        if let Some(index) = self.listeners.meant(&descriptor.as_raw_fd(), user_data) {
            let completion = self.fail_accept(index, Errno::CANCELED);
            self.unasked.push(completion);
        }
    }
}
