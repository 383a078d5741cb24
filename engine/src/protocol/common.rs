//! What the calls of all protocols on one network thread have in common, whatever its driver.

use std::fmt::Display;
use std::net::SocketAddr;
use std::sync::Arc;

use flatpath_structures::pool::PoolHandle;

use crate::admission::Admission;
use crate::admission::address_limit::Cells;
use crate::admission::descriptors::DescriptorBudget;
use crate::connection::Connection;
use crate::limits::Limits;
use crate::memory::holding::Holding;
use crate::memory::pools::Pools;
use crate::network::mailbox::Mailbox;
use crate::network::wakes::Wakes;
use crate::observe::access_log::{AccessLog, LogEnd, Logged};
use crate::observe::episode::Refusals;
use crate::observe::statistics::{Counters, ThreadCounters};
use crate::protocol::connect::{Connect, Wishes};
use crate::protocol::phase::Stall;
use crate::protocol::turn::Turn;
use crate::server::changed_limits::LimitChange;
use crate::server::lifecycle::ServerState;
use crate::workers::concurrency_limit::Listeners;
use crate::workers::prompt::Tries;
use crate::workers::thread_place::ThreadPlace;
use crate::workers::{Dispatcher, Shared};

/// See the module. The dispatcher and admission own what they have, and are asked by name; of the
/// rest the protocols' side of the engine may touch the fields, and a network thread asks.
pub(crate) struct Common {
    /// Which network thread this is, from 0.
    pub(super) number: u16,
    pub(crate) turn: Turn,
    limits: Limits,
    /// Which change of them the thread has taken over last.
    limits_version: u32,
    /// How far the thread has followed the server to its end.
    pub(super) server_state: ServerState,
    pub(super) shared: Arc<Shared>,
    pub(crate) dispatcher: Dispatcher,
    /// Who has a place, and comes from where.
    pub(crate) admission: Admission,
    counters: Arc<ThreadCounters>,
    refusals: Refusals,
    /// Requests that were tried here in this turn.
    tries: Tries,
    /// Of each listener.
    entrances: Box<[Entrance]>,
    pub(super) access_log: Option<AccessLog>,
    /// The shortest time that a phase or a send has; see `Connection::has_new_deadline`.
    shortest_ns: u64,
    /// The same of the connections that have deadlines of their own.
    own_shortest_ns: u64,
    /// Connections that are to be opened.
    pub(super) wishes: Wishes,
    /// What other threads say about connections.
    pub(super) wakes: Arc<Wakes>,
}

/// What [`Common`] is made of that its network thread has made.
pub(crate) struct Parts {
    pub(crate) turn: Turn,
    pub(crate) dispatcher: Dispatcher,
    pub(crate) admission: Admission,
    pub(crate) counters: Arc<ThreadCounters>,
    pub(crate) wakes: Arc<Wakes>,
    /// The shortest of all listeners' deadlines.
    pub(crate) shortest_ns: u64,
}

/// What protocols may know of the listener that a connection has come by.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Entrance {
    /// They may begin TLS.
    pub(crate) may_start_tls: bool,
    /// It is a Unix socket.
    pub(crate) is_unix: bool,
}

impl Common {
    /// Of a thread, of its server.
    pub(crate) fn new(
        place: ThreadPlace,
        limits: Limits,
        access_log: Option<AccessLog>,
        parts: Parts,
    ) -> Common {
        let (number, shared) = place.into_parts();
        Common {
            number,
            turn: parts.turn,
            limits,
            limits_version: 0,
            server_state: ServerState::Running,
            shared,
            dispatcher: parts.dispatcher,
            admission: parts.admission,
            counters: parts.counters,
            refusals: Refusals::default(),
            tries: Tries::default(),
            entrances: Box::default(),
            access_log,
            shortest_ns: parts.shortest_ns,
            own_shortest_ns: u64::MAX,
            wishes: Wishes::default(),
            wakes: parts.wakes,
        }
    }

    /// Which network thread this is, from 0.
    #[inline]
    pub(crate) fn number(&self) -> u16 {
        self.number
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Takes over the limits that were changed last, if it has not yet: those of the server, and
    /// the change.
    pub(crate) fn take_limits(&mut self) -> Option<Arc<LimitChange>> {
        let change = self.shared.changed_limits.after(&mut self.limits_version)?;
        let per_address = change.server.connections_per_address;
        self.limits.take_changeable(&change.server);
        self.limits.connections_per_address = per_address.div_ceil(self.threads());
        self.admission.begin_relimit();
        Some(change)
    }

    /// How many network threads the server has.
    pub(crate) fn threads(&self) -> usize {
        self.shared.mailboxes.len()
    }

    /// How far the thread has followed the server to its end.
    #[inline]
    pub(crate) fn server_state(&self) -> ServerState {
        self.server_state
    }

    /// It has followed to this state.
    pub(crate) fn follow(&mut self, state: ServerState) {
        self.server_state = state;
    }

    /// Has the server come to the state that the thread has followed to.
    pub(crate) fn advance_server(&self) {
        if self.shared.server_state() < self.server_state {
            self.shared.advance(self.server_state);
        }
    }

    /// The state of the server, which this thread may not have followed yet.
    pub(crate) fn state_of_server(&self) -> ServerState {
        self.shared.server_state()
    }

    /// What all threads of the server have in common.
    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// What other threads say about connections.
    #[inline]
    pub(crate) fn wakes(&self) -> &Arc<Wakes> {
        &self.wakes
    }

    /// The memory of the server, by pools.
    #[inline]
    pub(crate) fn pools(&self) -> &Pools {
        &self.shared.memory.pools
    }

    /// Where the connection at a place has its buffers from.
    #[inline]
    pub(crate) fn pool(&self, index: u32) -> PoolHandle<'_> {
        self.pools().handle(self.number, index)
    }

    /// The workers that each listener may have.
    pub(crate) fn concurrency(&self) -> &Listeners {
        &self.shared.concurrency
    }

    /// The next connection that is to be opened, and the listener whose protocol wishes it.
    pub(crate) fn next_wish(&mut self) -> Option<(u16, Connect)> {
        self.wishes.pop_front()
    }

    /// Whether connections are to be opened.
    pub(crate) fn has_wishes(&self) -> bool {
        !self.wishes.is_empty()
    }

    /// The descriptors of the server.
    #[inline]
    pub(crate) fn descriptors(&self) -> &DescriptorBudget {
        &self.shared.descriptors
    }

    /// A turn begins.
    #[inline]
    pub(crate) fn turn_began(&mut self, now_ns: u64, wall_seconds: u64) {
        self.turn = Turn {
            number: self.turn.number + 1,
            now_ns,
            wall_seconds,
        };
        self.shared.lifecycle.turn_began(self.number, now_ns);
    }

    /// It ends.
    #[inline]
    pub(crate) fn turn_ended(&self, now_ns: u64) {
        let took_ns = now_ns.saturating_sub(self.turn.now_ns);
        self.counters.turn_ended(took_ns);
        self.shared.lifecycle.turn_ended(self.number, now_ns);
    }

    /// The protocol, or the service, of a listener is called.
    #[inline]
    pub(crate) fn calls(&self, listener: u16) {
        self.shared.lifecycle.calls(self.number, listener);
    }

    /// The shortest deadline of all listeners has changed.
    pub(crate) fn bound_shortest(&mut self, of_listeners_ns: u64) {
        self.shortest_ns = of_listeners_ns.min(self.own_shortest_ns);
    }

    /// The shortest deadline of one connection.
    pub(super) fn bound_own_shortest(&mut self, shortest_ns: u64) {
        self.own_shortest_ns = self.own_shortest_ns.min(shortest_ns);
        self.bound_shortest(self.shortest_ns);
    }

    /// The shortest time that a phase or a send has.
    #[inline]
    pub(crate) fn shortest_ns(&self) -> u64 {
        self.shortest_ns
    }

    /// Whether another request may be tried in this turn; it is counted.
    pub(crate) fn take_try(&mut self) -> bool {
        self.tries.take(self.turn.number)
    }

    /// It took so long.
    pub(crate) fn try_ended(&mut self, took_ns: u64) {
        self.tries.ended(took_ns);
    }

    /// What protocols may know of each listener.
    pub(crate) fn set_entrances(&mut self, entrances: Vec<Entrance>) {
        self.entrances = entrances.into();
    }

    pub(super) fn entrance(&self, listener: u16) -> Entrance {
        let entrance = self.entrances.get(usize::from(listener));
        entrance.copied().unwrap_or_default()
    }

    /// Counts a connection that is refused without an acceptable header, and logs one of many.
    pub(crate) fn note_refused(
        &mut self,
        listener: u16,
        peer: Option<SocketAddr>,
        why: &dyn Display,
    ) {
        self.counters(listener).refused_proxy_header.add(1);
        self.refusals.note(self.turn.now_ns, peer, why);
    }

    /// The connection at a place comes from `peer`: it is counted there from now on, and so is what
    /// it holds, in every bound.
    pub(crate) fn learn(&mut self, index: u32, holding: &mut Holding, peer: Option<SocketAddr>) {
        let address = self.shared.address_keys.find(peer);
        holding.cells = address.cells;
        self.admission.learn(index, address);
        self.name(index, address.cells);
    }

    /// The connection at a place is none of a client: it counts for no address.
    pub(crate) fn is_no_client(&self, index: u32) {
        self.name(index, Cells::NONE);
    }

    /// The connection at a place is gone, or its address is another one.
    pub(crate) fn forget(&self, holding: &mut Holding, index: u32) {
        if std::mem::take(&mut holding.cells) != Cells::UNKNOWN {
            self.name(index, Cells::UNKNOWN);
        }
    }

    fn name(&self, index: u32, cells: Cells) {
        let place = self.shared.memory.pools.owner(self.number, index);
        self.shared.descriptors.name(place as usize, cells);
        self.dispatcher.name(index, cells);
    }

    /// Stops the input of a connection, and counts that if it is not the same stall that is tried
    /// again.
    pub(crate) fn stall(&self, connection: &mut Connection, stall: Stall) {
        if !connection.stall(stall, self.turn.now_ns) {
            return;
        }
        self.counters(connection.listener()).stalled(stall);
    }

    /// Bytes of buffers that are out for the connection at a place. One load.
    #[inline]
    pub(crate) fn held_bytes(&self, index: u32) -> usize {
        self.shared.memory.pools.held_bytes(self.number, index)
    }

    /// Whether an address holds more of the memory than one does on average.
    pub(crate) fn holds_above_average(&self, cells: Cells) -> bool {
        self.shared.memory.by_address.is_above_average(cells)
    }

    /// Where an address is counted, in all bounds.
    pub(crate) fn cells_of(&self, address: Option<SocketAddr>) -> Cells {
        self.shared.address_keys.cells(address)
    }

    /// Descriptors of files that are held for the connection at a place. One load.
    pub(crate) fn files_of(&self, index: u32) -> usize {
        let place = self.shared.memory.pools.owner(self.number, index);
        self.shared.descriptors.held_by(place as usize)
    }

    /// What other threads have left for this one.
    #[inline]
    pub(crate) fn mailbox(&self) -> &Mailbox {
        &self.shared.mailboxes[usize::from(self.number)]
    }

    /// Tells a network thread that something has changed.
    pub(crate) fn tell(&self, thread: u16) {
        self.shared.mailboxes[usize::from(thread)].tell();
    }

    /// Tells the other network threads that something has changed.
    pub(crate) fn tell_others(&self) {
        let mailboxes = self.shared.mailboxes.iter().enumerate();
        let others = mailboxes.filter(|(thread, _)| *thread != usize::from(self.number));
        others.for_each(|(_, mailbox)| mailbox.tell());
    }

    /// What the thread counts for a listener, by its own number for it.
    #[inline]
    pub(crate) fn counters(&self, listener: u16) -> &Counters {
        self.counters.of(listener)
    }

    /// What the thread itself counts.
    pub(crate) fn own_counters(&self) -> &ThreadCounters {
        &self.counters
    }

    /// Writes the lines of the turn to the access log, if there is one; false where it had no room.
    #[inline]
    pub(crate) fn flush_log(&mut self) -> Option<bool> {
        self.access_log.as_mut().map(AccessLog::flush)
    }

    /// Whether there is an access log.
    pub(crate) fn logs(&self) -> bool {
        self.access_log.is_some()
    }

    /// Logs a connection that has ended, which its protocol does not.
    pub(crate) fn log_connection(
        &mut self,
        protocol: &'static str,
        logged: &Logged,
        sent_bytes: u64,
    ) {
        let turn = self.turn;
        if let Some(log) = &mut self.access_log {
            log.connection(turn, protocol, logged, sent_bytes);
        }
    }

    /// For the last lines of a session, of whose output the kernel took `sent_bytes`.
    pub(crate) fn log_end(&mut self, sent_bytes: u64) -> Option<LogEnd<'_>> {
        let turn = self.turn;
        self.access_log.as_mut().map(|log| LogEnd {
            log,
            turn,
            sent_bytes,
        })
    }
}
