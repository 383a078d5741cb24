//! Accept: as many as have come, up to a bound per turn.
//!
//! A listener is watched exclusively, so that one of several drivers is woken per connection, and
//! only while an accept that had to wait is armed: a driver that pauses does not swallow the
//! others' wake-ups. A refused accept (EMFILE) ends the operation, so there is nothing to spin on.
//!
//! Invariants
//! - A1: a listener is watched only while an accept on it is armed. With the final completion the
//!   caller may close it, and its number may be another file's then.
//!
//! Cost: a single accept that had to wait takes two calls more than its part of one multishot
//! accept, to begin and to end watching.

use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::net::{SocketFlags, accept_with};

use super::table::Entry;
use super::{Epoll, LISTENER, Work};
use crate::completion::{Completion, Errno, Outcome};
use crate::driver::OperationMode;
use crate::socket::{Handle, Listener, Mode, Socket};

/// Connections accepted from one listener in one turn: a millisecond of it. The caller orders
/// crowds by address, and cannot order what is still in the backlog.
const ACCEPTS_PER_TURN_MAX: usize = 512;

/// A listener that was accepted from.
pub(super) struct Accepting {
    descriptor: RawFd,
    operation: Option<(u64, OperationMode)>,
    watched: bool,
    acceptable: bool,
    queued: bool,
}

impl Epoll {
    pub(super) fn start_accept(
        &mut self,
        listener: &Listener,
        user_data: u64,
        mode: OperationMode,
    ) {
        let descriptor = listener.prepare(Mode::NonBlocking, &mut self.counters.system_calls);
        self.counters.accepts_armed += 1;
        self.counters.submissions += 1;
        let index = self.listener_index(descriptor);
        let accepting = &mut self.listeners[index];
        assert!(
            accepting.operation.is_none(),
            "C2: a second accept on listener {descriptor}"
        );
        accepting.operation = Some((user_data, mode));
        // A1: it is not watched, so try.
        accepting.acceptable = true;
        self.queue_accept(index);
    }

    /// A handful of listeners: a search is cheaper than a table.
    fn listener_index(&mut self, descriptor: RawFd) -> usize {
        let known = self
            .listeners
            .iter()
            .position(|known| known.descriptor == descriptor);
        if let Some(index) = known {
            return index;
        }
        let fresh = Accepting {
            descriptor,
            operation: None,
            watched: false,
            acceptable: true,
            queued: false,
        };
        let vacant = self
            .listeners
            .iter()
            .position(|old| old.operation.is_none() && !old.watched && !old.queued);
        if let Some(index) = vacant {
            self.listeners[index] = fresh;
            return index;
        }
        self.listeners.push(fresh);
        self.listeners.len() - 1
    }

    fn queue_accept(&mut self, index: usize) {
        let accepting = &mut self.listeners[index];
        if accepting.operation.is_some() && accepting.acceptable && !accepting.queued {
            accepting.queued = true;
            self.work.push_back(Work::Accept(index));
        }
    }

    /// An event: connections have come.
    pub(super) fn listener_ready(&mut self, index: usize) {
        self.listeners[index].acceptable = true;
        self.queue_accept(index);
    }

    pub(super) fn run_accept(&mut self, index: usize, completions: &mut Vec<Completion>) {
        self.listeners[index].queued = false;
        for _ in 0..ACCEPTS_PER_TURN_MAX {
            let accepting = &self.listeners[index];
            let Some((user_data, mode)) = accepting.operation else {
                return;
            };
            // SAFETY: the caller keeps the listener open while an accept is outstanding on it.
            let listener = unsafe { BorrowedFd::borrow_raw(accepting.descriptor) };
            self.counters.system_calls += 1;
            match accept_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
                Ok(socket) => {
                    let more = mode == OperationMode::Multishot;
                    if !more {
                        self.listeners[index].operation = None;
                        self.forget_listener(index);
                    }
                    let outcome = Outcome::Accepted(self.open(socket));
                    completions.push(Completion::new(user_data, more, outcome));
                }
                Err(Errno::AGAIN) => {
                    self.wait_for_connections(index, completions);
                    return;
                }
                // The connection is gone already: on to the next one.
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(errno) => {
                    self.end_accept(index, errno, completions);
                    return;
                }
            }
        }
        self.queue_accept(index);
    }

    fn wait_for_connections(&mut self, index: usize, completions: &mut Vec<Completion>) {
        let accepting = &mut self.listeners[index];
        accepting.acceptable = false;
        if accepting.watched {
            return;
        }
        // SAFETY: as in `run_accept`.
        let listener = unsafe { BorrowedFd::borrow_raw(accepting.descriptor) };
        let data = EventData::new_u64(LISTENER | index as u64);
        let flags = EventFlags::IN | EventFlags::ET | EventFlags::EXCLUSIVE;
        self.counters.system_calls += 1;
        match epoll::add(&self.epoll, listener, data, flags) {
            Ok(()) => accepting.watched = true,
            Err(errno) => self.end_accept(index, errno, completions),
        }
    }

    fn end_accept(&mut self, index: usize, errno: Errno, completions: &mut Vec<Completion>) {
        self.forget_listener(index);
        if let Some((user_data, _)) = self.listeners[index].operation.take() {
            let outcome = Outcome::Failed(errno);
            completions.push(Completion::last(user_data, outcome));
        }
    }

    /// Stops watching with the end of an accept (A1), so that other drivers get the wake-ups.
    fn forget_listener(&mut self, index: usize) {
        let accepting = &mut self.listeners[index];
        if std::mem::take(&mut accepting.watched) {
            // SAFETY: the caller keeps the listener open until the final completion is handed out.
            let listener = unsafe { BorrowedFd::borrow_raw(accepting.descriptor) };
            self.counters.system_calls += 1;
            // It does not fail: the listener is open, and watched.
            let _ = epoll::delete(&self.epoll, listener);
        }
    }

    pub(super) fn cancel_accept(&mut self, listener: &Listener, user_data: u64) {
        let Some(descriptor) = listener.descriptor() else {
            return;
        };
        let descriptor = descriptor.as_raw_fd();
        let found = self.listeners.iter().position(|accepting| {
            accepting.descriptor == descriptor
                && accepting
                    .operation
                    .is_some_and(|(armed, _)| armed == user_data)
        });
        if let Some(index) = found {
            let mut completions = std::mem::take(&mut self.unasked);
            self.end_accept(index, Errno::CANCELED, &mut completions);
            self.unasked = completions;
        }
    }

    /// Enters an accepted or registered socket into the table.
    pub(super) fn open(&mut self, socket: OwnedFd) -> Socket {
        let descriptor = socket.as_raw_fd();
        let entries = self.entries.len().max(descriptor as usize + 1);
        self.entries.resize_with(entries, Entry::default);
        let entry = self.entry_of(descriptor);
        debug_assert!(
            entry.socket.is_none(),
            "T1: descriptor {descriptor} is open already"
        );
        entry.reset(Some(socket));
        self.counters.sockets += 1;
        Socket::new(Handle::Descriptor(descriptor))
    }
}
