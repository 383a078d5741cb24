//! Ranges of files as output, output that lasts, and what comes and goes in pipes.

use std::ops::RangeInclusive;

use flatpath_driver::{FileRange, Piped, Segment};

use super::Io;
use crate::limits::{SHARED_COPY_BYTES_MAX, UNSENT_BYTES_MAX};

impl Io<'_> {
    /// Has what comes next lie in a pipe, by reference, if no less than the one bound is there when
    /// it would be received: no more than the other of it
    /// ([`Event::Piped`](crate::Event::Piped)). What is less, or encrypted,
    /// is received as ever. Holds until something has come so, and until [`Io::receive_into`] or
    /// this is called again.
    pub fn receive_piped(&mut self, bytes: Option<RangeInclusive<u32>>) {
        let bytes = bytes.map(RangeInclusive::into_inner);
        self.connection.receive_piped(bytes);
    }

    /// Counts bytes of the body that a job has taken from the stream itself
    /// ([`Piped::refill`](crate::memory::Piped::refill)), when it is back.
    pub fn count_piped(&mut self, bytes: u64) {
        let counters = self.counters();
        counters.received_bytes.add(bytes);
        counters.body_bytes_moved.add(bytes);
        let (now_ns, limits) = (self.common.turn.now_ns, self.limits);
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        self.connection.log_received(bytes);
        self.connection.received(bytes, now_ns, limits);
        self.connection.progress(bytes);
    }

    /// Queues what lies in a pipe; the kernel moves it on without a copy where it can.
    pub fn write_piped(&mut self, piped: Piped) {
        self.connection.output_mut().push(Segment::Piped(piped));
    }

    /// Whether ranges of files may be queued: not where another connection takes the output.
    pub fn sends_files(&self) -> bool {
        !self.connection.is_becoming()
    }

    /// Queues a range of a file: the kernel sends it from its cache, without a copy, window by
    /// window, and nothing is held meanwhile but the open file. With TLS it is read to where its
    /// records are sealed. What is not in the cache is read by workers first. It counts as output
    /// until it is sent, so what comes after a long one stalls.
    ///
    /// A range of up to 8 KiB that is in the cache is copied now, and leaves with the bytes before
    /// it: one system call to read it costs less than one to send it by itself.
    ///
    /// When the file turns out to be shorter, or cannot be read, the connection ends.
    ///
    /// # Errors
    /// The range: this connection does not [send files](Io::sends_files).
    pub fn write_file(&mut self, range: FileRange) -> Result<(), FileRange> {
        if !self.sends_files() {
            return Err(range);
        }
        if self.copies(&range) {
            return Ok(());
        }
        self.connection.output_mut().push(Segment::File(range));
        self.output_lasts();
        Ok(())
    }

    /// Notes that the connection lasts for its output, where that is more than the kernel takes at
    /// once.
    pub(super) fn output_lasts(&mut self) {
        if self.connection.output().queued_bytes() > UNSENT_BYTES_MAX as usize {
            self.common.admission.long_lived.add(self.key.index);
        }
    }

    /// Queues a copy of a short range, if all of it is at hand. What cannot be read is left to the
    /// send, which ends the connection.
    fn copies(&mut self, range: &FileRange) -> bool {
        let length = range.bytes();
        if length > SHARED_COPY_BYTES_MAX as u64 {
            return false;
        }
        let length = length as usize;
        let Some(buffer) = self.reserve(length) else {
            return false;
        };
        let room = &mut buffer.overwrite_mut()[..length];
        let is_there = range.file().copy_at_hand(room, range.range().start);
        if is_there {
            buffer.advance(length);
        }
        is_there
    }
}
