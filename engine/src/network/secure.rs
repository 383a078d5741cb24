//! TLS between the socket and the protocol: the way of bytes in and out of a secured connection.
//!
//! In: a filter before the chunks of the inbox. A page is held when it arrives, whatever is in it,
//! and opened when it is next, just before the protocol is given what is in it, so a connection
//! that must wait costs no decryption. Records that lie whole in a page are opened in place, and
//! the protocol finds its input in the receive page as without TLS; a record that lies in several
//! pages is gathered in a pooled buffer. Without memory for that the connection stalls, and nothing
//! is opened: what was opened must be given.
//!
//! Out: a send takes up to [`SEAL_BYTES_MAX`] of what is queued and seals it; the rest stays
//! content until the next. It is copied to one pooled buffer, each record to its place, and sealed
//! there; a file is read there, once its window is at hand as without TLS (`ahead.rs`). If there is
//! no buffer, [`SEAL_BYTES_MIN`] go without, so that output always moves.
//!
//! The end: close_notify goes with the last record, and FIN with both. A stream that ends without
//! one was cut off on its way, so its connection is aborted: but for one that ends between two
//! requests, where nothing could be cut off. Clients end so, curl after HTTP/2 among them.

use bytes::Bytes;
use flatpath_driver::{Driver, Piece};
use flatpath_structures::pool::Buffer;

use crate::connection::output::{Taken, whole};
use crate::connection::{Chunk, Closing, Form, Room, Sealed};
use crate::limits::BUFFER_CLASSES;
use crate::network::waits::Wait;
use crate::tls::{Alert, OVERHEAD_BYTES_MAX, PLAINTEXT_BYTES_MAX};

use super::thread::{Event, Network, Thread};
use super::timers::Chore;

/// Records of one send at most: those of content, an answer to the peer's KeyUpdate, the end, and
/// what the handshake has left.
const RECORDS_MAX: usize = 8;

/// Content that one send seals at most: as much as has room in a buffer when it is sealed.
const SEAL_BYTES_MAX: usize = BUFFER_CLASSES[2] - RECORDS_MAX * OVERHEAD_BYTES_MAX;

const _: () = assert!(SEAL_BYTES_MAX / PLAINTEXT_BYTES_MAX + 1 + 3 <= RECORDS_MAX);

/// Content that is sealed where there is no memory for a buffer.
const SEAL_BYTES_MIN: usize = BUFFER_CLASSES[0];

impl<D: Driver> Thread<D> {
    /// The ciphers of a connection are ready for use.
    fn caches_ciphers(&mut self, index: u32) {
        self.cipher_cache.add(index);
        if self.cipher_cache.exceeds() {
            self.timers.at_once(Chore::Ciphers);
        }
    }
}

impl<D: Driver> Network<D> {
    /// Limits how many connections keep their ciphers ready for use.
    #[cfg(all(feature = "simulation", feature = "tls"))]
    pub(crate) fn cache_ciphers_at_most(&mut self, connections: usize) {
        self.thread.cipher_cache.at_most(connections);
    }

    /// Drops ciphers that are ready for use, where more connections have some than may.
    pub(super) fn evict_ciphers(&mut self) {
        while let Some(index) = self.thread.cipher_cache.evict() {
            if let Some((_, connection)) = self.connections.at_mut(index)
                && let Some(secured) = connection.secured()
            {
                secured.records.freeze();
            }
        }
        self.thread.timers.set(Chore::Ciphers, None);
    }
}

/// What records in a page have come to.
pub(super) enum Opened {
    /// No content, or none yet.
    Nothing,
    /// Content, where it was received or in a buffer of its own.
    Chunk(Chunk),
    /// There is no memory: the page is held again, and nothing was opened.
    NoMemory,
}

impl<D: Driver> Event<'_, D> {
    /// Keeps what came with the end of the handshake, which is whole records, and what is `left`
    /// behind that. False: there is no memory for it.
    pub(super) fn keep_first(&mut self, mut came: Vec<u8>, left: Option<Buffer>) -> bool {
        if let Some(mut left) = left {
            let Some((whole, _)) = self.whole_in(left.filled()) else {
                // What follows from it is done.
                return true;
            };
            came.extend_from_slice(&left.filled()[..whole]);
            left.consume_front(whole);
            if !left.is_empty() {
                self.put_part(left);
            }
        }
        if came.is_empty() {
            return true;
        }
        let Some(mut input) = self.take_input_buffer(came.len()) else {
            return false;
        };
        if let Some(content) = self.open(&mut came)
            && !content.is_empty()
        {
            input.append(&came[content]);
            self.connection.inbox_mut().put_remainder(input);
        }
        true
    }

    /// See `Records::whole`. `None`: they are no records, and the connection ends.
    fn whole_in(&mut self, bytes: &[u8]) -> Option<(usize, usize)> {
        match self.connection.secured()?.records.whole(bytes) {
            Ok(whole) => Some(whole),
            Err(alert) => {
                self.refuse_records(alert);
                None
            }
        }
    }

    /// Opens whole records in a buffer; where their content is. `None`: the connection ends.
    fn open(&mut self, records: &mut [u8]) -> Option<std::ops::Range<usize>> {
        self.thread.caches_ciphers(self.key.index);
        let opened = self.connection.secured()?.records.open(records);
        self.opened(opened)
    }

    fn opened(
        &mut self,
        opened: Result<std::ops::Range<usize>, Alert>,
    ) -> Option<std::ops::Range<usize>> {
        let secured = self.connection.secured()?;
        match opened {
            Ok(content) => {
                if secured.records.peer_has_closed() {
                    self.connection.end_came();
                }
                Some(content)
            }
            Err(alert) => {
                self.refuse_records(alert);
                None
            }
        }
    }

    /// The peer has broken the rules: it is told which, and the connection ends. Or it has ended
    /// the connection with an alert, which is answered by the end.
    #[cold]
    fn refuse_records(&mut self, alert: Alert) {
        let counters = self.counters();
        match alert == Alert::CLOSE_NOTIFY {
            true => counters.tls_alert.add(1),
            false => counters.tls_broken.add(1),
        }
        log::debug!("TLS: refused, {alert:?}");
        if let Some(secured) = self.connection.secured() {
            secured.refuse(alert);
        }
        self.connection.close(Closing::Lingering);
    }

    /// The stream has ended before the peer said so.
    #[cold]
    pub(super) fn cut_off(&mut self) {
        self.counters().tls_cut_off.add(1);
        log::debug!("TLS: the stream was cut off");
        self.connection.close(Closing::Abort);
    }

    /// It is the turn of records in a page, or in its copy.
    pub(super) fn open_records(&mut self, records: Chunk) -> Opened {
        let Some(secured) = self.connection.secured() else {
            return self.opened_nothing(records);
        };
        if secured.records.peer_has_closed() || secured.refused().is_some() {
            return self.opened_nothing(records);
        }
        if secured.part.is_some() {
            return self.complete_part(records);
        }
        let bytes = match &records {
            Chunk::Page(piece, from) => &self.thread.driver.bytes(piece)[*from as usize..],
            Chunk::Buffer(buffer) => buffer.filled(),
            Chunk::Empty => &[],
        };
        let (whole, needed) = match secured.records.whole(bytes) {
            Ok(whole) => whole,
            Err(alert) => {
                self.refuse_records(alert);
                return self.opened_nothing(records);
            }
        };
        if bytes.len() > whole && !self.keep_part(&records, whole, needed) {
            return self.hold_records(records);
        }
        match (whole, records) {
            (0, records) => self.opened_nothing(records),
            (whole, Chunk::Page(piece, from)) => self.open_piece(piece, from as usize, whole),
            (whole, Chunk::Buffer(mut copy)) => {
                copy.truncate(whole);
                self.open_buffer(copy)
            }
            (_, Chunk::Empty) => Opened::Nothing,
        }
    }

    fn opened_nothing(&mut self, records: Chunk) -> Opened {
        self.release(records);
        Opened::Nothing
    }

    fn hold_records(&mut self, records: Chunk) -> Opened {
        let inbox = self.connection.inbox_mut();
        inbox.put_back(records, Form::Records);
        Opened::NoMemory
    }

    /// Opens the whole records of a piece where they lie.
    fn open_piece(&mut self, mut piece: Piece, from: usize, whole: usize) -> Opened {
        self.thread.caches_ciphers(self.key.index);
        let bytes = &mut self.thread.driver.bytes_mut(&mut piece)[from..from + whole];
        let opened = match self.connection.secured() {
            Some(secured) => secured.records.open(bytes),
            None => Ok(0..0),
        };
        match self.opened(opened) {
            Some(content) if !content.is_empty() => {
                piece.truncate(from + content.end);
                Opened::Chunk(Chunk::Page(piece, small(from + content.start)))
            }
            _ => self.opened_nothing(Chunk::Page(piece, 0)),
        }
    }

    /// Keeps the beginning of a record, from a place in a chunk on. False: there is no memory.
    fn keep_part(&mut self, records: &Chunk, from: usize, needed: usize) -> bool {
        let length = records.bytes() - from;
        let Some(mut part) = self.take_input_buffer(needed.max(length)) else {
            return false;
        };
        part.append(&self.chunk_bytes(records)[from..]);
        self.put_part(part);
        true
    }

    /// Adds to the beginning of a record what a chunk has of the rest. If that is all of it, it is
    /// opened; what is behind it in the chunk has its turn then.
    fn complete_part(&mut self, mut records: Chunk) -> Opened {
        let Some(mut part) = self.connection.secured().and_then(|it| it.part.take()) else {
            return self.opened_nothing(records);
        };
        loop {
            let Some((whole, needed)) = self.whole_in(part.filled()) else {
                return self.opened_nothing(records);
            };
            if whole > 0 {
                break;
            }
            let left = records.bytes();
            if left == 0 {
                self.put_part(part);
                return self.opened_nothing(records);
            }
            if !self.has_room(&mut part, needed) {
                self.put_part(part);
                return self.hold_records(records);
            }
            let taken = left.min(needed - part.filled().len());
            part.append(&self.chunk_bytes(&records)[..taken]);
            records.consume(taken);
        }
        if records.bytes() > 0 {
            let inbox = self.connection.inbox_mut();
            inbox.put_back(records, Form::Records);
        } else {
            self.release(records);
        }
        self.open_buffer(part)
    }

    fn put_part(&mut self, part: Buffer) {
        if let Some(secured) = self.connection.secured() {
            secured.part = Some(part);
        }
    }

    /// Makes room in a part for its record, and behind the remainder for what is in that. False:
    /// there is no memory.
    fn has_room(&mut self, part: &mut Buffer, needed: usize) -> bool {
        if part.room() < needed - part.filled().len() {
            let Some(mut larger) = self.take_input_buffer(needed) else {
                return false;
            };
            larger.append(part.filled());
            *part = larger;
        }
        let (inbox, supply) = self.inbox();
        match inbox.reserve(needed, &supply) {
            // What is too long is refused when it is joined.
            Room::Made | Room::TooLong => true,
            Room::NoMemory => false,
        }
    }

    /// Opens a record that came in parts, or whole ones in a copy.
    fn open_buffer(&mut self, mut records: Buffer) -> Opened {
        let content = self.open(records.filled_mut()).unwrap_or_default();
        if content.is_empty() {
            return Opened::Nothing;
        }
        records.truncate(content.end);
        records.consume_front(content.start);
        Opened::Chunk(Chunk::Buffer(records))
    }

    /// Starts the next send of a secured connection, if there is something to send and none is
    /// going, or has it wait.
    pub(super) fn start_sealed_send(&mut self) {
        let is_ending = matches!(
            self.connection.closing(),
            Closing::AfterOutput | Closing::Lingering
        );
        let Some(secured) = self.connection.secured() else {
            return;
        };
        if is_ending {
            secured.end_output();
        }
        let (has_words, has_ended) = (secured.has_words(), secured.has_ended());
        if !has_words && !self.connection.output().has_waiting() {
            return self.connection.output_mut().release_unused();
        }
        if !self.connection.may_send() {
            if self.connection.writes_after_end() {
                self.connection.drop_output();
            }
            return;
        }
        if has_ended {
            // Something was written after the end.
            return self.connection.drop_output();
        }
        if self.awaits_disk() {
            return;
        }
        if self.sends_in_turn() {
            return self.wait(Wait::Send);
        }
        self.send_sealed();
    }

    /// Whether nothing can be sent before a file was read: but for the reason of an end.
    fn awaits_disk(&mut self) -> bool {
        self.connection.output().awaits_disk()
            && (self.connection.secured()).is_some_and(|secured| secured.refused().is_none())
    }

    /// Seals and sends: the records lie in one buffer, if there is one.
    pub(super) fn send_sealed(&mut self) {
        let is_refused = self.connection.is_refused();
        if !is_refused && let Err(first) = self.connection.output().at_hand() {
            let is_at_hand = match first {
                Taken::Asks(window) => self.ask_for(window),
                _ => false,
            };
            if !is_at_hand {
                return;
            }
        }
        self.thread.caches_ciphers(self.key.index);
        let waiting_bytes = self.connection.output().waiting_bytes();
        let bytes_max = waiting_bytes.min(SEAL_BYTES_MAX);
        let room_bytes = bytes_max + RECORDS_MAX * OVERHEAD_BYTES_MAX;
        let made = match self.take_sealing_buffer(room_bytes) {
            Some(mut buffer) => {
                let room = &mut buffer.overwrite_mut()[..room_bytes];
                self.connection.seal(room, bytes_max).map(|made| {
                    buffer.advance(made.bytes);
                    (made, whole(buffer))
                })
            }
            None => {
                let bytes_max = bytes_max.min(SEAL_BYTES_MIN);
                let mut room = vec![0; bytes_max + RECORDS_MAX * OVERHEAD_BYTES_MAX];
                self.connection.seal(&mut room, bytes_max).map(|made| {
                    room.truncate(made.bytes);
                    (made, Bytes::from(room).into())
                })
            }
        };
        let Some((Sealed { bytes, moved }, records)) = made else {
            // Nothing more can be said.
            return self.connection.close(Closing::Abort);
        };
        let pushed = self.thread.sends.list.push(records);
        debug_assert!(pushed.is_ok(), "an empty list has room");
        self.connection.output_mut().is_sealed(bytes, moved);
        if bytes > 0 {
            self.send_list(bytes, bytes);
        }
    }

    /// A buffer for so many bytes of records.
    fn take_sealing_buffer(&self, bytes: usize) -> Option<Buffer> {
        let common = &self.thread.common;
        let index = self.key.index;
        let pool = match bytes <= BUFFER_CLASSES[0] {
            true => common.pool(index),
            false => common.pools().bulk(common.number(), index),
        };
        pool.take(bytes).filter(|buffer| buffer.room() >= bytes)
    }
}

fn small(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}
