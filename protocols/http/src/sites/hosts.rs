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
//! One rule says which pattern a host fits, for [`Hosts`] and for the names of
//! [`Sites`](crate::Sites): [`HostMap`].
//!
//! Cost: a comparison with the last host that was admitted, which saves checking the syntax of the
//! same one again; only another one is looked for, by a hash for each of its labels.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::net::Ipv4Addr;
use std::str::FromStr;

use crate::limits::HOST_BYTES_MAX;

/// Hosts that are answered for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hosts(Option<HostMap<()>>);

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
        let mut names = HostMap::default();
        names.insert(&HostPattern(Kind::Named("localhost".into())), ());
        names.insert(&HostPattern(Kind::Below(".localhost".into())), ());
        for name in [first, name] {
            let pattern = name.parse().ok();
            if let Some(pattern) = pattern.filter(|it: &HostPattern| !it.is_any()) {
                names.insert(&pattern, ());
            }
        }
        Self(Some(names))
    }

    /// These, and those that fit one of the patterns.
    #[must_use]
    pub fn and(self, patterns: impl IntoIterator<Item = HostPattern>) -> Self {
        let Some(mut names) = self.0 else {
            return self;
        };
        for pattern in patterns {
            names.insert(&pattern, ());
        }
        match names.any.is_some() {
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
        let host = name_of(authority);
        host.parse::<Ipv4Addr>().is_ok() || names.find(authority).is_some()
    }
}

/// An authority without its port. An address of IPv6 keeps its brackets.
pub(crate) fn without_port(authority: &str) -> &str {
    let end_of_address = authority.find(']').unwrap_or(0);
    let port = authority[end_of_address..].find(':');
    &authority[..port.map_or(authority.len(), |at| end_of_address + at)]
}

/// The name in an authority: without its port, and without a dot at its end, which changes nothing.
fn name_of(authority: &str) -> &str {
    let host = without_port(authority);
    host.strip_suffix('.').unwrap_or(host)
}

/// Values by pattern. A host has that of its own name, else of the longest domain that it is below,
/// else of `*`. Letters are compared without regard to case, all other bytes as they are: a name of
/// other scripts comes in its ASCII form (`xn--...`), as browsers send it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HostMap<T> {
    /// In small letters.
    named: HashMap<Box<str>, T>,
    /// With the dot in front.
    below: HashMap<Box<str>, T>,
    any: Option<T>,
}

impl<T> Default for HostMap<T> {
    fn default() -> Self {
        Self {
            named: HashMap::new(),
            below: HashMap::new(),
            any: None,
        }
    }
}

impl<T> HostMap<T> {
    /// Sets the value of a pattern; gives back the one that it had.
    pub(crate) fn insert(&mut self, pattern: &HostPattern, value: T) -> Option<T> {
        match &pattern.0 {
            Kind::Any => self.any.replace(value),
            Kind::Named(name) => self.named.insert(name.clone(), value),
            Kind::Below(domain) => self.below.insert(domain.clone(), value),
        }
    }

    /// The value of a pattern itself.
    pub(crate) fn of_pattern(&self, pattern: &HostPattern) -> Option<&T> {
        match &pattern.0 {
            Kind::Any => self.any.as_ref(),
            Kind::Named(name) => self.named.get(name),
            Kind::Below(domain) => self.below.get(domain),
        }
    }

    /// The value of the pattern that the host of an authority fits best.
    pub(crate) fn find(&self, authority: &str) -> Option<&T> {
        let host = name_of(authority);
        // RFC 1035 section 2.3.4 has no longer ones.
        if host.is_empty() || host.len() > HOST_BYTES_MAX {
            return self.any.as_ref();
        }
        let host = match host.bytes().any(|it| it.is_ascii_uppercase()) {
            true => Cow::Owned(host.to_ascii_lowercase()),
            false => Cow::Borrowed(host),
        };
        let named = self.named.get(&*host);
        let found = named.or_else(|| self.find_below(&host));
        found.or(self.any.as_ref())
    }

    /// The longest domain first.
    fn find_below(&self, host: &str) -> Option<&T> {
        if self.below.is_empty() {
            return None;
        }
        let dots = host.bytes().enumerate().skip(1);
        let mut dots = dots.filter(|(_, byte)| *byte == b'.');
        dots.find_map(|(at, _)| self.below.get(&host[at..]))
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
    fn a_host_has_the_value_of_the_longest_pattern() {
        let mut map = HostMap::default();
        for text in ["a.example", "*.a.example", "*.b.a.example", "*"] {
            assert_eq!(map.insert(&pattern(text), text), None);
        }
        let long = format!("{}a.example", "b.".repeat(127));
        for (host, found) in [
            ("a.example", "a.example"),
            ("A.EXAMPLE.:8080", "a.example"),
            ("x.a.example", "*.a.example"),
            ("b.a.example", "*.a.example"),
            ("x.y.a.example", "*.a.example"),
            ("x.B.a.example", "*.b.a.example"),
            ("x.y.b.a.example", "*.b.a.example"),
            (".a.example", "*"),
            ("a.example..", "*"),
            ("xa.example", "*"),
            ("a%2eexample", "*"),
            ("[::1]:80", "*"),
            ("", "*"),
            // Longer than any name is.
            (&long, "*"),
        ] {
            assert_eq!(map.find(host), Some(&found), "{host}");
        }
        assert_eq!(
            map.insert(&pattern("A.example"), "other"),
            Some("a.example")
        );
        assert_eq!(
            map.of_pattern(&pattern("*.a.example")),
            Some(&"*.a.example")
        );
        assert_eq!(map.of_pattern(&pattern("*.example")), None);
        assert_eq!(HostMap::<u8>::default().find("a"), None);
    }

    #[test]
    fn model_a_map_finds_what_its_patterns_say_one_by_one() {
        let mut random = fastrand::Rng::with_seed(1);
        let mut word = |labels: usize| {
            let labels: Vec<_> = (0..labels)
                .map(|_| *random.choice(&["a", "b", "ab"]).expect("some"))
                .collect();
            labels.join(".")
        };
        for _ in 0..300 {
            let mut map = HostMap::default();
            let (named, below) = (word(2), [word(1), word(2)]);
            map.insert(&pattern(&named), named.clone());
            for domain in &below {
                map.insert(&pattern(&format!("*.{domain}")), format!("*.{domain}"));
            }
            for labels in 1..5 {
                let host = word(labels);
                let fits = |domain: &&String| host.ends_with(&format!(".{domain}"));
                let longest = below.iter().filter(fits).max_by_key(|it| it.len());
                let expected = match host == named {
                    true => Some(named.clone()),
                    false => longest.map(|domain| format!("*.{domain}")),
                };
                assert_eq!(
                    map.find(&host),
                    expected.as_ref(),
                    "{host} {named} {below:?}"
                );
            }
        }
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
