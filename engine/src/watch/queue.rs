//! Watches of eventfds that have changed, and what a network thread has of each.
//!
//! Invariants
//! - V1: an entry is in the queue at most once, and a change of what is wanted puts it there
//!   afterwards; so the thread sees the last change, however many there were.
//! - V2: the queue has room for every entry of its thread that was ever wanted, so that only the
//!   first start can fail for lack of memory.
//! - V3: a closed queue takes nothing: no thread would read it.
//! - V4: what is wanted changes under the lock, with its place in the queue or not at all: a start
//!   that fails undoes nothing of another one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use flatpath_driver::Eventfd;
use flatpath_structures::lock::{Guard, Lock};

/// Why a watch could not start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WatchError {
    /// There is no memory for it.
    NoMemory,
    /// The server has ended.
    ShutDown,
}

flatpath_structures::impl_error! {
    WatchError {
        Self::NoMemory => "no memory to watch an eventfd",
        Self::ShutDown => "the server has ended",
    }
}

/// What a network thread has of an eventfd.
pub(crate) struct WatchEntry {
    pub(crate) event: Arc<Eventfd>,
    pub(crate) signalled: Box<dyn Fn(u64) + Send + Sync>,
    /// Changed under the queue's lock.
    wanted: AtomicBool,
    /// It is in the queue; changed under its lock.
    is_listed: AtomicBool,
    /// The thread's number of it; for the thread alone.
    pub(crate) place: AtomicU64,
    /// Counts this entry among those that may be listed.
    _member: Arc<()>,
}

impl WatchEntry {
    /// One that is not wanted yet, for the thread with this queue.
    pub(crate) fn new(
        queue: &WatchQueue,
        event: Eventfd,
        signalled: Box<dyn Fn(u64) + Send + Sync>,
    ) -> WatchEntry {
        WatchEntry {
            event: Arc::new(event),
            signalled,
            wanted: AtomicBool::new(false),
            is_listed: AtomicBool::new(false),
            place: AtomicU64::new(u64::MAX),
            _member: Arc::clone(&queue.members),
        }
    }

    /// Whether it is to be watched, as far as this thread knows by now.
    pub(crate) fn is_wanted(&self) -> bool {
        self.wanted.load(Ordering::Relaxed)
    }
}

/// The watches of one network thread that have changed.
#[derive(Default)]
pub(crate) struct WatchQueue {
    list: Lock<List>,
    /// Each entry that may be listed holds one of these.
    members: Arc<()>,
}

#[derive(Default)]
struct List {
    entries: Vec<Arc<WatchEntry>>,
    is_closed: bool,
    is_out_of_memory: bool,
}

impl List {
    fn make_room(&mut self, members: usize) -> Result<(), WatchError> {
        if self.is_out_of_memory {
            return Err(WatchError::NoMemory);
        }
        let more = members.saturating_sub(self.entries.len());
        self.entries
            .try_reserve(more)
            .map_err(|_| WatchError::NoMemory)
    }
}

impl WatchQueue {
    fn list(&self) -> Guard<'_, List> {
        // Nothing under the lock panics half way.
        self.list.lock()
    }

    /// Lists an entry that is wanted from now on. Where that fails, nothing has changed.
    pub(crate) fn start(&self, entry: &Arc<WatchEntry>) -> Result<(), WatchError> {
        let mut list = self.list();
        if list.is_closed {
            return Err(WatchError::ShutDown);
        }
        if !entry.is_wanted() {
            list.make_room(Arc::strong_count(&self.members))?;
        }
        self.add(&mut list, entry)?;
        // ORDER: Relaxed: under the lock (V4).
        entry.wanted.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Lists an entry that is not wanted any more. False: it was not wanted, or no thread would
    /// look.
    pub(crate) fn stop(&self, entry: &Arc<WatchEntry>) -> bool {
        let mut list = self.list();
        // ORDER: Relaxed: under the lock (V4).
        let was_wanted = entry.wanted.swap(false, Ordering::Relaxed);
        // There is room since the start.
        was_wanted && !list.is_closed && self.add(&mut list, entry).is_ok()
    }

    fn add(&self, list: &mut List, entry: &Arc<WatchEntry>) -> Result<(), WatchError> {
        if !entry.is_listed.load(Ordering::Relaxed) {
            if list.entries.len() == list.entries.capacity() {
                return Err(WatchError::NoMemory);
            }
            list.entries.push(Arc::clone(entry));
            // ORDER: Relaxed: under the lock.
            entry.is_listed.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    pub(crate) fn take(&self) -> Vec<Arc<WatchEntry>> {
        let mut list = self.list();
        // Its room stays (V2).
        let entries: Vec<_> = list.entries.drain(..).collect();
        // Under the lock, and before the thread reads what is wanted (V1).
        for entry in &entries {
            // ORDER: Relaxed: under the lock.
            entry.is_listed.store(false, Ordering::Relaxed);
        }
        entries
    }

    /// The thread ends: nothing is taken from now on (V3). What was listed is for the caller to
    /// discard, as it may be the last that knows an entry and its function.
    #[must_use]
    pub(crate) fn close(&self) -> Vec<Arc<WatchEntry>> {
        let mut list = self.list();
        list.is_closed = true;
        std::mem::take(&mut list.entries)
    }

    /// From now on there is no memory for it, or there is again; for simulations.
    #[cfg(feature = "simulation")]
    pub(crate) fn starve(&self, is_out_of_memory: bool) {
        self.list().is_out_of_memory = is_out_of_memory;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;

    fn entry(queue: &WatchQueue, signalled: impl Fn(u64) + Send + Sync + 'static) -> WatchEntry {
        let event = Eventfd::new().expect("made");
        WatchEntry::new(queue, event, Box::new(signalled))
    }

    #[test]
    fn stress_a_start_that_fails_undoes_no_other_start() {
        let queue = WatchQueue::default();
        let first = Arc::new(entry(&queue, |_| ()));
        queue.start(&first).expect("there is memory");
        for round in 0..2_000 {
            assert!(queue.take().len() < 2);
            let one = Arc::new(entry(&queue, |_| ()));
            queue.starve(round % 2 == 0);
            let together = Barrier::new(2);
            let start = || {
                together.wait();
                queue.start(&one).is_ok()
            };
            let started = std::thread::scope(|scope| {
                let other = scope.spawn(start);
                let own = start();
                other.join().expect("no panic") || own
            });
            assert_eq!(one.is_wanted(), started, "round {round}");
            queue.stop(&one);
        }
    }

    /// Looks whether the queue is locked when it is dropped.
    struct Looks(Arc<WatchQueue>, Arc<AtomicBool>);

    impl Drop for Looks {
        fn drop(&mut self) {
            let is_free = self.0.list.try_lock().is_some();
            self.1.store(is_free, Ordering::Relaxed);
        }
    }

    #[test]
    fn what_a_closed_queue_held_is_dropped_after_the_unlock() {
        let (queue, was_free) = (Arc::new(WatchQueue::default()), Arc::default());
        let looks = Looks(Arc::clone(&queue), Arc::clone(&was_free));
        let listed = Arc::new(entry(&queue, move |_| {
            let _ = &looks;
        }));
        queue.start(&listed).expect("there is memory");
        drop(listed);
        drop(queue.close());
        assert!(was_free.load(Ordering::Relaxed));
        let late = Arc::new(entry(&queue, |_| ()));
        assert_eq!(queue.start(&late), Err(WatchError::ShutDown));
        assert!(!late.is_wanted());
    }
}
