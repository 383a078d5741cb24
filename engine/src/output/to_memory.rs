//! Output on its way through memory: connections with TLS make records of it.
//!
//! A file is read to where its record is sealed. That is done on the network thread, as the
//! encryption is, so of a file nothing is read but what is at hand.
//!
//! Cost: one copy.

use std::io;

use flatpath_driver::{FileRange, Segment};

use super::{FILE_PART_BYTES, Output, Window};

impl Output {
    /// Moves the first queued bytes to memory, as many as there is room for, for connections with
    /// TLS: of a file no more than is at hand, so none where [`Output::at_hand`] asks. How many
    /// bytes it was; [`Output::is_sealed`] follows.
    ///
    /// # Errors
    /// A pipe or a file cannot be read; the file knows it.
    pub(crate) fn take_front(&mut self, room: &mut [u8]) -> io::Result<usize> {
        self.seal();
        let mut filled = 0;
        while filled < room.len()
            && let Some(segment) = self.segments.front_mut()
        {
            segment.empty_pipe()?;
            let room = &mut room[filled..];
            let bytes = if let Segment::File(range) = segment {
                take_at_hand(range, &mut self.window, room)?
            } else {
                let memory = segment.memory().unwrap_or_default();
                let bytes = memory.len().min(room.len());
                room[..bytes].copy_from_slice(&memory[..bytes]);
                segment.advance(bytes);
                bytes
            };
            if bytes == 0 {
                break;
            }
            if segment.is_empty() {
                self.segments.pop_front();
            }
            filled += bytes;
        }
        self.waiting_bytes -= filled;
        Ok(filled)
    }
}

/// Reads the front of a range, as far as it is at hand and there is room. Nothing is known of what
/// comes after the window.
fn take_at_hand(range: &mut FileRange, window: &mut Window, room: &mut [u8]) -> io::Result<usize> {
    let Window::AtHand(left) = window else {
        return Ok(0);
    };
    let part = FILE_PART_BYTES as usize;
    let most = room.len().min(usize::from(*left) * part);
    let bytes = range.read(&mut room[..most]);
    let bytes = bytes.inspect_err(|cause| range.file().broke_off(cause))?;
    // Of a part that was begun nothing is counted on.
    let parts = u8::try_from(bytes.div_ceil(part)).unwrap_or(u8::MAX);
    *left = left.saturating_sub(parts);
    if *left == 0 || range.is_empty() {
        *window = Window::Unasked;
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Write as _;
    use std::ops::Range;
    use std::os::fd::{AsFd, BorrowedFd};
    use std::sync::Arc;

    use bytes::Bytes;
    use flatpath_driver::SentFile;

    use super::super::{FILE_WINDOW_BYTES, Taken};
    use super::*;

    /// A file of which all is at hand.
    struct Numbers(File);

    impl SentFile for Numbers {
        fn descriptor(&self) -> BorrowedFd<'_> {
            self.0.as_fd()
        }
        fn is_at_hand(&self, _: Range<u64>) -> bool {
            true
        }
        fn read_ahead(&self, _: Range<u64>, _: Range<u64>) {}
        fn broke_off(&self, _: &io::Error) {}
    }

    #[test]
    fn what_is_moved_to_memory_of_a_file_is_at_hand() {
        let bytes: Vec<u8> = (0..3 * FILE_WINDOW_BYTES)
            .map(|at| (at / 5) as u8)
            .collect();
        let mut file = tempfile::tempfile().expect("a file");
        file.write_all(&bytes).expect("written");
        let range = FileRange::new(Arc::new(Numbers(file)), 1..bytes.len() as u64);
        let mut output = Output::default();
        output.push(Bytes::from_static(b"head").into());
        output.push(Segment::File(range));
        output.push(Bytes::from_static(b"end").into());
        let expected = [b"head", &bytes[1..], b"end"].concat();
        let mut room = vec![0; 100_000];
        let (mut all, mut asked, mut at_hand) = (Vec::new(), 0, 0);
        while output.has_waiting() {
            if let Err(Taken::Asks(window, next)) = output.at_hand() {
                assert!(window.range().start <= at_hand + 1, "nothing is left out");
                assert_eq!(next.range().start, window.range().end);
                // Without an answer nothing of it moves.
                let before = output.take_front(&mut room).expect("readable");
                all.extend_from_slice(&room[..before]);
                assert_eq!(before, if asked == 0 { 4 } else { 0 });
                output.is_at_hand();
                asked += 1;
                at_hand = window.range().end;
            }
            let moved = output.take_front(&mut room).expect("readable");
            assert!(moved > 0);
            all.extend_from_slice(&room[..moved]);
            let read = (all.len() - b"head".len()).min(bytes.len() - 1) as u64;
            assert!(read < at_hand, "{read} bytes of it");
        }
        assert!(all == expected && asked < 5, "{asked} windows");
    }
}
