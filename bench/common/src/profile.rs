//! Profile: how much of a bench is run, and how long each figure is measured.
//!
//! | profile | for                        | all benches together |
//! |---------|----------------------------|----------------------|
//! | full    | figures that are published | some minutes         |
//! | quick   | a look at a machine        | a few minutes        |
//! | tiny    | the tests: does it run     | seconds              |

use std::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// Every row, five rounds.
    Full,
    /// The rows that matter most, three rounds, short slices.
    Quick,
    /// One row or two and no meaning: for tests.
    Tiny,
}

impl Profile {
    /// Its name, as it stands in reports.
    pub fn name(self) -> &'static str {
        self.pick("full", "quick", "tiny")
    }

    /// One of three, by profile.
    pub fn pick<T>(self, full: T, quick: T, tiny: T) -> T {
        match self {
            Self::Full => full,
            Self::Quick => quick,
            Self::Tiny => tiny,
        }
    }

    /// How often each candidate of a row has its turn; the figure is the median.
    pub fn rounds(self) -> usize {
        self.pick(5, 3, 1)
    }

    /// How long one turn takes. Threads that share cores need longer to have a turn each.
    pub fn slice(self, threads: usize) -> Duration {
        let crowded = threads > cores();
        let micros = match self {
            Self::Full => 40_000 * if crowded { 2 } else { 1 },
            Self::Quick => 6_000 * if crowded { 3 } else { 1 },
            Self::Tiny => 300,
        };
        Duration::from_micros(micros)
    }
}

/// Cores this process may use.
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}
