//! Datagrams: receives them, has their services answer, here or on a worker, and sends replies.
//! `crate::datagrams` has the rules.
//!
//! | state      | what happened                            | what ends it                        |
//! |------------|------------------------------------------|-------------------------------------|
//! | Off        | nothing is armed                         | the end of the turn                 |
//! | Armed      | a receive is outstanding                 | its final completion                |
//! | Cancelling | the thread ends, and has no connection   | its final completion                |
//! | Paused     | nothing could be received from it        | the pause                           |
//! | Stopped    | the thread ends, and nothing is received | nothing                             |
//!
//! Invariants
//! - ND1: `at_work` counts the jobs between `dispatch` and `datagram_finished`, and `by_address`
//!   the same by address; sockets stay open while there are some.
//! - ND2: every piece goes back in the call that its datagram came with.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use flatpath_driver::{
    Completion, DATAGRAM_HEAD_BYTES, Datagram as Received, DatagramSocket, Driver, Envelope, Errno,
    Operation, Outcome, Piece, RegionConfig,
};
use flatpath_structures::panics::{contain, drop_contained};
use flatpath_structures::slots::Key;

use crate::admission::address_limit::AddressLimit;
use crate::datagrams::share::DatagramShare;
use crate::datagrams::{
    Answer, Datagram, DatagramJob, DatagramService, Next, Reply, is_answerable, room_for,
};
use crate::limits::{
    ACCEPT_PAUSE_NS, DATAGRAM_BYTES_MAX, DATAGRAM_PAGES, DATAGRAM_WORKERS_MAX,
    DATAGRAMS_AT_WORK_MAX, DATAGRAMS_PER_ADDRESS,
};
use crate::observe::statistics::Counters;
use crate::protocol::common::Common;
use crate::protocol::connection_handle::ConnectionId;
use crate::server::lifecycle::ServerState;
use crate::workers::{Rank, Shared, Task};

use super::thread::Network;
use super::timers::Chore;
use super::user_data::{KIND_DATAGRAMS, user_data};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Off,
    Armed,
    Cancelling,
    PausedUntil(u64),
    Stopped,
}

/// A socket that the thread receives datagrams from, and what answers them.
pub(crate) struct DatagramSetup {
    pub(crate) socket: Arc<DatagramSocket>,
    pub(crate) service: Arc<dyn DatagramService>,
    /// The number of its listener in the server.
    pub(crate) number: u16,
    /// The port that it is bound to.
    pub(crate) port: u16,
}

struct Source {
    setup: DatagramSetup,
    /// The thread's number for its listener.
    listener: u16,
    state: State,
    operation: u8,
    /// What the socket had no room for, as it was told last.
    lost: u32,
}

/// The part of a network thread that has datagrams.
pub(super) struct Datagrams {
    sources: Vec<Source>,
    region_id: u16,
    /// For a reply that is written here.
    space: Box<[u8]>,
    at_work: usize,
    by_address: AddressLimit,
    share: DatagramShare,
    is_ending: bool,
    /// Where connections come from that are counted as those that have answered, by their places.
    peers: HashMap<u32, IpAddr>,
}

impl Datagrams {
    /// For these sockets, whose listeners follow so many others of the thread.
    pub(super) fn new(setup: Vec<DatagramSetup>, listeners: usize, region_id: u16) -> Datagrams {
        let first = u16::try_from(listeners).expect("listeners are few");
        let numbers = numbers_of(&setup);
        let listener = |number| {
            let place = numbers.iter().position(|other| *other == number);
            first + u16::try_from(place.unwrap_or_default()).unwrap_or_default()
        };
        let bytes = if setup.is_empty() {
            0
        } else {
            DATAGRAM_BYTES_MAX
        };
        let sources = setup.into_iter().map(|setup| Source {
            listener: listener(setup.number),
            setup,
            state: State::Off,
            operation: 0,
            lost: 0,
        });
        Datagrams {
            sources: sources.collect(),
            region_id,
            space: vec![0; bytes].into(),
            at_work: 0,
            by_address: AddressLimit::new(DATAGRAMS_PER_ADDRESS, 0, 0),
            share: DatagramShare::new(),
            is_ending: false,
            peers: HashMap::new(),
        }
    }

    /// When a pause ends.
    fn due_ns(&self) -> Option<u64> {
        let paused = self.sources.iter().filter_map(|source| match source.state {
            State::PausedUntil(until_ns) => Some(until_ns),
            _ => None,
        });
        paused.min()
    }

    /// The thread is gone. One by one, as a service is code of the program.
    pub(super) fn clear(&mut self) {
        self.sources.drain(..).for_each(drop_contained);
    }
}

/// Adds the region that a network thread receives all its datagrams into, if it has any; its
/// number.
pub(crate) fn add_datagram_region(regions: &mut Vec<RegionConfig>, has_datagrams: bool) -> u16 {
    if !has_datagrams {
        return 0;
    }
    let page_bytes = DATAGRAM_HEAD_BYTES + DATAGRAM_BYTES_MAX;
    regions.push(RegionConfig {
        pages: DATAGRAM_PAGES,
        page_bytes: u32::try_from(page_bytes).expect("a few kilobytes"),
        reserve_pages: DATAGRAM_PAGES,
        ..RegionConfig::default()
    });
    u16::try_from(regions.len()).expect("listeners are few")
}

/// The numbers of the listeners of these sockets, each once.
pub(super) fn numbers_of(setup: &[DatagramSetup]) -> Vec<u16> {
    let mut numbers: Vec<u16> = setup.iter().map(|one| one.number).collect();
    numbers.dedup();
    numbers
}

/// The names of these listeners.
pub(super) fn names_of(setup: &[DatagramSetup]) -> Vec<&'static str> {
    let first = |number| setup.iter().find(move |one| one.number == number);
    let named = numbers_of(setup).into_iter().filter_map(first);
    // CONTAINED: by the start, which fails.
    named.map(|one| one.service.name()).collect()
}

/// Bounds the workers that the datagrams of each listener may occupy.
pub(super) fn limit_workers(shared: &Shared, setup: &[DatagramSetup]) {
    for number in numbers_of(setup) {
        let max = Some(DATAGRAM_WORKERS_MAX);
        shared.concurrency.set_max(usize::from(number), max);
    }
}

/// An IPv4 address as such, however the socket has it.
fn canonical(address: SocketAddr) -> SocketAddr {
    match address.ip().to_canonical() {
        IpAddr::V4(ip) => SocketAddr::from((ip, address.port())),
        IpAddr::V6(_) => address,
    }
}

/// Whether a connection comes from this address.
fn has_answered(common: &Common, address: SocketAddr) -> bool {
    let answered = common.shared.answered.as_ref();
    answered.is_some_and(|answered| answered.has(address.ip()))
}

/// Sends a reply, or drops it.
fn send(setup: &DatagramSetup, counters: &Counters, bytes: &[u8], envelope: Envelope) {
    match setup.socket.send(bytes, envelope.from, envelope.to) {
        Ok(()) => {
            counters.datagrams_answered.add(1);
            counters.sent_bytes.add(bytes.len() as u64);
        }
        Err(errno) => {
            counters.dropped_send.add(1);
            log::debug!("a reply to {} is dropped: {errno}", envelope.from);
        }
    }
}

impl<D: Driver> Network<D> {
    /// Arms what is not, at the end of a turn.
    pub(super) fn receive_datagrams(&mut self) {
        let now_ns = self.thread.now_ns();
        for index in 0..self.datagrams.sources.len() {
            let source = &mut self.datagrams.sources[index];
            let may_arm = match source.state {
                State::Off => true,
                State::PausedUntil(until_ns) => now_ns >= until_ns,
                State::Armed | State::Cancelling | State::Stopped => false,
            };
            if !may_arm || self.datagrams.is_ending {
                continue;
            }
            source.state = State::Armed;
            source.operation = source.operation.wrapping_add(1);
            let user_data = datagrams_user_data(index, source.operation);
            let socket = Arc::clone(&source.setup.socket);
            let region_id = self.datagrams.region_id;
            let driver = &mut self.thread.driver;
            driver.receive_datagrams(socket, user_data, region_id);
        }
        let due_ns = self.datagrams.due_ns();
        self.thread.timers.set(Chore::Datagrams, due_ns);
    }

    pub(super) fn datagrams_completed(
        &mut self,
        index: u32,
        operation: u8,
        completion: Completion,
    ) {
        let is_ending = self.datagrams.is_ending;
        let known = self.datagrams.sources.get_mut(index as usize);
        let known = known.filter(|source| {
            let is_under_way = matches!(source.state, State::Armed | State::Cancelling);
            source.operation == operation && is_under_way
        });
        let Some(source) = known else {
            return self.thread.discard(completion.outcome);
        };
        if !completion.more {
            source.state = match is_ending {
                true => State::Stopped,
                false => State::Off,
            };
            self.thread.timers.at_once(Chore::Datagrams);
        }
        match completion.outcome {
            Outcome::Datagram(datagram) => {
                let Received { piece, envelope } = *datagram;
                self.datagram_came(index as usize, piece.as_ref(), envelope);
                if let Some(piece) = piece {
                    self.thread.driver.recycle(piece);
                }
            }
            // The pages of this turn are free by now.
            Outcome::Failed(Errno::NOBUFS | Errno::CANCELED) => {}
            Outcome::Failed(errno) if completion.more => {
                log::debug!("reported to a socket of datagrams: {errno}");
            }
            Outcome::Failed(errno) => {
                let name = source.setup.service.name();
                log::warn!("{name}: no datagram can be received: {errno}");
                if source.state == State::Off {
                    let until_ns = self.thread.common.turn.now_ns + ACCEPT_PAUSE_NS;
                    source.state = State::PausedUntil(until_ns);
                }
            }
            other => {
                debug_assert!(false, "a receive of datagrams brings nothing else");
                self.thread.discard(other);
            }
        }
    }

    fn datagram_came(&mut self, index: usize, piece: Option<&Piece>, envelope: Envelope) {
        let source = &mut self.datagrams.sources[index];
        let common = &self.thread.common;
        let counters = common.counters(source.listener);
        let bytes = piece.map_or(&[][..], |piece| self.thread.driver.bytes(piece));
        counters.datagrams_received.add(1);
        counters.received_bytes.add(bytes.len() as u64);
        let lost = envelope.lost.wrapping_sub(source.lost);
        source.lost = envelope.lost;
        counters.dropped_socket.add(u64::from(lost));
        let now_ns = common.turn.now_ns;
        if lost > 0 {
            self.datagrams.share.lost(now_ns);
        }
        if envelope.is_cut {
            return counters.dropped_long.add(1);
        }
        if !is_answerable(&envelope, source.setup.port) {
            return counters.dropped_unanswerable.add(1);
        }
        let peer = canonical(envelope.from);
        let keys = &common.shared.address_keys;
        if !self.datagrams.share.admits(keys, peer, now_ns) {
            return counters.dropped_address.add(1);
        }
        let datagram = Datagram {
            bytes,
            peer,
            local: envelope.to.map(|to| to.to_canonical()),
            has_answered: has_answered(common, peer),
        };
        let mut reply = Reply::new(&mut self.datagrams.space[..datagram.room()]);
        let lifecycle = &common.shared.lifecycle;
        lifecycle.calls(common.number, source.listener);
        let service = &source.setup.service;
        let next = contain(|| service.receive(&datagram, &mut reply));
        match next {
            None => counters.dropped_panic.add(1),
            Some(Next::Answer) => match reply.outcome() {
                Answer::Nothing => {}
                Answer::Bytes(_) => send(&source.setup, counters, reply.bytes(), envelope),
                Answer::TooLong => counters.dropped_amplification.add(1),
            },
            Some(Next::Work) => {
                let dropped = match self.datagram_job(index, &datagram, envelope) {
                    Ok(job) => return self.dispatch_datagram(job),
                    Err(dropped) => dropped,
                };
                let listener = self.datagrams.sources[index].listener;
                dropped(self.thread.common.counters(listener));
            }
        }
    }

    /// A job for a worker, if there is room for one; or what counts that there is none.
    fn datagram_job(
        &self,
        index: usize,
        datagram: &Datagram<'_>,
        envelope: Envelope,
    ) -> Result<DatagramJob, fn(&Counters)> {
        let (source, common) = (&self.datagrams.sources[index], &self.thread.common);
        let shared = &common.shared;
        if self.datagrams.at_work >= DATAGRAMS_AT_WORK_MAX {
            return Err(|counters| counters.dropped_work.add(1));
        }
        let cells = shared.address_keys.cells(Some(datagram.peer));
        if self.datagrams.by_address.exceeds(cells, 1) {
            return Err(|counters| counters.dropped_address.add(1));
        }
        let Some(reservation) = common.dispatcher.reserve(source.listener) else {
            return Err(|counters| counters.dropped_work.add(1));
        };
        // Not of the reserve: that is for connections.
        let pool = shared.memory.pools.common();
        let take = |bytes: usize| {
            let buffer = pool.take(bytes.max(1));
            buffer.filter(|buffer| buffer.capacity() >= bytes)
        };
        let room = datagram.room();
        let (Some(mut request), Some(space)) = (take(datagram.bytes.len()), take(room)) else {
            return Err(|counters| counters.dropped_memory.add(1));
        };
        request.append(datagram.bytes);
        Ok(DatagramJob {
            service: Arc::clone(&source.setup.service),
            home: ConnectionId {
                // None that a table has: it names no connection.
                key: Key::from_u64(0),
                thread: common.number,
                listener: source.listener,
            },
            source: index,
            request,
            space,
            room,
            peer: datagram.peer,
            local: datagram.local,
            has_answered: datagram.has_answered,
            envelope,
            cells,
            rank: match self.datagrams.by_address.held(cells) < DATAGRAM_WORKERS_MAX / 2 {
                true => Rank::Next,
                false => Rank::AfterOthers,
            },
            answer: Answer::Nothing,
            has_panicked: false,
            _reservation: reservation,
        })
    }

    fn dispatch_datagram(&mut self, job: DatagramJob) {
        let (listener, now_ns) = (job.home.listener, self.thread.now_ns());
        self.datagrams.at_work += 1;
        self.datagrams.by_address.change(0, job.cells, 0, 1);
        let dispatcher = &mut self.thread.common.dispatcher;
        dispatcher.dispatch(Box::new(job), listener, now_ns);
    }

    /// A job is back from its worker. Only now it counts whether its sender has answered: its
    /// connection may be gone.
    pub(super) fn datagram_finished(&mut self, task: Box<dyn Task>) {
        let Ok(job) = task.into_any().downcast::<DatagramJob>() else {
            debug_assert!(false, "a job of no connection is one of a datagram");
            return;
        };
        let datagrams = &mut self.datagrams;
        datagrams.at_work -= 1;
        datagrams.by_address.change(0, job.cells, 1, 0);
        let common = &self.thread.common;
        let counters = common.counters(job.home.listener);
        let request_bytes = job.request.filled().len();
        match job.answer {
            _ if job.has_panicked => counters.dropped_panic.add(1),
            Answer::Nothing => {}
            Answer::Bytes(bytes)
                if bytes <= room_for(request_bytes, has_answered(common, job.peer)) =>
            {
                let setup = &datagrams.sources[job.source].setup;
                send(setup, counters, &job.space.filled()[..bytes], job.envelope);
            }
            Answer::Bytes(_) | Answer::TooLong => counters.dropped_amplification.add(1),
        }
    }

    /// The thread drains, and has nothing else left: receives no more. True once nothing of
    /// datagrams is left either; what is at work is answered, unless the end is forced.
    pub(super) fn end_datagrams(&mut self) -> bool {
        let Datagrams {
            sources, at_work, ..
        } = &mut self.datagrams;
        for (index, source) in sources.iter_mut().enumerate() {
            match source.state {
                State::Armed => {
                    source.state = State::Cancelling;
                    let user_data = datagrams_user_data(index, source.operation);
                    let operation = Operation::ReceiveDatagrams(&source.setup.socket);
                    self.thread.driver.cancel(operation, user_data);
                }
                State::Off | State::PausedUntil(_) => source.state = State::Stopped,
                State::Cancelling | State::Stopped => {}
            }
        }
        let are_stopped = sources.iter().all(|it| it.state == State::Stopped);
        let is_forced = self.thread.common.server_state == ServerState::Forced;
        let is_over = are_stopped && (is_forced || *at_work == 0);
        self.datagrams.is_ending = true;
        is_over
    }

    /// A connection has come: its address has answered.
    pub(super) fn note_answered(&mut self, key: Key) {
        let Some(answered) = &self.thread.common.shared.answered else {
            return;
        };
        let connection = self.connections.get(key);
        let peer = connection.and_then(|it| self.thread.driver.peer(it.socket()));
        if let Some(peer) = peer {
            answered.enter(peer.ip());
            self.datagrams.peers.insert(key.index, peer.ip());
        }
    }

    /// It is gone.
    pub(super) fn forget_answered(&mut self, key: Key) {
        if let Some(answered) = &self.thread.common.shared.answered
            && let Some(peer) = self.datagrams.peers.remove(&key.index)
        {
            answered.leave(peer);
        }
    }
}

fn datagrams_user_data(index: usize, operation: u8) -> u64 {
    let index = u32::try_from(index).unwrap_or_default();
    let key = Key {
        index,
        generation: 0,
    };
    user_data(KIND_DATAGRAMS, operation, key)
}
