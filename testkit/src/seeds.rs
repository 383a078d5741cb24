//! Seeds: the same random numbers on every machine, and the name of the one that failed.

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

/// `length` bytes that look random and depend on `seed` alone. A shorter length is a beginning of a
/// longer one.
#[must_use]
pub fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    fastrand::Rng::with_seed(seed).fill(&mut bytes);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noise_depends_on_its_seed_alone() {
        assert_eq!(noise(1, 1000), noise(1, 1000));
        assert_eq!(noise(1, 1000)[..10], noise(1, 10)[..]);
        assert_ne!(noise(1, 1000), noise(2, 1000));
        let distinct: std::collections::HashSet<u8> = noise(3, 10_000).into_iter().collect();
        assert_eq!(distinct.len(), 256);
    }
}
