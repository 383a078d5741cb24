//! A send: up to eight segments, each owned until the kernel has taken its bytes.
//!
//! A file leaves in whole packets. Each call for it ends anywhere in one, and so does each time
//! that its socket is full: what is left over would be sent by the next acknowledgement, small, at
//! the cost of a large one. So for as long as a list sends a long file at its end the socket is
//! *corked* (`TCP_CORK`, tcp(7)).
//!
//! Invariants
//! - S1: no segment in a list is empty.
//! - S2: the bytes of a segment do not move in memory while it is in a list, wherever the list
//!   moves.
//! - S3: a socket is corked only while it has a list that is not empty, or is about to be closed:
//!   the call that takes the last bytes is followed by the uncorking, which sends them.
//!
//! Cost: push and advance are O(1) per segment, and allocate nothing. To move a list is to copy
//! hundreds of bytes, so drivers take what is in it instead.

use std::io;
use std::os::fd::BorrowedFd;

use bytes::{Buf, Bytes};
use flatpath_structures::panics::drop_contained;
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags, send, sendmsg, sockopt};

use crate::file_range::{FileRange, move_range};
use crate::pipe::{Piped, move_pipe};
use crate::socket::Mode;

/// Segments in one list at most: a head, a body and their trailers; more is copied or sent next.
pub const SEGMENTS_MAX: usize = 8;

/// A file of more bytes is sent corked: two system calls are less than what the small packets of a
/// shorter one cost.
const UNCORKED_BYTES_MAX: u64 = 256 * 1024;

/// Bytes to send, with their owner until they are sent.
#[derive(Debug)]
#[non_exhaustive]
pub enum Segment {
    /// Counted bytes: a cached file, a constant reply.
    Shared(Shared),
    /// A pooled buffer's bytes `from..to`.
    Pooled {
        /// The buffer.
        buffer: flatpath_structures::pool::Buffer,
        /// The first byte.
        from: u32,
        /// The end, exclusive.
        to: u32,
    },
    /// Bytes in a pipe.
    Piped(Piped),
    /// Bytes of a file.
    File(FileRange),
}

/// Counted bytes to send. They may have an owner with a `Drop` of its own
/// ([`Bytes::from_owner`]), which runs wherever the last count goes, on the driver's thread most
/// often; a panic in it ends there.
#[derive(Debug, Default)]
pub struct Shared(Bytes);

impl From<Bytes> for Shared {
    fn from(bytes: Bytes) -> Shared {
        Shared(bytes)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        drop_contained(std::mem::take(&mut self.0));
    }
}

impl From<Bytes> for Segment {
    fn from(bytes: Bytes) -> Segment {
        Segment::Shared(bytes.into())
    }
}

impl Segment {
    /// How many bytes are left to send.
    pub fn len(&self) -> usize {
        match self {
            Segment::Shared(shared) => shared.0.len(),
            Segment::Pooled { from, to, .. } => (to - from) as usize,
            Segment::Piped(piped) => piped.len(),
            Segment::File(range) => usize::try_from(range.bytes()).unwrap_or(usize::MAX),
        }
    }

    /// True when nothing is left to send.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The rest to send; `None` if it is in a pipe or in a file.
    pub fn memory(&self) -> Option<&[u8]> {
        match self {
            Segment::Shared(shared) => Some(&shared.0),
            Segment::Pooled { buffer, from, to } => {
                Some(&buffer.filled()[*from as usize..*to as usize])
            }
            Segment::Piped(_) | Segment::File(_) => None,
        }
    }

    /// Reads what lies in a pipe to memory.
    ///
    /// # Errors
    /// The kernel's error; nothing is left then.
    pub fn empty_pipe(&mut self) -> io::Result<()> {
        if let Segment::Piped(_) = self
            && let Segment::Piped(piped) = std::mem::replace(self, Bytes::new().into())
        {
            *self = piped.into_bytes()?.into();
        }
        Ok(())
    }

    /// Its first bytes, `bytes_max` at most, and what is left. What is in a pooled buffer or in a
    /// pipe is never so much, and stays whole.
    pub fn cut(self, bytes_max: u64) -> (Segment, Option<Segment>) {
        if self.len() as u64 <= bytes_max {
            return (self, None);
        }
        match self {
            Segment::Shared(mut shared) => {
                // Less than the segment has, so it is a length in memory.
                let front = shared.0.split_to(bytes_max as usize);
                (front.into(), Some(Segment::Shared(shared)))
            }
            Segment::File(mut range) => {
                let front = range.front(bytes_max);
                range.advance(bytes_max);
                (Segment::File(front), Some(Segment::File(range)))
            }
            whole @ (Segment::Pooled { .. } | Segment::Piped(_)) => (whole, None),
        }
    }

    /// Drops `count` bytes from the front, of which there are as many.
    pub fn advance(&mut self, count: usize) {
        match self {
            Segment::Shared(shared) => shared.0.advance(count),
            Segment::Pooled { from, .. } => *from += count as u32,
            Segment::Piped(piped) => piped.moved(count),
            Segment::File(range) => range.advance(count as u64),
        }
    }
}

/// The segments of one send, in order.
#[derive(Debug, Default)]
pub struct SendList {
    segments: [Option<Segment>; SEGMENTS_MAX],
    first: u8,
    end: u8,
    /// The socket is corked (S3).
    is_corked: bool,
    bytes: usize,
}

impl SendList {
    /// An empty list.
    pub fn new() -> SendList {
        SendList::default()
    }

    /// Appends a segment. An empty one is dropped at once.
    ///
    /// # Errors
    /// Gives the segment back when the list has [`SEGMENTS_MAX`] already.
    pub fn push(&mut self, segment: Segment) -> Result<(), Segment> {
        let count = segment.len();
        if count == 0 {
            return Ok(());
        }
        let Some(place) = self.segments.get_mut(usize::from(self.end)) else {
            return Err(segment);
        };
        *place = Some(segment);
        self.end += 1;
        self.bytes += count;
        Ok(())
    }

    /// Takes what is left of another list, which is empty then, into this one, which is.
    pub(crate) fn take_from(&mut self, other: &mut SendList) {
        debug_assert!(self.is_empty(), "a list is used again when it is empty");
        let left = usize::from(other.first)..usize::from(other.end);
        for (place, segment) in self.segments.iter_mut().zip(&mut other.segments[left]) {
            *place = segment.take();
        }
        (self.first, self.end) = (0, other.end - other.first);
        (other.first, other.end) = (0, 0);
        self.is_corked = std::mem::take(&mut other.is_corked);
        self.bytes = std::mem::take(&mut other.bytes);
    }

    /// Drops what is left, as not sent.
    pub(crate) fn clear(&mut self) {
        let left = usize::from(self.first)..usize::from(self.end);
        self.segments[left].fill_with(|| None);
        (self.first, self.end, self.bytes) = (0, 0, 0);
        self.is_corked = false;
    }

    /// Bytes left to send.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Segments left to send.
    pub fn segments(&self) -> usize {
        usize::from(self.end - self.first)
    }

    /// True when nothing is left to send.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// The rest to send, segment by segment, up to the first that is not in memory.
    pub fn slices(&self) -> impl Iterator<Item = &[u8]> {
        self.segments.iter().flatten().map_while(Segment::memory)
    }

    /// True when something of it is not in memory: it is moved by calls of its own.
    pub(crate) fn needs_calls(&self) -> bool {
        let mut left = self.segments.iter().flatten();
        left.any(|segment| matches!(segment, Segment::Piped(_) | Segment::File(_)))
    }

    /// The segment that is sent next.
    pub(crate) fn front(&self) -> Option<&Segment> {
        self.segments.iter().flatten().next()
    }

    /// Moves the front to a socket with one call that does not block for it: what lies in memory
    /// before the first pipe or file, or what is in one of these. Nothing is taken from the list;
    /// returns how many bytes went. `mode` is the mode the socket is in; `closes`: the socket is
    /// closed after the list.
    pub(crate) fn write_front(
        &mut self,
        socket: BorrowedFd<'_>,
        mode: Mode,
        closes: bool,
    ) -> Result<usize, Errno> {
        let is_one = self.segments() == 1;
        match self.front() {
            Some(Segment::Piped(piped)) => {
                return move_pipe(socket, piped, mode, !is_one || closes);
            }
            Some(Segment::File(_)) => return self.write_file(socket, mode),
            _ => {}
        }
        let mut flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        if closes || self.needs_calls() {
            // The next operation, a close, a pipe or a file, takes the last bytes along in one
            // segment.
            flags |= SendFlags::MORE;
        }
        if is_one {
            return send(socket, self.slices().next().unwrap_or_default(), flags);
        }
        let mut vectors = [io::IoSlice::new(&[]); SEGMENTS_MAX];
        let mut count = 0;
        for (vector, bytes) in vectors.iter_mut().zip(self.slices()) {
            *vector = io::IoSlice::new(bytes);
            count += 1;
        }
        let vectors = &vectors[..count];
        sendmsg(socket, vectors, &mut SendAncillaryBuffer::default(), flags)
    }

    /// The same where a file is in front, in whole packets if it is long.
    fn write_file(&mut self, socket: BorrowedFd<'_>, mode: Mode) -> Result<usize, Errno> {
        let Some(Segment::File(range)) = self.segments.iter().flatten().next() else {
            unreachable!("the caller has seen it in front")
        };
        let is_long = range.bytes() > UNCORKED_BYTES_MAX;
        if is_long && !self.is_corked && self.bytes as u64 == range.bytes() {
            // Sockets that are not TCP's have no packets.
            self.is_corked = sockopt::set_tcp_cork(socket, true).is_ok();
        }
        let moved = move_range(socket, range, mode);
        if self.is_corked && moved == Ok(self.bytes) {
            self.is_corked = false;
            // It cannot fail where the other has not.
            let _ = sockopt::set_tcp_cork(socket, false);
        }
        moved
    }

    /// Copies what lies in pipes to memory: for sockets that nothing can be moved to.
    ///
    /// # Errors
    /// The kernel's error.
    #[cfg(feature = "simulation")]
    pub(crate) fn empty_pipes(&mut self) -> io::Result<()> {
        let mut left = self.segments.iter_mut().flatten();
        left.try_for_each(Segment::empty_pipe)
    }

    /// Drops `count` bytes from the front, and with them the segments they end.
    ///
    /// # Panics
    /// When the list has fewer bytes.
    pub(crate) fn advance(&mut self, mut count: usize) {
        assert!(count <= self.bytes, "more bytes sent than there were");
        self.bytes -= count;
        while count > 0 {
            let place = &mut self.segments[usize::from(self.first)];
            let Some(segment) = place else {
                unreachable!("S1: bytes imply a segment")
            };
            let left = segment.len();
            segment.advance(left.min(count));
            if left > count {
                return;
            }
            *place = None;
            self.first += 1;
            count -= left;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::net::{TcpListener, TcpStream};
    use std::ops::Range;
    use std::os::fd::AsFd as _;
    use std::sync::Arc;

    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

    use super::*;
    use crate::file_range::SentFile;
    use crate::testing::patience;

    fn list(parts: &[&'static [u8]]) -> SendList {
        let mut list = SendList::new();
        for part in parts {
            list.push(Bytes::from_static(part).into()).expect("room");
        }
        list
    }

    fn flat(list: &SendList) -> Vec<u8> {
        list.slices().flatten().copied().collect()
    }

    #[test]
    fn advancing_by_any_split_leaves_the_rest() {
        let whole: Vec<u8> = b"abcdefghij".to_vec();
        for first in 0..=whole.len() {
            for second in 0..=whole.len() - first {
                let mut list = list(&[b"abc", b"d", b"efghi", b"j"]);
                list.advance(first);
                assert_eq!(flat(&list), whole[first..]);
                list.advance(second);
                assert_eq!(flat(&list), whole[first + second..]);
                assert_eq!(list.bytes(), whole.len() - first - second);
                assert_eq!(list.is_empty(), list.segments() == 0);
            }
        }
    }

    #[test]
    fn a_segment_is_freed_as_soon_as_it_is_sent() {
        let shared = Bytes::from(vec![7_u8; 10]);
        let mut list = SendList::new();
        list.push(shared.clone().into()).expect("room");
        list.push(Bytes::from_static(b"rest").into()).expect("room");
        assert!(!shared.is_unique());
        list.advance(10);
        assert!(shared.is_unique());
        assert_eq!(flat(&list), b"rest");
    }

    #[test]
    fn a_list_is_used_again_with_what_is_left_of_another() {
        let mut first = list(&[b"1", b"2"]);
        first.clear();
        let mut second = list(&[b"abc", b"d", b"ef"]);
        second.advance(4);
        first.take_from(&mut second);
        assert_eq!((flat(&first), first.bytes()), (b"ef".to_vec(), 2));
        assert_eq!((second.is_empty(), second.segments()), (true, 0));
        second.push(Bytes::from_static(b"g").into()).expect("room");
        assert_eq!((flat(&second), second.segments()), (b"g".to_vec(), 1));
        first.advance(2);
        assert_eq!((first.segments(), first.is_empty()), (0, true));
    }

    #[test]
    fn a_full_list_gives_the_segment_back() {
        let mut list = list(&[b"1", b"2", b"3", b"4", b"5", b"6", b"7", b"8"]);
        let back = list.push(Bytes::from_static(b"9").into());
        assert_eq!(back.expect_err("full").memory(), Some(&b"9"[..]));
        assert_eq!(list.segments(), SEGMENTS_MAX);
        assert_eq!(list.bytes(), 8);
    }

    #[test]
    fn empty_segments_take_no_place() {
        let mut list = SendList::new();
        for _ in 0..20 {
            list.push(Bytes::new().into()).expect("dropped");
        }
        assert!(list.is_empty());
        assert_eq!(list.segments(), 0);
    }

    #[test]
    fn a_pooled_buffer_is_sent_in_part_and_goes_back() {
        use flatpath_structures::pool::{Pool, PoolConfig, Zero};
        let pool = Pool::new(PoolConfig {
            classes: vec![64],
            budget_bytes: 64,
            zero: Zero::WhenLent,
        });
        let mut buffer = pool.take(10).expect("one fits");
        buffer.append(b"0123456789");
        assert!(pool.take(10).is_none(), "the budget is one buffer");
        let mut list = SendList::new();
        list.push(Segment::Pooled {
            buffer,
            from: 2,
            to: 8,
        })
        .expect("room");
        assert_eq!(flat(&list), b"234567");
        list.advance(4);
        assert_eq!(flat(&list), b"67");
        list.advance(2);
        assert!(list.is_empty());
        assert!(pool.take(10).is_some(), "the buffer is back");
    }

    /// Zeros, at hand.
    struct Zeros(std::fs::File);

    impl SentFile for Zeros {
        fn descriptor(&self) -> BorrowedFd<'_> {
            self.0.as_fd()
        }

        fn is_at_hand(&self, _: Range<u64>) -> bool {
            true
        }

        fn read_ahead(&self, _: Range<u64>) {}

        fn broke_off(&self, cause: &io::Error) {
            panic!("{cause}");
        }
    }

    /// A list of some of a file, and of words after it.
    fn file(bytes: u64, after: &'static [u8]) -> SendList {
        let file = memfd_create("flatpath-test", MemfdFlags::CLOEXEC).expect("a memory file");
        ftruncate(&file, bytes).expect("holes");
        let mut list = SendList::new();
        let file = FileRange::new(Arc::new(Zeros(file.into())), 0..bytes);
        list.push(Segment::File(file)).expect("room");
        list.push(Bytes::from_static(after).into()).expect("room");
        list
    }

    /// Writes until the list is empty, or the socket full.
    fn write(list: &mut SendList, socket: &TcpStream) -> Result<(), Errno> {
        while !list.is_empty() {
            let bytes = list.write_front(socket.as_fd(), Mode::Blocking, false)?;
            list.advance(bytes);
        }
        Ok(())
    }

    #[test]
    fn a_long_file_leaves_in_whole_packets_and_the_last_one_at_once() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let mut client = TcpStream::connect(listener.local_addr().expect("bound")).expect("room");
        let (socket, _) = listener.accept().expect("a connection");
        client.set_read_timeout(Some(patience())).expect("a time");
        let is_corked = || sockopt::tcp_cork(&socket).expect("a socket of TCP");
        let mut read = move |bytes: u64| {
            let taken = io::copy(&mut (&mut client).take(bytes), &mut io::sink());
            assert_eq!(taken.expect("as much as was sent"), bytes);
        };
        // More than a socket has room for.
        let mut long = file(64 << 20, b"");
        assert_eq!(write(&mut long, &socket), Err(Errno::AGAIN));
        assert!(is_corked());
        let mut in_use = SendList::new();
        in_use.take_from(&mut long);
        let mut sent = (64 << 20) - in_use.bytes() as u64;
        while !in_use.is_empty() {
            read(sent);
            sent = in_use.bytes() as u64;
            let _ = write(&mut in_use, &socket);
            sent -= in_use.bytes() as u64;
        }
        assert!(!is_corked(), "the last bytes wait for nothing");
        read(sent);
        // A list that is used again knows nothing of the one before.
        let mut dropped = file(64 << 20, b"");
        assert_eq!(write(&mut dropped, &socket), Err(Errno::AGAIN));
        read((64 << 20) - dropped.bytes() as u64);
        dropped.clear();
        assert!(!dropped.is_corked);
        sockopt::set_tcp_cork(&socket, false).expect("a socket of TCP");
        // What is short is not worth the calls, and what comes after a file goes with it.
        for (bytes, after) in [(UNCORKED_BYTES_MAX, b"".as_slice()), (64 << 20, b"after")] {
            let mut list = file(bytes, after);
            let _ = list.write_front(socket.as_fd(), Mode::Blocking, false);
            assert!(!is_corked() && !list.is_corked);
        }
    }

    #[test]
    #[should_panic(expected = "more bytes sent than there were")]
    fn advancing_past_the_end_is_refused() {
        list(&[b"abc"]).advance(4);
    }
}
