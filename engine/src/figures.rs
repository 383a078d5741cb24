//! What a running server shows of itself: one snapshot, read when it is asked for.
//!
//! Nothing is gathered beforehand. [`Handle::figures`](crate::Handle::figures) reads counters that
//! network threads and workers write for themselves, and what the pools, the workers and the
//! receive memory know anyway. It waits for no thread that serves: the only locks are taken for
//! moments, when workers or network threads start or leave.
//!
//! Cost: O(network threads × listeners + jobs that were in flight at the same time at the most).

use std::time::Duration;

use crate::descriptors::DescriptorFigures;
use crate::lifecycle::ServerState;
use crate::memory::MemoryFigures;
use crate::statistics::{Durations, Statistics};

/// A server at a moment.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Figures {
    /// Since it was started.
    pub uptime: Duration,
    /// How far its end has come.
    pub state: ServerState,
    /// Its listeners, in the order in which they were named.
    pub listeners: Vec<ListenerFigures>,
    /// Its network threads that have started.
    pub threads: Vec<ThreadFigures>,
    /// Its workers.
    pub workers: WorkerFigures,
    /// The memory for buffers.
    pub pool: PoolFigures,
    /// Where the pages of receive memory are, for each network thread that runs.
    pub receive_memory: Vec<MemoryFigures>,
    /// What files and caches hold of the descriptors.
    pub descriptors: DescriptorFigures,
}

/// One listener.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct ListenerFigures {
    /// The name of its protocol.
    pub name: &'static str,
    /// Where it was bound, in words.
    pub address: String,
    /// What [`Statistics::requests`] counts, by index.
    pub request_classes: &'static [&'static str],
    /// Requests of it that workers run or that wait for one.
    pub jobs: JobFigures,
    /// What it counted, by the number of the network thread; only of those that accept for it.
    pub threads: Vec<(usize, Statistics)>,
}

/// One network thread.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct ThreadFigures {
    /// From 0.
    pub number: usize,
    /// `uring` or `epoll`.
    pub driver: &'static str,
    /// How long its turns took, from the end of one wait to the beginning of the next. With epoll,
    /// receiving and sending belong to the wait.
    pub turns: Durations,
    /// Its present turn, unless it waits for something to happen: how long that has lasted, and the
    /// listener that it called last. Long: a handler that runs inline blocks.
    pub turn: Option<TurnAge>,
    /// Times it called the function of an eventfd that was written to.
    pub signals: u64,
    /// Panics caught in these functions.
    pub signal_panics: u64,
    /// What it spent on putting jobs on the queue and waking workers for them. Measured only after
    /// [`Server::observe_dispatch`](crate::Server::observe_dispatch).
    pub dispatch: Duration,
}

/// The workers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct WorkerFigures {
    /// Worker threads now.
    pub threads: u32,
    /// Of these, those that wait for work, roughly.
    pub idle: u32,
    /// The fewest and the most that there may be.
    pub min: u32,
    /// See `min`.
    pub max: u32,
    /// Started after the first ones, so far.
    pub grown: u64,
}

/// How long a turn has lasted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TurnAge {
    /// The listener that was called last, by its place in [`Figures::listeners`].
    pub listener: usize,
    /// Since its beginning.
    pub age: Duration,
}

/// Requests that workers run or that wait for one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct JobFigures {
    /// In the queue, until a worker takes them.
    pub queued: usize,
    /// Not in the queue yet: they wait for their listener's share of the workers, or for memory.
    /// Of several listeners of a network thread, only the one that has waited longest is considered
    /// in `oldest_queued`.
    pub held_back: usize,
    /// Waiting for their share of what may block, such as a mount.
    pub parked: usize,
    /// With a worker.
    pub running: usize,
    /// How long that one has waited that has waited longest, of the first three; within 10 ms.
    pub oldest_queued: Option<Duration>,
    /// How long a worker has been at that one that it has been at for longest; within 10 ms.
    pub longest_running: Option<Duration>,
}

/// A handler that runs now: in a worker, or inline in a turn of a network thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RunningHandler {
    /// The listener that it works for, by its place in [`Figures::listeners`].
    pub listener: usize,
    /// Of a worker, the number that the kernel gave its thread (`/proc/self/task/…`), 0 if it is
    /// not known; of a network thread, its number in the server.
    pub thread: u32,
    /// It runs on a network thread.
    pub is_inline: bool,
    /// When it began, by the monotonic clock: with the thread, the name of this run.
    pub since: Duration,
    /// How long ago that was.
    pub age: Duration,
}

/// The memory for buffers, of which every connection has what it needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolFigures {
    /// The most that may be allocated.
    pub budget_bytes: usize,
    /// By size.
    pub classes: Vec<ClassFigures>,
    /// Buffers handed out that were smaller than asked for.
    pub degraded: u64,
    /// Requests for a buffer that got none.
    pub refused: u64,
}

/// Buffers of one size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClassFigures {
    /// The size.
    pub buffer_bytes: usize,
    /// Bytes of those that are handed out.
    pub in_use_bytes: usize,
    /// Bytes of those that wait to be used again.
    pub idle_bytes: usize,
}

impl JobFigures {
    fn add(&mut self, other: JobFigures) {
        self.queued += other.queued;
        self.held_back += other.held_back;
        self.parked += other.parked;
        self.running += other.running;
        self.oldest_queued = self.oldest_queued.max(other.oldest_queued);
        self.longest_running = self.longest_running.max(other.longest_running);
    }
}

impl Figures {
    /// The requests of all listeners that workers run or that wait for one.
    pub fn jobs(&self) -> JobFigures {
        let mut sum = JobFigures::default();
        for listener in &self.listeners {
            sum.add(listener.jobs);
        }
        sum
    }

    /// What all listeners counted on all network threads.
    pub fn total(&self) -> Statistics {
        let mut sum = Statistics::default();
        for listener in &self.listeners {
            sum += listener.total();
        }
        sum
    }
}

impl ListenerFigures {
    /// What it counted on all network threads.
    pub fn total(&self) -> Statistics {
        let mut sum = Statistics::default();
        for (_, statistics) in &self.threads {
            sum += *statistics;
        }
        sum
    }
}
