//! io_uring: one entry per operation, one system call per turn.
//!
//! Files: `setup` makes the ring, `ring` submits and reaps, `buffers` is the memory received into
//! (`entries` and `sharing` are parts of it), `entry` builds what is submitted, `table` holds what
//! operations need until they end, `origin` says whose completion it is, and each operation has
//! a file: `accept` (and `accept_shared`), `connect`, `receive`, `recv_into`, `datagrams`, `send`,
//! `poll_eventfd`, `close` (with abort and shutdown_write), `cancel`, `wake`. `teardown` is the
//! drop.
//!
//! Invariants
//! - U1: `outstanding` counts accepts, connects, receives (of datagrams as well), recv_intos, sends
//!   and watches without a final completion. Nothing the kernel may touch is freed while it is
//!   above zero.
//! - U2: the driver stays on its thread: the kernel refuses any other (SINGLE_ISSUER). It is not
//!   `Send`.
//!
//! Cost: one `io_uring_enter` per wait. Shutdown, abort and registration cost one call each;
//! so does the first accept on a listener that is in the wrong blocking mode.

pub(crate) mod setup;
mod ring;
mod entries;
mod sharing;
pub(crate) mod buffers;
mod sockets;
mod origin;
pub(crate) mod entry;
mod table;
mod accept;
mod accept_shared;
mod connect;
mod receive;
mod recv_into;
mod datagrams;
mod send;
mod poll_eventfd;
mod close;
mod cancel;
mod wake;
mod teardown;

use std::io;
use std::mem::ManuallyDrop;
use std::ops::RangeInclusive;
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd};
use std::sync::{Arc, OnceLock};

use flatpath_structures::pool::Buffer;
use io_uring::{IoUring, cqueue};
use rustix::io::{Errno, fcntl_dupfd_cloexec};
use rustix::net::SocketFlags;

use self::buffers::BufferRing;
use self::datagrams::DatagramTable;
use self::origin::{Origin, Own};
use self::receive::ReceiveBound;
use self::ring::{Block, Ring};
use self::sockets::SocketTable;
use self::table::{ConnectTable, PollTable, RecvIntoTable, SendTable, SharedAcceptTable};
use crate::clock::Clock;
use crate::completion::{Completion, Piece};
use crate::config::DriverConfig;
use crate::datagram::DatagramSocket;
use crate::driver::{AfterSend, Driver, Operation, OperationMode};
use crate::eventfd::Eventfd;
use crate::lent::Lent;
use crate::pipe::{Piped, Pipes};
use crate::probe::sharing::receives_share_pages;
use crate::probe::sockets::{pausing_receive, silent_send};
use crate::refusal::Refusal;
use crate::region::{Region, SmallReceives};
use crate::remote::Remote;
use crate::segment::SendList;
use crate::socket::{Handle, Listener, Mode, Socket, set_mode};
use crate::statistics::DriverStatistics;
use crate::waker::Waker;

pub use self::setup::TaskRun;

/// The io_uring driver. See the module.
pub struct Uring {
    ring: Ring,
    /// Freed by the drop, once the kernel is done with them (U1).
    buffers: ManuallyDrop<Vec<BufferRing>>,
    sends: ManuallyDrop<SendTable>,
    recv_intos: ManuallyDrop<RecvIntoTable>,
    datagrams: ManuallyDrop<DatagramTable>,
    /// Each datagram has an operation of its own, whatever the kernel offers.
    single_datagrams: bool,
    /// What keeps a receive of many pieces from taking every page.
    receive_bound: ReceiveBound,
    polls: PollTable,
    shared_accepts: SharedAcceptTable,
    connects: ConnectTable,
    sockets: SocketTable,
    waker: Waker,
    clock: Clock,
    task_run: TaskRun,
    stopping: bool,
    outstanding: u32,
    /// Whether sends may complete in silence here; and those that have, by entry and index (P4).
    silence: bool,
    silent: Vec<(u64, u32)>,
    hurried: bool,
    /// Completions that the kernel was not asked for.
    unasked: Vec<Completion>,
    handling: Vec<cqueue::Entry>,
    counters: DriverStatistics,
}

flatpath_structures::opaque_debug! {
    impl[] Uring as "Uring";
}

impl Uring {
    /// Sets up a ring and its buffers.
    ///
    /// # Errors
    /// Why the kernel refuses, and what helps.
    pub fn new(config: &DriverConfig) -> Result<Uring, Refusal> {
        config.check()?;
        let (ring, task_run) = setup::set_up(config.submission_entries, config.completion_entries)?;
        Uring::on(ring, task_run, config)
    }

    /// The same with exactly this kind of ring, to compare what they cost. [`Uring::new`] takes the
    /// best that the kernel offers.
    ///
    /// # Errors
    /// As [`Uring::new`].
    pub fn with_task_run(config: &DriverConfig, task_run: TaskRun) -> Result<Uring, Refusal> {
        config.check()?;
        let (submission, completion) = (config.submission_entries, config.completion_entries);
        let ring = setup::set_up_as(task_run, submission, completion)
            .map_err(|error| Refusal::of_error("setting up an io_uring", &error))?;
        Uring::on(ring, task_run, config)
    }

    fn on(ring: IoUring, task_run: TaskRun, config: &DriverConfig) -> Result<Uring, Refusal> {
        setup::require(&ring)?;
        let waker = Waker::new().map_err(|errno| Refusal::of("making an eventfd", errno))?;
        let mut buffers = Vec::new();
        let mut first = 0;
        for (region_id, mut region) in (0..).zip(config.all_regions()) {
            if region.small_receives == SmallReceives::SharePages && !SHARED_PAGES.works() {
                region.small_receives = SmallReceives::TakePages;
            }
            buffers.push(BufferRing::new(
                &ring,
                (region_id, first as u16),
                &region,
                &waker,
            )?);
            first += region.pages;
        }
        let mut uring = Uring {
            ring: Ring::new(ring),
            buffers: ManuallyDrop::new(buffers),
            sends: ManuallyDrop::default(),
            recv_intos: ManuallyDrop::default(),
            datagrams: ManuallyDrop::default(),
            single_datagrams: false,
            receive_bound: ReceiveBound::best(),
            polls: PollTable::default(),
            shared_accepts: SharedAcceptTable::default(),
            connects: ConnectTable::default(),
            sockets: SocketTable::default(),
            waker,
            clock: Clock::new(),
            task_run,
            stopping: false,
            outstanding: 0,
            silence: SILENT_SENDS.works(),
            silent: Vec::new(),
            hurried: false,
            unasked: Vec::new(),
            handling: Vec::new(),
            counters: DriverStatistics::default(),
        };
        uring.arm_wake();
        Ok(uring)
    }

    /// Receives each piece and each datagram with an operation of its own, as where the kernel has
    /// no other way. For tests; before the first one.
    #[doc(hidden)]
    #[must_use]
    pub fn with_single_receives(mut self) -> Uring {
        self.single_datagrams = true;
        self.receive_bound = ReceiveBound::Single;
        self
    }

    /// When the kernel works out completions of this ring.
    pub fn task_run(&self) -> TaskRun {
        self.task_run
    }

    /// Owns a connection from now on, which came by a call of this thread. Where its number is
    /// still that of a send whose end has not been heard of (K2), it gets another one: three
    /// calls, and rarely more.
    ///
    /// # Errors
    /// There is no other descriptor; the connection is closed.
    fn adopt(&mut self, descriptor: OwnedFd) -> Result<Socket, Errno> {
        let mut taken = Vec::new();
        let mut descriptor = descriptor;
        while self.sockets.has(descriptor.as_raw_fd()) {
            self.counters.system_calls += 2;
            let other = fcntl_dupfd_cloexec(&descriptor, 0)?;
            taken.push(std::mem::replace(&mut descriptor, other));
        }
        let socket = Socket::new(Handle::Descriptor(descriptor.into_raw_fd()));
        self.sockets.open(socket);
        Ok(socket)
    }

    /// Takes back the pages that no fragment refers to any more.
    fn reclaim(&mut self) {
        self.buffers.iter_mut().for_each(BufferRing::reclaim);
    }

    /// Turns what was reaped into completions.
    fn handle_reaped(&mut self, completions: &mut Vec<Completion>) {
        let empty = std::mem::take(&mut self.handling);
        let mut reaped = self.ring.exchange(empty);
        self.end_silent(&reaped, completions);
        for entry in reaped.drain(..) {
            self.handle(&entry, completions);
        }
        self.handling = reaped;
    }

    fn handle(&mut self, entry: &cqueue::Entry, completions: &mut Vec<Completion>) {
        match Origin::unpack(entry.user_data()) {
            Origin::Accept { user_data } => {
                let more = cqueue::more(entry.flags());
                self.accepted(user_data, entry.result(), more, completions);
            }
            Origin::Receive { user_data } => self.received(user_data, entry, completions),
            Origin::RecvInto { index } => self.received_into(index, entry.result(), completions),
            Origin::Send { index } => self.sent(index, entry.result(), completions),
            Origin::Datagrams { index } => self.datagram_received(index, entry, completions),
            Origin::PollEventfd { index } => self.poll_fired(index, entry, completions),
            Origin::SharedAccept { index } => {
                self.shared_accept_fired(index, entry.result(), completions);
            }
            Origin::CancelSend { index } => self.cancel_send_again(index),
            Origin::Connect { index } => self.connected(index, entry.result(), completions),
            Origin::Own(own) => self.own(own, entry),
        }
    }

    /// A completion of something the driver did for itself.
    fn own(&mut self, own: Own, entry: &cqueue::Entry) {
        let result = entry.result();
        match own {
            Own::Wake => {
                if !cqueue::more(entry.flags()) && !self.stopping {
                    self.arm_wake();
                }
            }
            Own::Close => {
                // A close linked after a send that fell short is cancelled, and linked anew.
                if result < 0 && result != -libc::ECANCELED {
                    log::warn!(
                        "closing a socket: {}",
                        io::Error::from_raw_os_error(-result)
                    );
                }
            }
            // A cancel that came too late.
            Own::Cancel => {}
        }
    }
}

/// Something that not every kernel does, and that is done without.
struct Optional {
    /// Whether it works here, once that was tried in this process.
    works: OnceLock<bool>,
    name: &'static str,
    attempt: fn() -> io::Result<()>,
    /// What is used instead.
    instead: &'static str,
}

static SHARED_PAGES: Optional = Optional {
    works: OnceLock::new(),
    name: "receiving several times into a page",
    attempt: receives_share_pages,
    instead: "each receive takes a page, as they cannot share one",
};

static SILENT_SENDS: Optional = Optional {
    works: OnceLock::new(),
    name: "sends that complete in silence",
    attempt: silent_send,
    instead: "send batching is unavailable",
};

/// Of what comes fast such a receive leaves a part to later turns.
static PAUSING_RECEIVES: Optional = Optional {
    works: OnceLock::new(),
    name: "a receive of many pieces that pauses",
    attempt: pausing_receive,
    instead: "each receive brings one piece",
};

impl Optional {
    /// Whether it works here. Tried at the first call, which logs what is used instead.
    fn works(&self) -> bool {
        *self.works.get_or_init(|| {
            let tried = (self.attempt)();
            if let Err(error) = &tried {
                let refusal = Refusal::of_error(self.name, error);
                log::info!("{}: {refusal}", self.instead);
            }
            tried.is_ok()
        })
    }
}

impl Driver for Uring {
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
        set_mode(&descriptor, Mode::Blocking)?;
        Ok(self.adopt(descriptor)?)
    }

    fn accept(&mut self, listener: &Listener, user_data: u64, mode: OperationMode) {
        self.start_accept(listener, user_data, mode);
    }

    fn accept_waiting(&mut self, listener: &Listener) -> Option<Socket> {
        self.counters.system_calls += 1;
        let socket = listener.accept_waiting(SocketFlags::CLOEXEC)?;
        self.adopt(socket).ok()
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

    fn receive_sharing(&mut self, socket: Socket, user_data: u64, region_id: u16) {
        self.start_receive_sharing(socket, user_data, region_id);
    }

    fn region(&self, region_id: u16) -> &Region {
        self.buffers[usize::from(region_id)].region()
    }

    fn free(&self, region_id: u16) -> u32 {
        self.buffers[usize::from(region_id)].free()
    }

    fn free_sharing(&self, region_id: u16) -> u32 {
        self.buffers[usize::from(region_id)].free_sharing()
    }

    fn await_pages(&mut self, region_id: u16) {
        self.buffers[usize::from(region_id)].await_whole();
    }

    fn await_sharing(&mut self, region_id: u16) {
        self.buffers[usize::from(region_id)].await_sharing();
    }

    fn recv_into(&mut self, socket: Socket, user_data: u64, buffer: Buffer) {
        self.start_recv_into(socket, user_data, buffer);
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

    fn lend(&mut self, socket: Socket) -> Option<Lent> {
        self.lend_now(socket)
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
        let buffers = &self.buffers;
        let has_awaited = buffers.iter().any(BufferRing::has_awaited);
        let ready = &|| ready() || buffers.iter().any(|ring| ring.region().is_relieved());
        let hurried = std::mem::take(&mut self.hurried) && !self.silent.is_empty();
        let busy = completions.len() > before || self.ring.has_reaped() || has_awaited || hurried;
        let block = match timeout_ns {
            _ if busy || ready() => Block::No,
            Some(0) => Block::No,
            Some(timeout_ns) => Block::UpTo { timeout_ns },
            None => Block::UntilCompletion,
        };
        if block != Block::No && self.waker.may_sleep(ready) {
            let turned = self.ring.turn(block);
            self.waker.awake();
            turned?;
        } else {
            self.ring.turn(Block::No)?;
        }
        self.reclaim();
        self.buffers.iter_mut().for_each(BufferRing::waited);
        self.handle_reaped(completions);
        self.counters.completions += (completions.len() - before) as u64;
        self.clock.read();
        Ok(())
    }

    fn kind(&self) -> &'static str {
        "uring"
    }

    fn statistics(&self) -> DriverStatistics {
        DriverStatistics {
            system_calls: self.counters.system_calls + self.ring.enters,
            enters: self.ring.enters,
            submissions: self.ring.submissions,
            completion_overflows: self.ring.overflows,
            wakes: self.waker.writes(),
            buffers_in_use: self.buffers[0].in_use(),
            sockets: self.sockets.count(),
            ..self.counters
        }
        .with_retained(self.buffers.iter().map(BufferRing::region))
    }
}
