//! A whole server on the simulated driver: one thread, its own clock, every fault from a seed.
//!
//! The network thread's code is the product's; the kernel, the clients and the clock are simulated,
//! and the workers are this thread, which runs queued jobs at seeded moments. The same seed gives
//! the same run. For the engine's own tests and for those of protocols and services.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use flatpath_driver::simulation::Simulation;
pub use flatpath_driver::simulation::{
    Answer, Client, ClientState, Fault, Faults, Injected, Leaks, Network as World, Random,
    Upstream, each_seed,
};
pub use flatpath_driver::{DatagramSocket, Envelope, Errno, SentDatagram};
use flatpath_driver::{DriverConfig, OperationMode};
use flatpath_structures::worker_pool::WorkerPoolLimits;

use crate::admission::answered::Answered;
use crate::connection::behind_proxy::Balancers;
use crate::datagrams::DatagramService;
use crate::limits::Limits;
use crate::memory::pools::Pools;
use crate::network::{After, DatagramSetup, Network, Setup, add_datagram_region, places_of};
use crate::observe::statistics::Statistics;
use crate::protocol::Protocol;
use crate::protocol::discard::OnNetworkThread;
use crate::protocol::erased::{DynProtocol, ErasedListener, regions_of};
use crate::server::lifecycle::ServerState;
use crate::server::listener_limits::ListenerLimits;
use crate::server::running::Handle;
use crate::server::settings::{Preamble, TlsBegins};
use crate::subnet::Subnet;
use crate::workers::thread_place::ThreadPlace;
use crate::workers::{ListenerName, Shared};

/// What a simulated server is made of.
///
/// ```
/// use flatpath::simulation::Conditions;
///
/// let calm = Conditions::calm(1); // nothing goes wrong
/// let rough = Conditions::rough(2); // the seed decides what comes late, short or twice
/// # let _ = (calm, rough);
/// ```
#[derive(Clone, Debug)]
pub struct Conditions {
    /// Decides every fault and every order that is left open.
    pub seed: u64,
    /// How often what goes wrong.
    pub faults: Faults,
    /// Buffers and queue length.
    pub driver: DriverConfig,
    /// The server's bounds; `connections_max` of zero means 1,000 here.
    pub limits: Limits,
    /// How connections are accepted.
    pub accept: OperationMode,
    /// The load balancers of all listeners: see
    /// [`Server::behind_proxy`](crate::Server::behind_proxy).
    pub balancers: Option<Vec<Subnet>>,
    /// TLS of all listeners: see [`Server::with_tls`](crate::Server::with_tls).
    #[cfg(feature = "tls")]
    pub tls: Option<crate::tls::TlsConfig>,
    /// Of several listeners, those without it, by their numbers.
    #[cfg(feature = "tls")]
    pub without_tls: &'static [usize],
    /// The others begin it when their protocol does: see
    /// [`Server::with_start_tls`](crate::Server::with_start_tls).
    #[cfg(feature = "tls")]
    pub starts_tls: bool,
    /// Connections with TLS whose ciphers stay ready for use; the others make them anew when they
    /// are next used.
    #[cfg(feature = "tls")]
    pub ciphers_cached_max: usize,
}

impl Conditions {
    /// A calm world with the default sizes.
    pub fn calm(seed: u64) -> Conditions {
        Conditions {
            seed,
            faults: Faults::none(),
            driver: DriverConfig::default(),
            limits: Limits::default(),
            accept: OperationMode::Multishot,
            balancers: None,
            #[cfg(feature = "tls")]
            tls: None,
            #[cfg(feature = "tls")]
            without_tls: &[],
            #[cfg(feature = "tls")]
            starts_tls: false,
            #[cfg(feature = "tls")]
            ciphers_cached_max: crate::network::CIPHERS_CACHED_MAX,
        }
    }

    /// The same with a mix of faults that no client notices: short receives and sends, late and
    /// repeated completions, no lost connections.
    pub fn rough(seed: u64) -> Conditions {
        Conditions {
            faults: Faults::mixed(seed).without_losses(),
            ..Conditions::calm(seed)
        }
    }

    /// Sizes that `dice` draw, down to where everything has to wait for its turn, and deadlines
    /// that no run reaches.
    pub fn drawn(seed: u64, dice: &mut Random, faults: Faults) -> Conditions {
        let long = Duration::from_secs(100_000);
        Conditions {
            faults,
            driver: DriverConfig {
                completion_entries: [4, 64, 4096][dice.below(3)],
                receive_buffers: [1, 4, 64][dice.below(3)],
                receive_buffer_bytes: [16, 256, 8192][dice.below(3)],
                ..DriverConfig::default()
            },
            limits: Limits {
                in_flight_max: [1, 4, 256][dice.below(3)],
                head_timeout: long,
                write_timeout: long,
                stall_timeout: long,
                wait_timeout: long,
                spliced_timeout: long,
                drain_timeout: long,
                ..Limits::default()
            },
            accept: [OperationMode::Single, OperationMode::Multishot][dice.below(2)],
            ..Conditions::calm(seed)
        }
    }

    /// What comes before the first byte of a listener's protocol, by its number.
    fn preamble(&self, _listener: usize) -> Preamble {
        let balancers = self.balancers.as_deref();
        let balancers =
            balancers.map(|networks| Arc::new(Balancers::new(networks.iter().copied())));
        Preamble {
            balancers,
            #[cfg(feature = "tls")]
            tls: self
                .tls
                .clone()
                .filter(|_| !self.without_tls.contains(&_listener)),
            #[cfg(feature = "tls")]
            tls_begins: match self.starts_tls {
                true => TlsBegins::WhenAsked,
                false => TlsBegins::AtOnce,
            },
            #[cfg(not(feature = "tls"))]
            tls: None,
            #[cfg(not(feature = "tls"))]
            tls_begins: TlsBegins::AtOnce,
            is_unix: false,
        }
    }
}

/// See the module.
pub struct SimulatedServer {
    threads: Vec<Thread>,
    shared: Arc<Shared>,
    random: Random,
}

flatpath_structures::opaque_debug! {
    impl[] SimulatedServer as "SimulatedServer";
}

/// A network thread with a simulated network of its own.
struct Thread {
    network: Network<Simulation>,
    world: World,
    datagrams: Option<Arc<DatagramSocket>>,
    ended: bool,
}

/// Where a simulated server has its datagrams, at port [`DATAGRAM_PORT`].
pub const DATAGRAMS_AT: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);

/// The port of a simulated server's socket of datagrams.
pub const DATAGRAM_PORT: u16 = 111;

impl SimulatedServer {
    /// A server with one listener that speaks `protocol`.
    pub fn new<P: Protocol>(conditions: Conditions, protocol: P) -> SimulatedServer {
        SimulatedServer::with_threads(conditions, 1, protocol)
    }

    /// The same with several network threads, which have their turns one after the other.
    pub fn with_threads<P: Protocol>(
        conditions: Conditions,
        threads: u16,
        protocol: P,
    ) -> SimulatedServer {
        let protocol = Arc::new(protocol);
        SimulatedServer::of(conditions, (threads, 1), None, |places| {
            vec![Box::new(ErasedListener::new(Arc::clone(&protocol), places))]
        })
    }

    /// A server with one listener that speaks `protocol`, and one for datagrams, which the first
    /// network thread receives.
    pub fn with_datagrams<P: Protocol>(
        conditions: Conditions,
        protocol: P,
        service: impl DatagramService,
    ) -> SimulatedServer {
        let (protocol, service) = (Arc::new(protocol), Arc::new(service));
        SimulatedServer::of(conditions, (1, 1), Some(service), |places| {
            vec![Box::new(ErasedListener::new(Arc::clone(&protocol), places))]
        })
    }

    /// A server with two listeners.
    pub fn with_two<P: Protocol, Q: Protocol>(
        conditions: Conditions,
        (first, second): (P, Q),
    ) -> SimulatedServer {
        let (first, second) = (Arc::new(first), Arc::new(second));
        SimulatedServer::of(conditions, (1, 1), None, |places| {
            vec![
                Box::new(ErasedListener::new(Arc::clone(&first), places)),
                Box::new(ErasedListener::new(Arc::clone(&second), places)),
            ]
        })
    }

    /// A server with a listener for each of these bounds, which share the workers; all speak
    /// `protocol`.
    pub fn with_limited<P: Protocol>(
        conditions: Conditions,
        workers_max: u32,
        listeners: &[ListenerLimits],
        protocol: P,
    ) -> SimulatedServer {
        let protocol = Arc::new(protocol);
        SimulatedServer::of(conditions, (1, workers_max), None, |places| {
            let listener = || ErasedListener::new(Arc::clone(&protocol), places);
            let limited = listeners.iter().map(|limits| listener().limited(limits));
            limited.map(|listener| Box::new(listener) as _).collect()
        })
    }

    fn of(
        mut conditions: Conditions,
        (threads, workers_max): (u16, u32),
        datagrams: Option<Arc<dyn DatagramService>>,
        protocols: impl Fn(usize) -> Vec<Box<dyn DynProtocol>>,
    ) -> SimulatedServer {
        const CONNECTIONS_MAX: usize = 1000;
        let limits = &mut conditions.limits;
        if limits.connections_max == 0 {
            limits.connections_max = CONNECTIONS_MAX;
        }
        let places = places_of(limits.connections_max);
        let count = usize::from(threads);
        let pools = Pools::new(limits.buffer_bytes_max, count, places);
        // No thread registers with this worker pool: jobs run in `turn`.
        let worker_pool = WorkerPoolLimits {
            workers_min: 1,
            workers_max,
            idle_ns_max: u64::MAX,
        };
        let protocols: Vec<_> = (0..threads).map(|_| protocols(places)).collect();
        let listeners = protocols.first().into_iter().flatten().enumerate();
        let listeners = listeners.map(|(listener, protocol)| ListenerName {
            name: protocol.options().name,
            address: "simulated".into(),
            request_classes: protocol.options().request_classes,
            refusal_reasons: protocol.options().refusal_reasons,
            parts: conditions
                .preamble(listener)
                .parts_with_own(&protocol.options().parts),
        });
        let datagram_name = datagrams.as_ref().map(|service| ListenerName {
            name: service.name(),
            address: "udp:simulated".into(),
            request_classes: &[],
            refusal_reasons: &[],
            parts: Vec::new(),
        });
        let listeners = listeners.chain(datagram_name).collect();
        let mut shared = Shared::new(count, listeners, &conditions.limits, worker_pool, pools);
        shared.answered = datagrams.is_some().then(Answered::default);
        let shared = Arc::new(shared);
        let threads = (0..).zip(protocols);
        let threads = threads.map(|(thread, protocols)| {
            let datagrams = datagrams.clone().filter(|_| thread == 0);
            Thread::new((thread, &shared), &conditions, protocols, datagrams)
        });
        SimulatedServer {
            threads: threads.collect(),
            shared,
            random: Random::new(conditions.seed),
        }
    }

    /// The simulated network: clock, faults, what was injected. Of several network threads, the
    /// first one's.
    pub fn world(&self) -> &World {
        &self.threads[0].world
    }

    /// Moves the clocks of all network threads on.
    pub fn advance(&self, time: Duration) {
        for thread in &self.threads {
            thread.world.advance(time);
        }
    }

    /// A new client.
    ///
    /// # Panics
    /// When the server listens no more.
    pub fn connect(&self) -> Client {
        self.connect_from(None)
    }

    /// A new client that comes from an address.
    ///
    /// # Panics
    /// When the server listens no more.
    pub fn connect_from(&self, peer: Option<SocketAddr>) -> Client {
        self.connect_to(0, peer)
    }

    /// The same, to one of several listeners.
    ///
    /// # Panics
    /// As [`SimulatedServer::connect`].
    pub fn connect_to(&self, listener: usize, peer: Option<SocketAddr>) -> Client {
        self.threads[0].connect(listener, peer)
    }

    /// A new client of one of several network threads.
    ///
    /// # Panics
    /// As [`SimulatedServer::connect`].
    pub fn connect_on(&self, thread: usize) -> Client {
        self.threads[thread].connect(0, None)
    }

    /// Sends a datagram to the server, from this address or in its name.
    ///
    /// # Panics
    /// When the server was made without datagrams.
    pub fn send_datagram(&self, from: SocketAddr, bytes: &[u8]) {
        let envelope = Envelope {
            from,
            to: Some(DATAGRAMS_AT.into()),
            is_to_group: false,
            is_cut: false,
            lost: 0,
        };
        let socket = self.datagram_socket();
        self.world().send_datagram(socket, envelope, bytes);
    }

    /// Takes the datagrams that the server has sent, oldest first.
    ///
    /// # Panics
    /// As [`SimulatedServer::send_datagram`].
    pub fn sent_datagrams(&self) -> Vec<SentDatagram> {
        self.world().sent_datagrams(self.datagram_socket())
    }

    /// The socket that the server receives datagrams from, for what its network can do with it.
    ///
    /// # Panics
    /// As [`SimulatedServer::send_datagram`].
    pub fn datagram_socket(&self) -> &Arc<DatagramSocket> {
        let socket = self.threads[0].datagrams.as_ref();
        socket.expect("a server that was made with datagrams")
    }

    /// One turn of each network thread, then a seeded number of queued jobs.
    ///
    /// # Panics
    /// When the driver gives up or finds a promise broken; the message has the seed.
    pub fn turn(&mut self) {
        self.turn_without_workers();
        for _ in 0..self.random.below(4) {
            self.shared.run_next(0, || ());
        }
        self.empty_bin();
    }

    /// The same while no worker finishes anything: jobs stay where they are.
    ///
    /// # Panics
    /// As [`SimulatedServer::turn`].
    pub fn turn_without_workers(&mut self) {
        for thread in &mut self.threads {
            let seed = thread.world.seed();
            let on_network_thread = OnNetworkThread::enter();
            let turn = thread.network.turn();
            drop(on_network_thread);
            match turn {
                Ok(after) => thread.ended |= after == After::Done,
                Err(cause) => panic!("seed {seed}: the driver gave up: {cause}"),
            }
        }
    }

    /// As workers do, but at once and in order.
    fn empty_bin(&self) {
        self.shared.bin_gathered();
        while self.shared.bin.empty_one(0, || ()) {}
    }

    /// Whether nothing happens any more by itself, until a client says something or a deadline
    /// passes. What was written since the last turn is seen in the next one only.
    pub fn is_settled(&self) -> bool {
        let mut threads = self.threads.iter();
        self.shared.queue.is_empty()
            && threads.all(|thread| thread.world.is_settled() && thread.network.is_quiet())
    }

    /// Begins to drain, after `drain_delay`; [`SimulatedServer::has_ended`] tells when the last
    /// connection is gone.
    pub fn drain(&self) {
        self.handle().drain();
    }

    /// Cuts off everything.
    pub fn force(&self) {
        self.shared.advance(ServerState::Forced);
    }

    /// The handle that a running server would have: to make event sources with.
    pub fn handle(&self) -> Handle {
        Handle(Arc::clone(&self.shared))
    }

    /// From now on there is no memory to order watches with, or there is again.
    pub fn starve_watches(&self, is_out_of_memory: bool) {
        self.shared.mailboxes[0].watches.starve(is_out_of_memory);
    }

    /// Lets a server that drains, or was forced, take a millisecond a turn until it has ended, and
    /// looks for what it has not given back.
    ///
    /// # Panics
    /// When it has not ended after `turns_max` turns, or something is missing.
    pub fn end(&mut self, turns_max: usize) {
        for turn in 0.. {
            assert!(turn < turns_max, "the server does not end");
            if self.has_ended() {
                break;
            }
            self.turn();
            self.advance(Duration::from_millis(1));
        }
        let (leaks, pooled_bytes) = self.leaks();
        assert!(leaks.is_none(), "leaked: {leaks:?}");
        assert_eq!(pooled_bytes, 0, "bytes of buffers are out");
    }

    /// True once all network threads would have ended.
    pub fn has_ended(&self) -> bool {
        self.threads.iter().all(|thread| thread.ended)
    }

    /// The server's counters.
    pub fn statistics(&self) -> Statistics {
        self.shared.statistics()
    }

    /// What was not given back: sockets and receive buffers of the first driver, and bytes of
    /// pooled buffers. Both are zero for a server that has ended and whose jobs have run.
    pub fn leaks(&mut self) -> (Leaks, usize) {
        // Jobs of connections that are gone come back as well.
        loop {
            while self.shared.run_next(0, || ()) {}
            self.empty_bin();
            for thread in &mut self.threads {
                let _network = OnNetworkThread::enter();
                thread.network.collect_jobs();
            }
            self.empty_bin();
            // What was dropped may have let others go on that waited.
            if self.shared.queue.is_empty() {
                break;
            }
        }
        (
            self.world().leaks(),
            self.shared.memory.pools.statistics().in_use_bytes,
        )
    }
}

impl Thread {
    fn new(
        (thread, shared): (u16, &Arc<Shared>),
        conditions: &Conditions,
        protocols: Vec<Box<dyn DynProtocol>>,
        service: Option<Arc<dyn DatagramService>>,
    ) -> Thread {
        let seed = conditions.seed.wrapping_add(u64::from(thread));
        let preamble = |listener| conditions.preamble(listener);
        let preambles: Vec<_> = (0..protocols.len()).map(preamble).collect();
        let spoken = protocols.iter().zip(&preambles);
        let spoken = spoken.map(|(protocol, before)| (&**protocol, before.has_tls_at_once()));
        let (mut regions, region_ids) = regions_of(spoken);
        let datagram_region = add_datagram_region(&mut regions, service.is_some());
        let mut driver = conditions.driver.clone();
        driver.regions = regions;
        let (simulation, world) = Simulation::new(seed, &driver, conditions.faults.clone());
        let datagrams = service.map(|service| DatagramSetup {
            socket: Arc::new(world.bind_datagrams()),
            service,
            number: u16::try_from(protocols.len()).expect("listeners are few"),
            port: DATAGRAM_PORT,
        });
        let socket = datagrams.as_ref().map(|setup| Arc::clone(&setup.socket));
        let setup = Setup {
            place: ThreadPlace::new(thread, Arc::clone(shared)),
            limits: conditions.limits.clone(),
            accept_mode: conditions.accept,
            numbers: (0..).take(protocols.len()).collect(),
            preambles,
            access_log: None,
            listeners: protocols
                .into_iter()
                .map(|protocol| (vec![world.listen()], protocol))
                .collect(),
            region_ids,
            datagrams: datagrams.into_iter().collect(),
            datagram_region,
        };
        #[cfg_attr(not(feature = "tls"), expect(unused_mut, reason = "for ciphers alone"))]
        let mut network = Network::new(simulation, setup);
        #[cfg(feature = "tls")]
        network.cache_ciphers_at_most(conditions.ciphers_cached_max);
        Thread {
            network,
            world,
            datagrams: socket,
            ended: false,
        }
    }

    fn connect(&self, listener: usize, peer: Option<SocketAddr>) -> Client {
        let listener = self.network.source(listener);
        let listener = listener.expect("a server that drains listens no more");
        self.world.connect_from(listener, peer)
    }
}
