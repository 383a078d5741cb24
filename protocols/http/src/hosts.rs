//! The hosts that a listener answers for: a defence against DNS rebinding.
//!
//! Any site can let its own name resolve to 127.0.0.1 for the length of a visit. Its pages then
//! read and write at a server there, and the browser takes that server for the site. Such a request
//! still names the site in its `Host`. With [`Hosts`] a listener answers only for names that are
//! its own, and others with 421 (RFC 9110 section 15.5.20).
//!
//! What is compared is the host that a request is for
//! ([`Head::authority`](crate::Head::authority)): of a target in absolute form the target's,
//! whatever `Host` says (RFC 9112 section 3.2.2). Ports are not compared.
//!
//! Cost: a comparison with the last host that was admitted, which saves checking the syntax of the
//! same one again; only another one is looked for.

use std::fmt;
use std::net::Ipv4Addr;
use std::str::FromStr;

/// Hosts that are answered for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hosts(Option<Vec<HostPattern>>);

impl Hosts {
    /// Every host: what [`Http`](crate::Http) answers for unless it is told otherwise.
    #[must_use]
    pub fn any() -> Self {
        Self(None)
    }

    /// What no site can have its name taken for: `localhost` and names below it, addresses, and the
    /// name of this machine (uname(2)), as it is and up to its first dot. A request of HTTP/1.0
    /// that names no host is answered, too: no browser sends one.
    #[must_use]
    pub fn local() -> Self {
        let machine = rustix::system::uname();
        let name = machine.nodename().to_string_lossy().to_ascii_lowercase();
        let first = name.split('.').next().unwrap_or_default().to_owned();
        let mut names = vec![
            HostPattern(Kind::Named("localhost".into())),
            HostPattern(Kind::Below(".localhost".into())),
        ];
        for name in [first, name] {
            let pattern = name.parse().ok();
            names.extend(pattern.filter(|it: &HostPattern| !it.is_any() && !names.contains(it)));
        }
        Self(Some(names))
    }

    /// These, and those that fit one of the patterns.
    #[must_use]
    pub fn and(self, patterns: impl IntoIterator<Item = HostPattern>) -> Self {
        let Some(mut names) = self.0 else {
            return self;
        };
        names.extend(patterns);
        match names.iter().any(HostPattern::is_any) {
            true => Self::any(),
            false => Self(Some(names)),
        }
    }

    /// Whether a request for this host, with its port, is answered.
    #[must_use]
    pub fn admits(&self, authority: &str) -> bool {
        let Some(names) = &self.0 else {
            return true;
        };
        if authority.is_empty() || authority.starts_with('[') {
            return true;
        }
        let host = authority.split(':').next().unwrap_or_default();
        let host = host.strip_suffix('.').unwrap_or(host);
        host.parse::<Ipv4Addr>().is_ok() || names.iter().any(|it| it.fits(host))
    }
}

/// A host, or all hosts below a domain: `example.org`, `*.example.org`, or `*` for every host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPattern(Kind);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    Any,
    /// In small letters.
    Named(Box<str>),
    /// With the dot in front.
    Below(Box<str>),
}

impl HostPattern {
    /// Whether it is `*`.
    #[must_use]
    pub fn is_any(&self) -> bool {
        self.0 == Kind::Any
    }

    fn fits(&self, host: &str) -> bool {
        match &self.0 {
            Kind::Any => true,
            Kind::Named(name) => host.eq_ignore_ascii_case(name),
            Kind::Below(domain) => {
                let at = host.len().saturating_sub(domain.len());
                let end = host.as_bytes().get(at..);
                at > 0 && end.is_some_and(|end| end.eq_ignore_ascii_case(domain.as_bytes()))
            }
        }
    }
}

/// The text is no [`HostPattern`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidHost(());

flatpath::impl_error! {
    InvalidHost {
        Self(..) => "write a host without scheme and port, such as files.example.org; \
                     *.example.org for all below it, or * for every host",
    }
}

impl FromStr for HostPattern {
    type Err = InvalidHost;

    fn from_str(text: &str) -> Result<Self, InvalidHost> {
        if text == "*" {
            return Ok(Self(Kind::Any));
        }
        let text = text.to_ascii_lowercase();
        let name = text.strip_prefix("*.").unwrap_or(&text);
        let is_label = |label: &str| {
            let mut bytes = label.bytes();
            !label.is_empty()
                && bytes.all(|it| it.is_ascii_alphanumeric() || it == b'-' || it == b'_')
        };
        if !name.split('.').all(is_label) {
            return Err(InvalidHost(()));
        }
        Ok(Self(match name.len() == text.len() {
            true => Kind::Named(name.into()),
            false => Kind::Below(text[1..].into()),
        }))
    }
}

impl fmt::Display for HostPattern {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::Any => formatter.write_str("*"),
            Kind::Named(name) => formatter.write_str(name),
            Kind::Below(domain) => write!(formatter, "*{domain}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(text: &str) -> HostPattern {
        text.parse().expect("a pattern")
    }

    #[test]
    fn local_hosts_are_those_that_no_site_can_take() {
        let local = Hosts::local();
        let machine = rustix::system::uname();
        let machine = machine.nodename().to_string_lossy();
        for host in [
            "",
            "localhost",
            "LocalHost:8080",
            "localhost.",
            "a.localhost",
            "a.b.LOCALHOST:1",
            "127.0.0.1",
            "127.0.0.1:8080",
            "192.0.2.7:",
            "[::1]:8080",
            "[2001:db8::7]",
            &machine,
            &format!("{machine}:80"),
        ] {
            assert!(local.admits(host), "{host}");
        }
        for host in [
            "evil.example",
            "evil.example:8080",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "notlocalhost",
            ".localhost",
            "127.0.0.1.",
            "127.0.0.1x",
            "a%2elocalhost%2e",
        ] {
            let is_address = host == "127.0.0.1.";
            assert_eq!(local.admits(host), is_address, "{host}");
        }
    }

    #[test]
    fn named_hosts_are_answered_beside_the_local_ones() {
        let hosts = Hosts::local().and([pattern("Files.Example.org"), pattern("*.example.net")]);
        for host in [
            "files.example.org",
            "FILES.example.org.:80",
            "a.example.net",
            "a.b.EXAMPLE.net",
            "localhost",
            "10.0.0.1",
        ] {
            assert!(hosts.admits(host), "{host}");
        }
        for host in [
            "example.org",
            "a.files.example.org",
            "example.net",
            "xexample.net",
        ] {
            assert!(!hosts.admits(host), "{host}");
        }
        assert_eq!(hosts.and([pattern("*")]), Hosts::any());
        assert!(Hosts::any().and([pattern("a")]).admits("evil.example"));
    }

    #[test]
    fn patterns_have_neither_scheme_nor_port() {
        for text in ["*", "a", "a.b", "*.a.b", "xn--bcher-kva.example", "a_b"] {
            assert_eq!(pattern(text).to_string(), text);
        }
        for text in [
            "", "http://a", "a:80", "a/b", "*a", "*.", "a.*", ".a", "a.", "a b", "[::1]", "bücher",
        ] {
            assert!(text.parse::<HostPattern>().is_err(), "{text}");
        }
    }
}
