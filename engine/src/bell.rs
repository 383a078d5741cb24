//! How threads call the thread that starts workers (`foreman.rs`), and how it is ended.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::Thread;

/// See the module. The edges are those of `foreman.rs`.
#[derive(Debug, Default)]
pub(crate) struct Bell {
    pub(crate) rung: AtomicBool,
    pub(crate) stop: AtomicBool,
    pub(crate) thread: OnceLock<Thread>,
}

impl Bell {
    /// Work was queued and nobody was idle. One load when it has been rung already.
    pub(crate) fn ring(&self) {
        // ORDER: E1: the caller's fence orders the push before this load.
        if !self.rung.load(Ordering::Relaxed) && !self.rung.swap(true, Ordering::Relaxed) {
            self.unpark();
        }
    }

    pub(crate) fn unpark(&self) {
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }
}
