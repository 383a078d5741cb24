//! A simulated server for a test: waits with a bound in simulated time, and a check at its end.
//!
//! Invariants
//! - T1: every wait ends: simulated time passes in each turn, and turns are counted.
//! - T2: a server that is dropped has given everything back, or the test fails.
//! - T3: requests of the server itself share a connection; one that has ended is replaced.

use std::net::SocketAddr;
use std::ops::{Deref, DerefMut};
use std::thread::panicking;
use std::time::Duration;

use flatpath::Protocol;
use flatpath::datagrams::DatagramService;

use flatpath::framing::Framing;

use crate::http::{Http, HttpConnection, Requests};
use crate::messages::MessageClient;
use crate::{Client, ClientState, Conditions, SimulatedServer};

/// What a wait takes at most, in simulated time.
const WAIT_MAX: Duration = Duration::from_secs(60);
/// The same in turns. A turn without an event takes a millisecond of simulated time.
const TURNS_MAX: u32 = 1_000_000;
/// Turns in which nothing happens, one after the other, before a server counts as settled: what
/// one turn starts is with the kernel in the next, and comes back in the one after it.
const QUIET_TURNS: u32 = 4;

/// A [`SimulatedServer`] that a test waits for; the methods of that can be called on it as well.
///
/// With [`Requests`] it sends HTTP requests, one after the other on a connection of its own:
///
/// ```no_run
/// use flatpath_test::{Conditions, Requests, TestServer};
/// # fn served() -> impl flatpath::Protocol { flatpath::framing::Framed::inline(
/// #     "", flatpath::framing::Lines::new(1), |(), _, _| Ok(flatpath::framing::Next::Message)) }
///
/// // `served()` is an `Http` of the crate `flatpath-http`.
/// let mut server = TestServer::new(Conditions::calm(1), served());
/// assert_eq!(server.get("/hello").expect(200).text(), "hello");
/// server.post("/notes").header("content-type", "text/plain").body("buy milk").expect(201);
/// ```
pub struct TestServer {
    waiting: Waiting,
    ends_within: Duration,
    /// For requests of the server itself (T3).
    http: Option<HttpConnection>,
}

/// The server, and how long each wait for it may take.
pub(crate) struct Waiting {
    server: SimulatedServer,
    wait_max: Duration,
}

flatpath::opaque_debug! {
    impl[] TestServer as "TestServer";
}

impl TestServer {
    /// A server with one listener that speaks `protocol`.
    pub fn new<P: Protocol>(conditions: Conditions, protocol: P) -> TestServer {
        TestServer::of(conditions, |conditions| {
            SimulatedServer::new(conditions, protocol)
        })
    }

    /// The same, with a listener for datagrams beside it; see
    /// [`send_datagram`](SimulatedServer::send_datagram).
    pub fn with_datagrams<P: Protocol>(
        conditions: Conditions,
        protocol: P,
        service: impl DatagramService,
    ) -> TestServer {
        let server = SimulatedServer::with_datagrams;
        TestServer::of(conditions, |conditions| {
            server(conditions, protocol, service)
        })
    }

    fn of(
        conditions: Conditions,
        server: impl FnOnce(Conditions) -> SimulatedServer,
    ) -> TestServer {
        let ends_within = conditions.limits.drain_timeout + WAIT_MAX;
        TestServer {
            waiting: Waiting {
                server: server(conditions),
                wait_max: WAIT_MAX,
            },
            ends_within,
            http: None,
        }
    }

    /// Asks with a datagram from an address, and waits for the reply to it; those to others are
    /// dropped.
    ///
    /// # Panics
    /// As [`TestServer::run_until`]: also where the server does not answer it.
    #[track_caller]
    pub fn ask_datagram(&mut self, from: SocketAddr, request: &[u8]) -> Vec<u8> {
        self.send_datagram(from, request);
        self.waiting.wait("a reply", |server| {
            let sent = server.sent_datagrams().into_iter();
            let mut replies = sent.filter(|reply| reply.to == from);
            replies.next().map(|reply| reply.bytes)
        })
    }

    /// How much simulated time each of the following waits may take; a minute unless set.
    pub fn set_wait_max(&mut self, wait_max: Duration) {
        self.waiting.wait_max = wait_max;
    }

    /// Lets the server run until `condition` holds; it is asked before each turn.
    ///
    /// # Panics
    /// When it does not hold after a minute of simulated time, or what
    /// [`TestServer::set_wait_max`] says.
    #[track_caller]
    pub fn run_until(&mut self, mut condition: impl FnMut() -> bool) {
        self.waiting
            .wait("the condition", |_| condition().then_some(()));
    }

    /// Lets the server run until nothing happens any more by itself: all that clients sent is
    /// received, jobs are done, replies are sent as far as clients read. Deadlines stay ahead, and
    /// so does what a fault has put off to one.
    ///
    /// # Panics
    /// As [`TestServer::run_until`].
    #[track_caller]
    pub fn settle(&mut self) {
        let mut quiet_turns = 0;
        self.waiting.wait("quiet", |server| {
            quiet_turns = if server.is_settled() {
                quiet_turns + 1
            } else {
                0
            };
            // It was asked before the first turn as well.
            (quiet_turns > QUIET_TURNS).then_some(())
        });
    }

    /// The next `bytes` bytes that the client gets.
    ///
    /// # Panics
    /// As [`TestServer::run_until`], and when the server ends the connection before.
    #[track_caller]
    pub fn read_exact(&mut self, client: &Client, bytes: usize) -> Vec<u8> {
        self.read(client, |read| bytes - read.len())
    }

    /// The next line that the client gets, with its line end.
    ///
    /// # Panics
    /// As [`TestServer::read_exact`], and when the line is not UTF-8.
    #[track_caller]
    pub fn read_line(&mut self, client: &Client) -> String {
        let line = self.read(client, |line| usize::from(!line.ends_with(b"\n")));
        String::from_utf8(line).expect("a line is UTF-8")
    }

    /// What the client gets until the server has ended its stream.
    ///
    /// # Panics
    /// As [`TestServer::run_until`], and when the connection is reset.
    #[track_caller]
    pub fn read_to_end(&mut self, client: &Client) -> Vec<u8> {
        let mut bytes = Vec::new();
        let state = self.waiting.wait("the end of the stream", |_| {
            bytes.extend(client.read());
            Some(client.state()).filter(|state| *state != ClientState::Open)
        });
        // What came in the same moment as the end.
        bytes.extend(client.read());
        if state == ClientState::Reset {
            let seed = self.world().seed();
            panic!("seed {seed}: reset after {} bytes", bytes.len());
        }
        bytes
    }

    /// Some of what the client gets next; `None` when the server has ended the connection, or reset
    /// it.
    ///
    /// # Panics
    /// As [`TestServer::run_until`].
    #[track_caller]
    pub fn read_some(&mut self, client: &Client) -> Option<Vec<u8>> {
        self.waiting.read_some(client)
    }

    pub(crate) fn waiting(&mut self) -> &mut Waiting {
        &mut self.waiting
    }

    /// Connects a client that talks in messages.
    pub fn connect_messages<F: Framing>(&mut self, framing: F) -> MessageClient<Client, F> {
        MessageClient::new(self.connect(), framing)
    }

    /// A connection for requests of HTTP beside the server's own.
    pub fn connect_http(&mut self) -> HttpConnection {
        HttpConnection::new(self.connect())
    }

    /// Drains the server, and checks that it gives back every socket, page and buffer. A server
    /// that is dropped does the same.
    ///
    /// # Panics
    /// When it does not end, or keeps anything.
    pub fn end(self) {}

    /// Reads as many bytes as `missing` says, again and again, until that is none.
    #[track_caller]
    fn read(&mut self, client: &Client, missing: impl Fn(&[u8]) -> usize) -> Vec<u8> {
        let seed = self.world().seed();
        let mut bytes = Vec::new();
        self.waiting.wait("bytes", |_| {
            loop {
                match missing(&bytes) {
                    0 => return Some(()),
                    count => {
                        // The state first: what came before the end can still be read after it.
                        let state = client.state();
                        let more = client.read_at_most(count);
                        if more.is_empty() && state != ClientState::Open {
                            let got = bytes.escape_ascii();
                            panic!("seed {seed}: the connection ended after \"{got}\"");
                        }
                        if more.is_empty() {
                            return None;
                        }
                        bytes.extend(more);
                    }
                }
            }
        });
        bytes
    }

    /// See [`TestServer::end`].
    fn check_end(&mut self) {
        self.http = None;
        // Steps long enough for the deadlines of a drain.
        const STEP: Duration = Duration::from_millis(50);
        self.waiting.server.drain();
        self.world().set_step_max(STEP);
        self.waiting.wait_max = self.ends_within;
        self.waiting.wait("the end of the drain", |server| {
            server.has_ended().then_some(())
        });
        let seed = self.world().seed();
        let (leaks, bytes) = self.waiting.server.leaks();
        assert!(
            leaks.is_none() && bytes == 0,
            "seed {seed}: not given back: {leaks:?} and {bytes} bytes of buffers"
        );
    }
}

impl Waiting {
    #[track_caller]
    pub(crate) fn read_some(&mut self, client: &Client) -> Option<Vec<u8>> {
        self.wait("bytes or the end", |_| {
            // The state first: what came before the end can still be read after it.
            let state = client.state();
            let bytes = client.read();
            match bytes.is_empty() {
                false => Some(Some(bytes)),
                true => (state != ClientState::Open).then_some(None),
            }
        })
    }

    #[track_caller]
    fn wait<T>(
        &mut self,
        what: &str,
        mut condition: impl FnMut(&SimulatedServer) -> Option<T>,
    ) -> T {
        let until = self.server.world().now() + self.wait_max;
        for _ in 0..TURNS_MAX {
            if let Some(value) = condition(&self.server) {
                return value;
            }
            if self.server.world().now() >= until {
                break;
            }
            self.server.turn();
        }
        let (seed, wait_max) = (self.server.world().seed(), self.wait_max);
        panic!("seed {seed}: {what} did not come within {wait_max:?} of simulated time");
    }
}

impl Requests for TestServer {
    fn http(&mut self) -> Http<'_> {
        let Self { waiting, http, .. } = self;
        let connection = match http.take().filter(|connection| !connection.has_ended()) {
            Some(open) => http.insert(open),
            None => http.insert(HttpConnection::new(waiting.server.connect())),
        };
        connection.lend(waiting)
    }
}

impl Deref for TestServer {
    type Target = SimulatedServer;

    fn deref(&self) -> &SimulatedServer {
        &self.waiting.server
    }
}

impl DerefMut for TestServer {
    fn deref_mut(&mut self) -> &mut SimulatedServer {
        &mut self.waiting.server
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        // A test that fails says why already.
        if !panicking() {
            self.check_end();
        }
    }
}
