//! Where files are that the kernel cannot find by handle: parent and name, as last seen.
//!
//! A hint and nothing more: whoever uses it opens the place and looks whether the file is there.
//!
//! Invariants
//! - P1: at most `PLACES_MAX` places are kept, in two generations: the older half goes at once.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::handle::FileKey;
use crate::limits::{DEPTH_MAX, PLACES_MAX};

#[derive(Clone)]
struct Place {
    parent: FileKey,
    name: Box<[u8]>,
}

#[derive(Default)]
struct Generations {
    young: HashMap<FileKey, Place>,
    old: HashMap<FileKey, Place>,
}

/// See the module.
#[derive(Default)]
pub(crate) struct Places(Mutex<Generations>);

impl Places {
    fn lock(&self) -> MutexGuard<'_, Generations> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `file` was seen as `name` in `parent`.
    pub(crate) fn remember(&self, file: FileKey, parent: FileKey, name: &[u8]) {
        let mut places = self.lock();
        if places.young.len() >= PLACES_MAX / 2 {
            places.old = std::mem::take(&mut places.young);
        }
        places.young.insert(
            file,
            Place {
                parent,
                name: name.into(),
            },
        );
    }

    /// `file` was looked for and not found where it was.
    pub(crate) fn forget(&self, file: FileKey) {
        let mut places = self.lock();
        places.young.remove(&file);
        places.old.remove(&file);
    }

    /// The names from `root` down to `file`, if every step is known.
    pub(crate) fn path(&self, root: FileKey, file: FileKey) -> Option<Vec<Box<[u8]>>> {
        let places = self.lock();
        let mut names = Vec::new();
        let mut at = file;
        while at != root {
            let place = places.young.get(&at).or_else(|| places.old.get(&at))?;
            names.push(place.name.clone());
            at = place.parent;
            if names.len() > DEPTH_MAX {
                return None;
            }
        }
        names.reverse();
        Some(names)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(inode: u64) -> FileKey {
        FileKey { inode, birth_ns: 0 }
    }

    #[test]
    fn a_path_leads_from_the_root_or_is_unknown() {
        let places = Places::default();
        places.remember(key(2), key(1), b"a");
        places.remember(key(3), key(2), b"b");
        let path = places.path(key(1), key(3)).expect("known");
        assert_eq!(path, [Box::from(&b"a"[..]), Box::from(&b"b"[..])]);
        assert_eq!(places.path(key(1), key(1)), Some(Vec::new()));
        places.forget(key(2));
        assert_eq!(places.path(key(1), key(3)), None);
    }

    #[test]
    fn a_circle_of_hints_ends() {
        let places = Places::default();
        places.remember(key(2), key(3), b"a");
        places.remember(key(3), key(2), b"b");
        assert_eq!(places.path(key(1), key(3)), None);
    }

    #[test]
    fn no_more_places_are_kept_than_allowed_and_the_newest_stay() {
        let places = Places::default();
        for inode in 2..3 * PLACES_MAX as u64 {
            places.remember(key(inode), key(1), b"x");
        }
        let kept = places.lock();
        assert!(kept.young.len() + kept.old.len() <= PLACES_MAX);
        drop(kept);
        assert!(
            places
                .path(key(1), key(3 * PLACES_MAX as u64 - 1))
                .is_some()
        );
        assert!(places.path(key(1), key(2)).is_none());
    }
}
