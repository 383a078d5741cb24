//! Pairing on well-known concurrent maps: an entry per key holds both sides.
//!
//! What each map offers decides how both sides are looked at together: under the lock of the entry
//! (dashmap, scc), or under a mutex in the entry, with a mark for one that is on its way out
//! (papaya). Each keeps a reference to both objects, as ours does.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::pairing::{Both, Busy, Candidate, Keeps, LOCKED_MAP, Party, Side, candidate};
use flatpath_bench_common::report::Role;

pub(crate) fn candidates() -> Vec<Candidate> {
    vec![
        candidate::<Locked>(LOCKED_MAP, Role::Detail),
        candidate::<Dash>("dashmap", Role::Competitor),
        candidate::<Scc>("scc", Role::Competitor),
        candidate::<Papaya>("papaya", Role::Competitor),
    ]
}

/// A `HashMap` of the standard library under a parking_lot mutex.
pub(crate) struct Locked(Mutex<HashMap<u64, Both>>);

impl Keeps for Locked {
    fn new(_pairs: u32) -> Self {
        Self(Mutex::default())
    }

    fn add(&self, side: Side, key: u64, object: &Arc<Party>) -> Result<(), Busy> {
        self.0.lock().entry(key).or_default().add(side, object)
    }

    fn remove(&self, side: Side, key: u64) {
        let mut map = self.0.lock();
        if let Some(both) = map.get_mut(&key) {
            both.remove(side);
            if both.is_empty() {
                map.remove(&key);
            }
        }
    }

    fn is_connected(&self, key: u64) -> bool {
        self.0.lock().get(&key).is_some_and(Both::is_full)
    }
}

pub(crate) struct Dash(dashmap::DashMap<u64, Both>);

impl Keeps for Dash {
    fn new(_pairs: u32) -> Self {
        Self(dashmap::DashMap::new())
    }

    fn add(&self, side: Side, key: u64, object: &Arc<Party>) -> Result<(), Busy> {
        self.0.entry(key).or_default().add(side, object)
    }

    fn remove(&self, side: Side, key: u64) {
        if let dashmap::Entry::Occupied(mut entry) = self.0.entry(key) {
            entry.get_mut().remove(side);
            if entry.get().is_empty() {
                entry.remove();
            }
        }
    }

    fn is_connected(&self, key: u64) -> bool {
        self.0.get(&key).is_some_and(|both| both.is_full())
    }
}

pub(crate) struct Scc(scc::HashMap<u64, Both>);

impl Keeps for Scc {
    fn new(_pairs: u32) -> Self {
        Self(scc::HashMap::new())
    }

    fn add(&self, side: Side, key: u64, object: &Arc<Party>) -> Result<(), Busy> {
        self.0.entry_sync(key).or_default().add(side, object)
    }

    fn remove(&self, side: Side, key: u64) {
        if let scc::hash_map::Entry::Occupied(mut entry) = self.0.entry_sync(key) {
            entry.get_mut().remove(side);
            if entry.get().is_empty() {
                let _ = entry.remove();
            }
        }
    }

    fn is_connected(&self, key: u64) -> bool {
        let is_full = self.0.read_sync(&key, |_, both| both.is_full());
        is_full.unwrap_or(false)
    }
}

/// Both sides, and whether the entry is being removed.
type Guarded = Arc<Mutex<(Both, bool)>>;

pub(crate) struct Papaya(papaya::HashMap<u64, Guarded>);

impl Keeps for Papaya {
    fn new(_pairs: u32) -> Self {
        Self(papaya::HashMap::new())
    }

    fn add(&self, side: Side, key: u64, object: &Arc<Party>) -> Result<(), Busy> {
        let map = self.0.pin();
        loop {
            let entry = map.get_or_insert_with(key, Arc::default);
            let mut guarded = entry.lock();
            if !guarded.1 {
                return guarded.0.add(side, object);
            }
            drop(guarded);
            // On its way out: the next look finds another one, or none.
            std::thread::yield_now();
        }
    }

    fn remove(&self, side: Side, key: u64) {
        let map = self.0.pin();
        let Some(entry) = map.get(&key) else { return };
        let mut guarded = entry.lock();
        guarded.0.remove(side);
        if guarded.0.is_empty() {
            guarded.1 = true;
            drop(guarded);
            map.remove(&key);
        }
    }

    fn is_connected(&self, key: u64) -> bool {
        let map = self.0.pin();
        map.get(&key).is_some_and(|entry| entry.lock().0.is_full())
    }
}
