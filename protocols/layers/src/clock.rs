//! The clock of the layers that measure or count by time: nothing else here reads one.

use std::sync::LazyLock;
use std::time::{Duration, Instant};

/// What all limits measure from, so that what one has counted another can take over.
static BEGUN: LazyLock<Instant> = LazyLock::new(Instant::now);

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

/// The time since the first limit of this process was asked.
pub(crate) fn since_begun() -> Duration {
    BEGUN.elapsed()
}

/// A time in nanoseconds, as far as they fit: 584 years.
pub(crate) fn as_ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Whether a moment of a file, in seconds since 1970, is longer ago than this. One that is to come
/// is not.
#[cfg(feature = "htpasswd")]
pub(crate) fn is_past(seconds: i64, longer: Duration) -> bool {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let now = now.map_or(0, |it| it.as_secs());
    let now = i64::try_from(now).unwrap_or(i64::MAX);
    // Whole seconds: one more.
    let longer = i64::try_from(longer.as_secs()).unwrap_or(i64::MAX);
    now.saturating_sub(seconds) > longer.saturating_add(1)
}
