//! A lock per key: one holder of a key at a time, and holders of different keys never meet.
//!
//! For what a worker does with one directory or one upload. Where a file system hangs, only those
//! that want the same key wait. Cost: one short lock of the whole set to take and to give back.

use std::collections::HashSet;
use std::hash::Hash;

use flatpath::lock::{Condition, Lock};

pub(crate) struct KeyedLock<K> {
    held: Lock<HashSet<K>>,
    released: Condition,
}

/// Holds one key until it is dropped.
pub(crate) struct KeyGuard<'a, K: Eq + Hash> {
    lock: &'a KeyedLock<K>,
    key: K,
}

impl<K: Eq + Hash + Clone> KeyedLock<K> {
    pub(crate) fn new() -> Self {
        Self {
            held: Lock::new(HashSet::new()),
            released: Condition::new(),
        }
    }

    /// Waits until no other thread holds `key`.
    pub(crate) fn lock(&self, key: &K) -> KeyGuard<'_, K> {
        let mut held = self.held.lock();
        while !held.insert(key.clone()) {
            held = self.released.wait(held);
        }
        KeyGuard {
            lock: self,
            key: key.clone(),
        }
    }
}

impl<K: Eq + Hash> Drop for KeyGuard<'_, K> {
    fn drop(&mut self) {
        self.lock.held.lock().remove(&self.key);
        self.lock.released.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn stress_one_holder_per_key_and_none_waits_for_another_key() {
        let lock = KeyedLock::new();
        let inside = [AtomicUsize::new(0), AtomicUsize::new(0)];
        let _other = lock.lock(&9);
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (lock, inside) = (&lock, &inside);
                scope.spawn(move || {
                    for round in 0..1_000 {
                        let key = (thread + round) % 2;
                        let _guard = lock.lock(&key);
                        assert_eq!(inside[key].fetch_add(1, Ordering::Relaxed), 0);
                        inside[key].fetch_sub(1, Ordering::Relaxed);
                    }
                });
            }
        });
    }
}
