//! A producer's connection: where it is in a message, what it keeps, and where it is seated.
//!
//! ```text
//! between messages ─length─► wants room ─reserved─► takes payload ─last byte─► delivers ─► between
//!                               ▲ waits                                          │ consumer died
//!                               └────────── wants room anew, message kept ◄──────┘
//! ```
//!
//! Invariants
//! - S1: payload is kept only while room for the whole message is reserved, or was reserved with a
//!   consumer that has died meanwhile.
//! - S2: a reservation, a ticket and a place among the lonely are given back once: when they turn
//!   into the next thing, or in `leave`.

use std::sync::Arc;

use flatpath::Resumer;
use flatpath::pairing::Endpoint;
use flatpath_driver::Fragment;
use flatpath_messages::framing::Decoder;

use crate::consumer::{Consumer, Ended};
use crate::pairing::{Pairings, Registered, Seeker};
use crate::roster::{Roster, Seat};
use crate::window::{Room, Ticket};

/// What one connection keeps. Small while idle: no fragments, no message.
#[derive(Debug, Default)]
pub struct Session {
    pub(crate) decoder: Decoder,
    /// Numbered when the first byte comes.
    pub(crate) producer: Option<u32>,
    pub(crate) message: Option<Message>,
    place: Place,
    /// With a token of its own: whom it seeks.
    seeks: Option<Seeks>,
}

type Seeks = (Arc<Endpoint<Seeker>>, Registered);

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

/// Where a producer is seated.
#[derive(Debug, Default)]
enum Place {
    /// With nobody yet.
    #[default]
    Nowhere,
    /// No consumer is there: a place in the roster's queue.
    Lonely(u64),
    /// With a consumer, and nothing reserved.
    Seated(Arc<Consumer>),
    /// In the queue of a consumer.
    Waiting(Arc<Consumer>, Ticket),
    /// With room for the message.
    Reserved(Arc<Consumer>, u32),
}

/// Whether there is room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    Come,
    Wait,
}

impl Session {
    /// Sees to it that room is reserved for the message; else the resumer is told of the turn.
    pub(crate) fn want_room(&mut self, roster: &Roster, resumer: &Resumer) -> Turn {
        let Some(message) = &self.message else {
            return Turn::Come;
        };
        let need = match message.whole {
            true => message.fragments.len() as u32,
            false => message.need,
        };
        // Bounded: each round ends a consumer's part in it, and consumers are few.
        loop {
            match std::mem::take(&mut self.place) {
                Place::Reserved(consumer, reserved) => {
                    self.place = Place::Reserved(consumer, reserved);
                    return Turn::Come;
                }
                Place::Lonely(place) => roster.leave(place),
                Place::Nowhere if self.seeks.is_some() => match self.sought() {
                    Some(consumer) => self.place = Place::Seated(consumer),
                    // Its connection is told when one comes.
                    None => return Turn::Wait,
                },
                Place::Nowhere => match roster.seat(|| resumer.clone()) {
                    Seat::With(consumer) => self.place = Place::Seated(consumer),
                    Seat::Alone(place) => {
                        self.place = Place::Lonely(place);
                        return Turn::Wait;
                    }
                },
                Place::Seated(consumer) => match consumer.reserve(need, || resumer.clone()) {
                    Ok(Room::Reserved) => self.place = Place::Reserved(consumer, need),
                    Ok(Room::Wait(ticket)) => {
                        self.place = Place::Waiting(consumer, ticket);
                        return Turn::Wait;
                    }
                    Err(Ended) => {}
                },
                Place::Waiting(consumer, ticket) => match consumer.claim(ticket) {
                    Ok(Some(granted)) => self.place = Place::Reserved(consumer, granted),
                    Ok(None) => {
                        self.place = Place::Waiting(consumer, ticket);
                        return Turn::Wait;
                    }
                    Err(Ended) => {}
                },
            }
        }
    }

    fn sought(&self) -> Option<Arc<Consumer>> {
        self.seeks.as_ref()?.0.consumer()
    }

    /// The producer names a token. False: it may not, or another producer has it.
    pub(crate) fn seek(&mut self, token: u64, pairings: &Pairings, resumer: Resumer) -> bool {
        let is_first = self.seeks.is_none() && matches!(self.place, Place::Nowhere);
        if is_first && self.message.is_none() {
            self.seeks = pairings.seek(token, resumer);
        }
        is_first && self.seeks.is_some()
    }

    /// Hands a whole message to the consumer. `Err`: that one died; the message is kept, and wants
    /// room with the next.
    pub(crate) fn deliver(&mut self) -> Result<Arc<Consumer>, Ended> {
        let producer = self.producer.unwrap_or_default();
        let place = std::mem::take(&mut self.place);
        let (Some(message), Place::Reserved(consumer, reserved)) = (&self.message, place) else {
            debug_assert!(false, "S1: only a message with room is delivered");
            return Err(Ended);
        };
        consumer.deliver(&message.fragments, message.bytes, producer, reserved)?;
        // The consumer's tokens hold the pages now.
        self.message = None;
        self.place = Place::Seated(Arc::clone(&consumer));
        Ok(consumer)
    }

    /// The connection is gone. Whether a message was cut off.
    pub(crate) fn leave(&mut self, roster: &Roster) -> bool {
        self.seeks = None;
        match std::mem::take(&mut self.place) {
            Place::Nowhere | Place::Seated(_) => {}
            Place::Lonely(place) => roster.leave(place),
            Place::Waiting(consumer, ticket) => consumer.give_up(ticket),
            Place::Reserved(consumer, reserved) => consumer.release(reserved),
        }
        self.message.take().is_some() || !self.decoder.is_between_messages()
    }
}
