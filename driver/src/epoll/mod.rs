//! epoll: the same completions, made by trying calls and waiting for edges. Needs Linux 5.10.
//!
//! Files: `table` is what is known per descriptor, `buffers` the memory received into, and each
//! operation has a file: `accept`, `connect`, `receive`, `recv_into`, `datagrams`, `send`,
//! `poll_eventfd`, `close` (with abort, shutdown_write and cancel).
//!
//! A wait first does the work that is listed: sends and receives started since the last wait, and
//! what a bound per turn left over. If completions came of that, it returns without asking the
//! kernel for events, but never twice in a row. Otherwise it asks, blocking if nothing is left to
//! do, notes the readiness that events report, and does the work that follows.
//!
//! Invariants
//! - Events are noted before any socket is closed, so an event never meets the next owner of
//!   its descriptor number within one wait. One that comes late (the number was shared with a
//!   child) sets a flag, and the flag costs one call in vain.
//!
//! Cost: one call per operation, one `epoll_wait` per turn with nothing left to do, and one
//! `epoll_ctl` per connection that ever has to wait.

mod table;

mod accept;
mod connect;
mod receive;
mod recv_into;
mod datagrams;
mod send;
mod poll_eventfd;
mod close;

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::ops::RangeInclusive;
use std::os::fd::{OwnedFd, RawFd};
use std::sync::Arc;

use flatpath_structures::pool::Buffer;
use flatpath_sys::udp::Batch;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::net::SocketFlags;
use rustix::time::Timespec;

use self::poll_eventfd::EventfdPoll;
use self::table::{Accepting, DatagramReceive, Entry, Send};
use crate::buffers::Buffers;
use crate::clock::Clock;
use crate::completion::{Completion, Errno, Piece};
use crate::config::DriverConfig;
use crate::datagram::DatagramSocket;
use crate::driver::{AfterSend, Driver, Operation, OperationMode};
use crate::eventfd::Eventfd;
use crate::lent::Lent;
use crate::operations::Operations;
use crate::pipe::{Piped, Pipes};
use crate::region::{BUFFERS_MAX, Region};
use crate::remote::Remote;
use crate::segment::SendList;
use crate::socket::{Listener, Mode, Socket, set_mode};
use crate::statistics::DriverStatistics;
use crate::waker::Waker;

/// Events taken with one call.
const EVENTS_MAX: usize = 1024;

/// Marks the data of a listener's events; the rest is its index.
const LISTENER: u64 = 1 << 62;
/// Marks the data of an eventfd's events; the rest is its index.
const POLL_EVENTFD: u64 = 1 << 61;
/// Marks the data of the events of a socket of datagrams; the rest is its index.
const DATAGRAMS: u64 = 1 << 60;
/// Marks the data of the events of a socket whose peer is awaited; the rest is its descriptor.
const CONNECT: u64 = 1 << 59;
/// The data of the waker's events.
const WAKE: u64 = 1 << 63;

/// Something that is worth a call.
#[derive(Clone, Copy, Debug)]
enum Work {
    Accept(usize),
    Connect(RawFd),
    Socket(RawFd),
    PollEventfd(usize),
    Datagrams(usize),
}

/// The epoll driver. See the module.
pub struct Epoll {
    epoll: OwnedFd,
    events: Vec<epoll::Event>,
    entries: Vec<Entry>,
    listeners: Operations<Accepting>,
    /// The user_data of each socket whose peer is awaited: see `connect`.
    connecting: BTreeMap<RawFd, u64>,
    /// Of sends that have ended, for the next ones.
    #[expect(
        clippy::vec_box,
        reason = "a send is moved from here to an entry and back"
    )]
    spare_sends: Vec<Box<Send>>,
    polls: Operations<EventfdPoll>,
    datagrams: Operations<DatagramReceive>,
    /// Made for the first datagram.
    batch: Option<Box<Batch>>,
    buffers: Vec<Buffers>,
    work: VecDeque<Work>,
    /// Completions made outside of a wait.
    unasked: Vec<Completion>,
    skipped: bool,
    /// Completions of this wait for which it does not end, and whether it does (D7).
    resting: usize,
    hurried: bool,
    waker: Waker,
    clock: Clock,
    counters: DriverStatistics,
}

flatpath_structures::opaque_debug! {
    impl[] Epoll as "Epoll";
}

impl Epoll {
    /// An epoll instance and its buffers.
    ///
    /// # Errors
    /// When no descriptor is free, or the configuration is impossible.
    pub fn new(config: &DriverConfig) -> io::Result<Epoll> {
        let buffers = config.receive_buffers;
        if !buffers.is_power_of_two() || buffers > BUFFERS_MAX || config.receive_buffer_bytes == 0 {
            let words = format!("receive buffers: a power of two up to {BUFFERS_MAX}, not empty");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, words));
        }
        let waker = Waker::new()?;
        let regions = (0..)
            .zip(config.all_regions())
            .map(|(region_id, region)| Buffers::new(region_id, &region, &waker));
        let regions = regions.collect::<io::Result<Vec<_>>>()?;
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        if let Some(eventfd) = waker.eventfd() {
            // Every write is an edge, whatever the counter says: it is never read.
            let flags = EventFlags::IN | EventFlags::ET;
            epoll::add(&epoll, eventfd, EventData::new_u64(WAKE), flags)?;
        }
        Ok(Epoll {
            epoll,
            events: Vec::with_capacity(EVENTS_MAX),
            entries: Vec::new(),
            listeners: Operations::default(),
            connecting: BTreeMap::new(),
            spare_sends: Vec::new(),
            polls: Operations::default(),
            datagrams: Operations::default(),
            batch: None,
            buffers: regions,
            work: VecDeque::new(),
            unasked: Vec::new(),
            skipped: false,
            resting: 0,
            hurried: false,
            waker,
            clock: Clock::new(),
            counters: DriverStatistics::default(),
        })
    }

    /// Takes back the pages that no fragment refers to any more.
    fn reclaim(&mut self) {
        self.buffers.iter_mut().for_each(Buffers::reclaim);
    }

    /// Does what is listed now; what that adds to the list is for the next turn.
    fn run_work(&mut self, completions: &mut Vec<Completion>) {
        for _ in 0..self.work.len() {
            match self.work.pop_front() {
                Some(Work::Socket(descriptor)) => {
                    self.entry_of(descriptor).listed = false;
                    self.run_receive(descriptor, completions);
                    self.run_send(descriptor, completions);
                    // Work that a bound left over.
                    self.list(descriptor);
                }
                Some(Work::Accept(index)) => self.run_accept(index, completions),
                Some(Work::Connect(socket)) => self.run_connect(socket, completions),
                Some(Work::PollEventfd(index)) => self.run_poll(index, completions),
                Some(Work::Datagrams(index)) => self.run_datagrams(index, completions),
                None => return,
            }
        }
    }

    /// Takes events and notes what they report; blocks if there is nothing else to do.
    fn poll(&mut self, timeout_ns: Option<u64>, ready: &dyn Fn() -> bool) -> io::Result<()> {
        let may_block = timeout_ns != Some(0) && self.work.is_empty() && !ready();
        let buffers = &self.buffers;
        let ready = || ready() || buffers.iter().any(|buffers| buffers.region().is_relieved());
        let sleeps = may_block && self.waker.may_sleep(&ready);
        let timeout = if sleeps { timeout_ns } else { Some(0) }.map(timespec);
        self.events.clear();
        self.counters.enters += 1;
        let spare = rustix::buffer::spare_capacity(&mut self.events);
        let taken = epoll::wait(&self.epoll, spare, timeout.as_ref());
        if sleeps {
            self.waker.awake();
        }
        for index in 0..self.events.len() {
            let event = self.events[index];
            self.note(event.data.u64(), event.flags);
        }
        match taken {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    fn note(&mut self, data: u64, flags: EventFlags) {
        if data & (WAKE | LISTENER | POLL_EVENTFD | DATAGRAMS | CONNECT) != 0 {
            return self.note_other(data);
        }
        let broken = EventFlags::HUP | EventFlags::ERR;
        let entry = self.entry_of(data as RawFd);
        entry.ending |= flags.intersects(EventFlags::RDHUP | broken);
        entry.readable |= flags.intersects(EventFlags::IN | EventFlags::RDHUP | broken);
        entry.writable |= flags.intersects(EventFlags::OUT | broken);
        self.list(data as RawFd);
    }

    /// An event of something that is no connection. That of the waker has done its work.
    fn note_other(&mut self, data: u64) {
        if data & LISTENER != 0 {
            self.listener_ready((data & !LISTENER) as usize);
        } else if data & POLL_EVENTFD != 0 {
            self.poll_ready((data & !POLL_EVENTFD) as usize);
        } else if data & DATAGRAMS != 0 {
            self.datagrams_ready((data & !DATAGRAMS) as usize);
        } else if data & CONNECT != 0 {
            self.connect_ready((data & !CONNECT) as RawFd);
        }
    }
}

fn timespec(nanoseconds: u64) -> Timespec {
    // A plain epoll_wait counts in 31 bits of milliseconds: 24 days are as good as no end.
    const NANOSECONDS_MAX: u64 = 24 * 24 * 3600 * 1_000_000_000;
    let nanoseconds = nanoseconds.min(NANOSECONDS_MAX);
    Timespec {
        tv_sec: (nanoseconds / 1_000_000_000) as i64,
        tv_nsec: (nanoseconds % 1_000_000_000) as i64,
    }
}

impl Driver for Epoll {
    fn waker(&self) -> Waker {
        self.waker.clone()
    }

    fn now_ns(&self) -> u64 {
        self.clock.now_ns()
    }

    fn wall_seconds(&self) -> u64 {
        self.clock.wall_seconds()
    }

    fn register(&mut self, descriptor: OwnedFd) -> io::Result<Socket> {
        self.counters.system_calls += 2;
        set_mode(&descriptor, Mode::NonBlocking)?;
        Ok(self.open(descriptor))
    }

    fn accept(&mut self, listener: &Listener, user_data: u64, mode: OperationMode) {
        self.start_accept(listener, user_data, mode);
    }

    fn accept_waiting(&mut self, listener: &Listener) -> Option<Socket> {
        self.counters.system_calls += 1;
        let socket = listener.accept_waiting(SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)?;
        Some(self.open(socket))
    }

    fn socket(&mut self, remote: &Remote) -> Result<Socket, Errno> {
        self.make_socket(remote)
    }

    fn connect(&mut self, socket: Socket, remote: &Remote, user_data: u64) {
        self.start_connect(socket, remote, user_data);
    }

    fn receive(&mut self, socket: Socket, user_data: u64, mode: OperationMode, region_id: u16) {
        self.start_receive(socket, user_data, mode, region_id);
    }

    fn region(&self, region_id: u16) -> &Region {
        self.buffers[usize::from(region_id)].region()
    }

    fn free(&self, region_id: u16) -> u32 {
        self.buffers[usize::from(region_id)].free()
    }

    fn recv_into(&mut self, socket: Socket, user_data: u64, buffer: Buffer) {
        self.start_recv_into(socket, user_data, buffer);
    }

    fn lend(&mut self, socket: Socket) -> Option<Lent> {
        self.lend_now(socket)
    }

    fn splice_from(
        &mut self,
        socket: Socket,
        pipes: &Pipes,
        bytes: RangeInclusive<usize>,
    ) -> Option<Piped> {
        self.splice_now(socket, pipes, bytes)
    }

    fn receive_datagrams(&mut self, socket: Arc<DatagramSocket>, user_data: u64, region_id: u16) {
        self.start_receive_datagrams(socket, user_data, region_id);
    }

    fn send(&mut self, socket: Socket, user_data: u64, list: &mut SendList, after: AfterSend) {
        self.start_send(socket, user_data, list, after);
    }

    fn hurry(&mut self) {
        self.hurried = true;
    }

    fn poll_eventfd(&mut self, event: Arc<Eventfd>, user_data: u64) {
        self.start_poll_eventfd(event, user_data);
    }

    fn shutdown_write(&mut self, socket: Socket) {
        self.start_shutdown_write(socket);
    }

    fn close(&mut self, socket: Socket) {
        self.start_close(socket);
    }

    fn abort(&mut self, socket: Socket) {
        self.start_abort(socket);
    }

    fn cancel(&mut self, operation: Operation<'_>, user_data: u64) {
        self.start_cancel(operation, user_data);
    }

    fn take_page(&mut self, region_id: u16, bytes: usize) -> Option<Piece> {
        self.buffers[usize::from(region_id)].take_page(bytes)
    }

    fn recycle(&mut self, piece: Piece) {
        self.buffers[usize::from(piece.region_id)].recycle(piece);
    }

    fn wait(
        &mut self,
        timeout_ns: Option<u64>,
        ready: &dyn Fn() -> bool,
        completions: &mut Vec<Completion>,
    ) -> io::Result<()> {
        let before = completions.len();
        completions.append(&mut self.unasked);
        self.reclaim();
        self.resting = 0;
        self.run_work(completions);
        let has_awaited = self.buffers.iter().any(Buffers::has_awaited);
        let resting = if std::mem::take(&mut self.hurried) {
            0
        } else {
            self.resting
        };
        let produced = completions.len() - before > resting || has_awaited;
        self.skipped = produced && !self.skipped;
        if !self.skipped {
            let timeout_ns = if produced { Some(0) } else { timeout_ns };
            self.poll(timeout_ns, ready)?;
            self.reclaim();
            self.run_work(completions);
        }
        let regions = self.buffers.iter().map(Buffers::region);
        regions.for_each(Region::waited);
        self.counters.completions += (completions.len() - before) as u64;
        self.clock.read();
        Ok(())
    }

    fn kind(&self) -> &'static str {
        "epoll"
    }

    fn statistics(&self) -> DriverStatistics {
        DriverStatistics {
            system_calls: self.counters.system_calls + self.counters.enters,
            wakes: self.waker.writes(),
            buffers_in_use: self.buffers[0].in_use(),
            ..self.counters
        }
        .with_retained(self.buffers.iter().map(Buffers::region))
    }
}
