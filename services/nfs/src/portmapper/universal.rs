//! Universal addresses (RFC 1833 section 2.1, RFC 5665 section 5.2.3): `192.0.2.1.8.1` and
//! `2001:db8::1.8.1` are port 2049 of a host; and the forms of addresses between machines of one
//! kind (`sockaddr_in` and `sockaddr_in6` of Linux), which two procedures turn into each other.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use flatpath_rpc::Transport;

/// Linux' numbers of both families.
const AF_INET: u16 = 2;
const AF_INET6: u16 = 10;

/// Bytes of the longer of the two forms.
const TRANSPORT_BYTES_MAX: usize = 28;

/// The address as a universal one.
pub(super) fn text(address: SocketAddr) -> String {
    let [high, low] = address.port().to_be_bytes();
    format!("{}.{high}.{low}", address.ip())
}

/// A universal address.
pub(super) fn parse(text: &[u8]) -> Option<SocketAddr> {
    let text = std::str::from_utf8(text).ok()?;
    let (rest, low) = text.rsplit_once('.')?;
    let (host, high) = rest.rsplit_once('.')?;
    let byte = |digits: &str| {
        let all_digits = digits.bytes().all(|byte| byte.is_ascii_digit());
        digits.parse::<u8>().ok().filter(|_| all_digits)
    };
    let port = u16::from_be_bytes([byte(high)?, byte(low)?]);
    Some(SocketAddr::new(host.parse().ok()?, port))
}

/// How a transport is called for addresses of this family (RFC 5665 section 5.2).
pub(super) fn netid(transport: Transport, address: SocketAddr) -> &'static str {
    match (transport, address.is_ipv4()) {
        (Transport::Stream, true) => "tcp",
        (Transport::Stream, false) => "tcp6",
        (Transport::Datagram, true) => "udp",
        (Transport::Datagram, false) => "udp6",
    }
}

/// As Linux has it in memory.
pub(super) fn to_transport(address: SocketAddr) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(TRANSPORT_BYTES_MAX);
    let family = if address.is_ipv4() { AF_INET } else { AF_INET6 };
    bytes.extend(family.to_ne_bytes());
    bytes.extend(address.port().to_be_bytes());
    match address.ip() {
        IpAddr::V4(ip) => {
            bytes.extend(ip.octets());
            bytes.extend([0; 8]);
        }
        IpAddr::V6(ip) => {
            bytes.extend([0; 4]);
            bytes.extend(ip.octets());
            bytes.extend([0; 4]);
        }
    }
    bytes
}

/// What Linux has in memory so.
pub(super) fn from_transport(bytes: &[u8]) -> Option<SocketAddr> {
    let (family, rest) = bytes.split_first_chunk::<2>()?;
    let (port, rest) = rest.split_first_chunk::<2>()?;
    let ip = match (u16::from_ne_bytes(*family), rest.len()) {
        (AF_INET, 12) => IpAddr::from(Ipv4Addr::from(*rest.first_chunk::<4>()?)),
        (AF_INET6, 24) => IpAddr::from(Ipv6Addr::from(*rest[4..].first_chunk::<16>()?)),
        _ => return None,
    };
    Some(SocketAddr::new(ip, u16::from_be_bytes(*port)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_its_host_and_the_two_bytes_of_its_port() {
        let cases = [
            ("192.0.2.1:2049", "192.0.2.1.8.1", AF_INET, 16),
            ("0.0.0.0:111", "0.0.0.0.0.111", AF_INET, 16),
            ("[2001:db8::1]:65535", "2001:db8::1.255.255", AF_INET6, 28),
            ("[::]:0", "::.0.0", AF_INET6, 28),
        ];
        for (address, universal, family, length) in cases {
            let address = address.parse().expect("an address");
            assert_eq!(text(address), universal);
            assert_eq!(parse(universal.as_bytes()), Some(address));
            let bytes = to_transport(address);
            assert_eq!(
                (&bytes[..2], bytes.len()),
                (&family.to_ne_bytes()[..], length)
            );
            assert_eq!(bytes[2..4], address.port().to_be_bytes());
            assert_eq!(from_transport(&bytes), Some(address));
            assert_eq!(from_transport(&bytes[..length - 1]), None);
        }
    }

    #[test]
    fn what_is_no_universal_address_is_none() {
        for text in [
            "",
            ".",
            "..",
            "1.2",
            "192.0.2.1",
            "192.0.2.1.8",
            "192.0.2.1.256.1",
            "192.0.2.1.+8.1",
            "192.0.2.1.8.1.1",
            "host.8.1",
            "2001:db8::1",
        ] {
            assert_eq!(parse(text.as_bytes()), None, "{text}");
        }
        assert_eq!(parse(b"\xff.8.1"), None);
        assert_eq!(from_transport(&[1, 0, 0, 0]), None);
    }
}
