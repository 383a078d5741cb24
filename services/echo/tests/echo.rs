//! Echo over real sockets, on every driver that this machine has.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use flatpath::{DriverChoice, Limits, Running, Server};
use flatpath_echo::Echo;
use flatpath_testkit::{drivers_here, patience};

/// Runs a body against a server on io_uring, where there is any, and against one on epoll.
fn on_every_driver(limits: &Limits, body: impl Fn(&Running, SocketAddr)) {
    for choice in drivers_here(DriverChoice::Uring, DriverChoice::Epoll) {
        let server = Server::new().driver(choice).limits(limits.clone());
        let running = server.listen("127.0.0.1:0", Echo).start().expect("start");
        let bound = running.addresses()[0];
        assert_eq!(bound.name, "echo");
        body(&running, bound.address);
    }
}

fn connect(address: SocketAddr) -> TcpStream {
    let client = TcpStream::connect(address).expect("connect");
    client.set_read_timeout(Some(patience())).expect("time-out");
    client
        .set_write_timeout(Some(patience()))
        .expect("time-out");
    client
}

/// Bytes that repeat at no power of two.
fn pattern(length: usize) -> Vec<u8> {
    const PERIOD: usize = 251;
    let mut bytes = (0..PERIOD as u8)
        .collect::<Vec<u8>>()
        .repeat(length.div_ceil(PERIOD));
    bytes.truncate(length);
    bytes
}

#[test]
fn what_comes_in_goes_out() {
    on_every_driver(&Limits::default(), |_, address| {
        let mut client = connect(address);
        for length in [1, 2, 100, 8_191, 8_192, 8_193, 100_000] {
            let sent = pattern(length);
            client.write_all(&sent).expect("write");
            let mut received = vec![0; length];
            client.read_exact(&mut received).expect("read");
            assert_eq!(received, sent);
        }
    });
}

#[test]
fn after_a_half_close_everything_still_comes_and_then_the_end() {
    on_every_driver(&Limits::default(), |_, address| {
        for length in [0, 1, 300_000] {
            let client = connect(address);
            let sent = pattern(length);
            let mut received = Vec::new();
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    (&client).write_all(&sent).expect("write");
                    client.shutdown(Shutdown::Write).expect("half-close");
                });
                (&client).read_to_end(&mut received).expect("a clean end");
            });
            assert_eq!(received, sent);
        }
    });
}

#[test]
fn a_client_that_does_not_read_is_not_read_from_and_loses_nothing() {
    // Far more than sockets and output bound hold together.
    const TOTAL: usize = 64 << 20;
    // Made first: a client that says nothing for `head_timeout` is disconnected.
    let sent = pattern(TOTAL);
    on_every_driver(&Limits::default(), |_, address| {
        let client = connect(address);
        client.set_nonblocking(true).expect("nonblocking");
        let mut written = 0;
        let mut quiet_since = Instant::now();
        // Until nothing more is taken for half a second.
        while written < TOTAL && quiet_since.elapsed() < Duration::from_millis(500) {
            match (&client).write(&sent[written..]) {
                Ok(more) => {
                    written += more;
                    quiet_since = Instant::now();
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    std::thread::sleep(Duration::from_millis(5));
                }
                Err(error) => panic!("write: {error}"),
            }
        }
        assert!(
            written < TOTAL,
            "the server took {TOTAL} bytes and was not read from"
        );
        client.set_nonblocking(false).expect("blocking");
        client.shutdown(Shutdown::Write).expect("half-close");
        let mut received = Vec::new();
        (&client).read_to_end(&mut received).expect("a clean end");
        assert!(
            received == sent[..written],
            "{} of {written} bytes",
            received.len()
        );
    });
}

#[test]
fn a_stalled_client_does_not_hold_up_another() {
    on_every_driver(&Limits::default(), |_, address| {
        let stalled = connect(address);
        stalled.set_nonblocking(true).expect("nonblocking");
        let chunk = pattern(1 << 20);
        while (&stalled).write(&chunk).is_ok() {}
        let mut other = connect(address);
        other.write_all(b"hello").expect("write");
        let mut received = [0; 5];
        other.read_exact(&mut received).expect("read");
        assert_eq!(&received, b"hello");
    });
}

#[test]
fn many_clients_are_not_mixed_up() {
    on_every_driver(&Limits::default(), |_, address| {
        let clients: Vec<_> = (0..200).map(|_| connect(address)).collect();
        for (number, mut client) in clients.iter().enumerate() {
            client
                .write_all(format!("{number:128}").as_bytes())
                .expect("write");
        }
        for (number, mut client) in clients.iter().enumerate() {
            let mut received = [0; 128];
            client.read_exact(&mut received).expect("read");
            assert_eq!(received, format!("{number:128}").as_bytes());
        }
    });
}

#[test]
fn an_idle_client_is_let_go() {
    let limits = Limits {
        idle_timeout: Duration::from_millis(200),
        ..Limits::default()
    };
    on_every_driver(&limits, |_, address| {
        let mut client = connect(address);
        client.write_all(b"hello").expect("write");
        let mut received = Vec::new();
        client.read_to_end(&mut received).expect("a clean end");
        assert_eq!(received, b"hello");
    });
}

#[test]
fn a_drain_sends_what_came_in_and_ends() {
    on_every_driver(&Limits::default(), |running, address| {
        let mut client = connect(address);
        client.write_all(b"before").expect("write");
        let mut received = [0; 6];
        client.read_exact(&mut received).expect("read");
        running.handle().drain();
        let mut rest = Vec::new();
        client.read_to_end(&mut rest).expect("a clean end");
        assert!(rest.is_empty());
        drop(client);
    });
}
