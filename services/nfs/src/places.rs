//! Where files are that the kernel cannot find by handle: parent and name, as last seen.
//!
//! A place is a hint and nothing more: whoever uses it opens it and looks whether the file is
//! there. That a file is gone is knowledge: its last name was taken away, and no file gets a name
//! back. Only a new file may look like it, where inode numbers are used again within one tick of
//! the clock; such a file is seen before it is asked for, and that wins.
//!
//! Invariants
//! - P1: at most `PLACES_MAX` files are known, in two generations: the older half goes at once.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::handle::{FileKey, WireHandle};
use crate::limits::{DEPTH_MAX, PLACES_MAX};

struct Place {
    parent: FileKey,
    name: Box<[u8]>,
    /// Of the parent, where it lies so deep that files in it have no path.
    handle: Option<Box<WireHandle>>,
}

/// What is known about a file.
enum Known {
    At(Place),
    Gone,
}

#[derive(Default)]
struct Generations {
    young: HashMap<FileKey, Known>,
    old: HashMap<FileKey, Known>,
}

impl Generations {
    fn find(&self, file: FileKey) -> Option<&Known> {
        self.young.get(&file).or_else(|| self.old.get(&file))
    }

    fn insert(&mut self, file: FileKey, known: Known) {
        if self.young.len() >= PLACES_MAX / 2 {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(file, known);
    }
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
        let place = Place {
            parent,
            name: name.into(),
            handle: None,
        };
        self.lock().insert(file, Known::At(place));
    }

    /// `file` was seen as `name` in a deep directory with this handle.
    pub(crate) fn remember_below(
        &self,
        file: FileKey,
        parent: FileKey,
        name: &[u8],
        handle: &WireHandle,
    ) {
        let place = Place {
            parent,
            name: name.into(),
            handle: Some(Box::new(*handle)),
        };
        self.lock().insert(file, Known::At(place));
    }

    /// The deep directory in which `file` was seen last, and its name there.
    pub(crate) fn below(&self, file: FileKey) -> Option<(WireHandle, Box<[u8]>)> {
        match self.lock().find(file) {
            Some(Known::At(place)) => {
                let handle = place.handle.as_deref()?;
                Some((*handle, place.name.clone()))
            }
            _ => None,
        }
    }

    /// The last name of `file` was taken away.
    pub(crate) fn bury(&self, file: FileKey) {
        self.lock().insert(file, Known::Gone);
    }

    /// True when the last name of `file` was taken away.
    pub(crate) fn is_gone(&self, file: FileKey) -> bool {
        matches!(self.lock().find(file), Some(Known::Gone))
    }

    /// True when a place of `file` is known.
    pub(crate) fn knows(&self, file: FileKey) -> bool {
        matches!(self.lock().find(file), Some(Known::At(_)))
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
            let Some(Known::At(place)) = places.find(at) else {
                return None;
            };
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
    fn a_file_that_is_gone_has_no_place_until_one_like_it_is_seen() {
        let places = Places::default();
        places.remember(key(2), key(1), b"a");
        assert!(places.knows(key(2)) && !places.is_gone(key(2)));
        places.bury(key(2));
        assert!(places.is_gone(key(2)) && !places.knows(key(2)));
        assert_eq!(places.path(key(1), key(2)), None);
        places.remember(key(2), key(1), b"b");
        assert!(places.knows(key(2)) && !places.is_gone(key(2)));
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
