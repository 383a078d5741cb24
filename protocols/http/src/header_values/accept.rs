//! `Accept` (RFC 9110, 12.5.1): the media types that a client wants.
//!
//! Cost: one pass over the header.

use super::accept_encoding::{WEIGHT_MAX, parse_weight};
use super::elements;

/// The weight that all `Accept` headers of a request give a media type, in thousandths; `None` if
/// they do not name it. Ranges such as `*/*` name none: nearly every client sends one. The first
/// mention counts, and one whose weight is malformed does not.
///
/// ```
/// use flatpath_http::header_values::weight_of;
///
/// let header: &[u8] = b"text/html, application/json;q=0.5, */*;q=0.1";
/// assert_eq!(weight_of([header], "application/json"), Some(500));
/// assert_eq!(weight_of([header], "image/png"), None);
/// ```
pub fn weight_of<'a>(values: impl IntoIterator<Item = &'a [u8]>, media_type: &str) -> Option<u16> {
    let mut elements = values.into_iter().flat_map(elements);
    elements.find_map(|element| {
        let mut pieces = element.split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
        let name = pieces.next().unwrap_or_default();
        if !name.eq_ignore_ascii_case(media_type.as_bytes()) {
            return None;
        }
        let is_weight = |piece: &&[u8]| matches!(piece, [b'q' | b'Q', b'=', ..]);
        match pieces.find(is_weight) {
            Some(weight) => parse_weight(weight),
            None => Some(WEIGHT_MAX),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_has_the_weight_that_names_it() {
        for (value, weight) in [
            ("application/json", Some(1000)),
            ("text/html, Application/JSON", Some(1000)),
            ("application/json; charset=utf-8 ; q=0.25", Some(250)),
            ("application/json;q=0", Some(0)),
            ("application/json;Q=0.5", Some(500)),
            ("application/json;q=0.5, application/json", Some(500)),
            ("application/json;q=x, application/json", Some(1000)),
            ("application/json;q=2", None),
            ("*/*", None),
            ("application/*", None),
            ("application/jsonp", None),
            ("application/ld+json", None),
            ("", None),
        ] {
            assert_eq!(
                weight_of([value.as_bytes()], "application/json"),
                weight,
                "{value}"
            );
        }
        let two = [&b"text/html"[..], b"application/json;q=0.1"];
        assert_eq!(weight_of(two, "application/json"), Some(100));
    }
}
