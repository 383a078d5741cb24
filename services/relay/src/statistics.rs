//! The counters of a relay. Relaxed sums: for trends, not for exactness at one instant.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use flatpath::metrics::Metric;

/// Counters and gauges of one relay. The bytes that went through are the engine's:
/// [`flatpath::statistics::Statistics::spliced_bytes`].
#[derive(Debug, Default)]
pub struct Statistics {
    pub(crate) waiting: AtomicU64,
    pub(crate) paired_ends: AtomicU64,
    pub(crate) matched: AtomicU64,
    pub(crate) waited_ns: AtomicU64,
    pub(crate) waited_ns_max: AtomicU64,
    pub(crate) unmatched: AtomicU64,
    pub(crate) impatient: AtomicU64,
    pub(crate) bad: AtomicU64,
    pub(crate) redundant: AtomicU64,
    pub(crate) refused: AtomicU64,
    pub(crate) displaced: AtomicU64,
}

/// The counters at one time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Snapshot {
    /// Clients that wait for their partner now.
    pub waiting: u64,
    /// Pairs that are connected now.
    pub paired: u64,
    /// Pairs that were connected since the start.
    pub matched: u64,
    /// How long the first of each pair had waited, together.
    pub waited: Duration,
    /// The longest of these waits.
    pub waited_max: Duration,
    /// Clients that left, or were closed after `wait_timeout`, without a partner.
    pub unmatched: u64,
    /// Clients that sent something before their `ok`.
    pub impatient: u64,
    /// Clients with a bad handshake.
    pub bad: u64,
    /// Clients closed because another connection of their side was connected.
    pub redundant: u64,
    /// Clients refused because their token is in use, or their side has too many connections.
    pub refused: u64,
    /// Clients that a newcomer replaced, because as many waited as may.
    pub displaced: u64,
}

impl Statistics {
    /// Reads all of them.
    pub fn read(&self) -> Snapshot {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Snapshot {
            waiting: read(&self.waiting),
            paired: read(&self.paired_ends).div_ceil(2),
            matched: read(&self.matched),
            waited: Duration::from_nanos(read(&self.waited_ns)),
            waited_max: Duration::from_nanos(read(&self.waited_ns_max)),
            unmatched: read(&self.unmatched),
            impatient: read(&self.impatient),
            bad: read(&self.bad),
            redundant: read(&self.redundant),
            refused: read(&self.refused),
            displaced: read(&self.displaced),
        }
    }

    pub(crate) fn add(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn subtract(counter: &AtomicU64) {
        counter.fetch_sub(1, Ordering::Relaxed);
    }

    pub(crate) fn waited(&self, time: Duration) {
        let ns = time.as_nanos() as u64;
        self.waited_ns.fetch_add(ns, Ordering::Relaxed);
        self.waited_ns_max.fetch_max(ns, Ordering::Relaxed);
    }
}

/// The metrics of a relay; for display.
#[rustfmt::skip]
pub const METRICS: &[Metric<Snapshot>] = &[
    Metric::gauge("flatpath_relay_clients_waiting",
        "Clients that wait for their partner now.", &[],
        |it, out| out.put(&[], it.waiting)),
    Metric::counter("flatpath_relay_pairs_total",
        "Pairs of clients that were connected.", &[],
        |it, out| out.put(&[], it.matched)),
    Metric::counter("flatpath_relay_wait_seconds_total",
        "How long the first of each pair had waited, together.", &[],
        |it, out| out.put(&[], it.waited)),
    Metric::gauge("flatpath_relay_wait_longest_seconds",
        "The longest wait of a client that was connected.", &[],
        |it, out| out.put(&[], it.waited_max)),
    Metric::counter("flatpath_relay_clients_unserved_total",
        "Clients closed without a partner.", &["reason"],
        |it, out| {
            out.put(&["alone"], it.unmatched);
            out.put(&["impatient"], it.impatient);
            out.put(&["bad_handshake"], it.bad);
            out.put(&["redundant"], it.redundant);
            out.put(&["refused"], it.refused);
            out.put(&["displaced"], it.displaced);
        }),
];
