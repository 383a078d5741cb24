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

use crate::observe::metrics::{Histogram, Metric};
use crate::protocol::phase::Stall;

/// Classes of requests that a listener may count; see
/// [`ListenerOptions::request_classes`](crate::ListenerOptions::request_classes).
pub const REQUEST_CLASSES_MAX: usize = 8;

/// Reasons for which a listener may refuse requests; see
/// [`ListenerOptions::refusal_reasons`](crate::ListenerOptions::refusal_reasons).
pub const REFUSAL_REASONS_MAX: usize = 48;

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

/// Requests refused, by their reasons.
#[derive(Debug)]
pub(crate) struct Refusals([Count; REFUSAL_REASONS_MAX]);

impl Default for Refusals {
    fn default() -> Self {
        Self(std::array::from_fn(|_| Count::default()))
    }
}

impl Refusals {
    /// For the one thread that counts here. Nothing for a reason that is none.
    pub(crate) fn add(&self, reason: usize) {
        if let Some(count) = self.0.get(reason) {
            count.add(1);
        }
    }

    pub(crate) fn read(&self, reason: usize) -> u64 {
        self.0.get(reason).map_or(0, Count::read)
    }
}

macro_rules! statistics {
    (
        counters { $($(#[doc = $help:literal])* $counter:ident,)* }
        groups { $(
            $(#[doc = $about:literal])* $group:ident by $label:ident {
                $($(#[doc = $doc:literal])* $member:ident = $value:literal,)*
            }
        )* }
        hidden { $($(#[doc = $part:literal])* $hidden:ident,)* }
    ) => {
        /// What one listener counts on one network thread.
        #[derive(Debug, Default)]
        #[repr(C, align(128))]
        pub(crate) struct Counters {
            // A request writes these, and the first two of the others.
            pub(crate) requests: [Count; REQUEST_CLASSES_MAX],
            $(pub(crate) $counter: Count,)*
            $($(pub(crate) $member: Count,)*)*
            $(pub(crate) $hidden: Count,)*
            pub(crate) refusals: Refusals,
        }

        /// What happened since the server started: at one listener on one network thread, or the
        /// sum of several of these.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Statistics {
            /// Requests answered, by the listener's
            /// [`request_classes`](crate::ListenerOptions::request_classes).
            pub requests: [u64; REQUEST_CLASSES_MAX],
            $($(#[doc = $help])* pub $counter: u64,)*
            $($($(#[doc = $doc])* pub $member: u64,)*)*
            $($(#[doc = $part])* pub $hidden: u64,)*
        }

        impl Counters {
            pub(crate) fn read(&self) -> Statistics {
                Statistics {
                    requests: std::array::from_fn(|class| self.requests[class].read()),
                    $($counter: self.$counter.read(),)*
                    $($($member: self.$member.read(),)*)*
                    $($hidden: self.$hidden.read(),)*
                }
            }
        }

        impl AddAssign for Statistics {
            fn add_assign(&mut self, other: Statistics) {
                for (sum, requests) in self.requests.iter_mut().zip(other.requests) {
                    *sum += requests;
                }
                $(self.$counter += other.$counter;)*
                $($(self.$member += other.$member;)*)*
                $(self.$hidden += other.$hidden;)*
            }
        }

        impl Statistics {
            $(
                $(#[doc = $about])*
                ///
                /// This is the sum.
                pub fn $group(&self) -> u64 {
                    0 $(+ self.$member)*
                }
            )*
        }

        /// The metrics of a listener on a network thread, but for its requests.
        pub(crate) const METRICS: &[Metric<Statistics>] = &[
            Metric::gauge("flatpath_connections", "Connections that are open now.", &[],
                |it, out| out.put(&[], it.connections())),
            Metric::gauge("flatpath_spliced_pairs",
                "Pairs of connections that are spliced now, as a relay does.", &[],
                |it, out| out.put(&[], it.spliced_pairs.saturating_sub(it.unspliced))),
            $(Metric::counter(
                concat!("flatpath_", stringify!($counter), "_total"),
                concat!($($help),*).trim_ascii_start(),
                &[],
                |it, out| out.put(&[], it.$counter),
            ),)*
            $(Metric::counter(
                concat!("flatpath_", stringify!($group), "_total"),
                concat!($($about),*).trim_ascii_start(),
                &[stringify!($label)],
                |it, out| {
                    $(out.put(&[$value], it.$member);)*
                },
            ),)*
        ];
    };
}

// A counter is also the metric `flatpath_NAME_total`, and its comment is the help of that; so are
// groups, whose members a label tells apart. What is hidden is a part of other numbers.
statistics! {
    counters {
        /// Bytes received from clients.
        received_bytes,
        /// Bytes that the kernel has taken for clients.
        sent_bytes,
        /// Connections accepted, also those that were refused then.
        connections_accepted,
        /// Connections to other servers that were opened for protocols, and stood.
        connections_opened,
        /// Connections that are open no more, for whatever reason; those that could not be opened,
        /// too.
        connections_closed,
        /// Connections closed while they were idle, so that a new one had a place.
        connections_evicted,
        /// Connections ended while others waited for memory: those that held most and moved least.
        connections_ended_for_memory,
        /// Connections ended because their address held more than its share and others needed some:
        /// those whose requests had lasted longest.
        connections_ended_for_address,
        /// Times accept was paused because the kernel had no descriptor or no memory.
        accept_pauses,
        /// Requests refused because what they waited for was not there in time.
        stalls_refused,
        /// Times a connection brought so much while others waited that it was received from one
        /// buffer at a time.
        bulk_flows,
        /// Pairs of connections that were spliced.
        spliced_pairs,
        /// Splices refused because the other end was gone or spliced already.
        splices_refused,
        /// Requests sent to workers.
        jobs_dispatched,
        /// Panics of handlers that workers ran.
        handler_panics,
        /// Datagrams received.
        datagrams_received,
        /// Replies to datagrams that were sent.
        datagrams_answered,
        /// Mounts and routes that network threads do not try any more, because a try made others
        /// wait.
        prompt_rights_lost,
    }
    groups {
        /// Connections refused: no room, their address had its share, or no PROXY header that is
        /// accepted.
        connections_refused by reason {
            /// Because there was no room for them.
            refused_room = "room",
            /// Because their address had its share.
            refused_address = "address",
            /// They came from elsewhere than the listener's balancers, or without a header of the
            /// PROXY protocol that is accepted.
            refused_proxy_header = "proxy_header",
        }
        /// Connections to other servers that could not be opened, by reason.
        connections_failed by reason {
            /// The server was being ended.
            connect_draining = "draining",
            /// As many connections as there are places.
            connect_no_place = "no_place",
            /// There was no descriptor for them.
            connect_no_descriptor = "no_descriptor",
            /// There was no memory for them.
            connect_no_memory = "no_memory",
            /// No local port was free for another one to there.
            connect_no_port = "no_port",
            /// No process listened there.
            connect_refused = "refused",
            /// There was no way to there.
            connect_unreachable = "unreachable",
            /// Nothing came back in time.
            connect_timed_out = "timed_out",
            /// As many waited at the Unix socket as its listener took.
            connect_busy = "busy",
            /// TLS could not be agreed on.
            connect_tls = "tls",
            /// The kernel said something else.
            connect_other = "other",
        }
        /// TLS handshakes that were completed, by their kind.
        tls_handshakes by kind {
            /// With a certificate.
            tls_full = "full",
            /// Of a session that the client has had before.
            tls_resumed = "resumed",
        }
        /// TLS handshakes that were completed, by the version that was agreed on.
        tls_versions by version {
            /// RFC 5246.
            tls_12 = "1.2",
            /// RFC 8446.
            tls_13 = "1.3",
        }
        /// Connections with TLS that were ended by a failed handshake or a breach of its rules, by
        /// the cause.
        tls_failures by cause {
            /// The client does not speak TLS.
            tls_none = "no_tls",
            /// No version, cipher or protocol is in common.
            tls_incompatible = "incompatible",
            /// The client has no certificate, or one that does not hold.
            tls_client_certificate = "client_certificate",
            /// The client has ended the handshake: it does not take the certificate, for one.
            tls_refused = "refused",
            /// Anything else in a handshake.
            tls_unshaken = "handshake",
            /// Later: records that were changed, or that break the rules.
            tls_broken = "records",
            /// Later: the stream ended within a record or a request, or before its reply, and the
            /// client had not said so. One that ends between requests is no failure.
            tls_cut_off = "cut_off",
            /// Later: the client has ended the connection with an alert.
            tls_alert = "alert",
        }
        /// Connections closed because a deadline passed, by what they were at.
        connections_expired by phase {
            /// Nothing of a request came for too long.
            expired_idle = "idle",
            /// A request's head was not complete in time.
            expired_head = "head",
            /// A body came too slowly.
            expired_body = "body",
            /// Nothing was pushed for too long.
            expired_push = "push",
            /// What they waited for did not come, another client for one.
            expired_wait = "wait",
            /// Spliced connections: neither end sent anything for too long.
            expired_spliced = "spliced",
            /// The client did not read.
            expired_send = "send",
            /// The client did not end its side in time.
            expired_linger = "linger",
            /// What they waited for in the server was not there in time.
            expired_stall = "stall",
        }
        /// Times the input of a connection had to wait, by cause.
        stalls by cause {
            /// The client did not read.
            output_stalls = "output",
            /// As many requests of the connection were with workers as may be.
            pipeline_stalls = "pipeline",
            /// What took a body was slower than its client.
            body_stalls = "body",
            /// As many requests were in flight as may be.
            jobs_stalls = "jobs",
            /// As many requests lasted as may.
            lasting_stalls = "lasting",
            /// The memory budget was used up.
            memory_stalls = "memory",
            /// The connection held its share of the memory for buffers.
            share_stalls = "share",
            /// Its address held more than its share of that memory.
            address_share_stalls = "address_share",
            /// Its listener held more than its share of that memory.
            listener_share_stalls = "listener_share",
            /// Something outside of the engine.
            outside_stalls = "outside",
            /// Receives that found every receive buffer in use.
            receive_buffers_stalls = "receive_buffers",
            /// The connection's users held too many fragments.
            pages_stalls = "pages",
        }
        /// Datagrams that were not received or not answered, by reason.
        datagrams_dropped by reason {
            /// Their socket had no room for them.
            dropped_socket = "socket",
            /// They were longer than a datagram may be.
            dropped_long = "long",
            /// A reply would have gone to a group of hosts, to port 0 or to the socket itself.
            dropped_unanswerable = "unanswerable",
            /// As many were with workers as may be.
            dropped_work = "work",
            /// Their address had its share of those that are with workers.
            dropped_address = "address",
            /// The memory budget was used up.
            dropped_memory = "memory",
            /// The reply was longer than it may be to an address that has not answered.
            dropped_amplification = "amplification",
            /// The service panicked.
            dropped_panic = "panic",
            /// The socket did not take the reply.
            dropped_send = "send",
        }
        /// Bytes of bodies handed on where they were received, moved by reference, or copied within
        /// the process.
        body_bytes by way {
            /// Handed on in the page they were received in.
            body_bytes_retained = "retained",
            /// Moved by reference, in a pipe.
            body_bytes_moved = "moved",
            /// Copied within this process.
            body_bytes_copied = "copied",
        }
        /// Bytes from one connection to another without a worker: copied, or moved by reference.
        spliced_bytes by way {
            /// Copied.
            spliced_bytes_copied = "copied",
            /// Moved by reference.
            spliced_bytes_moved = "moved",
        }
        /// Requests that waited for their listener's share of the workers, for their own part of
        /// them, or for memory.
        jobs_held_back by reason {
            /// Their listener had its share of the workers.
            held_back_share = "share",
            /// They were for a part of the workers, and that was full.
            held_back_part = "part",
            /// There was no memory for their reply.
            held_back_memory = "memory",
        }
    }
    hidden {
        /// Connections that got a place in a table: accepted, or to be opened.
        opened,
        /// Pairs whose end has begun; those between `spliced_pairs` and this are spliced now.
        unspliced,
    }
}

impl Statistics {
    /// Connections open now.
    pub fn connections(&self) -> u64 {
        self.opened.saturating_sub(self.connections_closed)
    }
}

/// Buckets of a histogram of durations: up to 2^10 ns, 2^11 ns and so on, and one for the rest.
pub const DURATION_BUCKETS: usize = 26;

/// The bound of the first bucket is a power of two of nanoseconds, this one.
const FIRST_BOUND_BITS: u32 = 10;

impl Counters {
    /// The input of a connection has stalled.
    pub(crate) fn stalled(&self, stall: Stall) {
        let count = match stall {
            // Neither is a shortage.
            Stall::Turn | Stall::Step => return,
            Stall::Output => &self.output_stalls,
            Stall::Pipeline => &self.pipeline_stalls,
            Stall::Body => &self.body_stalls,
            Stall::Jobs => &self.jobs_stalls,
            Stall::LongLived => &self.lasting_stalls,
            Stall::Memory => &self.memory_stalls,
            Stall::Share => &self.share_stalls,
            Stall::Outside => &self.outside_stalls,
        };
        count.add(1);
    }
}

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
#[non_exhaustive]
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

    /// The same in seconds.
    pub(crate) fn histogram(&self) -> Histogram {
        let bounds = (0..DURATION_BUCKETS).filter_map(Durations::bound);
        Histogram {
            bounds: bounds.map(|bound| bound.as_secs_f64()).collect(),
            counts: self.counts.to_vec(),
            sum: self.sum.as_secs_f64(),
        }
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
        counters.unspliced.add(3);
        counters.handler_panics.add_from_any(4);
        let one = counters.read();
        let mut sum = one;
        sum += one;
        assert_eq!((one.requests[3], sum.requests[3]), (1, 2));
        assert_eq!((sum.sent_bytes, sum.unspliced), (4, 6));
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
        thread.of(0).connections_accepted.add(1);
        let turns = thread.turns();
        assert_eq!((turns.counts[0], turns.counts[2], turns.count()), (1, 1, 2));
        assert_eq!(turns.sum, Duration::from_micros(4));
        let numbers: Vec<_> = thread.listeners().map(|(number, _)| number).collect();
        assert_eq!(numbers, [4]);
    }
}
