//! The next send of an output: its first segments, or what is to be known before.
//!
//! Replies are in memory, and nearly all of them are taken whole, without a look at each segment
//! for what only files and long ones need.
//!
//! Cost: O(1) for each segment of the send.

use flatpath_driver::{FileRange, Segment, SendList};

use super::window::{FILE_PART_BYTES, FILE_WINDOW_BYTES};
use super::{Output, Width, small, whole};

/// Bytes of a file that one send carries, where more is left than a window and the socket is not
/// wide, or is paced: where the kernel paces (bbr), 2 MiB in one send cost a third more, by its
/// timers; with cubic they cost a tenth less. What is no more than a window goes at once: most of
/// it waits in the socket while its client wakes up.
pub(super) const FILE_SEND_BYTES: u64 = 16 * FILE_PART_BYTES;

/// Bytes of one segment of a send at most: no more is counted than 32 bits hold.
const SEGMENT_BYTES_MAX: u64 = 256 * 1024 * 1024;

/// The outcome of [`Output::take`].
#[derive(Debug)]
#[must_use = "what is to be asked for is not in the list"]
pub(crate) enum Taken {
    /// The list has the next send, which begins with a part of a file or has it after what is in
    /// memory, if it has one.
    Next { has_file: bool },
    /// Nothing was taken: it is to be known first whether this, which comes next, is at hand
    /// ([`Output::is_at_hand`]).
    Asks(FileRange),
    /// Nothing was taken: a worker reads what comes next.
    Reading,
}

impl Output {
    /// Adds the next send to an empty list: as many segments as one send carries, and of a file a
    /// part, with what is in memory before it.
    pub(crate) fn take(&mut self, list: &mut SendList) -> Taken {
        if self.segments.is_empty() {
            // The common case: one reply in one buffer, no queue.
            if let Some(buffer) = self.tail.take() {
                self.in_flight_bytes += small(buffer.filled().len());
                let pushed = list.push(whole(buffer));
                debug_assert!(pushed.is_ok(), "an empty list has room");
            }
            return Taken::Next { has_file: false };
        }
        self.seal();
        match self.at_hand() {
            Ok(None) => {
                self.take_memory(list);
                Taken::Next { has_file: false }
            }
            Ok(Some(bytes)) => {
                self.take_parts(bytes.min(self.file_send_bytes()), list);
                Taken::Next { has_file: true }
            }
            Err(first) => first,
        }
    }

    /// The same where no file is among what one send carries: nearly all of it is taken whole.
    fn take_memory(&mut self, list: &mut SendList) {
        while let Some(segment) = self.segments.pop_front() {
            let bytes = segment.len();
            if bytes as u64 > SEGMENT_BYTES_MAX {
                self.segments.push_front(segment);
                return self.take_parts(0, list);
            }
            if let Err(back) = list.push(segment) {
                self.segments.push_front(back);
                break;
            }
            self.waiting_bytes -= bytes;
            self.in_flight_bytes += small(bytes);
        }
    }

    /// The same with so much of a file at most, and of what is long a part.
    fn take_parts(&mut self, mut at_hand: u64, list: &mut SendList) {
        while let Some(segment) = self.segments.pop_front() {
            let most = match segment {
                Segment::File(_) => at_hand,
                _ => SEGMENT_BYTES_MAX,
            };
            let (taken, left) = segment.cut(most);
            if let Segment::File(range) = &taken {
                at_hand -= range.bytes();
                self.window.took(range.bytes(), left.is_none());
            }
            let bytes = taken.len();
            if let Err(back) = list.push(taken) {
                left.into_iter().for_each(|it| self.segments.push_front(it));
                self.segments.push_front(back);
                break;
            }
            self.waiting_bytes -= bytes;
            self.in_flight_bytes += small(bytes);
            if let Some(left) = left {
                self.segments.push_front(left);
                break;
            }
        }
    }

    /// How much of the first file one send carries at most.
    fn file_send_bytes(&self) -> u64 {
        let takes_windows = self.width == Width::Wide { is_paced: false };
        match self.first_file() {
            Some(range) if range.bytes() > FILE_WINDOW_BYTES && !takes_windows => FILE_SEND_BYTES,
            _ => FILE_WINDOW_BYTES,
        }
    }

    /// How much is at hand of the first file among what the next send takes, if it has one.
    ///
    /// # Errors
    /// What is to be known first, or is awaited.
    pub(crate) fn at_hand(&self) -> Result<Option<u64>, Taken> {
        let Some(range) = self.first_file() else {
            return Ok(None);
        };
        match self.window.at_hand() {
            Some(bytes) => Ok(Some(range.bytes().min(bytes))),
            None if self.window.is_unasked() => Err(Taken::Asks(range.front(FILE_WINDOW_BYTES))),
            None => Err(Taken::Reading),
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    #[test]
    fn of_what_is_long_and_in_memory_a_send_has_a_part() {
        let most = usize::try_from(SEGMENT_BYTES_MAX).expect("64 bits");
        let mut output = Output::default();
        output.push(Bytes::from_static(b"head").into());
        // Zeros that nothing touches take no memory.
        output.push(Bytes::from(vec![0; most + 1]).into());
        output.push(Bytes::from_static(b"end").into());
        for bytes in [4 + most, 1 + 3] {
            let mut list = SendList::new();
            let taken = output.take(&mut list);
            assert!(matches!(taken, Taken::Next { has_file: false }));
            assert_eq!(list.bytes(), bytes);
            output.sent(bytes);
        }
        assert_eq!(output.queued_bytes(), 0);
    }
}
