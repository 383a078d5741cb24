//! Joined connections over real sockets, every test on io_uring and on epoll.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::thread;
use std::time::Duration;

use crate::knots::Knots;
use crate::lines::{cut, on_both};
use flatpath::{DriverChoice, Limits, Running, Server};
use flatpath_testkit::{patience, stretched, until_true};

fn start(choice: DriverChoice, limits: Limits) -> (Running, SocketAddr) {
    let server = Server::new()
        .driver(choice)
        .limits(limits)
        .network_threads(2);
    let running = server
        .listen("127.0.0.1:0", Knots::default())
        .start()
        .expect("started");
    let address = running.addresses()[0].address;
    (running, address)
}

fn end(running: Running) {
    running.handle().drain();
    running.wait().expect("a clean end");
}

fn client(address: SocketAddr, words: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(address).expect("connected");
    stream
        .set_read_timeout(Some(patience()))
        .expect("a deadline");
    stream
        .set_write_timeout(Some(patience()))
        .expect("a deadline");
    stream.write_all(words).expect("written");
    stream
}

fn hear(stream: &mut TcpStream, expected: &[u8]) {
    let mut heard = vec![0; expected.len()];
    stream.read_exact(&mut heard).expect("in time");
    assert_eq!(
        String::from_utf8_lossy(&heard),
        String::from_utf8_lossy(expected)
    );
}

fn tied(address: SocketAddr) -> (TcpStream, TcpStream) {
    let mut one = client(address, b"a\n");
    let mut other = client(address, b"a\n");
    hear(&mut one, b"tied\n");
    hear(&mut other, b"tied\n");
    (one, other)
}

fn pattern(bytes: usize, seed: u32) -> Vec<u8> {
    (0..bytes as u32)
        .map(|at| (at ^ seed).wrapping_mul(2_654_435_761).to_be_bytes()[0])
        .collect()
}

#[test]
fn bytes_go_both_ways_and_each_end_is_passed_on() {
    on_both(|choice| {
        let (running, address) = start(choice, Limits::default());
        let (mut one, mut other) = tied(address);
        one.write_all(b"there").expect("open");
        hear(&mut other, b"there");
        other.write_all(b"back").expect("open");
        hear(&mut one, b"back");
        one.shutdown(Shutdown::Write).expect("open");
        assert_eq!(other.read(&mut [0; 9]).expect("an end"), 0);
        other.write_all(b"the other way goes on").expect("open");
        hear(&mut one, b"the other way goes on");
        other.shutdown(Shutdown::Write).expect("open");
        assert_eq!(one.read(&mut [0; 9]).expect("an end"), 0);
        let handle = running.handle();
        until_true("both closed", || {
            handle.statistics().connections_closed == 2
        });
        assert_eq!(handle.statistics().spliced_pairs, 1);
        assert_eq!(handle.statistics().unspliced, 1);
        assert_eq!(handle.statistics().spliced_bytes(), 5 + 4 + 21);
        assert_eq!(handle.statistics().jobs_dispatched, 0);
        end(running);
    });
}

#[test]
fn streams_arrive_whole_in_both_directions_at_once() {
    on_both(|choice| {
        let (running, address) = start(choice, Limits::default());
        let (one, other) = tied(address);
        let bytes = 20_000_000;
        thread::scope(|scope| {
            for (stream, seed) in [(&one, 1), (&other, 2)] {
                let mut writer = stream.try_clone().expect("cloned");
                scope.spawn(move || {
                    writer.write_all(&pattern(bytes, seed)).expect("taken");
                    writer.shutdown(Shutdown::Write).expect("open");
                });
            }
            for (stream, seed) in [(&one, 2), (&other, 1)] {
                let mut reader = stream.try_clone().expect("cloned");
                scope.spawn(move || {
                    let mut all = Vec::new();
                    reader.read_to_end(&mut all).expect("an orderly end");
                    assert!(all == pattern(bytes, seed), "{} bytes", all.len());
                });
            }
        });
        let handle = running.handle();
        until_true("both closed", || {
            handle.statistics().connections_closed == 2
        });
        assert_eq!(handle.statistics().spliced_bytes(), 2 * bytes as u64);
        let moved = handle.statistics().spliced_bytes_moved;
        assert!(moved > 0, "all of two streams was copied");
        end(running);
    });
}

#[test]
fn what_was_said_behind_the_name_goes_along() {
    on_both(|choice| {
        let (running, address) = start(choice, Limits::default());
        let mut one = client(address, b"a\nearly");
        let mut other = client(address, b"a\nat once");
        hear(&mut one, b"tied\nat once");
        hear(&mut other, b"tied\nearly");
        cut(running);
    });
}

/// This number of clients are answered by the server while a write finds no room, one by one.
const TURNS_REFUSED: u32 = 50;

#[test]
fn a_reader_that_stops_stops_the_writer_and_costs_bounded_memory() {
    on_both(|choice| {
        let (running, address) = start(choice, Limits::default());
        let (mut one, mut other) = tied(address);
        one.set_nonblocking(true).expect("a socket");
        let handle = running.handle();
        // Until the server has had many turns and nothing has moved: all on the way is full.
        let (mut sent, mut refused, mut asked) = (0_usize, 0, 0);
        let chunk = pattern(1 << 16, 3);
        while refused < TURNS_REFUSED {
            match one.write(&chunk[sent % chunk.len()..]) {
                Ok(bytes) => {
                    sent += bytes;
                    refused = 0;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    hear(&mut client(address, b"!\n"), b"gone\n");
                    (refused, asked) = (refused + 1, asked + 1);
                }
                Err(error) => panic!("{error}"),
            }
        }
        until_true("those who asked are gone", || {
            handle.statistics().connections_closed == asked
        });
        // Queued on the other end, the buffer that was being filled, and one on its way.
        let bound = (256 + 2 * 64) * 1024;
        let pooled = handle.pool_statistics().in_use_bytes;
        assert!(pooled <= bound, "{pooled} bytes held for one direction");
        let mut read = vec![0; sent];
        other.read_exact(&mut read).expect("all of it");
        let expected = read.iter().enumerate();
        for (at, byte) in expected {
            assert_eq!(*byte, chunk[at % chunk.len()], "at {at}");
        }
        until_true("nothing held", || {
            handle.pool_statistics().in_use_bytes == 0
        });
        cut(running);
    });
}

#[test]
fn a_reset_is_passed_on() {
    on_both(|choice| {
        let (running, address) = start(choice, Limits::default());
        let (one, mut other) = tied(address);
        socket2::SockRef::from(&one)
            .set_linger(Some(Duration::ZERO))
            .expect("a socket");
        drop(one);
        let error = other.read(&mut [0; 9]).expect_err("a reset");
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
        let handle = running.handle();
        until_true("both closed", || {
            handle.statistics().connections_closed == 2
        });
        assert_eq!(handle.statistics().unspliced, 1);
        end(running);
    });
}

#[test]
fn a_splice_to_itself_or_to_one_that_is_gone_is_refused() {
    on_both(|choice| {
        let (running, address) = start(choice, Limits::default());
        let handle = running.handle();
        hear(&mut client(address, b"!\n"), b"gone\n");
        drop(client(address, b"stale\n"));
        until_true("it left", || handle.statistics().connections_closed == 2);
        hear(&mut client(address, b"stale\n"), b"gone\n");
        let (mut one, mut other) = (client(address, b"stale2\n"), client(address, b"stale2\n"));
        hear(&mut one, b"tied\n");
        hear(&mut other, b"tied\n");
        hear(&mut client(address, b"stale2\n"), b"gone\n");
        assert_eq!(handle.statistics().splices_refused, 3);
        cut(running);
    });
}

#[test]
fn one_that_had_finished_before_is_spliced_half_closed() {
    on_both(|choice| {
        let (running, address) = start(choice, Limits::default());
        let mut one = client(address, b"mute\n");
        one.shutdown(Shutdown::Write).expect("open");
        // Its end has arrived when a third connection, which comes later, is answered.
        hear(&mut client(address, b"!\n"), b"gone\n");
        let mut other = client(address, b"mute\nfor you");
        hear(&mut one, b"tied\nfor you");
        hear(&mut other, b"tied\n");
        assert_eq!(other.read(&mut [0; 9]).expect("an end"), 0);
        drop(other);
        assert_eq!(one.read(&mut [0; 9]).expect("an end"), 0);
        end(running);
    });
}

#[test]
fn waiting_and_spliced_connections_have_deadlines_of_their_own() {
    on_both(|choice| {
        let limits = Limits {
            wait_timeout: stretched(Duration::from_millis(20)),
            spliced_timeout: stretched(Duration::from_millis(20)),
            ..Limits::default()
        };
        let (running, address) = start(choice, limits);
        let mut alone = client(address, b"alone\n");
        assert_eq!(alone.read(&mut [0; 9]).expect("an end"), 0);
        let (mut one, mut other) = (client(address, b"a\n"), client(address, b"a\n"));
        let (mut first, mut second) = (Vec::new(), Vec::new());
        one.read_to_end(&mut first).expect("an end");
        other.read_to_end(&mut second).expect("an end");
        assert_eq!((&first[..], &second[..]), (&b"tied\n"[..], &b"tied\n"[..]));
        end(running);
    });
}

#[test]
fn a_drain_lets_pairs_finish_and_a_forced_one_cuts_them_off() {
    on_both(|choice| {
        let (running, address) = start(choice, Limits::default());
        let (mut one, mut other) = tied(address);
        let mut alone = client(address, b"alone\n");
        running.handle().drain();
        // A reset, if its name had not been read by then.
        assert!(matches!(alone.read(&mut [0; 9]), Ok(0) | Err(_)));
        one.write_all(b"still").expect("open");
        hear(&mut other, b"still");
        running.handle().force();
        assert!(matches!(other.read(&mut [0; 9]), Ok(0) | Err(_)));
        cut(running);
    });
}
