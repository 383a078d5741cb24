//! `Vary`: what a response depends on (RFC 9110, 12.5.5).

use flatpath_http::header_values::elements;
use http::header::{HeaderMap, HeaderName, HeaderValue, VARY};

/// Names a request header that the response depends on, unless it is named already.
pub(crate) fn add(headers: &mut HeaderMap, name: &HeaderName) {
    let is_it = |it: &[u8]| it == b"*" || it.eq_ignore_ascii_case(name.as_str().as_bytes());
    let mut values = headers.get_all(VARY).iter();
    if !values.any(|value| elements(value.as_bytes()).any(is_it)) {
        headers.append(VARY, HeaderValue::from(name.clone()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::header::{ACCEPT_ENCODING, ORIGIN};

    #[test]
    fn a_header_is_named_once_and_not_beside_a_star() {
        for (before, after) in [
            (&[][..], &["origin"][..]),
            (&["Origin"], &["Origin"]),
            (&["accept-encoding"], &["accept-encoding", "origin"]),
            (&["accept-encoding, origin"], &["accept-encoding, origin"]),
            (&["*"], &["*"]),
        ] {
            let mut headers = HeaderMap::new();
            for value in before {
                headers.append(VARY, HeaderValue::from_static(value));
            }
            add(&mut headers, &ORIGIN);
            add(&mut headers, &ORIGIN);
            assert_eq!(headers.get_all(VARY).iter().collect::<Vec<_>>(), after);
        }
        let mut headers = HeaderMap::new();
        add(&mut headers, &ORIGIN);
        add(&mut headers, &ACCEPT_ENCODING);
        assert_eq!(headers.get_all(VARY).iter().count(), 2);
    }
}
