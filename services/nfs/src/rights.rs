//! What clients may do in an export: rules by address, and how one is found for a call.
//!
//! The rule of the smallest network that has the client's address holds, whatever the order of the
//! rules; [`Clients::Any`] is larger than every network. Names of hosts are looked up once, when
//! the rules are loaded, because a lookup may wait and a later answer may be another one. A client
//! whose address is unknown has the right of [`Clients::Any`] alone.
//!
//! Invariants
//! - R1: no two rules of an export with different rights have the same addresses, so the order of
//!   the rules never decides.
//!
//! Cost: that of [`SubnetMap::find`].

use std::fmt;
use std::io;
use std::net::{IpAddr, ToSocketAddrs};
use std::path::PathBuf;

use flatpath::{Subnet, SubnetMap};
use flatpath_rpc::Call;

use crate::limits::{HOST_ADDRESSES_MAX, RULES_MAX};
use crate::programs::needs_tls;

/// The lowest port that does not need a privilege.
pub(crate) const PRIVILEGED_PORTS_END: u16 = 1024;

/// The rights of clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Access {
    /// Read.
    #[default]
    ReadOnly,
    /// Read and change.
    ReadWrite,
}

/// The number of the user and the group `nobody`.
pub(crate) const NOBODY: u32 = 65_534;

/// Which callers become anonymous: by default `nobody`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Squash {
    /// User 0 and group 0, wherever they are listed.
    #[default]
    Root,
    /// Only callers without credentials.
    Anonymous,
    /// All of them.
    All,
}

/// What a client may do in an export, and as whom. The default: read, with root as `nobody`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rights {
    /// Whether it may change files.
    pub access: Access,
    /// Which of its callers become anonymous.
    pub squash: Squash,
    /// The user that these callers are.
    pub anonymous_user: u32,
    /// The group that these callers are in.
    pub anonymous_group: u32,
    /// Only from a port below 1024.
    pub secure_ports: bool,
    /// Calls of NFS only through TLS (RFC 9289). MOUNT is answered without it.
    pub tls_required: bool,
}

impl Default for Rights {
    fn default() -> Rights {
        Rights {
            access: Access::ReadOnly,
            squash: Squash::Root,
            anonymous_user: NOBODY,
            anonymous_group: NOBODY,
            secure_ports: false,
            tls_required: false,
        }
    }
}

impl Rights {
    /// Whether a call may come from this port.
    pub(crate) fn admits_port(&self, call: &Call) -> bool {
        let is_low = |port| port < PRIVILEGED_PORTS_END;
        !self.secure_ports || call.peer.is_some_and(|peer| is_low(peer.port()))
    }

    /// Whether a call may come with or without TLS, as it does.
    pub(crate) fn admits_wire(&self, call: &Call) -> bool {
        !self.tls_required || call.is_secured || !needs_tls(call)
    }
}

/// The clients that a rule is for.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Clients {
    /// All that no other rule is for.
    Any,
    /// Those with an address of this network.
    Network(Subnet),
    /// The host with this name: the addresses that it has when the rules are loaded.
    Host(String),
}

/// As MOUNT's EXPORT lists them.
impl fmt::Display for Clients {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Clients::Any => formatter.write_str("*"),
            Clients::Network(network) => write!(formatter, "{network}"),
            Clients::Host(name) => formatter.write_str(name),
        }
    }
}

/// The rights of some clients in an export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientRule {
    /// The clients.
    pub clients: Clients,
    /// What they may do.
    pub rights: Rights,
    /// Where the rule is written, such as `FILE:LINE:COLUMN`, for errors; may be empty.
    pub place: String,
}

/// A directory to export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportOptions {
    /// The directory.
    pub directory: PathBuf,
    /// Who may do what there. Clients without a rule may do nothing.
    pub rules: Vec<ClientRule>,
    /// Where the export is written, such as `FILE:LINE:COLUMN`, for errors; may be empty.
    pub place: String,
}

/// An error at a place of a file.
pub(crate) fn wrong(place: &str, why: impl fmt::Display) -> io::Error {
    let text = match place.is_empty() {
        true => why.to_string(),
        false => format!("{place}: {why}"),
    };
    io::Error::new(io::ErrorKind::InvalidInput, text)
}

/// The rules of an export, ready to be asked.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rules {
    networks: SubnetMap<Rights>,
    any: Option<Rights>,
    /// The clients as they are written.
    names: Vec<String>,
}

impl Rules {
    /// Looks up names; may wait for it.
    ///
    /// # Errors
    /// A name has no address, two rules contradict each other (R1), or they are too many.
    pub(crate) fn load(rules: &[ClientRule]) -> io::Result<Rules> {
        Rules::with(rules, &addresses_of)
    }

    fn with(
        rules: &[ClientRule],
        look_up: &dyn Fn(&str) -> io::Result<Vec<IpAddr>>,
    ) -> io::Result<Rules> {
        let mut loaded = Rules::default();
        if let Some(rule) = rules.get(RULES_MAX) {
            let why = format!("an export has at most {RULES_MAX} clients; name networks");
            return Err(wrong(&rule.place, why));
        }
        for rule in rules {
            loaded.names.push(rule.clients.to_string());
            let networks = match &rule.clients {
                Clients::Any => {
                    let known = loaded.any.get_or_insert(rule.rights);
                    if *known != rule.rights {
                        return Err(contradicts(rule));
                    }
                    continue;
                }
                Clients::Network(network) => vec![*network],
                Clients::Host(name) => {
                    let found = look_up(name).map_err(|cause| {
                        let why = format!(
                            "the host {name} cannot be looked up: {cause}; write its address, or \
                             see that the name is known when the exports are loaded"
                        );
                        wrong(&rule.place, why)
                    })?;
                    found.into_iter().map(Subnet::from).collect()
                }
            };
            for network in networks {
                if !loaded.insert(network, rule.rights) {
                    return Err(contradicts(rule));
                }
            }
        }
        Ok(loaded)
    }

    /// False when the network has other rights already.
    fn insert(&mut self, network: Subnet, rights: Rights) -> bool {
        let known = self.networks.insert(network, rights);
        known.is_none_or(|known| known == rights)
    }

    /// The rights of a client with this address; `None`: it has none.
    pub(crate) fn find(&self, peer: Option<IpAddr>) -> Option<&Rights> {
        let found = peer.and_then(|peer| self.networks.find(peer));
        found.or(self.any.as_ref())
    }

    /// The clients, for the list of exports; none stands for all.
    pub(crate) fn names(&self) -> &[String] {
        match self.any {
            Some(_) => &[],
            None => &self.names,
        }
    }

    /// Whether clients may change files by any of them.
    pub(crate) fn is_writable(&self) -> bool {
        let mut all = self.networks.values().chain(&self.any);
        all.any(|rights| rights.access == Access::ReadWrite)
    }
}

fn contradicts(rule: &ClientRule) -> io::Error {
    let why = format!(
        "{} has other rights in this export already: name it once",
        rule.clients
    );
    wrong(&rule.place, why)
}

fn addresses_of(name: &str) -> io::Result<Vec<IpAddr>> {
    let mut found: Vec<IpAddr> = (name, 0).to_socket_addrs()?.map(|it| it.ip()).collect();
    found.sort_unstable();
    found.dedup();
    match found.len() {
        0 => Err(io::Error::other("it has no address")),
        count if count > HOST_ADDRESSES_MAX => Err(io::Error::other(format!(
            "it has {count} addresses, and at most {HOST_ADDRESSES_MAX} are used"
        ))),
        _ => Ok(found),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::programs::NFS;

    fn rule(clients: &str, user: u32) -> ClientRule {
        let clients = match (clients, clients.parse()) {
            ("*", _) => Clients::Any,
            (_, Ok(network)) => Clients::Network(network),
            (name, Err(_)) => Clients::Host(name.into()),
        };
        let rights = Rights {
            anonymous_user: user,
            ..Rights::default()
        };
        ClientRule {
            clients,
            rights,
            place: "exports:7:2".into(),
        }
    }

    fn load(rules: &[(&str, u32)]) -> io::Result<Rules> {
        let rules: Vec<_> = rules.iter().map(|(who, user)| rule(who, *user)).collect();
        Rules::with(&rules, &|name| match name {
            "two" => Ok(["10.1.2.3", "fd00::3"]
                .map(|it| it.parse().expect("one"))
                .into()),
            _ => Err(io::Error::other("unknown")),
        })
    }

    /// The rule that holds for a client, by its number.
    fn found(rules: &Rules, peer: &str) -> Option<u32> {
        let peer = peer.parse().expect("an address");
        rules.find(Some(peer)).map(|rights| rights.anonymous_user)
    }

    #[test]
    fn the_smallest_network_wins_in_any_order() {
        let rules = [
            ("*", 1),
            ("10.0.0.0/8", 2),
            ("10.1.0.0/16", 3),
            ("10.1.2.3", 4),
            ("10.128.0.0/9", 5),
            ("fd00::/8", 6),
            ("0.0.0.0/0", 7),
        ];
        let expected = [
            ("10.1.2.3", 4),
            ("::ffff:10.1.2.3", 4),
            ("10.1.2.4", 3),
            ("10.2.0.1", 2),
            ("10.200.0.1", 5),
            ("11.0.0.1", 7),
            ("fd12::1", 6),
            ("fe80::1", 1),
        ];
        for turn in 0..rules.len() {
            let mut turned = rules;
            turned.rotate_left(turn);
            let rules = load(&turned).expect("good rules");
            for (peer, number) in expected {
                assert_eq!(found(&rules, peer), Some(number), "{peer} after {turn}");
            }
            assert_eq!(rules.find(None).map(|it| it.anonymous_user), Some(1));
        }
    }

    #[test]
    fn a_client_without_a_rule_has_no_right() {
        let rules = load(&[("10.0.0.0/8", 2), ("fd00::7", 3)]).expect("good rules");
        for peer in ["11.0.0.1", "fd00::8", "9.255.255.255"] {
            assert_eq!(found(&rules, peer), None, "{peer}");
        }
        assert!(rules.find(None).is_none(), "nobody knows where it is");
        assert!(Rules::load(&[]).expect("none").find(None).is_none());
    }

    #[test]
    fn a_name_stands_for_its_addresses_and_one_without_is_an_error_with_its_place() {
        let rules = load(&[("10.0.0.0/8", 2), ("two", 3)]).expect("good rules");
        assert_eq!(found(&rules, "10.1.2.3"), Some(3));
        assert_eq!(found(&rules, "fd00::3"), Some(3));
        assert_eq!(found(&rules, "10.1.2.4"), Some(2));
        let why = load(&[("three", 3)]).expect_err("unknown").to_string();
        assert!(why.starts_with("exports:7:2: the host three"), "{why}");
    }

    #[test]
    fn rules_that_contradict_each_other_are_an_error_and_repetitions_are_not() {
        for (one, other) in [
            ("*", "*"),
            ("10.0.0.0/8", "::ffff:10.0.0.0/104"),
            ("10.1.2.3", "two"),
        ] {
            let why = load(&[(one, 1), (other, 2)]).expect_err("they contradict");
            assert!(why.to_string().contains("other rights"), "{why}");
            assert!(load(&[(one, 1), (other, 1)]).is_ok());
        }
        let many: Vec<_> = (0..=RULES_MAX).map(|_| ("*", 1)).collect();
        assert!(load(&many[1..]).is_ok());
        assert!(load(&many).is_err(), "too many");
    }

    #[test]
    fn ports_and_tls_are_asked_for_where_a_rule_says_so() {
        let call = |peer: Option<&str>, is_secured| Call {
            program: NFS.number,
            procedure: 1,
            peer: peer.map(|peer| peer.parse().expect("an address")),
            is_secured,
            ..Call::default()
        };
        let open = Rights::default();
        let strict = Rights {
            secure_ports: true,
            tls_required: true,
            ..open
        };
        for peer in [None, Some("10.0.0.1:1024")] {
            assert!(open.admits_port(&call(peer, false)));
            assert!(!strict.admits_port(&call(peer, true)));
        }
        assert!(strict.admits_port(&call(Some("10.0.0.1:1023"), false)));
        assert!(open.admits_wire(&call(None, false)));
        assert!(!strict.admits_wire(&call(None, false)));
        assert!(strict.admits_wire(&call(None, true)));
    }
}
