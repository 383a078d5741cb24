//! Slow peers over real sockets, on io_uring and on epoll side by side.

use std::io::Read;
use std::time::{Duration, Instant};

use crate::lines::{Client, Site, choices};
use flatpath::{DriverChoice, Limits};
use flatpath_testkit::{stretched, until_true};

/// Ten of them pass before a client is cut off whose TCP still answers.
fn write_timeout() -> Duration {
    stretched(Duration::from_millis(300))
}

/// A client whose kernel takes little at a time, so that its reading shows at once.
fn narrow_client(site: &Site) -> Client {
    use socket2::{Domain, Socket, Type};
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    socket.set_recv_buffer_size(16 * 1024).expect("an option");
    socket.connect(&site.address.into()).expect("connected");
    Client::of(socket.into())
}

/// Reads 40 kB a second, of a socket at the other end that takes nothing new for far longer than
/// the deadline for sending, then stops.
fn reads_slowly_and_stops(choice: DriverChoice) {
    let limits = Limits {
        write_timeout: write_timeout(),
        ..Limits::default()
    };
    let site = Site::new(choice, |server| server.limits(limits));
    let mut client = narrow_client(&site);
    client.say("big 24000000\n");
    let expired = || site.running().handle().statistics().connections_expired();
    let mut piece = [0; 2000];
    let until = Instant::now() + 3 * write_timeout();
    while Instant::now() < until {
        client.stream().read_exact(&mut piece).expect("it lives");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(expired(), 0, "{choice:?}: it reads");
    until_true("it to be cut off", || expired() > 0);
    site.end();
}

#[test]
fn a_steady_slow_reader_lives_and_one_that_stops_does_not() {
    std::thread::scope(|scope| {
        for choice in choices() {
            scope.spawn(move || reads_slowly_and_stops(choice));
        }
    });
}
