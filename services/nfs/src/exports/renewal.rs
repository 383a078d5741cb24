//! Exports whose directory was removed: their handles are stale from then on, with one line in
//! the log, and what has their path later is exported anew.
//!
//! An export stays what was opened for as long as its directory lives, whatever has its path
//! meanwhile: clients that have mounted it keep their handles and stay in the directory that they
//! have. Only a reload takes another directory of the same path in its place. A directory that was
//! removed has nothing to keep, so here its path is asked again and again.
//!
//! Linux's server is alike (tried on 6.1, NFSv3): a handle of a directory that was removed is stale
//! at once, and mountd looks at the path of an export anew for each client that mounts. Clients of
//! a directory that was only renamed go on in it, until the kernel's cache of exports has run out
//! or was flushed (`exportfs -f`): then their handles are stale. With `fsid=` mountd looks at the
//! path no more before that, and after it handles of the old root lead to the new directory.
//!
//! The housekeeper asks what the kernel knows of the open directory, which never waits; to export
//! anew has a thread of its own for as long as it takes.

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use flatpath::contain;
use flatpath::housekeeper::{Next, Task};

use super::{Exports, Shared};
use crate::limits::ROOT_LOOK_INTERVAL;

/// What is to be done about exports whose directories were removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Renewal {
    /// Nothing but them would change.
    Apply,
    /// One that lives would be closed: that is for a reload to say.
    Wait,
}

impl Renewal {
    fn of(gone: usize, closed: usize) -> Self {
        match closed == gone {
            true => Self::Apply,
            false => Self::Wait,
        }
    }
}

impl Exports {
    /// Begins to look at the directories, for as long as there are exports.
    pub(super) fn watch(&self) -> Option<Task> {
        let shared = Arc::downgrade(&self.0);
        let is_renewing = Arc::new(AtomicBool::new(false));
        let task = Task::begin("exports", move |_| {
            let Some(exports) = shared.upgrade().map(Exports) else {
                return Next::Ended;
            };
            if !exports.gone().is_empty() {
                begin(&shared, &is_renewing);
            }
            Next::After(ROOT_LOOK_INTERVAL)
        });
        let not_seen = |cause: &io::Error| {
            log::warn!("NFS exports that are removed are not noticed: {cause}");
        };
        task.inspect_err(not_seen).ok()
    }

    /// The paths of exports whose directories were removed. Never waits.
    #[must_use]
    pub fn gone(&self) -> Vec<PathBuf> {
        let table = self.table();
        let entries = table.entries.iter().map(|entry| &entry.state);
        let gone = entries.filter(|state| state.export.notices_end(&state.directory));
        gone.map(|state| state.directory.clone()).collect()
    }

    /// Exports anew what has the paths of directories that were removed, if nothing else changes by
    /// that. May wait.
    pub(crate) fn renew(&self) {
        let gone = self.gone();
        // A path that still leads nowhere is no news.
        let Ok(prepared) = self.prepare_again() else {
            return;
        };
        match Renewal::of(gone.len(), prepared.change.closed) {
            Renewal::Wait => {}
            Renewal::Apply => {
                if prepared.apply_unless_replaced().is_some() {
                    for path in gone {
                        let path = path.display();
                        log::info!("the NFS export {path} is a new directory: to be mounted again");
                    }
                }
            }
        }
    }
}

fn begin(shared: &Weak<Shared>, is_renewing: &Arc<AtomicBool>) {
    // ORDER: Relaxed: the flag alone counts; the table has its own lock.
    if is_renewing.swap(true, Ordering::Relaxed) {
        return;
    }
    let (shared, ends) = (Weak::clone(shared), Arc::clone(is_renewing));
    let thread = std::thread::Builder::new().name("flatpath-exports".into());
    let started = thread.spawn(move || {
        let _ = contain(|| {
            if let Some(shared) = shared.upgrade() {
                Exports(shared).renew();
            }
        });
        ends.store(false, Ordering::Relaxed);
    });
    if started.is_err() {
        // Tried again with the next look.
        is_renewing.store(false, Ordering::Relaxed);
    }
}
