//! What the tests of this crate share: a pool and a small generator of random numbers.

use flatpath::limits::BUFFER_CLASSES;
use flatpath::memory::Pool;
use flatpath_structures::pool::{PoolConfig, Zero};

/// A pool with the engine's classes.
pub(crate) fn pool(budget_bytes: usize) -> Pool {
    let classes = BUFFER_CLASSES.to_vec();
    Pool::new(PoolConfig {
        classes,
        budget_bytes,
        zero: Zero::WrittenOnPut,
    })
}

/// xorshift64*: enough for models, seeded so that a failure can be replayed.
pub(crate) struct Random(u64);

impl Random {
    /// From the variable `FLATPATH_SEED`, else from the clock.
    pub(crate) fn seed() -> u64 {
        let given = std::env::var("FLATPATH_SEED")
            .ok()
            .and_then(|seed| seed.parse().ok());
        given.unwrap_or_else(|| {
            let clock = std::time::SystemTime::UNIX_EPOCH
                .elapsed()
                .expect("after 1970");
            u64::from(clock.subsec_nanos()) ^ clock.as_secs() << 20
        })
    }

    pub(crate) fn new(seed: u64) -> Random {
        Random(seed | 1)
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let mixed = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33;
        usize::try_from(mixed).expect("31 bits") % bound
    }
}
