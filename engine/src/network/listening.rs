//! The listeners of a network thread, and their sockets; how accept is armed on each is decided in
//! `crate::admission::accepting`.

use std::sync::Arc;

use flatpath_driver::{Listener as Source, OperationMode, Socket};

use crate::admission::accepting::{AcceptMode, Accepting};
use crate::admission::arrivals::Arrivals;
use crate::connection::behind_proxy::Balancers;
use crate::connection::shortest_ns;
use crate::limits::Limits;
use crate::memory::pages::PageKind;
use crate::protocol::erased::DynProtocol;
use crate::server::listener_limits::ListenerLimits;
use crate::server::options::Spread;
use crate::workers::Shared;

/// A socket that a network thread accepts from.
pub(super) struct Acceptor {
    /// There until the drain has ended its accept.
    pub(super) source: Option<Source>,
    /// The thread's number for the listener that the connections are for.
    pub(super) listener: u16,
    pub(super) accepting: Accepting,
    pub(super) operation: u8,
}

impl Acceptor {
    pub(super) fn new(source: Source, listener: u16) -> Acceptor {
        Acceptor {
            source: Some(source),
            listener,
            accepting: Accepting::new(),
            operation: 0,
        }
    }
}

/// The sockets of all listeners, in their order, and what they have accepted.
///
/// Invariant: a socket that was accepted is in the table of connections, or in `arrivals`.
pub(super) struct Acceptors {
    pub(super) all: Vec<Acceptor>,
    mode: AcceptMode,
    /// Accepted by a listener and not admitted yet: however many come at once, they do not delay
    /// the connections that are open.
    pub(super) arrivals: Arrivals<(u16, Socket)>,
}

impl Acceptors {
    pub(super) fn new(all: Vec<Acceptor>, mode: OperationMode) -> Acceptors {
        Acceptors {
            all,
            mode: match mode {
                OperationMode::Single => AcceptMode::Single,
                OperationMode::Multishot => AcceptMode::Multishot,
            },
            arrivals: Arrivals::new(),
        }
    }

    /// How connections are accepted where there is plenty of room.
    pub(super) fn mode(&self) -> AcceptMode {
        self.mode
    }

    /// The acceptor that an operation is of, while that is outstanding.
    pub(super) fn of(&mut self, index: u32, operation: u8) -> Option<&mut Acceptor> {
        let acceptor = self.all.get_mut(index as usize)?;
        let is_outstanding = acceptor.operation == operation && !acceptor.accepting.is_quiet();
        is_outstanding.then_some(acceptor)
    }

    /// A connection is gone: paused accepts may find its descriptor.
    pub(super) fn end_pauses(&mut self) {
        for acceptor in &mut self.all {
            acceptor.accepting.end_pause();
        }
    }

    /// Whether every socket has an accept outstanding.
    pub(super) fn are_armed(&self) -> bool {
        self.all.iter().all(|it| it.accepting.is_armed())
    }

    /// Whether no accept is outstanding, and none has brought what waits.
    pub(super) fn are_quiet(&self) -> bool {
        self.arrivals.is_empty() && self.all.iter().all(|it| it.accepting.is_quiet())
    }
}

/// One listener of a network thread.
pub(super) struct Listener {
    pub(super) protocol: Box<dyn DynProtocol>,
    /// Its number in the server.
    pub(super) number: u16,
    /// The number of its region, 0 if it has none to receive into.
    pub(super) region_id: u16,
    /// The number of its region if content of records is copied there: see `written.rs`.
    pub(super) written_id: u16,
    /// What its connections receive into at first.
    pub(super) first_pages: PageKind,
    /// Which peers may connect, each connection with a PROXY header; `None`: all, without one.
    pub(super) balancers: Option<Arc<Balancers>>,
    /// The number of the protocol that makes the handshakes of TLS among the successors; 0 where
    /// there is none.
    pub(super) handshake: u16,
    /// The same where that is made only when the listener's protocol begins it.
    pub(super) start_tls: u16,
    /// Most fragments that a connection's users may hold.
    pub(super) pages_max: u32,
    /// The deadlines of its connections.
    pub(super) limits: Limits,
    /// The most connections that it may have; see `admission.rs`.
    pub(super) connections_max: usize,
    /// Workers that its jobs may occupy, if that is bounded for it alone.
    pub(super) workers_max: Option<u32>,
    /// One of its connections was called in this turn.
    pub(super) was_called: bool,
    /// It has been reported that its protocol seems to forget phases.
    pub(super) has_hinted: bool,
}

impl Listener {
    pub(super) fn new(
        protocol: Box<dyn DynProtocol>,
        number: u16,
        region_id: u16,
        (server, threads): (&Limits, usize),
    ) -> Listener {
        let options = protocol.options();
        Listener {
            number,
            region_id,
            written_id: 0,
            first_pages: PageKind::of(options.first_pages, region_id),
            balancers: None,
            handshake: 0,
            start_tls: 0,
            pages_max: options
                .pages_max
                .unwrap_or(server.pages_per_connection_max)
                .max(1),
            limits: options.limits.of_server(server),
            connections_max: connections_max_of(&options.limits, options.spread, threads),
            workers_max: options.workers_max,
            was_called: false,
            has_hinted: false,
            protocol,
        }
    }

    /// Its connections begin with the handshake that the protocol with this number makes.
    #[cfg(feature = "tls")]
    pub(super) fn begin_with_handshake(&mut self, number: u16) {
        self.handshake = number;
        if self.protocol.options().retains_all {
            self.written_id = std::mem::take(&mut self.region_id);
            self.first_pages = PageKind::COMMON;
        }
    }

    /// Its name, and the most connections that it may have.
    pub(super) fn bound(&self) -> (&'static str, usize) {
        (self.protocol.options().name, self.connections_max)
    }

    /// Has these bounds from now on; with `None` its own, under those of the server.
    pub(super) fn take_limits(
        &mut self,
        wanted: Option<&ListenerLimits>,
        (server, threads): (&Limits, usize),
    ) {
        let options = self.protocol.options();
        let spread = options.spread;
        let limits = match wanted {
            Some(wanted) => wanted.clone().or(&self.protocol.own_limits()),
            None => ListenerLimits {
                workers_max: options.workers_max,
                ..options.limits.clone()
            },
        };
        self.workers_max = limits.workers_max;
        self.limits = limits.of_server(server);
        self.connections_max = connections_max_of(&limits, spread, threads);
    }
}

fn connections_max_of(limits: &ListenerLimits, spread: Spread, threads: usize) -> usize {
    let bound = limits.connections_of_thread(threads, spread);
    bound.unwrap_or(usize::MAX)
}

/// Has the jobs of each listener occupy no more workers than its own limit, or that of the server,
/// allows. Every network thread of a listener says the same.
pub(super) fn limit_workers(shared: &Shared, limits: &Limits, listeners: &[Listener]) {
    let default = Some(limits.workers_per_listener).filter(|max| *max > 0);
    for listener in listeners {
        let max = listener.workers_max.or(default);
        shared
            .concurrency
            .set_max(usize::from(listener.number), max);
    }
}

/// The shortest of all listeners' deadlines, in nanoseconds.
pub(super) fn shortest_of(listeners: &[Listener]) -> u64 {
    let of_listeners = listeners.iter().map(|it| shortest_ns(&it.limits));
    of_listeners.min().unwrap_or(0)
}
