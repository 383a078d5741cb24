//! Outbox: what threads of a program send to one client, until its connection takes it.
//!
//! The queue of a response body that is fed from elsewhere, of a stream of events, of a WebSocket.
//! Any thread pushes; the network thread of the connection moves what there is to the output while
//! that has room ([`Outbox::flush`]), and is called when there is something to do.
//!
//! | may run beside                         | push, end of the sender | flush, pop, close |
//! |----------------------------------------|-------------------------|-------------------|
//! | `push`, `try_push`, `end`, `on_event`  | yes                     | yes               |
//! | `flush`, `pop`, `drain`, `close`       | yes                     | no: one receiver  |
//!
//! What a sender gets that finds no room, whichever room it is, is the program's choice: it waits
//! ([`Outbox::push`]), drops what is new, or ends the client ([`Outbox::try_push`]).
//!
//! Invariants
//! - O1: a piece is taken while less than `bytes_max` wait, in the queue and in the output. So a
//!   client that does not read holds at most that and one piece.
//! - O2: on a network thread a push never waits: it would wait for itself, and all connections of
//!   the thread with it. It returns "full".
//! - O3: once the outbox has a connection, all that is queued is charged to it as bulk memory,
//!   pieces above `PIECE_COPY_BYTES_MAX` for as long as they are referenced (`memory/held.rs`),
//!   shorter ones while they are queued. Only the first `UNCHARGED_BYTES` are not: a client that
//!   reads gets its short messages when memory is used up, too. Where there is no memory the outbox
//!   is full. Under pressure a connection gets its fair part (`Pools::fair_bytes`), or one piece.
//! - O4: a receiver that found nothing is called for the piece or the end that comes next; one that
//!   left something is called by its output (`Io::notify_output_below`) or waits for memory.
//! - O5: a sender that found the outbox full is notified: when it is half empty and the piece can
//!   be charged. Until then the receiver looks again, as its output drains, or in the order of all
//!   that waits for memory.
//! - O6: the first reason of the end counts; nothing is taken after it.
//! - O7: code of a program and drops of pieces run outside of the lock.
//!
//! Cost: a lock for a push, two for a flush; a charge is two additions.

mod state;

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use flatpath_structures::lock::{Condition, Guard, Lock};
use flatpath_structures::pool::Charge;

use crate::error::NoRoom;
use crate::memory::held::{Backing, held};
use crate::protocol::connection_handle::ConnectionHandle;
use crate::protocol::discard::{discard_last, on_network_thread};
use crate::protocol::io::{Io, low_mark};
use state::{OnEvent, State, cost, is_long, small};

/// A piece of an outbox.
pub trait Piece: Send {
    /// What it carries. The outbox puts the same bytes in its place, charged.
    fn payload(&mut self) -> &mut Bytes;

    /// Its length.
    fn payload_bytes(&self) -> usize;

    /// Bytes that are sent, with a head of the piece's own.
    fn bytes(&self) -> usize {
        self.payload_bytes()
    }
}

impl Piece for Bytes {
    fn payload(&mut self) -> &mut Bytes {
        self
    }

    fn payload_bytes(&self) -> usize {
        self.len()
    }
}

/// Why a piece was not taken; it is given back.
#[derive(Debug)]
// Exhaustive: a piece is refused for now or for good.
pub enum Refused<T> {
    /// As much waits as may, or there is no memory for more.
    Full(T),
    /// Nothing more is taken.
    Closed(T),
}

/// Room for a piece that is still to be made.
#[must_use = "dropped, it is given back"]
pub struct Admitted(Option<Charge>);

/// How far a flush came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
// Exhaustive: a protocol has to act on each.
pub enum Flushed {
    /// All that was queued is in the output.
    All,
    /// The same, and the sender has ended: nothing comes after it.
    Ended,
    /// As much is in the output as may. The protocol is called when less is.
    Full,
    /// There is no memory for the next piece, in the queue or with its sender: stall with
    /// [`Stall::Memory`](crate::Stall::Memory), and flush again.
    NoMemory,
    /// The writer wants no more.
    Stopped,
}

/// Where pieces go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Output {
    /// To the output of the connection, which has nothing else.
    Own,
    Elsewhere,
}

impl Output {
    /// Bytes of this outbox's pieces that wait there.
    fn bytes(self, io: &Io<'_>) -> usize {
        match self {
            Output::Own => io.queued_bytes(),
            Output::Elsewhere => 0,
        }
    }
}

/// See the module. `T` is a piece, `E` the reason of the end.
pub struct Outbox<T, E> {
    state: Lock<State<T, E>>,
    /// Room, a piece, or the end.
    changed: Condition,
    bytes_max: usize,
}

flatpath_structures::opaque_debug! {
    impl[] Admitted as "Admitted";
    impl[T, E] Outbox<T, E> as "Outbox";
}

impl<T: Piece, E: Clone> Outbox<T, E> {
    /// An empty outbox for what waits for one client, `bytes_max` at most (O1).
    pub fn new(bytes_max: usize) -> Self {
        Self {
            state: Lock::default(),
            changed: Condition::new(),
            bytes_max: bytes_max.max(1),
        }
    }

    /// What may wait at most, in bytes (O1).
    pub fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    fn lock(&self) -> Guard<'_, State<T, E>> {
        self.state.lock()
    }

    /// Adds a piece; waits while there is no room, but not on a network thread (O2).
    ///
    /// # Errors
    /// See [`Refused`].
    pub fn push(&self, mut piece: T) -> Result<(), Refused<T>> {
        loop {
            piece = match self.try_push(piece) {
                Err(Refused::Full(piece)) if !on_network_thread() => piece,
                other => return other,
            };
            self.await_room();
        }
    }

    fn await_room(&self) {
        self.wait_while(|state| state.was_full && !state.is_closed);
    }

    fn wait_while(&self, waits: impl Fn(&mut State<T, E>) -> bool) {
        let mut state = self.lock();
        state.threads_waiting += 1;
        state = self.changed.wait_while(state, waits);
        state.threads_waiting -= 1;
    }

    /// Wakes the threads that wait, if any does: it is a system call. `any`: as of the lock that
    /// the caller has given back.
    fn wake_threads(&self, any: bool) {
        if any {
            self.changed.notify_all();
        }
    }

    /// Adds a piece if there is room for it.
    ///
    /// # Errors
    /// See [`Refused`].
    pub fn try_push(&self, mut piece: T) -> Result<(), Refused<T>> {
        let mut state = self.lock();
        if state.is_closed {
            return Err(Refused::Closed(piece));
        }
        if state.is_full(self.bytes_max) {
            self.refuse(state, 0);
            return Err(Refused::Full(piece));
        }
        if state.take_in(&mut piece).is_err() {
            self.refuse(state, cost(piece.bytes()));
            return Err(Refused::Full(piece));
        }
        self.add(state, piece);
        Ok(())
    }

    /// Adds the last piece, whether there is room for it or not; nothing is taken after it. False:
    /// nothing is taken any more.
    pub fn push_last(&self, mut piece: T) -> bool {
        let mut state = self.lock();
        if state.is_closed {
            return false;
        }
        state.is_closed = true;
        state.guard(&mut piece);
        let any = state.threads_waiting > 0;
        self.add(state, piece);
        self.wake_threads(any);
        true
    }

    /// Room for a piece of about so many bytes that is still to be made; waits for it, but not on a
    /// network thread.
    ///
    /// # Errors
    /// See [`Refused`].
    pub fn admit(&self, bytes: usize) -> Result<Admitted, Refused<()>> {
        loop {
            match self.try_admit(bytes) {
                Err(Refused::Full(())) if !on_network_thread() => self.await_room(),
                other => return other,
            }
        }
    }

    /// The same without waiting.
    ///
    /// # Errors
    /// See [`Refused`].
    pub fn try_admit(&self, bytes: usize) -> Result<Admitted, Refused<()>> {
        let state = self.lock();
        if state.is_closed {
            return Err(Refused::Closed(()));
        }
        if state.is_full(self.bytes_max) {
            self.refuse(state, 0);
            return Err(Refused::Full(()));
        }
        match state.admit(bytes) {
            Ok(charge) => Ok(Admitted(charge)),
            Err(NoRoom) => {
                self.refuse(state, cost(bytes));
                Err(Refused::Full(()))
            }
        }
    }

    /// Whether a push of about so many bytes would not be refused now, but for other senders.
    pub fn has_room_for(&self, bytes: usize) -> bool {
        let state = self.lock();
        state.is_closed || !state.is_full(self.bytes_max) && state.admit(bytes).is_ok()
    }

    /// Adds a piece that was admitted.
    ///
    /// # Errors
    /// Gives the piece back when nothing is taken any more.
    pub fn push_admitted(&self, mut piece: T, admitted: Admitted) -> Result<(), T> {
        let mut state = self.lock();
        if state.is_closed {
            return Err(piece);
        }
        match admitted.0 {
            Some(charge) if is_long(&piece) => {
                let payload = piece.payload();
                *payload = held(std::mem::take(payload), Backing::Own(charge));
            }
            charge => {
                state.guard(&mut piece);
                state.add_charge(charge.map(|mut charge| {
                    charge.shrink_to(cost(piece.bytes()));
                    charge
                }));
            }
        }
        self.add(state, piece);
        Ok(())
    }

    fn add(&self, mut state: Guard<'_, State<T, E>>, piece: T) {
        state.queued_bytes += piece.bytes();
        state.queue.push_back(piece);
        self.wake_receiver(state);
    }

    /// The receiver is to notify the sender (O5).
    fn refuse(&self, mut state: Guard<'_, State<T, E>>, wanted_bytes: usize) {
        state.wants(wanted_bytes);
        if !std::mem::replace(&mut state.was_full, true) {
            self.wake_receiver(state);
        }
    }

    fn wake_receiver(&self, mut state: Guard<'_, State<T, E>>) {
        if !std::mem::take(&mut state.awaits) {
            return;
        }
        let (connection, any) = (state.connection.clone(), state.threads_waiting > 0);
        drop(state);
        match connection {
            Some(connection) => connection.wake(),
            None => self.wake_threads(any),
        }
    }

    /// Tells the sender, in whichever way it waits.
    fn notify_sender(&self, state: Guard<'_, State<T, E>>) {
        let (on_event, any) = (state.on_event(), state.threads_waiting > 0);
        drop(state);
        self.wake_threads(any);
        if let Some(on_event) = on_event {
            on_event.call();
        }
    }

    /// The sender ends what it sends, for this reason; what is queued is sent before.
    pub fn end(&self, reason: E) {
        let mut state = self.lock();
        state.is_closed = true;
        if state.end().is_none() {
            state.ends(reason);
            self.wake_receiver(state);
        }
    }

    /// The first reason of the end.
    pub fn ended(&self) -> Option<E> {
        self.lock().end().cloned()
    }

    /// Whether nothing more is taken.
    pub fn is_closed(&self) -> bool {
        self.lock().is_closed
    }

    /// Whether nothing that is sent reaches the client.
    pub fn is_over(&self) -> bool {
        self.lock().is_over
    }

    /// Whether the server drains.
    pub fn is_draining(&self) -> bool {
        self.lock().is_draining
    }

    /// Bytes that wait for the client, in the queue and in its connection's output as of the last
    /// look.
    pub fn waiting_bytes(&self) -> usize {
        self.lock().waiting_bytes()
    }

    /// Calls a function when the client is gone, the server drains, or there is room again after a
    /// refusal; at once if it is too late for one of the first two. The latest function counts.
    pub fn on_event(&self, act: impl Fn() + Send + Sync + 'static) {
        let act = Arc::new(OnEvent(Box::new(act)));
        let mut state = self.lock();
        let is_late = state.is_over || state.is_draining;
        let before = match state.is_over {
            // Nothing else will happen.
            true => None,
            false => state.set_on_event(Some(Arc::clone(&act))),
        };
        drop(state);
        if let Some(before) = before {
            discard_last(before);
        }
        if is_late {
            act.call();
        }
    }

    /// From now on this connection takes from it, and is charged for what is queued.
    ///
    /// # Errors
    /// There is no memory for that. The program has made it before there was a connection, so it is
    /// there: it is to be dropped, as any reply is that is too long for what memory there is. Kept,
    /// it is charged when there is memory.
    pub fn attach(&self, connection: ConnectionHandle) -> Result<(), NoRoom> {
        let mut state = self.lock();
        state.connection = Some(connection); // OURS: a name.
        state.charge_queued()
    }

    /// The receiver will flush without being called: it is about to.
    pub fn receiver_looks(&self) {
        self.lock().awaits = false;
    }

    /// The server drains. With a reason, nothing is taken from now on.
    pub fn drain(&self, end: Option<E>) {
        let mut state = self.lock();
        if std::mem::replace(&mut state.is_draining, true) {
            return;
        }
        if let Some(end) = end {
            state.is_closed = true;
            state.ends(end);
        }
        self.notify_sender(state);
    }

    /// Takes the oldest piece: for a receiver without a connection.
    pub fn pop(&self) -> Option<T> {
        let mut state = self.lock();
        let piece = state.queue.pop_front();
        match &piece {
            Some(piece) => state.queued_bytes -= piece.bytes(),
            // The end has called the receiver, which looked for it before.
            None => state.awaits = state.end().is_none(),
        }
        if state.was_full && state.has_room(self.bytes_max) {
            state.was_full = false;
            self.notify_sender(state);
        }
        piece
    }

    /// Waits until a receiver without a connection is to look again.
    pub fn wait(&self) {
        self.wait_while(|state| state.awaits);
    }

    /// Moves pieces to the output for as long as that has room, and decides what is next (O4, O5).
    /// `write` queues one, as a whole or not at all, by [`Io::write_piece`]; false: it was the last
    /// that is wanted. The pieces are out of the queue meanwhile: the lock is not held while they
    /// are written and dropped.
    pub fn flush(
        &self,
        io: &mut Io<'_>,
        write: impl FnMut(&mut Io<'_>, &T) -> Result<bool, NoRoom>,
    ) -> Flushed {
        self.flush_to(Output::Own, io, write)
    }

    /// The same where the client has other output of the connection, too, and the pieces go
    /// elsewhere first: one at a time, when nothing of this outbox waits there.
    pub fn take(&self, io: &mut Io<'_>, mut write: impl FnMut(&T)) -> Flushed {
        self.flush_to(Output::Elsewhere, io, |_, piece| {
            write(piece);
            Ok(false)
        })
    }

    fn flush_to(
        &self,
        output: Output,
        io: &mut Io<'_>,
        mut write: impl FnMut(&mut Io<'_>, &T) -> Result<bool, NoRoom>,
    ) -> Flushed {
        let mut state = self.lock();
        state.awaits = false;
        let written_bytes = output.bytes(io);
        if state.queue.is_empty() && !state.was_full && written_bytes <= self.low_bytes() {
            // The common case, for all that brings nothing.
            state.awaits = true;
            state.written_bytes = small(written_bytes);
            return state.all_flushed();
        }
        if state.charge_queued().is_err() {
            return Flushed::NoMemory;
        }
        let mut pieces = std::mem::take(&mut state.queue);
        drop(state);
        let (mut bytes, mut short_bytes, mut flushed) = (0, 0, Flushed::All);
        while let Some(piece) = pieces.front() {
            if output == Output::Own && io.outgoing_is_full(self.bytes_max) {
                flushed = Flushed::Full;
                break;
            }
            if io.bin_is_full() {
                flushed = Flushed::NoMemory;
                break;
            }
            let Ok(goes_on) = write(io, piece) else {
                flushed = Flushed::NoMemory;
                break;
            };
            bytes += piece.bytes();
            if !is_long(piece) {
                short_bytes += small(cost(piece.bytes()));
            }
            pieces.pop_front();
            if !goes_on {
                flushed = Flushed::Stopped;
                break;
            }
        }
        self.flushed((io, output), pieces, (bytes, short_bytes), flushed)
    }

    /// Output at which the receiver looks again, in bytes.
    fn low_bytes(&self) -> usize {
        low_mark(self.bytes_max)
    }

    /// Puts back what is left of a flush.
    fn flushed(
        &self,
        (io, output): (&mut Io<'_>, Output),
        mut left: VecDeque<T>,
        (bytes, short_bytes): (usize, u32),
        mut flushed: Flushed,
    ) -> Flushed {
        let mut state = self.lock();
        if state.is_over {
            // It has ended meanwhile, and counts nothing.
            drop(state);
            drop(left);
            return flushed;
        }
        state.queued_bytes -= bytes;
        state.short_bytes -= short_bytes;
        let short_bytes = state.short_bytes as usize;
        let surplus = match &mut state.charge {
            Some(charge) if short_bytes > 0 => {
                charge.shrink_to(short_bytes);
                None
            }
            charge => charge.take(),
        };
        // What was sent meanwhile comes after it; of neither is anything dropped.
        left.append(&mut state.queue);
        state.queue = match left.is_empty() {
            // It may rest for long.
            true => VecDeque::new(),
            false => left,
        };
        let written_bytes = output.bytes(io);
        state.written_bytes = small(written_bytes);
        state.awaits = state.queue.is_empty();
        if flushed == Flushed::All {
            match state.queue.is_empty() {
                true => flushed = state.all_flushed(),
                // They came while the others were written.
                false => io.handle().wake(),
            }
        }
        if flushed == Flushed::Full || written_bytes > self.low_bytes() {
            io.notify_output_below(self.low_bytes());
        }
        if state.was_full && (flushed != Flushed::Stopped || output == Output::Elsewhere) {
            if state.has_room(self.bytes_max) {
                state.was_full = false;
                self.notify_sender(state);
            } else if written_bytes == 0 {
                if flushed == Flushed::All {
                    // Nothing is on its way that could make room.
                    flushed = Flushed::NoMemory;
                }
            } else if written_bytes <= self.low_bytes() {
                // It is memory that misses: some comes back as the client reads.
                io.notify_output_below(0);
            }
        }
        drop(surplus);
        flushed
    }

    /// Nothing more is sent, for this reason if there was none before: the connection has ended, or
    /// will without another word.
    pub fn close(&self, reason: Option<E>) {
        let mut state = self.lock();
        if let Some(reason) = reason {
            state.ends(reason);
        }
        (state.is_closed, state.is_over) = (true, true);
        let pieces = std::mem::take(&mut state.queue);
        let charge = state.charge.take();
        let connection = state.connection.take(); // OURS: a name.
        (state.queued_bytes, state.written_bytes, state.short_bytes) = (0, 0, 0);
        // The last event.
        let (on_event, any) = (state.set_on_event(None), state.threads_waiting > 0);
        drop(state);
        self.wake_threads(any);
        if let Some(on_event) = on_event {
            on_event.call();
        }
        drop((pieces, charge, connection));
    }
}
