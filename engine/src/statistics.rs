//! Counters: written by one network thread each, for each of its listeners, and summed by readers.
//!
//! A `Counters` belongs to one listener on one network thread, which alone adds to it: a load and
//! a store, on cache lines that no other thread writes. What workers count (panics of handlers) is
//! added by whichever thread it is. [`Statistics`] is what a reader gets: plain numbers, of one
//! listener on one thread, or sums.
//!
//! Relaxed throughout: read them for trends, not for exactness at one instant. What one thread
//! counts is read in no particular order.

use std::ops::AddAssign;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::mark::{JobState, Mark};

/// Classes of requests that a listener may count; see
/// [`ListenerOptions::request_classes`](crate::ListenerOptions::request_classes).
pub const REQUEST_CLASSES_MAX: usize = 8;

/// A counter that one thread adds to and any may read.
#[derive(Debug, Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    /// For the one thread that counts here.
    #[inline]
    pub(crate) fn add(&self, count: u64) {
        let sum = self.read().wrapping_add(count);
        // ORDER: Relaxed: a figure, it publishes nothing; no other thread stores here.
        self.0.store(sum, Ordering::Relaxed);
    }

    /// For any thread, where no thread uses [`Count::add`].
    pub(crate) fn add_from_any(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    /// The same as [`Count::add`], up to a sum.
    pub(crate) fn raise(&self, sum: u64) {
        self.add(sum.saturating_sub(self.read()));
    }

    pub(crate) fn read(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

macro_rules! statistics {
    ($($(#[doc = $doc:literal])* $name:ident,)*) => {
        /// What one listener counts on one network thread.
        #[derive(Debug, Default)]
        #[repr(C, align(128))]
        pub(crate) struct Counters {
            // A request writes these.
            pub(crate) received_bytes: Count,
            pub(crate) sent_bytes: Count,
            pub(crate) requests: [Count; REQUEST_CLASSES_MAX],
            $(pub(crate) $name: Count,)*
        }

        /// What happened since the server started: at one listener on one network thread, or the
        /// sum of several of these.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Statistics {
            /// Bytes received from clients.
            pub received_bytes: u64,
            /// Bytes that the kernel has taken for clients.
            pub sent_bytes: u64,
            /// Requests answered, by the listener's
            /// [`request_classes`](crate::ListenerOptions::request_classes).
            pub requests: [u64; REQUEST_CLASSES_MAX],
            $($(#[doc = $doc])* pub $name: u64,)*
        }

        impl Counters {
            pub(crate) fn read(&self) -> Statistics {
                Statistics {
                    received_bytes: self.received_bytes.read(),
                    sent_bytes: self.sent_bytes.read(),
                    requests: std::array::from_fn(|class| self.requests[class].read()),
                    $($name: self.$name.read(),)*
                }
            }
        }

        impl AddAssign for Statistics {
            fn add_assign(&mut self, other: Statistics) {
                self.received_bytes += other.received_bytes;
                self.sent_bytes += other.sent_bytes;
                for (sum, requests) in self.requests.iter_mut().zip(other.requests) {
                    *sum += requests;
                }
                $(self.$name += other.$name;)*
            }
        }
    };
}

statistics! {
    /// Connections accepted, those included that were refused then.
    accepted,
    /// Of these, connections that got a place in a table.
    opened,
    /// Of these, connections closed, for whatever reason.
    closed,
    /// Connections refused because there was no room for them.
    refused,
    /// Of those, connections refused because their address had its share.
    refused_by_address,
    /// Connections refused because of the PROXY protocol: they came from elsewhere than the
    /// listener's balancers, or without a header that is accepted.
    refused_headers,
    /// Connections closed before their time, so that a newcomer had a place.
    evicted,
    /// Times accept was paused because the kernel had no descriptor or no memory.
    accept_pauses,
    /// Connections closed because nothing of a request came for too long.
    expired_idle,
    /// Connections closed because a request's head was not complete in time.
    expired_head,
    /// Connections closed because a body came too slowly.
    expired_body,
    /// Connections closed because nothing was pushed for too long.
    expired_push,
    /// Connections closed because what they waited for did not come, another client for one.
    expired_wait,
    /// Spliced connections closed because neither end sent anything for too long.
    expired_spliced,
    /// Connections closed because the client did not read.
    expired_send,
    /// Connections closed because the client did not end its side in time.
    expired_linger,
    /// Connections refused because what they waited for in the server was not there in time.
    expired_stall,
    /// Times input waited because the client did not read.
    output_stalls,
    /// Times input waited because as many requests of the connection were with workers as may be.
    pipeline_stalls,
    /// Times input waited because as many requests were in flight as may be.
    jobs_stalls,
    /// Times input waited because as many requests lasted as may.
    lasting_stalls,
    /// Times input waited because the memory budget was used up.
    memory_stalls,
    /// Times input waited because the connection held its share of the memory for buffers.
    share_stalls,
    /// The same because its address held more than its share of that memory.
    address_share_stalls,
    /// The same because its listener held more than its share of that memory.
    listener_share_stalls,
    /// Times input waited for something outside of the engine.
    outside_stalls,
    /// Receives that found every receive buffer in use.
    receive_stalls,
    /// Times a connection stopped receiving because its users held too many fragments.
    keep_stalls,
    /// Times a connection brought much while others waited or receive buffers were scarce, and was
    /// received from one buffer at a time from then on.
    crowding,
    /// Bytes of bodies handed on in the page they were received in.
    body_bytes_kept,
    /// Bytes of bodies that had to be copied within this process.
    body_bytes_copied,
    /// Connections ended while others waited for memory: those that held most and moved least.
    holders_ended,
    /// Requests that were stalled and then refused for want of room.
    stalls_refused,
    /// Pairs of connections that were spliced.
    spliced,
    /// Pairs whose end has begun; those between `spliced` and this are spliced now.
    unspliced,
    /// Splices that were refused, because the other end was gone by then or spliced already.
    splices_refused,
    /// Bytes that went from one connection to another without a worker.
    spliced_bytes,
    /// Of those, bytes that were moved by reference and not copied.
    spliced_bytes_moved,
    /// Jobs sent to workers.
    dispatched,
    /// Jobs that had to wait because their listener had its share of the workers.
    share_waits,
    /// Those of them that have gone to workers since; the others wait now.
    share_waits_over,
    /// Jobs that had to wait because there was no memory for their reply.
    memory_waits,
    /// Those of them that have gone to workers since; the others wait now.
    memory_waits_over,
    /// Panics caught in handlers that workers ran.
    handler_panics,
    /// Places whose requests are no longer tried on network threads, because a try made others
    /// wait; see [`prompt`](crate::prompt).
    prompt_rights_lost,
}

impl Statistics {
    /// Connections open now.
    pub fn connections(&self) -> u64 {
        self.opened.saturating_sub(self.closed)
    }

    /// Jobs that are not with workers nor in their queue: they wait for their listener's share, or
    /// for memory.
    pub fn held_back(&self) -> u64 {
        let waits = self.share_waits + self.memory_waits;
        waits.saturating_sub(self.share_waits_over + self.memory_waits_over)
    }

    /// Connections closed because a deadline passed.
    pub fn expired(&self) -> u64 {
        self.expired_by_phase().map(|(_, count)| count).iter().sum()
    }

    /// The same by what the connection was at: the name of its [`Phase`](crate::Phase), or `send`,
    /// `linger`, `stall`.
    pub fn expired_by_phase(&self) -> [(&'static str, u64); 9] {
        [
            ("idle", self.expired_idle),
            ("head", self.expired_head),
            ("body", self.expired_body),
            ("push", self.expired_push),
            ("wait", self.expired_wait),
            ("spliced", self.expired_spliced),
            ("send", self.expired_send),
            ("linger", self.expired_linger),
            ("stall", self.expired_stall),
        ]
    }

    /// How often input waited, by cause: the name of a [`Stall`](crate::Stall), or what the engine
    /// found by itself.
    pub fn stalls_by_cause(&self) -> [(&'static str, u64); 11] {
        [
            ("output", self.output_stalls),
            ("pipeline", self.pipeline_stalls),
            ("jobs", self.jobs_stalls),
            ("lasting", self.lasting_stalls),
            ("memory", self.memory_stalls),
            ("share", self.share_stalls),
            ("address_share", self.address_share_stalls),
            ("listener_share", self.listener_share_stalls),
            ("outside", self.outside_stalls),
            ("receive_buffers", self.receive_stalls),
            ("pages", self.keep_stalls),
        ]
    }
}

/// Buckets of a histogram of durations: up to 2^10 ns, 2^11 ns and so on, and one for the rest.
pub const DURATION_BUCKETS: usize = 26;

/// The bound of the first bucket is a power of two of nanoseconds, this one.
const FIRST_BOUND_BITS: u32 = 10;

/// What one network thread counts, and what its listeners do.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct ThreadCounters {
    /// `uring`, `epoll` or `simulation`.
    pub(crate) driver: &'static str,
    /// In the thread's order, with the number of each in the server.
    listeners: Box<[(u16, Counters)]>,
    turns: [Count; DURATION_BUCKETS],
    turns_ns: Count,
    pub(crate) signals: Count,
    pub(crate) signal_panics: Count,
    pub(crate) dispatch_ns: Count,
    /// Places for jobs that were in use at some time: the first ones of the thread's.
    pub(crate) places_used: Count,
    pub(crate) held_back: HeldBack,
}

/// The oldest of the jobs that a network thread holds back, as it said last.
#[derive(Debug, Default)]
pub(crate) struct HeldBack {
    mark: Mark,
}

impl HeldBack {
    /// The oldest of them is for a listener, and has waited since that time.
    pub(crate) fn tell(&self, oldest: Option<(u16, u64)>) {
        match oldest {
            Some((listener, since_ns)) => self.mark.set(JobState::Queued, listener, since_ns),
            None => self.mark.clear(),
        }
    }

    /// Its listener and since when it has waited, in milliseconds.
    pub(crate) fn oldest(&self) -> Option<(u16, u64)> {
        let mark = self.mark.read()?;
        Some((mark.listener, mark.since_ms))
    }
}

impl ThreadCounters {
    pub(crate) fn new(driver: &'static str, numbers: impl Iterator<Item = u16>) -> ThreadCounters {
        ThreadCounters {
            driver,
            listeners: numbers
                .map(|number| (number, Counters::default()))
                .collect(),
            turns: Default::default(),
            turns_ns: Count::default(),
            signals: Count::default(),
            signal_panics: Count::default(),
            dispatch_ns: Count::default(),
            places_used: Count::default(),
            held_back: HeldBack::default(),
        }
    }

    /// Those of a listener, by the thread's number for it.
    #[inline]
    pub(crate) fn of(&self, listener: u16) -> &Counters {
        &self.listeners[usize::from(listener)].1
    }

    /// The number of a listener in the server, by the thread's number for it.
    pub(crate) fn number(&self, listener: u16) -> usize {
        self.listeners
            .get(usize::from(listener))
            .map_or(0, |(number, _)| usize::from(*number))
    }

    /// The listeners by their numbers in the server.
    pub(crate) fn listeners(&self) -> impl Iterator<Item = (usize, &Counters)> {
        let listeners = self.listeners.iter();
        listeners.map(|(number, counters)| (usize::from(*number), counters))
    }

    /// A turn of the thread took so long.
    #[inline]
    pub(crate) fn turn_ended(&self, turn_ns: u64) {
        self.turns[bucket_of(turn_ns)].add(1);
        self.turns_ns.add(turn_ns);
    }

    pub(crate) fn turns(&self) -> Durations {
        Durations {
            counts: std::array::from_fn(|bucket| self.turns[bucket].read()),
            sum: Duration::from_nanos(self.turns_ns.read()),
        }
    }
}

#[inline]
fn bucket_of(ns: u64) -> usize {
    let bits = (ns.saturating_sub(1) >> FIRST_BOUND_BITS).checked_ilog2();
    bits.map_or(0, |bits| bits as usize + 1)
        .min(DURATION_BUCKETS - 1)
}

/// A histogram of durations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Durations {
    /// How many fell into each bucket: above the [bound](Durations::bound) of the one before, up to
    /// its own.
    pub counts: [u64; DURATION_BUCKETS],
    /// All of them together.
    pub sum: Duration,
}

impl Durations {
    /// The longest duration of a bucket; `None` for the last one, which has none.
    pub fn bound(bucket: usize) -> Option<Duration> {
        let bits = FIRST_BOUND_BITS + u32::try_from(bucket).ok()?;
        (bucket + 1 < DURATION_BUCKETS).then(|| Duration::from_nanos(1 << bits))
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_have_every_counter() {
        let counters = Counters::default();
        counters.requests[3].add(1);
        counters.sent_bytes.add(2);
        counters.share_waits_over.add(3);
        counters.handler_panics.add_from_any(4);
        let one = counters.read();
        let mut sum = one;
        sum += one;
        assert_eq!((one.requests[3], sum.requests[3]), (1, 2));
        assert_eq!((sum.sent_bytes, sum.share_waits_over), (4, 6));
        assert_eq!(sum.handler_panics, 8);
    }

    #[test]
    fn a_duration_falls_into_the_first_bucket_whose_bound_it_does_not_exceed() {
        for (ns, bucket) in [(0, 0), (1_024, 0), (1_025, 1), (2_048, 1), (2_049, 2)] {
            assert_eq!(bucket_of(ns), bucket, "{ns}");
        }
        assert_eq!(bucket_of(u64::MAX), DURATION_BUCKETS - 1);
        for bucket in 0..DURATION_BUCKETS - 1 {
            let bound = Durations::bound(bucket).expect("but for the last");
            assert_eq!(bucket_of(bound.as_nanos() as u64), bucket);
            assert_eq!(bucket_of(bound.as_nanos() as u64 + 1), bucket + 1);
        }
        assert_eq!(Durations::bound(DURATION_BUCKETS - 1), None);
    }

    #[test]
    fn a_thread_counts_turns_and_what_they_took() {
        let thread = ThreadCounters::new("simulation", [4].into_iter());
        thread.turn_ended(1_000);
        thread.turn_ended(3_000);
        thread.of(0).accepted.add(1);
        let turns = thread.turns();
        assert_eq!((turns.counts[0], turns.counts[2], turns.count()), (1, 1, 2));
        assert_eq!(turns.sum, Duration::from_micros(4));
        let numbers: Vec<_> = thread.listeners().map(|(number, _)| number).collect();
        assert_eq!(numbers, [4]);
    }
}
