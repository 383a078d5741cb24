//! What a listener states once, before its first connection.

use std::sync::Arc;

use bytes::Bytes;
use flatpath_driver::RegionConfig;

use crate::limits::KEPT_PART;
use crate::server::listener_limits::ListenerLimits;
use crate::server::service_socket::ServiceSocket;

/// What the engine has to know of a protocol besides its methods. The default is right for most.
///
/// ```
/// use flatpath::ListenerOptions;
///
/// // For `Protocol::options` of a protocol with short connections, whose client speaks first.
/// let options = ListenerOptions {
///     defer_accept: true,
///     ..ListenerOptions::named("lookup")
/// };
/// # let _ = options;
/// ```
#[derive(Clone, Debug, Default)]
pub struct ListenerOptions {
    /// The word in `listening NAME ADDR`, in logs and in metrics. Empty: the name of the protocol's
    /// type.
    pub name: &'static str,
    /// True where the client speaks first and connections are short: accept then waits for the
    /// first bytes ([`Listener::defer_accept`](flatpath_driver::Listener::defer_accept)). The head
    /// deadline of a client that says nothing begins about a second after it has connected.
    pub defer_accept: bool,
    /// Which network threads accept.
    pub spread: Spread,
    /// Receive memory of the listener's own, on each network thread; a connection that asks for it
    /// ([`Io::receive_into`](crate::Io::receive_into)) is received into it page by page, with one
    /// receive at a time. What is left there because of a [`Stall`](crate::Stall) stays in its
    /// page.
    pub region: Option<RegionConfig>,
    /// True if the protocol can take nothing that it may not retain
    /// ([`Io::retain`](crate::Io::retain)). Where its listener has TLS, connections receive into
    /// the common pages whatever they choose, and what is in their records is copied to pages of
    /// `region`, one for each piece, before it is given; only what the protocol leaves there
    /// without a stall ([`Received::NeedMore`](crate::Received::NeedMore)) is not.
    pub retains_all: bool,
    /// Where connections receive to from their first byte on, until
    /// [`Io::receive_into`](crate::Io::receive_into) chooses otherwise.
    pub first_pages: Pages,
    /// What a client is sent when there is no room for it or its request, before it is closed.
    /// Empty: nothing is sent. It should be a static text: memory is short when it is needed.
    pub refusal: Bytes,
    /// Most fragments that one connection's users may hold before it stops receiving; `None`: as
    /// [`Limits::pages_per_connection_max`](crate::Limits::pages_per_connection_max) says.
    pub pages_max: Option<u32>,
    /// Workers that jobs of this listener may occupy at a time; the others wait, and leave workers
    /// to other listeners. `None`: as
    /// [`Limits::workers_per_listener`](crate::Limits::workers_per_listener) says.
    pub workers_max: Option<u32>,
    /// Parts of the workers for some of this listener's jobs, by their numbers for
    /// [`Context::dispatch_in`](crate::Context::dispatch_in).
    pub parts: Vec<WorkersPart>,
    /// The classes in which the protocol counts its requests, eight at most, such as `2xx`: see
    /// [`Io::count_request`](crate::Io::count_request). Empty: it counts none.
    pub request_classes: &'static [&'static str],
    /// Why the protocol refuses requests that it cannot serve, in a word each, such as `target`;
    /// [`REFUSAL_REASONS_MAX`](crate::observe::statistics::REFUSAL_REASONS_MAX) at most: see
    /// [`Io::count_refusal`](crate::Io::count_refusal). Empty: it counts none.
    pub refusal_reasons: &'static [&'static str],
    /// True if the protocol writes a line for each request into the access log
    /// ([`Io::access_log`](crate::Io::access_log)); otherwise each connection has one at its end.
    pub logs_requests: bool,
    /// The names of the protocol for ALPN (RFC 7301), the preferred one first; used where its
    /// listener has TLS. Empty: it has none, and what clients offer is ignored.
    pub alpn: &'static [&'static str],
    /// The oldest version of TLS that the protocol allows, where its listener has TLS. A handshake
    /// that comes to an older one is refused (the alert `protocol_version`), whatever else the
    /// listener's configuration would take, also if other listeners share it.
    pub tls_oldest: TlsVersion,
    /// Bounds of its connections that differ from the server's.
    /// [`Server::listener_limits`](crate::Server::listener_limits) replaces each that it names.
    pub limits: ListenerLimits,
    /// Sockets that the service accepts from itself: they are handed over with the listener's, and
    /// their files are removed at the end.
    pub service_sockets: Vec<ServiceSocket>,
}

impl ListenerOptions {
    /// The defaults, with a name.
    #[must_use]
    pub fn named(name: &'static str) -> ListenerOptions {
        ListenerOptions {
            name,
            ..ListenerOptions::default()
        }
    }
}

/// A part of the workers, for jobs that may block each other and are not to block the listener's
/// other ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkersPart {
    /// What the log calls it.
    pub name: Arc<str>,
    /// How many workers it has.
    pub size: PartSize,
}

/// The size of a [`WorkersPart`]. Its jobs count among those of its listener, for which a bound may
/// be asked ([`ListenerOptions::workers_max`]), unless it is [kept](PartSize::Kept).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PartSize {
    /// This number of workers, at least one, which no other job takes; the part has no others. All
    /// such parts of a server have half of its workers at most, and each has less if they ask for
    /// more.
    Own(u32),
    /// All free workers but a quarter of them, which stays with the other jobs. One is the part's
    /// own.
    Common,
    /// The same, and a sixteenth of the workers, at least one, that no other job takes: for a kind
    /// of work that never waits for a client ([`KeptWork`]), so that no handler that waits keeps it
    /// out. Its jobs do not count among those of the listener, and parts of the same name are one
    /// part, whichever listeners have it. With fewer than sixteen workers all such parts of a
    /// server are one.
    Kept,
}

/// A kind of work that the engine, or a service, knows never to wait for a client or for the code
/// of a program: its jobs end by themselves, so each kind keeps a part of the workers that handlers
/// cannot take ([`PartSize::Kept`]). What may wait, such as a handler, is none of these, also where
/// the same request begins with one: the protocol dispatches its job anew then
/// ([`WorkerScope::end_kept_work`](crate::WorkerScope::end_kept_work)).
///
/// A mount that hangs holds jobs of [`Files`](KeptWork::Files) at most, so these have a part of
/// their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum KeptWork {
    /// Handshakes of TLS.
    Handshakes,
    /// Checks of passwords.
    Passwords,
    /// Files that are compressed while they are sent, and directories that are made archives of.
    Files,
}

impl KeptWork {
    /// What the log calls it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            KeptWork::Handshakes => "TLS handshakes",
            KeptWork::Passwords => "checks of passwords",
            KeptWork::Files => "files that are compressed or archived",
        }
    }
}

impl WorkersPart {
    /// The workers that are asked for it alone.
    pub(crate) fn own(&self) -> Option<u32> {
        match self.size {
            PartSize::Own(asked) => Some(asked.max(1)),
            PartSize::Common | PartSize::Kept => None,
        }
    }

    /// The part that a kind of work keeps.
    #[must_use]
    pub fn kept(work: KeptWork) -> WorkersPart {
        WorkersPart {
            name: work.name().into(),
            size: PartSize::Kept,
        }
    }

    /// Whether two of them, of any listeners of a server with this number of workers, are one part.
    pub(crate) fn is_same_kept(&self, other: &WorkersPart, workers: u32) -> bool {
        [self, other].iter().all(|part| part.size == PartSize::Kept)
            && (self.name == other.name || workers < KEPT_PART)
    }
}

/// A version of TLS; a later one is greater.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum TlsVersion {
    /// 1.2 (RFC 5246), the oldest one here.
    #[default]
    V1_2,
    /// 1.3 (RFC 8446).
    V1_3,
}

impl TlsVersion {
    /// `1.2` or `1.3`, as logs and metrics have it.
    pub fn as_str(self) -> &'static str {
        match self {
            TlsVersion::V1_2 => "1.2",
            TlsVersion::V1_3 => "1.3",
        }
    }
}

/// Which network threads accept for a protocol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Spread {
    /// All of them: connections are shared out by the kernel.
    #[default]
    EveryThread,
    /// One: all connections of the listener, and of other such listeners of its protocol, are on
    /// the same thread, so that any two of them can be spliced, and get that thread's share of
    /// `connections_max`.
    OneThread,
}

/// Which memory a connection receives into.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Pages {
    /// The buffers that all connections share: right for what is handled in the same turn.
    #[default]
    Common,
    /// The pages of the listener's own region ([`ListenerOptions::region`]): right for large
    /// bodies.
    Listener,
    /// The same, but a small receive may share its page with others, where the driver can and the
    /// region wants it ([`RegionConfig::small_receives`]):
    /// right for what is probably short, and may be kept.
    Shared,
}
