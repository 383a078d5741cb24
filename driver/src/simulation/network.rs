//! The test's side of a simulation: the network, its clients, and what leaked.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use flatpath_structures::lock::{Guard, Lock};

use super::faults::{Injected, nanoseconds};
use super::operations::Patience;
use super::world::{ClientState, Connection, World};
use crate::socket::Listener;

/// A handle on the simulated network. Clones are the same network.
#[derive(Clone)]
pub struct Network(Arc<Lock<World>>);

/// Resources that the caller of the driver has not given back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Leaks {
    /// Sockets that are open.
    pub sockets: Vec<u32>,
    /// Pieces that were not recycled.
    pub pieces: u32,
    /// The user_data of operations without a final completion.
    pub operations: Vec<u64>,
}

impl Leaks {
    /// True when everything was given back.
    pub fn is_none(&self) -> bool {
        *self == Leaks::default()
    }
}

impl Network {
    pub(super) fn of(world: World) -> Network {
        Network(Arc::new(Lock::new(world)))
    }

    pub(super) fn world(&self) -> Guard<'_, World> {
        // A test that panicked with the lock held has failed already.
        self.0.lock()
    }

    /// The seed, for messages of failing tests.
    pub fn seed(&self) -> u64 {
        self.world().seed
    }

    /// A listener to accept from.
    pub fn listen(&self) -> Listener {
        let mut world = self.world();
        world.listeners.push(super::world::Backlog::default());
        Listener::simulated((world.listeners.len() - 1) as u32)
    }

    /// A client that connects now; it is in the listener's backlog after the network's latency.
    pub fn connect(&self, listener: &Listener) -> Client {
        self.connect_from(listener, None)
    }

    /// The same from an address.
    pub fn connect_from(&self, listener: &Listener, peer: Option<SocketAddr>) -> Client {
        let mut world = self.world();
        let number = world.connections.len() as u32;
        world.connections.push(Connection {
            peer,
            ..Connection::default()
        });
        let arrival_ns = world.arrival_ns();
        let waiting = &mut world.listeners[listener.number() as usize].waiting;
        let arrival_ns = waiting
            .back()
            .map_or(arrival_ns, |(last, _)| arrival_ns.max(*last));
        waiting.push_back((arrival_ns, number));
        Client {
            network: self.clone(),
            number,
        }
    }

    /// The simulated time.
    pub fn now(&self) -> Duration {
        Duration::from_nanos(self.world().now_ns)
    }

    /// Moves the clock, for deadlines that are far away.
    pub fn advance(&self, time: Duration) {
        self.world().now_ns += nanoseconds(time);
    }

    /// The caller sleeps for so long: the clock moves, and a voluntary context switch is counted.
    /// [`Network::advance`] is the same of a call that was preempted.
    pub fn sleep(&self, time: Duration) {
        let mut world = self.world();
        world.now_ns += nanoseconds(time);
        world.switches += 1;
    }

    /// How far one wait of the driver may move the clock; a millisecond unless set. Clients act
    /// between waits, so a longer step makes them slower.
    pub fn set_step_max(&self, step: Duration) {
        self.world().step_ns_max = nanoseconds(step).max(1);
    }

    /// Bytes that the way to a client takes before the client reads; 64 KiB unless set.
    pub fn set_window_bytes(&self, bytes: usize) {
        self.world().window_bytes = bytes.max(1);
    }

    /// From now on a full socket takes nothing before a third of it is free, as in Linux
    /// (`sk_stream_write_space`), so that a slow reader shows no progress for long.
    pub fn drain_sockets_first(&self) {
        self.world().drains_first = true;
    }

    /// Sockets the driver may have open; an accept beyond that fails with EMFILE.
    pub fn set_sockets_max(&self, sockets: usize) {
        self.world().sockets_max = sockets;
    }

    /// The next `count` watches of eventfds fail with ENOMEM.
    pub fn refuse_watches(&self, count: u32) {
        self.world().watches_refused = count;
    }

    /// The faults so far.
    pub fn injected(&self) -> Injected {
        self.world().injected
    }

    /// Whether nothing is on its way: no bytes, no end of a stream, no completion. What the
    /// driver's caller starts from now on, or a client says, can change that.
    pub fn is_settled(&self) -> bool {
        let world = self.world();
        let mut to_clients = world.connections.iter().map(|one| &one.to_client);
        world.operations.next_due_ns(Patience::Ends).is_none()
            && world.next_ns().is_none()
            && to_clients.all(|way| way.next_ns(world.now_ns).is_none())
    }

    /// Resources that the driver's caller has not given back; for when it claims to be done.
    pub fn leaks(&self) -> Leaks {
        let world = self.world();
        Leaks {
            sockets: world.sockets.keys().copied().collect(),
            pieces: world.pieces_out,
            operations: world.operations.user_data(),
        }
    }
}

/// A simulated client, or the server that a connection was opened to ([`Upstream`]): what its
/// methods call the server is the side that is tested. Dropping it closes both directions.
///
/// [`Upstream`]: super::Upstream
pub struct Client {
    network: Network,
    number: u32,
}

flatpath_structures::opaque_debug! {
    impl[] Network as "Network";
    impl[] Client as "Client";
}

impl Client {
    /// The far end of a connection.
    pub(super) fn of(network: Network, number: u32) -> Client {
        Client { network, number }
    }

    fn with<T>(&self, act: impl FnOnce(&mut Connection, u64, u64) -> T) -> T {
        let mut world = self.network.world();
        let (arrival_ns, now_ns) = (world.arrival_ns(), world.now_ns);
        act(
            &mut world.connections[self.number as usize],
            arrival_ns,
            now_ns,
        )
    }

    /// Sends bytes. They are lost when the server has closed, as on a real network.
    pub fn write(&self, bytes: &[u8]) {
        self.with(|connection, arrival_ns, _| {
            assert!(
                !connection.to_server.is_ended_by_writer(),
                "a write after a finish"
            );
            if connection.server_closed || connection.broken {
                // The server's kernel answers with a reset.
                connection.broken = true;
            } else {
                connection.to_server.write(bytes, arrival_ns);
            }
        });
    }

    /// Takes the bytes that have arrived.
    pub fn read(&self) -> Vec<u8> {
        self.read_at_most(usize::MAX)
    }

    /// Takes some of the bytes that have arrived.
    pub fn read_at_most(&self, count: usize) -> Vec<u8> {
        self.with(|connection, _, now_ns| {
            let mut bytes = vec![0; connection.to_client.readable(now_ns).min(count)];
            connection.to_client.read(now_ns, &mut bytes);
            bytes
        })
    }

    /// Ends the sending direction (FIN).
    pub fn shutdown_write(&self) {
        self.with(|connection, arrival_ns, _| connection.to_server.end(arrival_ns));
    }

    /// Takes the machine of the client off the network: nothing comes from it, not even what its
    /// kernel would answer.
    pub fn vanish(&self) {
        self.with(|connection, _, _| connection.vanished = true);
    }

    /// Resets the connection (RST).
    pub fn abort(&self) {
        self.with(|connection, arrival_ns, _| {
            connection.deserted = true;
            connection.reset_ns.get_or_insert(arrival_ns);
        });
    }

    /// Whether the server has ended the connection, as far as the client knows by now.
    pub fn state(&self) -> ClientState {
        self.with(|connection, _, now_ns| {
            if connection.broken {
                ClientState::Reset
            } else if connection.to_client.is_over(now_ns) {
                ClientState::Finished
            } else {
                ClientState::Open
            }
        })
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.with(|connection, arrival_ns, _| {
            connection.deserted = true;
            connection.to_server.end(arrival_ns);
        });
    }
}
