//! The fields of a request's block as the head that the rest of the crate reads, without a copy:
//! the rules of RFC 9113 sections 8.2 and 8.3, and those of targets, hosts and lengths that HTTP/1
//! has as well.
//!
//! A request that is malformed (section 8.1.1) costs its stream. What a client may not have meant
//! as it came is answered instead, as over HTTP/1: a host that is none or is there twice, white
//! space around a value, a target of other characters, what is too long.
//!
//! Extended CONNECT (RFC 8441) is the `GET` with `Upgrade` that it stands for (section 5).

use std::cell::Cell;

use http::Version;
use httparse::Header;

use super::hpack::{Entry, Field, FieldList};
use super::priority;
use crate::head::Head;
use crate::head::chars;
use crate::head::fault::Fault;
use crate::head::framing;
use crate::head::target::{Target, parse_target};
use crate::limits::{Limits, METHOD_BYTES_MAX};
use crate::respond::encode::is_of_connection;

/// Why a request is not served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// RFC 9113 8.1.1: "Malformed requests or responses that are detected MUST be treated as a
    /// stream error of type PROTOCOL_ERROR."
    Malformed,
    /// It is answered.
    Fault(Fault),
}

impl From<Fault> for Refusal {
    fn from(fault: Fault) -> Refusal {
        match fault {
            // RFC 9113 8.1.1 is about lengths, too.
            Fault::Length => Refusal::Malformed,
            fault => Refusal::Fault(fault),
        }
    }
}

/// The pseudo-headers of a request (RFC 9113 section 8.3.1).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Asked<'l> {
    method: &'l str,
    scheme: Option<&'l [u8]>,
    authority: Option<&'l [u8]>,
    path: Option<&'l [u8]>,
    protocol: Option<&'l [u8]>,
    /// What is wrong with its headers, if that is answered.
    fault: Option<Fault>,
    names_two_hosts: bool,
    /// Of its headers, as the limits count.
    header_bytes: usize,
    /// It says how urgent it is.
    pub(super) has_priority: bool,
}

impl<'l> Asked<'l> {
    /// Looks at all fields once, and lists those that are no pseudo-headers, after the headers that
    /// these stand for. `cookies`: where all of them are put together.
    ///
    /// # Errors
    /// The request is malformed.
    pub(super) fn of(
        (list, cookies): (&'l FieldList, Option<Field>),
        headers: &mut Vec<Header<'l>>,
    ) -> Result<Asked<'l>, Refusal> {
        let (mut asked, mut method, mut is_header) = (Asked::default(), None, false);
        for (entry, name, value) in list.entries() {
            // 8.2.1: "A field value MUST NOT contain the zero value (ASCII NUL, 0x00), line feed
            // (ASCII LF, 0x0a), or carriage return (ASCII CR, 0x0d) at any position."
            if !chars::is_header_value(value) {
                return Err(Refusal::Malformed);
            }
            let place = match Name::of(entry, name) {
                Name::Method => &mut method,
                Name::Scheme => &mut asked.scheme,
                Name::Authority => &mut asked.authority,
                Name::Path => &mut asked.path,
                Name::Protocol => &mut asked.protocol,
                other => {
                    let text = other.as_header(entry, value).ok_or(Refusal::Malformed)?;
                    if !std::mem::replace(&mut is_header, true) {
                        asked.put_own(headers);
                    }
                    asked.put(headers, (text, value), cookies.is_some());
                    continue;
                }
            };
            // 8.3: "All pseudo-header fields MUST appear in a field block before all regular field
            // lines." and "The same pseudo-header field name MUST NOT appear more than once".
            if is_header || place.replace(value).is_some() {
                return Err(Refusal::Malformed);
            }
        }
        if !is_header {
            asked.put_own(headers);
        }
        if let Some(joined) = cookies {
            asked.list(headers, ("cookie", list.at(joined).1));
        }
        asked.method = method.and_then(method_of).ok_or(Refusal::Malformed)?;
        asked.check().ok_or(Refusal::Malformed)?;
        Ok(asked)
    }

    fn list(&mut self, headers: &mut Vec<Header<'l>>, (name, value): (&'l str, &'l [u8])) {
        self.header_bytes += name.len() + value.len() + LINE_BYTES;
        headers.push(Header { name, value });
    }

    /// Lists the headers that pseudo-headers stand for.
    fn put_own(&mut self, headers: &mut Vec<Header<'l>>) {
        if let Some(protocol) = self.protocol {
            self.list(headers, ("connection", b"Upgrade"));
            self.list(headers, ("upgrade", protocol));
        }
        if let Some(authority) = self.authority {
            self.list(headers, ("host", authority));
        }
    }

    /// Lists a field, but for a cookie where they are put together, and for the host again.
    fn put(
        &mut self,
        headers: &mut Vec<Header<'l>>,
        (name, value): (&'l str, &'l [u8]),
        joins_cookies: bool,
    ) {
        self.fault = self.fault.or(check_space(value));
        match (name, self.authority) {
            ("cookie", _) if joins_cookies => return,
            ("host", Some(authority)) => {
                self.names_two_hosts |= !value.eq_ignore_ascii_case(authority);
                return;
            }
            (priority::FIELD, _) => self.has_priority = true,
            _ => {}
        }
        self.list(headers, (name, value));
    }

    /// Whether those are there that have to be, and no others.
    fn check(&self) -> Option<()> {
        let is_connect = self.method == "CONNECT";
        let has_protocol = self.protocol.is_some();
        let is_right = if is_connect && !has_protocol {
            // 8.5: "The :scheme and :path pseudo-header fields MUST be omitted."
            self.scheme.is_none() && self.path.is_none() && self.authority.is_some()
        } else {
            // RFC 8441 4: "the :method pseudo-header field ... CONNECT" has a protocol alone.
            let is_known = is_connect == has_protocol;
            // 8.3.1: "This pseudo-header field MUST NOT be empty for http or https URIs" and "the
            // value '*'" is for OPTIONS.
            let is_path = match self.path {
                Some([b'/', ..]) => true,
                Some(b"*") => self.method == "OPTIONS",
                _ => false,
            };
            is_known && is_path && self.scheme.is_some()
        };
        is_right.then_some(())
    }

    /// Whether its reply has no body.
    pub(super) fn is_head(&self) -> bool {
        self.method == "HEAD"
    }

    /// Whether it asks for a tunnel.
    pub(super) fn asks_tunnel(&self) -> bool {
        self.protocol.is_some()
    }

    /// The target as it came.
    ///
    /// # Errors
    /// It is no text.
    pub(super) fn target(&self) -> Result<&'l str, Refusal> {
        let target = std::str::from_utf8(self.path.unwrap_or_default());
        target.map_err(|_| Refusal::Fault(Fault::Target))
    }

    /// The method that it is served by.
    fn served_method(&self) -> &'l str {
        match self.protocol {
            Some(_) => "GET",
            None => self.method,
        }
    }

    /// What the target is made of.
    pub(super) fn parse<'a>(&self, target: &'a str) -> Result<Target<'a>, Fault> {
        parse_target(self.served_method(), target)
    }

    /// The line of HTTP/1 that it would be, for the log.
    pub(super) fn line(&self) -> Vec<u8> {
        let target = self.path.or(self.authority).unwrap_or_default();
        [self.method.as_bytes(), b" ", target, b" HTTP/1.1\r\n"].concat()
    }

    /// The head that it is. `spelled`: its target; `target`: without dot segments, and what it is
    /// made of. `headers`: what was listed; `bytes`: those of its fields.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn head<'a>(
        &self,
        (spelled, target, parsed): (&'a str, &'a str, Result<Target<'a>, Fault>),
        (headers, bytes): (&'a [Header<'a>], usize),
        limits: &Limits,
        known_host: &str,
    ) -> Result<Head<'a>, Refusal>
    where
        'l: 'a,
    {
        if let Some(fault) = self.fault {
            return Err(fault.into());
        }
        if self.method.len() > METHOD_BYTES_MAX {
            return Err(Fault::MethodTooLong.into());
        }
        let method = self.served_method();
        if method == "CONNECT" {
            // It has no answer but this one.
            return Err(Fault::Tunnel.into());
        }
        if spelled.len() > limits.target_bytes_max {
            return Err(Fault::TargetTooLong.into());
        }
        self.check_headers(headers.len(), limits)?;
        let parsed = parsed?;
        let message = framing::of_message(headers, Version::HTTP_2, known_host)?;
        Ok(Head {
            method,
            target,
            spelled,
            form: parsed.form,
            authority: message.host,
            host_is_known: message.host_is_known,
            path: parsed.path,
            query: parsed.query,
            version: Version::HTTP_2,
            headers,
            first: message.first,
            framing: message.framing,
            keep_alive: message.keep_alive,
            asks_upgrade: message.asks_upgrade,
            expect_continue: message.expect_continue,
            bytes,
            mount: "",
            route: None,
            peer: None,
            tls: None,
            site: None,
            notes: Cell::default(),
        })
    }

    /// What is wrong with the headers as a whole.
    fn check_headers(&self, count: usize, limits: &Limits) -> Result<(), Fault> {
        match self.protocol {
            Some(protocol) if !chars::is_token_word(protocol) => Err(Fault::HeaderValue),
            _ if self.names_two_hosts => Err(Fault::HostTwice),
            _ if self.header_bytes > limits.headers_bytes_max => Err(Fault::HeadersTooLong),
            _ if count > limits.headers_max => Err(Fault::HeadersTooMany),
            _ => Ok(()),
        }
    }
}

/// A method as text, if it may be one.
fn method_of(method: &[u8]) -> Option<&str> {
    match method {
        b"GET" => Some("GET"),
        method if chars::is_token_word(method) => std::str::from_utf8(method).ok(),
        _ => None,
    }
}

/// What a header's line has beside name and value, as the limits count.
const LINE_BYTES: usize = ": \r\n".len();

/// What a field of a request is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Name<'l> {
    Method,
    Scheme,
    Authority,
    Path,
    Protocol,
    /// A name of the static table that is none of these, nor of a connection.
    Usual,
    /// It is spelled out, and may be no name.
    Spelled(&'l [u8]),
}

impl<'l> Name<'l> {
    /// By its entry in the static table (RFC 7541 appendix A), if it was named so.
    fn of(entry: Option<Entry>, name: &'l [u8]) -> Name<'l> {
        match (entry.map(Entry::index), name) {
            (Some(1), _) => Name::Authority,
            (Some(2 | 3), _) => Name::Method,
            (Some(4 | 5), _) => Name::Path,
            (Some(6 | 7), _) => Name::Scheme,
            // `:status`, and `transfer-encoding`.
            (Some(8..=14 | 57), name) => Name::Spelled(name),
            (Some(_), _) => Name::Usual,
            (None, b":method") => Name::Method,
            (None, b":scheme") => Name::Scheme,
            (None, b":authority") => Name::Authority,
            (None, b":path") => Name::Path,
            (None, b":protocol") => Name::Protocol,
            (None, name) => Name::Spelled(name),
        }
    }

    /// The name, if it is that of a header which a request may have, with this value.
    fn as_header(self, entry: Option<Entry>, value: &[u8]) -> Option<&'l str> {
        let name = match (self, entry) {
            (Name::Spelled(name), _) => name,
            (Name::Usual, Some(entry)) => return Some(entry.name()),
            _ => return None,
        };
        // 8.2.1: "A field name MUST NOT contain characters in the ranges 0x00-0x20, 0x41-0x5a, or
        // 0x7f-0xff"; 8.3: "Endpoints MUST treat a request or response that contains undefined or
        // invalid pseudo-header fields as malformed".
        let is_name = chars::is_token_word(name) && !name.iter().any(u8::is_ascii_uppercase);
        // 8.2.2: "Any message containing connection-specific header fields MUST be treated as
        // malformed", but for TE, "which ... MUST NOT contain any value other than 'trailers'".
        let is_te = name == b"te" && !value.eq_ignore_ascii_case(b"trailers");
        let is_header = is_name && !is_te && !is_of_connection(name);
        std::str::from_utf8(name).ok().filter(|_| is_header)
    }
}

/// 8.2.1: "A field value MUST NOT start or end with an ASCII whitespace character". It is answered.
fn check_space(value: &[u8]) -> Option<Fault> {
    let is_bare = |end: Option<&u8>| !end.is_some_and(u8::is_ascii_whitespace);
    match is_bare(value.first()) && is_bare(value.last()) {
        true => None,
        false => Some(Fault::HeaderValue),
    }
}

/// Whether these may come after a body (RFC 9113 section 8.1).
pub(super) fn are_trailers(list: &FieldList) -> bool {
    list.entries().all(|(entry, name, value)| {
        chars::is_header_value(value) && Name::of(entry, name).as_header(entry, value).is_some()
    })
}
