//! The options of a client: each is applied, or has no effect that would be missed, or is an error.

use std::net::IpAddr;

use flatpath::Subnet;

use super::BadExports;
use super::lexer::Word;
use crate::rights::{Access, ClientRule, Clients, Rights, Squash};

/// Options that are applied: those that `apply` knows.
pub(super) const APPLIED: &[&str] = &[
    "ro",
    "rw",
    "secure",
    "insecure",
    "root_squash",
    "no_root_squash",
    "all_squash",
    "no_all_squash",
    "anonuid",
    "anongid",
    "sec",
    "xprtsec",
];

/// Options that take nothing away by having no effect: the server does what they ask for anyway,
/// or has nothing that they are about.
const SILENT: &[&str] = &[
    "sync",
    "wdelay",
    "no_wdelay",
    "hide",
    "nocrossmnt",
    "subtree_check",
    "no_subtree_check",
    "secure_locks",
    "insecure_locks",
    "auth_nlm",
    "no_auth_nlm",
    "acl",
    "no_acl",
    "no_pnfs",
];

/// Options without an effect that an administrator may count on, and why they have none.
const NOTED: &[(&str, &str)] = &[
    (
        "async",
        "replies to changes come after the disk, as with sync",
    ),
    ("fsid", "handles do not depend on it"),
    (
        "crossmnt",
        "no client enters a mount below an export: export it by itself",
    ),
    (
        "nohide",
        "no client enters a mount below an export: export it by itself",
    ),
    ("nordirplus", "READDIRPLUS is answered"),
    ("pnfs", "it is a part of NFSv4.1"),
    ("ttl", "rights are looked up with each call"),
];

/// Options that would be missed, and what to do instead.
const REFUSED: &[(&str, &str)] = &[
    ("refer", "referrals are a part of NFSv4"),
    ("replicas", "replicas are a part of NFSv4"),
    (
        "mp",
        "a directory is exported whether it is a mount point or not",
    ),
    (
        "mountpoint",
        "a directory is exported whether it is a mount point or not",
    ),
    ("squash_uids", "write all_squash, or root_squash"),
    ("squash_gids", "write all_squash, or root_squash"),
    ("security_label", "labels are a part of NFSv4.2"),
];

/// What is told of options and rules without an effect; each once.
#[derive(Debug, Default)]
pub(super) struct Notices(Vec<(&'static str, String)>);

impl Notices {
    fn note(&mut self, option: &'static str, word: &Word, at: usize, why: &str) {
        if self.0.iter().all(|known| known.0 != option) {
            let line = format!("{} {option} has no effect: {why}", word.place(at));
            self.0.push((option, line));
        }
    }

    /// Notes a network that is written with an address in it, which nfs-utils takes, too.
    pub(super) fn bits_of(&mut self, clients: &Clients, written: &[u8], word: &Word) {
        let Clients::Network(network) = clients else {
            return;
        };
        let written = String::from_utf8_lossy(written);
        let address = written.split_once('/').map(|(address, _)| address);
        let address = address.and_then(|address| address.parse::<IpAddr>().ok());
        let is_within = address.is_some_and(|it| Subnet::from(it).bits() != network.bits());
        if is_within {
            let why = format!("{written} is {network}");
            self.note("the end of an address", word, 0, &why);
        }
    }

    /// Notes a network that holds although nfs-utils would take an earlier, larger one.
    pub(super) fn order_of(&mut self, rules: &[ClientRule]) {
        const OPTION: &str = "the order of networks";
        if self.0.iter().any(|known| known.0 == OPTION) {
            return;
        }
        let networks = |rule: &ClientRule| match rule.clients {
            Clients::Network(network) if network.mask() != u128::MAX => Some(network),
            _ => None,
        };
        for (number, rule) in rules.iter().enumerate() {
            let Some(inner) = networks(rule) else {
                continue;
            };
            let covers = |other: &&ClientRule| {
                networks(other).is_some_and(|outer| {
                    outer.mask() < inner.mask()
                        && inner.bits() & outer.mask() == outer.bits()
                        && other.rights != rule.rights
                })
            };
            if let Some(outer) = rules[..number].iter().find(covers) {
                let line = format!(
                    "{}: {OPTION} has no effect: {} counts although {} comes first",
                    rule.place, rule.clients, outer.clients
                );
                return self.0.push((OPTION, line));
            }
        }
    }

    /// As lines for the log. The place of a rule is whole, that of an option gets the name.
    pub(super) fn into_lines(self, name: &str) -> Vec<String> {
        let lines = self
            .0
            .into_iter()
            .map(|(_, line)| match line.starts_with(name) {
                true => line,
                false => format!("{name}:{line}"),
            });
        lines.collect()
    }
}

/// Applies the options in a word from byte `at` on.
pub(super) fn read_options(
    word: &Word,
    mut at: usize,
    rights: &mut Rights,
    notices: &mut Notices,
) -> Result<(), BadExports> {
    for option in word.bytes[at.min(word.bytes.len())..].split(|byte| *byte == b',') {
        let text = String::from_utf8_lossy(option);
        apply(&text, word, at, rights, notices).map_err(|why| word.error(at, why))?;
        at += option.len() + 1;
    }
    Ok(())
}

fn apply(
    option: &str,
    word: &Word,
    at: usize,
    rights: &mut Rights,
    notices: &mut Notices,
) -> Result<(), String> {
    match option {
        // As in `ro,`.
        "" => {}
        "ro" => rights.access = Access::ReadOnly,
        "rw" => rights.access = Access::ReadWrite,
        "secure" => rights.secure_ports = true,
        "insecure" => rights.secure_ports = false,
        // All stays squashed by a word about root alone, whichever comes first.
        "root_squash" if rights.squash == Squash::Anonymous => rights.squash = Squash::Root,
        "no_root_squash" if rights.squash == Squash::Root => rights.squash = Squash::Anonymous,
        "root_squash" | "no_root_squash" => {}
        "all_squash" => rights.squash = Squash::All,
        "no_all_squash" if rights.squash == Squash::All => rights.squash = Squash::Root,
        "no_all_squash" => {}
        silent if SILENT.contains(&silent) => {}
        other => return apply_value(other, word, at, rights, notices),
    }
    Ok(())
}

/// The same for what may have a value.
fn apply_value(
    option: &str,
    word: &Word,
    at: usize,
    rights: &mut Rights,
    notices: &mut Notices,
) -> Result<(), String> {
    let (name, value) = option.split_once('=').unwrap_or((option, ""));
    let is_of = |entry: &&(&'static str, &str)| entry.0 == name;
    match name {
        "anonuid" => rights.anonymous_user = number(name, value)?,
        "anongid" => rights.anonymous_group = number(name, value)?,
        "sec" => flavor(value)?,
        "xprtsec" => rights.tls_required = requires_tls(value)?,
        _ => {
            if let Some((_, why)) = REFUSED.iter().find(is_of) {
                return Err(format!("{name} is not supported: {why}"));
            }
            let Some((noted, why)) = NOTED.iter().find(is_of) else {
                return Err(match named(name) {
                    Some(right) => format!("the option {option:?} is not known: write {right}"),
                    None => format!("the option {option:?} is not known"),
                });
            };
            notices.note(noted, word, at, why);
        }
    }
    Ok(())
}

/// The option that a word means, however its parts are joined.
pub(super) fn named(word: &str) -> Option<String> {
    let right = word.to_ascii_lowercase().replace('-', "_");
    let is_of = |entry: &(&str, &str)| entry.0 == right;
    let is_known = APPLIED.contains(&&*right)
        || SILENT.contains(&&*right)
        || NOTED.iter().chain(REFUSED).any(is_of);
    is_known.then_some(right)
}

/// The number of a user or group. The largest word is no number: the kernel's "leave it".
fn number(name: &str, value: &str) -> Result<u32, String> {
    let digits = value.bytes().all(|byte| byte.is_ascii_digit());
    let number = value.parse().ok().filter(|it| digits && *it != u32::MAX);
    number.ok_or_else(|| {
        let most = u32::MAX - 1;
        format!("{name}={value}: write a number from 0 to {most}; nobody is 65534")
    })
}

/// Calls come with AUTH_SYS. Who may come without Kerberos would not be protected by it.
fn flavor(value: &str) -> Result<(), String> {
    match value {
        "sys" | "unix" => Ok(()),
        "none" | "null" => Err(format!("sec={value} is not supported: write all_squash")),
        _ => Err(format!(
            "sec={value} is not supported: there is no Kerberos, calls come with sec=sys; demand \
             TLS with xprtsec=tls"
        )),
    }
}

/// Whether calls have to come through TLS.
fn requires_tls(value: &str) -> Result<bool, String> {
    let mut kinds = value.split(':');
    if !kinds
        .clone()
        .all(|kind| matches!(kind, "none" | "tls" | "mtls"))
    {
        return Err(format!("xprtsec={value}: write none, tls, or none:tls"));
    }
    if value == "mtls" {
        let why = "xprtsec=mtls is not supported for one export: name the authority of clients \
                   with --tls-client-ca and --nfs-tls required, for all";
        return Err(why.into());
    }
    Ok(!kinds.any(|kind| kind == "none"))
}
