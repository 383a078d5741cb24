//! What other threads tell a network thread about its connections: their program wants them called,
//! fragments have come back, or what they send of a file has been read.
//!
//! All are wake sets: a connection is in each at most once, however often it is woken, so they are
//! bounded by the table of connections. Connections that are gone are found to be so when the
//! thread takes their keys.
//!
//! Ordering
//! - WE1 woken: the key is in its set -> the thread's waker, whose fences order it before the sleep
//!   test ([`Wakes::any`]). What was written before a wake is seen by the call that follows (WE1 of
//!   the wake set).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use flatpath_driver::{QuotaWaker, Waker};
use flatpath_structures::slots::Key;
use flatpath_structures::wake_set::WakeSet;

use crate::memory::account::ServerMemory;

/// See the module.
#[derive(Debug)]
pub(crate) struct Wakes {
    /// To get [`Event::Woken`](crate::Event::Woken).
    pub(crate) woken: WakeSet,
    /// Their fragments have fallen to the mark that they wait for.
    pub(crate) returned: WakeSet,
    /// What they send next of a file has been read ahead.
    pub(crate) read: WakeSet,
    /// How many windows are with workers to be read, also for connections that are gone.
    reading: AtomicUsize,
    waker: Waker,
    /// What any thread charges what it sends to.
    pub(crate) memory: Arc<ServerMemory>,
}

impl Wakes {
    pub(crate) fn new(places: u32, waker: Waker, memory: Arc<ServerMemory>) -> Arc<Wakes> {
        Arc::new(Wakes {
            woken: WakeSet::new(places),
            returned: WakeSet::new(places),
            read: WakeSet::new(places),
            reading: AtomicUsize::new(0),
            waker,
            memory,
        })
    }

    #[inline]
    pub(crate) fn any(&self) -> bool {
        !self.woken.is_empty() || !self.returned.is_empty() || !self.read.is_empty()
    }

    /// A window goes to a worker, to be read for this connection: until the result is dropped.
    pub(crate) fn reads(self: &Arc<Wakes>, key: Key) -> Reading {
        // ORDER: a count for the thread itself, which alone adds to it.
        self.reading.fetch_add(1, Ordering::Relaxed);
        Reading {
            wakes: Arc::clone(self),
            key,
        }
    }

    /// How many are with workers.
    pub(crate) fn reading(&self) -> usize {
        // ORDER: what is seen late is seen after the wake that follows it.
        self.reading.load(Ordering::Relaxed)
    }

    fn has_read(&self, key: Key) {
        self.reading.fetch_sub(1, Ordering::Relaxed);
        // ORDER: WE1: the key before the wake.
        if self.read.insert(key) {
            self.waker.wake();
        }
    }

    pub(crate) fn wake(&self, key: Key) {
        // ORDER: WE1. Another insert of the key wakes the thread, if it was there already.
        if self.woken.insert(key) {
            self.waker.wake();
        }
    }
}

/// A window of a file that a worker reads; dropped, it has been read, and its connection looks.
pub(crate) struct Reading {
    wakes: Arc<Wakes>,
    key: Key,
}

impl Drop for Reading {
    fn drop(&mut self) {
        self.wakes.has_read(self.key);
    }
}

impl QuotaWaker for Wakes {
    fn wake(&self, number: u64) {
        // ORDER: WE1: the key before the wake.
        if self.returned.insert(Key::from_u64(number)) {
            self.waker.wake();
        }
    }
}
