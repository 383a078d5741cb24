//! Standard error, for the writer thread: it knows whether it is taken from.
//!
//! Before each piece it asks whether the piece will be taken (`poll`), and notes in the queue when
//! it will not, so that the end of the process does not wait for a pipe that no process reads. The
//! descriptor's own mode is left alone: it is shared with other processes.

use std::io::{self, Write};
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::queue::Queue;

/// Bytes that a writable pipe takes without blocking, and at once (`PIPE_BUF`).
const PIECE_BYTES: usize = 4096;

/// See the header.
pub(crate) struct Sink {
    queue: Arc<Queue>,
}

impl Sink {
    pub(crate) fn new(queue: Arc<Queue>) -> Sink {
        Sink { queue }
    }

    /// Waits until standard error takes bytes.
    fn await_room(&self) {
        if is_writable(Some(&Timespec::default())) {
            return;
        }
        self.queue.note_blocked(true);
        while !is_writable(None) {}
        self.queue.note_blocked(false);
    }
}

/// Whether a write would be taken, or fail: both end the wait.
fn is_writable(timeout: Option<&Timespec>) -> bool {
    let stderr = io::stderr();
    let mut asked = [PollFd::new(&stderr, PollFlags::OUT)];
    match poll(&mut asked, timeout) {
        Ok(count) => count > 0,
        Err(rustix::io::Errno::INTR) => false,
        // Writing returns the cause.
        Err(_) => true,
    }
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.await_room();
        io::stderr().write(&bytes[..bytes.len().min(PIECE_BYTES)])
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
