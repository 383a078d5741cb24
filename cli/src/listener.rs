//! One listener of `flatpath serve`: what it speaks, where, and with which settings.

use flatpath::ListenerLimits;
use flatpath::sockets::ListenAddress;

use crate::config::site::SiteTable;
use crate::settings::{ListenerProtocol, NfsTls, Settings};
use crate::tls::Secured;

/// One listener, or several that share a service.
#[derive(Clone, Debug)]
pub(crate) struct Listener {
    pub(crate) protocol: ListenerProtocol,
    pub(crate) addresses: Vec<ListenAddress>,
    pub(crate) settings: Settings,
    pub(crate) limits: ListenerLimits,
    /// The sites of the file, if it serves them.
    pub(crate) sites: Vec<SiteTable>,
    /// It is of a table of the file.
    pub(crate) is_table: bool,
    /// With TLS.
    pub(crate) tls: Option<Secured>,
    /// HTTP that only sends clients to the listener with TLS, whose settings and sites it has: so
    /// both answer for the same hosts.
    pub(crate) redirects: bool,
}

impl Listener {
    pub(crate) fn flat(
        protocol: ListenerProtocol,
        addresses: &[ListenAddress],
        settings: &Settings,
    ) -> Self {
        Self {
            protocol,
            addresses: addresses.to_vec(),
            settings: settings.clone(),
            limits: ListenerLimits::default(),
            sites: Vec::new(),
            is_table: false,
            tls: None,
            redirects: false,
        }
    }

    /// Whether another file means this one, too.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        let told = |it: &Self| (it.protocol, it.is_table, it.tls.is_some(), it.redirects);
        told(self) == told(other) && self.addresses == other.addresses
    }

    /// What tells it from others: all that flags name have the same settings.
    pub(crate) fn name(&self) -> String {
        let addresses = self.addresses.iter().map(ToString::to_string);
        match self.is_table {
            true => addresses.collect::<Vec<_>>().join(", "),
            false => String::new(),
        }
    }

    pub(crate) fn serves_files(&self) -> bool {
        self.serves_over_http() || self.protocol == ListenerProtocol::Nfs
    }

    pub(crate) fn serves_over_http(&self) -> bool {
        self.protocol == ListenerProtocol::Http && !self.redirects
    }

    /// Whether nothing is served there without TLS.
    pub(crate) fn requires_tls(&self) -> bool {
        let is_offered = self.protocol == ListenerProtocol::Nfs
            && self.settings.nfs_tls == Some(NfsTls::Offered);
        self.tls.is_some() && !is_offered
    }
}
