//! `--proxy`: a site that other servers answer for.
//!
//! A site has a directory or servers, never both; its rules of paths are of files. What may be
//! asked of clients before (`allow`, `deny`, `auth-file`, `rate`) is as for files.
//!
//! Each listener, and each site after a reload that changes it, has an upstream of its own: what is
//! under way on the one before ends there, and its idle connections end after their time.

use std::fmt;
use std::path::Path;

use flatpath_http::{Balance, ForwardedFields, HostField, Proxy, Upstream, UpstreamLimits};

use crate::failure::Failure;
use crate::settings::{ProxyBalance, ProxyForwarded, Settings, is_on};
use crate::tls::upstreams;
use crate::units::ProxyHost;

/// Why a table is refused that has rules beside servers.
pub(crate) const NO_RULES: &str =
    "redirect, rewrite, header and the other rules of paths are for a site with dir";

/// Why one is that names origins.
pub(crate) const NO_ORIGINS: &str =
    "allow-origin is for a site with dir: the servers of a proxy answer pages of other origins";

/// What answers for a site.
pub(crate) enum Answers<'a> {
    Nothing,
    Files,
    Servers,
    /// Files and servers: one is to be named.
    Both(&'a Path),
}

/// See [`Answers`].
pub(crate) fn answers(settings: &Settings) -> Answers<'_> {
    match (settings.dir.as_deref(), settings.proxy.is_empty()) {
        (None, true) => Answers::Nothing,
        (Some(_), true) => Answers::Files,
        (None, false) => Answers::Servers,
        (Some(dir), false) => Answers::Both(dir),
    }
}

/// The servers that answer for a site with this label.
///
/// # Errors
/// It has a directory as well; there are too many servers.
pub(crate) fn proxy(label: &str, settings: &Settings) -> Result<Proxy, Failure> {
    let wrong = |why: &dyn fmt::Display| Failure::WrongUse(format!("proxy: {why}"));
    if let Answers::Both(dir) = answers(settings) {
        let why = format!("{} is served as well: name one of them", dir.display());
        return Err(wrong(&why));
    }
    let mut limits = UpstreamLimits::default();
    if let Some(time) = settings.proxy_timeout {
        limits.first_byte_timeout = time;
        limits.between_bytes_timeout = time;
    }
    let balance = match settings.proxy_balance {
        None | Some(ProxyBalance::LeastOfTwo) => Balance::LeastOfTwo,
        Some(ProxyBalance::RoundRobin) => Balance::RoundRobin,
        Some(ProxyBalance::ClientHash) => Balance::HashOfClient,
    };
    let name = match label.trim() {
        "" => "of the listener",
        label => label,
    };
    let servers = upstreams::servers(settings)?;
    let upstream = Upstream::new(name, servers, balance, limits).map_err(|why| wrong(&why))?;
    let proxy = Proxy::to(&upstream)
        .host(match &settings.proxy_host {
            None | Some(ProxyHost::Client) => HostField::Client,
            Some(ProxyHost::Server) => HostField::Server,
            Some(ProxyHost::Named(host)) => HostField::Always(host.clone()),
        })
        .forwarded(match settings.proxy_forwarded {
            None | Some(ProxyForwarded::New) => ForwardedFields::New,
            Some(ProxyForwarded::Append) => ForwardedFields::Append,
            Some(ProxyForwarded::None) => ForwardedFields::None,
        });
    Ok(match is_on(settings.proxy_keep_prefix) {
        true => proxy.keep_prefix(),
        false => proxy,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_site_has_a_directory_or_servers() {
        let server = || "http://127.0.0.1:3000".parse().expect("a server");
        let both = Settings {
            dir: Some("/srv".into()),
            proxy: vec![server()],
            ..Settings::default()
        };
        let refused = |settings| proxy("", &settings).err().map(|why| why.to_string());
        assert!(refused(both).is_some_and(|why| why.contains("/srv")));
        let many = Settings {
            proxy: vec![server(); flatpath_http::SERVERS_MAX + 1],
            ..Settings::default()
        };
        assert!(refused(many).is_some_and(|why| why.contains("at most")));
        let one = Settings {
            proxy: vec![server()],
            ..Settings::default()
        };
        assert_eq!(refused(one), None);
    }
}
