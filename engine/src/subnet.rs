//! Networks in CIDR notation, to name clients and load balancers by.

use std::net::IpAddr;
use std::str::FromStr;

/// A network: an address with the number of bits that count, as in `10.0.0.0/8`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subnet {
    /// Its addresses have these bits; one of IPv4 as IPv6 maps it, `::ffff:10.0.0.0`.
    bits: u128,
    /// Those that count.
    mask: u128,
}

/// The text is no address, or its number of bits is more than the address has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadSubnet(String);

flatpath_structures::impl_error! {
    BadSubnet {
        Self(text) =>
            "{text:?} is no network: write ADDRESS or ADDRESS/BITS, such as 10.0.0.0/8 or fd00::/8",
    }
}

impl FromStr for Subnet {
    type Err = BadSubnet;

    fn from_str(text: &str) -> Result<Subnet, BadSubnet> {
        Subnet::read(text).ok_or_else(|| BadSubnet(text.into()))
    }
}

impl Subnet {
    fn read(text: &str) -> Option<Subnet> {
        let (address, length) = match text.split_once('/') {
            Some((address, length)) => (address, Some(length)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().ok()?;
        let (most, mapped) = if address.is_ipv4() {
            (32, 96)
        } else {
            (128, 0)
        };
        let length = match length {
            None => most,
            // A number may have a sign, a length has none.
            Some(digits) if digits.starts_with('+') => return None,
            Some(digits) => digits.parse().ok().filter(|length| *length <= most)?,
        };
        let mask = u128::MAX.checked_shl(128 - (mapped + length)).unwrap_or(0);
        let bits = as_bits(address) & mask;
        Some(Subnet { bits, mask })
    }

    /// True when `address` lies in this network. An IPv4 client of an IPv6 socket counts as IPv4.
    pub fn contains(&self, address: IpAddr) -> bool {
        as_bits(address) & self.mask == self.bits
    }
}

fn as_bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().to_bits(),
        IpAddr::V6(address) => address.to_bits(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contains(network: &str, address: &str) -> bool {
        let network: Subnet = network.parse().expect("a network");
        network.contains(address.parse().expect("an address"))
    }

    #[test]
    fn a_network_holds_its_addresses_and_no_others() {
        assert!(contains("192.168.0.0/16", "192.168.255.1"));
        assert!(!contains("192.168.0.0/16", "192.169.0.1"));
        assert!(contains("10.0.0.7", "10.0.0.7"));
        assert!(!contains("10.0.0.7", "10.0.0.6"));
        assert!(
            contains("10.0.0.7/8", "10.200.0.1"),
            "host bits do not count"
        );
        assert!(contains("0.0.0.0/0", "1.2.3.4"));
        assert!(contains("fd00::/8", "fd12::1"));
        assert!(contains("::/0", "1.2.3.4"));
        assert!(contains("::ffff:10.0.0.0/104", "10.1.2.3"));
    }

    #[test]
    fn an_ipv4_client_of_an_ipv6_socket_is_an_ipv4_client() {
        assert!(contains("127.0.0.0/8", "::ffff:127.0.0.1"));
        assert!(!contains("0.0.0.0/0", "fd12::1"));
    }

    #[test]
    fn what_is_no_network_is_refused() {
        for text in [
            "",
            "x",
            "1.2.3.4/33",
            "1.2.3.4/",
            "1.2.3.4/+8",
            "1.2.3.4/-1",
            "::/129",
            "1.2.3/8",
        ] {
            assert!(text.parse::<Subnet>().is_err(), "{text}");
        }
    }
}
