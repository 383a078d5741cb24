//! What an outbox holds, and what of it is charged (O3): the part of `outbox.rs` under its lock.

use std::collections::VecDeque;
use std::sync::Arc;

use flatpath_structures::pool::Charge;

use super::{Flushed, Piece};
use crate::error::NoRoom;
use crate::limits::{PIECE_COPY_BYTES_MAX, UNCHARGED_BYTES};
use crate::memory::held::PIECE_BYTES;
use crate::protocol::connection_handle::ConnectionHandle;
use crate::protocol::discard::{discard_last, guarded};

pub(super) struct State<T, E> {
    pub(super) queue: VecDeque<T>,
    pub(super) queued_bytes: usize,
    /// What was in the output when the receiver last looked.
    pub(super) written_bytes: u32,
    /// What the short pieces in the queue are charged as: all of it, or nothing yet (O3).
    pub(super) short_bytes: u32,
    pub(super) charge: Option<Charge>,
    pub(super) connection: Option<ConnectionHandle>,
    /// In a box: most connections that rest have none of it.
    seldom: Option<Box<Seldom<E>>>,
    /// The receiver has found nothing, and is to be called (O4).
    pub(super) awaits: bool,
    /// A piece was refused: its sender is to be notified (O5).
    pub(super) was_full: bool,
    /// Threads that wait for room, or for a piece.
    pub(super) threads_waiting: u16,
    /// What was queued before there was a connection is charged.
    pub(super) is_charged: bool,
    /// Nothing more is taken.
    pub(super) is_closed: bool,
    /// Nothing more is sent.
    pub(super) is_over: bool,
    pub(super) is_draining: bool,
}

struct Seldom<E> {
    end: Option<E>,
    on_event: Option<Arc<OnEvent>>,
    /// What a sender found no memory for.
    wanted_bytes: usize,
}

impl<T, E> Default for State<T, E> {
    fn default() -> Self {
        Self {
            queue: VecDeque::new(),
            queued_bytes: 0,
            written_bytes: 0,
            short_bytes: 0,
            charge: None,
            connection: None,
            seldom: None,
            awaits: false,
            was_full: false,
            threads_waiting: 0,
            is_charged: false,
            is_closed: false,
            is_over: false,
            is_draining: false,
        }
    }
}

/// A function of the sender's.
pub(super) struct OnEvent(pub(super) Box<dyn Fn() + Send + Sync>);

impl OnEvent {
    /// A panic ends here: it may be called by a drop, within another panic.
    pub(super) fn call(self: Arc<Self>) {
        if crate::contain(|| (self.0)()).is_none() {
            log::error!("the function of a sender panicked");
        }
        discard_last(self);
    }
}

pub(super) fn small(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

/// Whether a piece is shared, and charged by itself; others are copied (O3).
pub(super) fn is_long(piece: &impl Piece) -> bool {
    piece.payload_bytes() > PIECE_COPY_BYTES_MAX
}

/// What a piece is charged as.
pub(super) fn cost(bytes: usize) -> usize {
    (bytes + PIECE_BYTES).next_multiple_of(64)
}

impl<T: Piece, E: Clone> State<T, E> {
    pub(super) fn waiting_bytes(&self) -> usize {
        self.queued_bytes + self.written_bytes as usize
    }

    /// Whether as much waits as may.
    pub(super) fn is_full(&self, bytes_max: usize) -> bool {
        self.waiting_bytes() >= bytes_max
    }

    /// Whether the connection may have so much more: one piece, or its fair part (O3).
    fn is_fair(&self, connection: &ConnectionHandle, cost: usize) -> bool {
        self.waiting_bytes() == 0 || !connection.is_beyond_fair_part(cost)
    }

    fn seldom(&mut self) -> &mut Seldom<E> {
        self.seldom.get_or_insert_with(|| {
            Box::new(Seldom {
                end: None,
                on_event: None,
                wanted_bytes: 0,
            })
        })
    }

    /// Why nothing is taken any more.
    pub(super) fn end(&self) -> Option<&E> {
        self.seldom.as_ref()?.end.as_ref()
    }

    /// The first reason counts (O6).
    pub(super) fn ends(&mut self, reason: E) {
        self.seldom().end.get_or_insert(reason); // OURS: a reason is plain data.
    }

    /// What a flush has come to that left nothing. Under the lock, as more may come right after.
    pub(super) fn all_flushed(&self) -> Flushed {
        match self.end() {
            Some(_) => Flushed::Ended,
            None => Flushed::All,
        }
    }

    pub(super) fn on_event(&self) -> Option<Arc<OnEvent>> {
        self.seldom.as_ref()?.on_event.clone()
    }

    /// The function before.
    pub(super) fn set_on_event(&mut self, act: Option<Arc<OnEvent>>) -> Option<Arc<OnEvent>> {
        if act.is_none() && self.seldom.is_none() {
            return None;
        }
        std::mem::replace(&mut self.seldom().on_event, act)
    }

    /// A sender found no memory for so many bytes.
    pub(super) fn wants(&mut self, bytes: usize) {
        if bytes > 0 || self.seldom.is_some() {
            self.seldom().wanted_bytes = bytes;
        }
    }

    /// Charges a piece, or guards it, so that it can be dropped anywhere.
    pub(super) fn take_in(&mut self, piece: &mut T) -> Result<(), NoRoom> {
        let (bytes, is_long) = (piece.bytes(), is_long(piece));
        let payload = piece.payload();
        let Some(connection) = self.connection.clone().filter(|_| self.is_charged) else {
            self.guard(piece);
            return Ok(());
        };
        let cost = cost(bytes);
        if !self.is_fair(&connection, cost) {
            return Err(NoRoom);
        }
        if is_long {
            let held = connection.hold(std::mem::take(payload));
            let is_held = held.is_ok();
            *payload = held.unwrap_or_else(|back| back);
            return if is_held { Ok(()) } else { Err(NoRoom) };
        }
        let short_bytes = self.short_bytes.saturating_add(small(cost));
        if self.waiting_bytes() + bytes > UNCHARGED_BYTES {
            self.charge_short(&connection, short_bytes)?;
        }
        self.guard(piece);
        Ok(())
    }

    /// Makes a piece one that can be dropped anywhere, and counts it if it is short.
    pub(super) fn guard(&mut self, piece: &mut T) {
        let payload = piece.payload();
        *payload = guarded(std::mem::take(payload));
        if !is_long(piece) {
            self.short_bytes += small(cost(piece.bytes()));
        }
    }

    /// A charge for a piece of about so many bytes; none where none is due.
    pub(super) fn admit(&self, bytes: usize) -> Result<Option<Charge>, NoRoom> {
        let Some(connection) = self.connection.as_ref().filter(|_| self.is_charged) else {
            return Ok(None);
        };
        if self.waiting_bytes() + bytes <= UNCHARGED_BYTES {
            return Ok(None);
        }
        let cost = cost(bytes);
        if !self.is_fair(connection, cost) {
            return Err(NoRoom);
        }
        connection.charge(cost).map(Some).ok_or(NoRoom)
    }

    /// Has the short pieces be charged as so much.
    fn charge_short(&mut self, connection: &ConnectionHandle, bytes: u32) -> Result<(), NoRoom> {
        let charged = self.charge.as_ref().map_or(0, Charge::bytes);
        let missing = (bytes as usize).saturating_sub(charged);
        if missing == 0 {
            return Ok(());
        }
        self.add_charge(Some(connection.charge(missing).ok_or(NoRoom)?));
        Ok(())
    }

    pub(super) fn add_charge(&mut self, more: Option<Charge>) {
        match (&mut self.charge, more) {
            (Some(charge), Some(more)) => charge.merge(more),
            (None, more) => self.charge = more,
            (Some(_), None) => {}
        }
    }

    /// Charges what was queued before there was a connection.
    pub(super) fn charge_queued(&mut self) -> Result<(), NoRoom> {
        let Some(connection) = self.connection.clone().filter(|_| !self.is_charged) else {
            return Ok(());
        };
        let is_long = |piece: &&mut T| is_long(*piece);
        let mut held = Vec::new();
        for piece in self.queue.iter_mut().filter(is_long) {
            // All of them, or none.
            let one = connection.hold(piece.payload().clone());
            held.push(one.map_err(|_| NoRoom)?);
        }
        if self.waiting_bytes() > UNCHARGED_BYTES {
            self.charge_short(&connection, self.short_bytes)?;
        }
        for (piece, held) in self.queue.iter_mut().filter(is_long).zip(held) {
            *piece.payload() = held;
        }
        self.is_charged = true;
        Ok(())
    }

    /// Whether a sender that was refused would find room now.
    pub(super) fn has_room(&self, bytes_max: usize) -> bool {
        self.waiting_bytes() <= bytes_max / 2 && self.has_memory()
    }

    fn has_memory(&self) -> bool {
        let wanted = self.seldom.as_ref().map_or(0, |seldom| seldom.wanted_bytes);
        let Some(connection) = self.connection.as_ref().filter(|_| wanted > 0) else {
            return true;
        };
        self.is_fair(connection, wanted) && connection.charge(wanted).is_some()
    }
}
