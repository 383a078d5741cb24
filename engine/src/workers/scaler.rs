//! The scaler: starts workers when all are busy and work waits, and sees them out.
//!
//! A network thread that finds no idle worker to wake, or as many active as may be, wakes the
//! scaler, if there is room for more. The scaler then samples once per [`GROWTH_PERIOD`] for as
//! long as work waits and no worker may take it, and once per [`WINDOW`] for as long as many are
//! active. How many may be is the policy's (`growth.rs`), by the jobs that were taken and by what
//! busy workers are at (`activity.rs`): workers that sleep get company at once, workers that have
//! the processors, or wait for each other's locks, do not. Where there are idle workers beyond the
//! limit one is woken, else one is started. Shrinking is the worker pool's own: a worker that idles
//! too long leaves. While the worker pool is full the scaler looks only now and then: a sample is a
//! timer and two switches of threads, tens of microseconds on a virtual machine. (In the kernel's
//! originals the thread that takes the last idle slot asks for a worker; with handlers of
//! microseconds that starts threads which find no work.)
//!
//! Where the kernel refuses a thread (a limit of processes, no memory), the wait before the next
//! attempt doubles up to [`GROWTH_RETRY_MAX`], and the log has one line when that begins and one
//! when it is over. The workers that run serve meanwhile.
//!
//! Ordering
//! - SE1 wake-up: push, fence (in the worker pool's `wake_one`), read the flag (`wake`) -> take the
//!   flag down, fence, look at the queue (`calm_down`). One of the two sees the other's store, so
//!   work never waits for workers that do not return.
//! - SE2 room: push, fence (in the worker pool's `wake_one`), look for room (`Shared::wake_scaler`)
//!   -> give up one's place, fence (in the drop of the worker), look at the queue (`work`). One of
//!   the two sees the other's store, and wakes it.

mod activity;
mod growth;

use std::io;
use std::num::NonZero;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use flatpath_structures::lock::Lock;

use crate::error::LeftBehind;
use crate::limits::{GROWTH_PERIOD, GROWTH_RETRY_MAX};
use crate::observe::episode::Episode;
use crate::server::threads;
use crate::workers::{Shared, work};
use activity::activity_of;
use growth::{Activity, Bounds, Growth, Sample, Step, WINDOW};

/// Samples without work waiting before the next is a window later.
const CALM: u32 = 4;

/// How long workers may take to leave once nothing is in flight any more, if the limit of the
/// [lifecycle](crate::lifecycle) does not come first. A handler that never returns is left behind;
/// the end of the process is its end.
const LEAVE_MAX: Duration = Duration::from_secs(1);

/// The workers, and the thread that has them where their number may change.
pub(crate) enum Scaler {
    Fixed(Vec<JoinHandle<()>>),
    Thread(JoinHandle<()>, Arc<Workers>),
}

/// Where the workers are while the scaler's thread does not run: before it and after it.
type Workers = Lock<Vec<JoinHandle<()>>>;

impl Scaler {
    /// Starts the first workers, and the scaler if there may be more.
    pub(crate) fn start(shared: Arc<Shared>) -> io::Result<Scaler> {
        let growth = Growth::new(bounds(&shared));
        shared.worker_pool.set_active_max(growth.active_max());
        let mut workers = Vec::new();
        let started = start_all(&shared, &mut workers);
        if started.is_ok() && shared.workers_min == shared.workers_max {
            return Ok(Scaler::Fixed(workers));
        }
        let workers = Arc::new(Workers::new(workers));
        let thread = started.and_then(|()| {
            let (shared, workers) = (Arc::clone(&shared), Arc::clone(&workers));
            threads::start(format!("{}-scaler", shared.name), move || {
                let own = std::mem::take(&mut *workers.lock());
                let own = oversee(&shared, growth, own);
                *workers.lock() = own;
            })
        });
        match thread {
            Ok(thread) => {
                // No network thread runs yet, so nothing wakes it before the handle is there, and
                // whatever starts a network thread orders this before its first wake-up.
                let _ = shared.scaler.thread.set(thread.thread().clone());
                Ok(Scaler::Thread(thread, workers))
            }
            Err(cause) => {
                shared.worker_pool.stop();
                for worker in std::mem::take(&mut *workers.lock()) {
                    // There was no job, so it leaves at once.
                    let _ = worker.join();
                }
                Err(cause)
            }
        }
    }

    /// Ends all workers and waits for them, up to a bound: the result is those that have not ended.
    pub(crate) fn stop(self, shared: &Shared) -> Vec<LeftBehind> {
        let began = Instant::now();
        let patience = began + LEAVE_MAX;
        let workers = match self {
            Scaler::Fixed(workers) => {
                shared.worker_pool.stop();
                workers
            }
            Scaler::Thread(thread, workers) => {
                // ORDER: Release pairs with the Acquire in `oversee`; the unpark is sticky.
                shared.scaler.stop.store(true, Ordering::Release);
                shared.scaler.unpark();
                let has_ended = shared.lifecycle.await_end(&thread, patience);
                shared.worker_pool.stop();
                if !has_ended {
                    // A thread that it starts is what it waits for; the workers are its own.
                    return vec![unknown("the scaler", began.elapsed())];
                }
                let _ = thread.join();
                std::mem::take(&mut *workers.lock())
            }
        };
        let mut stuck = 0;
        for worker in workers {
            if shared.lifecycle.await_end(&worker, patience) {
                let _ = worker.join();
            } else {
                stuck += 1;
            }
        }
        if stuck == 0 {
            return Vec::new();
        }
        let mut left = shared.left_behind();
        left.extend(shared.bin.left_behind());
        left.resize(stuck, unknown("a worker", began.elapsed()));
        left
    }
}

/// A thread of which is known only how long it was waited for.
fn unknown(thread: &str, waited: Duration) -> LeftBehind {
    LeftBehind {
        thread: thread.into(),
        listener: None,
        busy: waited,
    }
}

/// Starts the fewest workers that there may be; those that were started are in `workers` also when
/// one cannot be.
fn start_all(shared: &Arc<Shared>, workers: &mut Vec<JoinHandle<()>>) -> io::Result<()> {
    for _ in 0..shared.workers_min {
        workers.push(start_worker(shared)?);
    }
    Ok(())
}

fn start_worker(shared: &Arc<Shared>) -> io::Result<JoinHandle<()>> {
    let shared = Arc::clone(shared);
    threads::start(format!("{}-worker", shared.name), move || work(&shared))
}

fn bounds(shared: &Shared) -> Bounds {
    let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
    Bounds {
        min: shared.workers_min,
        max: shared.workers_max,
        processors: u32::try_from(processors).unwrap_or(u32::MAX),
    }
}

/// Work is queued, no worker may take it, and there is room for another one.
fn is_wanted(shared: &Shared) -> bool {
    shared.has_work() && !shared.worker_pool.has_idle() && shared.worker_pool.may_grow()
}

/// Sleeps until it is woken, then samples until it is calm again. Returns at `stop`.
fn oversee(
    shared: &Arc<Shared>,
    mut growth: Growth,
    mut workers: Vec<JoinHandle<()>>,
) -> Vec<JoinHandle<()>> {
    let mut calm = 0;
    let refusals = Refusals(Episode::until_ended());
    loop {
        // ORDER: Acquire pairs with the Release in `stop`.
        if shared.scaler.stop.load(Ordering::Acquire) {
            return workers;
        }
        let is_woken = shared.scaler.is_woken.load(Ordering::Relaxed);
        if is_woken {
            std::thread::park_timeout(refusals.wait());
        } else if growth.is_at_rest() {
            std::thread::park();
            growth.wakes();
            continue;
        } else {
            std::thread::park_timeout(WINDOW);
        }
        let sample = sample(shared);
        let step = growth.sample(&sample, || look(shared, sample.active));
        take(shared, step, &mut growth, &mut workers, &refusals);
        calm = if sample.is_wanted { 0 } else { calm + 1 };
        if is_woken && calm >= CALM {
            calm = 0;
            calm_down(shared);
        }
    }
}

/// The next sample is a window later, unless work waits.
fn calm_down(shared: &Shared) {
    // ORDER: SE1, the scaler's side: flag down, fence, look again.
    shared.scaler.is_woken.store(false, Ordering::Relaxed);
    fence(Ordering::SeqCst);
    if is_wanted(shared) {
        // ORDER: Relaxed: only this thread reads what follows from it.
        shared.scaler.is_woken.store(true, Ordering::Relaxed);
    }
}

fn sample(shared: &Shared) -> Sample {
    let is_wanted = is_wanted(shared);
    let (put, taken) = shared.bin.counts();
    let (taken, dispatched) = (shared.popped() + taken, shared.dispatched() + put);
    let held_back = u64::from(shared.concurrency.waiting());
    Sample {
        is_wanted,
        taken,
        queued: dispatched.saturating_sub(taken + held_back),
        active: shared.worker_pool.active(),
        now: shared.started.elapsed(),
    }
}

/// What the active workers are at. Those between two jobs are runnable.
fn look(shared: &Shared, active: u32) -> Option<Activity> {
    let busy = shared.busy_threads();
    let mut activity = activity_of(&busy)?;
    let between = active.saturating_sub(u32::try_from(busy.len()).unwrap_or(u32::MAX));
    activity.runnable += between;
    Some(activity)
}

/// Sets how many workers may be active, and adds some: idle ones first, then new ones.
fn take(
    shared: &Arc<Shared>,
    step: Step,
    growth: &mut Growth,
    workers: &mut Vec<JoinHandle<()>>,
    refusals: &Refusals,
) {
    let worker_pool = &shared.worker_pool;
    let idle = worker_pool.workers().saturating_sub(worker_pool.active());
    if step.active_max != worker_pool.active_max() {
        // Wakes one, which wakes the next.
        worker_pool.set_active_max(step.active_max);
    }
    if step.more > idle {
        workers.retain(|worker| !worker.is_finished());
        let missing = u64::from(step.more - idle);
        let started = grow(shared, missing, workers, refusals);
        growth.missed(missing - started);
    }
}

/// Starts `wanted` workers, or as many as the worker pool has room for and the kernel allows.
fn grow(
    shared: &Arc<Shared>,
    wanted: u64,
    workers: &mut Vec<JoinHandle<()>>,
    refusals: &Refusals,
) -> u64 {
    let most = usize::try_from(shared.workers_max).unwrap_or(usize::MAX);
    for started in 0..wanted {
        // Those that were started a moment ago are not in the worker pool yet.
        if started > 0 && workers.len() >= most {
            return started;
        }
        match start_worker(shared) {
            Ok(worker) => {
                shared.workers_grown.add(1);
                workers.push(worker);
                if let Some(over) = refusals.0.end() {
                    log::info!(
                        "workers can be started again, after {} attempts",
                        over.count
                    );
                }
            }
            Err(cause) => {
                let there = workers.len();
                if refusals.0.begins() {
                    log::warn!("no worker beside {there} can be started: {cause}; trying on");
                }
                return started;
            }
        }
    }
    wanted
}

/// Attempts to start a worker that the kernel refused in a row.
#[derive(Debug)]
struct Refusals(Episode);

impl Refusals {
    /// How long to wait before the next sample.
    fn wait(&self) -> Duration {
        let refused = self.0.count().min(30);
        GROWTH_PERIOD
            .saturating_mul(1 << refused)
            .min(GROWTH_RETRY_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::Limits;
    use crate::memory::pools::Pools;
    use crate::workers::leave;
    use crate::workers::{ListenerName, Rank};
    use flatpath_structures::worker_pool::WorkerPoolLimits;

    fn shared(workers_max: u32) -> Arc<Shared> {
        let worker_pool = WorkerPoolLimits {
            workers_min: 0,
            workers_max,
            idle_ns_max: u64::MAX,
        };
        let limits = Limits {
            in_flight_max: 4,
            ..Limits::default()
        };
        Arc::new(Shared::new(
            1,
            ListenerName::some(1),
            &limits,
            worker_pool,
            Pools::new(8_192, 1, 4),
        ))
    }

    fn is_woken(shared: &Shared) -> bool {
        shared.scaler.is_woken.load(Ordering::Relaxed)
    }

    #[test]
    fn refused_threads_are_asked_for_less_and_less_often_and_told_once() {
        let refusals = Refusals(Episode::until_ended());
        let (period, most) = (GROWTH_PERIOD, GROWTH_RETRY_MAX);
        for _ in 0..2 {
            assert_eq!(refusals.wait(), period);
            assert_eq!(refusals.0.end(), None);
            let mut before = period;
            for count in 0..100 {
                assert_eq!(refusals.0.begins(), count == 0, "told once");
                assert_eq!(refusals.wait(), (before * 2).min(most));
                before = refusals.wait();
            }
            assert_eq!(refusals.0.end().map(|over| over.count), Some(100));
        }
    }

    #[test]
    fn a_full_worker_pool_does_not_call_the_scaler() {
        let shared = shared(1);
        let worker = shared.worker_pool.register().expect("room for one");
        shared.queue.push(0, Rank::Next);
        shared.wake_scaler();
        assert!(!is_woken(&shared) && !is_wanted(&shared));
        drop(worker);
        shared.wake_scaler();
        assert!(is_woken(&shared) && is_wanted(&shared));
    }

    #[test]
    fn a_worker_that_leaves_while_work_waits_calls_the_scaler() {
        let shared = shared(1);
        let worker = shared.worker_pool.register().expect("room for one");
        // No worker is woken for it: as if this one had been on its way out when it came.
        shared.queue.push(0, Rank::Next);
        assert!(!is_woken(&shared));
        leave(&shared, worker);
        assert!(is_woken(&shared));
    }
}
