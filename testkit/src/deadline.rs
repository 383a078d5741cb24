//! Waiting with an end: every wait of a test names what it waits for and fails by itself.
//!
//! On a machine that is slower than any (an emulated one: `cargo xtask kernels`), all of them
//! stretch by the factor that `FLATPATH_DEADLINES_FACTOR` has; [`stretched`] is the one place that
//! reads it. The driver's tests, which build nothing else of the kit, include this file.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How much slower than a busy machine this one is, a whole number; without it, not slower.
const FACTOR: &str = "FLATPATH_DEADLINES_FACTOR";

/// How long something that takes `time` at most on a busy machine may take on this one.
///
/// # Panics
/// The factor is no whole number from 1 on.
pub fn stretched(time: Duration) -> Duration {
    static READ: OnceLock<u32> = OnceLock::new();
    time * *READ.get_or_init(|| factor(std::env::var(FACTOR).ok().as_deref()))
}

/// Whether this machine is so slow that even what is no wait of a test takes longer than usual.
pub fn is_slow() -> bool {
    stretched(Duration::from_secs(1)) > Duration::from_secs(1)
}

fn factor(given: Option<&str>) -> u32 {
    let factor = given.map_or(Ok(1), str::parse);
    let factor = factor.ok().filter(|factor| *factor > 0);
    factor.unwrap_or_else(|| panic!("{FACTOR} is no whole number from 1 on: {given:?}"))
}

/// How long anything may take before a test gives up. Generous: machines that run tests are busy.
pub fn patience() -> Duration {
    stretched(Duration::from_secs(60))
}

/// How long something with thousands of parts may take.
pub fn long_patience() -> Duration {
    stretched(Duration::from_secs(240))
}

/// Between two looks at something that cannot wake us.
pub(crate) const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// A point in time after which a wait fails.
#[derive(Clone, Copy, Debug)]
pub struct Deadline(Instant);

impl Default for Deadline {
    fn default() -> Self {
        Self::after(patience())
    }
}

impl Deadline {
    /// `time` from now: [`patience`], or another one that is [`stretched`].
    pub fn after(time: Duration) -> Self {
        Self(Instant::now() + time)
    }

    /// Of something with thousands of parts.
    pub fn long() -> Self {
        Self::after(long_patience())
    }

    /// What is left, at least a millisecond: a socket's time-out of zero means for ever.
    pub fn left(self) -> Duration {
        self.0
            .saturating_duration_since(Instant::now())
            .max(Duration::from_millis(1))
    }

    /// Whether it is over.
    pub fn is_over(self) -> bool {
        Instant::now() >= self.0
    }

    /// Fails the test when it is over.
    pub fn check(self, what: &str) {
        assert!(!self.is_over(), "waited too long for {what}");
    }
}

/// Tells the threads of a test that it is over, also when it fails: one that ran on would keep its
/// scope, and the failure with it, waiting for ever.
#[derive(Debug, Default)]
pub struct Over(AtomicBool);

impl Over {
    /// Whether the threads are to end.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// The threads are to end.
    pub fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Sets it when it is dropped: for the function of the scope to hold.
    #[must_use = "it is over when this is dropped"]
    pub fn at_end(&self) -> impl Drop + '_ {
        struct AtEnd<'a>(&'a Over);
        impl Drop for AtEnd<'_> {
            fn drop(&mut self) {
                self.0.set();
            }
        }
        AtEnd(self)
    }
}

/// Looks again and again until `look` gives something, for at most [`patience`].
pub fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Deadline::default();
    loop {
        if let Some(found) = look() {
            return found;
        }
        deadline.check(what);
        std::thread::sleep(LOOK_AGAIN);
    }
}

/// Looks again and again until `holds`, for at most [`patience`].
pub fn until_true(what: &str, mut holds: impl FnMut() -> bool) {
    until(what, || holds().then_some(()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_factor_is_one_unless_it_is_given_and_never_zero() {
        assert_eq!((factor(None), factor(Some("10"))), (1, 10));
        for wrong in ["0", "ten", "", "-1"] {
            assert!(std::panic::catch_unwind(|| factor(Some(wrong))).is_err());
        }
    }

    #[test]
    fn a_deadline_in_the_past_is_over_and_still_usable_as_a_time_out() {
        let deadline = Deadline::after(Duration::ZERO);
        assert!(deadline.is_over());
        assert!(deadline.left() > Duration::ZERO);
    }

    #[test]
    fn a_thread_of_a_test_that_fails_ends() {
        let over = Over::default();
        let failed = std::panic::catch_unwind(|| {
            std::thread::scope(|scope| {
                let _ends = over.at_end();
                scope.spawn(|| until_true("the end", || over.is_set()));
                std::panic::resume_unwind(Box::new("failed"));
            });
        });
        assert!(failed.is_err() && over.is_set());
    }

    #[test]
    fn until_returns_what_it_found() {
        let mut looks = 0;
        let found = until("the third look", || {
            looks += 1;
            (looks == 3).then_some(looks)
        });
        assert_eq!(found, 3);
    }
}
