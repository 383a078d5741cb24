//! The inbox of a connection: what has come and was not consumed, chunk by chunk.
//!
//! | word      | what it is                                     | where it lies                  |
//! |-----------|------------------------------------------------|--------------------------------|
//! | remainder | the beginning: what a call was given and left  | one buffer of the pool         |
//! | hold      | pages that wait after it, oldest first         | where they were received, or   |
//! |           |                                                | in a buffer each               |
//! | chunk     | what one call is given                         | in its page, or in that buffer |
//!
//! A page is plain, or it has records of TLS. Records are no chunk: the filter before the protocol
//! (`network/secure.rs`) opens them when it is their turn, and gives a chunk for them. Whether the
//! connection takes input at all is asked before the inbox is (`Connection::next_input`).
//!
//! What is next ([`Inbox::next`]), by the reason to look:
//!
//! | reason    | remainder | first of the hold   | next                                           |
//! |-----------|-----------|---------------------|------------------------------------------------|
//! | `Again`   | some      | any                 | the remainder alone                            |
//! | `Again`   | none      | none                | an empty chunk, if it waited for room          |
//! | `Arrival` | any       | longer than allowed | [`Next::Later`]                                |
//! | any       | any       | a plain page        | the page                                       |
//! | any       | any       | a page of records   | [`Next::Records`]                              |
//! | any       | any       | none                | [`Next::Nothing`]                              |
//!
//! A remainder and the chunk after it are given together ([`Inbox::join`]), in one buffer:
//!
//! | that buffer          | another one       | joined                                       |
//! |----------------------|-------------------|----------------------------------------------|
//! | has room             | not asked for     | all of the chunk                             |
//! | has too little       | is there          | all of the chunk, in the other one           |
//! | has a little         | is not there      | as much as has room; the rest is held, first |
//! | is full              | is not there      | [`Joined::NoMemory`]: it is held, first      |
//! | the sum is above [`INPUT_BYTES_MAX`] |   | [`Joined::TooLong`]: none of it              |
//!
//! What a call leaves of a chunk ([`Inbox::leave`]) is the remainder: in the buffer that it is in,
//! or copied out of its page, so that no client keeps a page that all connections share. A page of
//! the listener's own is held instead while the connection is stalled: it has one at a time. For
//! the same reason a plain page that comes to a stalled connection is appended to the remainder
//! ([`Inbox::add`]), unless others are held before it. Where no buffer is free a page is held.
//! Where stalled connections hold more of the common pages than they may, those of one are copied,
//! each to a buffer of its own in its place ([`Inbox::copy_out`]).
//!
//! Invariants
//! - B1: the chunks are the input in its order, each byte until it is consumed.
//! - B2: the remainder is before all that is held, and is not empty.
//! - B3: a page that was given or held in part is the first of the hold; plain pages are before
//!   those of records.
//!
//! Cost: a chunk with nothing before it is moved and copied nowhere, and asks for two pointers.

use std::collections::VecDeque;

use flatpath_driver::Piece;
use flatpath_structures::pool::Buffer;

use crate::limits::{APPEND_BYTES_MAX, INPUT_BYTES_MAX};

/// Bytes as they were received.
pub(crate) trait Page {
    fn page_bytes(&self) -> usize;
    /// All connections share pages as this one.
    fn is_common(&self) -> bool;
}

impl Page for Piece {
    #[inline]
    fn page_bytes(&self) -> usize {
        self.len()
    }

    #[inline]
    fn is_common(&self) -> bool {
        self.region_id() == 0
    }
}

/// Where pages lie, and buffers come from.
pub(crate) trait Supply<P> {
    fn bytes<'a>(&'a self, page: &'a P) -> &'a [u8];
    fn recycle(&mut self, page: P);
    /// A buffer with room for this many bytes.
    fn take(&self, bytes: usize) -> Option<Buffer>;
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Inbox<P = Piece> {
    remainder: Option<Buffer>,
    /// Made for the first page that waits.
    #[expect(
        clippy::box_collection,
        reason = "one pointer: most connections never hold a page"
    )]
    hold: Option<Box<VecDeque<Held<P>>>>,
}

/// A page in the hold, or its copy.
#[derive(Debug)]
struct Held<P> {
    chunk: Chunk<P>,
    form: Form,
}

impl<P: Page> Held<P> {
    fn bytes(&self) -> usize {
        self.chunk.bytes()
    }

    fn is_common_page(&self) -> bool {
        matches!(&self.chunk, Chunk::Page(page, _) if page.is_common())
    }
}

/// What is in a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Plain,
    /// Records of TLS, of which the last may be the beginning of one.
    Records,
}

/// What one call is given.
#[derive(Debug)]
pub(crate) enum Chunk<P = Piece> {
    /// A page, from a place in it on.
    Page(P, u32),
    Buffer(Buffer),
    /// No bytes: what the protocol waited for may be there.
    Empty,
}

impl<P: Page> Chunk<P> {
    /// How long it is.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Chunk::Page(page, from) => page.page_bytes() - *from as usize,
            Chunk::Buffer(buffer) => buffer.filled().len(),
            Chunk::Empty => 0,
        }
    }

    /// Its first bytes were consumed.
    pub(crate) fn consume(&mut self, bytes: usize) {
        match self {
            Chunk::Page(_, from) => *from += small(bytes),
            Chunk::Buffer(buffer) => buffer.consume_front(bytes),
            Chunk::Empty => {}
        }
    }
}

/// Why one looks for the next chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// Something has come, of which this many bytes may be given now.
    Arrival(usize),
    /// It is the turn of this connection, however much waits.
    Turn,
    /// What the input waited for is there.
    Again {
        /// The protocol is called in any case: it may be a reply that waited.
        for_room: bool,
    },
}

impl Reason {
    /// What it is after a chunk of `bytes`, where `at_once_bytes_max` are given at once.
    pub(crate) fn after(self, bytes: usize, at_once_bytes_max: usize) -> Reason {
        Reason::Arrival(match self {
            Reason::Arrival(left) => left.saturating_sub(bytes),
            Reason::Turn | Reason::Again { .. } => at_once_bytes_max,
        })
    }
}

/// What is to be done next about the input of a connection.
#[must_use = "a chunk is given to the protocol"]
#[derive(Debug)]
pub(crate) enum Next<P = Piece> {
    /// Nothing, for now.
    Nothing,
    Chunk(Chunk<P>),
    /// Records in a page, or in its copy, are opened.
    Records(Chunk<P>),
    /// The first page is long: it waits for the end of the turn.
    Later,
    /// All is given back: none of it will be read.
    Drop,
    /// The protocol is called for the end of the stream.
    End,
}

/// A remainder and the chunk after it.
#[must_use]
#[derive(Debug)]
pub(crate) enum Joined<P = Piece> {
    Chunk(Chunk<P>),
    NoMemory,
    /// More than is kept: the protocol leaves too much.
    TooLong,
}

/// What has become of bytes that a call has left.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Left {
    Kept,
    /// In their page: there is no buffer for them.
    NoMemory,
}

/// Whether there is room for more after the remainder.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Room {
    Made,
    NoMemory,
    /// Together they are above [`INPUT_BYTES_MAX`].
    TooLong,
}

impl<P> Default for Inbox<P> {
    fn default() -> Inbox<P> {
        Inbox {
            remainder: None,
            hold: None,
        }
    }
}

impl<P: Page> Inbox<P> {
    /// Nothing waits in it.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        !self.has_remainder() && self.holds_nothing()
    }

    #[inline]
    pub(crate) fn has_remainder(&self) -> bool {
        self.remainder.is_some()
    }

    #[inline]
    pub(crate) fn holds_nothing(&self) -> bool {
        self.hold.as_ref().is_none_or(|hold| hold.is_empty())
    }

    /// A page was held at some time.
    #[inline]
    pub(crate) fn has_held(&self) -> bool {
        self.hold.is_some()
    }

    /// What the protocol has left; empty while a call is given it.
    pub(crate) fn remainder(&self) -> &[u8] {
        self.remainder.as_ref().map_or(&[], Buffer::filled)
    }

    pub(crate) fn take_remainder(&mut self) -> Option<Buffer> {
        self.remainder.take()
    }

    /// Has a buffer as the remainder, which there was none of, unless it is empty.
    pub(crate) fn put_remainder(&mut self, buffer: Buffer) {
        debug_assert!(!self.has_remainder(), "B2: it would take its place");
        if !buffer.is_empty() {
            self.remainder = Some(buffer);
        }
    }

    /// What would be given next, in bytes: the remainder and the first page.
    pub(crate) fn next_bytes(&self) -> usize {
        self.remainder().len() + self.first().map_or(0, Held::bytes)
    }

    /// Pages that it holds of those that all connections share.
    pub(crate) fn common_pages(&self) -> usize {
        let held = self.hold.iter().flat_map(|hold| hold.iter());
        held.filter(|held| held.is_common_page()).count()
    }

    /// From now on what comes is records, and so is all that is held.
    pub(crate) fn begin_records(&mut self) {
        let held = self.hold.iter_mut().flat_map(|hold| hold.iter_mut());
        held.for_each(|held| held.form = Form::Records);
    }

    fn first(&self) -> Option<&Held<P>> {
        self.hold.as_ref()?.front()
    }

    /// Takes what is next. See the module.
    pub(crate) fn next(&mut self, reason: Reason) -> Next<P> {
        if let Reason::Again { for_room } = reason {
            if let Some(buffer) = self.remainder.take() {
                return Next::Chunk(Chunk::Buffer(buffer));
            }
            if self.holds_nothing() && for_room {
                return Next::Chunk(Chunk::Empty);
            }
        }
        match (self.first(), reason) {
            (None, _) => return Next::Nothing,
            (Some(held), Reason::Arrival(most)) if held.bytes() > most => return Next::Later,
            (Some(_), _) => {}
        }
        match self.hold.as_mut().and_then(|hold| hold.pop_front()) {
            None => Next::Nothing,
            Some(Held { chunk, form }) => match form {
                Form::Plain => Next::Chunk(chunk),
                Form::Records => Next::Records(chunk),
            },
        }
    }

    /// Puts a chunk back as the first of the hold.
    pub(crate) fn put_back(&mut self, chunk: Chunk<P>, form: Form) {
        let hold = self.hold.get_or_insert_default();
        hold.push_front(Held { chunk, form });
    }

    /// Copies the common pages that it holds, for as many as there are buffers.
    pub(crate) fn copy_out(&mut self, supply: &mut impl Supply<P>) {
        let held = self.hold.iter_mut().flat_map(|hold| hold.iter_mut());
        for held in held.filter(|held| held.is_common_page()) {
            let Some(mut copy) = supply.take(held.bytes()) else {
                return;
            };
            if let Chunk::Page(page, from) = &held.chunk {
                copy.append(&supply.bytes(page)[*from as usize..]);
            }
            if let Chunk::Page(page, _) = std::mem::replace(&mut held.chunk, Chunk::Buffer(copy)) {
                supply.recycle(page);
            }
        }
    }

    /// Adds a page that has come and is not given at once.
    pub(crate) fn add(
        &mut self,
        page: P,
        form: Form,
        is_stalled: bool,
        supply: &mut impl Supply<P>,
    ) {
        let is_next = form == Form::Plain && self.holds_nothing();
        if is_stalled && is_next && page.is_common() && self.append(&page, 0, supply) {
            return supply.recycle(page);
        }
        let hold = self.hold.get_or_insert_default();
        hold.push_back(Held {
            chunk: Chunk::Page(page, 0),
            form,
        });
    }

    /// Copies what a page has from a place on to the end of the remainder. False: it has no room.
    fn append(&mut self, page: &P, from: u32, supply: &impl Supply<P>) -> bool {
        let bytes = &supply.bytes(page)[from as usize..];
        if self.reserve(bytes.len(), supply) != Room::Made {
            return false;
        }
        if self.remainder.is_none() {
            self.remainder = supply.take(bytes.len());
        }
        if let Some(buffer) = &mut self.remainder {
            buffer.append(bytes);
        }
        self.has_remainder()
    }

    /// Makes room for this many bytes after the remainder, if there is one.
    pub(crate) fn reserve(&mut self, bytes: usize, supply: &impl Supply<P>) -> Room {
        let Some(buffer) = &mut self.remainder else {
            return Room::Made;
        };
        let together = buffer.filled().len() + bytes;
        if buffer.room() >= bytes {
            return Room::Made;
        }
        if together > INPUT_BYTES_MAX {
            return Room::TooLong;
        }
        let Some(mut larger) = supply.take(together) else {
            return Room::NoMemory;
        };
        larger.append(buffer.filled());
        *buffer = larger;
        Room::Made
    }

    /// Puts the remainder, if there is one, before a chunk. See the module.
    pub(crate) fn join(&mut self, chunk: Chunk<P>, supply: &mut impl Supply<P>) -> Joined<P> {
        if !self.has_remainder() {
            return Joined::Chunk(chunk);
        }
        match chunk {
            Chunk::Page(page, from) => self.join_page(page, from, supply),
            // What comes of records has its room reserved before they are opened.
            Chunk::Buffer(buffer) => match self.reserve(buffer.filled().len(), supply) {
                Room::Made => self.join_bytes(buffer.filled()),
                Room::NoMemory => {
                    self.put_back(Chunk::Buffer(buffer), Form::Plain);
                    Joined::NoMemory
                }
                Room::TooLong => Joined::TooLong,
            },
            Chunk::Empty => self.join_bytes(&[]),
        }
    }

    fn join_page(&mut self, page: P, from: u32, supply: &mut impl Supply<P>) -> Joined<P> {
        let left = page.page_bytes() - from as usize;
        // Much of a page of the listener's own is to be given where it lies.
        let wanted = match page.is_common() {
            true => left,
            false => left.min(APPEND_BYTES_MAX),
        };
        let taken = match self.reserve(wanted, supply) {
            Room::Made => wanted,
            // A short request needs no more than there is.
            Room::NoMemory => self.remainder.as_ref().map_or(0, Buffer::room),
            Room::TooLong => {
                supply.recycle(page);
                return Joined::TooLong;
            }
        };
        if taken == 0 {
            self.put_back(Chunk::Page(page, from), Form::Plain);
            return Joined::NoMemory;
        }
        let joined = self.join_bytes(&supply.bytes(&page)[from as usize..][..taken]);
        match taken == left {
            true => supply.recycle(page),
            // The rest is next, where it lies if the remainder is gone by then.
            false => self.put_back(Chunk::Page(page, from + small(taken)), Form::Plain),
        }
        joined
    }

    /// The remainder with these bytes, for which it has room.
    fn join_bytes(&mut self, bytes: &[u8]) -> Joined<P> {
        match self.remainder.take() {
            None => Joined::Chunk(Chunk::Empty),
            Some(mut buffer) => {
                buffer.append(bytes);
                Joined::Chunk(Chunk::Buffer(buffer))
            }
        }
    }

    /// Keeps what a call has left of a chunk, which is not empty.
    pub(crate) fn leave(
        &mut self,
        chunk: Chunk<P>,
        is_stalled: bool,
        supply: &mut impl Supply<P>,
    ) -> Left {
        match chunk {
            Chunk::Page(page, from) if is_stalled && !page.is_common() => {
                // One receive at a time: it is the only page, and is given again from there.
                self.put_back(Chunk::Page(page, from), Form::Plain);
            }
            Chunk::Page(page, from) => {
                if !self.append(&page, from, supply) {
                    self.put_back(Chunk::Page(page, from), Form::Plain);
                    return Left::NoMemory;
                }
                supply.recycle(page);
            }
            Chunk::Buffer(buffer) => self.put_remainder(buffer),
            Chunk::Empty => {}
        }
        Left::Kept
    }

    /// Gives all of it back.
    pub(crate) fn clear(&mut self, supply: &mut impl Supply<P>) {
        self.remainder = None;
        let held = self.hold.iter_mut().flat_map(|hold| hold.drain(..));
        for held in held {
            if let Chunk::Page(page, _) = held.chunk {
                supply.recycle(page);
            }
        }
    }
}

fn small(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
