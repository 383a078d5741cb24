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
//! - ND1: `at_work` counts the jobs between `dispatch` and `finished`, and `by_address`
//!   the same by address; sockets stay open while there are some.
//! - ND2: every piece goes back in the call that its datagram came with.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use flatpath_driver::{
    Completion, DATAGRAM_HEAD_BYTES, Datagram as Received, DatagramSocket, Driver, Envelope, Errno,
    Operation, Outcome, RegionConfig,
};
use flatpath_structures::panics::{contain, drop_contained};
use flatpath_structures::slots::Key;

use crate::admission::address_limit::AddressLimit;
use crate::admission::answered::Answered;
use crate::datagrams::share::DatagramShare;
use crate::datagrams::{
    Answer, Datagram, DatagramJob, DatagramService, Next, Reply, is_answerable,
};
use crate::limits::{
    ACCEPT_PAUSE_NS, DATAGRAM_BYTES_MAX, DATAGRAM_PAGES, DATAGRAM_WORKERS_MAX,
    DATAGRAMS_AT_WORK_MAX, DATAGRAMS_PER_ADDRESS,
};
use crate::observe::statistics::Counters;
use crate::protocol::common::Common;
use crate::protocol::connection_handle::ConnectionId;
use crate::workers::concurrency_limit::Listeners;
use crate::workers::{Rank, Task};

use super::thread::discard;
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
    /// For these sockets; their listeners follow the others of the thread, of which there are
    /// `listeners`.
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
pub(super) fn limit_workers(concurrency: &Listeners, setup: &[DatagramSetup]) {
    for number in numbers_of(setup) {
        let max = Some(DATAGRAM_WORKERS_MAX);
        concurrency.set_max(usize::from(number), max);
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
    let answered = common.shared().answered.as_ref();
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

impl Datagrams {
    /// Arms what is not, at the end of a turn. When a pause ends, if there is one.
    pub(super) fn arm(&mut self, driver: &mut impl Driver, now_ns: u64) -> Option<u64> {
        for index in 0..self.sources.len() {
            let source = &mut self.sources[index];
            let may_arm = match source.state {
                State::Off => true,
                State::PausedUntil(until_ns) => now_ns >= until_ns,
                State::Armed | State::Cancelling | State::Stopped => false,
            };
            if !may_arm || self.is_ending {
                continue;
            }
            source.state = State::Armed;
            source.operation = source.operation.wrapping_add(1);
            let user_data = datagrams_user_data(index, source.operation);
            let socket = Arc::clone(&source.setup.socket);
            let region_id = self.region_id;
            driver.receive_datagrams(socket, user_data, region_id);
        }
        self.due_ns()
    }

    /// A receive has brought something, or nothing.
    pub(super) fn completed(
        &mut self,
        (driver, common): (&mut impl Driver, &mut Common),
        (index, operation): (u32, u8),
        completion: Completion,
    ) {
        let is_ending = self.is_ending;
        let known = self.sources.get_mut(index as usize);
        let known = known.filter(|source| {
            let is_under_way = matches!(source.state, State::Armed | State::Cancelling);
            source.operation == operation && is_under_way
        });
        let Some(source) = known else {
            return discard(driver, completion.outcome);
        };
        if !completion.more {
            source.state = match is_ending {
                true => State::Stopped,
                false => State::Off,
            };
        }
        match completion.outcome {
            Outcome::Datagram(datagram) => {
                let Received { piece, envelope } = *datagram;
                let bytes = piece.as_ref().map_or(&[][..], |piece| driver.bytes(piece));
                self.came(common, index as usize, bytes, envelope);
                if let Some(piece) = piece {
                    driver.recycle(piece);
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
                    let until_ns = common.turn.now_ns + ACCEPT_PAUSE_NS;
                    source.state = State::PausedUntil(until_ns);
                }
            }
            other => {
                debug_assert!(false, "a receive of datagrams brings nothing else");
                discard(driver, other);
            }
        }
    }

    fn came(&mut self, common: &mut Common, index: usize, bytes: &[u8], envelope: Envelope) {
        let source = &mut self.sources[index];
        let counters = common.counters(source.listener);
        counters.datagrams_received.add(1);
        counters.received_bytes.add(bytes.len() as u64);
        let lost = envelope.lost.wrapping_sub(source.lost);
        source.lost = envelope.lost;
        counters.dropped_socket.add(u64::from(lost));
        let now_ns = common.turn.now_ns;
        if lost > 0 {
            self.share.lost(now_ns);
        }
        if envelope.is_cut {
            return counters.dropped_long.add(1);
        }
        if !is_answerable(&envelope, source.setup.port) {
            return counters.dropped_unanswerable.add(1);
        }
        let peer = canonical(envelope.from);
        let keys = &common.shared().address_keys;
        if !self.share.admits(keys, peer, now_ns) {
            return counters.dropped_address.add(1);
        }
        let datagram = Datagram {
            bytes,
            peer,
            local: envelope.to.map(|to| to.to_canonical()),
            has_answered: has_answered(common, peer),
        };
        let mut reply = Reply::new(&mut self.space[..datagram.room()]);
        common.calls(source.listener);
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
                let listener = source.listener;
                match self.job(common, index, &datagram, envelope) {
                    Ok(job) => self.dispatch(common, job),
                    Err(dropped) => dropped(common.counters(listener)),
                }
            }
        }
    }

    /// A job for a worker, or without room the counter of refusals.
    fn job(
        &self,
        common: &Common,
        index: usize,
        datagram: &Datagram<'_>,
        envelope: Envelope,
    ) -> Result<DatagramJob, fn(&Counters)> {
        let source = &self.sources[index];
        if self.at_work >= DATAGRAMS_AT_WORK_MAX {
            return Err(|counters| counters.dropped_work.add(1));
        }
        let cells = common.cells_of(Some(datagram.peer));
        if self.by_address.exceeds(cells, 1) {
            return Err(|counters| counters.dropped_address.add(1));
        }
        let Some(reservation) = common.dispatcher.reserve(source.listener) else {
            return Err(|counters| counters.dropped_work.add(1));
        };
        // Not of the reserve: that is for connections.
        let pool = common.pools().common();
        let take = |bytes: usize| {
            let buffer = pool.take(bytes.max(1));
            buffer.filter(|buffer| buffer.capacity() >= bytes)
        };
        let room = datagram.room();
        let (Some(mut request), Some(space)) = (take(datagram.bytes.len()), take(room)) else {
            return Err(|counters| counters.dropped_memory.add(1));
        };
        request.append(datagram.bytes);
        let home = ConnectionId {
            // None that a table has: it names no connection.
            key: Key::from_u64(0),
            thread: common.number(),
            listener: source.listener,
        };
        let rank = match self.by_address.held(cells) < DATAGRAM_WORKERS_MAX / 2 {
            true => Rank::Next,
            false => Rank::AfterOthers,
        };
        let service = Arc::clone(&source.setup.service);
        let job = DatagramJob::new(
            (service, home),
            (index, envelope),
            datagram,
            (request, space),
        );
        Ok(job.dispatched_by((cells, rank), reservation))
    }

    fn dispatch(&mut self, common: &mut Common, job: DatagramJob) {
        self.at_work += 1;
        self.by_address.change(0, job.cells(), 0, 1);
        let (listener, now_ns) = (job.listener(), common.turn.now_ns);
        common.dispatcher.dispatch(Box::new(job), listener, now_ns);
    }

    /// A job is back from its worker. Only now it counts whether its sender has answered: its
    /// connection may be gone.
    pub(super) fn finished(&mut self, common: &Common, task: Box<dyn Task>) {
        let Ok(job) = task.into_any().downcast::<DatagramJob>() else {
            debug_assert!(false, "a job of no connection is one of a datagram");
            return;
        };
        self.at_work -= 1;
        self.by_address.change(0, job.cells(), 1, 0);
        let counters = common.counters(job.listener());
        match job.outcome() {
            None => counters.dropped_panic.add(1),
            Some(Answer::Nothing) => {}
            Some(Answer::Bytes(_)) if job.fits(has_answered(common, job.peer())) => {
                let setup = &self.sources[job.source()].setup;
                send(setup, counters, job.reply(), job.envelope());
            }
            Some(Answer::Bytes(_) | Answer::TooLong) => counters.dropped_amplification.add(1),
        }
    }

    /// The thread drains, and has nothing else left: receives no more. True once nothing of
    /// datagrams is left either; what is at work is answered, unless the end is forced.
    pub(super) fn end(&mut self, driver: &mut impl Driver, is_forced: bool) -> bool {
        let Datagrams {
            sources, at_work, ..
        } = self;
        for (index, source) in sources.iter_mut().enumerate() {
            match source.state {
                State::Armed => {
                    source.state = State::Cancelling;
                    let user_data = datagrams_user_data(index, source.operation);
                    let operation = Operation::ReceiveDatagrams(&source.setup.socket);
                    driver.cancel(operation, user_data);
                }
                State::Off | State::PausedUntil(_) => source.state = State::Stopped,
                State::Cancelling | State::Stopped => {}
            }
        }
        let are_stopped = sources.iter().all(|it| it.state == State::Stopped);
        let is_over = are_stopped && (is_forced || *at_work == 0);
        self.is_ending = true;
        is_over
    }

    /// A connection has come: its address has answered.
    pub(super) fn note_answered(&mut self, answered: &Answered, index: u32, peer: IpAddr) {
        answered.enter(peer);
        self.peers.insert(index, peer);
    }

    /// It is gone.
    pub(super) fn forget_answered(&mut self, answered: &Answered, index: u32) {
        if let Some(peer) = self.peers.remove(&index) {
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
