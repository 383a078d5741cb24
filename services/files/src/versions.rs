//! What the caches of network threads compare before they answer.
//!
//! Cost: a relaxed load of each for a request.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What the caches of network threads compare.
#[derive(Debug)]
pub(crate) struct Versions {
    /// Of the home, and of the mounts below its root. From 1.
    home: AtomicU64,
    /// Files that were written through the service, successfully or not.
    writes: AtomicU64,
}

impl Versions {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            home: AtomicU64::new(1),
            writes: AtomicU64::new(0),
        })
    }

    /// The version of the home; a thread without one has 0.
    #[inline]
    pub(crate) fn home(&self) -> u64 {
        // ORDER: Relaxed: the lock of the home orders what it stands for.
        self.home.load(Ordering::Relaxed)
    }

    pub(crate) fn home_has_changed(&self) {
        // ORDER: Relaxed: see `home`.
        self.home.fetch_add(1, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn writes(&self) -> u64 {
        // ORDER: Relaxed: it is a hint for what no thread looks at itself.
        self.writes.load(Ordering::Relaxed)
    }

    pub(crate) fn has_written(&self) {
        // ORDER: Relaxed: see `writes`.
        self.writes.fetch_add(1, Ordering::Relaxed);
    }
}
