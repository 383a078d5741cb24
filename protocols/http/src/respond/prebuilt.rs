//! Heads that are written once and sent often, as those of files are: see [`PrebuiltHead`].
//!
//! The text of HTTP/1 is there from the beginning, with the places of its fields, so that none
//! is looked for. The block of HTTP/2 is made of these when it is asked for first.
//!
//! Cost: to send one is a copy of its bytes. It holds both forms, and twelve bytes for each field.

#[cfg(feature = "http2")]
use std::sync::OnceLock;

use http::header::VARY;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

use crate::head::Spoken;
use crate::respond::encode::{self, HeadOut};

/// The head of an answer that is given often: a status and headers, written once for each version
/// of HTTP. See [`Reply::prebuilt`](crate::Reply::prebuilt).
///
/// ```
/// use flatpath_http::PrebuiltHead;
/// use flatpath_http::http::header::{ETAG, HeaderMap, HeaderValue};
/// use flatpath_http::http::StatusCode;
///
/// let headers = HeaderMap::from_iter([(ETAG, HeaderValue::from_static("\"x\""))]);
/// let head = PrebuiltHead::new(StatusCode::NOT_MODIFIED, &headers, None);
/// assert_eq!(head.value(&ETAG), Some(&b"\"x\""[..]));
/// ```
#[derive(Clone, Debug)]
pub struct PrebuiltHead {
    status: StatusCode,
    length: Option<u64>,
    /// Status line and headers, each with its line end; without an empty line.
    text: Box<[u8]>,
    /// The headers in the text.
    places: Box<[Place]>,
    #[cfg(feature = "http2")]
    block: OnceLock<Box<[u8]>>,
}

/// Where a header is in the text: the beginnings of its name and value, and the end of that.
#[derive(Clone, Copy, Debug)]
struct Place {
    name: u32,
    value: u32,
    end: u32,
}

/// Usual length of a head.
const HEAD_BYTES_USUAL: usize = 512;

const COLON: &[u8] = b": ";
const LINE_END: &[u8] = b"\r\n";

impl PrebuiltHead {
    /// The head with these headers and a body of this length. Headers that say how a message is
    /// framed or when it was sent are left out: those are the protocol's.
    pub fn new<'h>(
        status: StatusCode,
        headers: impl IntoIterator<Item = (&'h HeaderName, &'h HeaderValue)>,
        length: Option<u64>,
    ) -> Self {
        let mut lines = Lines::begin(status);
        for (name, value) in headers {
            lines.put(name, value);
        }
        lines.end(status, length)
    }

    /// The same with another status and length, and these headers in place of those by the same
    /// names. Of `Vary` both count, as for [`amend_headers`].
    #[must_use]
    pub fn amended(&self, status: StatusCode, headers: &HeaderMap, length: Option<u64>) -> Self {
        let mut lines = Lines::begin(status);
        for (name, value) in self.fields() {
            let mut replaced = headers.keys().filter(|by| **by != VARY);
            if !replaced.any(|by| is_same(by, name)) {
                lines.put_spelled(name, value);
            }
        }
        for (name, value) in headers {
            let is_this = |(own, it): (&[u8], &[u8])| {
                is_same(&VARY, own) && it.eq_ignore_ascii_case(value.as_bytes())
            };
            if *name != VARY || !self.fields().any(is_this) {
                lines.put(name, value);
            }
        }
        lines.end(status, length)
    }

    /// Its status.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// The length of the body, if that was given.
    #[must_use]
    pub fn length(&self) -> Option<u64> {
        self.length
    }

    /// The value of its only header by this name.
    #[must_use]
    pub fn value(&self, name: &HeaderName) -> Option<&[u8]> {
        let mut values = self.fields().filter(|(own, _)| is_same(name, own));
        let (_, value) = values.next()?;
        values.next().is_none().then_some(value)
    }

    /// What it takes in memory, in each version.
    #[must_use]
    pub fn bytes(&self) -> usize {
        2 * self.text.len() + size_of_val(&*self.places)
    }

    /// As it is sent, without what [`end_of_head`](encode::end_of_head) adds.
    #[inline]
    pub(crate) fn written(&self, spoken: Spoken) -> &[u8] {
        match spoken {
            Spoken::Http10 | Spoken::Http11 => &self.text,
            #[cfg(feature = "http2")]
            Spoken::Http2 => self.block.get_or_init(|| self.new_block()),
        }
    }

    #[cfg(feature = "http2")]
    #[cold]
    fn new_block(&self) -> Box<[u8]> {
        let mut block = Vec::with_capacity(self.text.len());
        let mut head = HeadOut::begin(&mut block, Spoken::Http2, self.status);
        for (name, value) in self.fields() {
            head.spelled(name, value);
        }
        if let Some(length) = self.length {
            head.length(length);
        }
        block.into()
    }

    /// Names as they are spelled, and values.
    fn fields(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let at = |from: u32, to: usize| &self.text[from as usize..to];
        self.places.iter().map(move |place| {
            let name = at(place.name, place.value as usize - COLON.len());
            (name, at(place.value, place.end as usize))
        })
    }
}

fn is_same(name: &HeaderName, spelled: &[u8]) -> bool {
    name.as_str().as_bytes().eq_ignore_ascii_case(spelled)
}

/// Puts headers in place of those by the same names. `Vary` is there beside them, unless the same
/// value is.
pub fn amend_headers(headers: &mut HeaderMap, by: &HeaderMap) {
    for name in by.keys().filter(|name| **name != VARY) {
        headers.remove(name);
    }
    for (name, value) in by {
        let is_same = |it: &HeaderValue| it.as_bytes().eq_ignore_ascii_case(value.as_bytes());
        if *name != VARY || !headers.get_all(VARY).iter().any(is_same) {
            headers.append(name, value.clone());
        }
    }
}

/// A head while it is built.
struct Lines {
    text: Vec<u8>,
    places: Vec<Place>,
}

impl Lines {
    fn begin(status: StatusCode) -> Self {
        let mut text = Vec::with_capacity(HEAD_BYTES_USUAL);
        HeadOut::begin(&mut text, Spoken::Http11, status);
        let places = Vec::new();
        Self { text, places }
    }

    fn put(&mut self, name: &HeaderName, value: &HeaderValue) {
        if !encode::is_ours(name.as_str().as_bytes()) {
            let from = self.text.len();
            encode::named_header(&mut self.text, name, value);
            self.place(from, name.as_str().len());
        }
    }

    fn put_spelled(&mut self, name: &[u8], value: &[u8]) {
        let from = self.text.len();
        for piece in [name, COLON, value, LINE_END] {
            self.text.extend_from_slice(piece);
        }
        self.place(from, name.len());
    }

    /// The last line begins here, with a name of this length.
    fn place(&mut self, from: usize, name_bytes: usize) {
        self.places.push(Place {
            name: from as u32,
            value: (from + name_bytes + COLON.len()) as u32,
            end: (self.text.len() - LINE_END.len()) as u32,
        });
    }

    fn end(mut self, status: StatusCode, length: Option<u64>) -> PrebuiltHead {
        if let Some(length) = length {
            let mut digits = itoa::Buffer::new();
            encode::header(
                &mut self.text,
                b"Content-Length",
                digits.format(length).as_bytes(),
            );
        }
        PrebuiltHead {
            status,
            length,
            text: self.text.into(),
            places: self.places.into(),
            #[cfg(feature = "http2")]
            block: OnceLock::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use http::header::{CONTENT_TYPE, DATE, ETAG};

    use super::*;

    fn map(headers: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, HeaderValue::from_static(value));
        }
        map
    }

    fn text(head: &PrebuiltHead) -> &str {
        std::str::from_utf8(head.written(Spoken::Http10)).expect("ASCII")
    }

    #[cfg(feature = "http2")]
    fn block(head: &PrebuiltHead) -> Vec<(String, String)> {
        let fields = crate::testing::Blocks::default().fields(head.written(Spoken::Http2));
        let text = |bytes| String::from_utf8(bytes).expect("ASCII");
        let fields = fields.expect("a block").into_iter();
        fields
            .map(|(name, value)| (text(name), text(value)))
            .collect()
    }

    #[test]
    fn a_head_has_its_status_headers_and_length_in_each_version() {
        let headers = map(&[
            ("etag", "\"x\""),
            ("date", "never"),
            ("x-empty", ""),
            ("connection", "close"),
            ("vary", "a"),
            ("vary", "b"),
        ]);
        let head = PrebuiltHead::new(StatusCode::NOT_FOUND, &headers, Some(12));
        let expected = "HTTP/1.1 404 Not Found\r\nETag: \"x\"\r\nX-Empty: \r\nVary: a\r\n\
            Vary: b\r\nContent-Length: 12\r\n";
        assert_eq!(text(&head), expected);
        assert_eq!(head.value(&ETAG), Some(&b"\"x\""[..]));
        for name in [VARY, DATE, CONTENT_TYPE] {
            assert_eq!(head.value(&name), None, "{name}");
        }
        #[cfg(feature = "http2")]
        for head in [&head, &head, &head.clone()] {
            let expected = [
                (":status", "404"),
                ("etag", "\"x\""),
                ("x-empty", ""),
                ("vary", "a"),
                ("vary", "b"),
                ("content-length", "12"),
            ];
            let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
            assert_eq!(block(head), expected);
        }
    }

    #[test]
    fn a_head_is_amended_by_headers_in_place_of_its_own() {
        let own = [
            ("vary", "a"),
            ("x-a", "1"),
            ("x-a", "2"),
            ("vary", "Origin"),
            ("x-b", "3"),
        ];
        let by = map(&[
            ("x-a", "4"),
            ("vary", "origin"),
            ("x-c", "5"),
            ("date", "no"),
        ]);
        let head = PrebuiltHead::new(StatusCode::OK, &map(&own), Some(7));
        let amended = head.amended(StatusCode::PARTIAL_CONTENT, &by, Some(3));
        let (status, lines) = text(&amended).split_once("\r\n").expect("a status line");
        assert_eq!(status, "HTTP/1.1 206 Partial Content");
        let mut lines: Vec<_> = lines.lines().collect();
        lines.sort_unstable();
        let expected = [
            "Content-Length: 3",
            "Vary: Origin",
            "Vary: a",
            "X-A: 4",
            "X-B: 3",
            "X-C: 5",
        ];
        assert_eq!(lines, expected);
        // Those of a response are amended so, too.
        let mut headers = map(&own);
        amend_headers(&mut headers, &by);
        let mut values: Vec<_> = headers.iter().map(|(_, value)| value.as_bytes()).collect();
        values.sort_unstable();
        assert_eq!(values, [&b"3"[..], b"4", b"5", b"Origin", b"a", b"no"]);
        // Those that were amended are there to be amended again.
        let again = amended.amended(StatusCode::OK, &map(&[("x-c", "6")]), None);
        assert!(text(&again).ends_with("\r\nX-C: 6\r\n") && !text(&again).contains(": 5"));
    }
}
