//! Wakes the thread that starts workers (`scaler.rs`).
//!
//! Ordering: E1 wake-up, as in the header of `scaler.rs`.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::Thread;

#[derive(Debug, Default)]
pub(crate) struct ScalerWaker {
    pub(crate) is_woken: AtomicBool,
    pub(crate) stop: AtomicBool,
    pub(crate) thread: OnceLock<Thread>,
}

impl ScalerWaker {
    /// Work was queued and no worker was idle. One load when it has been woken already.
    pub(crate) fn wake(&self) {
        // ORDER: E1: the caller's fence orders the push before this load.
        if !self.is_woken.load(Ordering::Relaxed) && !self.is_woken.swap(true, Ordering::Relaxed) {
            self.unpark();
        }
    }

    pub(crate) fn unpark(&self) {
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }
}
