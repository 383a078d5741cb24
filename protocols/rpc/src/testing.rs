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
        zero: Zero::WhenLent,
    })
}

/// Seeded, so that a failure can be replayed.
pub(crate) struct Random(fastrand::Rng);

impl Random {
    /// From the variable `FLATPATH_SEED`, else any.
    pub(crate) fn seed() -> u64 {
        let given = std::env::var("FLATPATH_SEED")
            .ok()
            .and_then(|seed| seed.parse().ok());
        given.unwrap_or_else(|| fastrand::u64(..))
    }

    pub(crate) fn new(seed: u64) -> Random {
        Random(fastrand::Rng::with_seed(seed))
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.0.usize(..bound)
    }
}
