//! What the listeners of `flatpath serve` are made of, and is asked while they serve.

use flatpath::sockets::PassedSockets;
use flatpath_ingest::{ControlThread, Ingest};
use flatpath_nfs::{Offer, Offered};
use flatpath_relay::Relay;

use crate::access::Accesses;
use crate::access_log::AccessLogs;
use crate::config::Configuration;
use crate::failure::Failure;
use crate::listener::Listener;
use crate::live::Live;
use crate::memory::Parts;
use crate::nfs_exports::Served;
use crate::owners::SiteOwners;
use crate::redirect::Redirect;
use crate::relay;
use crate::service_metrics::Counting;
use crate::settings::Settings;
use crate::tls::Certificates;

/// Services that run next to the listeners and are asked while they serve.
#[derive(Default)]
pub(crate) struct Services {
    pub(crate) relays: Vec<Relay>,
    pub(crate) ingests: Vec<Ingest>,
    /// For their metrics.
    pub(crate) counting: Counting,
    pub(crate) controls: Vec<ControlThread>,
    /// What portmappers list.
    pub(crate) offers: Vec<OfferedAt>,
    /// The table of all portmappers.
    pub(crate) portmapped: Offered,
    /// The number of the listener for NFS that rpcbind learns of.
    pub(crate) registered: Option<usize>,
    /// The exports of all listeners for NFS.
    pub(crate) exports: Vec<Served>,
    /// The file with the tables of exports.
    pub(crate) file: Configuration,
    /// The numbers of listeners whose clients may change files.
    pub(crate) writable: Vec<usize>,
    /// The numbers of listeners with TLS.
    pub(crate) secured: Vec<usize>,
    /// Of those, the numbers of those that are served without it, too.
    pub(crate) offers_tls: Vec<usize>,
    /// Of those, the one that plain HTTP redirects to, and what redirects.
    pub(crate) redirect: Option<usize>,
    pub(crate) redirected: Redirect,
    pub(crate) certificates: Certificates,
    /// Access rules over HTTP.
    pub(crate) accesses: Accesses,
    /// Which site each directory belongs to.
    pub(crate) owners: SiteOwners,
    /// Sites that a reload replaces.
    pub(crate) live: Vec<Live>,
    /// Listeners so far, and those for datagrams.
    pub(crate) count: usize,
    pub(crate) datagrams: usize,
    /// Sockets that another process has passed.
    pub(crate) passed: PassedSockets,
}

/// A service that portmappers list as soon as it listens.
pub(crate) struct OfferedAt {
    pub(crate) number: Number,
    pub(crate) offer: Offer,
    pub(crate) offered: Offered,
}

/// The number of a listener in the server.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Number {
    Stream(usize),
    Datagrams(usize),
}

impl Services {
    /// None yet; each takes its own of these sockets, and of these listeners' rules of access.
    pub(crate) fn with(
        passed: &PassedSockets,
        file: &Configuration,
        listeners: &[Listener],
        (parts, logs): (&Parts, &AccessLogs),
    ) -> Result<Services, Failure> {
        let mut services = Services {
            passed: passed.clone(),
            file: file.clone(),
            accesses: Accesses::within(parts, logs),
            ..Services::default()
        };
        services.counting.certificates = services.certificates.clone();
        services.owners = SiteOwners::of(listeners, &mut services.accesses)?;
        Ok(services)
    }

    /// A service that portmappers are to list in this table.
    pub(crate) fn offer(&mut self, offer: Offer, number: Number, offered: Offered) {
        self.offers.push(OfferedAt {
            number,
            offer,
            offered,
        });
    }

    /// A relay with these settings, whose clients meet those of the others.
    pub(crate) fn relay(&self, settings: &Settings) -> Relay {
        let relay = relay::service(settings);
        match self.relays.first() {
            Some(first) => relay.meeting(first),
            None => relay,
        }
    }
}
