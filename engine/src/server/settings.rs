//! What a server is started with.

use std::ops::RangeInclusive;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use flatpath_driver::{DriverChoice, DriverConfig, OperationMode};

use crate::admission::descriptors::DescriptorBudget;
use crate::connection::behind_proxy::Balancers;
use crate::datagrams::DatagramService;
use crate::error::Error;
use crate::limits::Limits;
use crate::observe::access_log::LogTo;
use crate::protocol::erased::DynProtocol;
use crate::server::listener_limits::ListenerLimits;
use crate::server::options::{KeptWork, Spread, WorkersPart};
use crate::server::service_socket::ServiceSocket;
use crate::server::sockets::{ListenAddress, PassedSockets};
use crate::tls::TlsConfig;

/// Makes a listener's protocol ready on one network thread.
pub(crate) type ProtocolFactory =
    Arc<dyn Fn(usize, &ListenerLimits) -> Box<dyn DynProtocol> + Send + Sync>;

/// Tells a protocol that the server starts, and how many network threads accept for it.
pub(crate) type Starts = Box<dyn Fn(&DescriptorBudget, usize) + Send + Sync>;

/// Where a listener is to listen.
pub(crate) enum Asked {
    At(ListenAddress),
    Given(Vec<OwnedFd>),
}

/// An address with what is spoken there.
pub(crate) struct Endpoint {
    pub(crate) name: &'static str,
    pub(crate) asked: Result<Asked, Error>,
    pub(crate) defer_accept: bool,
    pub(crate) request_classes: &'static [&'static str],
    pub(crate) refusal_reasons: &'static [&'static str],
    pub(crate) parts: Vec<WorkersPart>,
    pub(crate) protocol: ProtocolFactory,
    pub(crate) starts: Starts,
    /// Sockets that the protocol accepts from itself.
    pub(crate) service_sockets: Vec<ServiceSocket>,
    pub(crate) spread: Spread,
    pub(crate) limits: ListenerLimits,
    pub(crate) preamble: Preamble,
}

/// An address with what answers datagrams there.
pub(crate) struct DatagramEndpoint {
    pub(crate) asked: Result<ListenAddress, Error>,
    pub(crate) service: Arc<dyn DatagramService>,
}

/// What comes before the first byte of a listener's protocol.
#[derive(Clone, Default)]
pub(crate) struct Preamble {
    /// Who may connect, each connection with a PROXY header; `None`: everybody, without.
    pub(crate) balancers: Option<Arc<Balancers>>,
    /// TLS, where it is spoken.
    pub(crate) tls: Option<TlsConfig>,
    /// When that is.
    pub(crate) tls_begins: TlsBegins,
    /// Connections come by a Unix socket.
    pub(crate) is_unix: bool,
}

impl Preamble {
    /// Whether a connection has TLS before its protocol's first byte.
    pub(crate) fn has_tls_at_once(&self) -> bool {
        self.tls.is_some() && self.tls_begins == TlsBegins::AtOnce
    }

    /// The parts of the workers that a listener has whose protocol has `parts`: that of handshakes
    /// comes last.
    pub(crate) fn parts_with_own(&self, parts: &[WorkersPart]) -> Vec<WorkersPart> {
        let handshakes = self
            .tls
            .iter()
            .map(|_| WorkersPart::kept(KeptWork::Handshakes));
        parts.iter().cloned().chain(handshakes).collect()
    }
}

/// When TLS is spoken on a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum TlsBegins {
    /// Before anything else but the PROXY header.
    #[default]
    AtOnce,
    /// When the listener's protocol begins it ([`Io::start_tls`](crate::Io::start_tls)), if ever.
    #[cfg_attr(
        not(feature = "tls"),
        expect(dead_code, reason = "it cannot be spoken then")
    )]
    WhenAsked,
}

/// Everything that can be set, with the defaults of [`Server::new`](crate::Server::new).
#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) name: &'static str,
    pub(crate) network_threads: usize,
    pub(crate) workers: RangeInclusive<u32>,
    pub(crate) worker_idle_ns_max: u64,
    pub(crate) observes_dispatch: bool,
    pub(crate) choice: DriverChoice,
    pub(crate) accept_mode: OperationMode,
    pub(crate) defer_accept: bool,
    pub(crate) driver: DriverConfig,
    pub(crate) limits: Limits,
    pub(crate) passed: PassedSockets,
    pub(crate) access_log: Option<LogTo>,
}
