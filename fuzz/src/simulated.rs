//! A simulated server, calm, with small buffers, and long deadlines: for one input, or for many one
//! after the other.
//!
//! To make one and to end it costs ten times what it costs to serve an input. So a target with
//! thousands of inputs keeps one ([`Kept`]). From one input to the next stay the clock, which no
//! run depends on, and caches. After each, the server holds what it held before.

use std::cell::Cell;
use std::time::Duration;

use flatpath::Protocol;
use flatpath::simulation::{Conditions, SimulatedServer};
use flatpath::{DriverConfig, Limits};
use flatpath_driver::simulation::{Client, ClientState};

/// Turns after which a connection that has not ended never will: thousands of times what is needed.
const TURNS_MAX: usize = 100_000;

/// Longer than any run, in nanoseconds of the simulated clock.
const LONG_NS: u64 = 1_000_000 * 1_000_000_000;

/// Serves `protocol` to a few clients, with receive buffers of `receive_buffer_bytes`.
pub(crate) fn serve<P: Protocol>(protocol: P, receive_buffer_bytes: u32) -> SimulatedServer {
    serve_in(Conditions::calm(1), protocol, receive_buffer_bytes)
}

/// The same under other conditions.
pub(crate) fn serve_in<P: Protocol>(
    mut conditions: Conditions,
    protocol: P,
    receive_buffer_bytes: u32,
) -> SimulatedServer {
    conditions.driver = DriverConfig {
        completion_entries: 64,
        receive_buffers: 8,
        receive_buffer_bytes,
        ..DriverConfig::default()
    };
    conditions.limits = Limits {
        connections_max: 16,
        buffer_bytes_max: 8 << 20,
        in_flight_max: 64,
        head_timeout: Duration::from_nanos(LONG_NS),
        idle_timeout: Duration::from_nanos(LONG_NS),
        body_timeout: Duration::from_nanos(LONG_NS),
        stall_timeout: Duration::from_nanos(LONG_NS),
        write_timeout: Duration::from_nanos(LONG_NS),
        wait_timeout: Duration::from_nanos(LONG_NS),
        drain_timeout: Duration::from_nanos(LONG_NS),
        ..Limits::default()
    };
    SimulatedServer::new(conditions, protocol)
}

/// Inputs of one server. The simulated network looks at all that have been, so they are not many.
const INPUTS_MAX: u32 = 100;

/// A server for many inputs. One that an input has made fail is not used again.
pub(crate) struct Kept {
    make: fn() -> SimulatedServer,
    rested: Cell<Option<Rested>>,
}

/// A server between two inputs.
struct Rested {
    server: SimulatedServer,
    /// What it holds without a client: what waits for one.
    held: Held,
    inputs: u32,
}

/// Sockets, receive buffers, operations, and bytes of pooled buffers.
type Held = [usize; 4];

impl Kept {
    pub(crate) const fn new(make: fn() -> SimulatedServer) -> Kept {
        Kept {
            make,
            rested: Cell::new(None),
        }
    }

    /// Serves one input, whose clients have ended when `act` returns.
    ///
    /// # Panics
    /// When something is left of it.
    pub(crate) fn serve<T>(&self, act: impl FnOnce(&mut SimulatedServer) -> T) -> T {
        let rested = self.rested.take();
        let mut rested = rested.unwrap_or_else(|| Rested::new((self.make)()));
        let value = act(&mut rested.server);
        rested.inputs += 1;
        if rested.inputs == INPUTS_MAX {
            end(rested.server);
            return value;
        }
        let held = rested.rests();
        assert_eq!(held, rested.held, "something is left of an input");
        self.rested.set(Some(rested));
        value
    }
}

impl Rested {
    fn new(server: SimulatedServer) -> Rested {
        let mut rested = Rested {
            server,
            held: Held::default(),
            inputs: 0,
        };
        rested.held = rested.rests();
        rested
    }

    /// Lets the server come to rest. Returns what it holds.
    fn rests(&mut self) -> Held {
        for _ in 0..TURNS_MAX {
            self.server.turn();
            if self.server.is_settled() {
                let (held, bytes) = self.server.leaks();
                let (sockets, operations) = (held.sockets.len(), held.operations.len());
                return [sockets, held.pieces as usize, operations, bytes];
            }
        }
        panic!("the server does not come to rest");
    }
}

/// A client and all that it has heard.
pub(crate) struct Peer {
    client: Client,
    has_finished: bool,
    pub(crate) heard: Vec<u8>,
}

impl Peer {
    pub(crate) fn connect(server: &SimulatedServer) -> Peer {
        Peer {
            client: server.connect(),
            has_finished: false,
            heard: Vec::new(),
        }
    }

    /// Says something and gives the server a few turns to take it.
    pub(crate) fn say(&mut self, server: &mut SimulatedServer, bytes: &[u8]) {
        self.client.write(bytes);
        self.listen(server, 6);
    }

    /// Hears what is said in a few turns.
    pub(crate) fn listen(&mut self, server: &mut SimulatedServer, turns: usize) {
        for _ in 0..turns {
            server.turn();
            self.heard.extend(self.client.read());
        }
    }

    /// Whether the server has ended the connection.
    pub(crate) fn is_over(&self) -> bool {
        self.client.state() != ClientState::Open
    }

    /// Has nothing more to say.
    pub(crate) fn finish_sending(&mut self) {
        if !std::mem::replace(&mut self.has_finished, true) {
            self.client.shutdown_write();
        }
    }

    /// Has nothing more to say; hears the server out.
    ///
    /// # Panics
    /// When the server does not end the connection.
    pub(crate) fn finish(&mut self, server: &mut SimulatedServer) {
        self.finish_sending();
        for _ in 0..TURNS_MAX {
            self.listen(server, 1);
            if self.client.state() != ClientState::Open {
                self.heard.extend(self.client.read());
                return;
            }
        }
        panic!("the connection does not end");
    }
}

/// Ends the server and looks for what it has not given back.
///
/// # Panics
/// When it does not end, or something is missing.
pub(crate) fn end(mut server: SimulatedServer) {
    server.drain();
    server.end(TURNS_MAX);
}
