//! What `h2` reads from and writes to in place of a socket: one input, one buffer of output.
//!
//! The session lends it the bytes that have arrived and a pooled buffer for as long as one call
//! lasts. Where there is nothing to read, or no room, it answers "pending": nothing wakes a task
//! here, the session polls again when there is more.
//!
//! Cost: one copy of the input; output is written once, where it is sent from.

use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use flatpath::memory::Buffer;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

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
        (
            std::mem::take(&mut lent.input),
            std::mem::take(&mut lent.read),
        )
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
