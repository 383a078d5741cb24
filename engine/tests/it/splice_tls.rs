//! Spliced connections with TLS on both drivers: a listener with it and one without, whose clients
//! meet.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use flatpath::tls::rustls::version::TLS13;
use flatpath::{DriverChoice, Limits, Running, Server};
use flatpath_testkit::{patience, until_true};

use crate::knots::Knots;
use crate::lines::on_both;
use crate::tls_client::{TlsClient, VERSIONS, client_config, server_config};

struct Site {
    running: Running,
    secured: SocketAddr,
    plain: SocketAddr,
}

impl Site {
    fn new(choice: DriverChoice) -> Site {
        let knots = Knots::default();
        let server = Server::new()
            .driver(choice)
            .limits(Limits::default())
            .network_threads(2)
            .listen_tls("127.0.0.1:0", &server_config(), knots.clone())
            .listen("127.0.0.1:0", knots);
        let running = server.start().expect("started");
        let addresses = running.addresses();
        Site {
            secured: addresses[0].address,
            plain: addresses[1].address,
            running,
        }
    }

    /// An end with TLS, and one without, that have met.
    fn tied(&self, version: usize) -> (Secured, TcpStream) {
        let mut one = Secured::connect(self.secured, version);
        one.say(b"a\n");
        let mut other = connect(self.plain);
        other.write_all(b"a\n").expect("written");
        assert_eq!(one.hear(5), b"tied\n");
        assert_eq!(hear(&mut other, 5), b"tied\n");
        (one, other)
    }

    fn end(self) {
        self.running.handle().drain();
        self.running.wait().expect("a clean end");
    }
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("connected");
    stream
        .set_read_timeout(Some(patience()))
        .expect("a deadline");
    stream
        .set_write_timeout(Some(patience()))
        .expect("a deadline");
    stream
}

fn hear(stream: &mut TcpStream, bytes: usize) -> Vec<u8> {
    let mut heard = vec![0; bytes];
    stream.read_exact(&mut heard).expect("in time");
    heard
}

fn pattern(bytes: usize, seed: u32) -> Vec<u8> {
    (0..bytes as u32)
        .map(|at| (at ^ seed).wrapping_mul(2_654_435_761).to_be_bytes()[0])
        .collect()
}

/// A client with TLS on a socket that never blocks.
struct Secured {
    socket: TcpStream,
    tls: TlsClient,
    out: Vec<u8>,
    /// The stream of the socket has ended, or it was reset.
    end: Option<std::io::Result<()>>,
}

impl Secured {
    fn connect(address: SocketAddr, version: usize) -> Secured {
        let socket = TcpStream::connect(address).expect("connected");
        socket.set_nonblocking(true).expect("a socket");
        Secured {
            socket,
            tls: TlsClient::new(&client_config(VERSIONS[version])),
            out: Vec::new(),
            end: None,
        }
    }

    /// Sends and reads what can be. False: nothing could.
    fn step(&mut self) -> bool {
        let mut moved = false;
        self.out.append(&mut self.tls.take());
        if !self.out.is_empty()
            && let Ok(count @ 1..) = self.socket.write(&self.out)
        {
            self.out.drain(..count);
            moved = true;
        }
        moved | self.read()
    }

    fn read(&mut self) -> bool {
        let mut bytes = vec![0; 64 * 1024];
        match self.socket.read(&mut bytes) {
            _ if self.end.is_some() => return false,
            Ok(0) => self.end = Some(Ok(())),
            Ok(count) => self.tls.feed(&bytes[..count]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return false,
            Err(error) => self.end = Some(Err(error)),
        }
        true
    }

    fn until(&mut self, mut is_so: impl FnMut(&mut Secured) -> bool) {
        let begin = Instant::now();
        while !is_so(self) {
            assert!(begin.elapsed() < patience(), "in vain");
            if !self.step() {
                thread::sleep(Duration::from_millis(1));
            }
        }
    }

    fn say(&mut self, words: &[u8]) {
        self.until(|it| !it.tls.tls.is_handshaking());
        for chunk in words.chunks(16 * 1024) {
            self.tls.say(chunk);
            self.out.append(&mut self.tls.take());
        }
        self.step();
    }

    fn hear(&mut self, bytes: usize) -> Vec<u8> {
        self.until(|it| it.tls.heard.len() >= bytes);
        self.tls.heard.drain(..bytes).collect()
    }

    fn finish(&mut self) {
        self.tls.tls.send_close_notify();
        self.until(|it| it.out.is_empty() && !it.tls.tls.wants_write());
        self.socket.shutdown(Shutdown::Write).expect("open");
    }

    fn hears_the_end(&mut self) {
        self.until(|it| it.end.is_some());
        assert!(matches!(self.end, Some(Ok(()))), "{:?}", self.end);
        assert!(self.tls.was_told_of_the_end());
    }
}

#[test]
fn bytes_go_both_ways_and_each_end_is_passed_on() {
    on_both(|choice| {
        for version in 0..2 {
            let site = Site::new(choice);
            let (mut one, mut other) = site.tied(version);
            one.say(b"there");
            assert_eq!(hear(&mut other, 5), b"there");
            other.write_all(b"back").expect("open");
            assert_eq!(one.hear(4), b"back");
            one.finish();
            assert_eq!(other.read(&mut [0; 9]).expect("an end"), 0);
            other.write_all(b"the other way goes on").expect("open");
            assert_eq!(one.hear(21), b"the other way goes on");
            other.shutdown(Shutdown::Write).expect("open");
            one.hears_the_end();
            let handle = site.running.handle();
            until_true("both closed", || {
                handle.statistics().connections_closed == 2
            });
            // The other order.
            let (mut one, mut other) = site.tied(version);
            other.shutdown(Shutdown::Write).expect("open");
            one.hears_the_end();
            one.say(b"goes on");
            one.finish();
            assert_eq!(hear(&mut other, 7), b"goes on");
            assert_eq!(other.read(&mut [0; 9]).expect("an end"), 0);
            until_true("all closed", || handle.statistics().connections_closed == 4);
            let statistics = handle.statistics();
            assert_eq!((statistics.spliced_pairs, statistics.unspliced), (2, 2));
            assert_eq!(statistics.spliced_bytes(), 5 + 4 + 21 + 7);
            site.end();
        }
    });
}

#[test]
fn streams_arrive_whole_in_both_directions_at_once() {
    const BYTES: usize = 8_000_000;
    on_both(|choice| {
        let site = Site::new(choice);
        let (mut one, other) = site.tied(1);
        thread::scope(|scope| {
            let mut writer = other.try_clone().expect("cloned");
            scope.spawn(move || {
                writer.write_all(&pattern(BYTES, 2)).expect("taken");
                writer.shutdown(Shutdown::Write).expect("open");
            });
            let mut reader = other.try_clone().expect("cloned");
            let heard = scope.spawn(move || {
                let mut heard = Vec::new();
                reader.read_to_end(&mut heard).expect("to the end");
                heard
            });
            one.say(&pattern(BYTES, 1));
            one.finish();
            assert!(one.hear(BYTES) == pattern(BYTES, 2), "another stream");
            one.hears_the_end();
            let heard = heard.join().expect("heard");
            assert!(heard == pattern(BYTES, 1), "another stream");
        });
        // What is moved by the kernel is not sealed.
        assert_eq!(site.running.handle().statistics().spliced_bytes_moved, 0);
        drop((one, other));
        site.end();
    });
}

#[test]
fn two_ends_with_tls_are_a_pair_too() {
    const BYTES: usize = 2_000_000;
    on_both(|choice| {
        let site = Site::new(choice);
        let mut ends = [0, 1].map(|version| Secured::connect(site.secured, version));
        for end in &mut ends {
            end.say(b"a\n");
        }
        let [one, other] = &mut ends;
        assert_eq!(one.hear(5), b"tied\n");
        assert_eq!(other.hear(5), b"tied\n");
        one.say(&pattern(BYTES, 1));
        other.until(|other| {
            one.step();
            other.tls.heard.len() == BYTES
        });
        assert!(other.tls.heard == pattern(BYTES, 1), "another stream");
        other.finish();
        one.hears_the_end();
        one.finish();
        other.hears_the_end();
        site.end();
    });
}

#[test]
fn a_slow_reader_stops_its_writer_and_holds_a_bounded_part_of_memory() {
    // Queued on the other end in buffers that are half full, a buffer on its way, its records, and
    // a part of one.
    const BOUND: u64 = (2 * 256 + 3 * 64) * 1024;
    const SOME: usize = 64 << 20;
    on_both(|choice| {
        let site = Site::new(choice);
        let handle = site.running.handle();
        let in_use = || handle.pool_statistics().in_use_bytes as u64;
        // With TLS to one that does not read.
        let (mut one, mut other) = site.tied(1);
        let mut said = Vec::new();
        let mut idle_since = Instant::now();
        while idle_since.elapsed() < Duration::from_millis(300) && said.len() < SOME {
            if one.out.is_empty() {
                let chunk = pattern(16 * 1024, said.len() as u32);
                one.tls.say(&chunk);
                said.extend(chunk);
            }
            match one.step() {
                true => idle_since = Instant::now(),
                false => thread::sleep(Duration::from_millis(1)),
            }
            assert!(in_use() <= BOUND, "{} bytes", in_use());
        }
        assert!(said.len() < SOME, "it was never stopped");
        let reader = thread::spawn(move || {
            let mut heard = Vec::new();
            other.read_to_end(&mut heard).expect("to the end");
            heard
        });
        one.finish();
        let heard = reader.join().expect("heard");
        assert!(heard == said, "{} of {} bytes", heard.len(), said.len());
        drop(one);
        until_true("nothing held", || in_use() == 0);
        // To one with TLS that does not read, in bursts: each fills a page and begins a buffer.
        let (mut one, mut other) = site.tied(1);
        other.set_nonblocking(true).expect("a socket");
        let passed = || handle.statistics().spliced_bytes_copied;
        let before = passed();
        let (mut said, mut idle_since) = (Vec::new(), Instant::now());
        while idle_since.elapsed() < Duration::from_millis(300) && said.len() < SOME {
            let chunk = pattern(17 * 1024, said.len() as u32);
            let has_passed = passed() - before == said.len() as u64;
            match has_passed.then(|| other.write(&chunk)) {
                Some(Ok(count)) => {
                    said.extend_from_slice(&chunk[..count]);
                    idle_since = Instant::now();
                }
                _ => thread::sleep(Duration::from_millis(1)),
            }
            assert!(in_use() <= BOUND, "{} bytes", in_use());
        }
        assert!(said.len() < SOME, "it was never stopped");
        other.shutdown(Shutdown::Write).expect("open");
        one.hears_the_end();
        assert!(one.tls.heard == said, "another stream");
        drop((one, other));
        until_true("nothing held", || in_use() == 0);
        site.end();
    });
}

#[test]
fn a_stream_that_is_cut_off_resets_the_other_end() {
    on_both(|choice| {
        let site = Site::new(choice);
        let (mut one, mut other) = site.tied(1);
        one.say(b"a part");
        assert_eq!(hear(&mut other, 6), b"a part");
        one.socket.shutdown(Shutdown::Write).expect("open");
        let error = other.read(&mut [0; 9]).expect_err("a reset");
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
        // So does a record that was changed.
        let (mut one, mut other) = site.tied(1);
        one.tls.say(b"a part");
        let mut record = one.tls.take();
        *record.last_mut().expect("bytes") ^= 1;
        one.out = record;
        one.until(|it| it.tls.broken.is_some());
        let why = one.tls.broken.as_deref().unwrap_or_default();
        assert!(why.contains("BadRecordMac"), "{why}");
        let error = other.read(&mut [0; 9]).expect_err("a reset");
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
        let statistics = site.running.handle().statistics();
        assert_eq!((statistics.tls_broken, statistics.tls_cut_off), (1, 1));
        drop((one, other));
        site.end();
    });
}

#[test]
fn a_reset_of_the_other_end_is_passed_on() {
    on_both(|choice| {
        let site = Site::new(choice);
        let (mut one, other) = site.tied(1);
        socket2::SockRef::from(&other)
            .set_linger(Some(Duration::ZERO))
            .expect("a socket");
        drop(other);
        one.until(|it| it.end.is_some());
        assert!(matches!(one.end, Some(Err(_))), "{:?}", one.end);
        assert!(!one.tls.was_told_of_the_end());
        assert_eq!(TLS13.version, one.tls.tls.protocol_version().expect("one"));
        site.end();
    });
}
