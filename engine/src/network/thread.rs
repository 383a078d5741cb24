//! The network thread's tables, and one event of one connection.
//!
//! What a connection needs of its thread is in [`Thread`], beside the tables, so that an
//! [`Event`] borrows one connection, its listener and the thread at once: the connection is looked
//! up once for an event. What concerns several connections is done by [`Network`].
//!
//! Invariant N1: after every event of a connection `reconcile` runs once, so no wish is left over.

use std::net::SocketAddr;

use flatpath_driver::{Driver, Outcome, Piece, Pipes};
use flatpath_structures::slots::{Key, Slots};

use crate::admission::Load;
use crate::connection::Connection;
use crate::memory::account::Account;
use crate::network::waits::{Wait, Waits};
use crate::observe::regions::Entered;
use crate::observe::statistics::Counters;
use crate::pairs::Pairs;
use crate::protocol;
use crate::protocol::common::Common;
use crate::protocol::erased::DynProtocol;
use crate::protocol::io::Io;
use crate::protocol::successor::Successors;

use super::bulk::Bulk;
use super::cipher_cache::CipherCache;
use super::datagrams::Datagrams;
use super::drain::Drain;
use super::listening::{Acceptors, Listener};
use super::pending::Pending;
use super::sends::Sends;
use super::sources::Sources;
use super::timers::Timers;

/// See the module.
pub(crate) struct Network<D: Driver> {
    pub(super) thread: Thread<D>,
    pub(super) connections: Slots<Connection>,
    pub(super) listeners: Vec<Listener>,
    pub(super) acceptors: Acceptors,
    /// Eventfds that are watched.
    pub(super) sources: Sources,
    /// The driver's regions among those of the server.
    pub(super) _entered: Entered,
    /// What was found and is not handled yet.
    pub(super) pending: Pending,
    pub(super) datagrams: Datagrams,
}

/// What the connections of a network thread share.
pub(super) struct Thread<D: Driver> {
    pub(super) driver: D,
    pub(super) common: Common,
    pub(super) timers: Timers,
    /// For what is moved from one stream to another, or to a file.
    pub(super) pipes: Pipes,
    pub(super) pairs: Pairs,
    pub(super) waits: Waits,
    pub(super) memory: Account,
    pub(super) cipher_cache: CipherCache,
    pub(super) successors: Successors,
    pub(super) drain: Drain,
    pub(super) bulk: Bulk,
    pub(super) sends: Sends,
}

/// What happens to one connection now.
pub(super) struct Event<'a, D: Driver> {
    pub(super) key: Key,
    pub(super) connection: &'a mut Connection,
    pub(super) listener: &'a mut Listener,
    pub(super) thread: &'a mut Thread<D>,
}

/// Where a connection comes from: its client, where a load balancer has named it.
pub(super) fn peer_of<D: Driver>(driver: &D, connection: &Connection) -> Option<SocketAddr> {
    let client = connection.client();
    client.or_else(|| driver.peer(connection.socket()))
}

/// No operation expects this completion (N2).
pub(super) fn discard(driver: &mut impl Driver, outcome: Outcome) {
    match outcome {
        Outcome::Received(piece) => driver.recycle(piece),
        Outcome::Accepted(socket) => driver.close(socket),
        Outcome::Datagram(datagram) => {
            if let Some(piece) = datagram.piece {
                driver.recycle(piece);
            }
        }
        Outcome::Connected
        | Outcome::ReceivedInto(_)
        | Outcome::EndOfStream
        | Outcome::Signalled(_)
        | Outcome::Sent { .. }
        | Outcome::Failed(_) => {}
    }
}

impl<D: Driver> Thread<D> {
    /// See [`discard`].
    pub(super) fn discard(&mut self, outcome: Outcome) {
        discard(&mut self.driver, outcome);
    }

    /// The clock of this turn.
    #[inline]
    pub(super) fn now_ns(&self) -> u64 {
        self.common.turn.now_ns
    }

    /// Counts the turn that ends. One reading of the clock.
    #[inline]
    pub(super) fn turn_ended(&mut self) {
        self.common.turn_ended(self.driver.clock_ns());
    }
}

impl<'a, D: Driver> Event<'a, D> {
    #[inline]
    fn new(
        key: Key,
        connection: &'a mut Connection,
        listeners: &'a mut [Listener],
        thread: &'a mut Thread<D>,
    ) -> Event<'a, D> {
        Event {
            key,
            listener: &mut listeners[usize::from(connection.listener())],
            connection,
            thread,
        }
    }

    /// Calls the protocol.
    pub(super) fn call<R>(&mut self, act: impl FnOnce(&mut dyn DynProtocol, Io<'_>) -> R) -> R {
        let (protocol, io, _) = self.lend(None);
        act(protocol, io)
    }

    /// Calls the protocol for what has happened to the connection besides bytes that arrive.
    pub(super) fn report(&mut self, what: protocol::Event<'_>) {
        self.call(|protocol, io| protocol.event(io, what));
    }

    /// The protocol and what it works on for one call, and the input that lies in a piece from a
    /// place in it on.
    #[inline]
    pub(super) fn lend<'b>(
        &'b mut self,
        input: Option<(&'b Piece, usize)>,
    ) -> (&'b mut dyn DynProtocol, Io<'b>, &'b [u8]) {
        let Thread {
            driver,
            common,
            successors,
            ..
        } = &mut *self.thread;
        let driver = &*driver;
        common.calls(self.connection.listener());
        let (protocol, limits, own) = match self.connection.successor() {
            0 => self.listener.call(),
            number => (successors.call(number), self.listener.limits(), 0),
        };
        let bytes = input.map_or(&[][..], |(piece, from)| &driver.bytes(piece)[from..]);
        let io = Io {
            common,
            connection: &mut *self.connection,
            key: self.key,
            driver,
            limits,
            source: input.map(|(piece, from)| (driver.region(piece.region_id()), piece, from)),
            own: (own > 0).then(|| (own, driver.region(own))),
        };
        (protocol, io, bytes)
    }

    /// What is counted for the connection's listener on this thread.
    #[inline]
    pub(super) fn counters(&self) -> &Counters {
        self.thread.common.counters(self.connection.listener())
    }

    /// What the connection speaks now.
    pub(super) fn protocol(&mut self) -> &mut dyn DynProtocol {
        self.protocol_and_common().0
    }

    fn protocol_and_common(&mut self) -> (&mut dyn DynProtocol, &mut Common) {
        let Thread {
            successors, common, ..
        } = &mut *self.thread;
        let protocol = match self.connection.successor() {
            0 => self.listener.protocol_mut(),
            number => successors.get(number),
        };
        (protocol, common)
    }

    /// Closes the session. The connection is gone, or gets another one at once.
    pub(super) fn end_session(&mut self) {
        let session = self.connection.session();
        // What it has queued is sent, unless its successor aborts the connection.
        let output_bytes = self.connection.output().bytes_so_far();
        let (protocol, common) = self.protocol_and_common();
        protocol.close(session, common.log_end(output_bytes));
    }

    /// Opens a session of what follows the PROXY header. False: it could not be opened.
    pub(super) fn change_from_header(&mut self) -> bool {
        match self.listener.handshake() {
            0 => self.change_to_listeners(),
            number => self.change_to_own(number),
        }
    }

    /// Opens a session of a protocol of the engine.
    pub(super) fn change_to_own(&mut self, number: u16) -> bool {
        let session = self.thread.successors.get(number).open();
        self.change_to(number, session)
    }

    /// The same for the listener's protocol.
    pub(super) fn change_to_listeners(&mut self) -> bool {
        let session = self.listener.protocol_mut().open();
        self.change_to(0, session)
    }

    fn change_to(&mut self, number: u16, session: Option<Key>) -> bool {
        let Some(session) = session else {
            return false;
        };
        self.end_session();
        let now_ns = self.thread.now_ns();
        self.connection.change_protocol(number, session, now_ns);
        self.connection.begin_stream();
        self.connection.receive_into(self.listener.first_pages());
        true
    }

    /// Has the connection wait for its turn, unless it does already.
    pub(super) fn wait(&mut self, wait: Wait) {
        let set = &mut self.connection.waits;
        self.thread.waits.push(wait, self.key, set);
    }
}

impl<D: Driver> Network<D> {
    /// One lookup, for all that happens to a connection in one event.
    #[inline]
    pub(super) fn event(&mut self, key: Key) -> Option<Event<'_, D>> {
        let connection = self.connections.get_mut(key)?;
        let (listeners, thread) = (&mut self.listeners, &mut self.thread);
        Some(Event::new(key, connection, listeners, thread))
    }

    /// What is counted for the listener of a connection that is in the table; of the first one, if
    /// it is not.
    pub(super) fn counters(&self, key: Key) -> &Counters {
        let connection = self.connections.get(key);
        let listener = connection.map_or(0, Connection::listener);
        self.thread.common.counters(listener)
    }

    /// The same for the connection that has a place in the table.
    #[inline]
    pub(super) fn event_at(&mut self, index: u32) -> Option<Event<'_, D>> {
        let (key, connection) = self.connections.at_mut(index)?;
        let (listeners, thread) = (&mut self.listeners, &mut self.thread);
        Some(Event::new(key, connection, listeners, thread))
    }

    /// The connection that has waited longest for something; those that are gone are skipped.
    pub(super) fn next_waiting(&mut self, wait: Wait) -> Option<Key> {
        while let Some(key) = self.thread.waits.pop(wait) {
            if let Some(connection) = self.connections.get_mut(key) {
                connection.waits.remove(wait);
                return Some(key);
            }
        }
        None
    }

    /// Connections that hold a descriptor: those in the table, and those accepted that wait for
    /// their turn.
    pub(super) fn open_connections(&self) -> usize {
        self.connections.len() as usize + self.acceptors.arrivals()
    }

    /// How full the thread is now.
    pub(super) fn load(&self) -> Load {
        let common = &self.thread.common;
        let beside_files = common.descriptors().places();
        let admission = &common.admission;
        Load {
            open: self.open_connections(),
            max: admission.places(common.limits().connections_max, beside_files),
            now_ns: common.turn.now_ns,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use flatpath_driver::simulation::{Faults, Network as World, Simulation};
    use flatpath_driver::{DriverConfig, OperationMode};
    use flatpath_structures::worker_pool::WorkerPoolLimits;

    use super::super::setup::{Setup, places_of};
    use super::*;
    use crate::limits::Limits;
    use crate::memory::pools::Pools;
    use crate::workers::thread_place::ThreadPlace;
    use crate::workers::{ListenerName, Shared};

    /// A network thread that listens nowhere.
    fn network() -> (Network<Simulation>, World) {
        let limits = Limits {
            connections_max: 4,
            ..Limits::default()
        };
        let worker_pool = WorkerPoolLimits {
            workers_min: 1,
            workers_max: 1,
            idle_ns_max: u64::MAX,
        };
        let pools = Pools::new(
            limits.buffer_bytes_max,
            1,
            places_of(limits.connections_max),
        );
        let shared = Shared::new(1, ListenerName::some(1), &limits, worker_pool, pools);
        let (simulation, world) = Simulation::new(1, &DriverConfig::default(), Faults::none());
        let setup = Setup {
            place: ThreadPlace::new(0, Arc::new(shared)),
            limits,
            accept_mode: OperationMode::Single,
            listeners: Vec::new(),
            access_log: None,
            preambles: Vec::new(),
            numbers: Vec::new(),
            region_ids: Vec::new(),
            datagrams: Vec::new(),
            datagram_region: 0,
        };
        (Network::new(simulation, setup), world)
    }

    fn next_outcome(driver: &mut Simulation) -> Outcome {
        let mut completions = Vec::new();
        driver
            .wait(Some(0), &|| false, &mut completions)
            .expect("the simulation continues");
        completions.remove(0).outcome
    }

    #[test]
    fn a_connection_and_a_piece_that_no_operation_expects_are_given_back() {
        let (mut network, world) = network();
        let thread = &mut network.thread;
        let listener = world.listen();
        let client = world.connect(&listener);
        client.write(b"x");
        thread.driver.accept(&listener, 1, OperationMode::Single);
        let Outcome::Accepted(socket) = next_outcome(&mut thread.driver) else {
            panic!("one has connected");
        };
        thread.driver.receive(socket, 2, OperationMode::Single, 0);
        let received = next_outcome(&mut thread.driver);
        assert_eq!(world.leaks().pieces, 1, "{received:?}");
        thread.discard(received);
        thread.discard(Outcome::Accepted(socket));
        assert!(world.leaks().is_none(), "{:?}", world.leaks());
    }
}
