//! What happened at an ingest listener. Relaxed sums: read them for trends while it runs; they are
//! exact when nothing moves.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

/// A number that many threads change.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    /// Adds to it; the sum.
    pub(crate) fn add(&self, count: u64) -> u64 {
        self.0.fetch_add(count, Ordering::Relaxed) + count
    }

    pub(crate) fn subtract(&self, count: u64) {
        self.0.fetch_sub(count, Ordering::Relaxed);
    }

    pub(crate) fn read(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The counters of one listener; [`Figures`] says what each counts.
#[derive(Debug, Default)]
pub(crate) struct Statistics {
    pub(crate) messages: Counter,
    pub(crate) bytes: Counter,
    pub(crate) fragments: Counter,
    pub(crate) stalls: Counter,
    pub(crate) messages_cut_off: Counter,
    pub(crate) messages_too_long: Counter,
    pub(crate) producers_refused: Counter,
    pub(crate) producers: Counter,
    pub(crate) detached: Counter,
    pub(crate) held: Counter,
    pub(crate) returned: Counter,
    pub(crate) refused: Counter,
    pub(crate) reclaimed: Counter,
}

impl Statistics {
    /// The counters at this moment, without pages and consumers.
    pub(crate) fn read(&self) -> Figures {
        Figures {
            messages: self.messages.read(),
            bytes: self.bytes.read(),
            fragments: self.fragments.read(),
            stalls: self.stalls.read(),
            messages_cut_off: self.messages_cut_off.read(),
            messages_too_long: self.messages_too_long.read(),
            producers_refused: self.producers_refused.read(),
            producers: self.producers.read(),
            detached: self.detached.read(),
            held: self.held.read(),
            returned: self.returned.read(),
            refused: self.refused.read(),
            reclaimed: self.reclaimed.read(),
            ..Figures::default()
        }
    }
}

/// Counts what a producer did wrong, and logs it when the count is a power of two: any client can
/// make it happen as often as it likes.
pub(crate) fn log_seldom(counter: &Counter, what: &dyn fmt::Display) {
    let count = counter.add(1);
    if count.is_power_of_two() {
        log::info!("{what} ({count} until now)");
    }
}

/// What a listener has done and where its pages are, at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Pages of all regions.
    pub pages: u64,
    /// Pages with messages, on their way or with consumers; the others are with the kernel.
    pub pages_retained: u64,
    /// Of these, pages of which consumers have tokens.
    pub pages_with_consumers: u64,
    /// Consumers attached now.
    pub consumers: u64,
    /// Messages delivered.
    pub messages: u64,
    /// Bytes delivered.
    pub bytes: u64,
    /// Fragments delivered.
    pub fragments: u64,
    /// Times a producer waited for room of its consumer, or for a consumer.
    pub stalls: u64,
    /// Messages whose producer left before their end.
    pub messages_cut_off: u64,
    /// Producers cut off for a length above the limit.
    pub messages_too_long: u64,
    /// Producers refused: as many are connected as may be, or the token is not theirs to name.
    pub producers_refused: u64,
    /// Producers connected now that have sent something.
    pub producers: u64,
    /// Consumers that have left, for whatever reason.
    pub detached: u64,
    /// Fragments with consumers.
    pub held: u64,
    /// Fragments returned.
    pub returned: u64,
    /// Returns that were refused: repeated, forged, stale or another consumer's.
    pub refused: u64,
    /// Fragments taken back from consumers that have left.
    pub reclaimed: u64,
}

impl Figures {
    /// Pages that can be received into.
    pub fn pages_in_ring(&self) -> u64 {
        // Read while pages move: the two figures may not fit each other.
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
        let pairs = pairs.map(|(name, count)| format!("{name}={count}"));
        formatter.write_str(&pairs.join(" "))
    }
}
