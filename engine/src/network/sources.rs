//! The event sources of a network thread, and how many of them the kernel has refused; what is done
//! with them is in `watch.rs`.
//!
//! Invariant: `refused` is at least the number of sources that are [`State::Refused`]: one that is
//! no longer wanted is counted until the next look.

use std::sync::Arc;

use flatpath_structures::slots::{Key, Slots};

use crate::watch::queue::WatchEntry;

use super::user_data::SOURCES_MAX;

/// One event source.
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

/// See the module.
pub(super) struct Sources {
    table: Slots<Source>,
    refused: usize,
}

impl Sources {
    pub(super) fn new() -> Sources {
        Sources {
            table: Slots::new(SOURCES_MAX),
            refused: 0,
        }
    }

    pub(super) fn insert(&mut self, source: Source) -> Option<Key> {
        self.table.insert(source).ok()
    }

    pub(super) fn remove(&mut self, key: Key) -> Option<Source> {
        self.table.remove(key)
    }

    pub(super) fn get_mut(&mut self, key: Key) -> Option<&mut Source> {
        self.table.get_mut(key)
    }

    pub(super) fn state(&self, key: Key) -> Option<State> {
        self.table.get(key).map(|source| source.state)
    }

    pub(super) fn key_at(&self, index: u32) -> Option<Key> {
        self.table.key_at(index)
    }

    pub(super) fn keys(&self) -> Vec<Key> {
        self.table.iter().map(|(key, _)| key).collect()
    }

    /// The kernel has refused to watch a source, which is tried again at a time.
    pub(super) fn refuse(&mut self, key: Key, until_ns: u64) {
        if let Some(source) = self.table.get_mut(key) {
            source.state = State::Refused(until_ns);
            self.refused += 1;
        }
    }

    /// Whether sources wait to be tried again.
    #[inline]
    pub(super) fn any_refused(&self) -> bool {
        self.refused > 0
    }

    /// When the first of them is tried again.
    pub(super) fn due_ns(&self) -> Option<u64> {
        let untils = self
            .table
            .iter()
            .filter_map(|(_, source)| match source.state {
                State::Refused(until_ns) => Some(until_ns),
                State::Armed | State::Cancelling => None,
            });
        untils.min()
    }

    /// Those that are tried again now; they are refused no more.
    pub(super) fn take_due(&mut self, now_ns: u64) -> Vec<Key> {
        let (mut due, mut refused) = (Vec::new(), 0);
        for (key, source) in self.table.iter() {
            match source.state {
                State::Refused(until_ns) if until_ns <= now_ns => due.push(key),
                State::Refused(_) => refused += 1,
                State::Armed | State::Cancelling => {}
            }
        }
        self.refused = refused;
        due
    }
}
