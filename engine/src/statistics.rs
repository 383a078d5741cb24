//! Counters of one server. Relaxed sums: read them for trends, not for exactness at one instant.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A counter that many threads may add to.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    /// The sum so far.
    pub fn read(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Requests that workers run or that wait for one, at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InFlight {
    /// Waiting for a worker.
    pub queued: usize,
    /// With a worker.
    pub running: usize,
    /// The age of the oldest of them since its dispatch, and the name of its listener's protocol.
    pub oldest: Option<(Duration, &'static str)>,
}

/// What happened since the server started.
#[derive(Debug, Default)]
pub struct Statistics {
    /// Connections accepted.
    pub accepted: Counter,
    /// Connections refused because the limit was reached.
    pub refused: Counter,
    /// Of those, connections refused because their address had its share.
    pub refused_by_address: Counter,
    /// Connections closed before their time, so that a newcomer had a place.
    pub evicted: Counter,
    /// Times accept was paused because the kernel had no descriptor or no memory.
    pub accept_pauses: Counter,
    /// Connections closed, for whatever reason.
    pub closed: Counter,
    /// Connections closed because a deadline passed.
    pub expired: Counter,
    /// Receives that found every receive buffer in use.
    pub receive_stalls: Counter,
    /// Times a connection brought much while others waited or receive buffers were scarce, and was
    /// received from one buffer at a time from then on.
    pub crowding: Counter,
    /// Times a connection stopped receiving because its users held too many fragments.
    pub keep_stalls: Counter,
    /// Bytes of bodies handed on in the page they were received in.
    pub body_bytes_kept: Counter,
    /// Bytes of bodies that had to be copied within this process.
    pub body_bytes_copied: Counter,
    /// Times a connection was stalled because it held its share of the memory for buffers.
    pub share_stalls: Counter,
    /// Times a connection was stalled because its address held more than its share of that memory.
    pub address_share_stalls: Counter,
    /// Times a connection was stalled because its listener held more than its share of that memory.
    pub listener_share_stalls: Counter,
    /// Connections ended while others waited for memory: those that held most and moved least.
    pub holders_ended: Counter,
    /// Requests that were stalled and then refused for want of room.
    pub stalls_refused: Counter,
    /// Pairs of connections that were spliced.
    pub spliced: Counter,
    /// Pairs whose end has begun; those between `spliced` and this are spliced now.
    pub unspliced: Counter,
    /// Splices that were refused, because the other end was gone by then or spliced already.
    pub splices_refused: Counter,
    /// Bytes that went from one connection to another without a worker.
    pub spliced_bytes: Counter,
    /// Of those, bytes that were moved by reference and not copied.
    pub spliced_bytes_moved: Counter,
    /// Times a network thread called the function of an eventfd that was written to.
    pub signals: Counter,
    /// Jobs sent to workers.
    pub dispatched: Counter,
    /// Jobs that had to wait because their listener had its share of the workers.
    pub share_waits: Counter,
    /// Those of them that have gone to workers since; the others wait now.
    pub share_waits_over: Counter,
    /// Nanoseconds that network threads spent on putting those jobs on the queue and waking workers
    /// for them. Counted only after [`Server::observe_dispatch`](crate::Server::observe_dispatch).
    pub dispatch_ns: Counter,
    /// Panics caught in handlers.
    pub handler_panics: Counter,
    /// Workers started after the first ones.
    pub workers_grown: Counter,
}
