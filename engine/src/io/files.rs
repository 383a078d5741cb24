//! Ranges of files as output.

use flatpath_driver::{FileRange, Segment};

use super::Io;

impl Io<'_> {
    /// Whether ranges of files may be queued: not where records or another connection take the
    /// output, which is read to memory first.
    pub fn sends_files(&self) -> bool {
        !self.connection.is_indirect()
    }

    /// Queues a range of a file: the kernel sends it from its cache, without a copy, window by
    /// window, and nothing is held meanwhile but the open file. What is not in the cache is read by
    /// workers first. It counts as output until it is sent, so what comes after a long one stalls.
    ///
    /// When the file turns out to be shorter, or cannot be read, the connection ends.
    ///
    /// # Errors
    /// The range: this connection does not [send files](Io::sends_files).
    pub fn write_file(&mut self, range: FileRange) -> Result<(), FileRange> {
        if !self.sends_files() {
            return Err(range);
        }
        self.connection.output_mut().push(Segment::File(range));
        Ok(())
    }
}
