//! Values of headers, for what answers requests by them: layers, and services of other crates.

mod accept;
mod accept_encoding;
mod entity_tag;
pub(crate) mod parameters;

pub use accept::weight_of;
pub use accept_encoding::{AcceptEncoding, ContentCoding};
pub use entity_tag::{Comparison, lists_tag};

/// The elements of a comma-separated list, without the white space around them; empty ones are left
/// out (RFC 9110, 5.6.1). Not for lists of quoted strings.
///
/// ```
/// let elements = flatpath_http::header_values::elements(b"gzip, ,br").collect::<Vec<_>>();
/// assert_eq!(elements, [&b"gzip"[..], b"br"]);
/// ```
pub fn elements(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value
        .split(|byte| *byte == b',')
        .map(<[u8]>::trim_ascii)
        .filter(|element| !element.is_empty())
}
