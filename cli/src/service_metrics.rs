//! The metrics of services, with the listeners that they are of.
//!
//! Listeners that share a relay share its samples; then `address` has the addresses of all.

use std::ops::Range;
use std::sync::Arc;

use flatpath::Running;
use flatpath::lock::Lock;
use flatpath::metrics::{Family, Metric, read, read_each};
use flatpath_files::MountLimits;
use flatpath_ingest::Ingest;
use flatpath_nfs::CallCounts;
use flatpath_relay::Relay;

use crate::tls::{self, Certificates};

/// Services that count, with the numbers of their listeners in the server.
#[derive(Default)]
pub(crate) struct Counting {
    pub(crate) ingests: Vec<(Range<usize>, Ingest)>,
    pub(crate) mounts: Vec<(Range<usize>, SharedMounts)>,
    pub(crate) nfs: Vec<(Range<usize>, CallCounts)>,
    pub(crate) relays: Vec<(Range<usize>, Relay)>,
    pub(crate) certificates: Certificates,
}

/// The mounts of a listener, which change with its sites. A clone is the same.
#[derive(Clone, Debug)]
pub(crate) struct SharedMounts(Arc<Lock<MountLimits>>);

impl SharedMounts {
    pub(crate) fn new(limits: MountLimits) -> Self {
        Self(Arc::new(Lock::new(limits)))
    }

    pub(crate) fn replace(&self, limits: MountLimits) {
        let before = std::mem::replace(&mut *self.0.lock(), limits);
        drop(before);
    }

    fn limits(&self) -> MountLimits {
        self.0.lock().clone()
    }
}

impl Counting {
    /// Reads all of them, now that the listeners have their addresses.
    pub(crate) fn source(
        self,
        running: &Running,
    ) -> impl Fn() -> Vec<Family> + Send + Sync + 'static {
        let ingests = named(running, self.ingests);
        let mounts = named(running, self.mounts);
        let nfs = named(running, self.nfs);
        let relays = named(running, self.relays);
        let certificates = self.certificates;
        move || {
            [
                of(flatpath_ingest::METRICS, &ingests, Ingest::figures),
                of(flatpath_relay::METRICS, &relays, |it| {
                    it.statistics().read()
                }),
                of(flatpath_nfs::METRICS, &nfs, CallCounts::clone),
                of(flatpath_files::METRICS, &mounts, SharedMounts::limits),
                read(tls::METRICS, &certificates),
            ]
            .concat()
        }
    }
}

/// The services with the names and addresses of their listeners.
fn named<S>(running: &Running, services: Vec<(Range<usize>, S)>) -> Vec<(Vec<String>, S)> {
    let services = services.into_iter().map(|(numbers, service)| {
        let bound = &running.listeners()[numbers];
        let addresses: Vec<_> = bound.iter().map(|it| it.address.to_string()).collect();
        let name = bound.first().map_or("", |it| it.name);
        (vec![name.to_owned(), addresses.join(",")], service)
    });
    services.collect()
}

/// The metrics of one kind of service; all of them are there also without a listener of it.
fn of<S, T>(
    table: &[Metric<T>],
    services: &[(Vec<String>, S)],
    counts: impl Fn(&S) -> T,
) -> Vec<Family> {
    let services = services.iter();
    let services = services.map(|(labels, service)| (labels.clone(), counts(service)));
    let services: Vec<_> = services.collect();
    read_each(table, &["listener", "address"], &services)
}
