//! What a running server shows of itself: one snapshot, read when it is asked for.
//!
//! Nothing is gathered beforehand. [`Handle::figures`](crate::Handle::figures) reads counters that
//! network threads and workers write for themselves, and what the pools, the workers and the
//! receive memory know anyway. It waits for no thread that serves: the only locks are taken for
//! moments, when workers or network threads start or leave.
//!
//! [`Figures::metrics`] gives the same as metrics, for display: the tables here have a row for each
//! number that is not a counter of a listener.
//!
//! Cost: O(network threads × listeners + jobs that were in flight at the same time at the most).

use std::time::Duration;

use crate::admission::descriptors::DescriptorFigures;
pub use crate::memory::pools::{ClassFigures, PoolFigures};
use crate::observe::metrics::{Family, Metric, read, read_each};
use crate::observe::regions::MemoryFigures;
use crate::observe::statistics::{self, Durations, Statistics};
use crate::server::lifecycle::ServerState;

/// A server at a moment.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Figures {
    /// Since it was started.
    pub uptime: Duration,
    /// When it was started, since 1970, by the clock as it stood then: it is the same for as long
    /// as the server runs, whatever is done to the clock.
    pub started_at: Duration,
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
    /// Requests that its protocol refused because it could not serve them, by the reason, for all
    /// of its [`refusal_reasons`](crate::ListenerOptions::refusal_reasons).
    pub refusals: Vec<(&'static str, u64)>,
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
    pub started: u64,
}

/// How long a turn has lasted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
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
    /// Not in the queue yet: they wait for the concurrency limit of their listener, or for memory.
    pub held_back: usize,
    /// Waiting for the concurrency limit of what may block, such as a mount.
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
    /// All metrics of the server. What a listener counts has the labels `listener` (its protocol),
    /// `address` and `thread`, the network thread: sum over what is of no interest. Every metric is
    /// there at any time, also without a sample.
    pub fn metrics(&self) -> Vec<Family> {
        let listeners: Vec<_> = self.listeners.iter().map(|it| (it.labels(), it)).collect();
        let counts = self.listeners.iter().flat_map(|listener| {
            let threads = listener.threads.iter();
            threads.map(|(thread, counts)| {
                (
                    [listener.labels(), vec![thread.to_string()]].concat(),
                    counts,
                )
            })
        });
        let counts: Vec<_> = counts.collect();
        let threads = self.threads.iter();
        let threads: Vec<_> = threads
            .map(|it| (vec![it.number.to_string()], it))
            .collect();
        [
            read_each(
                statistics::METRICS,
                &["listener", "address", "thread"],
                &counts,
            ),
            read_each(LISTENER, &["listener", "address"], &listeners),
            read_each(NETWORK_THREAD, &["thread"], &threads),
            read(SERVER, self),
        ]
        .concat()
    }

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
    /// The values of `listener` and `address`.
    fn labels(&self) -> Vec<String> {
        vec![self.name.into(), self.address.clone()]
    }

    /// What it counted on all network threads.
    pub fn total(&self) -> Statistics {
        let mut sum = Statistics::default();
        for (_, statistics) in &self.threads {
            sum += *statistics;
        }
        sum
    }
}

/// Of each listener.
#[rustfmt::skip]
const LISTENER: &[Metric<ListenerFigures>] = &[
    Metric::counter("flatpath_requests_total",
        "Requests answered, by class; of HTTP, the class of the status.", &["thread", "class"],
        |it, out| {
            for (thread, counts) in &it.threads {
                let thread = thread.to_string();
                for (class, count) in it.request_classes.iter().zip(counts.requests) {
                    out.put(&[&thread, class], count);
                }
            }
        }),
    Metric::counter("flatpath_requests_refused_total",
        "Requests that no handler has seen, because they break a rule of their protocol or a limit \
         of their listener, by reason.", &["reason"],
        |it, out| it.refusals.iter().for_each(|(reason, count)| out.put(&[reason], *count))),
    Metric::gauge("flatpath_jobs",
        "Requests for workers: in the queue, held back for a share or memory, parked for what may \
         block, or running.", &["state"],
        |it, out| {
            out.put(&["queued"], it.jobs.queued);
            out.put(&["held_back"], it.jobs.held_back);
            out.put(&["parked"], it.jobs.parked);
            out.put(&["running"], it.jobs.running);
        }),
    Metric::gauge("flatpath_oldest_queued_seconds",
        "How long the oldest request has waited that no worker has taken; 0 without one.", &[],
        |it, out| out.put(&[], it.jobs.oldest_queued.unwrap_or_default())),
    Metric::gauge("flatpath_longest_running_seconds",
        "How long the longest running handler has run in a worker; 0 without one.", &[],
        |it, out| out.put(&[], it.jobs.longest_running.unwrap_or_default())),
];

/// Of each network thread.
#[rustfmt::skip]
const NETWORK_THREAD: &[Metric<ThreadFigures>] = &[
    Metric::gauge("flatpath_network_thread_info",
        "Always 1; the driver of each network thread is a label.", &["driver"],
        |it, out| out.put(&[it.driver], true)),
    Metric::histogram("flatpath_turn_seconds",
        "Turns of a network thread: how long it was busy between two waits.", &[],
        |it, out| out.put(&[], it.turns.histogram())),
    Metric::gauge("flatpath_turn_age_seconds",
        "How long a network thread has been busy since its last wait; 0 while it waits.", &[],
        |it, out| out.put(&[], it.turn.unwrap_or_default().age)),
    Metric::counter("flatpath_signals_total",
        "Calls of the function of an eventfd that a network thread watches.", &[],
        |it, out| out.put(&[], it.signals)),
];

/// Of all together.
#[rustfmt::skip]
const SERVER: &[Metric<Figures>] = &[
    Metric::gauge("flatpath_workers",
        "Worker threads, idle or busy.", &["state"],
        |it, out| {
            out.put(&["idle"], it.workers.idle);
            out.put(
                &["busy"],
                it.workers.threads.saturating_sub(it.workers.idle),
            );
        }),
    Metric::gauge("flatpath_workers_max",
        "The most worker threads that there may be.", &[],
        |it, out| out.put(&[], it.workers.max)),
    Metric::counter("flatpath_workers_started_total",
        "Workers started after the first ones.", &[],
        |it, out| out.put(&[], it.workers.started)),
    Metric::gauge("flatpath_buffer_bytes",
        "Memory for buffers by their size: in use, or idle.", &["size", "state"],
        |it, out| {
            for class in &it.pool.classes {
                let size = class.buffer_bytes.to_string();
                out.put(&[&size, "in_use"], class.in_use_bytes);
                out.put(&[&size, "idle"], class.idle_bytes);
            }
        }),
    Metric::gauge("flatpath_charged_bytes",
        "Bytes that handlers and services have made and clients have not taken: of the memory for \
         buffers, but without one.", &[],
        |it, out| out.put(&[], it.pool.charged_bytes)),
    Metric::gauge("flatpath_buffer_budget_bytes",
        "The most memory for buffers, charged bytes included.", &[],
        |it, out| out.put(&[], it.pool.budget_bytes)),
    Metric::counter("flatpath_buffers_refused_total",
        "Requests for a buffer that got none, because the budget was used up.", &[],
        |it, out| out.put(&[], it.pool.refused)),
    Metric::counter("flatpath_buffers_degraded_total",
        "Requests for a buffer that got a smaller one.", &[],
        |it, out| out.put(&[], it.pool.degraded)),
    Metric::gauge("flatpath_receive_bytes",
        "Receive memory: free to be received into, or retained by handlers and consumers.",
        &["region", "thread", "state"],
        |it, out| {
            for region in &it.receive_memory {
                let thread = region.thread.to_string();
                let retained = region.pages_retained.min(region.pages);
                let bytes = |pages: u32| u64::from(pages) * u64::from(region.page_bytes);
                let free = bytes(region.pages - retained);
                out.put(&[region.name, &thread, "free"], free);
                out.put(&[region.name, &thread, "retained"], bytes(retained));
            }
        }),
    Metric::gauge("flatpath_descriptors",
        "Descriptors in use: by connections, by files that are sent or written, by caches.",
        &["purpose"],
        |it, out| {
            out.put(&["connections"], it.descriptors.connections);
            out.put(&["files"], it.descriptors.held);
            out.put(&["caches"], it.descriptors.cached);
        }),
    Metric::gauge("flatpath_descriptors_max",
        "The most descriptors for all of these together.", &[],
        |it, out| out.put(&[], it.descriptors.room)),
    Metric::counter("flatpath_descriptors_refused_total",
        "Files not opened: there was no descriptor for them, or their address had its share.",
        &["reason"],
        |it, out| {
            out.put(&["room"], it.descriptors.refused_room);
            out.put(&["address"], it.descriptors.refused_address);
        }),
    Metric::counter("flatpath_descriptors_given_back_total",
        "Descriptors that caches closed for connections and files.", &[],
        |it, out| out.put(&[], it.descriptors.given_back)),
];
