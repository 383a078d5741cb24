//! A generator with a seed: the same numbers on every machine.

/// See the module.
#[derive(Clone, Debug)]
pub struct Random(fastrand::Rng);

impl Random {
    /// Starts at a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(fastrand::Rng::with_seed(seed))
    }

    /// Starts at a hash of `data` (FNV-1a), so that an input alone decides what follows from it.
    #[must_use]
    pub fn of(data: &[u8]) -> Self {
        let hash = data.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
        });
        Self::new(hash)
    }

    /// A number below `bound`, which is not zero.
    pub fn below(&mut self, bound: usize) -> usize {
        self.0.usize(..bound)
    }

    /// A byte.
    pub fn byte(&mut self) -> u8 {
        self.0.u8(..)
    }
}

/// Cuts `data` into pieces as a network might: mostly a few bytes, sometimes many. The same data is
/// always cut in the same places.
pub fn pieces(data: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut random = Random::of(data);
    let mut rest = data;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let longest = [1, 5, 40, 1000][random.below(4)];
        let (piece, left) = rest.split_at((1 + random.below(longest)).min(rest.len()));
        rest = left;
        Some(piece)
    })
}
