//! Connections that wait their turn for something, in the order in which they came.
//!
//! Invariants
//! - Q1: a connection is in each queue at most once: its [`WaitSet`] says in which. To take
//!   its key from a queue is to take the bit as well; a connection that is gone is skipped.
//!
//! Cost: a bit and a push, a pop and a bit.

use std::collections::VecDeque;

use flatpath_structures::slots::Key;

use crate::protocol::phase::Room;

/// What a connection can wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// Room in the server, stalled: for jobs, for jobs that last, for memory.
    Jobs,
    LongLived,
    Memory,
    /// Less of the memory than its share, stalled.
    Share,
    /// Its long input to be read, at the end of a turn: see `long_input.rs`.
    Input,
    /// The same, after all others: it brings much (bulk).
    BulkInput,
    /// Its receive to be armed: it brings much.
    BulkReceive,
    /// Its long output to be sent: see `send.rs`.
    Send,
    /// To be reconciled once more: one event had more to do than it may.
    Again,
    /// To become one of its client, as its PROXY header is read.
    Introduction,
    /// The FIN of its peer to be passed on: see `splice.rs`.
    Fin,
    /// A part of a file to be read ahead: see `ahead.rs`.
    Disk,
}

const KINDS: usize = Wait::Disk as usize + 1;

/// Some of the queues: those in which a connection is (Q1), say.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WaitSet(u16);

impl WaitSet {
    pub(crate) fn has(self, wait: Wait) -> bool {
        self.0 & 1 << wait as u16 != 0
    }

    pub(crate) fn insert(&mut self, wait: Wait) {
        self.0 |= 1 << wait as u16;
    }

    pub(crate) fn remove(&mut self, wait: Wait) {
        self.0 &= !(1 << wait as u16);
    }

    /// Its input waits for the end of a turn.
    pub(crate) fn awaits_turn(self) -> bool {
        self.0 & AWAITS_TURN != 0
    }
}

const AWAITS_TURN: u16 = 1 << Wait::Input as u16 | 1 << Wait::BulkInput as u16;

/// Those whose connections wait for the next turn.
const DUE: u16 = AWAITS_TURN
    | 1 << Wait::BulkReceive as u16
    | 1 << Wait::Send as u16
    | 1 << Wait::Again as u16
    | 1 << Wait::Introduction as u16;

/// The queues of one network thread.
#[derive(Debug, Default)]
pub(crate) struct Waits {
    queues: [VecDeque<Key>; KINDS],
    /// The queues that are not empty.
    filled: WaitSet,
    /// Something waits for a send to complete.
    hurries: bool,
}

impl Waits {
    /// Puts a connection at the end of a queue, unless it is in it.
    pub(crate) fn push(&mut self, wait: Wait, key: Key, set: &mut WaitSet) {
        if !set.has(wait) {
            set.insert(wait);
            self.filled.insert(wait);
            self.queues[wait as usize].push_back(key);
        }
    }

    /// Takes the connection that has waited longest.
    pub(crate) fn pop(&mut self, wait: Wait) -> Option<Key> {
        let queue = &mut self.queues[wait as usize];
        let key = queue.pop_front();
        if queue.is_empty() {
            self.filled.remove(wait);
        }
        key
    }

    pub(crate) fn len(&self, wait: Wait) -> usize {
        self.queues[wait as usize].len()
    }

    pub(crate) fn is_empty(&self, wait: Wait) -> bool {
        !self.filled.has(wait)
    }

    /// The next wait for the kernel is to end for any send that completes.
    pub(crate) fn hurry(&mut self) {
        self.hurries = true;
    }

    /// Whether it is: for this, or because connections wait. Holds for one wait.
    pub(crate) fn take_hurry(&mut self) -> bool {
        std::mem::take(&mut self.hurries) || self.any()
    }

    /// Whether any connection waits for anything.
    pub(crate) fn any(&self) -> bool {
        self.filled.0 != 0
    }

    /// Whether one waits for the next turn, so that no wait for the kernel may last.
    pub(crate) fn are_due(&self) -> bool {
        self.filled.0 & DUE != 0
    }
}

/// The queue for room of this kind.
pub(crate) fn wait_for(room: Room) -> Wait {
    match room {
        Room::Jobs => Wait::Jobs,
        Room::LongLived => Wait::LongLived,
        Room::Memory => Wait::Memory,
    }
}
