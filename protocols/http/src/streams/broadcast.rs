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
//! - B1: the history holds at most `events_max` events, the latest ones, in order (`history.rs`).
//! - B2: a listener takes each event after its beginning once and in order, or is cut off: it finds
//!   that the next one is not in the history any more.
//! - B4: while anyone listens, the history is charged to the memory of the server, once, and so is
//!   an event that has left it, for as long as it is on its way to a listener. Where there is no
//!   memory for a new event, old ones leave the history; the newest stays, and is sent once it is
//!   charged.
//! - B5: an event is framed as a chunk once, for all. Listeners share it up to the socket, unless
//!   it is short.
//! - B3: a listener that found nothing is woken by the next send. It is in the table before it
//!   looks, and a send looks at the table after it has added its event.
//!
//! Cost of a send: the event, once, and one wake for each listener, without a lock or a system call
//! for each ([`ConnectionHandle::wake`]); the table is locked for [`WAKES_PER_LOCK`] of them at a
//! time, so that no network thread waits for long. A listener is a place in the table and a number.

use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;

use bytes::Bytes;
use flatpath::lock::{Condition, Lock};
use flatpath::{ConnectionHandle, Io};

use crate::respond::encode::ReplyFraming;
use crate::streams::event::Event;
use crate::streams::feed::{Fed, write_piece};
use crate::streams::history::{History, Kept, content};

/// Events that are kept for listeners which are slow, unless the program says otherwise.
const EVENTS_MAX: usize = 256;

/// What one listener has in its output at most, in bytes, and one event.
const OUTPUT_BYTES_MAX: usize = 64 * 1024;

/// What a listener is sent first goes out in pieces of this length, in bytes.
const FIRST_PIECE_BYTES: usize = 16 * 1024;

/// Wakes under one lock of the table: a few microseconds.
const WAKES_PER_LOCK: usize = 128;

/// Sends the same events to any number of listeners: server-sent events, one response each.
///
/// Clones send to the same listeners; when the last one is dropped, their streams end. So they do
/// when the server drains; browsers come back by themselves.
///
/// A listener that does not read has 64 KiB on its way, less while memory is short, and then misses
/// events. One that has missed more than the history holds (256 events, or what
/// [`Broadcast::with_history`] says) is cut off when it reads again; its browser comes back, and
/// tells the last id that it has seen: [`Broadcast::response_to`] sends what it has missed.
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
    history: Lock<History>,
    /// An event, or the end.
    changed: Condition,
    table: Lock<Table>,
    events_max: usize,
}

#[derive(Default)]
struct Table {
    places: Vec<Option<ConnectionHandle>>,
    free: Vec<u32>,
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
            history: Lock::default(),
            changed: Condition::new(),
            table: Lock::default(),
            events_max: events_max.max(1),
        }))))
    }

    /// Sends an event to all who listen. Does not block.
    pub fn send(&self, event: impl Into<Event>) {
        let event = Kept::new(event.into());
        let shared = &self.0.0;
        let oldest = shared.history.lock().push(event, shared.events_max);
        drop(oldest);
        shared.wake_all();
    }

    /// One who takes what is given first, and then the events that are sent from now on.
    pub(crate) fn listener(&self, first: Bytes) -> Listener {
        let next = self.0.0.history.lock().next;
        self.listener_from(next, first)
    }

    /// One who takes the events after the one with this id; all that are kept, after `missed`, if
    /// there is none.
    pub(crate) fn listener_since(&self, id: &[u8], missed: &'static [u8]) -> Listener {
        let history = self.0.0.history.lock();
        let (next, first) = match history.after(id.trim_ascii()) {
            Some(next) => (next, &[][..]),
            None => (history.oldest(), missed),
        };
        drop(history);
        self.listener_from(next, Bytes::from_static(first))
    }

    /// One who takes the events that are kept, and then those that are sent.
    pub(crate) fn listener_to_all(&self) -> Listener {
        let oldest = self.0.0.history.lock().oldest();
        self.listener_from(oldest, Bytes::new())
    }

    fn listener_from(&self, next: u64, first: Bytes) -> Listener {
        Listener {
            first,
            next,
            is_first_charged: false,
            shared: Arc::clone(&self.0.0),
            place: None,
            is_draining: false,
        }
    }

    /// How many clients listen now.
    #[must_use]
    pub fn listeners(&self) -> usize {
        let table = self.0.0.table.lock();
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
        self.0.history.lock().is_over = true;
        self.0.wake_all();
    }
}

impl Shared {
    /// B3: after what they are woken for.
    fn wake_all(&self) {
        self.changed.notify_all();
        let mut from = 0;
        loop {
            let table = self.table.lock();
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
    /// From 1.
    place: Option<NonZeroU32>,
    is_first_charged: bool,
    is_draining: bool,
}

/// What a listener finds.
enum Next {
    /// An event, as a chunk, and whether it is charged.
    Event(Bytes, bool),
    Nothing,
    Complete,
    /// The next event has left the history: the listener is cut off (B2).
    Missed,
}

impl Listener {
    pub(crate) fn attach(&mut self, connection: ConnectionHandle) {
        debug_assert!(self.place.is_none(), "a body is sent once");
        self.shared.history.lock().joined(connection.clone());
        let mut table = self.shared.table.lock();
        let place = table.free.pop().unwrap_or_else(|| {
            table.places.push(None);
            u32::try_from(table.places.len() - 1).expect("fewer than 4 G connections")
        });
        table.places[place as usize] = Some(connection);
        self.place = NonZeroU32::new(place + 1);
    }

    pub(crate) fn drain(&mut self) {
        self.is_draining = true;
    }

    /// The event that it takes next, which it has taken then.
    fn take(&mut self) -> Next {
        let mut history = self.shared.history.lock();
        let behind = history.next - self.next;
        if behind > history.events.len() as u64 {
            return Next::Missed;
        }
        let at = history.events.len() - behind as usize;
        if history
            .events
            .get(at)
            .is_some_and(|it| it.charged.is_none())
        {
            // The newest: there may be memory by now.
            history.charge();
        }
        // It is still where it was, seen from the end.
        let at = history.events.len().checked_sub(behind as usize);
        match at.map(|at| history.events.get(at)) {
            None => Next::Missed,
            Some(Some(kept)) => {
                let is_charged = kept.charged.is_some() || history.connection.is_none();
                let chunk = kept.charged.as_ref().unwrap_or(&kept.chunk);
                self.next += u64::from(is_charged);
                Next::Event(chunk.clone(), is_charged)
            }
            Some(None) if history.is_over || self.is_draining => Next::Complete,
            Some(None) => Next::Nothing,
        }
    }

    /// Queues what there is room for, as much as the framing leaves.
    pub(crate) fn flush(&mut self, io: &mut Io<'_>, framing: &mut ReplyFraming) -> Fed {
        loop {
            if framing.left() == 0 {
                return Fed::Complete;
            }
            if io.common_is_full(OUTPUT_BYTES_MAX) {
                return Fed::Later;
            }
            if !self.first.is_empty() {
                match self.flush_first(io, framing) {
                    true => continue,
                    false => return Fed::NoMemory,
                }
            }
            match self.take() {
                Next::Event(_, false) => return Fed::NoMemory,
                Next::Event(chunk, true) => match *framing {
                    ReplyFraming::Chunked => io.write_common(&chunk),
                    _ => {
                        let mut event = content(&chunk);
                        event.truncate(usize::try_from(framing.left()).unwrap_or(usize::MAX));
                        framing.queued(event.len() as u64);
                        io.write_common(&event);
                    }
                },
                Next::Nothing => return Fed::Later,
                Next::Complete => return Fed::Complete,
                Next::Missed => return Fed::Aborted,
            }
        }
    }

    /// The next piece, without chunks, or what has come instead.
    #[cfg(feature = "http2")]
    pub(crate) fn take_piece(
        &mut self,
        io: &mut Io<'_>,
        framing: &ReplyFraming,
    ) -> Result<Bytes, Fed> {
        if framing.left() == 0 {
            return Err(Fed::Complete);
        }
        if io.common_is_full(OUTPUT_BYTES_MAX) {
            return Err(Fed::Later);
        }
        if !self.first.is_empty() {
            if !self.charge_first(io) {
                return Err(Fed::NoMemory);
            }
            let bytes = self.first.len().min(FIRST_PIECE_BYTES);
            return Ok(self.first.split_to(bytes));
        }
        match self.take() {
            Next::Event(_, false) => Err(Fed::NoMemory),
            Next::Event(chunk, true) => Ok(content(&chunk)),
            Next::Nothing => Err(Fed::Later),
            Next::Complete => Err(Fed::Complete),
            Next::Missed => Err(Fed::Aborted),
        }
    }

    /// Charges what comes first; false: there is no memory for it.
    fn charge_first(&mut self, io: &mut Io<'_>) -> bool {
        if !self.is_first_charged {
            match io.hold(std::mem::take(&mut self.first)) {
                Ok(first) => (self.first, self.is_first_charged) = (first, true),
                Err(first) => {
                    self.first = first;
                    return false;
                }
            }
        }
        true
    }

    /// Queues some of what comes first; false: there is no memory for it.
    fn flush_first(&mut self, io: &mut Io<'_>, framing: &mut ReplyFraming) -> bool {
        if !self.charge_first(io) {
            return false;
        }
        let piece = self.first.slice(..self.first.len().min(FIRST_PIECE_BYTES));
        if write_piece(io, &piece, framing).is_err() {
            return false;
        }
        self.first = self.first.slice(piece.len()..);
        true
    }

    /// Without a connection: some of the next event, or what has come instead; blocks until there
    /// is something.
    pub(crate) fn read(&mut self, room: &mut [u8]) -> Result<usize, Fed> {
        while self.first.is_empty() {
            match self.take() {
                Next::Event(chunk, _) => self.first = content(&chunk),
                Next::Nothing => self.wait(),
                Next::Complete => return Err(Fed::Complete),
                Next::Missed => return Err(Fed::Aborted),
            }
        }
        let bytes = self.first.len().min(room.len());
        room[..bytes].copy_from_slice(&self.first.split_to(bytes));
        Ok(bytes)
    }

    /// Blocks until there is something.
    fn wait(&self) {
        let Shared {
            history, changed, ..
        } = &*self.shared;
        let has_none = |history: &mut History| history.next == self.next && !history.is_over;
        drop(changed.wait_while(history.lock(), has_none));
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Some(place) = self.place.map(|place| place.get() - 1) {
            let mut table = self.shared.table.lock();
            table.places[place as usize] = None;
            table.free.push(place);
            drop(table);
            self.shared.history.lock().left();
        }
    }
}
