//! Common parts of this crate's tests: one body run three ways, a deadline, a seeded generator.

use crate::sync::{Arc, JoinHandle, spawn};

/// How long a test may wait for its threads before it fails by name.
#[cfg(not(any(loom, shuttle)))]
const DEADLINE: std::time::Duration =
    std::time::Duration::from_secs(if cfg!(miri) { 30 * 60 } else { 60 });

/// How many operations of one kind a test does: `count`, and under Miri, which takes a thousand
/// times as long, as many as it has time for. Some tens still go through every hand-over of memory;
/// the high counts are there for rare schedules of the machine.
#[cfg(not(any(loom, shuttle)))]
pub(crate) const fn repeats(count: u32) -> u32 {
    at_most_under_miri(count, 40)
}

/// How often a test does all of it again, threads included: `count`, and few times under Miri.
#[cfg(not(any(loom, shuttle)))]
pub(crate) const fn rounds(count: u32) -> u32 {
    at_most_under_miri(count, 3)
}

#[cfg(not(any(loom, shuttle)))]
const fn at_most_under_miri(count: u32, most: u32) -> u32 {
    if cfg!(miri) && count > most {
        most
    } else {
        count
    }
}

/// Runs a `loom_` body: every interleaving under loom, random schedules under shuttle, and
/// otherwise a number of times on real threads, each within the deadline.
///
/// `LOOM_MAX_PREEMPTIONS` raises the bound (default 2, enough for every known bug of these
/// structures); `SHUTTLE_ITERATIONS` the number of schedules.
#[cfg(loom)]
pub(crate) fn model(body: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(2));
    builder.max_branches = 10_000;
    builder.check(body);
}

#[cfg(all(shuttle, not(loom)))]
pub(crate) fn model(body: impl Fn() + Send + Sync + 'static) {
    let iterations = std::env::var("SHUTTLE_ITERATIONS")
        .ok()
        .and_then(|text| text.parse().ok());
    let iterations = iterations.unwrap_or(2_000);
    let body = Arc::new(body);
    let again = Arc::clone(&body);
    shuttle::check_random(move || body(), iterations);
    shuttle::check_pct(move || again(), iterations, 3);
}

#[cfg(not(any(loom, shuttle)))]
pub(crate) fn model(body: impl Fn() + Send + Sync + 'static) {
    within_deadline(move || {
        for _ in 0..rounds(200) {
            body();
        }
    });
}

/// Two roles on one state, as a `loom_` body: each role once on the spawned thread, once on this
/// one.
///
/// Both ways round, because loom takes the first schedule as it comes and branches where an access
/// conflicts with the *latest* access to the same word. A thread that loads a word and then swaps
/// it hides, with its own load, the loads of others before it; begun the other way round they are
/// seen.
pub(crate) fn race<S, L, R>(
    setup: impl Fn() -> Arc<S> + Copy + Send + Sync + 'static,
    left: impl Fn(&S) -> L + Copy + Send + Sync + 'static,
    right: impl Fn(&S) -> R + Copy + Send + Sync + 'static,
    finish: impl Fn(&S, L, R) + Copy + Send + Sync + 'static,
) where
    S: Send + Sync + 'static,
    L: Send + 'static,
    R: Send + 'static,
{
    model(move || {
        let state = setup();
        let other = Arc::clone(&state);
        let thread = spawn(move || left(&other));
        let of_right = right(&state);
        finish(&state, join(thread), of_right);
    });
    model(move || {
        let state = setup();
        let other = Arc::clone(&state);
        let thread = spawn(move || right(&other));
        let of_left = left(&state);
        finish(&state, of_left, join(thread));
    });
}

/// Runs `body` on a thread of its own and fails, instead of hanging, if it does not end in time.
#[cfg(not(any(loom, shuttle)))]
pub(crate) fn within_deadline(body: impl FnOnce() + Send + 'static) {
    let (done, wait) = std::sync::mpsc::channel();
    let thread = spawn(move || {
        body();
        // The receiver is gone only if the deadline passed, which has been reported then.
        let _ = done.send(());
    });
    match wait.recv_timeout(DEADLINE) {
        Err(std::sync::mpsc::RecvTimeoutError::Timeout) => {
            panic!("not done after {DEADLINE:?}: a wake-up was lost or a loop does not end")
        }
        // Disconnected: the body panicked; its own message is the failure.
        _ => join(thread),
    }
}

/// Joins a thread of the crate's shim and passes its panic on.
#[track_caller]
pub(crate) fn join<T>(thread: JoinHandle<T>) -> T {
    match thread.join() {
        Ok(value) => value,
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

/// Runs a `model_` body with a seed that the failure prints. `FLATPATH_SEED` replays one.
#[cfg(not(any(loom, shuttle)))]
pub(crate) fn with_seeds(seeds: u32, body: impl Fn(&mut Random)) {
    let replay = std::env::var("FLATPATH_SEED")
        .ok()
        .and_then(|text| text.parse::<u64>().ok());
    let seeds = u64::from(rounds(seeds));
    for seed in replay.map_or(1..=seeds, |seed| seed..=seed) {
        let run = std::panic::AssertUnwindSafe(|| body(&mut Random::new(seed)));
        if let Err(panic) = std::panic::catch_unwind(run) {
            eprintln!("failed with seed {seed}; replay with FLATPATH_SEED={seed}");
            std::panic::resume_unwind(panic);
        }
    }
}

/// A generator of random numbers, the same on every machine.
#[cfg(not(any(loom, shuttle)))]
#[derive(Debug)]
pub(crate) struct Random(fastrand::Rng);

#[cfg(not(any(loom, shuttle)))]
impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(fastrand::Rng::with_seed(seed))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0.u64(..)
    }

    /// A number below `bound`, which is not 0.
    pub(crate) fn below(&mut self, bound: u32) -> u32 {
        self.0.u32(..bound)
    }
}
