//! Pages of a file on their way through a pipe to a socket, on every kind of driver.

on_every_driver! {
    #[test] fn pages_arrive_between_the_bytes_around_them;
    #[test] fn a_slow_reader_gets_every_page_and_the_close_behind_them;
    #[test] fn a_cancelled_send_leaves_no_pipe_with_something_in_it;
    #[test] fn a_cancelled_send_writes_no_more_although_there_is_room_again;
    #[test] fn a_peer_that_is_gone_fails_the_send;
}

use std::fs::File;

use flatpath_driver::{Piped, Pipes};

/// A file of `content` in memory.
fn file(content: &[u8]) -> File {
    use rustix::fs::{MemfdFlags, memfd_create};
    let file = memfd_create("flatpath-test", MemfdFlags::CLOEXEC).expect("a memory file");
    let mut file = File::from(file);
    std::io::Write::write_all(&mut file, content).expect("room in memory");
    file
}

fn filled(pipes: &Pipes, file: &File, offset: usize, bytes: usize) -> Piped {
    let piped = pipes
        .splice_file(file, offset as u64, bytes, 0)
        .expect("readable");
    let piped = piped.expect("a pipe is free and takes it");
    assert_eq!(piped.len(), bytes);
    piped
}

#[test]
fn as_many_pipes_as_allowed_are_open_and_full_ones_are_not_kept() {
    let (pipes, file) = (Pipes::new(2), file(&crate::rig::pattern(10_000)));
    let first = filled(&pipes, &file, 0, 10_000);
    let second = filled(&pipes, &file, 1, 9_999);
    assert!(
        pipes
            .splice_file(&file, 0, 1, 0)
            .expect("no error")
            .is_none()
    );
    assert_eq!(pipes.open(), 2);
    drop(first);
    assert_eq!(pipes.open(), 1, "it still held something");
    assert_eq!(
        second.into_bytes().expect("readable"),
        crate::rig::pattern(10_000)[1..]
    );
    assert_eq!(pipes.open(), 1, "it is kept for the next");
}

#[test]
fn what_a_pipe_does_not_take_is_left_to_the_caller() {
    let (pipes, file) = (Pipes::new(1), file(&crate::rig::pattern(5000)));
    assert!(
        pipes
            .splice_file(&file, 0, 64 << 20, 0)
            .expect("no error")
            .is_none()
    );
    let (end, _) = std::os::unix::net::UnixStream::pair().expect("a pair");
    end.set_nonblocking(true).expect("a socket");
    assert!(matches!(
        pipes.splice_file(&end, 0, 10, 0),
        Ok(None) | Err(_)
    ));
    let short = pipes.splice_file(&file, 4000, 5000, 0).expect("readable");
    assert_eq!(short.expect("a pipe").len(), 1000, "the file ends there");
}

#[test]
fn padding_follows_the_pages() {
    let content = crate::rig::pattern(1 << 20);
    let (pipes, file) = (Pipes::new(1), file(&content));
    let length = (1 << 20) - 5001;
    let piped = pipes.splice_file(&file, 1, length, 1).expect("readable");
    let mut piped = piped.expect("a pipe takes it");
    piped.pad(&[7, 8, 9]).expect("room was kept");
    assert_eq!(piped.len(), length + 3);
    let bytes = piped.into_bytes().expect("readable");
    assert!(bytes[..length] == content[1..=length]);
    assert_eq!(bytes[length..], [7, 8, 9]);
}

mod cases {
    use std::fs::File;

    use bytes::Bytes;
    use flatpath_driver::{AfterSend, Driver, Errno, Operation, Outcome, Pipes, Segment, SendList};

    use super::{file, filled};
    use crate::rig::{Make, Rig, pattern, read_exactly, read_to_end, small};

    fn shared(list: &mut SendList, bytes: &'static [u8]) {
        list.push(Bytes::from_static(bytes).into()).expect("room");
    }

    pub(crate) fn pages_arrive_between_the_bytes_around_them<M: Make>(_: &str) {
        let Some(mut rig) = Rig::new::<M>(&small()) else {
            return;
        };
        let (mut client, socket) = rig.pair();
        let content = pattern(300_000);
        let (pipes, file) = (Pipes::new(2), file(&content));
        for (offset, length) in [(0, 1), (4095, 2), (77, 123_456), (4096, 200_000)] {
            let mut list = SendList::new();
            shared(&mut list, b"before ");
            let pages = filled(&pipes, &file, offset, length);
            list.push(Segment::Piped(pages)).expect("room");
            shared(&mut list, b" between ");
            let pages = filled(&pipes, &file, 0, 10);
            list.push(Segment::Piped(pages)).expect("room");
            shared(&mut list, b" after");
            let mut expected = b"before ".to_vec();
            expected.extend_from_slice(&content[offset..offset + length]);
            expected.extend_from_slice(b" between ");
            expected.extend_from_slice(&content[..10]);
            expected.extend_from_slice(b" after");
            client = rig.expect_arrival((socket, client), &mut list, expected);
            assert_eq!(pipes.open(), 2, "both are kept");
        }
    }

    /// The file's pages in eight pipes: of a mebibyte, more than fits into a socket.
    fn eight_times(pipes: &Pipes, file: &File, bytes: usize) -> SendList {
        let mut list = SendList::new();
        for _ in 0..8 {
            let pages = filled(pipes, file, 0, bytes);
            list.push(Segment::Piped(pages)).expect("room");
        }
        list
    }

    pub(crate) fn a_slow_reader_gets_every_page_and_the_close_behind_them<M: Make>(_: &str) {
        let Some(mut rig) = Rig::new::<M>(&small()) else {
            return;
        };
        let (mut client, socket) = rig.pair();
        let content = pattern(1 << 20);
        let (pipes, file) = (Pipes::new(8), file(&content));
        let mut list = eight_times(&pipes, &file, content.len());
        rig.driver.send(socket, 5, &mut list, AfterSend::Close);
        let first = rig.next(5);
        assert!(first.more, "8 MiB do not fit into a socket: {first:?}");
        let Outcome::Sent { bytes: first, .. } = first.outcome else {
            panic!("{first:?}")
        };
        assert!(first > 0);
        let reader = std::thread::spawn(move || read_to_end(&mut client));
        assert_eq!(rig.sent(5), ((8 << 20) - first, true));
        rig.turn();
        let bytes = reader.join().expect("all of it");
        assert_eq!(bytes.len(), 8 << 20);
        assert!(bytes.chunks(1 << 20).all(|chunk| chunk == content));
        assert_eq!(rig.driver.statistics().sockets, 0);
    }

    pub(crate) fn a_cancelled_send_leaves_no_pipe_with_something_in_it<M: Make>(_: &str) {
        let Some(mut rig) = Rig::new::<M>(&small()) else {
            return;
        };
        let (client, socket) = rig.pair();
        let content = pattern(1 << 20);
        let (pipes, file) = (Pipes::new(8), file(&content));
        let mut list = eight_times(&pipes, &file, content.len());
        rig.driver.send(socket, 5, &mut list, AfterSend::KeepOpen);
        assert!(rig.next(5).more, "8 MiB do not fit into a socket");
        rig.driver.cancel(Operation::Send(socket), 5);
        let last = loop {
            let completion = rig.next(5);
            if !completion.more {
                break completion;
            }
        };
        assert!(matches!(last.outcome, Outcome::Failed(Errno::CANCELED)));
        let open = pipes.open();
        assert!(open < 8, "those with something in them are closed");
        for _ in 0..open {
            let again = filled(&pipes, &file, 5, 100);
            let bytes = again.into_bytes().expect("readable");
            assert!(bytes == content[5..105], "the others are empty");
        }
        drop(client);
        rig.driver.abort(socket);
        rig.turn();
    }

    pub(crate) fn a_cancelled_send_writes_no_more_although_there_is_room_again<M: Make>(_: &str) {
        let Some(mut rig) = Rig::new::<M>(&small()) else {
            return;
        };
        let (mut client, socket) = rig.pair();
        let content = pattern(1 << 20);
        let (pipes, file) = (Pipes::new(8), file(&content));
        let mut list = eight_times(&pipes, &file, content.len());
        rig.driver.send(socket, 5, &mut list, AfterSend::KeepOpen);
        let sent = |outcome: &Outcome| match outcome {
            Outcome::Sent { bytes, .. } => *bytes,
            _ => 0,
        };
        let first = rig.next(5);
        assert!(first.more, "8 MiB do not fit into a socket");
        // It waits for room, which the reader makes before the cancel.
        rig.turn();
        let mut bytes = sent(&first.outcome);
        bytes += rig
            .arrived
            .drain(..)
            .map(|it| sent(&it.outcome))
            .sum::<usize>();
        assert!(bytes < 8 << 20);
        read_exactly(&mut client, bytes);
        rig.driver.cancel(Operation::Send(socket), 5);
        let last = rig.next(5);
        assert!(
            matches!(last.outcome, Outcome::Failed(Errno::CANCELED)),
            "{last:?}"
        );
        rig.driver.close(socket);
        rig.turn();
        assert_eq!(read_to_end(&mut client), b"");
    }

    pub(crate) fn a_peer_that_is_gone_fails_the_send<M: Make>(_: &str) {
        let Some(mut rig) = Rig::new::<M>(&small()) else {
            return;
        };
        let (client, socket) = rig.pair();
        drop(client);
        let content = pattern(1 << 20);
        let (pipes, file) = (Pipes::new(1), file(&content));
        // What is sent first may still find room; the peer's reset ends what follows.
        for _ in 0..100 {
            let mut list = SendList::new();
            let pages = filled(&pipes, &file, 0, content.len());
            list.push(Segment::Piped(pages)).expect("room");
            rig.driver.send(socket, 5, &mut list, AfterSend::KeepOpen);
            let last = loop {
                let completion = rig.next(5);
                if !completion.more {
                    break completion;
                }
            };
            if let Outcome::Failed(errno) = last.outcome {
                assert!(
                    matches!(errno, Errno::PIPE | Errno::CONNRESET),
                    "the connection broke: {errno}"
                );
                rig.driver.close(socket);
                rig.turn();
                return;
            }
        }
        panic!("a peer that does not read took a hundred mebibytes");
    }
}
