//! Access rules over HTTP: those of each site, which a reload replaces.
//!
//! The rules are the library's ([`Access`]); here they are made of settings. Sites with the same
//! file of passwords share it, and what is known of it. The addresses of one listener share what
//! was counted.

use std::collections::HashSet;
use std::net::IpAddr;
use std::path::PathBuf;

use flatpath::sockets::ListenAddress;
use flatpath_layers::{Access, AccessHandle, RateLimit};

use crate::access_log::AccessLogs;
use crate::failure::Failure;
use crate::listener::Listener;
use crate::memory::Parts;
use crate::passwords::{self, PasswordFiles};
use crate::settings::Settings;

/// The rules of all sites, and what else of them outlives a reload.
#[derive(Clone, Debug, Default)]
pub(crate) struct Accesses {
    /// By listener and site.
    handles: Vec<((String, String), AccessHandle)>,
    passwords: PasswordFiles,
    /// Where their requests are logged.
    pub(crate) logs: AccessLogs,
}

/// Whether anything is asked of clients.
pub(crate) fn is_limited(settings: &Settings) -> bool {
    let Settings {
        allow,
        deny,
        auth_file,
        rate,
        rate_bytes,
        ..
    } = settings;
    let has_networks = !allow.is_empty() || !deny.is_empty();
    has_networks || auth_file.is_some() || rate.is_some() || rate_bytes.is_some()
}

/// How many tables of addresses the rules of these listeners have, and how many files of passwords.
pub(crate) fn tables(listeners: &[Listener]) -> (usize, usize) {
    let (mut seen, mut rates, mut files) = (HashSet::new(), 0, HashSet::new());
    for listener in listeners.iter().filter(|it| it.serves_over_http()) {
        for site in listener.served() {
            let of = &site.settings;
            files.extend(of.auth_file.clone());
            if seen.insert((listener.name(), site.label)) {
                rates += usize::from(of.rate.is_some()) + usize::from(of.rate_bytes.is_some());
            }
        }
    }
    (rates, files.len())
}

/// The memory that the largest check of a password takes, in bytes.
pub(crate) fn check_bytes(listeners: &[Listener]) -> usize {
    let over_http = listeners.iter().filter(|it| it.serves_over_http());
    let served = over_http.flat_map(Listener::served);
    let paths = served.filter_map(|site| site.settings.auth_file).collect();
    passwords::check_bytes(&paths)
}

/// Whether the rules of a site could be made.
///
/// # Errors
/// A network is allowed and denied; the file of passwords cannot be used.
pub(crate) fn check(settings: &Settings) -> Result<(), Failure> {
    rules(settings, "/", &mut PasswordFiles::default()).map(drop)
}

fn rules(
    settings: &Settings,
    prefix: &str,
    passwords: &mut PasswordFiles,
) -> Result<Access, Failure> {
    if let Some(why) = settings.networks_conflict() {
        return Err(Failure::WrongUse(why.into()));
    }
    let mut access = Access::new()
        .allow(settings.allow.iter().copied())
        .deny(settings.deny.iter().copied());
    if let Some(rate) = settings.rate {
        let requests = u32::try_from(rate.amount).unwrap_or(u32::MAX);
        access = access.requests(RateLimit::new(requests, rate.time));
    }
    if let Some(rate) = settings.rate_bytes {
        access = access.bytes(rate.amount, rate.time);
    }
    if let Some(path) = &settings.auth_file {
        access = passwords.asked_by(access, &realm(prefix), path)?;
    }
    Ok(access)
}

/// What a browser tells its user: other passwords below another prefix.
fn realm(prefix: &str) -> String {
    let is_plain = |it: &char| it.is_ascii_graphic() && !matches!(it, '"' | '\\');
    let prefix: String = prefix.chars().filter(is_plain).collect();
    match prefix.trim_end_matches('/') {
        "" => "restricted".into(),
        prefix => format!("restricted {prefix}"),
    }
}

impl Accesses {
    /// None yet. Passwords are checked within the memory that was set aside; these are the logs.
    pub(crate) fn within(parts: &Parts, logs: &AccessLogs) -> Self {
        let mut accesses = Self::default();
        accesses.passwords.checks = parts.occasional.checks.clone();
        accesses.logs = logs.clone();
        accesses
    }

    /// The rules of a site at a listener; `None` where it has none.
    pub(crate) fn of(
        &mut self,
        listener: &str,
        (site, prefix): (&str, &str),
        settings: &Settings,
    ) -> Result<Option<AccessHandle>, Failure> {
        if !is_limited(settings) {
            return Ok(None);
        }
        let key = (listener.to_owned(), site.to_owned());
        if let Some((_, known)) = self.handles.iter().find(|(known, _)| *known == key) {
            return Ok(Some(known.clone()));
        }
        let handle = AccessHandle::new(rules(settings, prefix, &mut self.passwords)?);
        self.handles.push((key, handle.clone()));
        Ok(Some(handle))
    }

    /// Reads the files of passwords again, if they have changed.
    pub(crate) fn reload_passwords(&self) {
        self.passwords.reload();
    }

    /// Forgets the rules of sites, and files of passwords, that no listener has any more: neither
    /// of these, which are served, nor of those that a file names for the next start.
    pub(crate) fn forget(&mut self, served: &[Listener], named: &[Listener]) {
        let (mut keys, mut paths) = (HashSet::new(), HashSet::<PathBuf>::new());
        for listener in served
            .iter()
            .chain(named)
            .filter(|it| it.serves_over_http())
        {
            for site in listener.served() {
                keys.insert((listener.name(), site.label));
                paths.extend(site.settings.auth_file);
            }
        }
        self.handles.retain(|(key, _)| keys.contains(key));
        self.passwords.retain(&paths);
    }

    /// Takes over the rules of listeners as they are now; gives back the sites whose first rules
    /// have to wait for a restart.
    pub(crate) fn renew(&mut self, listeners: &[Listener]) -> Result<Vec<String>, Failure> {
        let mut pending = Vec::new();
        for listener in listeners.iter().filter(|it| it.serves_over_http()) {
            for served in listener.served() {
                let key = (listener.name(), served.label.clone());
                let known = self.handles.iter().find(|(known, _)| *known == key);
                let Some(handle) = known.map(|(_, handle)| handle.clone()) else {
                    if is_limited(&served.settings) {
                        pending.push(served.label);
                    }
                    continue;
                };
                let rules = rules(&served.settings, served.prefix, &mut self.passwords)?;
                handle.replace(rules);
            }
        }
        Ok(pending)
    }
}

/// Warns where passwords travel in the clear: over TCP without TLS, to an address that others
/// reach.
pub(crate) fn warn_of_clear_passwords(listeners: &[Listener]) {
    let is_exposed = |address: &ListenAddress| {
        let address = address.internet().map(|it| it.ip().to_canonical());
        address.is_some_and(|it: IpAddr| !it.is_loopback())
    };
    for listener in listeners.iter().filter(|it| it.tls.is_none()) {
        let asks = listener
            .served()
            .iter()
            .any(|it| it.settings.auth_file.is_some());
        let exposed = listener.addresses.iter().find(|it| is_exposed(it));
        if let Some(address) = exposed.filter(|_| asks && listener.serves_over_http()) {
            log::warn!(
                "auth-file at {address}: without TLS everyone who sees a connection sees its \
                 password; use --https, or a proxy with TLS"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Configuration;

    fn settings(text: &str) -> Settings {
        Configuration::from_text(text).expect("good").settings
    }

    #[test]
    fn each_rule_alone_limits_a_site() {
        for text in [
            "allow = \"10.0.0.0/8\"",
            "deny = \"10.0.0.0/8\"",
            "auth-file = \"users\"",
            "rate = \"10/s\"",
            "rate-bytes = \"1G/1h\"",
        ] {
            assert!(is_limited(&settings(text)), "{text}");
        }
        assert!(!is_limited(&settings("hidden = true")));
    }

    #[test]
    fn a_network_is_allowed_or_denied() {
        let both = Settings {
            deny: settings("deny = \"10.0.0.0/8\"").deny,
            ..settings("allow = [\"::1\", \"10.0.0.0/8\"]")
        };
        let why = check(&both).expect_err("it is both");
        assert!(format!("{why:?}").contains("the same network"), "{why:?}");
        // One within the other is an exception of it.
        assert!(check(&settings("allow = \"10.0.0.0/8\"\ndeny = \"10.1.0.0/16\"")).is_ok());
    }
}
