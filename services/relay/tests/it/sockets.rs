//! The relay over real sockets, every test on io_uring and on epoll.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use flatpath::{DriverChoice, Error, Limits, Running, Server};
use flatpath_relay::{Relay, Snapshot, Statistics};
use flatpath_testkit::deadline::is_slow;
use flatpath_testkit::{drivers_here, patience};

const SIDE_A: &str = " for side aaaaaaaaaaaaaaaa";
const SIDE_B: &str = " for side bbbbbbbbbbbbbbbb";

struct Site {
    running: Running,
    address: SocketAddr,
    statistics: Arc<Statistics>,
}

impl Site {
    fn new(choice: DriverChoice, relay: Relay, limits: Limits) -> Site {
        let statistics = relay.statistics();
        let server = Server::new()
            .driver(choice)
            .limits(limits)
            .network_threads(2);
        let running = server.listen("127.0.0.1:0", relay).start();
        let running = running.expect("started");
        let address = running.addresses()[0].address;
        Site {
            running,
            address,
            statistics,
        }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).expect("connected");
        stream
            .set_read_timeout(Some(patience()))
            .expect("a deadline");
        stream
            .set_write_timeout(Some(patience()))
            .expect("a deadline");
        stream
    }

    fn say(&self, words: &str) -> TcpStream {
        let mut stream = self.connect();
        stream.write_all(words.as_bytes()).expect("written");
        stream
    }

    /// The same from an address of its own.
    fn say_from(&self, address: [u8; 4], words: &str) -> TcpStream {
        use socket2::{Domain, Socket, Type};
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
        let own = SocketAddr::from((address, 0));
        socket.bind(&own.into()).expect("bound");
        socket.connect(&self.address.into()).expect("connected");
        let mut stream = TcpStream::from(socket);
        stream
            .set_read_timeout(Some(patience()))
            .expect("a deadline");
        stream.write_all(words.as_bytes()).expect("written");
        stream
    }

    /// A client that asks for token number `token` and waits for it to be counted.
    fn wait(&self, token: u8, side: &str) -> TcpStream {
        let before = self.now().waiting;
        let stream = self.say(&please(token, side));
        self.until("it waits", |now| now.waiting == before + 1);
        stream
    }

    fn now(&self) -> Snapshot {
        self.statistics.read()
    }

    fn until(&self, what: &str, holds: impl Fn(&Snapshot) -> bool) {
        let deadline = Instant::now() + patience();
        while !holds(&self.now()) {
            assert!(
                Instant::now() < deadline,
                "never came: {what}: {:?}",
                self.now()
            );
            thread::sleep(Duration::from_millis(1));
        }
    }

    fn end(self) {
        self.running.handle().force();
        match self.running.wait() {
            Ok(()) => {}
            // A forced end waits for a moment only.
            Err(Error::LeftBehind { .. }) if is_slow() => return,
            Err(other) => panic!("no clean end: {other}"),
        }
        let end = self.statistics.read();
        assert_eq!((end.waiting, end.paired), (0, 0), "{end:?}");
    }
}

fn on_both(body: impl Fn(Site)) {
    for choice in drivers_here(DriverChoice::Uring, DriverChoice::Epoll) {
        body(Site::new(choice, Relay::new(), Limits::default()));
    }
}

fn please(token: u8, side: &str) -> String {
    format!("please relay {}{side}\n", format!("{token:02x}").repeat(32))
}

fn hear(stream: &mut TcpStream, expected: &[u8]) {
    let mut heard = vec![0; expected.len()];
    stream.read_exact(&mut heard).expect("in time");
    assert_eq!(
        String::from_utf8_lossy(&heard),
        String::from_utf8_lossy(expected)
    );
}

fn hear_all(stream: &mut TcpStream, expected: &[u8]) {
    let mut heard = Vec::new();
    stream.read_to_end(&mut heard).expect("an orderly end");
    assert_eq!(
        String::from_utf8_lossy(&heard),
        String::from_utf8_lossy(expected)
    );
}

fn is_silent(stream: &TcpStream) -> bool {
    stream.set_nonblocking(true).expect("a socket");
    let read = stream.peek(&mut [0; 9]);
    stream.set_nonblocking(false).expect("a socket");
    read.is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
}

#[test]
fn two_clients_with_one_token_are_connected() {
    on_both(|site| {
        for (first, second) in [("", ""), (SIDE_A, SIDE_B), ("", SIDE_A), (SIDE_B, "")] {
            let mut one = site.wait(7, first);
            assert!(is_silent(&one));
            let mut other = site.say(&please(7, second));
            hear(&mut one, b"ok\n");
            hear(&mut other, b"ok\n");
            one.write_all(b"there").expect("open");
            hear(&mut other, b"there");
            other.write_all(b"back").expect("open");
            hear(&mut one, b"back");
            drop((one, other));
            site.until("the token is free", |now| now.paired == 0);
        }
        assert_eq!(site.now().matched, 4);
        assert!(site.now().waited > Duration::ZERO && site.now().waited_max <= site.now().waited);
        site.end();
    });
}

#[test]
fn other_tokens_do_not_meet() {
    on_both(|site| {
        let one = site.wait(1, "");
        let other = site.wait(2, "");
        assert!(is_silent(&one) && is_silent(&other));
        site.end();
    });
}

#[test]
fn a_handshake_may_come_byte_by_byte() {
    on_both(|site| {
        let mut one = site.connect();
        for byte in please(1, SIDE_A).bytes() {
            one.write_all(&[byte]).expect("open");
        }
        let mut other = site.say(&please(1, SIDE_B));
        hear(&mut one, b"ok\n");
        hear(&mut other, b"ok\n");
        site.end();
    });
}

#[test]
fn a_bad_handshake_is_answered_and_closed() {
    on_both(|site| {
        let digits = "0".repeat(64);
        for words in [
            "hello\n".to_owned(),
            "\n".to_owned(),
            format!("please relay {}\n", &digits[1..]),
            format!("please relay {digits}\r\n"),
            format!("please relay {digits} for side short\n"),
            "x".repeat(5_000),
        ] {
            hear_all(&mut site.say(&words), b"bad handshake\n");
        }
        assert_eq!(site.now().bad, 6);
        site.end();
    });
}

#[test]
fn one_that_speaks_while_it_waits_is_impatient_and_forgotten() {
    on_both(|site| {
        let mut late = site.wait(1, "");
        late.write_all(b"early").expect("open");
        hear_all(&mut late, b"impatient\n");
        hear_all(&mut site.say(&(please(1, "") + "early")), b"impatient\n");
        site.until("both are forgotten", |now| now.waiting == 0);
        assert_eq!(site.now().impatient, 2);
        // The next two meet each other and no other.
        let mut one = site.wait(1, "");
        let mut other = site.say(&please(1, ""));
        hear(&mut one, b"ok\n");
        hear(&mut other, b"ok\n");
        site.end();
    });
}

#[test]
fn what_the_second_sends_after_its_handshake_goes_to_the_first() {
    on_both(|site| {
        let mut one = site.wait(1, SIDE_A);
        let mut other = site.say(&(please(1, SIDE_B) + "at once"));
        hear(&mut one, b"ok\nat once");
        hear(&mut other, b"ok\n");
        site.end();
    });
}

#[test]
fn one_that_leaves_is_forgotten_at_once() {
    on_both(|site| {
        for leave in [
            |stream: TcpStream| drop(stream),
            |stream: TcpStream| stream.shutdown(Shutdown::Write).expect("open"),
            |stream: TcpStream| {
                let linger = Some(Duration::ZERO);
                socket2::SockRef::from(&stream)
                    .set_linger(linger)
                    .expect("a socket");
            },
        ] {
            leave(site.wait(1, ""));
            site.until("it is forgotten", |now| now.waiting == 0);
        }
        assert_eq!(site.now().unmatched, 3);
        let next = site.wait(1, "");
        assert!(is_silent(&next), "no client is there to meet");
        site.end();
    });
}

#[test]
fn a_third_client_is_let_go_and_changes_nothing() {
    on_both(|site| {
        let mut one = site.wait(1, "");
        let mut other = site.say(&please(1, ""));
        hear(&mut one, b"ok\n");
        hear(&mut other, b"ok\n");
        hear_all(&mut site.say(&please(1, "")), b"taken\n");
        hear_all(&mut site.say(&please(1, SIDE_A)), b"taken\n");
        assert_eq!(site.now().refused, 2);
        one.write_all(b"still").expect("open");
        hear(&mut other, b"still");
        site.end();
    });
}

#[test]
fn connections_of_one_side_wait_for_the_other_and_all_but_one_are_let_go() {
    on_both(|site| {
        let mut same: Vec<_> = (0..4).map(|_| site.wait(1, SIDE_A)).collect();
        assert!(same.iter().all(is_silent));
        let mut other = site.say(&please(1, SIDE_B));
        hear(&mut other, b"ok\n");
        hear(&mut same[0], b"ok\n");
        for spare in &mut same[1..] {
            hear_all(spare, b"");
        }
        site.until("none waits", |now| now.waiting == 0);
        assert_eq!((site.now().redundant, site.now().matched), (3, 1));
        site.end();
    });
}

#[test]
fn a_spare_takes_the_place_of_one_that_left() {
    on_both(|site| {
        let first = site.wait(1, SIDE_A);
        let mut spare = site.wait(1, SIDE_A);
        drop(first);
        site.until("it is forgotten", |now| now.waiting == 1);
        let mut other = site.say(&please(1, SIDE_B));
        hear(&mut other, b"ok\n");
        hear(&mut spare, b"ok\n");
        site.end();
    });
}

#[test]
fn half_close_a_large_stream_and_a_reset_pass() {
    on_both(|site| {
        let mut one = site.wait(1, "");
        let mut other = site.say(&please(1, ""));
        hear(&mut one, b"ok\n");
        hear(&mut other, b"ok\n");
        let stream: Vec<u8> = (0..10_000_000_u32).map(|at| (at / 7) as u8).collect();
        thread::scope(|scope| {
            let mut writer = one.try_clone().expect("cloned");
            let words = &stream;
            scope.spawn(move || {
                writer.write_all(words).expect("taken");
                writer.shutdown(Shutdown::Write).expect("open");
            });
            let mut heard = Vec::new();
            other.read_to_end(&mut heard).expect("an orderly end");
            assert!(heard == stream);
        });
        other.write_all(b"thanks").expect("open");
        hear(&mut one, b"thanks");
        drop((one, other));
        site.until("the token is free", |now| now.paired == 0);
        let one = site.wait(1, "");
        let mut other = site.say(&please(1, ""));
        hear(&mut other, b"ok\n");
        socket2::SockRef::from(&one)
            .set_linger(Some(Duration::ZERO))
            .expect("a socket");
        drop(one);
        let error = other.read(&mut [0; 9]).expect_err("a reset");
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
        site.end();
    });
}

#[test]
fn waiting_clients_are_limited_in_number_and_time() {
    for choice in drivers_here(DriverChoice::Uring, DriverChoice::Epoll) {
        let site = Site::new(choice, Relay::new().waiting_max(2), Limits::default());
        let (mut one, mut two) = (site.wait(1, ""), site.wait(2, ""));
        let mut three = site.say(&please(3, ""));
        hear_all(&mut one, b"busy\n");
        site.until("it has left", |now| (now.waiting, now.displaced) == (2, 1));
        // A partner is not one more.
        let mut other = site.say(&please(2, ""));
        hear(&mut two, b"ok\n");
        hear(&mut other, b"ok\n");
        // The newcomer waits as any other.
        let mut other = site.say(&please(3, ""));
        hear(&mut three, b"ok\n");
        hear(&mut other, b"ok\n");
        assert_eq!((site.now().refused, site.now().waiting), (0, 0));
        site.end();
        let limits = Limits {
            wait_timeout: Duration::from_millis(20),
            ..Limits::default()
        };
        let site = Site::new(choice, Relay::new(), limits);
        hear_all(&mut site.say(&please(1, "")), b"");
        site.until("it is forgotten", |now| now.waiting == 0);
        assert_eq!(site.now().unmatched, 1);
        site.end();
    }
}

/// A client that fills the places pays for newcomers itself; pairs that match need no place.
#[test]
fn one_address_that_fills_the_places_keeps_no_other_client_out() {
    const PLACES: u32 = 8;
    for choice in drivers_here(DriverChoice::Uring, DriverChoice::Epoll) {
        let relay = Relay::new().waiting_max(PLACES);
        let site = Site::new(choice, relay, Limits::default());
        let mut idlers: Vec<TcpStream> = (0..2 * PLACES as u8)
            .map(|token| site.say(&please(100 + token, "")))
            .collect();
        site.until("half of them are displaced", |now| {
            (now.waiting, now.displaced) == (u64::from(PLACES), u64::from(PLACES))
        });
        // From another address of the loopback network.
        let mut waits = site.say_from([127, 0, 0, 2], &please(1, ""));
        site.until("it has taken a place", |now| {
            (now.waiting, now.displaced) == (u64::from(PLACES), u64::from(PLACES) + 1)
        });
        for token in 2..20 {
            let mut one = site.say(&please(token, ""));
            let mut other = site.say_from([127, 0, 0, 3], &please(token, ""));
            hear(&mut one, b"ok\n");
            hear(&mut other, b"ok\n");
        }
        assert!(is_silent(&waits), "it keeps its place");
        let mut partner = site.say(&please(1, ""));
        hear(&mut waits, b"ok\n");
        hear(&mut partner, b"ok\n");
        hear_all(&mut idlers[0], b"busy\n");
        drop(idlers);
        site.end();
    }
}

#[test]
fn a_drain_lets_waiting_clients_go_and_pairs_finish() {
    on_both(|site| {
        let mut one = site.wait(1, "");
        let mut other = site.say(&please(1, ""));
        hear(&mut one, b"ok\n");
        hear(&mut other, b"ok\n");
        let mut alone = site.wait(2, "");
        site.running.handle().drain();
        hear_all(&mut alone, b"");
        one.write_all(b"last words").expect("open");
        drop(one);
        hear_all(&mut other, b"last words");
        drop(other);
        site.running.wait().expect("a clean end");
        assert_eq!(
            (
                site.statistics.read().waiting,
                site.statistics.read().paired
            ),
            (0, 0)
        );
    });
}

#[test]
fn a_forced_end_in_the_middle_of_many_arrivals_leaves_no_client() {
    on_both(|site| {
        let streams: Vec<_> = (0..100).map(|at| site.say(&please(at / 2, ""))).collect();
        site.until("some were connected", |now| now.matched > 10);
        drop(streams);
        site.end();
    });
}
