//! Counters of an ingest listener. Relaxed sums: read them for trends while it runs; they are
//! exact when nothing moves.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use flatpath::metrics::{Metric, line, read};

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
    pub(crate) message_bytes: Counter,
    pub(crate) fragments: Counter,
    pub(crate) producer_waits: Counter,
    pub(crate) messages_cut_off: Counter,
    pub(crate) messages_too_long: Counter,
    pub(crate) producers_refused: Counter,
    pub(crate) producers: Counter,
    pub(crate) consumers_detached: Counter,
    pub(crate) fragments_held: Counter,
    pub(crate) fragments_returned: Counter,
    pub(crate) returns_refused: Counter,
    pub(crate) fragments_reclaimed: Counter,
}

impl Statistics {
    /// The counters at this moment, without pages and consumers.
    pub(crate) fn read(&self) -> Figures {
        Figures {
            messages: self.messages.read(),
            message_bytes: self.message_bytes.read(),
            fragments: self.fragments.read(),
            producer_waits: self.producer_waits.read(),
            messages_cut_off: self.messages_cut_off.read(),
            messages_too_long: self.messages_too_long.read(),
            producers_refused: self.producers_refused.read(),
            producers: self.producers.read(),
            consumers_detached: self.consumers_detached.read(),
            fragments_held: self.fragments_held.read(),
            fragments_returned: self.fragments_returned.read(),
            returns_refused: self.returns_refused.read(),
            fragments_reclaimed: self.fragments_reclaimed.read(),
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

/// The counters of a listener and where its pages are, at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
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
    pub message_bytes: u64,
    /// Fragments delivered.
    pub fragments: u64,
    /// Times a producer waited for room of its consumer, or for a consumer.
    pub producer_waits: u64,
    /// Messages whose producer left before their end.
    pub messages_cut_off: u64,
    /// Producers cut off for a length above the limit.
    pub messages_too_long: u64,
    /// Producers refused: as many are connected as may be, or the token is not theirs to name.
    pub producers_refused: u64,
    /// Producers connected now that have sent something.
    pub producers: u64,
    /// Consumers that have left, for whatever reason.
    pub consumers_detached: u64,
    /// Fragments with consumers.
    pub fragments_held: u64,
    /// Fragments returned.
    pub fragments_returned: u64,
    /// Returns that were refused: repeated, forged, stale or another consumer's.
    pub returns_refused: u64,
    /// Fragments taken back from consumers that have left.
    pub fragments_reclaimed: u64,
}

impl Figures {
    /// Pages that can be received into.
    pub(crate) fn pages_in_ring(&self) -> u64 {
        // Read while pages move: the two figures may not fit each other.
        self.pages.saturating_sub(self.pages_retained)
    }

    /// Pages that only this process holds: of messages that are not whole, or wait for room.
    pub fn pages_with_handlers(&self) -> u64 {
        self.pages_retained
            .saturating_sub(self.pages_with_consumers)
    }
}

/// The metrics of a listener; for display.
#[rustfmt::skip]
pub const METRICS: &[Metric<Figures>] = &[
    Metric::gauge("flatpath_ingest_pages",
        "Pages of receive memory: in the ring of the kernel, with handlers (of a message that is \
         not whole, or waits for room), or with consumers.", &["state"],
        |it, out| {
            out.put(&["in_ring"], it.pages_in_ring());
            out.put(&["with_handlers"], it.pages_with_handlers());
            out.put(&["with_consumers"], it.pages_with_consumers);
        }),
    Metric::gauge("flatpath_ingest_producers",
        "Producers connected now that have sent something.", &[],
        |it, out| out.put(&[], it.producers)),
    Metric::gauge("flatpath_ingest_consumers",
        "Consumers attached now.", &[],
        |it, out| out.put(&[], it.consumers)),
    Metric::counter("flatpath_ingest_messages_total",
        "Messages delivered to consumers.", &[],
        |it, out| out.put(&[], it.messages)),
    Metric::counter("flatpath_ingest_message_bytes_total",
        "Bytes of messages delivered to consumers.", &[],
        |it, out| out.put(&[], it.message_bytes)),
    Metric::counter("flatpath_ingest_messages_failed_total",
        "Messages not delivered whole: cut off by their producer, or longer than may be.",
        &["reason"],
        |it, out| {
            out.put(&["cut_off"], it.messages_cut_off);
            out.put(&["too_long"], it.messages_too_long);
        }),
    Metric::counter("flatpath_ingest_fragments_total",
        "Fragments of messages delivered to consumers.", &[],
        |it, out| out.put(&[], it.fragments)),
    Metric::gauge("flatpath_ingest_fragments_held",
        "Fragments that consumers have and did not return yet.", &[],
        |it, out| out.put(&[], it.fragments_held)),
    Metric::counter("flatpath_ingest_fragments_back_total",
        "Fragments that consumers returned, or that were reclaimed from consumers that had left.",
        &["way"],
        |it, out| {
            out.put(&["returned"], it.fragments_returned);
            out.put(&["reclaimed"], it.fragments_reclaimed);
        }),
    Metric::counter("flatpath_ingest_producer_waits_total",
        "Times a producer waited for room of its consumer, or for a consumer.", &[],
        |it, out| out.put(&[], it.producer_waits)),
    Metric::counter("flatpath_ingest_producers_refused_total",
        "Producers refused: too many, or a token that is not theirs to name.", &[],
        |it, out| out.put(&[], it.producers_refused)),
    Metric::counter("flatpath_ingest_consumers_detached_total",
        "Consumers that have left, for whatever reason.", &[],
        |it, out| out.put(&[], it.consumers_detached)),
    Metric::counter("flatpath_ingest_returns_refused_total",
        "Returns of fragments that were repeated, forged, stale or another consumer's.", &[],
        |it, out| out.put(&[], it.returns_refused)),
];

/// One line of those metrics that are not 0.
impl fmt::Display for Figures {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&line(&read(METRICS, self), &[]))
    }
}
