//! Ranges of a file that the kernel sends, on every kind of driver.

on_every_driver! {
    #[test] fn ranges_arrive_between_the_bytes_around_them;
    #[test] fn ranges_that_begin_beyond_4_gib_arrive;
    #[test] fn a_slow_reader_gets_every_byte_and_the_close_behind_them;
    #[test] fn a_file_that_ends_early_fails_the_send_and_is_told;
    #[test] fn a_cancelled_send_has_left_the_file;
    #[test] fn a_peer_that_is_gone_fails_the_send_and_no_file_is_told;
}

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use flatpath_driver::{FileRange, Segment, SendList, SentFile};

/// A file in memory that counts how often it was told that a send has failed.
pub(crate) struct Told {
    pub(crate) file: File,
    failures: AtomicUsize,
}

impl Told {
    pub(crate) fn new(content: &[u8]) -> Arc<Told> {
        use rustix::fs::{MemfdFlags, memfd_create};
        let file = memfd_create("flatpath-test", MemfdFlags::CLOEXEC).expect("a memory file");
        let file = File::from(file);
        file.write_all_at(content, 0).expect("room in memory");
        Arc::new(Told {
            file,
            failures: AtomicUsize::new(0),
        })
    }

    pub(crate) fn range(self: &Arc<Told>, bytes: Range<u64>) -> FileRange {
        FileRange::new(Arc::clone(self) as _, bytes)
    }

    pub(crate) fn failures(&self) -> usize {
        self.failures.load(Ordering::Relaxed)
    }
}

impl SentFile for Told {
    fn descriptor(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    fn is_at_hand(&self, _: Range<u64>) -> bool {
        true
    }

    fn read_ahead(&self, _: Range<u64>) {}

    fn broke_off(&self, _: &io::Error) {
        self.failures.fetch_add(1, Ordering::Relaxed);
    }
}

pub(crate) fn push(list: &mut SendList, file: &Arc<Told>, bytes: Range<u64>) {
    list.push(Segment::File(file.range(bytes))).expect("room");
}

#[test]
fn a_range_is_read_and_cut_like_the_bytes_it_stands_for() {
    let content = crate::rig::pattern(10_000);
    let file = Told::new(&content);
    let mut range = file.range(100..9_000);
    let front = range.front(1_000);
    assert_eq!((front.bytes(), front.range()), (1_000, 100..1_100));
    range.advance(8_000);
    assert_eq!((range.bytes(), range.is_empty()), (900, false));
    let mut room = [0; 1_000];
    assert_eq!(range.read(&mut room).expect("readable"), 900);
    assert_eq!(room[..900], content[8_100..9_000]);
    assert_eq!(range.read(&mut room).expect("nothing is left"), 0);
    assert!(range.is_empty());
    let mut beyond = file.range(9_999..10_001);
    assert_eq!(beyond.read(&mut room).expect("the last byte"), 1);
    let cause = beyond.read(&mut room).expect_err("the file ends");
    assert_eq!(cause.kind(), io::ErrorKind::UnexpectedEof);
    // Ends before its beginning.
    assert!(file.range(Range { start: 5, end: 3 }).is_empty());
}

mod cases {
    use std::os::unix::fs::FileExt;
    use std::sync::Arc;

    use bytes::Bytes;
    use flatpath_driver::{AfterSend, Driver, Errno, Operation, Outcome, SendList};

    use super::{Told, push};
    use crate::rig::{Make, Rig, pattern, read_exactly, read_to_end, small};

    fn words(list: &mut SendList, bytes: &'static [u8]) {
        list.push(Bytes::from_static(bytes).into()).expect("room");
    }

    pub(crate) fn ranges_arrive_between_the_bytes_around_them<M: Make>(_: &str) {
        let Some(mut rig) = Rig::new::<M>(&small()) else {
            return;
        };
        let (mut client, socket) = rig.pair();
        let content = pattern(300_000);
        let file = Told::new(&content);
        for (offset, length) in [(0, 1), (4095, 2), (77, 123_456), (4096, 200_000)] {
            let mut list = SendList::new();
            words(&mut list, b"before ");
            push(&mut list, &file, offset as u64..(offset + length) as u64);
            words(&mut list, b" between ");
            push(&mut list, &file, 0..10);
            words(&mut list, b" after");
            assert_eq!(list.bytes(), length + 10 + 22);
            let mut expected = b"before ".to_vec();
            expected.extend_from_slice(&content[offset..offset + length]);
            expected.extend_from_slice(b" between ");
            expected.extend_from_slice(&content[..10]);
            expected.extend_from_slice(b" after");
            client = rig.expect_arrival((socket, client), &mut list, expected);
            assert_eq!(Arc::strong_count(&file), 1, "nothing holds the file");
        }
        assert_eq!(file.failures(), 0);
    }

    pub(crate) fn ranges_that_begin_beyond_4_gib_arrive<M: Make>(_: &str) {
        let Some(mut rig) = Rig::new::<M>(&small()) else {
            return;
        };
        let (mut client, socket) = rig.pair();
        // Sparse: but for these bytes, it is holes.
        let file = Told::new(&[]);
        for at in [1 << 31, (1 << 32) + 5, 1 << 43] {
            file.file.write_all_at(b"here", at).expect("written");
            let mut list = SendList::new();
            push(&mut list, &file, at - 3..at + 4);
            rig.driver.send(socket, 5, &mut list, AfterSend::KeepOpen);
            assert_eq!(rig.sent(5), (7, false));
            assert_eq!(read_exactly(&mut client, 7), b"\0\0\0here", "{at}");
        }
        // A range of terabytes, of which a few bytes go.
        let mut list = SendList::new();
        push(&mut list, &file, 0..1 << 43);
        assert_eq!(list.bytes(), 1 << 43);
        rig.driver.send(socket, 5, &mut list, AfterSend::KeepOpen);
        assert!(rig.next(5).more);
        rig.driver.cancel(Operation::Send(socket), 5);
        while rig.next(5).more {}
        rig.driver.abort(socket);
        rig.turn();
    }

    pub(crate) fn a_slow_reader_gets_every_byte_and_the_close_behind_them<M: Make>(_: &str) {
        let Some(mut rig) = Rig::new::<M>(&small()) else {
            return;
        };
        let (mut client, socket) = rig.pair();
        let content = pattern(8 << 20);
        let file = Told::new(&content);
        let mut list = SendList::new();
        words(&mut list, b"head");
        push(&mut list, &file, 0..8 << 20);
        rig.driver.send(socket, 5, &mut list, AfterSend::Close);
        let first = rig.next(5);
        assert!(first.more, "8 MiB do not fit into a socket: {first:?}");
        let Outcome::Sent { bytes: first, .. } = first.outcome else {
            panic!("{first:?}")
        };
        assert!(first > 0);
        let reader = std::thread::spawn(move || read_to_end(&mut client));
        assert_eq!(rig.sent(5), (4 + (8 << 20) - first, true));
        rig.turn();
        let bytes = reader.join().expect("all of it");
        assert!(bytes[..4] == *b"head" && bytes[4..] == content);
        assert_eq!(rig.driver.statistics().sockets, 0);
        assert_eq!((Arc::strong_count(&file), file.failures()), (1, 0));
    }

    pub(crate) fn a_file_that_ends_early_fails_the_send_and_is_told<M: Make>(_: &str) {
        let Some(mut rig) = Rig::new::<M>(&small()) else {
            return;
        };
        let (mut client, socket) = rig.pair();
        let file = Told::new(&pattern(5_000));
        let mut list = SendList::new();
        words(&mut list, b"head");
        push(&mut list, &file, 0..5_001);
        rig.driver.send(socket, 5, &mut list, AfterSend::KeepOpen);
        let (mut bytes, outcome) = (0, loop_until_last(&mut rig));
        bytes += outcome.0;
        assert!(matches!(outcome.1, Outcome::Failed(Errno::IO)));
        assert_eq!((bytes, file.failures()), (5_004, 1));
        assert_eq!(read_exactly(&mut client, 5_004)[4..], pattern(5_000));
        assert_eq!(Arc::strong_count(&file), 1);
        rig.driver.close(socket);
        rig.turn();
        assert_eq!(read_to_end(&mut client), b"", "and nothing made up");
    }

    /// What was sent before the last completion, and that.
    fn loop_until_last<D: Driver>(rig: &mut Rig<D>) -> (usize, Outcome) {
        let mut bytes = 0;
        loop {
            let completion = rig.next(5);
            match completion.outcome {
                Outcome::Sent { bytes: more, .. } if completion.more => bytes += more,
                last => return (bytes, last),
            }
        }
    }

    pub(crate) fn a_cancelled_send_has_left_the_file<M: Make>(_: &str) {
        let Some(mut rig) = Rig::new::<M>(&small()) else {
            return;
        };
        let (client, socket) = rig.pair();
        let file = Told::new(&pattern(8 << 20));
        let mut list = SendList::new();
        push(&mut list, &file, 0..8 << 20);
        rig.driver.send(socket, 5, &mut list, AfterSend::KeepOpen);
        assert!(rig.next(5).more, "8 MiB do not fit into a socket");
        rig.driver.cancel(Operation::Send(socket), 5);
        let (_, last) = loop_until_last(&mut rig);
        assert!(matches!(last, Outcome::Failed(Errno::CANCELED)));
        assert_eq!((Arc::strong_count(&file), file.failures()), (1, 0));
        drop(client);
        rig.driver.abort(socket);
        rig.turn();
    }

    pub(crate) fn a_peer_that_is_gone_fails_the_send_and_no_file_is_told<M: Make>(_: &str) {
        let Some(mut rig) = Rig::new::<M>(&small()) else {
            return;
        };
        let (client, socket) = rig.pair();
        drop(client);
        let file = Told::new(&pattern(1 << 20));
        // What is sent first may still find room; the peer's reset ends what follows.
        for _ in 0..100 {
            let mut list = SendList::new();
            push(&mut list, &file, 0..1 << 20);
            rig.driver.send(socket, 5, &mut list, AfterSend::KeepOpen);
            let (_, last) = loop_until_last(&mut rig);
            if let Outcome::Failed(errno) = last {
                let is_broken = matches!(errno, Errno::PIPE | Errno::CONNRESET);
                assert!(is_broken, "the connection broke: {errno}");
                assert_eq!(file.failures(), 0);
                rig.driver.close(socket);
                rig.turn();
                return;
            }
        }
        panic!("a peer that does not read took a hundred mebibytes");
    }
}
