//! The server as its user meets it: name listeners, give each a service, run, drain.
//!
//! Threads of a running server
//! - network threads, each with a driver and, beyond one, a listening socket of its own on
//!   the same port (SO_REUSEPORT);
//! - between `workers_min` and `workers_max` workers, and the scaler that starts them;
//! - the thread that called [`Server::run`], which waits for signals.

pub(crate) mod binding;
pub(crate) mod changed_limits;
#[cfg(feature = "handover")]
pub mod handover;
pub(crate) mod lifecycle;
pub(crate) mod listen;
pub(crate) mod listener_limits;
pub(crate) mod network_threads;
pub(crate) mod options;
pub(crate) mod running;
pub(crate) mod service_socket;
pub(crate) mod settings;
pub(crate) mod signals;
pub(crate) mod socket_watch;
pub mod sockets;
pub(crate) mod start;
pub(crate) mod threads;

use std::net::{SocketAddr, ToSocketAddrs};
use std::ops::RangeInclusive;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use flatpath_driver::{DriverChoice, DriverConfig, OperationMode};

use crate::connection::behind_proxy::Balancers;
use crate::datagrams::DatagramService;
use crate::error::Error;
use crate::limits::Limits;
use crate::observe::access_log::{LogFormat, LogSink, LogTo};
use crate::protocol::erased::ErasedListener;
use crate::protocol::{Protocol, options_of};
use crate::server::listener_limits::ListenerLimits;
use crate::server::network_threads::NetworkThreads;
use crate::server::options::ListenerOptions;
use crate::server::running::Running;
#[cfg(feature = "tls")]
use crate::server::settings::TlsBegins;
use crate::server::settings::{
    Asked, DatagramEndpoint, Endpoint, Options, Preamble, ProtocolFactory,
};
use crate::server::signals::SignalWatch;
use crate::server::sockets::{ListenAddress, PassedSockets};
use crate::server::start::start;
use crate::subnet::Subnet;
#[cfg(feature = "tls")]
use crate::tls::TlsConfig;
use crate::workers::DEFAULT_NAME;

/// A server that has not started yet.
/// The README of the project has a whole program.
///
/// ```no_run
/// use flatpath::Server;
/// use flatpath::framing::{Framed, Lines, Next};
///
/// # fn main() -> Result<(), flatpath::Error> {
/// let upper = Framed::pooled("upper", Lines::new(4096), |line, reply| {
///     reply.write(&line.to_ascii_uppercase());
///     reply.write(b"\n");
///     Next::Message
/// });
/// let server = Server::new().network_threads(2).workers(2..=16);
/// server.listen("127.0.0.1:7000", upper).run() // until SIGTERM
/// # }
/// ```
#[must_use = "a server does nothing before it is run or started"]
pub struct Server {
    pub(crate) endpoints: Vec<Endpoint>,
    pub(crate) datagrams: Vec<DatagramEndpoint>,
    pub(crate) options: Options,
    /// Called with it when it runs.
    ready: Vec<Ready>,
}

/// Called with a server that runs.
type Ready = Box<dyn FnOnce(&Running) + Send>;

flatpath_structures::opaque_debug! {
    impl[] Server as "Server";
}

impl Default for Server {
    fn default() -> Server {
        Server::new()
    }
}

impl Server {
    /// The most workers unless [`workers`](Server::workers) says otherwise.
    pub const WORKERS_MAX: u32 = 128;

    /// [Network threads](NetworkThreads::Auto) for the processors, io_uring or epoll as the machine
    /// allows, 2 to 128 workers, and limits that protect.
    pub fn new() -> Server {
        const WORKERS_MIN: u32 = 2;
        const WORKER_IDLE_NS_MAX: u64 = 5_000_000_000;
        Server {
            endpoints: Vec::new(),
            datagrams: Vec::new(),
            options: Options {
                name: DEFAULT_NAME,
                network_threads: NetworkThreads::Auto.count(),
                workers: WORKERS_MIN..=Server::WORKERS_MAX,
                worker_idle_ns_max: WORKER_IDLE_NS_MAX,
                observes_dispatch: false,
                choice: DriverChoice::Auto,
                accept_mode: OperationMode::Multishot,
                defer_accept: true,
                driver: DriverConfig::default(),
                limits: Limits::default(),
                passed: PassedSockets::default(),
                access_log: None,
            },
            ready: Vec::new(),
        }
    }

    /// Adds a listener. Port 0 picks a free one: see [`Running::addresses`]. A wrong address is
    /// reported by [`Server::start`].
    pub fn listen<P: Protocol>(mut self, address: impl ToSocketAddrs, protocol: P) -> Server {
        let address = resolve(address, options_of(&protocol).name);
        let asked = address.map(|address| Asked::At(address.into()));
        self.endpoints.push(endpoint(asked, protocol));
        self
    }

    /// Adds a listener with TLS: [`Server::listen`] and [`Server::with_tls`].
    #[cfg(feature = "tls")]
    pub fn listen_tls<P: Protocol>(
        self,
        address: impl ToSocketAddrs,
        config: &TlsConfig,
        protocol: P,
    ) -> Server {
        self.listen(address, protocol).with_tls(config)
    }

    /// Adds a listener at an internet address, a path, or on sockets that were passed under a name
    /// ([`Server::passed_sockets`]).
    ///
    /// A Unix socket is made for its owner and group (0660), replaces the file of a server that was
    /// killed, and is removed at the end. One network thread accepts from it. Its connections have
    /// no [`Io::peer`](crate::Io::peer).
    pub fn listen_at<P: Protocol>(mut self, address: ListenAddress, protocol: P) -> Server {
        let asked = Ok(Asked::At(address));
        self.endpoints.push(endpoint(asked, protocol));
        self
    }

    /// Adds a listener on listening stream sockets that the caller has opened, TCP's or Unix'. As
    /// many network threads accept as there are sockets; with more sockets, a thread takes several.
    /// A drain closes them when its last accept has ended, so that a socket that another process
    /// has too loses no connection.
    pub fn listen_on<P: Protocol>(
        mut self,
        sockets: impl IntoIterator<Item = OwnedFd>,
        protocol: P,
    ) -> Server {
        let asked = Ok(Asked::Given(sockets.into_iter().collect()));
        self.endpoints.push(endpoint(asked, protocol));
        self
    }

    /// Adds a listener for datagrams (UDP): see [`datagrams`](crate::datagrams). Port 0 picks a
    /// free one: see [`Running::datagram_listeners`].
    pub fn listen_datagrams(
        mut self,
        address: impl ToSocketAddrs,
        service: impl DatagramService,
    ) -> Server {
        let asked = resolve(address, service.name()).map(ListenAddress::Internet);
        let service = Arc::new(service);
        self.datagrams.push(DatagramEndpoint { asked, service });
        self
    }

    /// The same at an internet address, or on a socket that was passed under a name
    /// ([`Server::passed_sockets`]). There is no such listener on a path: [`Server::start`] refuses
    /// it.
    pub fn listen_datagrams_at(
        mut self,
        address: ListenAddress,
        service: impl DatagramService,
    ) -> Server {
        let (asked, service) = (Ok(address), Arc::new(service));
        self.datagrams.push(DatagramEndpoint { asked, service });
        self
    }

    /// Lets listeners take sockets that were passed to this process instead of binding their
    /// addresses. What is [left](PassedSockets::left) after the start was meant for none of them.
    pub fn passed_sockets(mut self, sockets: &PassedSockets) -> Server {
        self.options.passed = sockets.clone();
        self
    }

    /// Bounds of the listener that was added last, in the place of the server's and of what its
    /// protocol says ([`ListenerOptions::limits`]). Without a listener nothing is bounded.
    pub fn listener_limits(mut self, limits: ListenerLimits) -> Server {
        if let Some(endpoint) = self.endpoints.last_mut() {
            endpoint.limits = limits;
        }
        self
    }

    /// The listener added last is reached through load balancers that speak the PROXY protocol,
    /// version 1 or 2: it takes connections from these networks only, each of which has to begin
    /// with a header. [`Io::peer`](crate::Io::peer) is the client that the header names, and
    /// shares and limits for each address count that client. A connection from elsewhere is reset,
    /// and so is one whose header is not accepted ([`proxy_header`](crate::proxy_header)). The
    /// header has [`Limits::head_timeout`], and the first request after it has it again.
    ///
    /// Without networks, no client may connect. On a Unix socket its permissions decide instead of
    /// the networks, and the header is required all the same.
    pub fn behind_proxy(mut self, networks: impl IntoIterator<Item = Subnet>) -> Server {
        if let Some(endpoint) = self.endpoints.last_mut() {
            endpoint.preamble.balancers = Some(Arc::new(Balancers::new(networks)));
        }
        self
    }

    /// The listener added last speaks its protocol within TLS 1.2 or 1.3, and nothing without.
    /// Behind a load balancer the PROXY header comes first, in the clear. What is made ready for a
    /// client's handshake costs 12 KiB of the memory budget until it is complete, and a job for a
    /// worker twice. What passes between two connections that are spliced goes through this process
    /// where one of them has TLS.
    #[cfg(feature = "tls")]
    pub fn with_tls(mut self, config: &TlsConfig) -> Server {
        if let Some(endpoint) = self.endpoints.last_mut() {
            endpoint.preamble.tls = Some(config.clone());
        }
        self
    }

    /// The listener added last speaks its protocol in the clear, and within TLS from where that
    /// begins it at its client's request ([`Io::start_tls`](crate::Io::start_tls)). Whether what is
    /// said in the clear counts is the protocol's decision.
    #[cfg(feature = "tls")]
    pub fn with_start_tls(mut self, config: &TlsConfig) -> Server {
        self = self.with_tls(config);
        if let Some(endpoint) = self.endpoints.last_mut() {
            endpoint.preamble.tls_begins = TlsBegins::WhenAsked;
        }
        self
    }

    /// What the names of the server's threads begin with: `NAME-net-0`, `NAME-worker`,
    /// `NAME-scaler`. The kernel shows 15 bytes. To tell several servers of one process apart;
    /// `flatpath` by default.
    pub fn threads_named(mut self, name: &'static str) -> Server {
        self.options.name = name;
        self
    }

    /// Network threads: a number, at least one, or [`NetworkThreads::Auto`], the default.
    pub fn network_threads(mut self, threads: impl Into<NetworkThreads>) -> Server {
        self.options.network_threads = threads.into().count();
        self
    }

    /// Fewest and most workers. They grow while work waits and more of them help: those that sleep
    /// get company at once, those that compute, or wait for each other's locks, hardly any beyond
    /// the processors or the fewest. They shrink after five idle seconds.
    pub fn workers(mut self, workers: RangeInclusive<u32>) -> Server {
        self.options.workers = workers;
        self
    }

    /// Which driver; [`DriverChoice::Uring`] refuses to start where io_uring is refused.
    pub fn driver(mut self, choice: DriverChoice) -> Server {
        self.options.choice = choice;
        self
    }

    /// Sizes of each network thread's driver.
    pub fn driver_config(mut self, config: DriverConfig) -> Server {
        self.options.driver = config;
        self
    }

    /// One accept for all connections ([`OperationMode::Multishot`], the default) or one for each.
    pub fn accept(mut self, mode: OperationMode) -> Server {
        self.options.accept_mode = mode;
        self
    }

    /// Whether accept may wait for a connection's first bytes where the protocol says that clients
    /// speak first ([`ListenerOptions::defer_accept`]; true by default). It takes about a quarter
    /// off the cost of a connection with one request. In exchange, one whose first bytes are still
    /// under way when the server drains is reset instead of answered.
    pub fn defer_accept(mut self, defer: bool) -> Server {
        self.options.defer_accept = defer;
        self
    }

    /// Measures what putting jobs on the queue and waking workers takes:
    /// [`ThreadFigures::dispatch`](crate::figures::ThreadFigures::dispatch). For benches: it
    /// costs about 50 ns a job, and nothing when it is not asked for.
    pub fn observe_dispatch(mut self) -> Server {
        self.options.observes_dispatch = true;
        self
    }

    /// Writes a line for each request, or for each connection of a protocol that logs no requests
    /// ([`ListenerOptions::logs_requests`]), when its last byte is queued for the client.
    pub fn access_log(mut self, format: LogFormat, sink: Arc<dyn LogSink>) -> Server {
        self.options.access_log = Some(LogTo { format, sink });
        self
    }

    /// The bounds of the whole server.
    pub fn limits(mut self, limits: Limits) -> Server {
        self.options.limits = limits;
        self
    }

    /// Has `ready` called once every listener accepts, on the thread that starts the server, before
    /// [`Server::run`] waits: to tell the port, where 0 was asked for, or to keep a
    /// [`Handle`](crate::Handle). It is not called where the start fails. Of several each is
    /// called, in their order.
    ///
    /// ```no_run
    /// # use flatpath::{Protocol, Server};
    /// # fn serve(protocol: impl Protocol) -> Result<(), flatpath::Error> {
    /// let server = Server::new().listen("127.0.0.1:0", protocol);
    /// server.on_ready(|running| println!("at {}", running.addresses()[0].address)).run()
    /// # }
    /// ```
    pub fn on_ready(mut self, ready: impl FnOnce(&Running) + Send + 'static) -> Server {
        self.ready.push(Box::new(ready));
        self
    }

    /// Starts all threads and returns when every listener accepts. Signals are heard once the
    /// program [waits](Running::wait) for the server.
    ///
    /// # Errors
    /// No listener, a wrong or taken address, io_uring asked for and refused, limits that cannot
    /// be.
    pub fn start(self) -> Result<Running, Error> {
        let running = start(self.endpoints, self.datagrams, self.options)?;
        self.ready.into_iter().for_each(|ready| ready(&running));
        Ok(running)
    }

    /// Starts, runs until SIGTERM, SIGINT or SIGHUP, then drains. A second signal cuts off what is
    /// left. [`Server::on_ready`] tells the port.
    ///
    /// # Errors
    /// As [`Server::start`], and what made a network thread give up.
    pub fn run(self) -> Result<(), Error> {
        let signals = SignalWatch::begin()?;
        signals.run(self.start()?)
    }
}

/// The first address of those that it stands for.
fn resolve(address: impl ToSocketAddrs, name: &str) -> Result<SocketAddr, Error> {
    let found = address.to_socket_addrs().and_then(|mut found| {
        let none = std::io::ErrorKind::AddrNotAvailable;
        found.next().ok_or_else(|| none.into())
    });
    found.map_err(|cause| Error::Address {
        address: format!("the {name} address"),
        cause,
    })
}

fn endpoint<P: Protocol>(asked: Result<Asked, Error>, protocol: P) -> Endpoint {
    let ListenerOptions {
        name,
        spread,
        defer_accept,
        request_classes,
        refusal_reasons,
        parts,
        service_sockets,
        ..
    } = options_of(&protocol);
    let protocol = Arc::new(protocol);
    let starting = Arc::clone(&protocol);
    let protocol: ProtocolFactory = Arc::new(move |connections_max, limits| {
        let protocol = Arc::clone(&protocol);
        Box::new(ErasedListener::new(protocol, connections_max).limited(limits))
    });
    Endpoint {
        name,
        asked,
        defer_accept,
        request_classes,
        refusal_reasons,
        parts,
        protocol,
        starts: Box::new(move |descriptors, threads| starting.starts(descriptors, threads)),
        service_sockets,
        spread,
        limits: ListenerLimits::default(),
        preamble: Preamble::default(),
    }
}
