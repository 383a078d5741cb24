//! For which hosts a listener answers.

use flatpath::sockets::{ListenAddress, PassedSockets};
use flatpath_http::{HostPattern, Hosts};

use crate::listener::Listener;

/// Whether a page can have the browser of its reader ask at this address in the name of another
/// host. What connects to a Unix socket or sends a header of the PROXY protocol is no browser; and
/// with TLS a browser wants a certificate for the name of the page. What only redirects to such a
/// listener answers for the hosts that this one answers for.
pub(crate) fn is_exposed(
    listener: &Listener,
    address: &ListenAddress,
    passed: &PassedSockets,
) -> bool {
    let is_loopback = |at: &ListenAddress| {
        let address = at.internet();
        address.is_some_and(|it| it.ip().to_canonical().is_loopback())
    };
    let is_local = match address {
        ListenAddress::Passed(_) => passed.addresses(address).iter().any(is_loopback),
        address => is_loopback(address),
    };
    let is_plain = listener.tls.is_none() && !listener.redirects;
    is_local && is_plain && listener.settings.proxy_from.is_empty()
}

/// The hosts that are answered for at an address.
pub(crate) fn of(listener: &Listener, is_exposed: bool) -> Hosts {
    let named = &listener.settings.hosts;
    match is_exposed || !named.is_empty() {
        true => {
            // The names of sites are named, too; what is for all others is not.
            let sites = listener.sites.iter().flat_map(|site| &site.names);
            let sites = sites.filter(|name: &&HostPattern| !name.is_any());
            Hosts::local().and(named.iter().chain(sites).cloned())
        }
        false => Hosts::any(),
    }
}

/// The hosts that a listener answers for, at each of its addresses.
pub(crate) fn of_each(listener: &Listener) -> Vec<Hosts> {
    let none = PassedSockets::default();
    let addresses = listener.addresses.iter();
    addresses
        .map(|address| of(listener, is_exposed(listener, address, &none)))
        .collect()
}
