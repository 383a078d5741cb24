//! The origins whose pages may write: a defence against cross-site request forgery.
//!
//! A page of any site may have a browser send POST, PUT, PATCH or DELETE anywhere, with the user's
//! place in the network and often with the user's rights. A browser says where such a request comes
//! from, in `Sec-Fetch-Site` and `Origin`. With [`Origins`] a listener refuses those of foreign
//! pages with 403, and handshakes of WebSockets from there as well, for which browsers ask no
//! permission. Programs that are no browsers send neither header, and are served.
//!
//! | request                                         | answer                                    |
//! |-------------------------------------------------|-------------------------------------------|
//! | GET, HEAD, OPTIONS, TRACE (RFC 9110 9.2.1)       | served, unless they ask for an upgrade    |
//! | `Origin` is named with [`Origins::and`]         | served                                    |
//! | `Sec-Fetch-Site: same-origin` or `none`         | served                                    |
//! | another `Sec-Fetch-Site`, `same-site` included  | 403                                       |
//! | `Origin` with the host and port of the request  | served                                    |
//! | another `Origin`, `null` included               | 403                                       |
//! | neither header                                  | served                                    |
//!
//! `Sec-Fetch-Site` comes first because a proxy may change `Host`. For a handshake only `Origin`
//! counts: not every browser sends the other with it. The scheme of `Origin` has to be `https` on a
//! connection that has TLS here; otherwise it is not compared, which a server behind a proxy that
//! encrypts does not know.
//!
//! What it does not do: grant anything to a page. Without headers of CORS, which a handler may
//! send, a page of another origin reads no answer.

use std::fmt;
use std::str::FromStr;

use http::HeaderValue;
use http::header::ORIGIN;

use crate::extract::host::Host;
use crate::extract::peer::Tls;
use crate::head::Head;
use crate::head::target;
use crate::message::Request;

/// Origins whose pages may write.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origins(Option<Vec<OriginPattern>>);

impl Origins {
    /// Every origin: what [`Http`](crate::Http) admits unless it is told otherwise.
    #[must_use]
    pub fn any() -> Self {
        Self(None)
    }

    /// The origin that a request is sent to, alone.
    #[must_use]
    pub fn own() -> Self {
        Self(Some(Vec::new()))
    }

    /// These, and those that are named.
    #[must_use]
    pub fn and(self, origins: impl IntoIterator<Item = OriginPattern>) -> Self {
        let Some(mut named) = self.0 else {
            return self;
        };
        named.extend(origins);
        match named.iter().any(OriginPattern::is_any) {
            true => Self::any(),
            false => Self(Some(named)),
        }
    }

    /// Whether a request is served, whoever sent it. Others are looked at.
    #[inline]
    pub(crate) fn admit_any(head: &Head<'_>) -> bool {
        head.is_get() && !head.asks_upgrade
    }

    /// Whether a request that writes is served, as [`Http::origins`](crate::Http::origins) decides
    /// it for a whole listener: for a service whose pages have forms, which any page could copy.
    /// The scheme of the connection is known where the request has [`Tls`].
    ///
    /// ```
    /// use flatpath_http::{Origins, Request};
    ///
    /// fn is_foreign(request: &Request) -> bool {
    ///     !Origins::own().admits_write(request)
    /// }
    /// # let _ = is_foreign;
    /// ```
    #[must_use]
    pub fn admits_write(&self, request: &Request) -> bool {
        let scheme = match Tls::of(request) {
            Some(_) => OwnScheme::Https,
            None => OwnScheme::Any,
        };
        let headers = request.headers();
        let origins = headers.get_all(ORIGIN).iter();
        self.admit_from(Source {
            origins: origins.map(HeaderValue::as_bytes),
            site: headers.get("sec-fetch-site").map(HeaderValue::as_bytes),
            authority: Host::of(request).unwrap_or_default(),
            scheme,
        })
    }

    /// Whether a request is served.
    pub(crate) fn admit(&self, head: &Head<'_>, scheme: OwnScheme) -> bool {
        if self.0.is_none() {
            return true;
        }
        let is_safe = matches!(head.method(), "GET" | "HEAD" | "OPTIONS" | "TRACE");
        if is_safe && !head.asks_upgrade {
            return true;
        }
        self.admit_from(Source {
            origins: head.values("origin"),
            site: head.value("sec-fetch-site").filter(|_| !is_safe),
            authority: head.authority(),
            scheme,
        })
    }

    /// Whether a request from there may write.
    fn admit_from<'a>(&self, source: Source<'a, impl Iterator<Item = &'a [u8]>>) -> bool {
        let Some(named) = &self.0 else {
            return true;
        };
        let is_named = |origin: &[u8]| named.iter().any(|it| it.matches(origin));
        let is_own = |origin: &[u8]| is_own(origin, source.authority, source.scheme);
        let mut origins = source.origins.peekable();
        match source.site {
            Some(b"same-origin" | b"none") => true,
            Some(_) => origins.peek().is_some() && origins.all(is_named),
            None => origins.all(|origin| is_own(origin) || is_named(origin)),
        }
    }
}

/// What a request says of the page that it comes from, and where it goes.
struct Source<'a, O> {
    /// The values of `Origin`.
    origins: O,
    /// The value of `Sec-Fetch-Site`.
    site: Option<&'a [u8]>,
    authority: &'a str,
    scheme: OwnScheme,
}

/// The scheme by which clients reach a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OwnScheme {
    /// `https`: the connection has TLS here.
    Https,
    /// Not known: a proxy before it may encrypt.
    Any,
}

/// Whether an origin is that of the request: its host and port, and the scheme where it is known.
fn is_own(origin: &[u8], authority: &str, own: OwnScheme) -> bool {
    let Some((scheme, host)) = std::str::from_utf8(origin).ok().and_then(parts) else {
        return false;
    };
    if own == OwnScheme::Https && !scheme.eq_ignore_ascii_case("https") {
        return false;
    }
    without_port(host, scheme).eq_ignore_ascii_case(without_port(authority, scheme))
}

/// Scheme and host, of an origin with both.
fn parts(origin: &str) -> Option<(&str, &str)> {
    let (scheme, host) = origin.split_once("://")?;
    (!scheme.is_empty() && !host.is_empty()).then_some((scheme, host))
}

/// Without the port that the scheme has anyway.
fn without_port<'a>(host: &'a str, scheme: &str) -> &'a str {
    let usual = match scheme {
        "http" => ":80",
        "https" => ":443",
        _ => return host,
    };
    host.strip_suffix(usual).unwrap_or(host)
}

/// An origin, as browsers send it: `https://app.example.org`; or `*` for every origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OriginPattern(Option<Box<str>>);

impl OriginPattern {
    /// Whether this is the origin that a request names in `Origin`, or stands for every one.
    ///
    /// ```
    /// let pattern: flatpath_http::OriginPattern = "https://app.example.org".parse()?;
    /// assert!(pattern.matches(b"https://app.example.org"));
    /// # Ok::<(), flatpath_http::InvalidOrigin>(())
    /// ```
    #[must_use]
    pub fn matches(&self, origin: &[u8]) -> bool {
        let named = self.0.as_deref();
        named.is_none_or(|named| named.as_bytes().eq_ignore_ascii_case(origin))
    }

    /// Whether it stands for every origin: `*`.
    #[must_use]
    pub fn is_any(&self) -> bool {
        self.0.is_none()
    }
}

/// The text is no [`OriginPattern`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidOrigin(());

flatpath::impl_error! {
    InvalidOrigin {
        Self(..) => "write scheme and host, and the port where it is not the usual one, such as \
                     https://app.example.org or http://localhost:3000; or * for every origin",
    }
}

impl FromStr for OriginPattern {
    type Err = InvalidOrigin;

    fn from_str(text: &str) -> Result<Self, InvalidOrigin> {
        if text == "*" {
            return Ok(Self(None));
        }
        let (scheme, host) = parts(text).ok_or(InvalidOrigin(()))?;
        let is_host = target::host_and_port(host.as_bytes()).is_some();
        if !is_host || !scheme.bytes().all(|it| it.is_ascii_alphanumeric()) {
            return Err(InvalidOrigin(()));
        }
        let scheme = scheme.to_ascii_lowercase();
        let origin = format!("{scheme}://{}", without_port(host, &scheme));
        Ok(Self(Some(origin.into())))
    }
}

impl fmt::Display for OriginPattern {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.0.as_deref().unwrap_or("*"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    fn admits(origins: &Origins, method: &str, headers: &str) -> bool {
        let text = format!("{method} / HTTP/1.1\r\nHost: a.example:8080\r\n{headers}\r\n");
        let admitted =
            testing::with_head(text.as_bytes(), |head| origins.admit(head, OwnScheme::Any));
        let admitted = admitted.expect("valid").expect("complete");
        if !matches!(method, "GET" | "HEAD" | "OPTIONS" | "TRACE") {
            // What a worker has of a request says the same.
            let (request, _) = testing::request(text.as_bytes())
                .expect("valid")
                .expect("complete");
            assert_eq!(origins.admits_write(&request), admitted, "{text}");
        }
        admitted
    }

    #[test]
    fn writes_of_pages_are_served_to_their_own_origin_alone() {
        let own = Origins::own();
        for headers in [
            "",
            "Origin: http://a.example:8080\r\n",
            "Origin: https://A.example:8080\r\n",
            "Sec-Fetch-Site: same-origin\r\nOrigin: https://behind.a.proxy\r\n",
            "Sec-Fetch-Site: none\r\n",
        ] {
            assert!(admits(&own, "PUT", headers), "{headers}");
        }
        for headers in [
            "Origin: http://evil.example\r\n",
            "Origin: http://a.example\r\n",
            "Origin: http://a.example:8081\r\n",
            "Origin: null\r\n",
            "Origin:\r\n",
            "Origin: a.example:8080\r\n",
            "Origin: \u{e9}\r\n",
            "Origin: http://a.example:8080\r\nOrigin: http://evil.example\r\n",
            "Sec-Fetch-Site: cross-site\r\n",
            "Sec-Fetch-Site: same-site\r\nOrigin: http://b.example\r\n",
            "Sec-Fetch-Site: cross-site\r\nOrigin: http://a.example:8080\r\n",
        ] {
            for method in ["PUT", "POST", "PATCH", "DELETE", "LOCK"] {
                assert!(!admits(&own, method, headers), "{method} {headers}");
            }
            for method in ["GET", "HEAD", "OPTIONS", "TRACE"] {
                assert!(admits(&own, method, headers), "{method} {headers}");
            }
            assert!(admits(&Origins::any(), "PUT", headers), "{headers}");
        }
    }

    #[test]
    fn handshakes_are_judged_by_their_origin() {
        let upgrade = "Connection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n";
        let own = Origins::own();
        let handshake = |headers: &str| admits(&own, "GET", &format!("{upgrade}{headers}"));
        assert!(handshake(""));
        assert!(handshake(
            "Origin: http://a.example:8080\r\nSec-Fetch-Site: cross-site\r\n"
        ));
        assert!(!handshake("Origin: http://evil.example\r\n"));
        assert!(!handshake(
            "Origin: http://evil.example\r\nSec-Fetch-Site: same-origin\r\n"
        ));
    }

    #[test]
    fn named_origins_may_write_too() {
        let named = ["https://app.example.org:443", "http://localhost:3000"];
        let named = named.map(|text| text.parse().expect("an origin"));
        let origins = Origins::own().and(named);
        let cross = "Sec-Fetch-Site: cross-site\r\n";
        for headers in [
            "Origin: https://app.example.org\r\n",
            &format!("{cross}Origin: http://localhost:3000\r\n"),
        ] {
            assert!(admits(&origins, "DELETE", headers), "{headers}");
        }
        for headers in ["Origin: http://app.example.org\r\n", cross] {
            assert!(!admits(&origins, "DELETE", headers), "{headers}");
        }
        let every = Origins::own().and(["*".parse().expect("a pattern")]);
        assert_eq!(every, Origins::any());
    }

    #[test]
    fn default_ports_are_the_same_as_none() {
        let is_own = |origin, authority| is_own(origin, authority, OwnScheme::Any);
        assert!(is_own(b"http://h", "h:80") && is_own(b"https://h", "h:443"));
        assert!(is_own(b"https://[::1]", "[::1]"));
        assert!(!is_own(b"https://h", "h:80") && !is_own(b"http://", ""));
    }

    #[test]
    fn with_tls_an_origin_without_it_is_foreign() {
        let is_own = |origin, authority| is_own(origin, authority, OwnScheme::Https);
        assert!(is_own(b"https://h", "h") && is_own(b"HTTPS://h:8443", "h:8443"));
        assert!(!is_own(b"http://h", "h") && !is_own(b"http://h:8443", "h:8443"));
    }

    #[test]
    fn origins_have_scheme_and_host() {
        for text in [
            "",
            "null",
            "example.org",
            "http://",
            "http://:80",
            "http://a/b",
            "://a",
        ] {
            assert!(text.parse::<OriginPattern>().is_err(), "{text}");
        }
        let shown = "HTTPS://a.example:443".parse::<OriginPattern>();
        assert_eq!(
            shown.map(|it| it.to_string()),
            Ok("https://a.example".into())
        );
    }
}
