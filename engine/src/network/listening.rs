//! The listeners of a network thread, and their sockets; how accept is armed on each is decided in
//! `crate::admission::accepting`.

use std::sync::Arc;

use flatpath_driver::{Listener as Source, OperationMode, Socket};

use crate::admission::accepting::{AcceptMode, AcceptRoom, Accepting, Brought, Next, Then};
use crate::admission::address_limit::Cells;
use crate::admission::arrivals::Arrivals;
use crate::connection::behind_proxy::Balancers;
use crate::connection::shortest_ns;
use crate::limits::Limits;
use crate::memory::pages::PageKind;
use crate::protocol::erased::DynProtocol;
use crate::server::listener_limits::ListenerLimits;
use crate::server::options::Spread;
use crate::workers::concurrency_limit::Listeners;

/// A socket that a network thread accepts from.
pub(super) struct Acceptor {
    /// There until the drain has ended its accept.
    source: Option<Source>,
    /// The thread's number for the listener that the connections are for.
    listener: u16,
    accepting: Accepting,
    operation: u8,
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

    /// The thread's number for the listener that the connections are for.
    pub(super) fn listener(&self) -> u16 {
        self.listener
    }

    /// Whether the kernel says that the socket listens. One system call.
    pub(super) fn listens(&self) -> bool {
        self.source.as_ref().is_none_or(Source::listens)
    }

    /// See [`Accepting::completed`].
    pub(super) fn completed(
        &mut self,
        brought: Brought,
        is_last: bool,
        (drains, now_ns): (bool, u64),
    ) -> Then {
        self.accepting.completed(brought, is_last, (drains, now_ns))
    }
}

/// The sockets of all listeners, in their order, and what they have accepted.
///
/// Invariant: a socket that was accepted is in the table of connections, or in `arrivals`.
pub(super) struct Acceptors {
    all: Vec<Acceptor>,
    mode: AcceptMode,
    /// Accepted by a listener and not admitted yet: however many come at once, they do not delay
    /// the connections that are open.
    arrivals: Arrivals<(u16, Socket)>,
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

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// What one accepts from, while it does.
    #[cfg(feature = "simulation")]
    pub(super) fn source(&self, index: usize) -> Option<&Source> {
        self.all.get(index)?.source.as_ref()
    }

    /// See [`Accepting::next`]. It is taken for done.
    pub(super) fn next(&mut self, index: usize, room: AcceptRoom) -> Next {
        let acceptor = &mut self.all[index];
        match acceptor.source {
            Some(_) => acceptor.accepting.next(room),
            None => Next::Stay,
        }
    }

    /// See [`Accepting::stop`]. It is taken for done.
    pub(super) fn stop(&mut self, index: usize) -> Next {
        self.all[index].accepting.stop()
    }

    /// An accept begins: the socket and the number of the operation.
    pub(super) fn begin_accept(&mut self, index: usize) -> Option<(&Source, u8)> {
        let acceptor = &mut self.all[index];
        acceptor.operation = acceptor.operation.wrapping_add(1);
        self.accept_of(index)
    }

    /// The socket of the latest accept, and the number of the operation.
    pub(super) fn accept_of(&self, index: usize) -> Option<(&Source, u8)> {
        let acceptor = &self.all[index];
        Some((acceptor.source.as_ref()?, acceptor.operation))
    }

    /// One accepts no more: its listener's number, and the socket, which was open.
    pub(super) fn close(&mut self, index: usize) -> Option<(u16, Source)> {
        let acceptor = &mut self.all[index];
        Some((acceptor.listener, acceptor.source.take()?))
    }

    /// How long until one is looked at again: see [`Accepting::due_in_ns`].
    pub(super) fn due_in_ns(&self, now_ns: u64, accepts_in_ns: Option<u64>) -> Option<u64> {
        let open = self.all.iter().filter(|one| one.source.is_some());
        let due = open.filter_map(|one| one.accepting.due_in_ns(now_ns, accepts_in_ns));
        due.min()
    }

    /// A listener has accepted a connection.
    pub(super) fn arrived(&mut self, listener: u16, socket: Socket) {
        self.arrivals.push((listener, socket));
    }

    /// How many were accepted and wait to be admitted.
    pub(super) fn arrivals(&self) -> usize {
        self.arrivals.len()
    }

    /// Puts those that wait in the order in which they are admitted: `cells` says where each is
    /// counted.
    pub(super) fn arrange(&mut self, cells: impl Fn(Socket) -> Cells) {
        self.arrivals.arrange(|(_, socket)| cells(*socket));
    }

    /// The next to be admitted.
    pub(super) fn next_arrival(&mut self) -> Option<(u16, Socket)> {
        self.arrivals.pop()
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
    protocol: Box<dyn DynProtocol>,
    /// Its number in the server.
    number: u16,
    /// The number of its region, 0 if it has none to receive into.
    region_id: u16,
    /// The number of its region if content of records is copied there: see `written.rs`.
    written_id: u16,
    /// What its connections receive into at first.
    first_pages: PageKind,
    /// Which peers may connect, each connection with a PROXY header; `None`: all, without one.
    balancers: Option<Arc<Balancers>>,
    /// The number of the protocol that makes the handshakes of TLS among the successors; 0 where
    /// there is none.
    handshake: u16,
    /// The same where that is made only when the listener's protocol begins it.
    start_tls: u16,
    /// Most fragments that a connection's users may hold.
    pages_max: u32,
    /// The deadlines of its connections.
    limits: Limits,
    /// The most connections that it may have; see `admission.rs`.
    connections_max: usize,
    /// Workers that its jobs may occupy, if that is bounded for it alone.
    workers_max: Option<u32>,
    /// One of its connections was called in this turn.
    was_called: bool,
    /// It has been reported that its protocol seems to forget phases.
    has_hinted: bool,
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

    /// Takes connections from these load balancers alone.
    pub(super) fn begin_with_header(&mut self, balancers: Arc<Balancers>) {
        self.balancers = Some(balancers);
    }

    /// The protocol with this number makes the handshake of TLS when its own one begins that.
    #[cfg(feature = "tls")]
    pub(super) fn begin_tls_when_asked(&mut self, number: u16) {
        self.start_tls = number;
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

    /// What it speaks.
    pub(super) fn protocol(&self) -> &dyn DynProtocol {
        &*self.protocol
    }

    #[inline]
    pub(super) fn protocol_mut(&mut self) -> &mut dyn DynProtocol {
        &mut *self.protocol
    }

    /// For a call of its protocol for one of its connections: the protocol, the deadlines, and the
    /// number of its region.
    #[inline]
    pub(super) fn call(&mut self) -> (&mut (dyn DynProtocol + 'static), &Limits, u16) {
        self.was_called = true;
        (&mut *self.protocol, &self.limits, self.region_id)
    }

    /// The end of a turn: its protocol hears of it, if it was called.
    #[inline]
    pub(super) fn turn_ended(&mut self) {
        if std::mem::take(&mut self.was_called) {
            self.protocol.turn_ended();
        }
    }

    pub(super) fn name(&self) -> &'static str {
        self.protocol.options().name
    }

    /// Its number in the server.
    #[inline]
    pub(super) fn number(&self) -> u16 {
        self.number
    }

    /// The number of its region, 0 if it has none to receive into.
    pub(super) fn region_id(&self) -> u16 {
        self.region_id
    }

    /// The same if content of records is copied there.
    #[inline]
    pub(super) fn written_id(&self) -> u16 {
        self.written_id
    }

    /// What its connections receive into at first.
    pub(super) fn first_pages(&self) -> PageKind {
        self.first_pages
    }

    /// Its load balancers, if it has some.
    pub(super) fn balancers(&self) -> Option<&Arc<Balancers>> {
        self.balancers.as_ref()
    }

    /// The number of the protocol that its connections begin with, for the handshake of TLS; 0 for
    /// none.
    pub(super) fn handshake(&self) -> u16 {
        self.handshake
    }

    /// The same for connections whose protocol begins it.
    pub(super) fn start_tls(&self) -> u16 {
        self.start_tls
    }

    /// Most fragments that a connection's users may hold.
    pub(super) fn pages_max(&self) -> u32 {
        self.pages_max
    }

    /// The deadlines of its connections.
    #[inline]
    pub(super) fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Kept connections of a server that drains have less time.
    pub(super) fn shorten_idle_timeout(&mut self) {
        let limits = &mut self.limits;
        limits.idle_timeout = limits.idle_timeout.min(limits.drain_idle_timeout);
    }

    /// Whether it is reported now that its protocol seems to forget phases: once.
    pub(super) fn hints_now(&mut self) -> bool {
        !std::mem::replace(&mut self.has_hinted, true)
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
pub(super) fn limit_workers(concurrency: &Listeners, limits: &Limits, listeners: &[Listener]) {
    let default = Some(limits.workers_per_listener).filter(|max| *max > 0);
    for listener in listeners {
        let max = listener.workers_max.or(default);
        concurrency.set_max(usize::from(listener.number), max);
    }
}

/// The shortest of all listeners' deadlines, in nanoseconds.
pub(super) fn shortest_of(listeners: &[Listener]) -> u64 {
    let of_listeners = listeners.iter().map(|it| shortest_ns(&it.limits));
    of_listeners.min().unwrap_or(0)
}
