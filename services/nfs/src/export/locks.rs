//! Locks of files and directories: changes one at a time, and names that must not last yet.
//!
//! Files share locks by their key, so that there is a fixed number of them.
//!
//! Invariants
//! - L1: a thread takes two locks of changes in their order, and holds one of names only with one
//!   of changes taken before it, or alone.
//!
//! Cost: one uncontended lock.

use flatpath::lock::{Guard, Lock, ReadWriteLock};

use crate::handle::FileKey;
use crate::limits::CHANGE_LOCKS;

pub(crate) struct Locks {
    changes: Box<[Lock<()>]>,
    names: Box<[ReadWriteLock<()>]>,
}

impl Locks {
    pub(crate) fn new() -> Locks {
        Locks {
            changes: (0..CHANGE_LOCKS).map(|_| Lock::default()).collect(),
            names: (0..CHANGE_LOCKS)
                .map(|_| ReadWriteLock::default())
                .collect(),
        }
    }

    /// Keeps other changes made through this server away from a directory or file, so that what it
    /// was before and after a change says that nothing else came between.
    pub(crate) fn change(&self, key: FileKey) -> Guard<'_, ()> {
        self.changes[key.part(CHANGE_LOCKS)].lock()
    }

    /// The same for two; always in the same order, once if they share a lock.
    pub(crate) fn changes(
        &self,
        first: FileKey,
        second: FileKey,
    ) -> (Guard<'_, ()>, Option<Guard<'_, ()>>) {
        let (first, second) = (first.part(CHANGE_LOCKS), second.part(CHANGE_LOCKS));
        let (low, high) = (first.min(second), first.max(second));
        let lower = self.changes[low].lock();
        (lower, (low != high).then(|| self.changes[high].lock()))
    }

    /// While a directory is synced: its names last from then on, with what they name.
    pub(crate) fn names_last(&self, directory: FileKey) -> impl Drop + '_ {
        self.names[directory.part(CHANGE_LOCKS)].read()
    }

    /// While an object is made that lasts with its name and is not complete: the directory is not
    /// synced.
    pub(crate) fn name_is_early(&self, directory: FileKey) -> impl Drop + '_ {
        self.names[directory.part(CHANGE_LOCKS)].write()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(inode: u64) -> FileKey {
        FileKey { inode, birth_ns: 1 }
    }

    #[test]
    fn a_directory_is_not_synced_while_an_object_in_it_is_incomplete() {
        let locks = Locks::new();
        let early = locks.name_is_early(key(7));
        std::thread::scope(|scope| {
            let sync = scope.spawn(|| drop(locks.names_last(key(7))));
            drop(locks.change(key(7)));
            assert!(!sync.is_finished());
            drop(early);
            sync.join().expect("no panic");
        });
        let both = (locks.names_last(key(7)), locks.names_last(key(7)));
        drop(both);
    }
}
