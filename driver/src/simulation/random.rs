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

/// A generator of random numbers: SplitMix64 (Steele, Lea and Flood, OOPSLA 2014), which every
/// seed suits.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The same numbers for the same `seed`.
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// A number below `bound`; zero if there is none.
    pub fn below(&mut self, bound: usize) -> usize {
        self.up_to(bound.saturating_sub(1) as u64) as usize
    }

    /// A number up to and including `most`.
    pub fn up_to(&mut self, most: u64) -> u64 {
        // The high half of the product; no number is likelier by more than `most` in 2^64.
        ((u128::from(self.next()) * (u128::from(most) + 1)) >> 64) as u64
    }

    /// True `permille` times in a thousand.
    pub fn chance(&mut self, permille: u16) -> bool {
        self.up_to(999) < u64::from(permille)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_are_those_of_splitmix64() {
        let mut random = Random::new(1_234_567);
        let known = [6_457_827_717_110_365_317, 3_203_168_211_198_807_973];
        assert_eq!(known.map(|_| random.next()), known);
        let mut random = Random::new(0);
        assert!((0..1000).all(|_| random.up_to(2) <= 2 && random.below(0) == 0));
        random.up_to(u64::MAX);
    }
}
