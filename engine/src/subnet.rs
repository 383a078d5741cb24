//! Networks in CIDR notation, to name clients and load balancers by.

use std::net::{AddrParseError, IpAddr};
use std::str::FromStr;

use ipnet::IpNet;

/// A network: an address with the number of bits that count, as in `10.0.0.0/8`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subnet(IpNet);

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
        let network = text
            .parse()
            .or_else(|_| text.parse::<IpAddr>().map(IpNet::from));
        network
            .map(Subnet)
            .map_err(|_: AddrParseError| BadSubnet(text.into()))
    }
}

impl Subnet {
    /// True when `address` lies in this network. An IPv4 client of an IPv6 socket counts as IPv4.
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.0, address.to_canonical()) {
            (IpNet::V6(network), IpAddr::V4(address)) => {
                network.contains(&address.to_ipv6_mapped())
            }
            (network, address) => network.contains(&address),
        }
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
