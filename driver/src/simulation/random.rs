//! Random numbers from a seed: the same seed, the same run, on every machine. (SplitMix64.)

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
pub struct Random(u64);

impl Random {
    /// The same numbers for the same `seed`.
    pub fn new(seed: u64) -> Random {
        Random(seed ^ 0x5bd1_e995_9d1b_54a3)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`; zero if there is none.
    pub fn below(&mut self, bound: usize) -> usize {
        if bound == 0 {
            0
        } else {
            (self.next() % bound as u64) as usize
        }
    }

    /// A number up to and including `most`.
    pub fn up_to(&mut self, most: u64) -> u64 {
        self.next() % most.saturating_add(1).max(1)
    }

    /// True `permille` times in a thousand.
    pub fn chance(&mut self, permille: u16) -> bool {
        permille > 0 && self.below(1000) < usize::from(permille)
    }
}
