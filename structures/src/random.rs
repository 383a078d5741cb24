//! Seeded random numbers for the model tests. Only compiled with the tests.
//!
//! SplitMix64: one word of state, good enough to choose operations, the same on every machine.
//! Every model test prints its seed; `FLATPATH_SEED=n cargo test` replays it.

use std::time::{SystemTime, UNIX_EPOCH};

pub(crate) struct Random {
    state: u64,
}

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random { state: seed }
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.state;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    /// A number from 0 to `bound` - 1. The bias of the remainder does not matter to a test.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    pub(crate) fn below_u32(&mut self, bound: u32) -> u32 {
        u32::try_from(self.below(u64::from(bound))).expect("below a u32")
    }
}

/// The seed of this run: fixed by `FLATPATH_SEED`, else from the clock; printed either way, and
/// shown by the test harness when the test fails.
pub(crate) fn seed() -> u64 {
    let clock = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(1, |since| since.as_nanos());
    let seed = match std::env::var("FLATPATH_SEED") {
        Ok(text) => text.parse().expect("FLATPATH_SEED is a decimal number"),
        Err(_) => (clock & u128::from(u64::MAX)) as u64,
    };
    println!("seed: FLATPATH_SEED={seed}");
    seed
}
