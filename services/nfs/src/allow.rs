//! Which clients may come: networks in CIDR notation.
//!
//! Cost: O(networks) per connection's call, and networks are few.

use std::net::{IpAddr, Ipv6Addr};
use std::str::FromStr;

/// An address with the number of bits that count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    address: u128,
    mask: u128,
}

/// The text is no address, or its number of bits is more than the address has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadNetwork(String);

impl std::fmt::Display for BadNetwork {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            formatter,
            "{:?} is neither an address nor ADDRESS/BITS",
            self.0
        )
    }
}

impl std::error::Error for BadNetwork {}

impl FromStr for Network {
    type Err = BadNetwork;

    fn from_str(text: &str) -> Result<Network, BadNetwork> {
        let bad = || BadNetwork(text.to_owned());
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| bad())?;
        let own: u32 = if address.is_ipv4() { 32 } else { 128 };
        let bits = match bits {
            // Digits only: the standard parser would take a sign.
            Some(bits) if !bits.is_empty() && bits.bytes().all(|byte| byte.is_ascii_digit()) => {
                bits.parse().map_err(|_| bad())?
            }
            Some(_) => return Err(bad()),
            None => own,
        };
        let host = own.checked_sub(bits).ok_or_else(bad)?;
        let mask = u128::MAX.checked_shl(host).unwrap_or(0);
        Ok(Network {
            address: wide(address) & mask,
            mask,
        })
    }
}

impl Network {
    /// True when `address` lies in this network. An IPv4 client of an IPv6 socket counts as IPv4.
    pub fn contains(&self, address: IpAddr) -> bool {
        wide(address) & self.mask == self.address
    }
}

/// Every address as IPv6, IPv4 mapped into it.
fn wide(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(address.to_ipv6_mapped()),
        IpAddr::V6(address) => u128::from(Ipv6Addr::from(address.octets())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contains(network: &str, address: &str) -> bool {
        let network: Network = network.parse().expect("a network");
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
            assert!(text.parse::<Network>().is_err(), "{text}");
        }
    }
}
