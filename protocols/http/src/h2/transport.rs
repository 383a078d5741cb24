//! What `h2` reads from and writes to in place of a socket: one input, one buffer of output.
//!
//! The session lends it the bytes that have arrived and a pooled buffer for as long as one call
//! lasts. Where there is nothing to read, or no room, it answers "pending": nothing wakes a task
//! here, the session polls again when there is more.
//!
//! It also follows the frames that are read (RFC 9113 section 4.1), as far as deadlines ask:
//! whether a part of a frame or of a header block has arrived.
//!
//! Cost: one copy of the input; output is written once, where it is sent from.

use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use flatpath::memory::Buffer;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::bounds::PREFACE;

/// Both ends of the pair: the session has one, `h2` the other.
#[derive(Clone, Default)]
pub(super) struct Transport(Rc<RefCell<Lent>>);

#[derive(Default)]
struct Lent {
    input: Vec<u8>,
    read: usize,
    output: Option<Buffer>,
    /// More was to be written than there was room for.
    is_full: bool,
    frames: Frames,
}

impl Transport {
    /// Lends a copy of the input, in a vector that is used again.
    pub(super) fn lend_input(&self, mut room: Vec<u8>, input: &[u8]) {
        room.clear();
        room.extend_from_slice(input);
        let mut lent = self.0.borrow_mut();
        (lent.input, lent.read) = (room, 0);
    }

    /// Takes the input back, and says how much of it was read.
    pub(super) fn take_input(&self) -> (Vec<u8>, usize) {
        let mut lent = self.0.borrow_mut();
        (std::mem::take(&mut lent.input), lent.read)
    }

    /// Lends a buffer for output.
    pub(super) fn lend_output(&self, buffer: Buffer) {
        let mut lent = self.0.borrow_mut();
        lent.output = Some(buffer);
        lent.is_full = false;
    }

    /// Whether there is a buffer for output.
    pub(super) fn has_output(&self) -> bool {
        self.0.borrow().output.is_some()
    }

    /// Whether more was to be written than there was room for.
    pub(super) fn is_full(&self) -> bool {
        self.0.borrow().is_full
    }

    /// Takes the buffer back, with what was written.
    pub(super) fn take_output(&self) -> Option<Buffer> {
        self.0.borrow_mut().output.take()
    }

    /// Whether a part of a head has arrived.
    pub(super) fn is_within_head(&self) -> bool {
        self.0.borrow().frames.is_within_head()
    }
}

impl AsyncRead for Transport {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        room: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let lent = &mut *self.0.borrow_mut();
        let rest = &lent.input[lent.read..];
        let bytes = rest.len().min(room.remaining());
        if bytes == 0 {
            return Poll::Pending;
        }
        room.put_slice(&rest[..bytes]);
        lent.frames.advance(&rest[..bytes]);
        lent.read += bytes;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Transport {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.0.borrow_mut().write(&[io::IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.0.borrow_mut().write(slices)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl Lent {
    fn write(&mut self, slices: &[io::IoSlice<'_>]) -> Poll<io::Result<usize>> {
        let mut written = 0;
        for slice in slices {
            let bytes = match &mut self.output {
                Some(output) => output.append(slice),
                None => 0,
            };
            written += bytes;
            if bytes < slice.len() {
                self.is_full = true;
                break;
            }
        }
        match written {
            0 if self.is_full => Poll::Pending,
            bytes => Poll::Ready(Ok(bytes)),
        }
    }
}

const FRAME_HEAD_BYTES: usize = 9;
const DATA: u8 = 0x0;
const HEADERS: u8 = 0x1;
const CONTINUATION: u8 = 0x9;
const END_HEADERS: u8 = 0x4;

/// Where in which frame the input is.
struct Frames {
    /// Of the preface.
    preface_left: usize,
    head: [u8; FRAME_HEAD_BYTES],
    head_bytes: usize,
    payload_left: usize,
    /// A header block has begun and not ended.
    is_in_block: bool,
}

impl Default for Frames {
    fn default() -> Self {
        Self {
            preface_left: PREFACE.len(),
            head: [0; FRAME_HEAD_BYTES],
            head_bytes: 0,
            payload_left: 0,
            is_in_block: false,
        }
    }
}

impl Frames {
    fn advance(&mut self, mut input: &[u8]) {
        let preface = self.preface_left.min(input.len());
        self.preface_left -= preface;
        input = &input[preface..];
        while !input.is_empty() {
            let payload = self.payload_left.min(input.len());
            self.payload_left -= payload;
            input = &input[payload..];
            let wanted = (FRAME_HEAD_BYTES - self.head_bytes).min(input.len());
            let end = self.head_bytes + wanted;
            self.head[self.head_bytes..end].copy_from_slice(&input[..wanted]);
            self.head_bytes = end;
            input = &input[wanted..];
            if self.head_bytes == FRAME_HEAD_BYTES {
                self.begin();
            }
        }
    }

    fn begin(&mut self) {
        let [a, b, c, kind, flags, ..] = self.head;
        self.payload_left = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
        self.head_bytes = 0;
        if kind == HEADERS || kind == CONTINUATION {
            self.is_in_block = flags & END_HEADERS == 0;
        }
    }

    fn is_within_head(&self) -> bool {
        let kind = self.head[3];
        self.preface_left > 0
            || self.head_bytes > 0
            || self.is_in_block
            || self.payload_left > 0 && kind != DATA
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partial_heads_are_seen_at_every_byte() {
        let headers = [0, 0, 2, HEADERS, 0, 0, 0, 0, 1, b'x', b'y'];
        let rest = [0, 0, 1, CONTINUATION, END_HEADERS, 0, 0, 0, 1, b'z'];
        let data = [0, 0, 3, DATA, 0, 0, 0, 0, 1, 1, 2, 3];
        let mut frames = Frames::default();
        frames.advance(&PREFACE[..20]);
        assert!(frames.is_within_head());
        frames.advance(&PREFACE[20..]);
        assert!(!frames.is_within_head());
        let head = [&headers[..], &rest].concat();
        for (at, byte) in head.iter().enumerate() {
            frames.advance(&[*byte]);
            assert_eq!(frames.is_within_head(), at + 1 < head.len(), "after {at}");
        }
        for (at, byte) in data.iter().enumerate() {
            frames.advance(&[*byte]);
            assert_eq!(
                frames.is_within_head(),
                at + 1 < FRAME_HEAD_BYTES,
                "after {at}"
            );
        }
        frames.advance(&[&head[..], &data, &headers].concat());
        assert!(frames.is_within_head(), "its block has no end");
    }
}
