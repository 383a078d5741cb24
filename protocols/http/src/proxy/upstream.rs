//! An upstream: servers that answer for this one, and the terms on which they are asked.
//!
//! One [`Upstream`] is shared by all that proxy to it, and by all network threads: who waits is one
//! queue, and a server has its bound once. A lock is held for a decision, and for nothing else. The
//! connections are kept by network thread: a request takes one of its own thread, so that both are
//! called by the same one.
//!
//! | may run beside | a decision | the end of a request | a look at figures |
//! |----------------|------------|----------------------|-------------------|
//! | each of these  | yes        | yes                  | yes               |
//!
//! Lock order: the pools, then the state of a trip; never the other way.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use flatpath::lock::Lock;
#[cfg(feature = "tls")]
use flatpath::tls::rustls::{ClientConfig, pki_types::ServerName};
use flatpath::{Connect, Connector, Remote};

use super::connection::{UpstreamProtocol, UpstreamSession};
use super::policy::choice::Balance;
use super::policy::group::{Group, Outcome, ServerTerms};
use super::policy::health::{AfterFailure, HealthTerms};
use super::policy::idle::{Idle, IdleKey};
use super::seat::Seat;
use super::switched::Switching;
use super::trip::Trip;

/// Servers that an upstream has at most, so that a choice among them is short.
pub const SERVERS_MAX: usize = 256;

/// Limits and times of an upstream. Times count for each request, but for those of idle
/// connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamLimits {
    /// How long a connection to a server may take to stand.
    pub connect_timeout: Duration,
    /// How long the first byte of a reply may take, once the request is sent.
    pub first_byte_timeout: Duration,
    /// How long the next bytes of a reply may take while its client has room for them.
    pub between_bytes_timeout: Duration,
    /// How long a reply may take in all from when the request is sent; none is usual, as downloads
    /// last.
    pub reply_timeout: Option<Duration>,
    /// How long a client and a server that have gone on in another protocol, such as WebSocket,
    /// may say nothing to each other.
    pub upgraded_timeout: Duration,
    /// Requests that wait for a server with room, at most, and for how long.
    pub queue_max: usize,
    /// See [`queue_max`](Self::queue_max).
    pub queue_timeout: Duration,
    /// Connections that are kept for each server and network thread while they are idle.
    pub idle_max: usize,
    /// How long one is kept. Less than the servers keep theirs, so that few requests meet a
    /// connection that is being closed: those that do and may be sent again are.
    pub idle_timeout: Duration,
    /// Failures in a row after which a server is left out; 0 leaves none out.
    pub failures_max: u32,
    /// For how long at first; twice as long each time until it stays well.
    pub pause: Duration,
    /// For how long at most.
    pub pause_max: Duration,
    /// How long a server that was left out takes to its whole weight.
    pub slow_start: Duration,
}

impl Default for UpstreamLimits {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(5),
            first_byte_timeout: Duration::from_secs(60),
            between_bytes_timeout: Duration::from_secs(60),
            reply_timeout: None,
            upgraded_timeout: Duration::from_secs(3600),
            queue_max: 1024,
            queue_timeout: Duration::from_secs(10),
            idle_max: 64,
            // Node.js closes after 5 seconds, which is the shortest default that is common.
            idle_timeout: Duration::from_secs(4),
            failures_max: 3,
            pause: Duration::from_secs(5),
            pause_max: Duration::from_secs(300),
            slow_start: Duration::from_secs(10),
        }
    }
}

/// A server of an upstream.
///
/// ```
/// use flatpath_http::UpstreamServer;
///
/// # fn main() -> Result<(), flatpath_http::InvalidUpstream> {
/// let first: UpstreamServer = "http://127.0.0.1:3000".parse()?;
/// let other = "unix:/run/app/other.sock".parse::<UpstreamServer>()?.weight(3).in_flight_max(100);
/// let last = "http://[2001:db8::7]:3000".parse::<UpstreamServer>()?.backup();
/// # let _ = (first, other, last);
/// # Ok(())
/// # }
/// ```
///
/// A server of `https://` needs [`UpstreamServer::tls`] (feature `tls`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamServer {
    remote: Remote,
    label: String,
    terms: ServerTerms,
    layer: Layer,
}

/// What lies between a server and HTTP.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Layer {
    Clear,
    /// TLS, whose terms are to be named.
    Unnamed,
    #[cfg(feature = "tls")]
    Tls(UpstreamTls),
}

/// TLS with servers: whom this side trusts, what it shows, and whose name a server has to show.
/// A server's certificate is always verified. A clone is the same, and resumes the same sessions.
#[cfg(feature = "tls")]
#[derive(Clone, Debug)]
pub struct UpstreamTls {
    config: Arc<ClientConfig>,
    name: Option<ServerName<'static>>,
}

#[cfg(feature = "tls")]
impl UpstreamTls {
    /// By this configuration, made with [`provider`](flatpath::tls::provider): its roots, its own
    /// certificate. Protocols (ALPN) are set to `http/1.1` unless it names some.
    #[must_use]
    pub fn new(mut config: ClientConfig) -> Self {
        if config.alpn_protocols.is_empty() {
            config.alpn_protocols = vec![b"http/1.1".to_vec()];
        }
        // As the engine needs it: it would copy it for each connection, and no session be resumed.
        config.enable_secret_extraction = true;
        config.enable_early_data = false;
        let config = Arc::new(config);
        Self { config, name: None }
    }

    /// The name that a server's certificate has to be for, and that the server is asked for (SNI);
    /// without this it is the server's address.
    #[must_use]
    pub fn name(mut self, name: ServerName<'static>) -> Self {
        self.name = Some(name);
        self
    }
}

#[cfg(feature = "tls")]
impl PartialEq for UpstreamTls {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.config, &other.config) && self.name == other.name
    }
}

#[cfg(feature = "tls")]
impl Eq for UpstreamTls {}

/// Why a text names no server.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InvalidUpstream {
    /// It is none of `http://ADDRESS:PORT`, `https://ADDRESS:PORT` and `unix:/PATH`.
    Form,
    /// The host is a name, which is not looked up here.
    Name,
    /// It is `https://`, and the terms of its TLS are not named ([`UpstreamServer`]).
    Tls,
    /// There is no server, or there are more than [`SERVERS_MAX`].
    Servers,
}

flatpath::impl_error! {
    InvalidUpstream {
        Self::Form => "an upstream is http(s)://ADDRESS:PORT or unix:/PATH, with no path after it",
        Self::Name => "an upstream is named by its address: names are not looked up",
        Self::Tls => "an upstream with https:// needs terms of TLS",
        Self::Servers => "an upstream has at least one server, and at most 256",
    }
}

impl FromStr for UpstreamServer {
    type Err = InvalidUpstream;

    fn from_str(text: &str) -> Result<Self, InvalidUpstream> {
        if let Some(path) = text.strip_prefix("unix:") {
            return match path.starts_with('/') {
                true => Ok(Self::at(Remote::Unix(Path::new(path).into()))),
                false => Err(InvalidUpstream::Form),
            };
        }
        let (rest, layer, port) = match text.strip_prefix("https://") {
            Some(rest) => (rest, Layer::Unnamed, 443),
            None => {
                let rest = text.strip_prefix("http://").ok_or(InvalidUpstream::Form)?;
                (rest, Layer::Clear, 80)
            }
        };
        let at = |address: SocketAddr| Self {
            layer,
            ..Self::at(Remote::Tcp(address))
        };
        let address = rest.strip_suffix('/').unwrap_or(rest);
        let bare = address.trim_start_matches('[').trim_end_matches(']');
        if let Ok(address) = address.parse::<SocketAddr>() {
            return Ok(at(address));
        }
        if let Ok(address) = bare.parse::<IpAddr>() {
            return Ok(at((address, port).into()));
        }
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:".contains(&byte);
        match !address.is_empty() && address.bytes().all(is_name) {
            true => Err(InvalidUpstream::Name),
            false => Err(InvalidUpstream::Form),
        }
    }
}

/// As it is written: what [`FromStr`] reads.
impl fmt::Display for UpstreamServer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match &self.remote {
            Remote::Unix(_) => "unix:",
            _ if self.is_secured() => "https://",
            _ => "http://",
        };
        write!(formatter, "{scheme}{}", self.label)
    }
}

impl UpstreamServer {
    /// The server there, of weight 1 and without a bound of its own.
    #[must_use]
    pub fn at(remote: Remote) -> Self {
        let label = match &remote {
            Remote::Tcp(address) => address.to_string(),
            Remote::Unix(path) => path.display().to_string(),
            _ => String::from("a server"),
        };
        Self {
            remote,
            label,
            terms: ServerTerms {
                weight: 1,
                is_backup: false,
                in_flight_max: u32::MAX,
            },
            layer: Layer::Clear,
        }
    }

    /// Whether it is asked over TLS.
    #[must_use]
    pub fn is_secured(&self) -> bool {
        self.layer != Layer::Clear
    }

    /// It is asked over TLS, on these terms; also one at a Unix socket, if they name whom it is.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn tls(mut self, tls: &UpstreamTls) -> Self {
        self.layer = Layer::Tls(tls.clone());
        self
    }

    /// Whether a connection to it can be wished: whom TLS is for is known.
    fn is_complete(&self) -> bool {
        match &self.layer {
            Layer::Clear => true,
            Layer::Unnamed => false,
            #[cfg(feature = "tls")]
            Layer::Tls(tls) => tls.name.is_some() || matches!(self.remote, Remote::Tcp(_)),
        }
    }

    /// The wish for a connection to it, with its TLS.
    fn secured(&self, wish: Connect) -> Connect {
        #[cfg(feature = "tls")]
        if let Layer::Tls(UpstreamTls { config, name }) = &self.layer {
            let address = match &self.remote {
                Remote::Tcp(address) => Some(ServerName::from(address.ip())),
                _ => None,
            };
            if let Some(name) = name.clone().or(address) {
                return wish.tls(Arc::clone(config), name);
            }
        }
        wish
    }

    /// How much of the requests it gets, beside the weights of the others; at least 1.
    #[must_use]
    pub fn weight(mut self, weight: u32) -> Self {
        self.terms.weight = weight.max(1);
        self
    }

    /// It gets requests only while all that are no backups are left out.
    #[must_use]
    pub fn backup(mut self) -> Self {
        self.terms.is_backup = true;
        self
    }

    /// Requests that it has at a time, at most, of all network threads; at least 1.
    #[must_use]
    pub fn in_flight_max(mut self, requests: u32) -> Self {
        self.terms.in_flight_max = requests.max(1);
        self
    }
}

/// Servers that answer for this one: see [`Proxy`](crate::Proxy). A clone is the same upstream.
#[derive(Clone)]
pub struct Upstream(pub(crate) Arc<Shared>);

impl fmt::Debug for Upstream {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = formatter.debug_struct("Upstream");
        debug.field("name", &self.0.name).finish_non_exhaustive()
    }
}

impl Upstream {
    /// An upstream with this name, for the log, and these servers.
    ///
    /// # Errors
    /// There is no server, or there are too many; one with TLS lacks the terms of that.
    pub fn new(
        name: impl Into<String>,
        servers: impl IntoIterator<Item = UpstreamServer>,
        balance: Balance,
        limits: UpstreamLimits,
    ) -> Result<Self, InvalidUpstream> {
        let servers: Vec<_> = servers.into_iter().take(SERVERS_MAX + 1).collect();
        if servers.is_empty() || servers.len() > SERVERS_MAX {
            return Err(InvalidUpstream::Servers);
        }
        if !servers.iter().all(UpstreamServer::is_complete) {
            return Err(InvalidUpstream::Tls);
        }
        let health = HealthTerms {
            failures_max: limits.failures_max,
            pause: limits.pause,
            pause_max: limits.pause_max,
            slow_start: limits.slow_start,
        };
        let terms = servers.iter().map(|server| server.terms);
        let group = Group::new(terms, (balance, 1), health, limits.queue_max);
        Ok(Self(Arc::new(Shared {
            name: name.into(),
            pools: Lock::new(Pools {
                group,
                idle: servers.iter().map(|_| Vec::new()).collect(),
                now: Duration::ZERO,
            }),
            servers,
            switching: Switching::new(limits.upgraded_timeout),
            limits,
            connector: Connector::new(UpstreamProtocol),
        })))
    }

    /// The upstream of one server, on the default terms.
    ///
    /// # Errors
    /// The text names none: see [`UpstreamServer`].
    pub fn to(server: &str) -> Result<Self, InvalidUpstream> {
        let limits = UpstreamLimits::default();
        Self::new(server, [server.parse()?], Balance::default(), limits)
    }

    /// How many requests wait for a server with room.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.0.pools.lock().group.waiting_count()
    }

    /// How many connections are idle.
    #[must_use]
    pub fn idle(&self) -> usize {
        let pools = self.0.pools.lock();
        let of_each = pools.idle.iter().flatten();
        of_each.map(Idle::count).sum()
    }
}

/// What all threads share of an upstream.
pub(crate) struct Shared {
    pub(crate) name: String,
    pub(crate) servers: Vec<UpstreamServer>,
    pub(crate) limits: UpstreamLimits,
    pub(crate) connector: Connector<UpstreamProtocol>,
    pub(crate) switching: Switching,
    pub(crate) pools: Lock<Pools>,
}

/// What is decided under the lock.
pub(crate) struct Pools {
    pub(crate) group: Group<Arc<Trip>>,
    /// By server, then by network thread.
    idle: Vec<Vec<Idle<Arc<Seat<Trip>>>>>,
    /// The latest time that a network thread has named.
    pub(crate) now: Duration,
}

/// What follows from the end of a request.
#[must_use]
pub(crate) struct Freed {
    after: AfterFailure,
    /// A request waits that may have its turn now.
    any_waits: bool,
}

impl Pools {
    fn idle_of(&mut self, server: usize, thread: usize) -> &mut Idle<Arc<Seat<Trip>>> {
        let by_thread = &mut self.idle[server];
        if by_thread.len() <= thread {
            by_thread.resize_with(thread + 1, Idle::default);
        }
        &mut by_thread[thread]
    }

    /// The newest idle connection to a server of a network thread.
    pub(crate) fn take_idle(&mut self, server: usize, thread: usize) -> Option<Arc<Seat<Trip>>> {
        self.idle_of(server, thread).take()
    }
}

impl Shared {
    /// The wish for a connection to a server, with a session for the trip in this seat.
    pub(crate) fn wish(self: &Arc<Self>, server: usize, seat: Arc<Seat<Trip>>) -> Connect {
        let of = Arc::clone(self);
        let begin = move || UpstreamSession::new(of, seat);
        let server = &self.servers[server];
        let wish = self.connector.to(server.remote.clone(), begin);
        server.secured(wish.timeout(self.limits.connect_timeout))
    }

    pub(crate) fn label(&self, server: usize) -> &str {
        &self.servers[server].label
    }

    /// Whether there is another server than any one.
    pub(crate) fn has_several(&self) -> bool {
        self.servers.len() > 1
    }

    /// A connection is kept no more. False: a request has it.
    pub(crate) fn forget(&self, (server, thread): (usize, usize), key: IdleKey) -> bool {
        let mut pools = self.pools.lock();
        let idle = pools.idle[server].get_mut(thread);
        let forgotten = idle.and_then(|idle| idle.remove(key));
        drop(pools);
        forgotten.is_some()
    }

    /// A request has its server no more. Its connection is kept for the next one, if `keeps` names
    /// it and no more are kept than may. What follows is to be done next ([`Shared::follow`]).
    pub(crate) fn ended(
        &self,
        (server, thread): (usize, usize),
        outcome: Outcome,
        keeps: Option<&Arc<Seat<Trip>>>,
    ) -> (Option<IdleKey>, Freed) {
        let mut pools = self.pools.lock();
        let key = keeps.and_then(|seat| {
            let idle = pools.idle_of(server, thread);
            (idle.count() < self.limits.idle_max).then(|| idle.put(Arc::clone(seat)))
        });
        let now = pools.now;
        let after = pools.group.done(server, outcome, now);
        let any_waits = pools.group.waiting_count() > 0;
        (key, Freed { after, any_waits })
    }

    /// What follows from the end of a request: what it frees goes to those that wait.
    pub(crate) fn follow(&self, server: usize, freed: Freed) {
        if let AfterFailure::Out(pause) = freed.after {
            let (name, label) = (&self.name, self.label(server));
            let seconds = pause.as_secs_f64();
            log::warn!(
                "upstream {name}, server {label}: it fails, and is left out for {seconds} s"
            );
        }
        if freed.any_waits {
            self.hand_on();
        }
    }

    /// A request has its server no more, whose connection is not kept.
    pub(crate) fn done(&self, server: usize, outcome: Outcome) {
        let (_, freed) = self.ended((server, 0), outcome, None);
        self.follow(server, freed);
    }

    /// Those that wait get what is free, in their order.
    pub(crate) fn hand_on(&self) {
        loop {
            let mut pools = self.pools.lock();
            let now = pools.now;
            let granted = pools.group.next_grant(now);
            drop(pools);
            let Some((trip, server)) = granted else {
                return;
            };
            if !trip.granted(server) {
                self.pools.lock().group.give_back(server);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_named_by_its_address_or_path() {
        for (text, label) in [
            ("http://127.0.0.1:3000", "127.0.0.1:3000"),
            ("http://127.0.0.1:3000/", "127.0.0.1:3000"),
            ("http://127.0.0.1", "127.0.0.1:80"),
            ("http://[::1]:3000", "[::1]:3000"),
            ("http://[::1]", "[::1]:80"),
            ("https://127.0.0.1", "127.0.0.1:443"),
            ("https://[::1]:8443/", "[::1]:8443"),
            ("unix:/run/app.sock", "/run/app.sock"),
        ] {
            let server = text.parse::<UpstreamServer>().expect(text);
            assert_eq!(server.label, label);
            assert_eq!(server.is_secured(), text.starts_with("https:"));
            let again = server.to_string().parse::<UpstreamServer>();
            assert_eq!(again, Ok(server));
        }
        for (text, error) in [
            ("https://localhost", InvalidUpstream::Name),
            ("http://localhost:3000", InvalidUpstream::Name),
            ("http://127.0.0.1:3000/app", InvalidUpstream::Form),
            ("http://", InvalidUpstream::Form),
            ("127.0.0.1:3000", InvalidUpstream::Form),
            ("unix:app.sock", InvalidUpstream::Form),
            ("", InvalidUpstream::Form),
        ] {
            assert_eq!(text.parse::<UpstreamServer>(), Err(error), "{text}");
        }
    }

    #[test]
    fn an_upstream_has_servers() {
        let new = |count| {
            let server = "http://127.0.0.1"
                .parse::<UpstreamServer>()
                .expect("a server");
            let servers = std::iter::repeat_n(server, count);
            Upstream::new(
                "app",
                servers,
                Balance::default(),
                UpstreamLimits::default(),
            )
            .map(drop)
        };
        assert_eq!(new(0), Err(InvalidUpstream::Servers));
        assert_eq!(new(1), Ok(()));
        assert_eq!(new(SERVERS_MAX), Ok(()));
        assert_eq!(new(SERVERS_MAX + 1), Err(InvalidUpstream::Servers));
        assert_eq!(
            Upstream::to("https://127.0.0.1").map(drop),
            Err(InvalidUpstream::Tls)
        );
    }
}
