//! A producer's connection: where it is in a message, what it keeps, and which consumer it has.
//!
//! ```text
//! between messages ─length─► wants room ─reserved─► takes payload ─last byte─► delivers ─► between
//!                               ▲ waits                                          │ consumer died
//!                               └────────── wants room anew, message kept ◄──────┘
//! ```
//!
//! Invariants
//! - S1: payload is kept only while room for the whole message is reserved, or was reserved with a
//!   consumer that has died.
//! - S2: a reservation, a ticket and a position among the unassigned are given back once: when they
//!   turn into the next state, or in `leave`.

use std::sync::Arc;

use flatpath::memory::Fragment;
use flatpath::{ConnectionHandle, Pages};
use flatpath_messages::framing::Decoder;
use flatpath_pairing::Endpoint;

use crate::consumer::{Consumer, Ended};
use crate::consumers::{Assignment, ConsumerSet};
use crate::pairing::{Pairings, Registered, Seeker};
use crate::window::{Room, Ticket};

/// State of one connection. Small while idle: no fragments, no message.
#[derive(Debug, Default)]
pub struct Session {
    pub(crate) decoder: Decoder,
    /// Numbered when the first byte comes.
    pub(crate) producer: Option<u32>,
    pub(crate) message: Option<Message>,
    state: State,
    /// With a token of its own: the consumer it seeks.
    seeks: Option<(Arc<Endpoint<Seeker>>, Registered)>,
}

/// A message on its way.
#[derive(Debug)]
pub(crate) struct Message {
    pub(crate) bytes: u32,
    /// Fragments it may take.
    pub(crate) need: u32,
    pub(crate) fragments: Vec<Fragment>,
    /// Its last byte is there.
    pub(crate) whole: bool,
}

/// How far a producer has come on its way to room.
#[derive(Debug, Default)]
enum State {
    #[default]
    New,
    /// No consumer is attached: a position in the set's queue.
    Unassigned(u64),
    /// Assigned to a consumer, and nothing reserved.
    Assigned(Arc<Consumer>),
    /// In the queue of a consumer.
    Waiting(Arc<Consumer>, Ticket),
    /// With room for the message.
    Reserved(Arc<Consumer>, u32),
}

impl Session {
    /// A message of this many bytes begins, which takes at most `need` fragments.
    #[inline]
    pub(crate) fn begin(&mut self, bytes: u32, need: u32) {
        self.message = Some(Message {
            bytes,
            need,
            fragments: Vec::new(),
            whole: false,
        });
    }

    /// Copies a chunk after the one before it, if it fits there. See [`Fragment::try_append`].
    #[inline]
    pub(crate) fn gather(&mut self, chunk: &[u8]) -> bool {
        let message = self.message.as_mut();
        let last = message.and_then(|message| message.fragments.last_mut());
        last.is_some_and(|last| last.try_append(chunk))
    }

    /// Retains a chunk of the message where it lies.
    #[inline]
    pub(crate) fn retain(&mut self, fragment: Fragment) {
        let message = self.message.as_mut().expect("payload follows a length");
        message.fragments.push(fragment);
        debug_assert!(
            message.fragments.len() <= message.need as usize,
            "pages of a message are half full on average"
        );
    }

    /// Where to receive the next bytes. Those of a message under way are not cut small: room was
    /// reserved for `need` fragments.
    pub(crate) fn next_pages(&self) -> Pages {
        match &self.message {
            Some(message) if !message.whole && !message.fragments.is_empty() => Pages::Listener,
            Some(_) | None => Pages::Shared,
        }
    }

    pub(crate) fn is_between_messages(&self) -> bool {
        self.message.is_none() && self.decoder.is_between_messages()
    }

    /// Whether a consumer is there for it.
    pub(crate) fn has_consumer(&self) -> bool {
        match &self.state {
            State::New | State::Unassigned(_) => false,
            State::Assigned(_) | State::Waiting(..) | State::Reserved(..) => true,
        }
    }

    /// Reserves room for the message, if there is one. False: `waker` is called when its turn has
    /// come.
    #[inline]
    pub(crate) fn has_room(&mut self, consumers: &ConsumerSet, waker: &ConnectionHandle) -> bool {
        let Some(message) = &self.message else {
            return true;
        };
        let need = match message.whole {
            true => u32::try_from(message.fragments.len()).expect("a window has few"),
            false => message.need,
        };
        // Bounded: each round ends a consumer's part in it, and consumers are few.
        loop {
            let (state, is_blocked) = match std::mem::take(&mut self.state) {
                State::Reserved(consumer, reserved) => {
                    self.state = State::Reserved(consumer, reserved);
                    return true;
                }
                State::Unassigned(position) => {
                    consumers.leave(position);
                    (State::New, false)
                }
                State::New => self.assign(consumers, waker),
                State::Assigned(consumer) => match consumer.reserve(need, || waker.clone()) {
                    Ok(Room::Reserved) => (State::Reserved(consumer, need), false),
                    Ok(Room::Wait(ticket)) => (State::Waiting(consumer, ticket), true),
                    Err(Ended) => (State::New, false),
                },
                State::Waiting(consumer, ticket) => match consumer.claim(ticket) {
                    Ok(Some(granted)) => (State::Reserved(consumer, granted), false),
                    Ok(None) => (State::Waiting(consumer, ticket), true),
                    Err(Ended) => (State::New, false),
                },
            };
            self.state = state;
            if is_blocked {
                return false;
            }
        }
    }

    /// A consumer for a producer without one; else true, and the waker is called when one comes.
    fn assign(&self, consumers: &ConsumerSet, waker: &ConnectionHandle) -> (State, bool) {
        if let Some((seeker, _)) = &self.seeks {
            let found = seeker.consumer();
            return found.map_or((State::New, true), |found| (State::Assigned(found), false));
        }
        match consumers.assign(|| waker.clone()) {
            Assignment::To(consumer) => (State::Assigned(consumer), false),
            Assignment::Unassigned(position) => (State::Unassigned(position), true),
        }
    }

    /// The producer names a token. False: it may not, or another producer has it.
    pub(crate) fn seek(
        &mut self,
        token: u64,
        pairings: &Pairings,
        waker: ConnectionHandle,
    ) -> bool {
        let is_first = self.seeks.is_none() && matches!(self.state, State::New);
        if is_first && self.message.is_none() {
            self.seeks = pairings.seek(token, waker);
        }
        is_first && self.seeks.is_some()
    }

    /// Delivers a whole message to the consumer. `Err`: that one died; the message is kept, and
    /// wants room with the next.
    #[inline]
    pub(crate) fn deliver(&mut self) -> Result<Arc<Consumer>, Ended> {
        let producer = self.producer.expect("numbered with its first byte");
        let state = std::mem::take(&mut self.state);
        let (Some(message), State::Reserved(consumer, reserved)) = (&self.message, state) else {
            debug_assert!(false, "S1: only a message with room is delivered");
            return Err(Ended);
        };
        consumer.deliver(&message.fragments, message.bytes, producer, reserved)?;
        // The consumer's tokens hold the pages now.
        self.message = None;
        self.state = State::Assigned(Arc::clone(&consumer));
        Ok(consumer)
    }

    /// The connection is closed. Whether a message was cut off.
    pub(crate) fn leave(&mut self, consumers: &ConsumerSet) -> bool {
        self.seeks = None;
        match std::mem::take(&mut self.state) {
            State::New | State::Assigned(_) => {}
            State::Unassigned(position) => consumers.leave(position),
            State::Waiting(consumer, ticket) => consumer.give_up(ticket),
            State::Reserved(consumer, reserved) => consumer.release(reserved),
        }
        self.message.take().is_some() || !self.decoder.is_between_messages()
    }
}
