//! The head of a request as its upstream gets it: written anew, never passed through.
//!
//! What a client has sent was read by our rules; what is sent on is spelled by them, so that no
//! upstream reads another request out of it (Pingora's issue 674 asks for no less). By RFC 9110
//! sections 7.6 and 9112 section 6:
//!
//! | field                                     | becomes                                          |
//! |-------------------------------------------|--------------------------------------------------|
//! | `Connection`, and what it names           | nothing: they are of the client's connection     |
//! | `Keep-Alive`, `Proxy-*`, `TE`             | nothing, but for `TE: trailers` where that holds |
//! | `Upgrade`                                 | what of it passes (`switched`), or nothing       |
//! | `Content-Length`, `Transfer-Encoding`     | what the body is sent with                       |
//! | `Host`                                    | what is chosen ([`HostField`])                   |
//! | `Forwarded`, `X-Forwarded-*`, `X-Real-IP` | what is known here ([`ForwardedFields`])         |
//! | `Expect`                                  | itself, where the client waits for it            |
//! | what an operator removes, or sets         | nothing, or that; last, so that it wins          |
//!
//! A name with an underscore for a hyphen is the same name to CGI and what comes from it: such
//! spellings of the fields above are removed with them.
//!
//! Not here: paths, which a router has cut; dot segments, which the parser has removed.

use std::net::SocketAddr;

use http::{HeaderName, HeaderValue};

use crate::head::Framing;
use crate::header_values::elements;
use crate::respond::encode::{header, named_header};
use crate::respond::sink::Sink;

/// Which host an upstream is told that a request is for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum HostField {
    /// The one that the client has named: links that the upstream makes lead back to here.
    #[default]
    Client,
    /// The address of the server that has the request.
    Server,
    /// This one.
    Always(HeaderValue),
}

/// What an upstream is told of clients: in `Forwarded` (RFC 7239), `X-Forwarded-For`,
/// `X-Forwarded-Proto` and `X-Forwarded-Host`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ForwardedFields {
    /// What is known here, and nothing of what the client says: it may say anything. Behind proxies
    /// that are trusted ([`Http::behind_proxies`](crate::Http::behind_proxies)) the address is that
    /// of the client they have named.
    #[default]
    New,
    /// What came, and what is known here after it: for a server that only other proxies reach.
    Append,
    /// Nothing, and nothing of what came.
    None,
}

/// What an operator changes of requests.
#[derive(Clone, Debug, Default)]
pub(crate) struct RequestTerms {
    pub(crate) host: HostField,
    pub(crate) forwarded: ForwardedFields,
    pub(crate) set: Vec<(HeaderName, HeaderValue)>,
    pub(crate) remove: Vec<HeaderName>,
}

/// What is known of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asks<'a> {
    pub(crate) method: &'a str,
    /// What stands before the path again.
    pub(crate) prefix: &'a str,
    /// Path and query, or `*`.
    pub(crate) target: &'a str,
    /// Empty where an old client has named none.
    pub(crate) authority: &'a str,
    pub(crate) peer: Option<SocketAddr>,
    pub(crate) is_secured: bool,
    pub(crate) framing: Framing,
    pub(crate) takes_trailers: bool,
    pub(crate) expects_continue: bool,
    /// The protocols that are offered to go on in; then there is no body.
    pub(crate) upgrade: Option<&'a [u8]>,
}

/// A head, but for the line of its host where that depends on the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RequestHead {
    text: Vec<u8>,
    /// Where that line belongs, if it is not there.
    host_at: Option<usize>,
}

impl RequestHead {
    /// What is sent to this server, one after the other.
    pub(crate) fn parts<'a>(&'a self, server: &'a str) -> impl Iterator<Item = &'a [u8]> {
        let (before, after) = self.text.split_at(self.host_at.unwrap_or(self.text.len()));
        let host = self.host_at.map(|_| server.as_bytes());
        let host = host.map(|host| [b"Host: ", host, b"\r\n", after]);
        std::iter::once(before).chain(host.into_iter().flatten())
    }

    /// Method and path, for the log: without the query, which may hold secrets.
    pub(crate) fn line(&self) -> String {
        let end = |byte: &u8| matches!(byte, b'?' | b'\r');
        let line = self.text.split(end).next().unwrap_or_default();
        let line = line.strip_suffix(VERSION).unwrap_or(line);
        String::from_utf8_lossy(line).into_owned()
    }
}

/// Heads are rarely longer.
pub(crate) const HEAD_BYTES: usize = 512;

const VERSION: &[u8] = b" HTTP/1.1";

/// What the field with this name is to a message that is passed on.
fn is_hop_by_hop(name: &str) -> bool {
    matches!(
        name,
        "connection"
            | "keep-alive"
            | "proxy-connection"
            | "proxy-authenticate"
            | "proxy-authorization"
            | "te"
            | "trailer"
            | "transfer-encoding"
            | "content-length"
            | "upgrade"
            | "http2-settings"
    )
}

fn is_of_forwarding(name: &str) -> bool {
    matches!(
        name,
        "forwarded"
            | "x-forwarded-for"
            | "x-forwarded-proto"
            | "x-forwarded-host"
            | "x-forwarded-port"
            | "x-forwarded-server"
            | "x-real-ip"
    )
}

/// The fields that a message does not keep when it is passed on, by what it says itself.
pub(crate) struct Dropped<'a>(Vec<&'a [u8]>);

impl<'a> Dropped<'a> {
    /// Those that its `Connection` names.
    pub(crate) fn of(fields: impl Iterator<Item = (&'a str, &'a [u8])>) -> Self {
        let connection = fields.filter(|(name, _)| name.eq_ignore_ascii_case("connection"));
        Self(connection.flat_map(|(_, value)| elements(value)).collect())
    }

    /// Whether a field, whose name is in small letters, is one of a connection.
    pub(crate) fn has(&self, name: &str) -> bool {
        let is_named = |it: &&[u8]| it.eq_ignore_ascii_case(name.as_bytes());
        is_hop_by_hop(name) || self.0.iter().any(is_named)
    }
}

/// Writes the head of a request.
pub(crate) fn write<'a, I>(
    asks: &Asks<'a>,
    fields: impl Fn() -> I,
    terms: &RequestTerms,
) -> RequestHead
where
    I: Iterator<Item = (&'a str, &'a [u8])>,
{
    let mut text = Vec::with_capacity(HEAD_BYTES);
    for word in [asks.method, " ", asks.prefix, asks.target] {
        text.put(word.as_bytes());
    }
    text.put(VERSION);
    text.put(b"\r\n");
    let host = match &terms.host {
        HostField::Client if asks.authority.is_empty() => None,
        HostField::Client => Some(asks.authority.as_bytes()),
        HostField::Server => None,
        HostField::Always(host) => Some(host.as_bytes()),
    };
    let host_at = match host {
        Some(host) => {
            header(&mut text, b"Host", host);
            None
        }
        None => Some(text.len()),
    };
    let dropped = Dropped::of(fields());
    let (mut came, mut came_for) = (Vec::new(), Vec::new());
    let mut spelled = String::with_capacity(64);
    for (name, value) in fields() {
        spelled.clear();
        spelled.push_str(name);
        spelled.make_ascii_lowercase();
        if dropped.has(&spelled) || matches!(&*spelled, "host" | "expect") {
            continue;
        }
        let conflated = match spelled.contains('_') {
            true => spelled.replace('_', "-"),
            false => String::new(),
        };
        if !conflated.is_empty() && (is_hop_by_hop(&conflated) || conflated == "host") {
            continue;
        }
        if is_of_forwarding(&spelled) || is_of_forwarding(&conflated) {
            match &*spelled {
                "forwarded" => came.push(value),
                "x-forwarded-for" => came_for.push(value),
                _ => {}
            }
            continue;
        }
        let is_ours = |ours: &HeaderName| *ours == *spelled || *ours == *conflated;
        if terms.remove.iter().any(is_ours) || terms.set.iter().any(|(name, _)| is_ours(name)) {
            continue;
        }
        header(&mut text, name.as_bytes(), value);
    }
    if terms.forwarded != ForwardedFields::None {
        if terms.forwarded == ForwardedFields::New {
            (came, came_for) = (Vec::new(), Vec::new());
        }
        write_forwarded(&mut text, asks, &came, &came_for);
    }
    for (name, value) in &terms.set {
        named_header(&mut text, name, value);
    }
    write_end(&mut text, asks);
    RequestHead { text, host_at }
}

fn write_forwarded(text: &mut Vec<u8>, asks: &Asks<'_>, came: &[&[u8]], came_for: &[&[u8]]) {
    let proto = match asks.is_secured {
        true => "https",
        false => "http",
    };
    let client = asks.peer.map(|peer| peer.ip().to_canonical());
    let is_v6 = client.is_some_and(|client| client.is_ipv6());
    let address = client.map(|client| client.to_string());
    // RFC 7239 6.2; a Unix socket has no address.
    let known = address.as_deref().unwrap_or("unknown");
    let (open, close) = if is_v6 { ("\"[", "]\"") } else { ("", "") };
    let for_client = ["for=", open, known, close, ";"];
    let for_host = match asks.authority {
        "" => [""; 3],
        authority => ["host=\"", authority, "\";"],
    };
    let element = for_client.into_iter().chain(for_host);
    let element = element.chain(["proto=", proto]);
    list(text, b"Forwarded", came, element);
    if address.is_some() || !came_for.is_empty() {
        list(text, b"X-Forwarded-For", came_for, [known].into_iter());
    }
    header(text, b"X-Forwarded-Proto", proto.as_bytes());
    if !asks.authority.is_empty() {
        header(text, b"X-Forwarded-Host", asks.authority.as_bytes());
    }
}

/// One field of a list that came, and another element, in parts.
fn list<'a>(text: &mut Vec<u8>, name: &[u8], came: &[&[u8]], last: impl Iterator<Item = &'a str>) {
    text.put(name);
    text.put(b": ");
    for value in came {
        text.put(value);
        text.put(b", ");
    }
    last.for_each(|part| text.put(part.as_bytes()));
    text.put(b"\r\n");
}

fn write_end(text: &mut Vec<u8>, asks: &Asks<'_>) {
    if let Some(protocols) = asks.upgrade {
        header(text, b"Upgrade", protocols);
        text.put(b"Connection: upgrade\r\n");
    } else if asks.takes_trailers {
        text.put(b"TE: trailers\r\nConnection: TE\r\n");
    }
    if asks.expects_continue {
        text.put(b"Expect: 100-continue\r\n");
    }
    match asks.framing {
        Framing::Length(length) => {
            let mut digits = itoa::Buffer::new();
            header(text, b"Content-Length", digits.format(length).as_bytes());
        }
        Framing::Chunked => text.put(b"Transfer-Encoding: chunked\r\n"),
        // RFC 9110 8.6: of a method that anticipates content.
        Framing::Empty if matches!(asks.method, "POST" | "PUT" | "PATCH") => {
            text.put(b"Content-Length: 0\r\n");
        }
        Framing::Empty => {}
    }
    text.put(b"\r\n");
}

/// The end of a body in chunks, with its trailers.
pub(crate) fn last_chunk(trailers: &http::HeaderMap) -> Vec<u8> {
    let mut text = b"0\r\n".to_vec();
    for (name, value) in trailers {
        named_header(&mut text, name, value);
    }
    text.extend_from_slice(b"\r\n");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const ASKS: Asks<'_> = Asks {
        method: "GET",
        prefix: "",
        target: "/a?b",
        authority: "example.org:8080",
        peer: None,
        is_secured: false,
        framing: Framing::Empty,
        takes_trailers: false,
        expects_continue: false,
        upgrade: None,
    };

    fn written(asks: &Asks<'_>, fields: &[(&str, &str)], terms: &RequestTerms) -> String {
        let fields = || fields.iter().map(|(name, value)| (*name, value.as_bytes()));
        let head = write(asks, fields, terms);
        let parts: Vec<_> = head.parts("10.0.0.1:80").collect();
        String::from_utf8(parts.concat()).expect("text")
    }

    fn quiet() -> RequestTerms {
        RequestTerms {
            forwarded: ForwardedFields::None,
            ..RequestTerms::default()
        }
    }

    #[test]
    fn the_line_for_the_log_is_method_and_path() {
        for (target, prefix, line) in [
            ("/a?b", "", "GET /a"),
            ("/a", "/app", "GET /app/a"),
            ("/a%20b?c HTTP/1.1", "", "GET /a%20b"),
            ("*", "", "GET *"),
        ] {
            let asks = Asks {
                target,
                prefix,
                ..ASKS
            };
            let fields = || std::iter::empty();
            assert_eq!(write(&asks, fields, &quiet()).line(), line);
        }
    }

    #[test]
    fn a_head_is_written_anew() {
        let fields = [
            ("Accept", "*/*"),
            ("X-Two", "1"),
            ("x-two", "2"),
            ("Empty", ""),
        ];
        assert_eq!(
            written(&ASKS, &fields, &quiet()),
            "GET /a?b HTTP/1.1\r\nHost: example.org:8080\r\nAccept: */*\r\nX-Two: 1\r\nx-two: 2\r\n\
             Empty: \r\n\r\n"
        );
    }

    #[test]
    fn what_is_of_the_clients_connection_stays_there() {
        let fields = [
            ("Connection", "keep-alive, X-Hop ,close"),
            ("connection", "Cookie"),
            ("Keep-Alive", "1"),
            ("Proxy-Connection", "1"),
            ("Proxy-Authorization", "1"),
            ("TE", "trailers"),
            ("Trailer", "X"),
            ("Upgrade", "h2c"),
            ("HTTP2-Settings", "AA"),
            ("X-Hop", "1"),
            ("Cookie", "1"),
            ("Content-Length", "9"),
            ("Transfer-Encoding", "gzip"),
            ("Transfer_Encoding", "chunked"),
            ("Content_Length", "9"),
            ("Expect", "100-continue"),
            ("Host", "other"),
            ("X-End", "to end"),
        ];
        assert_eq!(
            written(&ASKS, &fields, &quiet()),
            "GET /a?b HTTP/1.1\r\nHost: example.org:8080\r\nX-End: to end\r\n\r\n"
        );
    }

    #[test]
    fn what_a_client_says_of_itself_is_not_believed() {
        let fields = [
            ("X-Forwarded-For", "6.6.6.6"),
            ("X_Forwarded_For", "6.6.6.6"),
            ("x-forwarded-proto", "https"),
            ("X-Forwarded-Host", "evil"),
            ("X-Real-IP", "6.6.6.6"),
            ("Forwarded", "for=6.6.6.6"),
            (
                "Connection",
                "x-forwarded-for, forwarded, host, content-length",
            ),
        ];
        let asks = Asks {
            peer: Some(([192, 0, 2, 1], 1234).into()),
            framing: Framing::Length(3),
            method: "POST",
            ..ASKS
        };
        // With and without the last of them, which would remove the others.
        for count in [fields.len(), fields.len() - 1] {
            assert_eq!(
                written(&asks, &fields[..count], &RequestTerms::default()),
                "POST /a?b HTTP/1.1\r\nHost: example.org:8080\r\n\
                 Forwarded: for=192.0.2.1;host=\"example.org:8080\";proto=http\r\n\
                 X-Forwarded-For: 192.0.2.1\r\nX-Forwarded-Proto: http\r\n\
                 X-Forwarded-Host: example.org:8080\r\nContent-Length: 3\r\n\r\n"
            );
        }
    }

    #[test]
    fn of_a_proxy_in_front_both_count() {
        let terms = RequestTerms {
            forwarded: ForwardedFields::Append,
            ..RequestTerms::default()
        };
        let asks = Asks {
            peer: Some(("2001:db8::1".parse::<std::net::IpAddr>().expect("one"), 1).into()),
            is_secured: true,
            authority: "",
            ..ASKS
        };
        let fields = [
            ("X-Forwarded-For", "1.1.1.1"),
            ("Forwarded", "for=1.1.1.1"),
            ("X-Forwarded-For", "2.2.2.2"),
        ];
        assert_eq!(
            written(&asks, &fields, &terms),
            "GET /a?b HTTP/1.1\r\nHost: 10.0.0.1:80\r\n\
             Forwarded: for=1.1.1.1, for=\"[2001:db8::1]\";proto=https\r\n\
             X-Forwarded-For: 1.1.1.1, 2.2.2.2, 2001:db8::1\r\nX-Forwarded-Proto: https\r\n\r\n"
        );
    }

    #[test]
    fn the_host_is_the_chosen_one() {
        let fixed = HeaderValue::from_static("fixed");
        for (host, expected) in [
            (HostField::Client, "example.org:8080"),
            (HostField::Server, "10.0.0.1:80"),
            (HostField::Always(fixed), "fixed"),
        ] {
            let terms = RequestTerms { host, ..quiet() };
            let head = written(&ASKS, &[], &terms);
            assert_eq!(
                head,
                format!("GET /a?b HTTP/1.1\r\nHost: {expected}\r\n\r\n")
            );
        }
    }

    #[test]
    fn what_an_operator_sets_wins_over_what_came_however_it_is_spelled() {
        let terms = RequestTerms {
            set: vec![(
                HeaderName::from_static("x-user"),
                HeaderValue::from_static("me"),
            )],
            remove: vec![HeaderName::from_static("cookie")],
            ..quiet()
        };
        let fields = [
            ("X-User", "root"),
            ("X_User", "root"),
            ("COOKIE", "1"),
            ("A_B", "kept"),
            ("Connection", "x-user"),
        ];
        assert_eq!(
            written(&ASKS, &fields, &terms),
            "GET /a?b HTTP/1.1\r\nHost: example.org:8080\r\nA_B: kept\r\nX-User: me\r\n\r\n"
        );
    }

    #[test]
    fn bodies_are_framed_and_expectations_passed_on() {
        let of = |method, framing| {
            let asks = Asks {
                method,
                framing,
                takes_trailers: true,
                expects_continue: framing != Framing::Empty,
                prefix: "/app",
                ..ASKS
            };
            let head = written(&asks, &[], &quiet());
            let rest = head
                .split_once("TE: trailers\r\nConnection: TE\r\n")
                .expect("trailers");
            assert!(
                rest.0
                    .starts_with(&format!("{method} /app/a?b HTTP/1.1\r\n")),
                "{head}"
            );
            rest.1.to_owned()
        };
        let expect = "Expect: 100-continue\r\n";
        let chunked = format!("{expect}Transfer-Encoding: chunked\r\n\r\n");
        assert_eq!(of("POST", Framing::Chunked), chunked);
        let length = format!("{expect}Content-Length: 7\r\n\r\n");
        assert_eq!(of("PUT", Framing::Length(7)), length);
        assert_eq!(of("POST", Framing::Empty), "Content-Length: 0\r\n\r\n");
        assert_eq!(of("DELETE", Framing::Empty), "\r\n");
    }
}
