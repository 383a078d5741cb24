//! The network thread: one driver, its connections, and one turn after the other.
//!
//! A turn waits for the kernel, handles every completion, takes back what workers have finished,
//! fires deadlines, and wakes a worker if it made work. Everything it wants from the kernel is
//! submitted by the next wait. It never runs code that may block.
//!
//! | file       | step                                                            |
//! |------------|-----------------------------------------------------------------|
//! | accept.rs  | listeners: arm, pause, limit                                    |
//! | room.rs    | who gets a place, and who is closed for it                      |
//! | receive.rs | bytes in: offer, keep, stall                                    |
//! | defer.rs   | input that takes long, at the end of the turn                    |
//! | starve.rs  | receives that found no page                                     |
//! | send.rs    | bytes out                                                       |
//! | jobs.rs    | what comes back from workers                                    |
//! | shares.rs  | who holds how much memory, and who waits for its share         |
//! | relieve.rs | who is ended for memory                                         |
//! | settle.rs  | carry out what a call wished: output, receive, end, deadline    |
//! | join.rs    | bytes straight from one connection to another                   |
//! | watch.rs   | eventfds whose consumers are called here                        |
//! | ending.rs  | deadlines, drain, close                                         |
//!
//! Invariants
//! - N1: after every event of a connection `settle` runs once, so no wish is left over.
//! - N2: completions carry (kind, operation number, generation, index); one that does not fit the
//!   connection's current operation is dropped, its piece given back, its socket closed.

mod accept;
mod room;
mod receive;
mod defer;
mod starve;
mod send;
mod jobs;
mod settle;
mod shares;
mod relieve;
mod excess;
mod join;
mod watch;
mod ending;

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use flatpath_driver::{Completion, Driver, OperationMode, Outcome, Piece, Pipes, Region, Socket};
use flatpath_structures::slots::{Key, Slots};
use flatpath_structures::wheel::Wheel;

use crate::addresses::Addresses;
use crate::arrivals::Arrivals;
use crate::common::Common;
use crate::connection::Connection;
use crate::descriptors::DescriptorBudget;
use crate::io::Io;
use crate::lifecycle::Stage;
use crate::limits::{
    ACCEPT_ONE_BY_ONE, IDLE_BYTES_KEPT, JOINED_PIPES_MAX, Limits, SHARE_PATIENCE_NS, TICK_NS,
    TRIM_PERIOD_NS, TURN_COMPLETIONS_MAX, WHEEL_SLOTS,
};
use crate::listener::Speaker;
use crate::memory::Entered;
use crate::phase::Stall;
use crate::returns::Returns;
use crate::spares::Trimmed;
use crate::turn::{Turn, end_ns};
use crate::worker::{JobDesk, Shared};

use accept::Listener;
use defer::Deferred;
use excess::Excesses;
use room::Room;
use send::LongSends;
use shares::Holders;
pub(crate) use shares::Holds;
use starve::Starved;
use watch::Source;

/// What a network thread is built from.
pub(crate) struct Setup {
    pub(crate) ring: u16,
    pub(crate) shared: Arc<Shared>,
    pub(crate) limits: Limits,
    pub(crate) accept_mode: OperationMode,
    pub(crate) listeners: Vec<(flatpath_driver::Listener, Box<dyn Speaker>)>,
    /// The number of each listener in the server.
    pub(crate) numbers: Vec<u16>,
    /// Which region of the driver each listener may receive into, as `regions_of` says.
    pub(crate) region_ids: Vec<u16>,
}

/// See the module.
pub(crate) struct Network<D: Driver> {
    driver: D,
    common: Common,
    listeners: Vec<Listener>,
    connections: Slots<Connection>,
    addresses: Addresses,
    room: Room,
    deferred: Deferred,
    long_sends: LongSends,
    /// Connections that crowd and want to receive, oldest first.
    crowd: VecDeque<Key>,
    wheel: Wheel,
    stage: Stage,
    drain_started_ns: u64,
    accept_mode: OperationMode,
    /// Eventfds that are watched, and how many of them the kernel refused for now.
    sources: Slots<Source>,
    sources_refused: usize,
    /// Connections whose receive found no page, by what they want.
    starved: Starved,
    receive_buffer_bytes: usize,
    /// For streams between joined connections.
    pipes: Pipes,
    /// The driver's regions among those of the server.
    _entered: Entered,
    /// Joined connections whose other end has ended in this turn.
    fins: Vec<Key>,
    /// Connections stalled for want of room in the server, oldest first: for jobs, for jobs that
    /// last, for memory.
    waiting_jobs: VecDeque<Key>,
    waiting_lasting: VecDeque<Key>,
    waiting_memory: VecDeque<Key>,
    /// Connections that hold their share of the memory.
    waiting_share: VecDeque<Key>,
    holders: Holders,
    listener_numbers: Vec<u16>,
    excesses: Excesses,
    /// Common pages with input of connections that are stalled.
    holding: usize,
    /// Connections that had more to do than one settling allows.
    again: Vec<Key>,
    /// What the driver has handed out and no turn has handled yet, oldest first.
    backlog: VecDeque<Completion>,
    /// Accepted by a listener and not let in: a crowd at the door does not delay those who are in.
    arrivals: Arrivals<(u32, Socket)>,
    completions: Vec<Completion>,
    /// When idle memory was last given back, and whether anything has happened since.
    trimmed_ns: u64,
    trim_due: bool,
    expired: Vec<u32>,
}

/// What the thread does after a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum After {
    GoOn,
    /// The server drains and this thread has nothing left.
    Done,
}

const KIND_RECEIVE: u64 = 0;
const KIND_SEND: u64 = 1;
const KIND_ACCEPT: u64 = 2;
const KIND_WATCH: u64 = 3;
const INDEX_BITS: u32 = 24;
const GENERATION_BITS: u32 = 28;
const GENERATION_MASK: u32 = (1 << GENERATION_BITS) - 1;
const OPERATION_BITS: u32 = 8;

/// Connections one network thread can number.
pub(crate) const CONNECTIONS_BOUND: usize = (1 << INDEX_BITS) - 1;

/// Event sources one network thread can number: more than it can have descriptors.
const SOURCES_MAX: u32 = (1 << INDEX_BITS) - 1;

/// Places of a network thread's table: room beyond the limit for those who are told that there is
/// none.
pub(crate) fn places_of(connections_max: usize) -> usize {
    (connections_max + ACCEPT_ONE_BY_ONE).min(CONNECTIONS_BOUND)
}

/// Packs kind, operation number, generation and index into the 62 bits a driver passes through.
fn user_data(kind: u64, operation: u8, key: Key) -> u64 {
    let generation = u64::from(key.generation & GENERATION_MASK);
    (kind << (OPERATION_BITS + GENERATION_BITS + INDEX_BITS))
        | (u64::from(operation) << (GENERATION_BITS + INDEX_BITS))
        | (generation << INDEX_BITS)
        | u64::from(key.index)
}

/// The parts of user_data: kind, operation, truncated generation, index.
fn parts(user_data: u64) -> (u64, u8, u32, u32) {
    let index = (user_data & ((1 << INDEX_BITS) - 1)) as u32;
    let generation = ((user_data >> INDEX_BITS) & ((1 << GENERATION_BITS) - 1)) as u32;
    let operation = ((user_data >> (INDEX_BITS + GENERATION_BITS)) & 0xff) as u8;
    (
        user_data >> (OPERATION_BITS + GENERATION_BITS + INDEX_BITS),
        operation,
        generation,
        index,
    )
}

/// The regions of a network thread with their names; listeners that have one are shown theirs.
fn name_regions(
    driver: &impl Driver,
    ring: usize,
    listeners: &[Listener],
) -> Vec<(&'static str, Region)> {
    let mut regions = vec![("common", driver.region(0).clone())];
    for listener in listeners {
        if listener.region_id > 0 {
            let region = driver.region(listener.region_id);
            listener.speaker.region_made(ring, region);
            regions.push((listener.speaker.name(), region.clone()));
        }
    }
    regions
}

/// Pipes for joined connections; none is opened while descriptors are short.
fn counted_pipes(budget: DescriptorBudget) -> Pipes {
    let pipes = Pipes::new(JOINED_PIPES_MAX);
    pipes.count(move || (budget.excess() == 0).then(|| Box::new(budget.cache(2)) as _));
    pipes
}

impl<D: Driver> Network<D> {
    pub(crate) fn new(driver: D, setup: Setup) -> Network<D> {
        let connections_max = setup.limits.connections_max.min(CONNECTIONS_BOUND);
        let places = places_of(connections_max);
        let capacity = u32::try_from(places).unwrap_or(u32::MAX - 1);
        let ring = usize::from(setup.ring);
        let now_ns = driver.now_ns();
        let pages_max = setup.limits.pages_per_connection_max;
        let listeners = setup.listeners.into_iter().zip(setup.region_ids);
        let listeners =
            listeners.map(|(parts, region_id)| Listener::new(parts, region_id, pages_max));
        let listeners: Vec<Listener> = listeners.collect();
        let names = listeners.iter().map(|listener| listener.speaker.name());
        let lifecycle = &setup.shared.lifecycle;
        lifecycle.name_listeners(setup.ring, names.collect());
        let workers_max = |listener: &Listener| listener.speaker.options().workers_max;
        let wanted: Vec<_> = listeners.iter().map(workers_max).collect();
        let rule = setup.shared.share_rule(setup.ring, &setup.limits, &wanted);
        let in_flight_max = setup.limits.in_flight_max;
        let desk = JobDesk::new(Arc::clone(&setup.shared), ring, in_flight_max, &rule);
        let regions = name_regions(&driver, ring, &listeners);
        let region_count = regions.len();
        let entered = setup.shared.memory.enter(ring, regions.into_iter());
        let receive_buffer_bytes = driver.region(0).page_bytes() as usize;
        let pipes = counted_pipes(setup.shared.descriptors.clone());
        Network {
            common: Common {
                ring: setup.ring,
                turn: Turn {
                    number: 0,
                    now_ns,
                    wall_seconds: driver.wall_seconds(),
                },
                limits: setup.limits,
                shared: setup.shared,
                desk,
                returns: Returns::new(driver.waker()),
            },
            wheel: Wheel::new(TICK_NS, WHEEL_SLOTS),
            driver,
            listeners,
            connections: Slots::new(capacity),
            addresses: Addresses::new(places),
            room: Room::new(places),
            deferred: Deferred::default(),
            long_sends: LongSends::default(),
            crowd: VecDeque::new(),
            sources: Slots::new(SOURCES_MAX),
            sources_refused: 0,
            stage: Stage::Running,
            drain_started_ns: 0,
            accept_mode: setup.accept_mode,
            starved: Starved::new(places, region_count),
            receive_buffer_bytes,
            pipes,
            _entered: entered,
            fins: Vec::new(),
            waiting_jobs: VecDeque::new(),
            waiting_lasting: VecDeque::new(),
            waiting_memory: VecDeque::new(),
            waiting_share: VecDeque::new(),
            holders: Holders::new(places),
            listener_numbers: setup.numbers,
            excesses: Excesses::default(),
            holding: 0,
            again: Vec::new(),
            backlog: VecDeque::new(),
            arrivals: Arrivals::new(),
            completions: Vec::new(),
            trimmed_ns: now_ns,
            trim_due: false,
            expired: Vec::new(),
        }
    }

    /// Waits for something to happen and handles all of it.
    ///
    /// # Errors
    /// The driver has lost completions or cannot go on: the thread must end.
    pub(crate) fn turn(&mut self) -> io::Result<After> {
        let timeout_ns = self.timeout_ns();
        let inbox = &self.common.shared.inboxes[usize::from(self.common.ring)];
        let (shared, stage) = (&self.common.shared, self.stage);
        let returns = &self.common.returns;
        let ready = || {
            !inbox.arrived.is_empty()
                || shared.stage() != stage
                || returns.any()
                || inbox.orders.any()
                || shared.has_parked(self.common.ring)
        };
        self.driver
            .wait(timeout_ns, &ready, &mut self.completions)?;
        self.common.turn = Turn {
            number: self.common.turn.number + 1,
            now_ns: self.driver.now_ns(),
            wall_seconds: self.driver.wall_seconds(),
        };
        self.common
            .shared
            .lifecycle
            .turn_began(self.common.ring, self.common.turn.now_ns);

        self.complete_all();
        self.collect_jobs();
        self.take_returns();
        self.take_orders();
        self.retry_sources();
        self.fire_deadlines();
        self.follow_stage();
        self.settle_again();
        self.retry_waiting();
        self.relieve();
        self.call_roused();
        self.run_deferred();
        // Whom the deferred input has roused: a place is given up in the turn in which it is taken.
        self.call_roused();
        self.run_long_sends();
        self.feed_starved();
        self.arm_crowding();
        self.send_fins();
        self.end_turn_of_listeners();
        self.make_room_for_files();
        self.tend_listeners();
        self.end_episodes();
        self.trim();
        if self.common.desk.holds_back() {
            self.common
                .desk
                .log_waits(self.common.ring, self.common.turn.now_ns);
        }
        self.common.desk.flush();
        Ok(self.after())
    }

    /// Handles completions, oldest first: as many as a turn allows of connections that are open,
    /// and fewer new ones after them. However fast clients come, and go again, the others wait for
    /// a bounded part of a turn; the rest of the crowd waits for the next.
    fn complete_all(&mut self) {
        let mut left = TURN_COMPLETIONS_MAX;
        while left > 0
            && let Some(completion) = self.backlog.pop_front()
        {
            left -= 1;
            self.complete(completion);
        }
        let mut completions = std::mem::take(&mut self.completions);
        for completion in completions.drain(..) {
            if parts(completion.user_data).0 == KIND_ACCEPT {
                self.complete(completion);
            } else if left > 0 {
                left -= 1;
                self.complete(completion);
            } else {
                self.backlog.push_back(completion);
            }
        }
        self.completions = completions;
        self.trim_due |= left < TURN_COMPLETIONS_MAX || !self.arrivals.is_empty();
        self.let_in();
    }

    #[inline]
    fn complete(&mut self, completion: Completion) {
        let (kind, operation, generation, index) = parts(completion.user_data);
        if kind == KIND_ACCEPT {
            return self.accept_completed(index, operation, completion);
        }
        if kind == KIND_WATCH {
            return self.watch_completed(completion);
        }
        let found = self.connections.key_at(index).filter(|key| {
            key.generation & GENERATION_MASK == generation
                && self
                    .connections
                    .get(*key)
                    .is_some_and(|connection| match kind {
                        KIND_SEND => connection.send_operation == operation,
                        _ => connection.receive_operation == operation,
                    })
        });
        let Some(key) = found else {
            return self.discard(completion.outcome);
        };
        match kind {
            KIND_SEND => self.send_completed(key, completion),
            _ => self.receive_completed(key, completion),
        }
    }

    /// Nobody waits for this any more (N2).
    fn discard(&mut self, outcome: Outcome) {
        match outcome {
            Outcome::Received(piece) => self.recycle(piece),
            Outcome::Accepted(socket) => self.driver.close(socket),
            Outcome::ReceivedInto(_)
            | Outcome::EndOfStream
            | Outcome::Signalled(_)
            | Outcome::Sent { .. }
            | Outcome::Failed(_) => {}
        }
    }

    fn recycle(&mut self, piece: Piece) {
        self.driver.recycle(piece);
    }

    /// Calls the protocol of a connection; `None` when the connection is gone.
    fn call<R>(&mut self, key: Key, act: impl FnOnce(&mut dyn Speaker, Io<'_>) -> R) -> Option<R> {
        let connection = self.connections.get_mut(key)?;
        let listening = &mut self.listeners[usize::from(connection.listener)];
        listening.was_called = true;
        let common = &mut self.common;
        let lifecycle = &common.shared.lifecycle;
        lifecycle.calls(common.ring, connection.listener);
        let region_id = listening.region_id;
        let io = Io {
            common,
            connection,
            key,
            driver: &self.driver,
            source: None,
            own: (region_id > 0).then(|| (region_id, self.driver.region(region_id))),
        };
        Some(act(&mut *listening.speaker, io))
    }

    /// Looks at the connections that other threads spoke of: fragments are back, a stall is over.
    fn take_returns(&mut self) {
        if !self.common.returns.any() {
            return;
        }
        for key in self.common.returns.take() {
            let Some(connection) = self.connections.get_mut(key) else {
                continue;
            };
            connection.holds_too_much = false;
            if connection.stalled == Some(Stall::Outside) {
                self.resume(key);
            }
            self.settle(key);
        }
    }

    fn end_turn_of_listeners(&mut self) {
        for listener in &mut self.listeners {
            if std::mem::take(&mut listener.was_called) {
                listener.speaker.turn_ended();
            }
        }
    }

    /// How long the next wait may last.
    fn timeout_ns(&self) -> Option<u64> {
        const WAITING_NS: u64 = 10_000_000;
        let has_more = !self.backlog.is_empty() || !self.arrivals.is_empty();
        let has_input = self.deferred.len() > 0 || !self.crowd.is_empty();
        let is_behind = has_more || has_input || !self.long_sends.is_empty();
        if is_behind || !self.again.is_empty() || !self.common.desk.roused.is_empty() {
            return Some(0);
        }
        let now_ns = self.driver.now_ns();
        let mut timeout = self.wheel.next_ns(now_ns);
        let mut sooner = |ns: u64| timeout = Some(timeout.map_or(ns, |old| old.min(ns)));
        let waiting = [
            &self.waiting_jobs,
            &self.waiting_lasting,
            &self.waiting_memory,
            &self.waiting_share,
        ];
        let any = waiting.iter().any(|queue| !queue.is_empty());
        if any || self.common.desk.waiting_for_memory() > 0 {
            sooner(WAITING_NS);
        }
        if self.sources_refused > 0 {
            sooner(WAITING_NS);
        }
        if let Some(ns) = self.accept_timeout_ns(now_ns) {
            sooner(ns);
        }
        if let Some(end_ns) = self.episode_end_ns() {
            sooner(end_ns.saturating_sub(now_ns));
        }
        if self.trim_due {
            sooner((self.trimmed_ns + TRIM_PERIOD_NS).saturating_sub(now_ns));
        }
        if self.common.desk.holds_back() {
            sooner(SHARE_PATIENCE_NS);
        }
        if self.stage == Stage::Draining {
            let end = end_ns(self.drain_started_ns, self.common.limits.drain_timeout);
            sooner(end.saturating_sub(now_ns));
        }
        timeout
    }

    /// Gives idle pooled memory and idle jobs back, once per period. Asks no more often than that,
    /// so the path does not pay for it.
    fn trim(&mut self) {
        let now_ns = self.common.turn.now_ns;
        if now_ns < self.trimmed_ns + TRIM_PERIOD_NS {
            return;
        }
        self.trimmed_ns = now_ns;
        self.common.shared.pools.trim(IDLE_BYTES_KEPT);
        let mut trimmed = Trimmed::default();
        for listener in &mut self.listeners {
            let one = listener.speaker.trim();
            trimmed.any |= one.any;
            trimmed.more |= one.more;
        }
        if trimmed.any && !trimmed.more {
            flatpath_sys::allocator::give_back();
        }
        self.trim_due = trimmed.more;
    }

    fn after(&mut self) -> After {
        let idle = self.connections.is_empty()
            && self.arrivals.is_empty()
            && self.listeners.iter().all(Listener::is_quiet);
        if self.stage > Stage::Running && idle {
            if self.stage == Stage::Draining {
                self.common.desk.let_all_go(self.common.turn.now_ns);
            }
            self.end_orders();
            After::Done
        } else {
            After::GoOn
        }
    }

    /// What a listener accepts from, while it does.
    pub(crate) fn source(&self, index: usize) -> Option<&flatpath_driver::Listener> {
        self.listeners.get(index)?.source()
    }

    /// The driver, for tests and for reading its statistics.
    pub(crate) fn driver(&self) -> &D {
        &self.driver
    }
}
