//! A simulated server for one input: calm, with small buffers, and long deadlines.

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
