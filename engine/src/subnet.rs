//! Networks in CIDR notation, to name clients and load balancers by. A network is written as it is:
//! the bits beyond those that count are 0.
//!
//! Cost: [`SubnetMap::find`] is a binary search for each length that its networks have.

use std::cmp::Reverse;
use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::str::FromStr;

/// A network: an address with the number of bits that count, as in `10.0.0.0/8`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subnet {
    /// Its addresses have these bits; one of IPv4 as IPv6 maps it, `::ffff:10.0.0.0`.
    bits: u128,
    /// Those that count.
    mask: u128,
}

/// The text is no address, its number of bits is more than the address has, or the address has bits
/// set beyond those that count: then either the address or the number is not what was meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadSubnet {
    text: String,
    cure: String,
}

flatpath_structures::impl_error! {
    BadSubnet {
        Self { text, cure } => "{text:?} is no network: {cure}",
    }
}

impl FromStr for Subnet {
    type Err = BadSubnet;

    fn from_str(text: &str) -> Result<Subnet, BadSubnet> {
        let bad = |cure: String| BadSubnet {
            text: text.into(),
            cure,
        };
        let example = "write ADDRESS or ADDRESS/BITS, such as 10.0.0.0/8 or fd00::/8";
        let (network, address) = Subnet::read(text).ok_or_else(|| bad(example.into()))?;
        if as_bits(address) != network.bits {
            let cure = "its address has more bits set than those that count";
            return Err(bad(format!("{cure}: write {network} or {address}")));
        }
        Ok(network)
    }
}

impl Subnet {
    /// The network of this text, whatever bits its address has set beyond those that count: as
    /// `/etc/exports` has it. `None` where [`FromStr`] would not do with another address, either.
    pub fn around(text: &str) -> Option<Subnet> {
        Subnet::read(text).map(|(network, _)| network)
    }

    /// The network, and the address as it is written.
    fn read(text: &str) -> Option<(Subnet, IpAddr)> {
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
        Some((Subnet { bits, mask }, address))
    }

    /// True when `address` lies in this network. An IPv4 client of an IPv6 socket counts as IPv4.
    pub fn contains(&self, address: IpAddr) -> bool {
        as_bits(address) & self.mask == self.bits
    }

    /// The bits that its addresses have in common; an IPv4 address is the IPv6 address that maps
    /// it. The others are 0.
    pub fn bits(&self) -> u128 {
        self.bits
    }

    /// The bits that count, from the first one on. Of two networks with an address in common the
    /// one with the larger mask is the smaller one, which lies in the other.
    pub fn mask(&self) -> u128 {
        self.mask
    }
}

/// The network that has this address and no other.
impl From<IpAddr> for Subnet {
    fn from(address: IpAddr) -> Subnet {
        Subnet {
            bits: as_bits(address),
            mask: u128::MAX,
        }
    }
}

/// As it is read; a single address without a length.
impl fmt::Display for Subnet {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let address = Ipv6Addr::from_bits(self.bits);
        let length = self.mask.leading_ones();
        // A shorter one has addresses that map none of IPv4.
        let (address, length, most) = match (address.to_ipv4_mapped(), length.checked_sub(96)) {
            (Some(address), Some(length)) => (IpAddr::V4(address), length, 32),
            _ => (IpAddr::V6(address), length, 128),
        };
        match length == most {
            true => write!(formatter, "{address}"),
            false => write!(formatter, "{address}/{length}"),
        }
    }
}

/// Values by network: of the networks that an address lies in, the longest counts, whatever the
/// order in which they were set.
///
/// ```
/// use flatpath::SubnetMap;
///
/// # fn main() -> Result<(), flatpath::BadSubnet> {
/// let mut rules = SubnetMap::default();
/// rules.insert("10.0.0.0/8".parse()?, "refused");
/// rules.insert("10.1.0.0/16".parse()?, "admitted");
/// assert_eq!(rules.find([10, 1, 2, 3].into()), Some(&"admitted"));
/// assert_eq!(rules.find([10, 2, 2, 3].into()), Some(&"refused"));
/// assert_eq!(rules.find([192, 0, 2, 1].into()), None);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubnetMap<T> {
    /// By mask, the longest first; those of one mask by their bits.
    lengths: Vec<(u128, Vec<(u128, T)>)>,
}

impl<T> Default for SubnetMap<T> {
    fn default() -> Self {
        Self {
            lengths: Vec::new(),
        }
    }
}

impl<T> SubnetMap<T> {
    /// Sets the value of a network, and gives back the one that it had.
    pub fn insert(&mut self, network: Subnet, value: T) -> Option<T> {
        let Subnet { bits, mask } = network;
        let by_mask = |(other, _): &(u128, _)| Reverse(*other);
        let place = self.lengths.binary_search_by_key(&Reverse(mask), by_mask);
        let place = place.unwrap_or_else(|place| {
            self.lengths.insert(place, (mask, Vec::new()));
            place
        });
        let networks = &mut self.lengths[place].1;
        match networks.binary_search_by_key(&bits, |(bits, _)| *bits) {
            Ok(place) => Some(std::mem::replace(&mut networks[place].1, value)),
            Err(place) => {
                networks.insert(place, (bits, value));
                None
            }
        }
    }

    /// The value of the longest network that an address lies in.
    pub fn find(&self, address: IpAddr) -> Option<&T> {
        let address = as_bits(address);
        self.lengths.iter().find_map(|(mask, networks)| {
            let bits = address & mask;
            let place = networks.binary_search_by_key(&bits, |(bits, _)| *bits);
            place.ok().map(|place| &networks[place].1)
        })
    }

    /// All values, those of longer networks first.
    pub fn values(&self) -> impl Iterator<Item = &T> {
        let networks = self.lengths.iter().flat_map(|(_, networks)| networks);
        networks.map(|(_, value)| value)
    }

    /// Whether no network has a value.
    pub fn is_empty(&self) -> bool {
        self.lengths.is_empty()
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
        assert!(contains("0.0.0.0/0", "1.2.3.4"));
        assert!(contains("fd00::/8", "fd12::1"));
        assert!(contains("::/0", "1.2.3.4"));
        assert!(contains("::ffff:10.0.0.0/104", "10.1.2.3"));
    }

    #[test]
    fn a_network_whose_address_has_further_bits_is_refused_with_what_may_be_meant() {
        for (text, network) in [
            ("10.0.0.5/8", "10.0.0.0/8"),
            ("192.168.1.1/24", "192.168.1.0/24"),
            ("1.2.3.4/0", "0.0.0.0/0"),
            ("fd12::1/8", "fd00::/8"),
            ("::ffff:10.0.0.1/104", "10.0.0.0/8"),
        ] {
            let why = text.parse::<Subnet>().expect_err(text).to_string();
            assert!(why.contains(&format!("write {network} or ")), "{why}");
            let around = Subnet::around(text).expect("a network");
            assert_eq!(around.to_string(), network);
        }
        assert_eq!(Subnet::around("10.0.0.0/33"), None);
        assert!("10.0.0.5/32".parse::<Subnet>().is_ok());
    }

    #[test]
    fn an_ipv4_client_of_an_ipv6_socket_is_an_ipv4_client() {
        assert!(contains("127.0.0.0/8", "::ffff:127.0.0.1"));
        assert!(!contains("0.0.0.0/0", "fd12::1"));
    }

    #[test]
    fn a_network_is_written_as_it_is_read() {
        for text in [
            "10.0.0.0/8",
            "10.0.0.7",
            "0.0.0.0/0",
            "::/0",
            "fd00::/8",
            "fd00::7",
            "::fffe:0:0/95",
        ] {
            let network: Subnet = text.parse().expect("a network");
            let written = network.to_string();
            assert_eq!(written.parse(), Ok(network), "{text}: {written}");
        }
        let plain = ["10.0.0.0/8", "10.0.0.7", "0.0.0.0/0", "::/0", "fd00::7"];
        for text in plain {
            let network: Subnet = text.parse().expect("a network");
            assert_eq!(network.to_string(), text);
        }
        let one = Subnet::from("10.0.0.7".parse::<IpAddr>().expect("an address"));
        assert_eq!(Ok(one), "10.0.0.7".parse());
        let all: Subnet = "0.0.0.0/0".parse().expect("a network");
        assert!(one.mask() > all.mask() && one.bits() & all.mask() == all.bits());
    }

    #[test]
    fn the_longest_network_counts_whatever_the_order() {
        let networks = [
            "10.0.0.0/8",
            "10.1.0.0/16",
            "10.1.2.3",
            "::/0",
            "2001:db8::/32",
        ];
        let mut orders = vec![networks.to_vec(), networks.iter().rev().copied().collect()];
        orders.push([2, 0, 4, 1, 3].map(|at: usize| networks[at]).into());
        for order in orders {
            let mut map = SubnetMap::default();
            assert!(map.is_empty());
            for network in order {
                assert_eq!(
                    map.insert(network.parse().expect("a network"), network),
                    None
                );
            }
            for (address, found) in [
                ("10.9.9.9", "10.0.0.0/8"),
                ("10.1.9.9", "10.1.0.0/16"),
                ("10.1.2.3", "10.1.2.3"),
                ("::ffff:10.1.2.3", "10.1.2.3"),
                ("10.1.2.4", "10.1.0.0/16"),
                ("192.0.2.1", "::/0"),
                ("2001:db8::1", "2001:db8::/32"),
                ("2001:db9::1", "::/0"),
            ] {
                let address = address.parse().expect("an address");
                assert_eq!(map.find(address), Some(&found), "{address}");
            }
            let same = "10.1.0.0/16".parse().expect("a network");
            assert_eq!(map.insert(same, "new"), Some("10.1.0.0/16"));
            let values: Vec<&str> = map.values().copied().collect();
            assert_eq!(
                values,
                ["10.1.2.3", "new", "10.0.0.0/8", "2001:db8::/32", "::/0"]
            );
        }
        assert_eq!(SubnetMap::<u8>::default().find([10, 0, 0, 1].into()), None);
    }

    #[test]
    fn model_the_map_agrees_with_a_look_at_each_network() {
        let mut random = fastrand::Rng::with_seed(1);
        for _ in 0..200 {
            let mut map = SubnetMap::default();
            let mut all: Vec<(u32, Subnet)> = Vec::new();
            for _ in 0..random.usize(0..20) {
                let bits = random.u32(24..=32);
                let text = format!("10.0.0.{}/{bits}", random.u8(..));
                let network = Subnet::around(&text).expect("a network");
                let before = map.insert(network, bits);
                assert_eq!(before.is_some(), all.contains(&(bits, network)));
                all.push((bits, network));
            }
            for last in 0..=u8::MAX {
                let address = [10, 0, 0, last].into();
                let holds = all.iter().filter(|(_, network)| network.contains(address));
                let longest = holds.map(|(bits, _)| *bits).max();
                assert_eq!(map.find(address).copied(), longest);
            }
        }
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
