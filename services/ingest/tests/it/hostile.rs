//! Consumers that lie, cheat or die: no other notices, and everything comes back.

use std::collections::HashSet;
use std::fs::OpenOptions;
use std::io::Write;
use std::net::Shutdown;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::rig::{Rig, check, message, next, on_every_driver, patience};
use flatpath_consumer::{Attached, Consumer, attach};
use flatpath_driver::simulation::Random;
use flatpath_ingest::Settings;
use flatpath_messages::layout::{
    DESCRIPTOR_WORDS, Descriptor, RETURN_WORDS, Return, announced, announcement,
};
use flatpath_sys::shared_memory::{Access, SharedBytes, SharedWords};
use rustix::net::sockopt::Timeout;
use rustix::net::{AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType};

/// A consumer that does by hand what it likes.
struct Hostile {
    attached: Attached,
    descriptors: SharedWords,
    returns: SharedWords,
    written: usize,
}

impl Hostile {
    fn new(rig: &Rig) -> Hostile {
        let before = rig.ingest.figures().consumers;
        let attached = attach(&rig.socket, 0).expect("attached");
        rig.wait("it is attached", |figures| figures.consumers > before);
        let entries = attached.welcome.entries as usize;
        let words = entries * DESCRIPTOR_WORDS;
        let descriptors = SharedWords::open(&attached.descriptor_ring, words, Access::Read);
        let words = entries * RETURN_WORDS;
        let returns = SharedWords::open(&attached.return_ring, words, Access::Write);
        Hostile {
            descriptors: descriptors.expect("mapped"),
            returns: returns.expect("mapped"),
            attached,
            written: 0,
        }
    }

    /// The first `count` descriptors, which are there.
    fn read(&self, count: usize) -> Vec<Descriptor> {
        let entry = |at: usize| {
            std::array::from_fn(|word| self.descriptors.load(at * DESCRIPTOR_WORDS + word))
        };
        (0..count).map(|at| Descriptor::of(entry(at))).collect()
    }

    fn write(&mut self, words: [u64; RETURN_WORDS]) {
        let entries = self.attached.welcome.entries as usize;
        let place = self.written % entries * RETURN_WORDS;
        for (word, value) in words.into_iter().enumerate() {
            self.returns.store(place + word, value);
        }
        self.written += 1;
    }

    fn give_back(&mut self, token: u64) {
        self.write(Return { token, region: 0 }.words());
        self.tell(&[1]);
    }

    fn tell(&self, bytes: &[u8]) {
        // A doorbell that is closed or full: the server has had enough.
        let _ = rustix::io::write(&self.attached.return_doorbell, bytes);
    }
}

/// A consumer beside the hostile one, and a producer that is assigned to each.
struct Pair {
    hostile: Hostile,
    honest: Consumer,
    to_hostile: crate::rig::Producer,
    to_honest: crate::rig::Producer,
}

fn pair(rig: &Rig) -> Pair {
    let hostile = Hostile::new(rig);
    let honest = rig.consumer();
    let (mut to_hostile, mut to_honest) = (rig.producer(), rig.producer());
    for number in 0..4 {
        to_hostile.send(&message(1, number, 100));
        rig.wait("a message for the hostile one", |figures| {
            figures.messages == u64::from(number) + 1
        });
    }
    to_honest.send(&message(2, 0, 100));
    rig.wait("a message for the honest one", |figures| {
        figures.messages == 5
    });
    Pair {
        hostile,
        honest,
        to_hostile,
        to_honest,
    }
}

/// The honest consumer has felt nothing, and everything comes back.
fn nothing_else_happened(rig: &Rig, mut honest: Consumer, mut to_honest: crate::rig::Producer) {
    assert_eq!(check(&next(&mut honest).to_vec()), (2, 0));
    for number in 1..20 {
        to_honest.send(&message(2, number, 50_000));
        assert_eq!(check(&next(&mut honest).to_vec()), (2, number));
    }
    honest.flush();
    rig.wait_for_rest();
}

#[test]
fn returns_that_are_doubled_forged_stale_or_foreign_are_refused() {
    on_every_driver(Settings::new, |rig| {
        let Pair {
            mut hostile,
            honest,
            mut to_hostile,
            to_honest,
        } = pair(&rig);
        let own: Vec<u64> = hostile.read(4).iter().map(|one| one.token).collect();
        let mut refused = 0;
        let mut expect = |hostile: &mut Hostile, words: [u64; 2], what: &str| {
            hostile.write(words);
            hostile.tell(&[1]);
            refused += 1;
            rig.wait(what, |figures| figures.returns_refused == refused);
            assert_eq!(rig.ingest.figures().fragments_held, 4, "{what}");
        };
        // One real return, so that there is something stale.
        hostile.give_back(own[0]);
        rig.wait("it is returned", |figures| {
            figures.fragments_returned == 1 && figures.fragments_held == 4
        });
        expect(&mut hostile, [own[0], 0], "double");
        for bit in 0..64 {
            let forged = own[1] ^ (1 << bit);
            if !own.contains(&forged) {
                expect(&mut hostile, [forged, 0], "forged");
            }
        }
        for garbage in [0, u64::MAX, 1 << 63, 0xdead_beef] {
            expect(&mut hostile, [garbage, 0], "garbage");
        }
        for region in [1, 63, 1 << 16, u64::MAX] {
            expect(&mut hostile, [own[1], region], "of no region");
        }
        // The token of another consumer: its first holds slot 0 as this one's did.
        let (third, producer, foreign) = {
            let third = Hostile::new(&rig);
            let mut producer = rig.producer();
            producer.send(&message(3, 0, 100));
            rig.wait("assigned to one of three", |figures| {
                figures.fragments_held == 5
            });
            let token = third.read(1)[0].token;
            (third, producer, token)
        };
        assert!(!own.contains(&foreign));
        hostile.write([foreign, 0]);
        hostile.tell(&[1]);
        rig.wait("foreign", |figures| figures.returns_refused == refused + 1);
        drop((third, producer));
        rig.wait("the third one is gone", |figures| {
            figures.consumers == 2 && figures.fragments_held == 4
        });
        // A slot that is used again has another token: the old one is stale.
        to_hostile.send(&message(1, 4, 100));
        rig.wait("a slot is used again", |figures| {
            figures.fragments_held == 5
        });
        hostile.write([own[0], 0]);
        hostile.tell(&[1]);
        rig.wait("stale", |figures| figures.returns_refused == refused + 2);
        assert_eq!(rig.ingest.figures().fragments_held, 5);
        // What is its own it may still return.
        for token in &own[1..] {
            hostile.give_back(*token);
        }
        rig.wait("its own", |figures| figures.fragments_held == 2);
        drop(hostile);
        nothing_else_happened(&rig, honest, to_honest);
    });
}

#[test]
fn a_consumer_that_breaks_the_rules_is_detached_and_taken_back_from() {
    type Offence = (&'static str, fn(&mut Hostile));
    let offences: [Offence; 6] = [
        ("more returns than the ring has", |hostile| {
            hostile.tell(&announcement(hostile.attached.welcome.entries + 1).collect::<Vec<_>>());
        }),
        ("refusals without end", |hostile| {
            for _ in 0..1100 {
                hostile.write([u64::MAX, 0]);
                hostile.tell(&[1]);
            }
        }),
        ("words on the socket", |hostile| {
            let socket = &hostile.attached.socket;
            rustix::net::send(socket, b"hello?", SendFlags::NOSIGNAL).expect("sent");
        }),
        ("a closed return doorbell", |hostile| {
            let (other, _) = rustix::pipe::pipe().expect("a pipe");
            hostile.attached.return_doorbell = other;
        }),
        ("a socket that is shut down", |hostile| {
            let both = rustix::net::Shutdown::Both;
            rustix::net::shutdown(&hostile.attached.socket, both).expect("shut down");
        }),
        ("a killed process", |hostile| {
            let (doorbell, _) = rustix::pipe::pipe().expect("a pipe");
            let (other, _) = rustix::pipe::pipe().expect("a pipe");
            let socket = rustix::net::socket(AddressFamily::UNIX, SocketType::SEQPACKET, None);
            hostile.attached.descriptor_doorbell = doorbell;
            hostile.attached.return_doorbell = other;
            hostile.attached.socket = socket.expect("a socket");
        }),
    ];
    for (what, offend) in offences {
        on_every_driver(Settings::new, |rig| {
            let Pair {
                mut hostile,
                honest,
                to_honest,
                to_hostile,
            } = pair(&rig);
            offend(&mut hostile);
            rig.wait_for_detached(1);
            assert_eq!(rig.ingest.figures().fragments_reclaimed, 4, "{what}");
            let figures = rig.ingest.figures();
            assert_eq!(
                (figures.consumers, figures.fragments_held),
                (1, 1),
                "{what}"
            );
            nothing_else_happened(&rig, honest, to_honest);
            drop(to_hostile);
        });
    }
}

#[test]
fn a_consumer_that_fills_its_own_doorbell_does_not_stop_the_server() {
    on_every_driver(Settings::new, |rig| {
        let Pair {
            hostile,
            honest,
            mut to_hostile,
            to_honest,
        } = pair(&rig);
        // The read end is its own; opened anew for writing it is filled, and made to block.
        let path = format!(
            "/proc/self/fd/{}",
            hostile.attached.descriptor_doorbell.as_raw_fd()
        );
        let mut writer = OpenOptions::new()
            .write(true)
            .open(path)
            .expect("opened anew");
        let flags = rustix::fs::OFlags::NONBLOCK;
        rustix::fs::fcntl_setfl(&writer, flags).expect("its own open file");
        while writer.write(&[255; 4096]).is_ok() {}
        rustix::fs::fcntl_setfl(&writer, rustix::fs::OFlags::empty()).expect("its own");
        to_hostile.send(&message(1, 9, 100));
        rig.wait_for_detached(1);
        nothing_else_happened(&rig, honest, to_honest);
    });
}

#[test]
fn a_return_ring_that_changes_while_it_is_read_harms_no_other() {
    on_every_driver(Settings::new, |rig| {
        let Pair {
            mut hostile,
            honest,
            to_honest,
            to_hostile,
        } = pair(&rig);
        let own: Vec<u64> = hostile.read(4).iter().map(|one| one.token).collect();
        for round in 0..200_u64 {
            // Tell of it first, and write while the server reads.
            hostile.tell(&[4]);
            for token in &own {
                hostile.write([token ^ (round % 3), round % 2]);
            }
        }
        // It gets its own back, or is sent away for telling of too much, or both.
        rig.wait("some were refused or it is sent away", |figures| {
            figures.returns_refused > 0 || figures.consumers == 1
        });
        drop((hostile, to_hostile));
        nothing_else_happened(&rig, honest, to_honest);
    });
}

#[test]
fn nothing_that_is_for_reading_can_be_written() {
    on_every_driver(Settings::new, |rig| {
        let hostile = Hostile::new(&rig);
        let attached = &hostile.attached;
        let files: [&OwnedFd; 2] = [&attached.regions[0], &attached.descriptor_ring];
        for file in files {
            let refused = SharedWords::open(file, 512, Access::Write).expect_err("sealed");
            assert_eq!(refused.kind(), std::io::ErrorKind::PermissionDenied);
            assert_eq!(rustix::io::write(file, b"x"), Err(rustix::io::Errno::PERM));
            let shrunk = rustix::fs::ftruncate(file, 0);
            assert_eq!(shrunk, Err(rustix::io::Errno::PERM));
        }
        let shrunk = rustix::fs::ftruncate(&attached.return_ring, 0);
        assert_eq!(shrunk, Err(rustix::io::Errno::PERM));
        let bytes = attached.welcome.regions[0] as usize;
        assert!(SharedBytes::open(&attached.regions[0], bytes).is_ok());
    });
}

#[test]
fn clients_that_say_nothing_or_nonsense_are_sent_away() {
    on_every_driver(Settings::new, |rig| {
        let knock = |path: &Path| {
            let socket = rustix::net::socket_with(
                AddressFamily::UNIX,
                SocketType::SEQPACKET,
                SocketFlags::CLOEXEC,
                None,
            )
            .expect("a socket");
            let patience = Some(patience());
            rustix::net::sockopt::set_socket_timeout(&socket, Timeout::Recv, patience)
                .expect("a deadline");
            let address = SocketAddrUnix::new(path).expect("a name");
            rustix::net::connect(&socket, &address).expect("connected");
            socket
        };
        let silent = knock(&rig.socket);
        for nonsense in [
            &b"GET / HTTP/1.0\r\n\r\n"[..],
            b"x",
            &[0; 16],
            &[0xff; 4000],
        ] {
            let socket = knock(&rig.socket);
            // It may be sent away before the last of them.
            let _ = rustix::net::send(&socket, nonsense, SendFlags::NOSIGNAL);
            let mut answer = [0; 64];
            let read = rustix::io::read(&socket, &mut answer);
            assert!(
                matches!(read, Ok(0) | Err(rustix::io::Errno::CONNRESET)),
                "{read:?}"
            );
        }
        let mut consumer = rig.consumer();
        let mut producer = rig.producer();
        producer.send(&message(1, 1, 10));
        assert_eq!(check(&next(&mut consumer).to_vec()), (1, 1));
        drop(silent);
    });
}

#[test]
fn as_many_consumers_attach_as_may_and_the_next_is_refused() {
    on_every_driver(Settings::new, |rig| {
        let consumers: Vec<Consumer> = (0..4).map(|_| rig.consumer()).collect();
        let refused = Consumer::attach(&rig.socket).expect_err("full").to_string();
        assert!(refused.contains("as many consumers"), "{refused}");
        drop(consumers);
        rig.wait_for_detached(4);
        rig.consumer();
    });
}

#[test]
fn the_dead_are_taken_back_from_and_what_was_not_delivered_goes_to_the_next() {
    on_every_driver(Settings::new, |rig| {
        let mut first = rig.consumer();
        let mut producer = rig.producer();
        for number in 0..3 {
            producer.send(&message(1, number, 1000));
        }
        let kept: Vec<_> = (0..2).map(|_| next(&mut first)).collect();
        rig.wait("three are delivered", |figures| figures.messages == 3);
        // Half of the fourth is here when the consumer dies.
        let fourth = message(1, 3, 100_000);
        producer
            .stream
            .write_all(&100_000_u32.to_be_bytes())
            .expect("written");
        producer
            .stream
            .write_all(&fourth[..70_000])
            .expect("written");
        rig.wait("it has begun", |figures| figures.pages_with_handlers() > 0);
        drop((first, kept));
        rig.wait_for_detached(1);
        assert_eq!(rig.ingest.figures().fragments_reclaimed, 3, "read or not");
        producer
            .stream
            .write_all(&fourth[70_000..])
            .expect("written");
        let mut second = rig.consumer();
        // At most once: what was delivered is not delivered again, and the rest is not lost.
        assert_eq!(check(&next(&mut second).to_vec()), (1, 3));
        producer.send(&message(1, 4, 10));
        assert_eq!(check(&next(&mut second).to_vec()), (1, 4));
        second.flush();
        rig.wait_for_rest();
    });
}

#[test]
fn producers_that_wait_for_one_that_dies_go_to_the_next() {
    on_every_driver(Settings::new, |rig| {
        let stuck = rig.consumer();
        // Each sends until it is shut down, however much the sockets on the way take.
        let endless = |which: u32| {
            let mut producer = rig.producer();
            let mine = producer.stream.try_clone().expect("cloned");
            let send = move || {
                for number in 0.. {
                    if producer.try_send(&message(which, number, 200_000)).is_err() {
                        break;
                    }
                }
            };
            (mine, std::thread::spawn(send))
        };
        let producers: Vec<_> = (0..4).map(endless).collect();
        rig.wait("all wait", |figures| figures.producer_waits >= 4);
        let delivered = rig.ingest.figures().messages;
        let mut next_one = rig.consumer();
        drop(stuck);
        rig.wait_for_detached(1);
        let mut last: [Option<u32>; 4] = [None; 4];
        for _ in 0..4 {
            let got = next(&mut next_one);
            let (producer, number) = check(&got.to_vec());
            let last = &mut last[producer as usize];
            assert!(
                last.is_none_or(|last| number == last + 1),
                "in order, none twice"
            );
            *last = Some(number);
        }
        assert!(rig.ingest.figures().messages > delivered);
        // Producers that wait are read to their end when there is room.
        for (stream, sender) in producers {
            stream.shutdown(Shutdown::Both).expect("shut down");
            sender.join().expect("no panic");
        }
        let deadline = Instant::now() + patience();
        while rig.ingest.figures().producers > 0 {
            assert!(Instant::now() < deadline, "read to the end");
            let soon = Duration::from_millis(5);
            if let Ok(Some(got)) = next_one.receive_timeout(soon) {
                check(&got.to_vec());
            }
        }
        drop(next_one);
        rig.wait_for_rest();
    });
}

/// Six producers that send until the flag is set; how much that was.
struct Senders {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<u32>>,
}

impl Senders {
    fn new(rig: &Rig) -> Senders {
        let stop = Arc::new(AtomicBool::new(false));
        let start = |which| {
            let (mut producer, stop) = (rig.producer(), Arc::clone(&stop));
            std::thread::spawn(move || {
                let mut number = 0;
                while !stop.load(Ordering::Relaxed) {
                    let length = 8 + (number as usize * 7919) % 90_000;
                    producer.send(&message(which, number, length));
                    number += 1;
                }
                number
            })
        };
        let threads = (0..6).map(start).collect();
        Senders { stop, threads }
    }

    /// Receives what is on its way, and says how many messages were sent.
    fn end(self, rig: &Rig, last: &mut Consumer, seen: &mut HashSet<(u32, u32)>) -> u32 {
        self.stop.store(true, Ordering::Relaxed);
        let deadline = Instant::now() + patience();
        loop {
            assert!(Instant::now() < deadline, "the producers do not end");
            let all_sent = self.threads.iter().all(JoinHandle::is_finished);
            let all_read = all_sent && rig.ingest.figures().producers == 0;
            // Looked at after that: what was read is delivered, and held until it is received.
            let all_received = all_read && rig.ingest.figures().fragments_held == 0;
            match last.receive_timeout(Duration::from_millis(5)) {
                Ok(Some(got)) => assert!(seen.insert(check(&got.to_vec())), "at most once"),
                _ if all_received => break,
                _ => last.flush(),
            }
        }
        self.threads
            .into_iter()
            .map(|one| one.join().expect("no panic"))
            .sum()
    }
}

#[test]
fn model_consumers_that_die_at_random_leave_exact_accounts() {
    const DEATHS: u64 = 60;
    on_every_driver(Settings::new, |rig| {
        let mut random = Random::new(0x5eed);
        let senders = Senders::new(&rig);
        let mut seen = HashSet::new();
        for death in 1..=DEATHS {
            let mut consumer = rig.consumer();
            let mut kept = vec![];
            for _ in 0..random.below(40) {
                let got = next(&mut consumer);
                assert!(
                    seen.insert(check(&got.to_vec())),
                    "at most once, death {death}"
                );
                match random.below(5) {
                    0 | 1 => kept.push(got),
                    2 => kept.clear(),
                    _ => {}
                }
                kept.truncate(3);
            }
            // Its socket closes with the last fragment: that is its death.
            drop((consumer, kept));
            rig.wait_for_detached(death);
            let figures = rig.ingest.figures();
            assert_eq!(
                (figures.consumers, figures.fragments_held),
                (0, 0),
                "death {death}"
            );
        }
        let mut last = rig.consumer();
        let sent = senders.end(&rig, &mut last, &mut seen);
        assert!(seen.len() <= sent as usize);
        last.flush();
        rig.wait_for_rest();
        assert_eq!(rig.ingest.figures().returns_refused, 0);
    });
}

#[test]
fn what_the_doorbell_announces_is_what_was_delivered() {
    on_every_driver(Settings::new, |rig| {
        let hostile = Hostile::new(&rig);
        let mut producer = rig.producer();
        for number in 0..50 {
            producer.send(&message(1, number, 10));
        }
        rig.wait("all are delivered", |figures| figures.messages == 50);
        let mut count = 0;
        let mut bytes = [0; 4096];
        let deadline = Instant::now() + patience();
        while count < 50 {
            assert!(Instant::now() < deadline, "the doorbell announced {count}");
            if let Ok(read) = rustix::io::read(&hostile.attached.descriptor_doorbell, &mut bytes) {
                count += announced(&bytes[..read]);
            }
        }
        assert_eq!(count, 50);
        assert_eq!(
            hostile
                .read(50)
                .iter()
                .filter(|one| one.first && one.last)
                .count(),
            50
        );
    });
}
