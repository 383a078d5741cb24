//! Random numbers from a seed: the same seed, the same run, on every machine.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// The variable that replays one seed.
const REPLAY: &str = "FLATPATH_SEED";

/// Runs a test's body once for every seed below `count`, or for that in `FLATPATH_SEED` alone;
/// what each returned.
///
/// # Panics
/// As the body does; the failing seed is printed first. Also if `FLATPATH_SEED` is not a number.
pub fn each_seed<T>(count: u64, mut body: impl FnMut(u64) -> T) -> Vec<T> {
    let seeds = match std::env::var(REPLAY) {
        Ok(text) => {
            let seed = text
                .parse()
                .unwrap_or_else(|_| panic!("{REPLAY}={text}: not a number"));
            seed..seed + 1
        }
        Err(_) => 0..count,
    };
    let run = |seed| match catch_unwind(AssertUnwindSafe(|| body(seed))) {
        Ok(outcome) => outcome,
        Err(panic) => {
            eprintln!("failing seed: {seed} ({REPLAY}={seed} runs it alone)");
            resume_unwind(panic)
        }
    };
    seeds.map(run).collect()
}

/// A generator of random numbers.
#[derive(Clone, Debug)]
pub struct Random(fastrand::Rng);

impl Random {
    /// The same numbers for the same `seed`.
    pub fn new(seed: u64) -> Random {
        Random(fastrand::Rng::with_seed(seed))
    }

    /// A number below `bound`; zero if there is none.
    pub fn below(&mut self, bound: usize) -> usize {
        self.0.usize(..bound.max(1))
    }

    /// A number up to and including `most`.
    pub fn up_to(&mut self, most: u64) -> u64 {
        self.0.u64(..=most)
    }

    /// True `permille` times in a thousand.
    pub fn chance(&mut self, permille: u16) -> bool {
        self.0.u16(..1000) < permille
    }
}
