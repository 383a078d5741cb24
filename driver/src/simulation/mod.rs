//! A seeded simulation: clients, network, clock and kernel in one process, one thread, no waiting.
//!
//! It meets the promises of a driver in the worst ways they allow: short, late, reordered, ended
//! early, out of buffers, out of descriptors; and it breaks them in one way that kernels have: a
//! final completion may come twice. It asserts the promises of the caller (C1 to C6
//! of [`Driver`]) and panics with the seed when one is broken. The same seed and the same calls
//! give the same run.
//!
//! Files: `network` is what a test holds, `world` the state, `stream` one direction of a
//! connection, `inbox` a socket without, `faults` the mix, `operations` the bookkeeping, `progress`
//! the kernel at work (with the polls of eventfds), and each other operation has a file: `accept`,
//! `connect` (and the servers that connections are opened to), `receive` (with recv_into),
//! `datagrams`, `send`, `close` (with abort, shutdown_write, cancel).
//!
//! A wait never blocks. If nothing is due, it moves the clock to what happens next, to the time-out
//! or by one step, whichever is first, so that clients driven by a test get their turn.
//!
//! Cost: every wait looks at each operation.

mod random;
mod faults;
mod stream;
mod world;
mod network;
mod inbox;
mod operations;
mod progress;
mod accept;
mod connect;
mod receive;
mod datagrams;
mod send;
mod servers;
mod close;

use std::io;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::os::fd::OwnedFd;
use std::sync::Arc;

pub use self::connect::Upstream;
pub use self::faults::{Fault, Faults, Injected};
pub use self::network::{Client, Leaks, Network};
use self::operations::{Kind, Patience};
pub use self::random::{Random, each_seed};
pub use self::servers::Answer;
pub use self::world::ClientState;
use self::world::World;
use flatpath_structures::pool::Buffer;
use flatpath_sys::tcp::Delivery;

use crate::buffers::Buffers;
use crate::completion::{Completion, Errno, Outcome, Piece};
use crate::config::DriverConfig;
use crate::datagram::DatagramSocket;
use crate::driver::{AfterSend, Driver, Operation, OperationMode, USER_DATA_MAX};
use crate::eventfd::Eventfd;
use crate::file_range::FileRange;
use crate::lent::Lent;
use crate::pipe::{Piped, Pipes};
use crate::region::Region;
use crate::remote::Remote;
use crate::segment::SendList;
use crate::socket::{Listener, Socket};
use crate::statistics::DriverStatistics;
use crate::waker::Waker;

/// The simulated clock's time when it starts, in seconds since 1970.
const WALL_SECONDS_AT_START: u64 = 1_800_000_000;

/// The simulated driver. See the module.
pub struct Simulation {
    network: Network,
    buffers: Vec<Buffers>,
    completion_entries: usize,
    waker: Waker,
    now_ns: u64,
    hurried: bool,
    counters: DriverStatistics,
    /// Streams that were lent, by their sockets.
    lent: Vec<(u32, Lent)>,
}

flatpath_structures::opaque_debug! {
    impl[] Simulation as "Simulation";
}

impl Simulation {
    /// A driver and the network it is on. Of the configuration, the buffers and the length
    /// of the completion queue matter.
    pub fn new(seed: u64, config: &DriverConfig, faults: Faults) -> (Simulation, Network) {
        let world = World::new(seed, faults);
        let now_ns = world.now_ns;
        let network = Network::of(world);
        let waker = Waker::simulated();
        let regions = (0..).zip(config.all_regions()).map(|(region_id, region)| {
            let made = Buffers::new(region_id, &region, &waker);
            made.expect("a simulation has possible regions, and memory for them")
        });
        let simulation = Simulation {
            network: network.clone(),
            buffers: regions.collect(),
            completion_entries: config.completion_entries.max(1) as usize,
            waker,
            now_ns,
            hurried: false,
            counters: DriverStatistics::default(),
            lent: Vec::new(),
        };
        (simulation, network)
    }

    fn start(&mut self, user_data: u64, kind: Kind, mode: OperationMode) {
        let is_received = matches!(kind, Kind::Receive { .. });
        let takes_lent = is_received && kind.socket().is_some_and(|it| self.is_lent(it));
        let mut world = self.network.world();
        if takes_lent {
            world.broken_promise(&format!("C8: {kind:?} while its socket is lent"));
        }
        if user_data > USER_DATA_MAX {
            world.broken_promise(&format!("C1: {user_data:#x} is above USER_DATA_MAX"));
        }
        if let Some(socket) = kind.socket() {
            let connection = world.connection_of(socket, kind.name());
            let is_open = connection.opening.is_none();
            if !is_open && !matches!(kind, Kind::Connect { .. }) {
                world.broken_promise(&format!("C9: {kind:?} before its connect"));
            }
        }
        let operations = &world.operations;
        if operations.has(|running| running.user_data == user_data) {
            world.broken_promise(&format!("C1: user_data {user_data:#x} is in use"));
        }
        if operations.has(|running| running.kind.excludes(&kind)) {
            world.broken_promise(&format!("C2: a second {}: {kind:?}", kind.name()));
        }
        world.operations.start(user_data, kind, mode);
    }

    /// Moves the clock to what happens next, at most by a step.
    fn let_time_pass(&self, world: &mut World, timeout_ns: Option<u64>) {
        let step_ns = timeout_ns.unwrap_or(u64::MAX).min(world.step_ns_max);
        let due_ns = world.operations.next_due_ns(Patience::Rests);
        let next_ns = [due_ns, world.next_ns()];
        let next_ns = next_ns.into_iter().flatten().min().unwrap_or(u64::MAX);
        let target_ns = world.now_ns.saturating_add(step_ns).min(next_ns);
        world.now_ns = world.now_ns.max(target_ns);
    }

    /// Hands out what is due, as much as the completion queue holds.
    fn deliver(
        &mut self,
        world: &mut World,
        patience: Patience,
        completions: &mut Vec<Completion>,
    ) {
        let mut most = self.completion_entries;
        if world.strikes(Fault::Overflow) {
            most = world.random.below(4);
            world.operations.end_with_what_is_on_the_way();
            self.counters.completion_overflows += 1;
        }
        let now_ns = world.now_ns;
        for _ in 0..most {
            let taken = world
                .operations
                .take_due(now_ns, patience, &mut world.random);
            let Some(completion) = taken else {
                break;
            };
            let piece = match &completion.outcome {
                Outcome::Received(piece) => Some(piece),
                Outcome::Datagram(datagram) => datagram.piece.as_ref(),
                _ => None,
            };
            world.pieces_out += u32::from(piece.is_some());
            self.counters.count_stall(&completion.outcome);
            if !completion.more && world.chance(Fault::Duplicate) {
                let due_ns = now_ns + 1 + world.random.up_to(world.faults.late_ns_max);
                world.operations.repeat(due_ns, duplicate_of(&completion));
            }
            completions.push(completion);
        }
        // First: what the caller starts while it handles the others may have the same user_data.
        while let Some(duplicate) = world.operations.take_duplicate(now_ns, completions) {
            world.injected.strike(Fault::Duplicate);
            completions.insert(0, duplicate);
        }
    }
}

/// The duplicate of a final completion: everything but what it carried.
fn duplicate_of(completion: &Completion) -> Completion {
    let outcome = match completion.outcome {
        Outcome::Accepted(_)
        | Outcome::Received(_)
        | Outcome::ReceivedInto(_)
        | Outcome::Datagram(_) => Outcome::Failed(Errno::CANCELED),
        Outcome::Signalled(_) => unreachable!("only with `more`"),
        Outcome::Connected => Outcome::Connected,
        Outcome::EndOfStream => Outcome::EndOfStream,
        Outcome::Sent { bytes, closed } => Outcome::Sent { bytes, closed },
        Outcome::Failed(errno) => Outcome::Failed(errno),
    };
    Completion::last(completion.user_data, outcome)
}

impl Driver for Simulation {
    fn waker(&self) -> Waker {
        self.waker.clone()
    }

    fn now_ns(&self) -> u64 {
        self.now_ns
    }

    fn clock_ns(&self) -> u64 {
        self.network.world().now_ns
    }

    fn voluntary_switches(&self) -> u64 {
        self.network.world().switches
    }

    fn wall_seconds(&self) -> u64 {
        WALL_SECONDS_AT_START + self.now_ns / 1_000_000_000
    }

    fn register(&mut self, _descriptor: OwnedFd) -> io::Result<Socket> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn peer(&self, socket: Socket) -> Option<SocketAddr> {
        let mut world = self.network.world();
        world.connection_of(socket.number(), "peer").peer
    }

    fn accept(&mut self, listener: &Listener, user_data: u64, mode: OperationMode) {
        self.start_accept(listener, user_data, mode);
    }

    fn accept_waiting(&mut self, listener: &Listener) -> Option<Socket> {
        self.accept_now(listener)
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

    fn lend(&mut self, socket: Socket) -> Option<Lent> {
        self.lend_now(socket)
    }

    fn send(&mut self, socket: Socket, user_data: u64, list: &mut SendList, after: AfterSend) {
        self.start_send(socket, user_data, list, after);
    }

    fn set_unsent_max(&mut self, _: Socket, _: u32) {}

    fn is_at_hand(&mut self, range: &FileRange) -> bool {
        !self.network.world().strikes(Fault::NotAtHand) && range.file().is_at_hand(range.range())
    }

    fn delivery(&self, socket: Socket) -> Option<Delivery> {
        self.delivery_of(socket)
    }

    fn hurry(&mut self) {
        self.hurried = true;
    }

    fn poll_eventfd(&mut self, event: Arc<Eventfd>, user_data: u64) {
        // Not `Multishot`: a driver keeps a poll alive through an overflow.
        let kind = Kind::PollEventfd { event };
        self.start(user_data, kind, OperationMode::Single);
    }

    fn receive_datagrams(&mut self, socket: Arc<DatagramSocket>, user_data: u64, region_id: u16) {
        self.start_receive_datagrams(socket, user_data, region_id);
    }

    fn shutdown_write(&mut self, socket: Socket) {
        self.start_shutdown_write(socket);
    }

    fn close(&mut self, socket: Socket) {
        self.start_end(socket, false);
    }

    fn abort(&mut self, socket: Socket) {
        self.start_end(socket, true);
    }

    fn cancel(&mut self, operation: Operation<'_>, user_data: u64) {
        self.start_cancel(operation, user_data);
    }

    fn region(&self, region_id: u16) -> &Region {
        self.buffers[usize::from(region_id)].region()
    }

    fn free(&self, region_id: u16) -> u32 {
        self.buffers[usize::from(region_id)].free()
    }

    fn take_page(&mut self, region_id: u16, bytes: usize) -> Option<Piece> {
        let page = self.buffers[usize::from(region_id)].take_page(bytes)?;
        self.network.world().pieces_out += 1;
        Some(page)
    }

    fn recycle(&mut self, piece: Piece) {
        self.buffers[usize::from(piece.region_id)].recycle(piece);
        self.network.world().pieces_out -= 1;
    }

    fn wait(
        &mut self,
        timeout_ns: Option<u64>,
        ready: &dyn Fn() -> bool,
        completions: &mut Vec<Completion>,
    ) -> io::Result<()> {
        self.buffers.iter_mut().for_each(Buffers::reclaim);
        let busy = ready() || self.buffers.iter().any(Buffers::has_awaited);
        self.buffers
            .iter()
            .for_each(|buffers| buffers.region().waited());
        let network = self.network.clone();
        let mut world = network.world();
        let before = completions.len();
        // Every turn takes a while, so that a caller in a tight loop sees time pass.
        world.now_ns += 1_000;
        let resting = world.operations.resting();
        world.progress(&mut self.buffers);
        // The client gets its turn before the clock moves on.
        let has_sent = world.operations.resting() > resting;
        let hurried = std::mem::take(&mut self.hurried);
        let patience = match hurried {
            true => Patience::Ends,
            false => Patience::Rests,
        };
        let is_due = |world: &World, patience| {
            let due_ns = world.operations.next_due_ns(patience);
            due_ns.is_some_and(|due_ns| due_ns <= world.now_ns)
        };
        // From where the caller saw the clock: the world may have moved on since.
        let end_ns = self.now_ns.saturating_add(timeout_ns.unwrap_or(u64::MAX));
        if !is_due(&world, patience) && !has_sent && !busy && timeout_ns != Some(0) {
            self.let_time_pass(&mut world, timeout_ns);
            world.progress(&mut self.buffers);
        }
        // Completions that rest come with whatever ends the wait; a step of the clock does not end
        // it.
        let ends = busy || world.now_ns >= end_ns || is_due(&world, patience);
        let patience = if ends { Patience::Ends } else { patience };
        self.deliver(&mut world, patience, completions);
        self.now_ns = world.now_ns;
        self.counters.completions += (completions.len() - before) as u64;
        self.counters.enters += 1;
        Ok(())
    }

    fn kind(&self) -> &'static str {
        "simulation"
    }

    fn statistics(&self) -> DriverStatistics {
        let world = self.network.world();
        DriverStatistics {
            submissions: world.operations.started(),
            buffers_in_use: self.buffers[0].in_use(),
            sockets: world.sockets.len() as u32,
            ..self.counters
        }
        .with_retained(self.buffers.iter().map(Buffers::region))
    }
}

impl Drop for Simulation {
    fn drop(&mut self) {
        let mut world = self.network.world();
        // The test may still ask what leaked, so that is left as it is; the clients see an end.
        drop(world.operations.take_all_completions());
        let sockets: Vec<u32> = world.sockets.keys().copied().collect();
        for socket in sockets {
            let connection = world.connection_of(socket, "drop");
            connection.broken = true;
            connection.server_closed = true;
        }
    }
}
