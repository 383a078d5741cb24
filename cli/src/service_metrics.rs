//! What services count for themselves, as metrics beside those of the server.
//!
//! Names and labels are as those of `flatpath-admin`: a sample is of one listener. Listeners that
//! share a relay share its samples; then `address` has the addresses of all.

use std::ops::Range;

use flatpath::Running;
use flatpath_admin::Family;
use flatpath_ingest::{Figures, Ingest};
use flatpath_nfs::CallCounts;
use flatpath_relay::{Relay, Snapshot};

/// Services that count, with the numbers of their listeners in the server.
#[derive(Default)]
pub(crate) struct Counting {
    pub(crate) ingests: Vec<(Range<usize>, Ingest)>,
    pub(crate) nfs: Vec<(Range<usize>, CallCounts)>,
    pub(crate) relays: Vec<(Range<usize>, Relay)>,
}

/// A name, what it means, and where its number is.
type Plain<T> = (&'static str, &'static str, fn(&T) -> f64);

/// The same with the values of one more label.
type Grouped<T> = (
    &'static str,
    &'static str,
    &'static str,
    fn(&T) -> Vec<(&'static str, u64)>,
);

#[rustfmt::skip]
const INGEST_COUNTERS: [Plain<Figures>; 7] = [
    ("flatpath_ingest_messages_total", "Messages delivered to consumers.",
        |it| it.messages as f64),
    ("flatpath_ingest_message_bytes_total", "Bytes of messages delivered to consumers.",
        |it| it.bytes as f64),
    ("flatpath_ingest_fragments_total", "Fragments of messages delivered to consumers.",
        |it| it.fragments as f64),
    ("flatpath_ingest_producer_waits_total",
        "Times a producer waited for room of its consumer, or for a consumer.",
        |it| it.stalls as f64),
    ("flatpath_ingest_producers_refused_total",
        "Producers refused: too many, or a token that is not theirs to name.",
        |it| it.producers_refused as f64),
    ("flatpath_ingest_consumers_detached_total", "Consumers that have left, for whatever reason.",
        |it| it.detached as f64),
    ("flatpath_ingest_returns_refused_total",
        "Returns of fragments that were repeated, forged, stale or another consumer's.",
        |it| it.refused as f64),
];

#[rustfmt::skip]
const INGEST_GROUPS: [Grouped<Figures>; 2] = [
    ("flatpath_ingest_messages_failed_total",
        "Messages not delivered whole: cut off by their producer, or longer than may be.",
        "reason", |it| vec![
            ("cut_off", it.messages_cut_off), ("too_long", it.messages_too_long),
        ]),
    ("flatpath_ingest_fragments_back_total",
        "Fragments that consumers returned, or that were reclaimed from those that had left.",
        "way", |it| vec![("returned", it.returned), ("reclaimed", it.reclaimed)]),
];

#[rustfmt::skip]
const INGEST_GAUGES: [Plain<Figures>; 3] = [
    ("flatpath_ingest_producers", "Producers connected now that have sent something.",
        |it| it.producers as f64),
    ("flatpath_ingest_consumers", "Consumers attached now.", |it| it.consumers as f64),
    ("flatpath_ingest_fragments_held", "Fragments that consumers have and did not return yet.",
        |it| it.held as f64),
];

#[rustfmt::skip]
const RELAY_COUNTERS: [Plain<Snapshot>; 2] = [
    ("flatpath_relay_pairs_total", "Pairs of clients that were connected.",
        |it| it.matched as f64),
    ("flatpath_relay_wait_seconds_total", "How long the first of each pair had waited, together.",
        |it| it.waited.as_secs_f64()),
];

#[rustfmt::skip]
const RELAY_GROUPS: [Grouped<Snapshot>; 1] = [
    ("flatpath_relay_clients_unserved_total", "Clients closed without a partner.",
        "reason", |it| vec![
            ("alone", it.unmatched), ("impatient", it.impatient), ("bad_handshake", it.bad),
            ("redundant", it.redundant), ("refused", it.refused), ("displaced", it.displaced),
        ]),
];

#[rustfmt::skip]
const RELAY_GAUGES: [Plain<Snapshot>; 2] = [
    ("flatpath_relay_clients_waiting", "Clients that wait for their partner now.",
        |it| it.waiting as f64),
    ("flatpath_relay_wait_longest_seconds", "The longest wait of a client that was connected.",
        |it| it.waited_max.as_secs_f64()),
];

#[rustfmt::skip]
const NFS_COUNTERS: [Plain<CallCounts>; 2] = [
    ("flatpath_nfs_calls_repeated_total",
        "Calls that a client sent again and that were not executed again.",
        |it| it.repeated() as f64),
    ("flatpath_nfs_calls_refused_total",
        "Calls of clients that are not allowed, and calls of what is not there.",
        |it| it.refused() as f64),
];

#[rustfmt::skip]
const NFS_GAUGES: [Plain<CallCounts>; 1] = [
    ("flatpath_nfs_files_open", "Files and directories that are kept open for calls to come.",
        |it| it.files_open() as f64),
];

impl Counting {
    /// What makes all metrics, now that the listeners have their addresses. It takes no lock that a
    /// network thread would wait for.
    pub(crate) fn source(
        self,
        running: &Running,
    ) -> impl Fn() -> Vec<Family> + Send + Sync + 'static {
        let ingests = named(running, self.ingests);
        let nfs = named(running, self.nfs);
        let relays = named(running, self.relays);
        move || {
            let ingests: Vec<_> = read(&ingests, Ingest::counters);
            let relays: Vec<_> = read(&relays, |relay| relay.statistics().read());
            let mut families = of_service(
                "ingest",
                &ingests,
                &INGEST_COUNTERS,
                &INGEST_GROUPS,
                &INGEST_GAUGES,
            );
            families.extend(of_service(
                "relay",
                &relays,
                &RELAY_COUNTERS,
                &RELAY_GROUPS,
                &RELAY_GAUGES,
            ));
            let nfs: Vec<_> = read(&nfs, CallCounts::clone);
            families.extend(of_service("nfs", &nfs, &NFS_COUNTERS, &[], &NFS_GAUGES));
            families.push(nfs_calls(&nfs));
            families
        }
    }
}

/// The services with the addresses of their listeners.
fn named<S>(running: &Running, services: Vec<(Range<usize>, S)>) -> Vec<(String, S)> {
    let services = services.into_iter().map(|(numbers, service)| {
        let bound = &running.listeners()[numbers];
        let addresses: Vec<_> = bound.iter().map(|it| it.address.to_string()).collect();
        (addresses.join(","), service)
    });
    services.collect()
}

fn read<S, T>(services: &[(String, S)], counts: impl Fn(&S) -> T) -> Vec<(&str, T)> {
    let services = services.iter();
    let services = services.map(|(address, service)| (address.as_str(), counts(service)));
    services.collect()
}

/// The families of one kind of service; all of them are there also without a listener of it.
fn of_service<T>(
    name: &'static str,
    listeners: &[(&str, T)],
    counters: &[Plain<T>],
    groups: &[Grouped<T>],
    gauges: &[Plain<T>],
) -> Vec<Family> {
    let plain = |family: Family, value: fn(&T) -> f64| {
        listeners.iter().fold(family, |family, (address, it)| {
            family.sample(&[("listener", name), ("address", address)], value(it))
        })
    };
    let counters = counters.iter();
    let counters = counters.map(|(name, help, value)| plain(Family::counter(name, help), *value));
    let gauges = gauges.iter();
    let gauges = gauges.map(|(name, help, value)| plain(Family::gauge(name, help), *value));
    let groups = groups.iter().map(|(family, help, label, values)| {
        let mut family = Family::counter(family, help);
        for (address, it) in listeners {
            for (which, count) in values(it) {
                let labels = [("listener", name), ("address", *address), (*label, which)];
                family = family.sample(&labels, count as f64);
            }
        }
        family
    });
    counters.chain(groups).chain(gauges).collect()
}

/// Calls of NFS have two labels.
fn nfs_calls(listeners: &[(&str, CallCounts)]) -> Family {
    let help = "Calls answered, by procedure and status.";
    let mut family = Family::counter("flatpath_nfs_calls_total", help);
    for (address, counts) in listeners {
        for (procedure, status, count) in counts.answered() {
            let labels = [
                ("listener", "nfs"),
                ("address", address),
                ("procedure", procedure),
                ("status", status),
            ];
            family = family.sample(&labels, count as f64);
        }
    }
    family
}
