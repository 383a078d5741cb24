//! Who the client of a request is: the peer of its connection, or whom a proxy has named.
//!
//! The peer is asked for when a request of the connection needs it first: one system call. Where it
//! is a proxy that the server trusts ([`Http::behind_proxies`](crate::Http::behind_proxies)), the
//! client is found for each request in the header that the proxy writes.
//!
//! Invariant: what a client has written is never believed. The list is read from its end, where the
//! proxy that is the peer has added, and each entry only while the one after it is a proxy's.

use std::net::{IpAddr, SocketAddr};

use flatpath::{Io, Subnet};

use crate::connection::client_watch::Watched;
use crate::connection::records::Records;
use crate::head::Head;
use crate::header_values::{elements, parameters};

/// The header in which proxies name whom they forward for. It is the one that the proxy in front
/// writes: what it passes on of the other is its client's to choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ForwardedHeader {
    /// `X-Forwarded-For`: addresses, each perhaps with a port. What most proxies write.
    XForwardedFor,
    /// `Forwarded`, its parameter `for` (RFC 7239 section 5.2).
    Forwarded,
}

/// The proxies that a server trusts.
#[derive(Clone, Debug)]
pub(crate) struct Proxies {
    header: ForwardedHeader,
    networks: Vec<Subnet>,
}

/// What a session knows of its client, as far as it has asked.
#[derive(Default)]
pub(crate) struct Known {
    pub(crate) client: Option<Client>,
    /// What the access log will say of the session, where there is one.
    pub(crate) records: Option<Records>,
    /// Handlers look whether it is gone.
    pub(crate) watched: Option<Watched>,
}

/// The peer of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Client {
    peer: Option<SocketAddr>,
    /// It has come by a Unix socket, and has no address.
    is_local: bool,
}

impl ForwardedHeader {
    fn name(self) -> &'static str {
        match self {
            Self::XForwardedFor => "x-forwarded-for",
            Self::Forwarded => "forwarded",
        }
    }

    /// The hops of one line, from the client on; `None` for one that has no address.
    fn hops(self, value: &[u8]) -> Vec<Option<SocketAddr>> {
        match self {
            Self::XForwardedFor => elements(value).map(address).collect(),
            Self::Forwarded => parameters::quoted_elements(value).map(node).collect(),
        }
    }
}

/// An address, perhaps with a port, and in brackets if it is one of IPv6 and has a port. Without a
/// port it has 0.
fn address(text: &[u8]) -> Option<SocketAddr> {
    let text = std::str::from_utf8(text).ok()?;
    let bare = || {
        let in_brackets = text.strip_prefix('[').and_then(|it| it.strip_suffix(']'));
        let address: IpAddr = in_brackets.unwrap_or(text).parse().ok()?;
        Some(SocketAddr::new(address, 0))
    };
    text.parse().ok().or_else(bare)
}

/// The address in an element of `Forwarded`. There is none where it names nobody (`unknown`,
/// `_hidden`), and a port may be hidden too.
fn node(element: &[u8]) -> Option<SocketAddr> {
    let mut found = None;
    let mut parameters = parameters::Parameters::of_element(element);
    while let Some(parameter) = parameters.next() {
        let (name, value) = parameter.ok()?;
        if name.eq_ignore_ascii_case(b"for") {
            // RFC 7239 section 4: once.
            if found.is_some() {
                return None;
            }
            let hidden_port = memchr::memmem::rfind(&value, b":_");
            let known = &value[..hidden_port.unwrap_or(value.len())];
            found = Some(address(known)?);
        }
    }
    found
}

impl Proxies {
    pub(crate) fn new(header: ForwardedHeader, networks: Vec<Subnet>) -> Self {
        Self { header, networks }
    }

    /// Whether this address is a proxy's.
    fn trust(&self, address: SocketAddr) -> bool {
        let is_in = |network: &Subnet| network.contains(address.ip());
        self.networks.iter().any(is_in)
    }

    /// The client of a request; `None` where no proxy has named one.
    fn client(&self, Client { peer, is_local }: Client, head: &Head<'_>) -> Option<SocketAddr> {
        let (mut client, mut is_proxy) = (
            None,
            match peer {
                Some(peer) => self.trust(peer),
                None => is_local,
            },
        );
        for header in head.headers.iter().rev() {
            if !header.name.eq_ignore_ascii_case(self.header.name()) {
                continue;
            }
            for hop in self.header.hops(header.value).into_iter().rev() {
                match hop {
                    Some(hop) if is_proxy => (client, is_proxy) = (Some(hop), self.trust(hop)),
                    _ => return client,
                }
            }
        }
        client
    }
}

impl Client {
    /// One system call.
    pub(crate) fn of(io: &Io<'_>) -> Self {
        Self {
            peer: io.peer(),
            is_local: io.is_unix(),
        }
    }

    /// The address of a request's client.
    pub(crate) fn address(self, proxies: Option<&Proxies>, head: &Head<'_>) -> Option<SocketAddr> {
        let named = proxies.and_then(|proxies| self.named(proxies, head));
        named.or(self.peer)
    }

    /// The same where the peer is a proxy, which has named it.
    pub(crate) fn named(self, proxies: &Proxies, head: &Head<'_>) -> Option<SocketAddr> {
        proxies.client(self, head)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    const PEER: &str = "10.0.0.1:1";
    const LOCAL: &str = "a Unix socket";
    const GONE: &str = "gone";

    /// The client of a request with these headers, from `peer`, where 10.0.0.0/8 is trusted; a peer
    /// without an address has come by a Unix socket.
    fn client(header: ForwardedHeader, peer: &str, lines: &[&str]) -> String {
        let networks = ["10.0.0.0/8", "fd00::/8"].map(|it| it.parse().expect("a network"));
        let proxies = Proxies::new(header, networks.into());
        let mut input = String::from("GET / HTTP/1.1\r\nHost: h\r\n");
        for line in lines {
            input += line;
            input += "\r\n";
        }
        input += "\r\n";
        let client = Client {
            peer: peer.parse().ok(),
            is_local: peer == LOCAL,
        };
        let address = testing::with_head(input.as_bytes(), |head| {
            let address = client.address(Some(&proxies), head);
            assert_eq!(client.named(&proxies, head).or(client.peer), address);
            assert_eq!(client.address(None, head), client.peer);
            address
        });
        let address = address.expect("well formed").expect("complete");
        address.map_or("none".into(), |address| address.ip().to_string())
    }

    fn by_list(peer: &str, list: &str) -> String {
        let line = format!("X-Forwarded-For: {list}");
        client(ForwardedHeader::XForwardedFor, peer, &[&line])
    }

    fn by_rfc(value: &str) -> String {
        let line = format!("forwarded: {value}");
        client(ForwardedHeader::Forwarded, PEER, &[&line])
    }

    #[test]
    fn the_last_address_that_is_not_a_proxys_is_the_clients() {
        assert_eq!(by_list(PEER, "1.2.3.4"), "1.2.3.4");
        assert_eq!(by_list(PEER, "6.6.6.6, 1.2.3.4"), "1.2.3.4");
        assert_eq!(by_list(PEER, "6.6.6.6, 1.2.3.4, 10.1.1.1"), "1.2.3.4");
        assert_eq!(by_list(PEER, "10.9.9.9, 10.1.1.1"), "10.9.9.9");
        assert_eq!(by_list(PEER, "2001:db8::7,fd00::1"), "2001:db8::7");
        assert_eq!(by_list(PEER, "1.2.3.4:80"), "1.2.3.4");
        assert_eq!(by_list(PEER, "[2001:db8::7]:80"), "2001:db8::7");
        assert_eq!(by_list(PEER, "[2001:db8::7]"), "2001:db8::7");
    }

    #[test]
    fn who_is_not_trusted_names_nobody() {
        assert_eq!(by_list("11.0.0.1:1", "1.2.3.4"), "11.0.0.1");
        assert_eq!(by_list(GONE, "1.2.3.4"), "none");
        let of = |lines: &[&str]| client(ForwardedHeader::XForwardedFor, PEER, lines);
        assert_eq!(of(&["Forwarded: for=6.6.6.6"]), "10.0.0.1");
        assert_eq!(of(&[]), "10.0.0.1");
    }

    #[test]
    fn a_proxy_may_come_by_a_unix_socket() {
        assert_eq!(by_list(LOCAL, "6.6.6.6, 1.2.3.4"), "1.2.3.4");
        assert_eq!(by_list(LOCAL, "1.2.3.4, 10.1.1.1"), "1.2.3.4");
        assert_eq!(by_list(LOCAL, "unknown"), "none");
    }

    #[test]
    fn what_is_no_address_ends_the_list_at_the_proxy_that_wrote_it() {
        for list in [
            "unknown",
            "1.2.3.4, unknown",
            "1.2.3.4, 300.1.1.1",
            "\u{e9}",
        ] {
            assert_eq!(by_list(PEER, list), "10.0.0.1", "{list}");
        }
        assert_eq!(by_list(PEER, "unknown, 10.2.2.2"), "10.2.2.2");
    }

    #[test]
    fn lines_are_one_list_in_their_order() {
        let lines = [
            "X-Forwarded-For: 6.6.6.6",
            "x-forwarded-for: 1.2.3.4, 10.1.1.1",
        ];
        assert_eq!(
            client(ForwardedHeader::XForwardedFor, PEER, &lines),
            "1.2.3.4"
        );
        let lines = [
            "x-forwarded-for: 1.2.3.4",
            "A: b",
            "X-Forwarded-For: 10.1.1.1",
        ];
        assert_eq!(
            client(ForwardedHeader::XForwardedFor, PEER, &lines),
            "1.2.3.4"
        );
    }

    #[test]
    fn the_standard_header_is_read_as_the_rfc_has_it() {
        assert_eq!(by_rfc("for=1.2.3.4"), "1.2.3.4");
        assert_eq!(
            by_rfc("for=6.6.6.6, For=1.2.3.4;proto=http;by=10.0.0.1"),
            "1.2.3.4"
        );
        assert_eq!(
            by_rfc("proto=http;for=\"[2001:db8:cafe::17]:4711\""),
            "2001:db8:cafe::17"
        );
        assert_eq!(
            by_rfc("for=\"[2001:db8::17]\", for=10.2.2.2"),
            "2001:db8::17"
        );
        assert_eq!(by_rfc("for=\"1.2.3.4:_hidden\""), "1.2.3.4");
        assert_eq!(by_rfc("host=\"a,b\\\",c\";for=1.2.3.4"), "1.2.3.4");
    }

    #[test]
    fn a_client_cannot_hide_behind_marks_of_quotation() {
        for value in [
            "for=6.6.6.6;host=\", for=1.2.3.4",
            "for=\"6.6.6.6, for=1.2.3.4",
            "for=6.6.6.6;for=1.2.3.4",
            "for=unknown",
            "for=_hidden",
            "by=1.2.3.4",
            "for",
        ] {
            assert_eq!(by_rfc(value), "10.0.0.1", "{value}");
        }
        assert_eq!(
            by_rfc("for=\"6.6.6.6, for=7.7.7.7;by=\", for=1.2.3.4"),
            "1.2.3.4"
        );
    }
}
