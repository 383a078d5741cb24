//! An eventfd as a producer: a network thread watches it and calls the consumer, and no worker
//! wakes.
//!
//! | who                 | does                                                        |
//! |---------------------|-------------------------------------------------------------|
//! | whoever registers   | connect, disconnect: says what is wanted, and asks for a look |
//! | the network thread  | looks, begins and ends the watch, passes signals            |
//!
//! Invariant V4: what was read and not taken stays at the gate; a look passes it on. It is not
//! written back: who shares the descriptor could make that write wait. V1 to V3 are in
//! `watch_queue.rs`.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use flatpath_driver::Eventfd;

use super::ends::{Refused, Sink, Source};
use crate::running::Handle;
use crate::watch_queue::{Need, WatchEntry};
use crate::worker::Shared;

/// A producer that is an eventfd: whoever writes to it, in any thread or process, calls the
/// consumer, with the sum of what was written since the last call.
///
/// What is written while there is no consumer waits for the next, in the eventfd or here. When the
/// server ends, the consumer is called no more.
pub struct EventSource {
    watched: Arc<WatchEntry>,
    shared: Arc<Shared>,
    ring: usize,
}

impl EventSource {
    /// Lets a network thread of a running server watch `event`, from the time on when it is
    /// connected; several sources are shared out among the threads.
    pub fn new(server: &Handle, event: Eventfd) -> EventSource {
        let shared = server.shared();
        let number = shared.sources_made.fetch_add(1, Ordering::Relaxed);
        let ring = number % shared.inboxes.len();
        EventSource {
            watched: Arc::new(WatchEntry::new(event, &shared.inboxes[ring].watches)),
            shared,
            ring,
        }
    }

    /// The eventfd, to be written to or handed on.
    pub fn eventfd(&self) -> &Arc<Eventfd> {
        &self.watched.event
    }

    /// Takes the signals that were read and that no consumer took. There can be some after a pair
    /// has ended; the next consumer gets them, unless this does.
    pub fn take_left(&self) -> u64 {
        self.watched.gate.take_held()
    }

    fn ask_for_look(&self, need: Need) -> Result<(), Refused> {
        let inbox = &self.shared.inboxes[self.ring];
        inbox.watches.add(&self.watched, need)?;
        if let Some(waker) = inbox.waker.get() {
            waker.wake();
        }
        Ok(())
    }
}

impl Source for EventSource {
    fn connect(&self, consumer: &dyn Sink) -> Result<(), Refused> {
        self.watched
            .gate
            .connect(consumer.intake().ok_or(Refused::Unfit)?);
        // ORDER: Relaxed: the lock of the list, behind it, publishes (V1).
        self.watched.wanted.store(true, Ordering::Relaxed);
        self.ask_for_look(Need::Room)
            .inspect_err(|_| self.disconnect())
    }

    fn disconnect(&self) {
        // ORDER: Relaxed: as in `connect`.
        self.watched.wanted.store(false, Ordering::Relaxed);
        self.watched.gate.disconnect();
        // Without a thread nobody watches; and without room it was never connected (V2).
        let _ = self.ask_for_look(Need::Nothing);
    }

    fn stop(&self) {
        self.watched.gate.stop();
    }

    fn start(&self) {
        if self.watched.gate.start() {
            // As above.
            let _ = self.ask_for_look(Need::Nothing);
        }
    }
}

impl std::fmt::Debug for EventSource {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("EventSource")
            .field("gate", &self.watched.gate)
            .field("ring", &self.ring)
            .finish_non_exhaustive()
    }
}
