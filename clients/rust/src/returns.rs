//! Tokens on their way back, from any thread: a ring in shared memory and a bell.
//!
//! Invariants
//! - R1: an entry is written before the bell tells of it, both under the lock.
//! - R2: what was not told yet is told before anybody waits for more, and at once while somebody
//!   waits: else both sides could wait for each other.
//! - R3: the socket lives as long as any fragment, so that the server does not take back memory
//!   that a slice of this process still points to.

use std::os::fd::OwnedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

use flatpath_driver::shared::{SharedBytes, SharedWords};
use flatpath_messages::layout::{RETURN_WORDS, Return, announcement};

/// Returns that are gathered before the bell is rung.
const BATCH_MAX: u32 = 32;

/// What all fragments of an attachment share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) regions: Vec<SharedBytes>,
    pub(crate) entries: u32,
    desk: Mutex<Desk>,
    bell: OwnedFd,
    /// R3.
    _socket: OwnedFd,
}

#[derive(Debug)]
struct Desk {
    ring: SharedWords,
    /// Entries written since the beginning.
    written: u64,
    /// Entries that the bell has not told of.
    untold: u32,
    /// Somebody waits for messages.
    waiting: bool,
}

impl Shared {
    pub(crate) fn new(
        regions: Vec<SharedBytes>,
        entries: u32,
        ring: SharedWords,
        bell: OwnedFd,
        socket: OwnedFd,
    ) -> Shared {
        let desk = Mutex::new(Desk {
            ring,
            written: 0,
            untold: 0,
            waiting: false,
        });
        Shared {
            regions,
            entries,
            desk,
            bell,
            _socket: socket,
        }
    }

    pub(crate) fn give_back(&self, given: Return) {
        let mut desk = self.desk();
        let place = (desk.written % u64::from(self.entries)) as usize * RETURN_WORDS;
        for (word, value) in given.words().into_iter().enumerate() {
            desk.ring.store(place + word, value);
        }
        desk.written += 1;
        desk.untold += 1;
        let batch = BATCH_MAX.min(self.entries / 8).max(1);
        if desk.waiting || desk.untold >= batch {
            self.tell(&mut desk);
        }
    }

    /// Tells the server of everything that was given back.
    pub(crate) fn flush(&self) {
        self.tell(&mut self.desk());
    }

    /// Somebody begins to wait for messages, or has ended.
    pub(crate) fn waits(&self, waiting: Waiting) {
        let mut desk = self.desk();
        desk.waiting = waiting == Waiting::Yes;
        if desk.waiting {
            self.tell(&mut desk);
        }
    }

    fn tell(&self, desk: &mut Desk) {
        if desk.untold == 0 {
            return;
        }
        let bytes: Vec<u8> = announcement(desk.untold).collect();
        desk.untold = 0;
        // A server that is gone needs nothing back. The pipe is never full: there is room for a
        // byte for each entry of the ring.
        let _ = rustix::io::write(&self.bell, &bytes);
    }

    fn desk(&self) -> MutexGuard<'_, Desk> {
        // Nothing under the lock panics half way.
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether somebody waits for messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waiting {
    Yes,
    No,
}
