//! The reply of a worker to one message.
//!
//! Invariants
//! - What is written comes out in its order, shared bytes among it.
//! - A piece is shared, and then longer than `SHARED_COPY_BYTES_MAX`, or was copied before one that
//!   is. What was copied last is in `tail`.
//!
//! The worker makes it outside of any memory budget, so a handler bounds what it writes. On its
//! way to the client it is charged to the connection, and waits while there is no memory.

use std::collections::VecDeque;
use std::io;

use bytes::Bytes;

use crate::error::NoRoom;
use crate::limits::SHARED_COPY_BYTES_MAX;
use crate::protocol::discard::guarded;
use crate::protocol::io::Io;

/// What a worker answers to a message ([`Handler::work`](super::Handler::work)).
///
/// ```
/// use std::io::Write;
///
/// use flatpath::framing::Reply;
///
/// let mut reply = Reply::default();
/// reply.write(b"half of ");
/// // On second thoughts.
/// reply.clear();
/// write!(reply, "ERROR {}\n", 7).expect("a reply takes all");
/// assert_eq!(reply.to_bytes(), b"ERROR 7\n");
/// ```
#[derive(Debug, Default)]
pub struct Reply {
    pieces: VecDeque<Bytes>,
    tail: Vec<u8>,
}

impl Reply {
    /// Appends a copy of `bytes`.
    pub fn write(&mut self, bytes: &[u8]) {
        self.tail.extend_from_slice(bytes);
    }

    /// Appends shared bytes; long ones are not copied.
    pub fn write_shared(&mut self, bytes: Bytes) {
        if bytes.len() <= SHARED_COPY_BYTES_MAX {
            return self.write(&bytes);
        }
        self.cut();
        self.pieces.push_back(guarded(bytes));
    }

    /// Takes back all that was written: for an error in its place.
    pub fn clear(&mut self) {
        self.pieces.clear();
        self.tail.clear();
    }

    /// Bytes that are written.
    #[must_use]
    pub fn len(&self) -> usize {
        let pieces: usize = self.pieces.iter().map(Bytes::len).sum();
        pieces + self.tail.len()
    }

    /// Whether nothing is written.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty() && self.tail.is_empty()
    }

    /// A copy of what is written: for tests of a handler.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let pieces = self.pieces.iter().map(Bytes::as_ref);
        pieces.chain([&*self.tail]).collect::<Vec<_>>().concat()
    }

    /// Makes what was copied so far a piece.
    fn cut(&mut self) {
        if !self.tail.is_empty() {
            self.pieces.push_back(std::mem::take(&mut self.tail).into());
        }
    }

    /// Queues it. What is queued is gone from it, also where the rest finds no room: that is to be
    /// the next that is written to the connection.
    pub(super) fn send(&mut self, io: &mut Io<'_>) -> Result<(), NoRoom> {
        if self.tail.len() > SHARED_COPY_BYTES_MAX {
            self.cut();
        }
        while let Some(piece) = self.pieces.pop_front() {
            match io.hold(piece) {
                Ok(piece) => io.write_held(piece),
                Err(piece) => {
                    self.pieces.push_front(piece);
                    return Err(NoRoom);
                }
            }
        }
        io.write(&self.tail)?;
        self.tail.clear();
        Ok(())
    }
}

/// Appends; never fails.
impl io::Write for Reply {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.tail.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_bytes_stand_where_they_were_written() {
        let mut reply = Reply::default();
        let long = Bytes::from(vec![b'x'; SHARED_COPY_BYTES_MAX + 1]);
        reply.write(b"a");
        reply.write_shared(Bytes::from_static(b"b"));
        reply.write_shared(long.clone());
        reply.write(b"c");
        let expected = [b"ab", &*long, b"c"].concat();
        assert_eq!(reply.len(), expected.len());
        assert!(reply.to_bytes() == expected);
        assert_eq!(reply.pieces.len(), 2, "the long one is not copied");
        reply.clear();
        assert!(reply.is_empty());
        assert_eq!(reply.to_bytes(), b"");
    }
}
