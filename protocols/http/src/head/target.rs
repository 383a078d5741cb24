//! Request targets and hosts (RFC 9112 section 3.2, RFC 3986 section 3.2).

use std::net::Ipv6Addr;
use std::ops::Range;

use crate::head::TargetForm;
use crate::head::chars::{self, PathText};
use crate::head::dots;
use crate::head::fault::Fault;

/// A request target, taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Target<'a> {
    pub(crate) form: TargetForm,
    /// Host and port, in absolute form.
    pub(crate) authority: Option<&'a str>,
    pub(crate) path: &'a str,
    pub(crate) query: Option<&'a str>,
}

/// Takes a request target apart.
///
/// # Errors
/// What is wrong with it; [`Fault::DotSegments`] also where they only have to be
/// [removed](dots::without).
pub(crate) fn parse_target<'a>(method: &str, target: &'a str) -> Result<Target<'a>, Fault> {
    if target.starts_with('/') {
        let (path, query) = path_and_query(target)?;
        return Ok(Target {
            form: TargetForm::Origin,
            authority: None,
            path,
            query,
        });
    }
    if target == "*" {
        // RFC 9112 3.2.4: "The asterisk-form of request-target is only used for a server-wide
        // OPTIONS request".
        if method != "OPTIONS" {
            return Err(Fault::Target);
        }
        return Ok(Target {
            form: TargetForm::Asterisk,
            authority: None,
            path: target,
            query: None,
        });
    }
    let rest = after_scheme(target).ok_or(Fault::Target)?;
    let (authority, rest) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    // The http crate wants none that is percent-encoded.
    if authority.contains('%') || host_and_port(authority.as_bytes()).is_none() {
        return Err(Fault::Target);
    }
    let (path, query) = path_and_query(rest)?;
    Ok(Target {
        form: TargetForm::Absolute,
        authority: Some(authority),
        // `http://host` and `http://host?query` mean the root (RFC 9110 section 4.2.3).
        path: if path.is_empty() { "/" } else { path },
        query,
    })
}

/// What follows `http://` or `https://`.
fn after_scheme(target: &str) -> Option<&str> {
    ["http://", "https://"].into_iter().find_map(|scheme| {
        let begin = target.get(..scheme.len())?;
        begin
            .eq_ignore_ascii_case(scheme)
            .then_some(&target[scheme.len()..])
    })
}

/// What is before the first question mark, and what is after it.
fn path_and_query(text: &str) -> Result<(&str, Option<&str>), Fault> {
    // A path has no question mark, so most targets are looked at once.
    let (path, query, kind) = match chars::path_text(text.as_bytes()) {
        PathText::Other => {
            let at = memchr::memchr(b'?', text.as_bytes()).ok_or(Fault::Target)?;
            let (path, query) = (&text[..at], &text[at + 1..]);
            if !chars::is_query(query.as_bytes()) {
                return Err(Fault::Target);
            }
            (path, Some(query), chars::path_text(path.as_bytes()))
        }
        kind => (text, None, kind),
    };
    match kind {
        PathText::NoDots => Ok((path, query)),
        PathText::MayHaveDots if dots::are_none(path) => Ok((path, query)),
        PathText::MayHaveDots => Err(Fault::DotSegments),
        PathText::Other => Err(Fault::Target),
    }
}

/// Where the path is in a target that was found to be well-formed.
pub(crate) fn path_range(target: &str) -> Range<usize> {
    let rest = after_scheme(target).unwrap_or(target);
    let from = target.len() - rest.len();
    let before_query = &target[..target.find('?').unwrap_or(target.len())];
    let begin = before_query.get(from..).and_then(|rest| rest.find('/'));
    begin.map_or(before_query.len(), |at| from + at)..before_query.len()
}

/// `uri-host [ ":" port ]`. The host is not empty: an http URI "with an empty host identifier" is
/// one that "a recipient ... MUST reject ... as invalid" (RFC 9110 section 4.2.1).
pub(crate) fn host_and_port(value: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(value).ok()?;
    let has_host = !text.is_empty() && !text.starts_with(':');
    (has_host && is_host_and_port(value)).then_some(text)
}

fn is_host_and_port(value: &[u8]) -> bool {
    if let Some(literal) = value.strip_prefix(b"[") {
        let Some(end) = memchr::memchr(b']', literal) else {
            return false;
        };
        let address = std::str::from_utf8(&literal[..end]).ok();
        let is_address = address.is_some_and(|address| address.parse::<Ipv6Addr>().is_ok());
        return is_address && is_port(&literal[end + 1..]);
    }
    let host_bytes = memchr::memchr(b':', value).unwrap_or(value.len());
    is_registered_name(&value[..host_bytes]) && is_port(&value[host_bytes..])
}

/// `reg-name`, which covers IPv4 addresses too.
fn is_registered_name(name: &[u8]) -> bool {
    name.iter().all(|byte| chars::is_host(*byte)) || is_escaped_name(name)
}

/// The same with percent-encoded bytes. Cold: no client sends them.
#[cold]
fn is_escaped_name(name: &[u8]) -> bool {
    let mut rest = name;
    while let [first, tail @ ..] = rest {
        rest = match (first, tail) {
            (b'%', [high, low, tail @ ..])
                if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() =>
            {
                tail
            }
            (byte, _) if chars::is_host(*byte) => tail,
            _ => return false,
        };
    }
    true
}

/// Nothing, or a colon and any number of digits.
fn is_port(port: &[u8]) -> bool {
    match port {
        [] => true,
        [b':', digits @ ..] => digits.iter().all(u8::is_ascii_digit),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_names_or_addresses_with_an_optional_port() {
        let valid = [
            "a",
            "example.com",
            "example.com:80",
            "a_b",
            "127.0.0.1:8080",
            "[::1]",
            "[::1]:80",
            "a:",
            "a%20b",
            "[2001:db8::7]",
            "xn--bcher-kva.example",
        ];
        for host in valid {
            assert_eq!(host_and_port(host.as_bytes()), Some(host));
        }
        let invalid = [
            "", ":", ":80", "a b", "a/b", "user@a", "a:b", "a:80:80", "[::1", "::1", "[::1]80",
            "[::g]", "a%2", "a%zz", "a,b", "a\"", "[]", "a?", "a#", "é",
        ];
        for host in invalid {
            // A comma is a sub-delim: RFC 3986 lets it into names.
            let is_valid = host_and_port(host.as_bytes()).is_some();
            assert_eq!(is_valid, host == "a,b", "{host}");
        }
    }

    #[test]
    fn targets_are_taken_apart() {
        let parts = |target: &'static str| {
            let parsed = parse_target("GET", target).expect("a valid target");
            (parsed.form, parsed.authority, parsed.path)
        };
        assert_eq!(parts("/"), (TargetForm::Origin, None, "/"));
        assert_eq!(parts("//a/b"), (TargetForm::Origin, None, "//a/b"));
        assert_eq!(parts("/a?b?c/d"), (TargetForm::Origin, None, "/a"));
        assert_eq!(
            parts("http://h/a?b"),
            (TargetForm::Absolute, Some("h"), "/a")
        );
        assert_eq!(
            parts("HTTPS://h:1?b"),
            (TargetForm::Absolute, Some("h:1"), "/")
        );
        assert_eq!(
            parts("http://[::1]"),
            (TargetForm::Absolute, Some("[::1]"), "/")
        );
    }

    #[test]
    fn the_path_of_a_target_is_found_in_each_form() {
        for (target, path) in [
            ("/a?b/c", "/a"),
            ("/", "/"),
            ("/?/a", "/"),
            ("http://h/a/b?c", "/a/b"),
            ("HTTPS://h:1/?/", "/"),
            ("http://h", ""),
            ("http://h?a/b", ""),
            ("/http://h/a", "/http://h/a"),
        ] {
            assert_eq!(&target[path_range(target)], path, "{target}");
        }
    }

    #[test]
    fn targets_in_no_form_are_refused() {
        let refused = [
            "a",
            "a/b",
            "*",
            "*/",
            "http:/a",
            "http://",
            "http:///a",
            "http://:80/",
            "ftp://a/",
            "http://user@a/",
            "/a#b",
            "/<",
            "/a?b#c",
            "http://a%20b/",
            "/\u{e9}",
            "http://a#b",
            "/`",
        ];
        for target in refused {
            assert_eq!(parse_target("GET", target), Err(Fault::Target), "{target}");
        }
        assert_eq!(
            parse_target("OPTIONS", "*").map(|parsed| parsed.form),
            Ok(TargetForm::Asterisk)
        );
    }
}
