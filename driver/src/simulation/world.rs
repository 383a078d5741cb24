//! The simulated network: listeners, connections and a clock, seen by the driver and by the
//! clients.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;

use super::faults::{Fault, Faults, Injected};
use super::inbox::Inbox;
use super::operations::Operations;
use super::random::Random;
use super::servers::{Opening, Server};
use super::stream::Stream;

/// How a connection stands for its client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
// Exhaustive: TCP has no other end.
pub enum ClientState {
    /// The server may still send.
    Open,
    /// The server has finished or closed in order; bytes may be left to read.
    Finished,
    /// The server has reset the connection, or the network has.
    Reset,
}

#[derive(Debug, Default)]
pub(super) struct Connection {
    /// Where the client says that it comes from, or where the connection is opened to.
    pub(super) peer: Option<SocketAddr>,
    /// It is being opened by the driver's side.
    pub(super) opening: Option<Opening>,
    pub(super) to_server: Stream,
    pub(super) to_client: Stream,
    /// When a reset by the client arrives.
    pub(super) reset_ns: Option<u64>,
    /// The server, or the network, has reset it.
    pub(super) broken: bool,
    /// The client is gone: what is sent to it is answered with a reset.
    pub(super) deserted: bool,
    /// The server's socket holds all it may, and was not drained enough since.
    pub(super) is_full: bool,
    pub(super) server_finished: bool,
    /// The client's machine is off: nothing answers.
    pub(super) vanished: bool,
    pub(super) server_closed: bool,
}

impl Connection {
    /// When the peer answers the connect that is under way.
    fn answered_ns(&self) -> Option<u64> {
        self.opening.as_ref()?.answered_ns
    }

    /// Whether it was reset, by the client or here.
    pub(super) fn is_broken(&self, now_ns: u64) -> bool {
        self.broken || self.reset_ns.is_some_and(|reset_ns| reset_ns <= now_ns)
    }
}

#[derive(Debug, Default)]
pub(super) struct Backlog {
    /// Connections to accept: when they arrive, and their numbers.
    pub(super) waiting: VecDeque<(u64, u32)>,
}

pub(super) struct World {
    pub(super) seed: u64,
    pub(super) random: Random,
    pub(super) faults: Faults,
    pub(super) injected: Injected,
    pub(super) now_ns: u64,
    /// How often the thread has slept.
    pub(super) switches: u64,
    /// How far one wait may move the clock, in nanoseconds.
    pub(super) step_ns_max: u64,
    /// Bytes that a client's side takes before it reads.
    pub(super) window_bytes: usize,
    /// A full socket takes nothing before a third of it is free.
    pub(super) drains_first: bool,
    /// Sockets the driver may have open.
    pub(super) sockets_max: usize,
    /// Watches of eventfds that fail next.
    pub(super) watches_refused: u32,
    pub(super) listeners: Vec<Backlog>,
    /// Servers that connections are opened to.
    pub(super) servers: Vec<Server>,
    /// Sockets of datagrams.
    pub(super) inboxes: Vec<Inbox>,
    /// Datagrams that are lost, and that come twice, out of a thousand.
    pub(super) datagrams_lost: u16,
    pub(super) datagrams_twice: u16,
    pub(super) connections: Vec<Connection>,
    /// Open sockets of the driver: number and connection. Numbers are not used twice, so that a use
    /// after a close is found out.
    pub(super) sockets: BTreeMap<u32, u32>,
    pub(super) sockets_made: u32,
    pub(super) pieces_out: u32,
    pub(super) operations: Operations,
}

impl World {
    pub(super) fn new(seed: u64, faults: Faults) -> World {
        World {
            seed,
            random: Random::new(seed),
            faults,
            injected: Injected::default(),
            now_ns: 1_000_000_000,
            switches: 0,
            step_ns_max: 1_000_000,
            window_bytes: 64 * 1024,
            drains_first: false,
            sockets_max: usize::MAX,
            watches_refused: 0,
            listeners: Vec::new(),
            servers: Vec::new(),
            inboxes: Vec::new(),
            datagrams_lost: 0,
            datagrams_twice: 0,
            connections: Vec::new(),
            sockets: BTreeMap::new(),
            sockets_made: 0,
            pieces_out: 0,
            operations: Operations::default(),
        }
    }

    /// Whether a fault is to strike now.
    pub(super) fn chance(&mut self, fault: Fault) -> bool {
        self.random.chance(self.faults.permille(fault))
    }

    /// The same for one that always shows: it is counted.
    pub(super) fn strikes(&mut self, fault: Fault) -> bool {
        let strikes = self.chance(fault);
        if strikes {
            self.injected.strike(fault);
        }
        strikes
    }

    /// The caller of the driver broke a promise.
    pub(super) fn broken_promise(&self, promise: &str) -> ! {
        panic!(
            "simulation with seed {}: the caller broke {promise}",
            self.seed
        );
    }

    /// When something sent now arrives.
    pub(super) fn arrival_ns(&mut self) -> u64 {
        self.now_ns + self.random.up_to(self.faults.latency_ns_max)
    }

    /// The connection of an open socket.
    pub(super) fn connection_of(&mut self, socket: u32, use_of_it: &str) -> &mut Connection {
        let Some(connection) = self.sockets.get(&socket).copied() else {
            self.broken_promise(&format!(
                "C4: {use_of_it} on socket {socket}, which is closed"
            ))
        };
        &mut self.connections[connection as usize]
    }

    /// When anything on the network happens next.
    pub(super) fn next_ns(&self) -> Option<u64> {
        let now_ns = self.now_ns;
        let streams = self
            .connections
            .iter()
            .filter(|connection| !connection.server_closed);
        let streams = streams.flat_map(|connection| {
            [
                connection.to_server.next_ns(now_ns),
                connection.reset_ns.filter(|at| *at > now_ns),
                connection.answered_ns().filter(|at| *at > now_ns),
            ]
        });
        let backlogs = self.listeners.iter().flat_map(|backlog| {
            let next = backlog.waiting.iter().map(|(arrival_ns, _)| *arrival_ns);
            next.filter(|arrival_ns| *arrival_ns > now_ns).map(Some)
        });
        let datagrams = self.inboxes.iter().map(|inbox| inbox.next_ns(now_ns));
        streams.chain(backlogs).chain(datagrams).flatten().min()
    }

    /// The network breaks a connection: both sides notice.
    pub(super) fn break_connection(&mut self, socket: u32) {
        let connection = self.connection_of(socket, "an operation");
        connection.broken = true;
        connection.to_server.clear();
    }
}
