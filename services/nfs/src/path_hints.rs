//! Where files are that the kernel cannot find by handle: parent and name, as last seen.
//!
//! A hint proves nothing: its user opens the name and checks that the file is there. That a file is
//! gone is knowledge: its last name was taken away, and no file gets a name back. Only a new file
//! may look like it, where inode numbers are used again within one tick of the clock; such a file
//! is seen before it is asked for, and that wins.
//!
//! Invariants
//! - P1: at most `PATH_HINTS_MAX` files are known, in two generations: the older half goes at once.

use flatpath::lock::Lock;

use crate::handle::{FileKey, FileMap, WireHandle};
use crate::limits::{DEPTH_MAX, PATH_HINTS_MAX};

struct Hint {
    parent: FileKey,
    name: Box<[u8]>,
    /// Of the parent, where it lies so deep that files in it have no path.
    handle: Option<Box<WireHandle>>,
}

enum Known {
    At(Hint),
    Gone,
}

#[derive(Default)]
struct Generations {
    young: FileMap<Known>,
    old: FileMap<Known>,
}

impl Generations {
    fn find(&self, file: FileKey) -> Option<&Known> {
        self.young.get(&file).or_else(|| self.old.get(&file))
    }

    fn insert(&mut self, file: FileKey, known: Known) {
        if self.young.len() >= PATH_HINTS_MAX / 2 {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(file, known);
    }
}

#[derive(Default)]
pub(crate) struct PathHints(Lock<Generations>);

impl PathHints {
    /// `file` was seen as `name` in `parent`, which has this handle if it is deep.
    pub(crate) fn insert(
        &self,
        file: FileKey,
        parent: FileKey,
        name: &[u8],
        deep: Option<WireHandle>,
    ) {
        let hint = Hint {
            parent,
            name: name.into(),
            handle: deep.map(Box::new),
        };
        self.0.lock().insert(file, Known::At(hint));
    }

    /// The deep directory in which `file` was seen last, and its name there.
    pub(crate) fn below(&self, file: FileKey) -> Option<(WireHandle, Box<[u8]>)> {
        match self.0.lock().find(file) {
            Some(Known::At(hint)) => {
                let handle = hint.handle.as_deref()?;
                Some((*handle, hint.name.clone()))
            }
            _ => None,
        }
    }

    /// The last name of `file` was taken away.
    pub(crate) fn mark_gone(&self, file: FileKey) {
        self.0.lock().insert(file, Known::Gone);
    }

    pub(crate) fn is_gone(&self, file: FileKey) -> bool {
        matches!(self.0.lock().find(file), Some(Known::Gone))
    }

    pub(crate) fn contains(&self, file: FileKey) -> bool {
        matches!(self.0.lock().find(file), Some(Known::At(_)))
    }

    /// `file` was looked for and not found where it was.
    pub(crate) fn remove(&self, file: FileKey) {
        let mut hints = self.0.lock();
        hints.young.remove(&file);
        hints.old.remove(&file);
    }

    /// The names from `root` down to `file`, if every step is known.
    pub(crate) fn path(&self, root: FileKey, file: FileKey) -> Option<Vec<Box<[u8]>>> {
        let hints = self.0.lock();
        let mut names = Vec::new();
        let mut at = file;
        while at != root {
            let Some(Known::At(hint)) = hints.find(at) else {
                return None;
            };
            names.push(hint.name.clone());
            at = hint.parent;
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
        let hints = PathHints::default();
        hints.insert(key(2), key(1), b"a", None);
        hints.insert(key(3), key(2), b"b", None);
        let path = hints.path(key(1), key(3)).expect("known");
        assert_eq!(path, [Box::from(&b"a"[..]), Box::from(&b"b"[..])]);
        assert_eq!(hints.path(key(1), key(1)), Some(Vec::new()));
        hints.remove(key(2));
        assert_eq!(hints.path(key(1), key(3)), None);
    }

    #[test]
    fn a_file_that_is_gone_has_no_hint_until_one_like_it_is_seen() {
        let hints = PathHints::default();
        hints.insert(key(2), key(1), b"a", None);
        assert!(hints.contains(key(2)) && !hints.is_gone(key(2)));
        hints.mark_gone(key(2));
        assert!(hints.is_gone(key(2)) && !hints.contains(key(2)));
        assert_eq!(hints.path(key(1), key(2)), None);
        hints.insert(key(2), key(1), b"b", None);
        assert!(hints.contains(key(2)) && !hints.is_gone(key(2)));
    }

    #[test]
    fn a_circle_of_hints_ends() {
        let hints = PathHints::default();
        hints.insert(key(2), key(3), b"a", None);
        hints.insert(key(3), key(2), b"b", None);
        assert_eq!(hints.path(key(1), key(3)), None);
    }

    #[test]
    fn no_more_hints_are_kept_than_allowed_and_the_newest_stay() {
        let hints = PathHints::default();
        for inode in 2..3 * PATH_HINTS_MAX as u64 {
            hints.insert(key(inode), key(1), b"x", None);
        }
        let kept = hints.0.lock();
        assert!(kept.young.len() + kept.old.len() <= PATH_HINTS_MAX);
        drop(kept);
        assert!(
            hints
                .path(key(1), key(3 * PATH_HINTS_MAX as u64 - 1))
                .is_some()
        );
        assert!(hints.path(key(1), key(2)).is_none());
    }
}
