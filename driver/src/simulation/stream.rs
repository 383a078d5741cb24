//! One direction of a simulated connection: bytes in order, under way for a while, then there to
//! read.

use std::collections::VecDeque;
use std::io::Read as _;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Stream {
    bytes: VecDeque<u8>,
    /// How many of `bytes` have arrived.
    arrived: usize,
    /// When the rest arrives, oldest first: time and count.
    under_way: VecDeque<(u64, usize)>,
    /// When the end of the stream arrives.
    end_ns: Option<u64>,
    last_ns: u64,
    /// Bytes read since the beginning.
    read_bytes: u64,
}

impl Stream {
    /// Puts bytes on their way; they arrive at `arrival_ns`, or with what was put on the way
    /// before.
    pub(super) fn write(&mut self, bytes: &[u8], arrival_ns: u64) {
        if bytes.is_empty() {
            return;
        }
        self.last_ns = self.last_ns.max(arrival_ns);
        self.bytes.extend(bytes);
        self.under_way.push_back((self.last_ns, bytes.len()));
    }

    pub(super) fn end(&mut self, arrival_ns: u64) {
        self.last_ns = self.last_ns.max(arrival_ns);
        self.end_ns.get_or_insert(self.last_ns);
    }

    pub(super) fn is_ended_by_writer(&self) -> bool {
        self.end_ns.is_some()
    }

    /// Bytes there to read.
    pub(super) fn readable(&mut self, now_ns: u64) -> usize {
        while let Some((arrival_ns, count)) = self.under_way.front().copied() {
            if arrival_ns > now_ns {
                break;
            }
            self.under_way.pop_front();
            self.arrived += count;
        }
        self.arrived
    }

    /// True when everything was read and the end has arrived.
    pub(super) fn is_over(&mut self, now_ns: u64) -> bool {
        self.readable(now_ns) == 0
            && self.under_way.is_empty()
            && self.end_ns.is_some_and(|end_ns| end_ns <= now_ns)
    }

    /// Bytes written and not read.
    pub(super) fn unread(&self) -> usize {
        self.bytes.len()
    }

    /// Reads as much as fits and has arrived.
    pub(super) fn read(&mut self, now_ns: u64, space: &mut [u8]) -> usize {
        let count = self.readable(now_ns).min(space.len());
        let all = self.bytes.read_exact(&mut space[..count]);
        all.expect("there are at least as many");
        self.arrived -= count;
        self.read_bytes += count as u64;
        count
    }

    /// Bytes that the reader's kernel has acknowledged, with a receive buffer of `buffer_bytes`.
    pub(super) fn acked(&mut self, now_ns: u64, buffer_bytes: usize) -> u64 {
        self.read_bytes + self.readable(now_ns).min(buffer_bytes) as u64
    }

    /// Drops what was not read.
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.under_way.clear();
        self.arrived = 0;
    }

    /// When something arrives next, after now.
    pub(super) fn next_ns(&self, now_ns: u64) -> Option<u64> {
        let bytes = self.under_way.front().map(|(arrival_ns, _)| *arrival_ns);
        bytes
            .or(self.end_ns)
            .filter(|arrival_ns| *arrival_ns > now_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_arrive_in_order_and_not_before_their_time() {
        let mut stream = Stream::default();
        let mut space = [0; 8];
        stream.write(b"abc", 10);
        stream.write(b"def", 5);
        stream.end(7);
        assert_eq!(stream.read(9, &mut space), 0);
        assert_eq!(stream.next_ns(9), Some(10));
        assert_eq!(
            stream.read(10, &mut space),
            6,
            "the later write does not overtake"
        );
        assert_eq!(&space[..6], b"abcdef");
        assert!(stream.is_over(10));
    }

    #[test]
    fn bytes_that_lie_in_two_parts_of_the_queue_are_read_at_once() {
        let (mut stream, mut space) = (Stream::default(), [0; 64]);
        stream.write(&[0; 40], 0);
        let room = stream.bytes.capacity();
        assert_eq!(stream.read(0, &mut space[..30]), 30);
        let rest: Vec<u8> = (1..).take(room - 20).collect();
        stream.write(&rest, 0);
        assert!(!stream.bytes.as_slices().1.is_empty(), "it goes round");
        let mut whole = vec![7; room];
        assert_eq!(stream.read(0, &mut whole), 10 + rest.len());
        assert_eq!(whole[..10], [0; 10]);
        assert_eq!(whole[10..10 + rest.len()], rest);
        assert_eq!(whole[10 + rest.len()..], [7; 10], "and no more");
    }

    #[test]
    fn what_has_arrived_and_fits_in_the_readers_buffer_is_acknowledged() {
        let mut stream = Stream::default();
        stream.write(b"abcdef", 10);
        assert_eq!(stream.acked(9, 4), 0, "under way");
        assert_eq!(stream.acked(10, 4), 4, "the buffer is full");
        assert_eq!(stream.read(10, &mut [0; 1]), 1);
        assert_eq!(stream.acked(10, 4), 5, "reading makes room");
    }

    #[test]
    fn the_end_comes_behind_the_bytes() {
        let mut stream = Stream::default();
        stream.write(b"abc", 0);
        stream.end(0);
        assert!(!stream.is_over(0));
        assert_eq!(stream.read(0, &mut [0; 2]), 2);
        assert!(!stream.is_over(0));
        assert_eq!(stream.read(0, &mut [0; 2]), 1);
        assert!(stream.is_over(0));
    }
}
