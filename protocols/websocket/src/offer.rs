//! Which of a client's offers of permessage-deflate is accepted, and how (RFC 7692 section 7.1).

use flatpath_http::http::{HeaderMap, HeaderValue, header};

use crate::deflate::Deflate;

/// The largest window, which is meant where none is named.
pub(crate) const WINDOW_BITS_MAX: u8 = 15;

/// The smallest window that the format knows, and the smallest that zlib can compress for.
const WINDOW_BITS_MIN: u8 = 8;
const COMPRESS_BITS_MIN: u8 = 9;

/// What both sides keep to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Agreed {
    /// Whether the server keeps its window from message to message.
    pub(crate) server_takeover: bool,
    pub(crate) client_takeover: bool,
    pub(crate) server_bits: u8,
    pub(crate) client_bits: u8,
    /// Whether the client can be told its window.
    names_client_bits: bool,
}

/// The first offer that can be kept, and the header that accepts it. What is not well formed is no
/// offer.
pub(crate) fn accept(headers: &HeaderMap, own: &Deflate) -> Option<(Agreed, HeaderValue)> {
    let lists = headers.get_all(header::SEC_WEBSOCKET_EXTENSIONS).iter();
    let mut offers = lists.flat_map(|list| list.as_bytes().split(|byte| *byte == b','));
    let agreed = offers.find_map(|offer| agree(std::str::from_utf8(offer).ok()?, own))?;
    let value = HeaderValue::try_from(agreed.to_string()).ok()?;
    Some((agreed, value))
}

fn agree(offer: &str, own: &Deflate) -> Option<Agreed> {
    let mut parts = offer.split(';').map(str::trim);
    if parts.next() != Some("permessage-deflate") {
        return None;
    }
    let mut agreed = Agreed {
        server_takeover: own.server_takeover,
        client_takeover: own.client_takeover,
        server_bits: own
            .server_window_bits
            .clamp(COMPRESS_BITS_MIN, WINDOW_BITS_MAX),
        client_bits: WINDOW_BITS_MAX,
        names_client_bits: false,
    };
    let mut seen = Vec::new();
    for part in parts {
        let (name, value) = match part.split_once('=') {
            Some((name, value)) => (name.trim(), Some(unquoted(value.trim())?)),
            None => (part, None),
        };
        if seen.contains(&name) {
            return None;
        }
        seen.push(name);
        match (name, value) {
            ("server_no_context_takeover", None) => agreed.server_takeover = false,
            ("client_no_context_takeover", None) => agreed.client_takeover = false,
            ("server_max_window_bits", Some(value)) => {
                agreed.server_bits = agreed.server_bits.min(window_bits(value)?);
            }
            ("client_max_window_bits", value) => {
                agreed.names_client_bits = true;
                agreed.client_bits = value.map_or(Some(WINDOW_BITS_MAX), window_bits)?;
            }
            _ => return None,
        }
    }
    if agreed.names_client_bits {
        let own_bits = own
            .client_window_bits
            .clamp(COMPRESS_BITS_MIN, WINDOW_BITS_MAX);
        agreed.client_bits = agreed.client_bits.min(own_bits);
    }
    (agreed.server_bits >= COMPRESS_BITS_MIN).then_some(agreed)
}

/// A value without the quotes that it may have.
fn unquoted(value: &str) -> Option<&str> {
    match value.strip_prefix('"') {
        Some(quoted) => quoted.strip_suffix('"'),
        None => Some(value),
    }
}

/// "A decimal integer value without leading zeroes between 8 to 15 inclusive".
fn window_bits(value: &str) -> Option<u8> {
    let is_decimal = value.bytes().all(|byte| byte.is_ascii_digit()) && !value.starts_with('0');
    let bits = is_decimal.then(|| value.parse().ok()).flatten();
    bits.filter(|bits| (WINDOW_BITS_MIN..=WINDOW_BITS_MAX).contains(bits))
}

/// The element of `Sec-WebSocket-Extensions` that accepts an offer.
impl std::fmt::Display for Agreed {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("permessage-deflate")?;
        if !self.server_takeover {
            formatter.write_str("; server_no_context_takeover")?;
        }
        if !self.client_takeover {
            formatter.write_str("; client_no_context_takeover")?;
        }
        if self.server_bits < WINDOW_BITS_MAX {
            write!(formatter, "; server_max_window_bits={}", self.server_bits)?;
        }
        if self.names_client_bits && self.client_bits < WINDOW_BITS_MAX {
            write!(formatter, "; client_max_window_bits={}", self.client_bits)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(offer: &'static str, own: &Deflate) -> Option<String> {
        let mut headers = HeaderMap::new();
        let offer = HeaderValue::from_static(offer);
        headers.insert(header::SEC_WEBSOCKET_EXTENSIONS, offer);
        let (_, value) = accept(&headers, own)?;
        Some(value.to_str().expect("ASCII").to_owned())
    }

    #[test]
    fn the_first_offer_that_can_be_kept_is_accepted() {
        let plain = "permessage-deflate; server_no_context_takeover; client_no_context_takeover";
        let own = Deflate::default();
        for offer in [
            "permessage-deflate",
            "permessage-deflate; client_max_window_bits",
            "x, permessage-deflate;server_no_context_takeover",
            "permessage-deflate; server_max_window_bits=7, permessage-deflate",
            "permessage-deflate; server_max_window_bits=8, permessage-deflate",
            "permessage-deflate; server_max_window_bits=010, permessage-deflate",
            "permessage-deflate; server_max_window_bits, permessage-deflate",
            "permessage-deflate; server_no_context_takeover=1, permessage-deflate",
            "permessage-deflate; what=ever, permessage-deflate",
        ] {
            assert_eq!(answer(offer, &own).as_deref(), Some(plain), "{offer}");
        }
        for offer in [
            "x",
            "permessage-deflate; x",
            "permessage-deflate; client_max_window_bits=16",
            "permessage-deflate; client_max_window_bits; client_max_window_bits",
            "permessage-deflate; server_max_window_bits=\"10",
        ] {
            assert_eq!(answer(offer, &own), None, "{offer}");
        }
    }

    #[test]
    fn the_smaller_window_counts_and_takeover_is_what_both_want() {
        let own = Deflate {
            server_takeover: true,
            client_takeover: true,
            server_window_bits: 12,
            client_window_bits: 11,
            ..Deflate::default()
        };
        let cases = [
            (
                "permessage-deflate",
                "permessage-deflate; server_max_window_bits=12",
            ),
            (
                "permessage-deflate; server_max_window_bits=\"10\"; client_max_window_bits",
                "permessage-deflate; server_max_window_bits=10; client_max_window_bits=11",
            ),
            (
                "permessage-deflate; client_max_window_bits=9; client_no_context_takeover",
                "permessage-deflate; client_no_context_takeover; server_max_window_bits=12; \
                 client_max_window_bits=9",
            ),
            (
                "permessage-deflate; server_no_context_takeover; server_max_window_bits=15",
                "permessage-deflate; server_no_context_takeover; server_max_window_bits=12",
            ),
        ];
        for (offer, expected) in cases {
            assert_eq!(answer(offer, &own).as_deref(), Some(expected), "{offer}");
        }
    }
}
