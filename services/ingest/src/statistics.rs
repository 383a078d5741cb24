//! What happened at an ingest listener. Relaxed sums: read them for trends while it runs; they are
//! exact when nothing moves.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

/// A number that many threads change.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds to it; the sum.
    pub(crate) fn add(&self, count: u64) -> u64 {
        self.0.fetch_add(count, Ordering::Relaxed) + count
    }

    pub(crate) fn subtract(&self, count: u64) {
        self.0.fetch_sub(count, Ordering::Relaxed);
    }

    /// The number now.
    pub fn read(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The counters of one listener.
#[derive(Debug, Default)]
pub struct Statistics {
    /// Messages delivered to consumers.
    pub messages: Counter,
    /// Bytes of them.
    pub bytes: Counter,
    /// Fragments of them.
    pub fragments: Counter,
    /// Bytes that were copied into a page that another piece of the same message left unfilled.
    pub bytes_gathered: Counter,
    /// Times a producer waited for room of its consumer, or for a consumer.
    pub stalls: Counter,
    /// Messages that began and whose producer went before their end.
    pub messages_cut_off: Counter,
    /// Producers that were cut off for a length above the limit.
    pub messages_too_long: Counter,
    /// Producers that were refused because as many are connected as may be.
    pub producers_refused: Counter,
    /// Producers connected that have sent something.
    pub producers: Counter,
    /// Consumers attached since the start.
    pub attached: Counter,
    /// Consumers that are gone, for whatever reason.
    pub detached: Counter,
    /// Fragments with consumers.
    pub held: Counter,
    /// Fragments that consumers returned.
    pub returned: Counter,
    /// Returns that were refused: twice, forged, stale or another one's.
    pub refused: Counter,
    /// Fragments that consumers held when they went, taken back.
    pub reclaimed: Counter,
}

/// All of it at one moment, and where the pages are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Pages of all regions.
    pub pages: u64,
    /// Pages with messages, on their way or with consumers; the others are with the kernel.
    pub pages_retained: u64,
    /// Of these, pages of which consumers have tokens.
    pub pages_with_consumers: u64,
    /// Fragments with consumers.
    pub held: u64,
    /// Messages delivered.
    pub messages: u64,
    /// Bytes delivered.
    pub bytes: u64,
    /// Fragments delivered.
    pub fragments: u64,
    /// Fragments returned.
    pub returned: u64,
    /// Times a producer waited.
    pub stalls: u64,
    /// Returns that were refused.
    pub refused: u64,
    /// Fragments taken back from consumers that were gone.
    pub reclaimed: u64,
    /// Consumers attached now.
    pub consumers: u64,
    /// Producers connected now.
    pub producers: u64,
}

impl Figures {
    /// Pages that can be received into.
    pub fn pages_in_ring(&self) -> u64 {
        self.pages.saturating_sub(self.pages_retained)
    }

    /// Pages that only this process holds: of messages that are not whole, or wait for room.
    pub fn pages_with_handlers(&self) -> u64 {
        self.pages_retained
            .saturating_sub(self.pages_with_consumers)
    }
}

/// One line, `name=count` each; `held` and what follows count fragments.
impl fmt::Display for Figures {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pairs = [
            ("messages", self.messages),
            ("bytes", self.bytes),
            ("pages", self.pages),
            ("pages_in_ring", self.pages_in_ring()),
            ("pages_with_handlers", self.pages_with_handlers()),
            ("pages_with_consumers", self.pages_with_consumers),
            ("consumers", self.consumers),
            ("held", self.held),
            ("delivered", self.fragments),
            ("returned", self.returned),
            ("reclaimed", self.reclaimed),
            ("refused", self.refused),
            ("producers", self.producers),
            ("stalls", self.stalls),
        ];
        for (position, (name, count)) in pairs.into_iter().enumerate() {
            let gap = if position == 0 { "" } else { " " };
            write!(formatter, "{gap}{name}={count}")?;
        }
        Ok(())
    }
}
