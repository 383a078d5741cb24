//! Random numbers from a seed: the same seed, the same run, on every machine.

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
