//! Which of a file's precompressed siblings to send.
//!
//! `a.css.br` and `a.css.gz` beside `a.css` are the same content, compressed before. The client's
//! weights decide; where they are equal, the smaller form wins: br, then gzip, then plain. Without
//! the header, or with an empty one, the file is sent plain. A sibling is only looked at when the
//! file itself is there, and is trusted to be up to date.

use flatpath_http::header_values::{AcceptEncoding, ContentCoding};

/// The forms that a file may have, in the order that this server would choose.
const FORMS: [ContentCoding; 3] = [
    ContentCoding::Brotli,
    ContentCoding::Gzip,
    ContentCoding::Identity,
];

/// The forms that a client takes, by all of its `Accept-Encoding` headers.
pub(crate) fn accepted<'a>(values: impl Iterator<Item = &'a [u8]>) -> AcceptEncoding {
    AcceptEncoding::parse(values, &FORMS)
}

/// How the name of a sibling ends; `None` for what is no sibling.
pub(crate) fn suffix(form: ContentCoding) -> Option<&'static [u8]> {
    match form {
        ContentCoding::Brotli => Some(b".br"),
        ContentCoding::Gzip => Some(b".gz"),
        _ => None,
    }
}
