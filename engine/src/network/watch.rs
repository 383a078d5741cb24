//! Event sources: eventfds that this thread watches, and calls a function for.
//!
//! | state      | what happened                                   | what ends it              |
//! |------------|-------------------------------------------------|---------------------------|
//! | Armed      | a watch is outstanding                          | it fails                  |
//! | Cancelling | no longer wanted, and cancelled                 | its final completion      |
//! | Refused    | the kernel had no room for it                   | the next try, in a moment |
//!
//! Invariants
//! - A source has a place here from the first look at which it is wanted until it is neither
//!   wanted nor watched; so it has one watch at most.
//! - Every count that came is passed to the function. One that panics has taken it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use flatpath_driver::{Completion, Driver, Errno, Operation, Outcome};
use flatpath_structures::panics::{contain, drop_contained};
use flatpath_structures::slots::Key;

use crate::protocol::discard::discard_last;
use crate::watch::queue::WatchEntry;

use super::sources::{Source, State};
use super::thread::Network;
use super::timers::Chore;
use super::user_data::{GENERATION_MASK, KIND_WATCH, parts, user_data};

/// How long to wait before a watch that the kernel refused is tried again.
const RETRY_NS: u64 = 10_000_000;

impl<D: Driver> Network<D> {
    /// Looks at the sources that other threads changed.
    pub(super) fn take_watches(&mut self) {
        for watched in self.thread.common.mailbox().watches.take() {
            let place = Key::from_u64(watched.place.load(Ordering::Relaxed));
            match self.sources.state(place) {
                None if watched.is_wanted() => self.begin(Arc::clone(&watched)),
                Some(State::Armed) => self.cancel_unwanted(place),
                Some(State::Refused(_)) if !watched.is_wanted() => {
                    self.forget(place);
                }
                // The final completion looks again.
                None | Some(State::Cancelling | State::Refused(_)) => {}
            }
            if watched.is_wanted() {
                self.call(&watched, 0);
            }
            // It may be the last that knows the source, and its function.
            discard_last(watched);
        }
    }

    fn forget(&mut self, key: Key) {
        if let Some(source) = self.sources.remove(key) {
            discard_last(source.watched);
        }
    }

    fn begin(&mut self, watched: Arc<WatchEntry>) {
        let source = Source {
            watched,
            state: State::Armed,
            operation: 0,
        };
        match self.sources.insert(source) {
            Some(key) => self.arm_watch(key),
            // More than descriptors can be.
            None => debug_assert!(false, "a table of sources that is full"),
        }
    }

    fn arm_watch(&mut self, key: Key) {
        let Some(source) = self.sources.get_mut(key) else {
            return;
        };
        // ORDER: Relaxed: for this thread alone.
        source.watched.place.store(key.to_u64(), Ordering::Relaxed);
        source.state = State::Armed;
        source.operation = source.operation.wrapping_add(1);
        let user_data = user_data(KIND_WATCH, source.operation, key);
        self.thread
            .driver
            .poll_eventfd(Arc::clone(&source.watched.event), user_data);
    }

    fn cancel_unwanted(&mut self, key: Key) {
        if let Some(source) = self.sources.get_mut(key)
            && source.state == State::Armed
            && !source.watched.is_wanted()
        {
            source.state = State::Cancelling;
            let user_data = user_data(KIND_WATCH, source.operation, key);
            self.thread
                .driver
                .cancel(Operation::PollEventfd(&source.watched.event), user_data);
        }
    }

    pub(super) fn watch_completed(&mut self, completion: Completion) {
        let (_, operation, generation, index) = parts(completion.user_data);
        let Some(key) = self.sources.key_at(index) else {
            return;
        };
        let Some(source) = self.sources.get_mut(key) else {
            return;
        };
        let is_refused = matches!(source.state, State::Refused(_));
        // A final completion that comes twice, of a watch before this one (N2).
        let is_another = key.generation & GENERATION_MASK != generation;
        if is_another || source.operation != operation || is_refused {
            return;
        }
        match completion.outcome {
            Outcome::Signalled(count) => self.signalled(key, count),
            Outcome::Failed(errno) if !completion.more => self.watch_ended(key, errno),
            _ => debug_assert!(false, "a watch signals or fails"),
        }
    }

    fn signalled(&mut self, key: Key, count: u64) {
        let Some(source) = self.sources.get_mut(key) else {
            return;
        };
        let watched = Arc::clone(&source.watched);
        self.call(&watched, count);
        discard_last(watched);
    }

    fn call(&self, watched: &WatchEntry, count: u64) {
        let counters = self.thread.common.own_counters();
        match contain(|| (watched.signalled)(count)) {
            Some(()) if count > 0 => counters.signals.add(1),
            Some(()) => {}
            None => counters.signal_panics.add(1),
        }
    }

    /// The watch is over: the source goes, or begins anew if it is wanted again.
    fn watch_ended(&mut self, key: Key, errno: Errno) {
        let now_ns = self.thread.common.turn.now_ns;
        let Some(source) = self.sources.get_mut(key) else {
            return;
        };
        if !source.watched.is_wanted() {
            self.forget(key);
        } else if source.state == State::Cancelling {
            self.arm_watch(key);
        } else {
            log::warn!("watching an eventfd: {errno}");
            self.sources.refuse(key, now_ns + RETRY_NS);
            self.thread
                .timers
                .set(Chore::Watches, self.sources.due_ns());
        }
    }

    /// The thread ends: a source that wants to be watched from now on is refused.
    pub(super) fn end_watches(&self) {
        let listed = self.thread.common.mailbox().watches.close();
        listed.into_iter().for_each(discard_last);
    }

    /// Tries those again that the kernel refused.
    pub(super) fn retry_sources(&mut self) {
        if !self.sources.any_refused() {
            return;
        }
        let now_ns = self.thread.common.turn.now_ns;
        for key in self.sources.take_due(now_ns) {
            self.arm_watch(key);
        }
        self.thread
            .timers
            .set(Chore::Watches, self.sources.due_ns());
    }
}

impl<D: Driver> Drop for Network<D> {
    /// No source is watched from now on. What is left of a thread that ends before its time is
    /// dropped one by one: a second panic while the first one unwinds would end the process.
    fn drop(&mut self) {
        self.end_watches();
        for key in self.sources.keys() {
            self.forget(key);
        }
        self.listeners.drain(..).for_each(drop_contained);
        self.thread.successors.clear();
        self.datagrams.clear();
    }
}
