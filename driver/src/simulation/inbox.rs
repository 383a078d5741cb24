//! A socket of datagrams, as the simulated network has it: what waits there, and what left it.

use std::collections::VecDeque;
use std::sync::Arc;

use flatpath_structures::lock::Lock;

use crate::completion::Errno;
use crate::datagram::{Envelope, SentDatagram};

/// A socket, as its network has it.
#[derive(Default)]
pub(super) struct Inbox {
    /// When they arrive, in the order in which they were sent.
    pub(super) waiting: Vec<(u64, Envelope, Vec<u8>)>,
    /// What was reported to it.
    pub(super) reports: VecDeque<Errno>,
    pub(super) lost: u32,
    pub(super) sent: Arc<Lock<VecDeque<SentDatagram>>>,
}

impl Inbox {
    /// Takes the oldest of those that have arrived.
    pub(super) fn take(&mut self, now_ns: u64) -> Option<(Envelope, Vec<u8>)> {
        let arrived = self.waiting.iter().enumerate();
        let arrived = arrived.filter(|(_, (at, ..))| *at <= now_ns);
        let (place, _) = arrived.min_by_key(|(_, (at, ..))| *at)?;
        let (_, envelope, bytes) = self.waiting.remove(place);
        let lost = self.lost;
        Some((Envelope { lost, ..envelope }, bytes))
    }

    pub(super) fn has_arrived(&self, now_ns: u64) -> bool {
        self.waiting.iter().any(|(at, ..)| *at <= now_ns)
    }

    /// When the next one arrives.
    pub(super) fn next_ns(&self, now_ns: u64) -> Option<u64> {
        let times = self.waiting.iter().map(|(at, ..)| *at);
        times.filter(|at| *at > now_ns).min()
    }
}
