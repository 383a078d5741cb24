//! Tokens on their way back, from any thread: a ring in shared memory and a doorbell.
//!
//! Invariants
//! - R1: an entry is written before the doorbell announces it, both under the lock.
//! - R2: all returns are announced before a thread waits for messages, and at once while one waits:
//!   otherwise both sides could wait for each other.
//! - R3: the socket lives as long as any fragment, so that the server does not take back memory
//!   that a slice of this process still points to.

use std::os::fd::OwnedFd;

use flatpath_messages::layout::{RETURN_WORDS, Return, announcement};
use flatpath_structures::lock::Lock;
use flatpath_sys::shared_memory::{SharedBytes, SharedWords};

/// Returns that are gathered before the doorbell is rung.
const BATCH_MAX: u32 = 32;

/// What all fragments of an attachment share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) regions: Vec<SharedBytes>,
    pub(crate) entries: u32,
    queue: Lock<ReturnQueue>,
    doorbell: OwnedFd,
    /// Lives as long as any fragment (R3).
    pub(crate) socket: OwnedFd,
}

#[derive(Debug)]
struct ReturnQueue {
    ring: SharedWords,
    /// Entries written since the beginning.
    written: u64,
    /// Entries that the doorbell has not announced.
    unannounced: u32,
    /// A thread waits for messages.
    waiting: bool,
}

impl Shared {
    pub(crate) fn new(
        regions: Vec<SharedBytes>,
        entries: u32,
        ring: SharedWords,
        doorbell: OwnedFd,
        socket: OwnedFd,
    ) -> Shared {
        let queue = Lock::new(ReturnQueue {
            ring,
            written: 0,
            unannounced: 0,
            waiting: false,
        });
        Shared {
            regions,
            entries,
            queue,
            doorbell,
            socket,
        }
    }

    pub(crate) fn give_back(&self, given: Return) {
        let mut queue = self.queue.lock();
        let place = (queue.written % u64::from(self.entries)) as usize * RETURN_WORDS;
        for (word, value) in given.words().into_iter().enumerate() {
            queue.ring.store(place + word, value);
        }
        queue.written += 1;
        queue.unannounced += 1;
        let batch = BATCH_MAX.min(self.entries / 8).max(1);
        if queue.waiting || queue.unannounced >= batch {
            self.announce(&mut queue);
        }
    }

    /// Announces everything that was given back.
    pub(crate) fn flush(&self) {
        self.announce(&mut self.queue.lock());
    }

    /// A thread begins to wait for messages.
    pub(crate) fn begin_wait(&self) {
        let mut queue = self.queue.lock();
        queue.waiting = true;
        self.announce(&mut queue);
    }

    /// It has ended.
    pub(crate) fn end_wait(&self) {
        self.queue.lock().waiting = false;
    }

    fn announce(&self, queue: &mut ReturnQueue) {
        if queue.unannounced == 0 {
            return;
        }
        let bytes: Vec<u8> = announcement(queue.unannounced).collect();
        queue.unannounced = 0;
        // A server that is gone needs nothing back. The pipe is never full: there is room for a
        // byte for each entry of the ring.
        let _ = rustix::io::write(&self.doorbell, &bytes);
    }
}
