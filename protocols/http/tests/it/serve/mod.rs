//! The protocol in a real server, on every driver: what clients get, byte for byte.

pub(crate) mod admission;
mod alike;
mod bodies;
mod deadlines;
mod deferred;
mod endings;
mod events;
mod file_bodies;
mod order;
mod parts;
mod piped;
mod prompt;
mod push;
mod replies;
mod routes;
mod scarcity;
mod streams;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex};

use flatpath::{DriverChoice, Error, Protocol, Running, Server};
use flatpath_testkit::deadline::is_slow;
use flatpath_testkit::{patience, until_true};

/// Runs a test once on each driver. Where io_uring is refused, its test reports it and stops there.
#[macro_export]
macro_rules! on_each_driver {
    ($($name:ident),+ $(,)?) => {
        $(
            mod $name {
                #[test]
                fn holds_on_uring() {
                    if flatpath_testkit::Driver::Uring.is_here() {
                        super::$name(flatpath::DriverChoice::Uring);
                    }
                }

                #[test]
                fn holds_on_epoll() {
                    super::$name(flatpath::DriverChoice::Epoll);
                }
            }
        )+
    };
}

/// A server of one protocol with few workers.
pub(crate) fn serve(choice: DriverChoice, protocol: impl Protocol) -> (Running, SocketAddr) {
    start(Server::new().workers(2..=8), choice, protocol)
}

/// A server of one protocol, otherwise as it is set up.
pub(crate) fn start(
    server: Server,
    choice: DriverChoice,
    protocol: impl Protocol,
) -> (Running, SocketAddr) {
    let running = server
        .listen("127.0.0.1:0", protocol)
        .driver(choice)
        .start()
        .unwrap_or_else(|error| panic!("the server does not start: {error}"));
    let address = running.addresses()[0].address;
    (running, address)
}

/// The end of a server that cuts off what is left. It waits for a moment only, which threads of an
/// emulated processor may miss.
pub(crate) fn cut_off(running: Running) {
    match running.wait() {
        Ok(()) => {}
        Err(Error::LeftBehind { cause: None, .. }) if is_slow() => {}
        Err(other) => panic!("no clean end: {other}"),
    }
}

/// A request for a path.
pub(crate) fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: h\r\n\r\n")
}

/// A request with a body of a known length.
pub(crate) fn post(path: &str, body: &str) -> String {
    let length = body.len();
    format!("POST {path} HTTP/1.1\r\nHost: h\r\nContent-Length: {length}\r\n\r\n{body}")
}

/// A door that handlers wait at until the test opens it.
#[derive(Default)]
pub(crate) struct Door {
    is_open: Mutex<bool>,
    moved: Condvar,
    waited: AtomicU64,
}

impl Door {
    pub(crate) fn open(&self) {
        *self.is_open.lock().expect("no panic while it is locked") = true;
        self.moved.notify_all();
    }

    /// Waits until the door is open; gives up before the test does.
    pub(crate) fn pass(&self) {
        // Less than a test waits for anything.
        let patience = patience() / 4;
        self.waited.fetch_add(1, Ordering::SeqCst);
        let is_open = self.is_open.lock().expect("no panic while it is locked");
        let closed = |is_open: &mut bool| !*is_open;
        let (_guard, waited) = self
            .moved
            .wait_timeout_while(is_open, patience, closed)
            .expect("no panic while it is locked");
        assert!(!waited.timed_out(), "the door stayed closed");
    }

    /// Waits until this many handlers have come to the door.
    pub(crate) fn until_waited(&self, count: u64) {
        until_true("handlers at the door", || {
            self.waited.load(Ordering::SeqCst) >= count
        });
    }
}
