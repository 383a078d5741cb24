//! The head of a request: a borrowed view of the bytes it arrived in.
//!
//! `parse` makes it, without a copy or an allocation, and notes where the headers are that framing
//! needs and services ask for most.
//!
//! Its folder has all that is known of a request from its head alone: where the head ends
//! ([`scan`]), its rules ([`parse`], [`framing`], [`target`], [`dots`], [`chars`]), what can be
//! wrong ([`fault`]), and how it becomes a request ([`request_builder`], [`names`]). Everything may
//! use it; it knows no connection.

pub(crate) mod chars;
pub(crate) mod scan;
pub(crate) mod parse;
pub(crate) mod target;
pub(crate) mod dots;
pub(crate) mod framing;
pub(crate) mod fault;
pub(crate) mod names;
pub(crate) mod request_builder;

use std::cell::Cell;
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::num::NonZeroU64;
use std::sync::Arc;

use flatpath::TlsTerms;
use http::{Request, Version};

use crate::header_values::elements;
use crate::limits::{HEAD_NOTES_MAX, HEADERS_MAX};
use crate::sites::site_match::SiteKey;

/// How the body of a message is delimited (RFC 9112 section 6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
// Exhaustive: RFC 9112 section 6.3 has no other.
pub enum Framing {
    /// There is no body.
    Empty,
    /// This number of bytes, at least one.
    Length(u64),
    /// Chunks, up to one of size zero.
    Chunked,
}

/// The form of a request target (RFC 9112 section 3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TargetForm {
    /// A path and perhaps a query: `/a?b`.
    Origin,
    /// A whole URI, as for a proxy: `http://host/a?b`.
    Absolute,
    /// The server itself: `*`, for `OPTIONS` only.
    Asterisk,
}

/// Headers that are looked up so often that their places are noted once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum KnownHeader {
    /// `Accept-Encoding`
    AcceptEncoding,
    /// `Connection`
    Connection,
    /// `Content-Length`
    ContentLength,
    /// `Expect`
    Expect,
    /// `Host`
    Host,
    /// `If-Match`
    IfMatch,
    /// `If-Modified-Since`
    IfModifiedSince,
    /// `If-None-Match`
    IfNoneMatch,
    /// `If-Unmodified-Since`
    IfUnmodifiedSince,
    /// `Range`
    Range,
    /// `TE`
    Te,
    /// `Transfer-Encoding`
    TransferEncoding,
}

/// Number of [`KnownHeader`] headers.
const KNOWN: usize = KnownHeader::TransferEncoding as usize + 1;

/// No such header.
const ABSENT: u8 = u8::MAX;

const _: () = assert!(
    HEADERS_MAX < ABSENT as usize,
    "a header's index fits beside ABSENT"
);

impl KnownHeader {
    /// The header with this name, whatever its case.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        // The length alone rules out nearly every other header.
        let (known, spelled) = match name.len() {
            2 => (Self::Te, "te"),
            4 => (Self::Host, "host"),
            5 => (Self::Range, "range"),
            6 => (Self::Expect, "expect"),
            8 => (Self::IfMatch, "if-match"),
            10 => (Self::Connection, "connection"),
            13 => (Self::IfNoneMatch, "if-none-match"),
            14 => (Self::ContentLength, "content-length"),
            15 => (Self::AcceptEncoding, "accept-encoding"),
            17 if name.as_bytes()[0] | 0x20 == b'i' => (Self::IfModifiedSince, "if-modified-since"),
            17 => (Self::TransferEncoding, "transfer-encoding"),
            19 => (Self::IfUnmodifiedSince, "if-unmodified-since"),
            _ => return None,
        };
        name.eq_ignore_ascii_case(spelled).then_some(known)
    }
}

/// Room for a head's headers on the stack, not initialised beyond those that are there.
pub(crate) type HeaderSlots<'a> = [MaybeUninit<httparse::Header<'a>>; HEADERS_MAX];

/// Costs nothing.
pub(crate) const fn header_slots<'a>() -> HeaderSlots<'a> {
    [MaybeUninit::uninit(); HEADERS_MAX]
}

/// A request head that obeys every rule of RFC 9112.
#[derive(Clone, Debug)]
pub struct Head<'a> {
    pub(crate) method: &'a str,
    pub(crate) target: &'a str,
    /// The target as it came: for the log.
    pub(crate) spelled: &'a str,
    pub(crate) form: TargetForm,
    /// Text that was checked, as bytes: few requests are asked for it.
    pub(crate) authority: &'a [u8],
    /// The authority is the one that was known before this head was parsed.
    pub(crate) host_is_known: bool,
    pub(crate) path: &'a str,
    pub(crate) query: Option<&'a str>,
    pub(crate) version: Version,
    pub(crate) headers: &'a [httparse::Header<'a>],
    pub(crate) first: HeaderIndex,
    pub(crate) framing: Framing,
    pub(crate) keep_alive: bool,
    /// The bytes after this request may belong to another protocol.
    pub(crate) asks_upgrade: bool,
    pub(crate) expect_continue: bool,
    pub(crate) bytes: usize,
    /// The prefix of a router that was cut off the path.
    pub(crate) mount: &'a str,
    /// What the path was found by, once the service has said so.
    pub(crate) route: Option<&'a str>,
    /// Where the service asks for it.
    pub(crate) peer: Option<SocketAddr>,
    pub(crate) tls: Option<Arc<TlsTerms>>,
    /// The site that answers for its host, where that was looked up.
    pub(crate) site: Option<SiteKey>,
    pub(crate) notes: Cell<HeadNotes>,
}

/// What a service leaves about a request on the network thread, for its
/// [`Service::pooled`](crate::Service::pooled).
///
/// A service that counts requests, for one, has counted it when
/// [`Service::inline`](crate::Service::inline) returns
/// [`Disposition::Pooled`](crate::Disposition::Pooled), and must not do so again on the worker. Not
/// every request is offered inline, so there may be none. A note names who has left it. Of services
/// around each other four have one each; a further note is not taken, which is as if its service
/// had not been asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadNote(pub NonZeroU64);

impl HeadNote {
    /// Whether it was left for this request, on its head or on the request itself.
    #[must_use]
    pub fn is_of<B>(self, request: &Request<B>) -> bool {
        let notes: Option<&HeadNotes> = request.extensions().get();
        notes.is_some_and(|notes| notes.has(self))
    }

    /// Leaves it for the next run of a request that a limit parks.
    pub fn leave_for<B>(self, request: &mut Request<B>) {
        let notes: &mut HeadNotes = request.extensions_mut().get_or_insert_default();
        notes.add(self);
    }
}

/// The notes of a request: an extension of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct HeadNotes([Option<NonZeroU64>; HEAD_NOTES_MAX]);

impl HeadNotes {
    pub(crate) fn is_empty(&self) -> bool {
        self.0[0].is_none()
    }

    fn has(&self, note: HeadNote) -> bool {
        self.0.contains(&Some(note.0))
    }

    fn add(&mut self, note: HeadNote) {
        let free = |it: &&mut Option<NonZeroU64>| it.is_none() || **it == Some(note.0);
        if let Some(place) = self.0.iter_mut().find(free) {
            *place = Some(note.0);
        }
    }
}

/// What the client of a request speaks: how the head of the reply is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Spoken {
    /// HTTP/1.0, which knows no chunks: a body of unknown length ends with its connection.
    Http10,
    #[default]
    Http11,
    /// HTTP/2, whose frames delimit bodies.
    #[cfg(feature = "http2")]
    Http2,
}

/// Whether a client with this value of `TE` makes use of trailers.
#[cold]
fn takes_trailers(value: &[u8]) -> bool {
    elements(value).any(|element| element.eq_ignore_ascii_case(b"trailers"))
}

/// What a reply has to know of its request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RequestMeta {
    /// The method was `HEAD`: the head is that of `GET`, and no body follows.
    pub(crate) is_head: bool,
    pub(crate) spoken: Spoken,
    /// The connection may continue after the reply.
    pub(crate) keep_alive: bool,
    /// Its client makes use of trailers.
    pub(crate) takes_trailers: bool,
}

impl RequestMeta {
    pub(crate) fn of(head: &Head<'_>) -> Self {
        Self {
            is_head: head.is_head(),
            spoken: match head.version() {
                Version::HTTP_11 => Spoken::Http11,
                #[cfg(feature = "http2")]
                Version::HTTP_2 => Spoken::Http2,
                _ => Spoken::Http10,
            },
            keep_alive: head.keep_alive(),
            takes_trailers: match head.version() {
                Version::HTTP_11 => head.known(KnownHeader::Te).is_some_and(takes_trailers),
                version => version == Version::HTTP_2,
            },
        }
    }

    /// Of a head that breaks a rule, of which this much has come.
    pub(crate) fn of_unread(input: &[u8]) -> Self {
        Self {
            is_head: input.trim_ascii_start().starts_with(b"HEAD "),
            ..Self::default()
        }
    }

    /// For a reply after which the connection ends, and which says nothing but what is wrong: "the
    /// server MUST NOT send content in the response" to HEAD (RFC 9110 section 9.3.2).
    pub(crate) fn refused(self) -> Self {
        Self {
            is_head: self.is_head,
            ..Self::default()
        }
    }
}

/// The index of the first header of each known name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeaderIndex([u8; KNOWN]);

impl HeaderIndex {
    pub(crate) fn none() -> Self {
        Self([ABSENT; KNOWN])
    }

    /// Notes a header; true when it is the first of its name.
    pub(crate) fn note(&mut self, known: KnownHeader, index: usize) -> bool {
        let entry = &mut self.0[known as usize];
        let is_first = *entry == ABSENT;
        // ABSENT is the greatest.
        *entry = (*entry).min(index as u8);
        is_first
    }

    pub(crate) fn index(&self, known: KnownHeader) -> Option<usize> {
        let entry = self.0[known as usize];
        (entry != ABSENT).then_some(usize::from(entry))
    }
}

impl<'a> Head<'a> {
    /// The method, as it was spelled: methods are case-sensitive.
    #[must_use]
    pub fn method(&self) -> &'a str {
        self.method
    }

    /// True for `GET`.
    #[must_use]
    pub fn is_get(&self) -> bool {
        self.method == "GET"
    }

    /// True for `HEAD`, whose answers carry no body.
    #[must_use]
    pub fn is_head(&self) -> bool {
        self.method == "HEAD"
    }

    /// The whole request target, as it was spelled, but for its dot segments: those are removed
    /// ([`without_dot_segments`](crate::without_dot_segments)).
    #[must_use]
    pub fn target(&self) -> &'a str {
        self.target
    }

    /// The form of the request target.
    #[must_use]
    pub fn form(&self) -> TargetForm {
        self.form
    }

    /// The path of the target, not decoded: begins with `/`, and has no dot segments; or is `*` for
    /// the asterisk form.
    #[must_use]
    pub fn path(&self) -> &'a str {
        self.path
    }

    /// The query of the target without its question mark, not decoded.
    #[must_use]
    pub fn query(&self) -> Option<&'a str> {
        self.query
    }

    /// Host and port the request is for: of the target in absolute form, else of `Host`. Empty when
    /// the client named none, as HTTP/1.0 allows.
    #[must_use]
    pub fn authority(&self) -> &'a str {
        std::str::from_utf8(self.authority).unwrap_or_default()
    }

    /// `HTTP_10`, `HTTP_11`, or `HTTP_2` (feature `http2`).
    #[must_use]
    pub fn version(&self) -> Version {
        self.version
    }

    /// The client's address, if it has one and the service asks for it
    /// ([`Service::plan`](crate::Service::plan), which has none yet).
    #[must_use]
    pub fn peer(&self) -> Option<SocketAddr> {
        self.peer
    }

    /// Leaves a note for the worker that gets this request.
    pub fn leave(&self, note: HeadNote) {
        let mut notes = self.notes.get();
        notes.add(note);
        self.notes.set(notes);
    }

    /// Whether this note was left.
    #[must_use]
    pub fn has(&self, note: HeadNote) -> bool {
        self.notes.get().has(note)
    }

    /// Takes over the notes of the same request as another service has seen it.
    pub(crate) fn notes_of(&self, other: &Head<'_>) {
        self.notes.set(other.notes.get());
    }

    /// How the body is delimited.
    #[must_use]
    pub fn framing(&self) -> Framing {
        self.framing
    }

    /// Whether the client wants the connection to continue after this request.
    #[must_use]
    pub fn keep_alive(&self) -> bool {
        self.keep_alive
    }

    /// Whether the client waits for `100 Continue` before it sends the body.
    #[must_use]
    pub fn expect_continue(&self) -> bool {
        self.expect_continue
    }

    /// Length of the head in bytes: empty lines before it and the empty line after it included.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The same request for a service that is mounted where `prefix_bytes` of the path end: in
    /// origin-form. The path of the prefix alone becomes `/`.
    pub(crate) fn within(&self, prefix_bytes: usize) -> Self {
        let Some((mount, path)) = self.path.split_at_checked(prefix_bytes) else {
            return self.clone();
        };
        let query_bytes = self.query.map_or(0, |query| query.len() + 1);
        let rest_bytes = path.len() + query_bytes;
        let rest = self.target.len().checked_sub(rest_bytes);
        let rest = rest.and_then(|at| self.target.get(at..));
        let (path, target) = match rest {
            // The root of `http://host` is not in the target.
            Some(target) if !path.is_empty() && target.starts_with(path) => (path, target),
            _ => ("/", "/"),
        };
        Self {
            target,
            path,
            mount,
            form: TargetForm::Origin,
            ..self.clone()
        }
    }

    /// All headers in their order: the name as it was spelled, and the value without the white
    /// space around it.
    pub fn headers(&self) -> impl ExactSizeIterator<Item = (&'a str, &'a [u8])> + use<'a> {
        self.headers
            .iter()
            .map(|header| (header.name, header.value))
    }

    /// The first value of a well-known header. O(1).
    #[must_use]
    pub fn known(&self, known: KnownHeader) -> Option<&'a [u8]> {
        self.first
            .index(known)
            .map(|index| self.headers[index].value)
    }

    /// The first value of the header with this name, whatever its case. O(headers).
    #[must_use]
    pub fn value(&self, name: &str) -> Option<&'a [u8]> {
        self.values(name).next()
    }

    /// All values of the header with this name, whatever its case, in their order. O(headers).
    pub fn values<'n>(&self, name: &'n str) -> impl Iterator<Item = &'a [u8]> + use<'a, 'n> {
        let same = move |header: &&'a httparse::Header<'a>| header.name.eq_ignore_ascii_case(name);
        self.headers.iter().filter(same).map(|header| header.value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_known_name_is_recognised_in_any_case_and_nothing_else_is() {
        let names = [
            ("accept-encoding", KnownHeader::AcceptEncoding),
            ("connection", KnownHeader::Connection),
            ("content-length", KnownHeader::ContentLength),
            ("expect", KnownHeader::Expect),
            ("host", KnownHeader::Host),
            ("if-match", KnownHeader::IfMatch),
            ("if-modified-since", KnownHeader::IfModifiedSince),
            ("if-none-match", KnownHeader::IfNoneMatch),
            ("if-unmodified-since", KnownHeader::IfUnmodifiedSince),
            ("range", KnownHeader::Range),
            ("te", KnownHeader::Te),
            ("transfer-encoding", KnownHeader::TransferEncoding),
        ];
        assert_eq!(names.len(), KNOWN, "each known header is in the list");
        for (name, known) in names {
            assert_eq!(KnownHeader::from_name(name), Some(known));
            assert_eq!(
                KnownHeader::from_name(&name.to_ascii_uppercase()),
                Some(known)
            );
            for at in 0..name.len() {
                let mut other = name.as_bytes().to_vec();
                other[at] = b'z';
                let other = String::from_utf8(other).expect("ASCII");
                assert_eq!(KnownHeader::from_name(&other), None, "{other}");
            }
        }
        assert_eq!(KnownHeader::from_name(""), None);
    }
}
