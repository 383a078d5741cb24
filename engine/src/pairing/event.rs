//! An eventfd as a producer: a network thread watches it and calls the consumer, and no worker
//! wakes.
//!
//! | who                 | does                                                        |
//! |---------------------|-------------------------------------------------------------|
//! | whoever registers   | connect, disconnect: says what is wanted, and orders a look |
//! | the network thread  | looks, begins and ends the watch, passes signals            |
//!
//! Invariants
//! - V1: a source is in the list of orders at most once, and whoever changes what is wanted puts it
//!   there afterwards; so the thread sees the last word, however often it changed.
//! - V2: the list has room for every source of its thread that was ever connected, so that only
//!   connecting can fail for want of memory.
//! - V3: a list that is closed takes no order: nobody would look.
//! - V4: what was read and not taken stays at the gate; a look passes it on. It is not written
//!   back: who shares the descriptor could make that write wait.
//!
//! Ordering
//! - V-E1 listed: push, then `any` set (Release) -> `take` clears it (Acquire). The waker's fences
//!   order `any` before the sleep test.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use flatpath_driver::{Eventfd, Wake as _};

use super::gate::Gate;
use super::{Consume, Produce, Refused};
use crate::running::Handle;
use crate::worker::Shared;

/// A producer that is an eventfd: whoever writes to it, in any thread or process, calls the
/// consumer, with the sum of what was written since the last call.
///
/// What is written while there is no consumer waits for the next, in the eventfd or here. When the
/// server ends, the consumer is called no more.
pub struct EventSource {
    watched: Arc<Watched>,
    shared: Arc<Shared>,
    ring: usize,
}

/// What a network thread has of a source.
pub(crate) struct Watched {
    pub(crate) event: Arc<Eventfd>,
    pub(crate) gate: Gate,
    wanted: AtomicBool,
    /// Stands in the list of orders; changed under its lock.
    is_listed: AtomicBool,
    /// The thread's number of it; for the thread alone.
    pub(crate) place: AtomicU64,
    _member: Member,
}

impl Watched {
    /// Whether it is connected, as far as this thread knows by now.
    pub(crate) fn is_wanted(&self) -> bool {
        self.wanted.load(Ordering::Relaxed)
    }
}

impl EventSource {
    /// Lets a network thread of a running server watch `event`, from the time on when it is
    /// connected; several sources are shared out among the threads.
    pub fn new(server: &Handle, event: Eventfd) -> EventSource {
        let shared = server.shared();
        let number = shared.sources_made.fetch_add(1, Ordering::Relaxed);
        let ring = number % shared.inboxes.len();
        EventSource {
            watched: Arc::new(Watched {
                event: Arc::new(event),
                gate: Gate::default(),
                wanted: AtomicBool::new(false),
                is_listed: AtomicBool::new(false),
                place: AtomicU64::new(u64::MAX),
                _member: shared.inboxes[ring].orders.member(),
            }),
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

    fn order_look(&self, need: Need) -> Result<(), Refused> {
        let inbox = &self.shared.inboxes[self.ring];
        inbox.orders.add(&self.watched, need)?;
        if let Some(waker) = inbox.waker.get() {
            waker.wake();
        }
        Ok(())
    }
}

impl Produce for EventSource {
    fn connect(&self, consumer: &dyn Consume) -> Result<(), Refused> {
        self.watched
            .gate
            .connect(consumer.intake().ok_or(Refused::Unfit)?);
        // ORDER: Relaxed: the lock of the list, behind it, publishes (V1).
        self.watched.wanted.store(true, Ordering::Relaxed);
        self.order_look(Need::Room)
            .inspect_err(|_| self.disconnect())
    }

    fn disconnect(&self) {
        // ORDER: Relaxed: as in `connect`.
        self.watched.wanted.store(false, Ordering::Relaxed);
        self.watched.gate.disconnect();
        // Without a thread nobody watches; and without room it was never connected (V2).
        let _ = self.order_look(Need::Nothing);
    }

    fn stop(&self) {
        self.watched.gate.stop();
    }

    fn start(&self) {
        if self.watched.gate.start() {
            // As above.
            let _ = self.order_look(Need::Nothing);
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

/// Sources that a network thread is to look at. See the module.
#[derive(Default)]
pub(crate) struct Orders {
    list: Mutex<List>,
    any: AtomicBool,
    /// Sources that may be listed.
    members: Arc<AtomicUsize>,
}

/// What an order may need besides a place in the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Need {
    Nothing,
    /// Room for this and all later orders of the source (V2).
    Room,
}

/// One that may be listed.
struct Member(Arc<AtomicUsize>);

impl Drop for Member {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[derive(Default)]
struct List {
    sources: Vec<Arc<Watched>>,
    is_closed: bool,
    is_out_of_memory: bool,
}

impl List {
    fn make_room(&mut self, members: usize) -> Result<(), Refused> {
        if self.is_out_of_memory {
            return Err(Refused::NoMemory);
        }
        let more = members.saturating_sub(self.sources.len());
        self.sources
            .try_reserve(more)
            .map_err(|_| Refused::NoMemory)
    }
}

impl Orders {
    fn member(&self) -> Member {
        self.members.fetch_add(1, Ordering::Relaxed);
        Member(Arc::clone(&self.members))
    }

    fn list(&self) -> MutexGuard<'_, List> {
        // Nothing under the lock panics half way.
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, source: &Arc<Watched>, need: Need) -> Result<(), Refused> {
        let mut list = self.list();
        if list.is_closed {
            return Err(Refused::ShutDown);
        }
        if need == Need::Room {
            list.make_room(self.members.load(Ordering::Relaxed))?;
        }
        if !source.is_listed.load(Ordering::Relaxed) {
            if list.sources.len() == list.sources.capacity() {
                return Err(Refused::NoMemory);
            }
            list.sources.push(Arc::clone(source));
            // ORDER: Relaxed: under the lock.
            source.is_listed.store(true, Ordering::Relaxed);
        }
        // ORDER: V-E1.
        self.any.store(true, Ordering::Release);
        Ok(())
    }

    /// Whether there is something to take.
    pub(crate) fn any(&self) -> bool {
        self.any.load(Ordering::Relaxed)
    }

    pub(crate) fn take(&self) -> Vec<Arc<Watched>> {
        // ORDER: V-E1.
        if !self.any() || !self.any.swap(false, Ordering::Acquire) {
            return Vec::new();
        }
        let mut list = self.list();
        // Its room stays (V2).
        let sources: Vec<_> = list.sources.drain(..).collect();
        // Under the lock, and before anybody looks at what is wanted (V1).
        for source in &sources {
            // ORDER: Relaxed: under the lock.
            source.is_listed.store(false, Ordering::Relaxed);
        }
        sources
    }

    /// The thread ends: no order is taken from now on (V3).
    pub(crate) fn close(&self) {
        let mut list = self.list();
        list.is_closed = true;
        list.sources = Vec::new();
    }

    /// From now on there is no memory for orders, or there is again; for simulations.
    pub(crate) fn starve(&self, is_out_of_memory: bool) {
        self.list().is_out_of_memory = is_out_of_memory;
    }
}
