//! The clock of the layers that measure or count by time: nothing else here reads one.

use std::time::{Duration, Instant};

/// A moment, to measure from.
#[cfg(feature = "tracing")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// A function that tells how much time has passed since it was made.
pub(crate) fn since_now() -> impl Fn() -> Duration + Send + Sync {
    let begun = Instant::now();
    move || begun.elapsed()
}
