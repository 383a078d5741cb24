//! Connections that wait their turn for something, in the order in which they came.
//!
//! Invariants
//! - Q1: a connection is in each queue at most once: its [`WaitSet`] says in which. Whoever takes
//!   its key from a queue takes the bit as well, and skips a connection that is gone.
//!
//! Cost: a bit and a push, a pop and a bit.

use std::collections::VecDeque;

use flatpath_structures::slots::Key;

use crate::phase::Stall;

/// What a connection can wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// Room in the server, stalled: for jobs, for jobs that last, for memory.
    Jobs,
    Lasting,
    Memory,
    /// Less of the memory than its share, stalled.
    Share,
    /// Its long input to be offered, at the end of a turn: see `defer.rs`.
    Input,
    /// The same, after all others: it crowds.
    CrowdInput,
    /// Its receive to be armed: it crowds.
    CrowdReceive,
    /// Its long output to be sent: see `send.rs`.
    Send,
    /// To be reconciled once more: one event had more to do than it may.
    Again,
    /// The FIN of its peer to be passed on: see `splice.rs`.
    Fin,
}

const KINDS: usize = 10;

/// The queues in which a connection is (Q1).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WaitSet(u16);

impl WaitSet {
    pub(crate) fn has(self, wait: Wait) -> bool {
        self.0 & 1 << wait as u16 != 0
    }

    pub(crate) fn remove(&mut self, wait: Wait) {
        self.0 &= !(1 << wait as u16);
    }

    /// Its input waits for the end of a turn.
    pub(crate) fn is_deferred(self) -> bool {
        self.has(Wait::Input) || self.has(Wait::CrowdInput)
    }
}

/// The queues of one network thread.
#[derive(Debug, Default)]
pub(crate) struct Waits([VecDeque<Key>; KINDS]);

impl Waits {
    /// Puts a connection at the end of a queue, unless it is in it.
    pub(crate) fn push(&mut self, wait: Wait, key: Key, set: &mut WaitSet) {
        if !set.has(wait) {
            set.0 |= 1 << wait as u16;
            self.0[wait as usize].push_back(key);
        }
    }

    /// Takes the connection that has waited longest.
    pub(crate) fn pop(&mut self, wait: Wait) -> Option<Key> {
        self.0[wait as usize].pop_front()
    }

    pub(crate) fn len(&self, wait: Wait) -> usize {
        self.0[wait as usize].len()
    }

    pub(crate) fn is_empty(&self, wait: Wait) -> bool {
        self.0[wait as usize].is_empty()
    }

    /// Whether any connection waits for anything.
    pub(crate) fn any(&self) -> bool {
        self.0.iter().any(|queue| !queue.is_empty())
    }

    /// Whether one waits for the next turn, so that no wait for the kernel may last.
    pub(crate) fn are_due(&self) -> bool {
        let due = [
            Wait::Input,
            Wait::CrowdInput,
            Wait::CrowdReceive,
            Wait::Send,
            Wait::Again,
        ];
        due.iter().any(|wait| !self.is_empty(*wait))
    }
}

/// The queue for a stall that ends when the server has room again.
pub(crate) fn wait_for(stall: Stall) -> Wait {
    match stall {
        Stall::Jobs => Wait::Jobs,
        Stall::Lasting => Wait::Lasting,
        _ => Wait::Memory,
    }
}
