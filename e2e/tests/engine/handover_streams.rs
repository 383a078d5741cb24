//! Servers of the library relieve each other under WebSockets and event streams: each client is
//! told before its connection ends, and nothing that was not announced is lost.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{JoinHandle, ScopedJoinHandle};
use std::time::Duration;

use flatpath::handover::{Handover, Takeover};
use flatpath::sockets::PassedSockets;
use flatpath::{Handle, Limits, Server};
use flatpath_http::sse::{Broadcast, Event};
use flatpath_http::{Http, IntoResponse, Request};
use flatpath_testkit::deadline::long_patience;
use flatpath_testkit::websocket::{CLOSE, TEXT, frame, next_frame, open};
use flatpath_testkit::{Client, Driver, Over, Site, each_driver, handovers, until_true};
use flatpath_websocket::{Message, Socket, WebSocket};

use flatpath_e2e::choice;

each_driver!(sockets_and_event_streams_are_told_first);

/// Clients of each kind.
const EACH: usize = 4;
const GOING_AWAY: [u8; 2] = 1001_u16.to_be_bytes();

/// A server of the library: `/socket` echoes, `/events` has numbered events.
struct Relieving {
    address: SocketAddr,
    handle: Handle,
    news: Broadcast,
    _handover: Handover,
    thread: JoinHandle<()>,
}

impl Relieving {
    /// Takes over from the server at the path, if there is one.
    fn start(driver: Driver, path: &Path, at: &str) -> Relieving {
        let takeover = Takeover::begin(path).expect("asked");
        let passed = PassedSockets::default();
        if let Some(takeover) = &takeover {
            passed.extend(takeover.sockets());
        }
        let news = Broadcast::new();
        let (listeners, sockets) = (news.clone(), WebSocket::pooled());
        let echo = |socket: &Socket, message: Message| {
            let _ = socket.send(message);
        };
        let http = Http::pooled(move |request: Request| match request.uri().path() {
            "/socket" => sockets.accept(&request, echo).into_response(),
            _ => listeners.response(),
        });
        let limits = Limits {
            drain_idle_timeout: Duration::from_secs(60),
            ..Limits::default()
        };
        let server = Server::new().driver(choice(driver)).limits(limits);
        let server = server.listen(at, http).passed_sockets(&passed);
        let running = server.start().expect("started");
        let address = running.addresses()[0].address;
        let handle = running.handle();
        let handover = Handover::start(path, takeover, &passed, vec![handle.clone()], || ());
        Relieving {
            address,
            handle,
            news,
            _handover: handover.expect("it waits for the next"),
            thread: std::thread::spawn(move || running.wait().expect("it ends well")),
        }
    }
}

fn open_socket(address: SocketAddr) -> Client {
    let mut client = Client::connect(address).patient(long_patience());
    open(&mut client, "/socket");
    client
}

/// What clients have seen.
#[derive(Debug, Default)]
struct Seen {
    opened: AtomicUsize,
    /// Farewells.
    told: AtomicUsize,
    echoed: AtomicUsize,
    events: AtomicUsize,
}

impl Seen {
    fn open_socket(&self, address: SocketAddr) -> Client {
        let client = open_socket(address);
        self.opened.fetch_add(1, Ordering::Relaxed);
        client
    }

    /// The server has said that it goes, and ends the connection once it is answered.
    fn part(&self, mut client: Client, reason: &[u8]) {
        assert_eq!(reason[..2], GOING_AWAY);
        client.send(frame(CLOSE, GOING_AWAY));
        client.expect_closed();
        self.told.fetch_add(1, Ordering::Relaxed);
    }

    fn open_now(&self) -> usize {
        let told = self.told.load(Ordering::Relaxed);
        self.opened.load(Ordering::Relaxed) - told
    }
}

/// Talks until it is told to go, and comes again.
fn talk(address: SocketAddr, is_over: &Over, seen: &Seen) {
    let mut client = seen.open_socket(address);
    let mut number = 0_u32;
    loop {
        number += 1;
        let text = number.to_string();
        client.send(frame(TEXT, &text));
        match next_frame(|bytes| client.exactly(bytes)) {
            (TEXT, data) => {
                assert_eq!(data, text.as_bytes());
                seen.echoed.fetch_add(1, Ordering::Relaxed);
            }
            (CLOSE, reason) => {
                seen.part(client, &reason);
                if is_over.is_set() {
                    return;
                }
                client = seen.open_socket(address);
            }
            other => panic!("{other:?}"),
        }
    }
}

/// Rests, and is told to go as well.
fn rest(address: SocketAddr, is_over: &Over, seen: &Seen) {
    while !is_over.is_set() {
        let mut client = seen.open_socket(address);
        let (head, reason) = next_frame(|bytes| client.exactly(bytes));
        assert_eq!(head, CLOSE);
        seen.part(client, &reason);
    }
}

/// Listens until the stream ends, as a whole body does.
fn listen(address: SocketAddr, is_over: &Over, seen: &Seen) {
    while !is_over.is_set() {
        let mut client = Client::connect(address).patient(long_patience());
        client.request("GET", "/events", &[]);
        // Whole, as a body ends. The connection would take one more request.
        let reply = client.reply();
        let text = reply.text();
        let ids = text.lines().filter_map(|line| line.strip_prefix("id: "));
        let ids: Vec<usize> = ids.map(|id| id.parse().expect("a number")).collect();
        let is_whole = ids.windows(2).all(|pair| pair[1] == pair[0] + 1);
        assert!(is_whole, "an event is missing: {ids:?}");
        seen.events.fetch_add(ids.len(), Ordering::Relaxed);
    }
}

fn sockets_and_event_streams_are_told_first(driver: Driver) {
    let servers = handovers();
    let run = Site::new();
    let path = run.at("next");
    let mut current = Relieving::start(driver, &path, "127.0.0.1:0");
    let address = current.address;
    let (at, is_over) = (address.to_string(), Over::default());
    let seen = Seen::default();
    std::thread::scope(|scope| {
        let _ends = is_over.at_end();
        let mut clients = Vec::new();
        for _ in 0..EACH {
            clients.push(scope.spawn(|| talk(address, &is_over, &seen)));
            clients.push(scope.spawn(|| rest(address, &is_over, &seen)));
            clients.push(scope.spawn(|| listen(address, &is_over, &seen)));
        }
        let mut number = 0;
        let mut all_are_served = |news: &Broadcast| {
            let before = seen.echoed.load(Ordering::Relaxed);
            until_true("all clients to be served", || {
                number += 1;
                news.send(Event::new().id(number.to_string()).data("news"));
                let fails = clients.iter().any(ScopedJoinHandle::is_finished);
                let echoes = seen.echoed.load(Ordering::Relaxed) - before;
                let are_open = seen.open_now() == 2 * EACH && news.listeners() == EACH;
                fails || echoes > 20 && are_open
            });
        };
        for _ in 0..servers {
            all_are_served(&current.news);
            let next = Relieving::start(driver, &path, &at);
            assert_eq!(next.address, address);
            let old = std::mem::replace(&mut current, next);
            old.thread.join().expect("it has ended");
        }
        all_are_served(&current.news);
        is_over.set();
        current.handle.drain();
        for client in clients {
            client.join().expect("nothing was lost");
        }
    });
    println!("{servers} handovers; {seen:?}");
    current.thread.join().expect("it has ended");
    assert_eq!(seen.told.into_inner(), 2 * EACH * (servers + 1));
    assert!(seen.events.into_inner() > servers);
}
