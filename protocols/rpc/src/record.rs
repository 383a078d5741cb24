//! Record marking (RFC 5531 section 11): record fragments in, whole records out.
//!
//! A record that arrived in one chunk is used where it lies; any other is assembled here as its
//! bytes arrive: a long one in the pages where they were received, as far as the engine lets them
//! be retained, anything else in pooled buffers. Nothing is sized by a marker: a buffer is at most
//! as large as what has arrived before it, or one small buffer.
//!
//! Invariants
//! - R1: `received + left <= RECORD_BYTES_MAX`, checked before the fragment is begun.
//! - R2: a record with a head and no data (`CONTIGUOUS_BYTES_MAX`) is one chunk once it is whole,
//!   unless the pool had no buffer for it.
//!
//! - R3: the first chunk of a long record has `FRONT_BYTES_MIN` bytes, which hold the head of every
//!   call with data.
//!
//! Cost: no copy of a long record but, where its front was cut in two, of `FRONT_BYTES_MIN` bytes;
//! one copy of each byte of others, and at most one more of a short record that came in chunks.

use flatpath::memory::{Buffer, Fragment, PoolHandle};

use crate::limits::{
    CONTIGUOUS_BYTES_MAX, EMPTY_RECORD_FRAGMENTS_MAX, FRONT_BYTES_MIN, RECORD_BYTES_MAX,
    RECORD_FRAGMENTS_MAX,
};
use crate::message::LAST_FRAGMENT;
use crate::xdr::{Malformed, Reader, padding};

/// Bytes of a marker.
const MARKER_BYTES: usize = 4;

/// The first chunk of a record that is not whole, in bytes: the smallest class of the pool.
const CHUNK_BYTES_MIN: usize = 4096;

/// The peer's framing cannot be followed any further: close the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FramingError {
    /// Checked against the markers, before the bytes arrive.
    TooLong,
    /// See [`RECORD_FRAGMENTS_MAX`].
    TooManyFragments,
    /// See [`EMPTY_RECORD_FRAGMENTS_MAX`].
    TooManyEmpty,
}

flatpath::impl_error! {
    FramingError {
        Self::TooLong => "record fragments of more than {RECORD_BYTES_MAX} bytes are announced",
        Self::TooManyFragments => "more than {RECORD_FRAGMENTS_MAX} fragments in a record",
        Self::TooManyEmpty => "more than {EMPTY_RECORD_FRAGMENTS_MAX} empty fragments in a record",
    }
}

/// Whether the last byte of a record may be taken now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
// Exhaustive: the last byte may be taken or not.
pub enum Completion {
    /// There is room for the call.
    Allowed,
    /// Leave what completes the record where it is.
    Withheld,
}

/// How far [`Assembly::feed`] came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
// Exhaustive: a caller has to act on each.
pub enum Assembled {
    /// All of the input was used, or what is left is part of a marker.
    NeedMore,
    /// The record is whole: [`Assembly::take`].
    Complete,
    /// It would be whole, but that is withheld.
    Withheld,
    /// The memory budget for buffers is used up.
    NoRoom,
}

/// Where the bytes of a record come from, and what may be done with them.
pub trait Source {
    /// Buffers for what has to be copied.
    fn pool(&self) -> PoolHandle<'_>;

    /// Retains a part of the input where it lies, after `chunks` chunks of its record; `None`: copy
    /// it.
    fn retain(&mut self, bytes: &[u8], chunks: usize) -> Option<Fragment>;

    /// `bytes` of a long record were copied; for statistics.
    fn copied(&mut self, bytes: usize) {
        let _ = bytes;
    }
}

/// Everything is copied.
impl Source for PoolHandle<'_> {
    fn pool(&self) -> PoolHandle<'_> {
        *self
    }

    fn retain(&mut self, _bytes: &[u8], _chunks: usize) -> Option<Fragment> {
        None
    }
}

/// Bytes of a record that lie in one place.
#[derive(Debug)]
pub(crate) enum RecordChunk {
    /// In a pooled buffer.
    Copied(Buffer),
    /// In a receive page.
    Retained(Fragment),
}

impl RecordChunk {
    /// The bytes.
    fn bytes(&self) -> &[u8] {
        match self {
            RecordChunk::Copied(buffer) => buffer.filled(),
            RecordChunk::Retained(fragment) => fragment.bytes(),
        }
    }

    /// Copies as much as there is room for.
    fn append(&mut self, bytes: &[u8]) -> usize {
        match self {
            RecordChunk::Copied(buffer) => buffer.append(bytes),
            RecordChunk::Retained(_) => 0,
        }
    }
}

/// A record on its way in.
#[derive(Debug, Default)]
pub struct Assembly {
    /// Bytes of the current fragment that have not arrived.
    left: usize,
    /// Bytes assembled.
    received: usize,
    record_fragments: u32,
    empty_record_fragments: u32,
    /// The current fragment is the last one.
    last: bool,
    chunks: Vec<RecordChunk>,
}

/// The record at the front of `input` if it is whole and of one fragment, without its marker.
pub fn whole(input: &[u8]) -> Option<&[u8]> {
    let (marker, rest) = input.split_first_chunk::<MARKER_BYTES>()?;
    let marker = u32::from_be_bytes(*marker);
    let length = (marker & !LAST_FRAGMENT) as usize;
    if marker & LAST_FRAGMENT == 0 || length > RECORD_BYTES_MAX {
        return None;
    }
    rest.get(..length)
}

impl Assembly {
    /// True between records.
    pub fn is_idle(&self) -> bool {
        self.record_fragments == 0
    }

    /// Bytes assembled of the record that is not whole.
    pub fn received(&self) -> usize {
        self.received
    }

    /// True while a record with data is assembled.
    pub fn is_long(&self) -> bool {
        self.received + self.left > CONTIGUOUS_BYTES_MAX
    }

    /// Takes bytes from the front of `input` until the record is whole; says how many and why it
    /// stopped.
    ///
    /// # Errors
    /// [`FramingError`] when the peer's framing is beyond what a record may be.
    pub fn feed(
        &mut self,
        input: &[u8],
        source: &mut impl Source,
        completion: Completion,
    ) -> Result<(usize, Assembled), FramingError> {
        let mut used = 0;
        loop {
            if self.left == 0 {
                let Some(marker) = input[used..].first_chunk::<MARKER_BYTES>() else {
                    return Ok((used, Assembled::NeedMore));
                };
                let marker = u32::from_be_bytes(*marker);
                if marker == LAST_FRAGMENT && completion == Completion::Withheld {
                    return Ok((used, Assembled::Withheld));
                }
                self.begin_record_fragment(marker)?;
                used += MARKER_BYTES;
            }
            let offered = &input[used..input.len().min(used + self.left)];
            if self.last && offered.len() == self.left && completion == Completion::Withheld {
                return Ok((used, Assembled::Withheld));
            }
            let taken = self.append(offered, source);
            used += taken;
            if self.left == 0 && self.last {
                self.join(source.pool());
                return Ok((used, Assembled::Complete));
            }
            if taken < offered.len() {
                return Ok((used, Assembled::NoRoom));
            }
            if self.left > 0 {
                return Ok((used, Assembled::NeedMore));
            }
        }
    }

    fn begin_record_fragment(&mut self, marker: u32) -> Result<(), FramingError> {
        let length = (marker & !LAST_FRAGMENT) as usize;
        if length > RECORD_BYTES_MAX - self.received {
            return Err(FramingError::TooLong);
        }
        self.record_fragments += 1;
        self.empty_record_fragments += u32::from(length == 0);
        if self.record_fragments > RECORD_FRAGMENTS_MAX {
            return Err(FramingError::TooManyFragments);
        }
        if self.empty_record_fragments > EMPTY_RECORD_FRAGMENTS_MAX {
            return Err(FramingError::TooManyEmpty);
        }
        self.left = length;
        self.last = marker & LAST_FRAGMENT != 0;
        Ok(())
    }

    /// Takes as much of `bytes` as can be retained or as there are buffers for.
    fn append(&mut self, bytes: &[u8], source: &mut impl Source) -> usize {
        let mut rest = bytes;
        while !rest.is_empty() {
            if self.is_long() {
                let front = FRONT_BYTES_MIN.saturating_sub(self.received);
                let is_front = self.received == 0 && rest.len() >= FRONT_BYTES_MIN;
                // R3: a front that was begun as a copy is completed as one.
                if (is_front || front == 0)
                    && let Some(fragment) = source.retain(rest, self.chunks.len())
                {
                    self.chunks.push(RecordChunk::Retained(fragment));
                    self.received += rest.len();
                    self.left -= rest.len();
                    return bytes.len();
                }
                let part = match front {
                    0 => rest.len(),
                    front if is_front => front.max(rest.len()),
                    front => front.min(rest.len()),
                };
                let copied = self.copy(&rest[..part], source.pool());
                source.copied(copied);
                rest = &rest[copied..];
                if copied < part {
                    break;
                }
            } else {
                let copied = self.copy(rest, source.pool());
                rest = &rest[copied..];
                break;
            }
        }
        bytes.len() - rest.len()
    }

    /// Copies as much of `bytes` as there are buffers for.
    fn copy(&mut self, bytes: &[u8], pool: PoolHandle<'_>) -> usize {
        let mut rest = bytes;
        while !rest.is_empty() {
            let copied = self.chunks.last_mut().map_or(0, |chunk| chunk.append(rest));
            if copied == 0 {
                let arrived = rest.len().max(self.received).max(CHUNK_BYTES_MIN);
                // Not from the reserve: a client may leave half a record for as long as it likes.
                match pool.for_bulk().take(arrived.min(self.left).max(1)) {
                    Some(buffer) => self.chunks.push(RecordChunk::Copied(buffer)),
                    None => break,
                }
            }
            rest = &rest[copied..];
            self.received += copied;
            self.left -= copied;
        }
        bytes.len() - rest.len()
    }

    /// Makes a short record one chunk (R2).
    fn join(&mut self, pool: PoolHandle<'_>) {
        if self.chunks.len() < 2 || self.received > CONTIGUOUS_BYTES_MAX {
            return;
        }
        if let Some(mut whole) = pool.take(self.received)
            && whole.room() >= self.received
        {
            for chunk in &self.chunks {
                whole.append(chunk.bytes());
            }
            self.chunks.clear();
            self.chunks.push(RecordChunk::Copied(whole));
        }
    }

    /// Hands out a whole record and is ready for the next. The vector of `into` is used again.
    pub fn take(&mut self, into: &mut Record) {
        debug_assert!(self.last && self.left == 0, "the record is whole");
        into.chunks.clear();
        std::mem::swap(&mut into.chunks, &mut self.chunks);
        *self = Assembly {
            chunks: std::mem::take(&mut self.chunks),
            ..Assembly::default()
        };
    }
}

/// A whole record, in pooled buffers or in the pages where it was received.
#[derive(Debug, Default)]
pub struct Record {
    chunks: Vec<RecordChunk>,
}

impl Record {
    /// A copy of a record that arrived whole; `None` when the memory budget is used up.
    pub fn copy(&mut self, bytes: &[u8], pool: PoolHandle<'_>) -> Option<()> {
        self.chunks.clear();
        let mut rest = bytes;
        while !rest.is_empty() || self.chunks.is_empty() {
            let Some(mut buffer) = pool.take(rest.len().max(1)) else {
                self.chunks.clear();
                return None;
            };
            rest = &rest[buffer.append(rest)..];
            self.chunks.push(RecordChunk::Copied(buffer));
        }
        Some(())
    }

    /// A record that arrived whole, where it lies.
    pub fn retain(&mut self, fragment: Fragment) {
        self.chunks.clear();
        self.chunks.push(RecordChunk::Retained(fragment));
    }

    /// The front of the record, as far as it lies in one chunk.
    pub fn front(&self) -> &[u8] {
        self.chunks.first().map_or(&[], RecordChunk::bytes)
    }

    /// The record from its byte `at` on, which lies in the first chunk.
    pub fn arguments(&self, at: usize) -> Arguments<'_> {
        let front = self.front().get(at..).unwrap_or(&[]);
        Arguments {
            reader: Reader::new(front),
            more: self.chunks.get(1..).unwrap_or(&[]),
        }
    }

    /// Gives the buffers back.
    pub fn clear(&mut self) {
        self.chunks.clear();
    }
}

/// The arguments of a call: a reader over the front, and data that may reach beyond it.
#[derive(Clone, Copy, Debug)]
pub struct Arguments<'a> {
    /// Everything but trailing data is read from here.
    pub reader: Reader<'a>,
    more: &'a [RecordChunk],
}

impl<'a> Arguments<'a> {
    /// Arguments in one slice.
    pub fn new(bytes: &'a [u8]) -> Arguments<'a> {
        Arguments {
            reader: Reader::new(bytes),
            more: &[],
        }
    }

    /// Leaves out the first `bytes`, which lie in the front.
    pub(crate) fn skip(&mut self, bytes: usize) {
        self.reader = Reader::new(self.reader.rest().get(bytes..).unwrap_or(&[]));
    }

    /// Opaque data at the end of the arguments, wherever its bytes lie.
    ///
    /// # Errors
    /// [`Malformed`] when it is longer than `bytes_max`, longer than the record, or not its end.
    pub fn data(mut self, bytes_max: usize) -> Result<Data<'a>, Malformed> {
        let bytes = self.reader.length(bytes_max)?;
        let front = self.reader.rest();
        let after: usize = self.more.iter().map(|chunk| chunk.bytes().len()).sum();
        if front.len() + after != bytes + padding(bytes) {
            return Err(Malformed);
        }
        Ok(Data {
            front,
            more: self.more,
            bytes,
        })
    }

    /// Nothing may follow.
    ///
    /// # Errors
    /// [`Malformed`] when something does.
    pub fn end(&self) -> Result<(), Malformed> {
        if self.more.is_empty() {
            self.reader.end()
        } else {
            Err(Malformed)
        }
    }

    /// The arguments in slices, as they lie.
    pub fn slices(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        std::iter::once(self.reader.rest()).chain(self.more.iter().map(RecordChunk::bytes))
    }
}

/// Opaque data in the slices it arrived in.
#[derive(Clone, Copy, Debug)]
pub struct Data<'a> {
    front: &'a [u8],
    more: &'a [RecordChunk],
    bytes: usize,
}

impl<'a> Data<'a> {
    /// Bytes in all slices together.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The slices in order, without padding. None is empty.
    pub fn slices(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let mut left = self.bytes;
        std::iter::once(self.front)
            .chain(self.more.iter().map(RecordChunk::bytes))
            .map(move |slice| {
                let slice = &slice[..slice.len().min(left)];
                left -= slice.len();
                slice
            })
            .filter(|slice| !slice.is_empty())
    }
}

#[cfg(test)]
mod tests;
