//! Removes uploads that expired; and, once, the temporary files of a server that was killed.
//!
//! The housekeeper begins that when the server starts, so that what an earlier one left goes too,
//! and then a few times within the time after which uploads expire. Each sweep has a thread of its
//! own, which ends with it: a file system that hangs holds up this sweep and nothing else, and the
//! next one begins when it is over. The server does not wait for it at its end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use flatpath::contain;
use flatpath::housekeeper::{Next, Task};

use crate::leftovers;
use crate::limits::{FINISHED_KEPT, SWEEP_INTERVAL_MAX, SWEEP_INTERVAL_MIN};

use super::ledger::Uploads;
use super::store::{Id, Store};
use super::upload::{State, Upload, is_older};

/// No more sweeps begin when it is dropped.
#[derive(Debug)]
pub(crate) struct Sweeper {
    _task: Task,
}

impl Sweeper {
    /// Begins to sweep; `None` where the machine has no thread left.
    pub(crate) fn start(uploads: Uploads) -> Option<Self> {
        let interval = uploads.kept(0) / 4;
        let interval = interval.clamp(SWEEP_INTERVAL_MIN, SWEEP_INTERVAL_MAX);
        let (uploads, is_sweeping) = (Arc::new(uploads), Arc::new(AtomicBool::new(false)));
        let task = Task::begin("expired uploads", move |_| {
            begin(&uploads, &is_sweeping);
            Next::After(interval)
        });
        let task = task.inspect_err(not_removed).ok()?;
        Some(Self { _task: task })
    }
}

fn not_removed(error: &std::io::Error) {
    log::warn!("expired uploads are not removed: {error}");
}

/// Begins a sweep, unless the last one is still running.
fn begin(uploads: &Arc<Uploads>, is_sweeping: &Arc<AtomicBool>) {
    // ORDER: Relaxed: the flag alone counts; the file system has its own locks.
    if is_sweeping.swap(true, Ordering::Relaxed) {
        return;
    }
    let (uploads, ends) = (Arc::clone(uploads), Arc::clone(is_sweeping));
    let thread = std::thread::Builder::new().name("flatpath-sweep".into());
    let started = thread.spawn(move || {
        let _ = contain(|| {
            sweep(&uploads, SystemTime::now());
            uploads
                .ledger
                .once_begun(|| leftovers::remove(&uploads.root));
        });
        ends.store(false, Ordering::Relaxed);
    });
    if let Err(error) = &started {
        is_sweeping.store(false, Ordering::Relaxed);
        not_removed(error);
    }
}

/// Removes what has expired by `now`. What cannot be removed is left for the next round.
pub(crate) fn sweep(uploads: &Uploads, now: SystemTime) {
    let Uploads {
        root,
        options,
        ledger,
        ..
    } = uploads;
    let entered = ledger.entered();
    let store = match Store::open(root) {
        Ok(Some(store)) => store,
        Ok(None) => return entered.iter().for_each(|id| ledger.leave(id)),
        Err(_) => return,
    };
    let Ok(listed) = store.list() else { return };
    let gone = entered.iter().filter(|id| !listed.uploads.contains(id));
    gone.for_each(|id| ledger.leave(id));
    for id in &listed.uploads {
        sweep_one(uploads, &store, id, now);
    }
    for name in &listed.leftovers {
        if is_older(store.written(name), options.expires, now) {
            // Left for the next round.
            let _ = store.remove(name);
        }
    }
    if listed.uploads.is_empty() && listed.leftovers.is_empty() {
        Store::remove_if_empty(root);
    }
}

fn sweep_one(uploads: &Uploads, store: &Store, id: &Id, now: SystemTime) {
    let expires = uploads.options.expires;
    let name = id.digits().as_bytes();
    let recorded = store.written(name);
    let found = Upload::find(uploads, id);
    if found.as_ref().is_ok_and(|upload| upload.is_young(now)) {
        return;
    }
    let removed = match found.as_ref().map(Upload::lock) {
        // A record that cannot be read, or an error that may pass.
        Err(_) | Ok(Ok(State::Gone)) if is_older(recorded, expires, now) => store.remove(name),
        Ok(Ok(State::Finished { .. })) if is_older(recorded, expires.min(FINISHED_KEPT), now) => {
            store.remove(name)
        }
        Ok(Ok(State::Receiving(locked))) if locked.has_expired(now) => {
            log::info!("an unfinished upload expired");
            locked.remove()
        }
        _ => Ok(()),
    };
    if removed.is_err() {
        log::debug!("an expired upload cannot be removed now");
    }
}
