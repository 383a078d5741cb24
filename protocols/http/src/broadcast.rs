//! Events to many listeners: each is encoded once, kept once, and shared by all.
//!
//! A send adds the event to a short history and wakes the connections that listen. Each listener
//! has a number: that of the event which it takes next.
//!
//! | may run beside          | `send`, `listen` | a listener, on its network thread |
//! |-------------------------|------------------|-----------------------------------|
//! | `send`, `listen`        | yes              | yes                               |
//! | a listener              | yes              | another one, yes                  |
//!
//! Invariants
//! - B1: the history holds at most `events_max` events, the latest ones, in order.
//! - B2: a listener takes each event after its beginning once and in order, or is cut off: it finds
//!   that the next one is not in the history any more.
//! - B3: a listener that found nothing is woken by the next send. It is in the table before it
//!   looks, and a send looks at the table after it has added its event.
//!
//! Cost of a send: the event, once, and one wake for each listener, without a lock or a system call
//! for each ([`ConnectionHandle::wake`]); the table is locked for [`WAKES_PER_LOCK`] of them at a
//! time, so that no network thread waits for long. A listener is a place in the table and a number.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use flatpath::ConnectionHandle;

use crate::channel::Next;
use crate::event::Event;

/// Events that are kept for listeners which are slow, unless the program says otherwise.
const EVENTS_MAX: usize = 256;

/// Wakes under one lock of the table: a few microseconds.
const WAKES_PER_LOCK: usize = 128;

/// Sends the same events to any number of listeners: server-sent events, one response each.
///
/// Clones send to the same listeners; when the last one is dropped, their streams end. So they do
/// when the server drains; browsers come back by themselves.
///
/// A listener that does not read has some 300 KiB on its way, and then misses events. One that has
/// missed more than the history holds (256 events, or what [`Broadcast::with_history`] says) is cut
/// off when it reads again; its browser comes back, and tells the last id that it has seen.
///
/// ```
/// use flatpath_http::{Http, Router, sse::{Broadcast, Event}};
///
/// let news = Broadcast::new();
/// let listen = news.clone();
/// let http = Http::pooled(move |_: flatpath_http::Request| listen.response());
/// // From any thread, inline handlers among them: it never blocks.
/// news.send(Event::new().event("news").data("hello, all"));
/// # let _ = http;
/// ```
#[derive(Clone)]
pub struct Broadcast(Arc<Source>);

/// What the clones share: the last one ends the streams.
struct Source(Arc<Shared>);

struct Shared {
    history: Mutex<History>,
    /// An event, or the end.
    changed: Condvar,
    table: Mutex<Table>,
    events_max: usize,
}

#[derive(Default)]
struct History {
    events: VecDeque<Bytes>,
    /// The number of the event that comes next.
    next: u64,
    is_over: bool,
}

#[derive(Default)]
struct Table {
    places: Vec<Option<ConnectionHandle>>,
    free: Vec<u32>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing under the locks panics half way.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Broadcast {
    /// A broadcast without listeners, with a history of 256 events.
    #[must_use]
    pub fn new() -> Self {
        Self::with_history(EVENTS_MAX)
    }

    /// The same with a history of `events_max` events, one at least: how many a listener that reads
    /// slowly may be behind. They are kept once, for all.
    #[must_use]
    pub fn with_history(events_max: usize) -> Self {
        Self(Arc::new(Source(Arc::new(Shared {
            history: Mutex::default(),
            changed: Condvar::new(),
            table: Mutex::default(),
            events_max: events_max.max(1),
        }))))
    }

    /// Sends an event to all who listen. Does not block.
    pub fn send(&self, event: impl Into<Event>) {
        let event = Bytes::from(event.into());
        let shared = &self.0.0;
        let mut history = lock(&shared.history);
        // B1.
        let oldest = match history.events.len() == shared.events_max {
            true => history.events.pop_front(),
            false => None,
        };
        history.events.push_back(event);
        history.next += 1;
        drop(history);
        drop(oldest);
        shared.wake_all();
    }

    /// One who takes what is given first, and then the events that are sent from now on.
    pub(crate) fn listener(&self, first: Bytes) -> Listener {
        Listener {
            first,
            next: lock(&self.0.0.history).next,
            shared: Arc::clone(&self.0.0),
            taken_bytes: 0,
            left_bytes: 0,
            place: None,
            is_draining: false,
        }
    }

    /// How many clients listen now.
    #[must_use]
    pub fn listeners(&self) -> usize {
        let table = lock(&self.0.0.table);
        table.places.len() - table.free.len()
    }
}

impl Default for Broadcast {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Broadcast {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut fields = formatter.debug_struct("Broadcast");
        fields.field("listeners", &self.listeners());
        fields.finish_non_exhaustive()
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        lock(&self.0.history).is_over = true;
        self.0.wake_all();
    }
}

impl Shared {
    /// B3: after what they are woken for.
    fn wake_all(&self) {
        self.changed.notify_all();
        let mut from = 0;
        loop {
            let table = lock(&self.table);
            let Some(places) = table.places.get(from..) else {
                return;
            };
            let some = &places[..places.len().min(WAKES_PER_LOCK)];
            if some.is_empty() {
                return;
            }
            some.iter().flatten().for_each(ConnectionHandle::wake);
            from += some.len();
        }
    }
}

/// One who listens.
pub(crate) struct Listener {
    /// What it takes before all others; empty in the end.
    first: Bytes,
    /// The number of the event that it takes next.
    next: u64,
    shared: Arc<Shared>,
    /// Of that event: how much it has taken, and what was left when it looked.
    taken_bytes: usize,
    left_bytes: usize,
    place: Option<u32>,
    is_draining: bool,
}

impl Listener {
    pub(crate) fn attach(&mut self, connection: ConnectionHandle) {
        debug_assert!(self.place.is_none(), "a body is sent once");
        let mut table = lock(&self.shared.table);
        let place = table.free.pop().unwrap_or_else(|| {
            table.places.push(None);
            u32::try_from(table.places.len() - 1).expect("fewer than 4 G connections")
        });
        table.places[place as usize] = Some(connection);
        self.place = Some(place);
    }

    pub(crate) fn drain(&mut self) {
        self.is_draining = true;
    }

    pub(crate) fn next(&mut self) -> Next {
        if !self.first.is_empty() {
            return Next::Piece(self.first.clone());
        }
        let history = lock(&self.shared.history);
        let behind = history.next - self.next;
        if behind > history.events.len() as u64 {
            // B2.
            return Next::Aborted;
        }
        match history.events.get(history.events.len() - behind as usize) {
            Some(event) => {
                let left = event.slice(self.taken_bytes..);
                self.left_bytes = left.len();
                Next::Piece(left)
            }
            None if history.is_over || self.is_draining => Next::Complete,
            None => Next::Later,
        }
    }

    pub(crate) fn advance(&mut self, bytes: usize) {
        if !self.first.is_empty() {
            self.first = self.first.slice(bytes..);
            return;
        }
        self.taken_bytes += bytes;
        self.left_bytes -= bytes;
        if self.left_bytes == 0 {
            (self.next, self.taken_bytes) = (self.next + 1, 0);
        }
    }

    /// Blocks until there is something.
    pub(crate) fn wait(&self) {
        let mut history = lock(&self.shared.history);
        while history.next == self.next && !history.is_over {
            let changed = self.shared.changed.wait(history);
            history = changed.unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Some(place) = self.place {
            let mut table = lock(&self.shared.table);
            table.places[place as usize] = None;
            table.free.push(place);
        }
    }
}
