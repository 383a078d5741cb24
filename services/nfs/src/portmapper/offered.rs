//! The table of what is served, and where: what every portmapper of a server reads.
//!
//! | may run beside | announce | reads |
//! |----------------|----------|-------|
//! | announce       | yes      | yes   |
//! | reads          | yes      | yes   |
//!
//! A client asks for a service by the address that it has reached this machine by. It gets what it
//! can reach: of its own family of addresses, and what listens at a loopback address only if it has
//! come by one. A service that listens at all addresses has, for a client, the one that it came by.
//!
//! The portmapper at the port of NFS lists itself only where there is no other.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};
use flatpath_rpc::{Call, Transport};

use crate::limits::OFFERS_MAX;
use crate::programs::{MOUNT, NFS, PORTMAP, PORTMAP_PROCEDURES};

/// What listens somewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Offer {
    /// The portmapper alone, over TCP.
    Portmapper,
    /// The same over UDP.
    PortmapperDatagrams,
    /// NFS and MOUNT, over TCP.
    Nfs,
    /// MOUNT over UDP, beside NFS.
    MountDatagrams,
}

/// The services of a server, as its portmappers list them. Clones are the same table.
#[derive(Clone, Debug, Default)]
pub struct Offered(Arc<ArcSwap<Table>>);

#[derive(Clone, Debug, Default)]
pub(super) struct Table {
    offers: Vec<(Offer, SocketAddr)>,
    /// What they come to.
    pub(super) entries: Vec<Entry>,
}

/// A version of a program at one place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) program: u32,
    pub(super) version: u32,
    pub(super) transport: Transport,
    pub(super) bound: SocketAddr,
}

/// Which version is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// This one, or none.
    Exactly(u32),
    /// This one, or another: its program then tells which it has.
    Rather(u32),
}

impl Offered {
    /// Lists a service that listens at this address. Only the first
    /// [`OFFERS_MAX`](crate::limits::OFFERS_MAX) are listed.
    pub fn announce(&self, offer: Offer, bound: SocketAddr) {
        self.0.rcu(|table| {
            let mut offers = table.offers.clone();
            if offers.len() < OFFERS_MAX {
                offers.push((offer, bound));
            }
            // As rpcbind lists them: itself first.
            offers.sort();
            let entries = entries_of(&offers);
            Table { offers, entries }
        });
    }

    pub(super) fn table(&self) -> Guard<Arc<Table>> {
        self.0.load()
    }
}

fn entries_of(offers: &[(Offer, SocketAddr)]) -> Vec<Entry> {
    let has_own = offers.iter().any(|(offer, _)| *offer == Offer::Portmapper);
    let mut entries = Vec::new();
    for &(offer, bound) in offers {
        let transport = match offer {
            Offer::Portmapper | Offer::Nfs => Transport::Stream,
            Offer::PortmapperDatagrams | Offer::MountDatagrams => Transport::Datagram,
        };
        let mut add = |program, version| {
            entries.push(Entry {
                program,
                version,
                transport,
                bound,
            });
        };
        if matches!(offer, Offer::Portmapper | Offer::PortmapperDatagrams)
            || offer == Offer::Nfs && !has_own
        {
            let versions = PORTMAP_PROCEDURES.iter().rev();
            versions.for_each(|(version, _)| add(PORTMAP.number, *version));
        }
        if matches!(offer, Offer::Nfs | Offer::MountDatagrams) {
            add(MOUNT.number, MOUNT.version);
        }
        if offer == Offer::Nfs {
            add(NFS.number, NFS.version);
        }
    }
    entries
}

impl Table {
    /// What a call's client can reach.
    pub(super) fn reached<'a>(&'a self, call: &'a Call) -> impl Iterator<Item = &'a Entry> {
        self.entries.iter().filter(|entry| entry.is_for(call))
    }

    /// The program over this transport.
    pub(super) fn find(
        &self,
        call: &Call,
        program: u32,
        wanted: Wanted,
        transport: Transport,
    ) -> Option<&Entry> {
        let (Wanted::Exactly(version) | Wanted::Rather(version)) = wanted;
        let mut found = None;
        for entry in self.entries.iter().filter(|entry| entry.is_for(call)) {
            if entry.program != program || entry.transport != transport {
                continue;
            }
            if entry.version == version {
                return Some(entry);
            }
            found.get_or_insert(entry);
        }
        found.filter(|_| matches!(wanted, Wanted::Rather(_)))
    }
}

impl Entry {
    fn is_for(&self, call: &Call) -> bool {
        let bound = self.bound.ip();
        let came_to = call.local.or_else(|| call.peer.map(|peer| peer.ip()));
        came_to.is_none_or(|came_to| {
            let is_reached = !bound.is_loopback() || came_to.is_loopback();
            bound.is_ipv4() == came_to.is_ipv4() && is_reached
        })
    }

    /// The address for the client of this call.
    pub(super) fn address_for(&self, call: &Call) -> SocketAddr {
        let same_family = |ip: &IpAddr| ip.is_ipv4() == self.bound.is_ipv4();
        match call.local.filter(same_family) {
            Some(local) if self.bound.ip().is_unspecified() => {
                SocketAddr::new(local, self.bound.port())
            }
            _ => self.bound,
        }
    }
}
