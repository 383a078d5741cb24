//! One listener of a network thread, and its sockets: when accept is armed on each.
//!
//! | state      | what happened                              | what ends it                      |
//! |------------|--------------------------------------------|-----------------------------------|
//! | Off        | nothing armed                              | room for another connection       |
//! | Armed      | a single or a multishot accept outstanding | its final completion              |
//! | Cancelling | too little room left for a multishot one   | its final completion              |
//! | Paused     | the kernel had no descriptor or no memory, | a connection closes, or the pause |
//! |            | or the socket does not listen yet          |                                   |
//! | Stopped    | the server drains                          | nothing                           |

use std::sync::Arc;

use flatpath_driver::{Listener as Source, OperationMode};

use crate::behind_proxy::Balancers;
use crate::connection::shortest_ns;
use crate::limits::Limits;
use crate::listener::DynProtocol;
use crate::listener_limits::ListenerLimits;
use crate::memory::pages::PageKind;
use crate::options::Spread;
use crate::worker::Shared;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Off,
    Armed(OperationMode),
    Cancelling,
    PausedUntil(u64),
    Stopped,
}

/// A socket that a network thread accepts from.
pub(super) struct Acceptor {
    /// There until the drain has ended its accept.
    pub(super) source: Option<Source>,
    /// The thread's number for the listener that the connections are for.
    pub(super) listener: u16,
    pub(super) state: State,
    pub(super) operation: u8,
    /// Failures in a row that said nothing about descriptors: multishot may be what fails.
    pub(super) failures: u32,
}

impl Acceptor {
    pub(super) fn new(source: Source, listener: u16) -> Acceptor {
        Acceptor {
            source: Some(source),
            listener,
            state: State::Off,
            operation: 0,
            failures: 0,
        }
    }

    /// True when nothing is armed because the socket does not listen yet.
    pub(super) fn awaits_its_turn(&self) -> bool {
        let source = self.source.as_ref();
        self.state == State::Off && source.is_some_and(|source| !source.listens())
    }

    /// A connection is gone: a paused accept may find its descriptor.
    pub(super) fn end_pause(&mut self) {
        if let State::PausedUntil(_) = self.state {
            self.state = State::Off;
        }
    }

    /// True when nothing is outstanding.
    pub(super) fn is_quiet(&self) -> bool {
        matches!(
            self.state,
            State::Off | State::PausedUntil(_) | State::Stopped
        )
    }
}

/// What is known of the places for connections since the door was tended. While it stays the same,
/// nothing has to be closed, and accept stays as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Door {
    /// Connections that hold a descriptor.
    pub(super) open: usize,
    /// How many may, beside the files that are open.
    pub(super) beside_files: usize,
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
    /// Who may connect, each connection with a PROXY header; `None`: everybody, without.
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
