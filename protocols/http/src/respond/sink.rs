//! Where bytes of a reply are written: scratch space that its owner reuses, or a pooled buffer of
//! fixed size. Both forms of a head are written to these, so this knows neither.

use flatpath::memory::Buffer;

/// Where bytes of a reply are written.
pub(crate) trait Sink {
    fn put(&mut self, bytes: &[u8]);
}

impl Sink for Vec<u8> {
    fn put(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

/// A pooled buffer as a sink: what does not fit is dropped and remembered.
pub(crate) struct Bounded<'a> {
    buffer: &'a mut Buffer,
    overflowed: bool,
}

impl<'a> Bounded<'a> {
    pub(crate) fn new(buffer: &'a mut Buffer) -> Self {
        Self {
            buffer,
            overflowed: false,
        }
    }

    /// Whether everything fitted with `spare_bytes` to spare.
    pub(crate) fn fits(&self, spare_bytes: usize) -> bool {
        !self.overflowed && self.buffer.room() >= spare_bytes
    }
}

impl Sink for Bounded<'_> {
    fn put(&mut self, bytes: &[u8]) {
        self.overflowed |= self.buffer.append(bytes) < bytes.len();
    }
}
