//! The consumer against a server that the test plays: what is read, what is given back and when,
//! and what a server that breaks its protocol gets.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use flatpath_consumer::{Attached, Consumer, Error};
use flatpath_messages::handshake::{FAREWELL, MOVED, Welcome};
use flatpath_messages::layout::{
    DESCRIPTOR_WORDS, Descriptor, RETURN_WORDS, Return, announced, announcement,
};
use flatpath_sys::shared_memory::SharedWords;
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, send, socketpair};
use rustix::pipe::{PipeFlags, pipe_with};

const ENTRIES: u32 = 16;
const REGION_BYTES: usize = 4096;

/// The server's half.
struct Server {
    descriptors: SharedWords,
    returns: SharedWords,
    written: usize,
    read: usize,
    descriptor_doorbell: Option<File>,
    return_doorbell: File,
    socket: OwnedFd,
}

fn pair() -> (Server, Consumer) {
    let (region, region_file) = SharedWords::to_write("region", REGION_BYTES / 8).expect("made");
    region.store(1, u64::from_le_bytes(*b"abcdefgh"));
    region.store(256, u64::from_le_bytes(*b"ijklmnop"));
    // A consumer opens nothing that its own process writes to.
    drop(region);
    let words = ENTRIES as usize * DESCRIPTOR_WORDS;
    let (descriptors, descriptor_ring) = SharedWords::to_write("d", words).expect("made");
    let words = ENTRIES as usize * RETURN_WORDS;
    let (returns, return_ring) = SharedWords::to_read("r", words).expect("made");
    let flags = PipeFlags::CLOEXEC | PipeFlags::NONBLOCK;
    let (descriptor_doorbell, ours) = pipe_with(flags).expect("a pipe");
    let (theirs, return_doorbell) = pipe_with(flags).expect("a pipe");
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let (socket, end) =
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).expect("a pair");
    let welcome = Welcome {
        entries: ENTRIES,
        message_bytes_max: 1 << 20,
        consumer: 5,
        page_bytes: 1024,
        regions: vec![REGION_BYTES as u64],
    };
    let attached = Attached {
        welcome,
        socket: end,
        regions: vec![region_file],
        descriptor_ring,
        return_ring,
        descriptor_doorbell,
        return_doorbell,
    };
    let server = Server {
        descriptors,
        returns,
        written: 0,
        read: 0,
        descriptor_doorbell: Some(File::from(ours)),
        return_doorbell: File::from(theirs),
        socket,
    };
    (server, Consumer::new(attached).expect("mapped"))
}

impl Server {
    fn write(&mut self, descriptor: Descriptor) {
        let place = self.written % ENTRIES as usize * DESCRIPTOR_WORDS;
        for (word, value) in descriptor.words().into_iter().enumerate() {
            self.descriptors.store(place + word, value);
        }
        self.written += 1;
    }

    fn ring(&mut self, entries: u32) {
        let bytes: Vec<u8> = announcement(entries).collect();
        let bell = self.descriptor_doorbell.as_mut().expect("not closed");
        bell.write_all(&bytes).expect("written");
    }

    /// Delivers a message of one fragment.
    fn deliver(&mut self, token: u64, offset: u64, length: u32) {
        self.write(Descriptor {
            token,
            offset,
            length,
            first: true,
            last: true,
            message_bytes: length,
            ..Descriptor::default()
        });
        self.ring(1);
    }

    /// Ends in order.
    fn stop(&mut self) {
        let sent = send(&self.socket, &FAREWELL, SendFlags::NOSIGNAL);
        assert_eq!(sent, Ok(FAREWELL.len()));
        self.descriptor_doorbell = None;
    }

    /// What was returned and announced.
    fn returned(&mut self) -> Vec<u64> {
        let mut bytes = [0; 4096];
        let count = match self.return_doorbell.read(&mut bytes) {
            Ok(count) => count,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => 0,
            Err(error) => panic!("{error}"),
        };
        let mut tokens = vec![];
        for _ in 0..announced(&bytes[..count]) {
            let place = self.read % ENTRIES as usize * RETURN_WORDS;
            let words = std::array::from_fn(|word| self.returns.load(place + word));
            tokens.push(Return::of(words).expect("a region").token);
            self.read += 1;
        }
        tokens
    }
}

fn within() -> Duration {
    Duration::from_secs(10)
}

#[test]
fn a_message_is_read_where_it_lies_and_given_back_when_dropped() {
    let (mut server, mut consumer) = pair();
    let fragment = Descriptor {
        message_bytes: 10,
        producer: 77,
        ..Descriptor::default()
    };
    let (first, last) = (
        Descriptor {
            token: 1,
            offset: 10,
            length: 6,
            first: true,
            ..fragment
        },
        Descriptor {
            token: 2,
            offset: 2048,
            length: 4,
            last: true,
            ..fragment
        },
    );
    server.write(first);
    server.write(last);
    server.ring(2);
    let message = consumer
        .receive_timeout(within())
        .expect("fine")
        .expect("a message");
    assert_eq!((message.len(), message.producer()), (10, 77));
    assert_eq!(message.to_vec(), b"cdefghijkl");
    // It is read where it lies: nothing was copied.
    let [first, last] = message.fragments() else {
        panic!("two fragments");
    };
    assert_eq!(last.as_ptr().addr() - first.as_ptr().addr(), 2048 - 10);
    assert_eq!(server.returned(), [0; 0]);
    drop(message);
    consumer.flush();
    assert_eq!(server.returned(), [1, 2]);
}

#[test]
fn a_message_that_is_told_of_in_two_parts_comes_whole() {
    let (mut server, mut consumer) = pair();
    let part = Descriptor {
        length: 1,
        message_bytes: 2,
        ..Descriptor::default()
    };
    server.write(Descriptor {
        first: true,
        ..part
    });
    server.ring(1);
    let nothing = consumer.receive_timeout(Duration::ZERO);
    assert_eq!(nothing.expect_err("half of it"), Error::TimedOut);
    server.write(Descriptor { last: true, ..part });
    server.ring(1);
    let message = consumer
        .receive_timeout(within())
        .expect("fine")
        .expect("a message");
    assert_eq!(message.fragments().len(), 2);
}

#[test]
fn returns_are_gathered_and_told_of_before_waiting_and_at_once_while_waiting() {
    let (mut server, mut consumer) = pair();
    for token in 0..5 {
        server.deliver(token, 0, 1);
    }
    let mut messages = vec![];
    for _ in 0..5 {
        messages.push(
            consumer
                .receive_timeout(within())
                .expect("fine")
                .expect("a message"),
        );
    }
    let kept = messages.pop().expect("the last one");
    for message in messages.drain(..3) {
        drop(message);
    }
    // A batch of this small ring is two: the third return waits.
    assert_eq!(server.returned(), [0, 1]);
    let timed_out = consumer
        .receive_timeout(Duration::ZERO)
        .expect_err("nothing came");
    assert_eq!(timed_out, Error::TimedOut);
    assert_eq!(server.returned(), [2]);

    let waiting = std::thread::spawn(move || consumer.receive_timeout(within()));
    drop(kept);
    drop(messages);
    let mut tokens = vec![];
    // The doorbell announces both returns at once: at the drop or when the wait begins.
    while tokens.len() < 2 {
        let mut waited = [rustix::event::PollFd::new(
            &server.return_doorbell,
            rustix::event::PollFlags::IN,
        )];
        let limit = rustix::event::Timespec {
            tv_sec: 10,
            tv_nsec: 0,
        };
        assert_eq!(
            rustix::event::poll(&mut waited, Some(&limit)),
            Ok(1),
            "a return was lost"
        );
        tokens.extend(server.returned());
    }
    tokens.sort_unstable();
    assert_eq!(tokens, [3, 4]);
    server.stop();
    assert!(waiting.join().expect("no panic").expect("an end").is_none());
}

#[test]
fn the_rings_go_round() {
    let (mut server, mut consumer) = pair();
    for token in 0..u64::from(ENTRIES) * 5 {
        server.deliver(token, token % 8, 1);
        let message = consumer
            .receive_timeout(within())
            .expect("fine")
            .expect("a message");
        drop(message);
        consumer.flush();
        assert_eq!(server.returned(), [token]);
    }
}

#[test]
fn a_server_that_goes_ends_the_stream_after_the_last_message() {
    let (mut server, mut consumer) = pair();
    server.deliver(1, 0, 8);
    server.stop();
    assert!(consumer.receive_timeout(within()).expect("fine").is_some());
    assert!(consumer.receive_timeout(within()).expect("fine").is_none());
    assert!(consumer.receive_timeout(within()).expect("fine").is_none());
}

#[test]
fn a_server_that_is_killed_is_an_error_after_the_last_message() {
    let (mut server, mut consumer) = pair();
    server.deliver(1, 0, 8);
    drop(server);
    assert!(consumer.receive_timeout(within()).expect("fine").is_some());
    for _ in 0..2 {
        assert!(matches!(
            consumer.receive_timeout(within()),
            Err(Error::Lost)
        ));
    }
}

#[test]
fn a_server_that_rings_for_nothing_does_not_keep_a_consumer_beyond_its_time() {
    let (mut server, mut consumer) = pair();
    let bell = server.descriptor_doorbell.as_mut().expect("not closed");
    let fill = |bell: &mut File| std::iter::from_fn(|| bell.write(&[0; 4096]).ok()).sum::<usize>();
    let filled = fill(bell);
    let waited = consumer.receive_timeout(Duration::ZERO);
    assert!(matches!(waited, Err(Error::TimedOut)), "{waited:?}");
    let read = fill(bell);
    assert!(0 < read && read < filled, "{read} of {filled}");
}

#[test]
fn the_attachment_lasts_until_the_last_fragment_is_dropped() {
    let (mut server, mut consumer) = pair();
    server.deliver(1, 0, 8);
    let message = consumer
        .receive_timeout(within())
        .expect("fine")
        .expect("a message");
    drop(consumer);
    let mut byte = [0];
    let read = |server: &Server, byte: &mut [u8]| rustix::io::read(server.socket.as_fd(), byte);
    assert_eq!(read(&server, &mut byte), Err(rustix::io::Errno::AGAIN));
    drop(message);
    assert_eq!(read(&server, &mut byte), Ok(0));
}

#[test]
fn a_server_that_breaks_its_protocol_is_found_out() {
    let broken = |write: &dyn Fn(&mut Server)| {
        let (mut server, mut consumer) = pair();
        write(&mut server);
        match consumer.receive_timeout(within()) {
            Err(Error::Broken(what)) => what,
            other => panic!("{other:?}"),
        }
    };
    let outside = broken(&|server| server.deliver(1, REGION_BYTES as u64, 1));
    assert!(outside.contains("outside"), "{outside}");
    let many = broken(&|server| server.ring(ENTRIES + 1));
    assert!(many.contains("more descriptors"), "{many}");
    let nested = broken(&|server| {
        let first = Descriptor {
            length: 1,
            first: true,
            ..Descriptor::default()
        };
        server.write(first);
        server.write(first);
        server.ring(2);
    });
    assert!(nested.contains("inside"), "{nested}");
    let region = broken(&|server| {
        let elsewhere = Descriptor {
            region: 1,
            length: 1,
            first: true,
            ..Descriptor::default()
        };
        server.write(elsewhere);
        server.ring(1);
    });
    assert!(region.contains("outside"), "{region}");
}

#[test]
fn one_that_was_attached_by_its_caller_stays_with_a_server_that_hands_over() {
    let (mut server, mut consumer) = pair();
    for (word, expected) in [(MOVED, Some(Error::TimedOut)), (FAREWELL, None)] {
        send(&server.socket, &word, SendFlags::NOSIGNAL).expect("sent");
        if word == FAREWELL {
            server.descriptor_doorbell = None;
        }
        let seen = consumer.receive_timeout(Duration::from_millis(20));
        assert_eq!(seen.map(|message| message.is_none()).err(), expected);
    }
}
