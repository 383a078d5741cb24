//! A body, or a part of one, in the memory where the kernel put it.
//!
//! Invariants
//! - Y1: no part is empty, and `bytes` is the sum of the parts.
//!
//! Cost: push and advance are O(1) per part. [`Buf`] and [`Payload::write_to`] copy nothing within
//! this process; [`std::io::Read`] copies, as it must.

use std::collections::VecDeque;
use std::io::{self, IoSlice, Read, Write};
use std::sync::Arc;

use bytes::Buf;
use flatpath_driver::Fragment;
use flatpath_structures::pool::{Buffer, PoolHandle};

use crate::error::NoRoom;

/// Slices given to the kernel with one call.
const SLICES_MAX: usize = 64;

/// The smallest buffer taken for bytes that have to be copied.
const COPY_BYTES_MIN: usize = 4 * 1024;

/// Received bytes in order. A clone is another reference to the same bytes.
///
/// A payload is an owned list of fragments of receive pages, and of pooled buffers where bytes had
/// to be copied. It may outlive its request and its connection, and be sent to other threads. What
/// is read from the front is given back at once, fragment by fragment; the rest when it is dropped.
///
/// ```
/// use std::io::Read;
///
/// use flatpath::memory::Payload;
///
/// /// What a handler does with a body that has arrived.
/// fn text(mut body: Payload) -> std::io::Result<String> {
///     let mut text = String::with_capacity(body.len());
///     body.read_to_string(&mut text)?; // read in place: `body.parts()`
///     Ok(text)
/// }
/// # assert_eq!(text(Payload::new())?, "");
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Payload {
    parts: VecDeque<Part>,
    bytes: usize,
}

/// Bytes that lie in one place.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Part {
    /// In a receive page.
    Kept(Fragment),
    /// In a pooled buffer, to which they were copied.
    Copied(Copied),
}

/// A part of a pooled buffer, which goes back to its pool with the last reference.
#[derive(Clone, Debug)]
pub struct Copied {
    buffer: Arc<Buffer>,
    from: usize,
    to: usize,
}

impl Part {
    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Part::Kept(fragment) => fragment.bytes(),
            Part::Copied(copied) => &copied.buffer.filled()[copied.from..copied.to],
        }
    }

    fn advance(&mut self, bytes: usize) {
        match self {
            Part::Kept(fragment) => fragment.advance(bytes),
            Part::Copied(copied) => copied.from += bytes,
        }
    }

    fn split_to(&mut self, bytes: usize) -> Part {
        let mut front = self.clone();
        match &mut front {
            Part::Kept(fragment) => fragment.truncate(bytes),
            Part::Copied(copied) => copied.to = copied.from + bytes,
        }
        self.advance(bytes);
        front
    }
}

impl Payload {
    /// An empty payload.
    pub fn new() -> Payload {
        Payload::default()
    }

    /// Bytes in all parts together.
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// True when there are none.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// The parts in order.
    pub fn parts(&self) -> impl Iterator<Item = &Part> {
        self.parts.iter()
    }

    /// How many parts there are.
    pub fn parts_count(&self) -> usize {
        self.parts.len()
    }

    /// Appends a fragment without a copy.
    pub fn push(&mut self, fragment: Fragment) {
        self.push_part(Part::Kept(fragment));
    }

    /// Appends a buffer without a copy.
    pub fn push_buffer(&mut self, buffer: Buffer) {
        self.push_part(copied(buffer));
    }

    fn push_part(&mut self, part: Part) {
        let bytes = part.bytes().len();
        if bytes > 0 {
            self.bytes += bytes;
            self.parts.push_back(part);
        }
    }

    /// Appends a copy of `bytes`, all of it or nothing.
    ///
    /// # Errors
    /// [`NoRoom`] when the pool has no buffers for it.
    pub fn push_copy(&mut self, pool: PoolHandle<'_>, bytes: &[u8]) -> Result<(), NoRoom> {
        let mut rest = bytes;
        if let Some(Part::Copied(last)) = self.parts.back_mut()
            && last.to == last.buffer.filled().len()
            && let Some(buffer) = Arc::get_mut(&mut last.buffer)
            && buffer.room() >= rest.len()
        {
            last.to += buffer.append(rest);
            self.bytes += rest.len();
            return Ok(());
        }
        let mut fresh = VecDeque::new();
        while !rest.is_empty() {
            let mut buffer = pool.take(rest.len().max(COPY_BYTES_MIN)).ok_or(NoRoom)?;
            rest = &rest[buffer.append(rest)..];
            fresh.push_back(copied(buffer));
        }
        self.bytes += bytes.len();
        self.parts.append(&mut fresh);
        Ok(())
    }

    /// Moves all of `other` to the end of this.
    pub fn append(&mut self, other: &mut Payload) {
        self.bytes += std::mem::take(&mut other.bytes);
        self.parts.append(&mut other.parts);
    }

    /// Writes everything with as few vectored calls as the kernel allows, and gives each part back
    /// as it is written. One call where there are at most 64 parts and the kernel takes all.
    ///
    /// # Errors
    /// What the writer says; what was written until then is gone from the payload. A writer that
    /// takes nothing is `WriteZero`.
    pub fn write_to(&mut self, out: &mut impl Write) -> io::Result<u64> {
        let mut total = 0;
        while !self.is_empty() {
            let mut slices = [IoSlice::new(&[]); SLICES_MAX];
            let count = self.chunks_vectored(&mut slices);
            match out.write_vectored(&slices[..count]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => {
                    total += written as u64;
                    self.advance(written);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(total)
    }

    /// Takes the first `bytes` off, as a payload of their own. Nothing is copied.
    ///
    /// # Panics
    /// When there are fewer.
    #[must_use]
    pub fn split_to(&mut self, bytes: usize) -> Payload {
        assert!(bytes <= self.bytes, "fewer bytes in the payload");
        let mut front = Payload::new();
        while front.bytes < bytes {
            let Some(first) = self.parts.front_mut() else {
                unreachable!("Y1: bytes imply a part")
            };
            let wanted = bytes - front.bytes;
            let length = first.bytes().len();
            self.bytes -= length.min(wanted);
            if length > wanted {
                front.push_part(first.split_to(wanted));
            } else if let Some(first) = self.parts.pop_front() {
                front.push_part(first);
            }
        }
        front
    }
}

fn copied(buffer: Buffer) -> Part {
    Part::Copied(Copied {
        from: 0,
        to: buffer.filled().len(),
        buffer: Arc::new(buffer),
    })
}

impl Buf for Payload {
    fn remaining(&self) -> usize {
        self.bytes
    }

    fn chunk(&self) -> &[u8] {
        self.parts.front().map_or(&[], Part::bytes)
    }

    fn chunks_vectored<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        let pairs = slices.iter_mut().zip(&self.parts);
        pairs
            .map(|(slice, part)| *slice = IoSlice::new(part.bytes()))
            .count()
    }

    fn advance(&mut self, bytes: usize) {
        assert!(bytes <= self.bytes, "fewer bytes in the payload");
        self.bytes -= bytes;
        let mut left = bytes;
        while left > 0 {
            let Some(front) = self.parts.front_mut() else {
                unreachable!("Y1: bytes imply a part")
            };
            let length = front.bytes().len();
            if length > left {
                return front.advance(left);
            }
            left -= length;
            self.parts.pop_front();
        }
    }
}

impl Read for Payload {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let bytes = into.len().min(self.bytes);
        self.copy_to_slice(&mut into[..bytes]);
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flatpath_structures::pool::{Pool, PoolConfig};

    fn payload(pool: &Pool, parts: &[&[u8]]) -> Payload {
        let mut payload = Payload::new();
        for part in parts {
            let mut buffer = pool.take(part.len()).expect("room");
            buffer.append(part);
            payload.push_buffer(buffer);
        }
        payload
    }

    fn pool() -> Pool {
        Pool::new(PoolConfig::default())
    }

    #[test]
    fn every_split_leaves_both_halves() {
        let pool = pool();
        let whole = b"abcdefghij";
        for cut in 0..=whole.len() {
            let mut rest = payload(&pool, &[b"abc", b"", b"d", b"efghi", b"j"]);
            assert_eq!(rest.parts_count(), 4, "an empty part is dropped");
            let mut front = rest.split_to(cut);
            assert_eq!((front.len(), rest.len()), (cut, whole.len() - cut));
            assert_eq!(front.clone().chunk(), front.chunk());
            let mut both = vec![];
            front.read_to_end(&mut both).expect("in memory");
            assert_eq!(both, whole[..cut]);
            rest.read_to_end(&mut both).expect("in memory");
            assert_eq!(both, whole);
        }
        assert_eq!(pool.statistics().in_use_bytes, 0);
    }

    #[test]
    fn parts_are_written_with_one_call_and_given_back() {
        /// Takes a few bytes at a time and counts.
        struct Narrow(Vec<u8>, usize, usize);
        impl Write for Narrow {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                self.write_vectored(&[IoSlice::new(bytes)])
            }
            fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
                self.2 += 1;
                let all: Vec<u8> = slices.iter().flat_map(|slice| slice.to_vec()).collect();
                let taken = all.len().min(self.1);
                self.0.extend_from_slice(&all[..taken]);
                Ok(taken)
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let pool = pool();
        for (takes, calls) in [(100, 1), (4, 3), (1, 10)] {
            let mut body = payload(&pool, &[b"abc", b"d", b"efghi", b"j"]);
            let mut out = Narrow(vec![], takes, 0);
            assert_eq!(body.write_to(&mut out).expect("takes some"), 10);
            assert_eq!((out.0.as_slice(), out.2), (&b"abcdefghij"[..], calls));
            assert_eq!(pool.statistics().in_use_bytes, 0);
        }
    }

    #[test]
    fn short_copies_share_a_buffer_and_fail_whole() {
        let pool = Pool::new(PoolConfig {
            classes: vec![4096],
            budget_bytes: 4096,
            ..PoolConfig::default()
        });
        let mut body = Payload::new();
        for _ in 0..4 {
            body.push_copy((&pool).into(), &[7; 1024])
                .expect("one buffer");
        }
        assert_eq!((body.len(), body.parts_count()), (4096, 1));
        assert_eq!(body.push_copy((&pool).into(), b"x"), Err(NoRoom));
        assert_eq!(body.len(), 4096);
    }
}
