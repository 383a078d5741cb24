//! Operations of the simulated driver, and their completions on the way to the caller.
//!
//! Invariants
//! - O1: an operation is listed from its start until its final completion was delivered.
//! - O2: completions of one operation are delivered in order; of different ones in random order.
//! - O3: a duplicate is delivered only while no operation with its user_data is listed, and not
//!   together with a completion of one: the caller could not tell them apart, nor could a kernel do
//!   it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use flatpath_structures::pool::Buffer;

use super::random::Random;
use crate::completion::{Completion, Outcome};
use crate::datagram::DatagramSocket;
use crate::driver::{AfterSend, OperationMode};
use crate::eventfd::Eventfd;
use crate::segment::SendList;

/// A duplicate comes before this many other operations have been started, or never.
const STARTS_LATE_MAX: u64 = 200;

/// The kind of an operation.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "a simulation, and most operations are few"
)]
pub(super) enum Kind {
    Accept {
        listener: u32,
    },
    Connect {
        socket: u32,
    },
    Receive {
        socket: u32,
        into: Received,
    },
    Send {
        socket: u32,
        list: SendList,
        after: AfterSend,
    },
    PollEventfd {
        event: Arc<Eventfd>,
    },
    ReceiveDatagrams {
        socket: Arc<DatagramSocket>,
        region_id: u16,
    },
}

impl Kind {
    pub(super) fn name(&self) -> &'static str {
        match self {
            Kind::Accept { .. } => "accept",
            Kind::Connect { .. } => "connect",
            Kind::Receive { .. } => "receive",
            Kind::Send { .. } => "send",
            Kind::PollEventfd { .. } => "poll",
            Kind::ReceiveDatagrams { .. } => "receive of datagrams",
        }
    }

    /// The socket it is on.
    pub(super) fn socket(&self) -> Option<u32> {
        match self {
            Kind::Connect { socket } | Kind::Receive { socket, .. } | Kind::Send { socket, .. } => {
                Some(*socket)
            }
            Kind::Accept { .. } | Kind::PollEventfd { .. } | Kind::ReceiveDatagrams { .. } => None,
        }
    }

    /// Whether only one of the two may be under way at a time (C2).
    pub(super) fn excludes(&self, other: &Kind) -> bool {
        match (self, other) {
            (Kind::Accept { listener }, Kind::Accept { listener: other }) => listener == other,
            (Kind::PollEventfd { event }, Kind::PollEventfd { event: other }) => {
                Arc::ptr_eq(event, other)
            }
            (
                Kind::ReceiveDatagrams { socket, .. },
                Kind::ReceiveDatagrams { socket: other, .. },
            ) => socket.number() == other.number(),
            (Kind::Connect { .. }, Kind::Connect { .. })
            | (Kind::Receive { .. }, Kind::Receive { .. })
            | (Kind::Send { .. }, Kind::Send { .. }) => self.socket() == other.socket(),
            _ => false,
        }
    }
}

/// Where a receive puts what it receives.
#[derive(Debug)]
pub(super) enum Received {
    /// A page of a region.
    Region(u16),
    /// The buffer of a recv_into, until it completes.
    Buffer(Option<Buffer>),
}

/// One operation.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) user_data: u64,
    pub(super) kind: Kind,
    pub(super) mode: OperationMode,
    pub(super) cancelled: bool,
    /// Its final completion is on the way.
    pub(super) over: bool,
    /// Completions on the way, and when they are due.
    way: VecDeque<(u64, Completion)>,
}

impl Running {
    /// Its completion ends no wait (D7).
    fn rests(&self, patience: Patience) -> bool {
        let is_rest = matches!(
            self.kind,
            Kind::Send {
                after: AfterSend::Rest,
                ..
            }
        );
        let went_through = |(_, completion): &(u64, Completion)| {
            matches!(completion.outcome, Outcome::Sent { .. }) && !completion.more
        };
        patience == Patience::Rests && is_rest && self.way.front().is_some_and(went_through)
    }
}

/// Whether a wait ends for sends with nothing after them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Patience {
    Rests,
    Ends,
}

/// All operations of a driver, oldest first.
#[derive(Default)]
pub(super) struct Operations {
    running: BTreeMap<u64, Running>,
    started: u64,
    /// Final completions to deliver once more: when, which, and how many operations had started.
    again: Vec<(u64, Completion, u64)>,
}

impl Operations {
    pub(super) fn start(&mut self, user_data: u64, kind: Kind, mode: OperationMode) {
        // A caller's numbers are used again, after 256 operations of a connection at the earliest;
        // no completion is that late.
        let oldest = (self.started + 1).saturating_sub(STARTS_LATE_MAX);
        self.again.retain(|(_, _, started)| *started >= oldest);
        let way = VecDeque::new();
        let running = Running {
            user_data,
            kind,
            mode,
            cancelled: false,
            over: false,
            way,
        };
        self.running.insert(self.started, running);
        self.started += 1;
    }

    pub(super) fn started(&self) -> u64 {
        self.started
    }

    pub(super) fn user_data(&self) -> Vec<u64> {
        self.running
            .values()
            .map(|running| running.user_data)
            .collect()
    }

    /// Whether there is such an operation.
    pub(super) fn has(&self, matches: impl Fn(&Running) -> bool) -> bool {
        self.running.values().any(matches)
    }

    pub(super) fn find_mut(&mut self, matches: impl Fn(&Running) -> bool) -> Option<&mut Running> {
        self.running.values_mut().find(|running| matches(running))
    }

    pub(super) fn at(&mut self, number: u64) -> &mut Running {
        let Some(running) = self.running.get_mut(&number) else {
            unreachable!("O1: operation {number} is listed")
        };
        running
    }

    /// Operations that may still complete, in random order.
    pub(super) fn live(&self, random: &mut Random) -> Vec<u64> {
        let live = self.running.iter().filter(|(_, running)| !running.over);
        let mut numbers: Vec<u64> = live.map(|(number, _)| *number).collect();
        for place in (1..numbers.len()).rev() {
            numbers.swap(place, random.below(place + 1));
        }
        numbers
    }

    /// Puts a completion on its way, after the operation's others.
    pub(super) fn complete(&mut self, number: u64, due_ns: u64, more: bool, outcome: Outcome) {
        let running = self.at(number);
        debug_assert!(!running.over, "O1: nothing follows a final completion");
        running.over = !more;
        let before_ns = running.way.back().map_or(0, |(due_ns, _)| *due_ns);
        let completion = Completion::new(running.user_data, more, outcome);
        let due_ns = due_ns.max(before_ns);
        running.way.push_back((due_ns, completion));
    }

    /// Ends multishot operations whose last completion is on the way: it becomes the final one.
    pub(super) fn end_with_what_is_on_the_way(&mut self) {
        for running in self.running.values_mut() {
            let many = running.mode == OperationMode::Multishot && !running.over;
            if let Some((_, last)) = running.way.back_mut().filter(|_| many) {
                last.more = false;
                running.over = true;
            }
        }
    }

    /// When the next completion is due for which a wait ends.
    pub(super) fn next_due_ns(&self, patience: Patience) -> Option<u64> {
        let fronts = self
            .running
            .values()
            .filter(|running| !running.rests(patience))
            .filter_map(|running| running.way.front());
        let again = self.again.iter().map(|(due_ns, _, _)| *due_ns);
        fronts.map(|(due_ns, _)| *due_ns).chain(again).min()
    }

    /// Completions on the way that end no wait.
    pub(super) fn resting(&self) -> usize {
        let running = self.running.values();
        running
            .filter(|running| running.rests(Patience::Rests))
            .count()
    }

    /// Takes one completion that is due, from a random operation.
    pub(super) fn take_due(
        &mut self,
        now_ns: u64,
        patience: Patience,
        random: &mut Random,
    ) -> Option<Completion> {
        let due = |running: &Running| {
            let front = running.way.front();
            front.is_some_and(|(at, _)| *at <= now_ns) && !running.rests(patience)
        };
        let due = self.running.iter().filter(|(_, running)| due(running));
        let numbers: Vec<u64> = due.map(|(number, _)| *number).collect();
        if numbers.is_empty() {
            return None;
        }
        let number = numbers[random.below(numbers.len())];
        let (_, completion) = self.at(number).way.pop_front()?;
        if !completion.more {
            self.running.remove(&number);
        }
        Some(completion)
    }

    /// Lets a final completion come again at `due_ns`.
    pub(super) fn repeat(&mut self, due_ns: u64, completion: Completion) {
        self.again.push((due_ns, completion, self.started));
    }

    /// Takes a duplicate that is due, and drops the ones that O3 forbids.
    pub(super) fn take_duplicate(
        &mut self,
        now_ns: u64,
        delivered: &[Completion],
    ) -> Option<Completion> {
        loop {
            let place = self
                .again
                .iter()
                .position(|(due_ns, _, _)| *due_ns <= now_ns)?;
            let (_, completion, _) = self.again.swap_remove(place);
            let user_data = completion.user_data;
            let listed = self.has(|running| running.user_data == user_data);
            if !listed && !delivered.iter().any(|other| other.user_data == user_data) {
                return Some(completion);
            }
        }
    }

    /// Takes what is on the way, for a drop; the operations stay listed.
    pub(super) fn take_all_completions(&mut self) -> Vec<Completion> {
        self.again.clear();
        let ways = self
            .running
            .values_mut()
            .flat_map(|running| running.way.drain(..));
        ways.map(|(_, completion)| completion).collect()
    }
}
