//! The event sources of a network thread; see `watch.rs`.

use std::sync::Arc;

use crate::watch_queue::WatchEntry;

/// See the module.
pub(super) struct Source {
    pub(super) watched: Arc<WatchEntry>,
    pub(super) state: State,
    pub(super) operation: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Armed,
    Cancelling,
    /// Until when.
    Refused(u64),
}
