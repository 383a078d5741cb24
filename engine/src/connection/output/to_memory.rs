//! Output on its way through memory: connections with TLS make records of it.
//!
//! A file is read to where its record is sealed. That is done on the network thread, as the
//! encryption is, so of a file nothing is read but what is at hand.
//!
//! Cost: one copy.

use std::io;

use flatpath_driver::Segment;

use super::Output;

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
                let at_hand = self.window.at_hand().unwrap_or(0);
                let most = usize::try_from(at_hand)
                    .unwrap_or(usize::MAX)
                    .min(room.len());
                let bytes = range.read(&mut room[..most]);
                let bytes = bytes.inspect_err(|cause| range.file().broke_off(cause))?;
                self.window.took(bytes as u64, range.is_empty());
                bytes
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

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Write as _;
    use std::ops::Range;
    use std::os::fd::{AsFd, BorrowedFd};
    use std::sync::Arc;

    use bytes::Bytes;
    use flatpath_driver::{FileRange, SendList, SentFile};

    use super::super::taking::FILE_SEND_BYTES;
    use super::super::{FILE_WINDOW_BYTES, Taken, Width};
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
        fn read_ahead(&self, _: Range<u64>) {}
        fn broke_off(&self, _: &io::Error) {}
    }

    /// A file of three windows, and an output with all of it but the first byte.
    fn three_windows() -> (Vec<u8>, Output) {
        let numbers = 0..3 * FILE_WINDOW_BYTES;
        let bytes: Vec<u8> = numbers.map(|at| (at / 5) as u8).collect();
        let mut file = tempfile::tempfile().expect("a file");
        file.write_all(&bytes).expect("written");
        let range = FileRange::new(Arc::new(Numbers(file)), 1..bytes.len() as u64);
        let mut output = Output::default();
        output.push(Bytes::from_static(b"head").into());
        output.push(Segment::File(range));
        output.push(Bytes::from_static(b"end").into());
        (bytes, output)
    }

    #[test]
    fn of_a_file_each_send_takes_a_part_and_the_last_window_goes_at_once() {
        for (width, part) in [
            (Width::Narrow, FILE_SEND_BYTES),
            (Width::Wide { is_paced: true }, FILE_SEND_BYTES),
            (Width::Wide { is_paced: false }, FILE_WINDOW_BYTES),
            (Width::Leaving, FILE_SEND_BYTES),
        ] {
            let sends = sends_of_three_windows(width);
            assert_eq!(sends[0], 4 + part, "the head goes with the first");
            let (last, others) = sends.split_last().expect("some");
            assert_eq!(*last, FILE_WINDOW_BYTES - 1 + 3, "the last window");
            assert!(others[1..].iter().all(|bytes| *bytes == part), "{width:?}");
        }
    }

    /// How much each send carries.
    fn sends_of_three_windows(width: Width) -> Vec<u64> {
        let (bytes, mut output) = three_windows();
        output.set_width(width);
        let (mut sends, mut asked, mut all) = (Vec::new(), 0, 0);
        while output.has_waiting() {
            let mut list = SendList::new();
            match output.take(&mut list) {
                Taken::Next { .. } => {
                    all += list.bytes() as u64;
                    sends.push(list.bytes() as u64);
                    output.sent(list.bytes());
                }
                Taken::Asks(window) => {
                    let start = asked * FILE_WINDOW_BYTES + 1;
                    let end = (start + FILE_WINDOW_BYTES).min(bytes.len() as u64);
                    assert_eq!(window.range(), start..end);
                    output.is_at_hand();
                    asked += 1;
                }
                Taken::Reading => panic!("no worker reads"),
            }
        }
        assert_eq!((all, asked), (4 + bytes.len() as u64 - 1 + 3, 3));
        assert_eq!(output.queued_bytes(), 0);
        sends
    }

    #[test]
    fn what_is_moved_to_memory_of_a_file_is_at_hand() {
        let (bytes, mut output) = three_windows();
        let expected = [b"head", &bytes[1..], b"end"].concat();
        let mut room = vec![0; 100_000];
        let (mut all, mut asked, mut at_hand) = (Vec::new(), 0, 0);
        while output.has_waiting() {
            if let Err(Taken::Asks(window)) = output.at_hand() {
                assert!(window.range().start <= at_hand + 1, "nothing is left out");
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
