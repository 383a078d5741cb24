//! Header names that were seen before: the http crate allocates for each name it does not know.
//!
//! A small direct-mapped table, one per network thread. A name that falls on another's place takes
//! it, so a peer that sends ever new names costs allocations and no memory.
//!
//! Cost: one hash over sixteen bytes of the name, one comparison.

use http::HeaderName;

/// Places in the table; a power of two. Browsers send some thirty different names.
const PLACES: usize = 128;

/// Longer names are not remembered.
const NAME_BYTES_MAX: usize = 48;

const _: () = assert!(
    NAME_BYTES_MAX <= u8::MAX as usize,
    "a name's length is kept in a byte"
);

/// Names as they were spelled, and what became of them.
pub(crate) struct Names {
    places: Box<[Option<Seen>]>,
}

struct Seen {
    spelled: [u8; NAME_BYTES_MAX],
    spelled_bytes: u8,
    name: HeaderName,
}

impl Default for Names {
    fn default() -> Self {
        Self::new()
    }
}

impl Names {
    pub(crate) fn new() -> Self {
        Self {
            places: (0..PLACES).map(|_| None).collect(),
        }
    }

    /// The http crate's name for a token; None for what is no token.
    pub(crate) fn name(&mut self, spelled: &str) -> Option<HeaderName> {
        let spelled = spelled.as_bytes();
        if spelled.len() > NAME_BYTES_MAX {
            return HeaderName::from_bytes(spelled).ok();
        }
        let place = &mut self.places[place_of(spelled)];
        if let Some(seen) = place
            && seen.spelled[..usize::from(seen.spelled_bytes)] == *spelled
        {
            return Some(seen.name.clone());
        }
        let name = HeaderName::from_bytes(spelled).ok()?;
        let mut kept = [0; NAME_BYTES_MAX];
        kept[..spelled.len()].copy_from_slice(spelled);
        let spelled_bytes = spelled.len() as u8;
        *place = Some(Seen {
            spelled: kept,
            spelled_bytes,
            name: name.clone(),
        });
        Some(name)
    }
}

/// From the length, the first eight bytes and the last eight: that tells apart the names that are
/// in use, and takes no loop.
fn place_of(spelled: &[u8]) -> usize {
    let word = |bytes: &[u8]| {
        let mut word = [0; 8];
        word[..bytes.len()].copy_from_slice(bytes);
        u64::from_le_bytes(word)
    };
    let first = word(&spelled[..spelled.len().min(8)]);
    let last = word(&spelled[spelled.len().saturating_sub(8)..]);
    let mixed =
        (first ^ last.rotate_left(29) ^ spelled.len() as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 32) as usize % PLACES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_back_as_the_http_crate_has_them() {
        let mut names = Names::new();
        for _ in 0..2 {
            for spelled in ["Host", "host", "X-Request-Id", "x-request-id", "ETag"] {
                let expected = HeaderName::from_bytes(spelled.as_bytes()).expect("a token");
                assert_eq!(names.name(spelled), Some(expected));
            }
        }
        assert_eq!(names.name("no token"), None);
        assert_eq!(names.name(""), None);
        let long = "x".repeat(NAME_BYTES_MAX + 1);
        assert_eq!(
            names.name(&long).map(|name| name.as_str().len()),
            Some(long.len())
        );
    }

    #[test]
    fn names_in_use_hardly_take_each_others_places() {
        let in_use = [
            "Host",
            "User-Agent",
            "Accept",
            "Accept-Encoding",
            "Accept-Language",
            "Connection",
            "Content-Length",
            "Content-Type",
            "Cookie",
            "Cache-Control",
            "If-None-Match",
            "Range",
            "If-Modified-Since",
            "Referer",
            "Origin",
            "Authorization",
            "Upgrade-Insecure-Requests",
            "Sec-Fetch-Dest",
            "Sec-Fetch-Mode",
            "Sec-Fetch-Site",
            "Sec-Fetch-User",
            "Priority",
            "X-Forwarded-For",
            "X-Forwarded-Proto",
            "X-Request-Id",
            "X-Real-IP",
            "Forwarded",
            "Via",
        ];
        let places: std::collections::HashSet<_> = in_use
            .iter()
            .map(|name| place_of(name.as_bytes()))
            .collect();
        assert!(
            places.len() + 5 >= in_use.len(),
            "{} of {}",
            places.len(),
            in_use.len()
        );
    }

    #[test]
    fn ever_new_names_take_each_others_places() {
        let mut names = Names::new();
        for number in 0..10 * PLACES {
            let spelled = format!("x-{number}");
            let name = names.name(&spelled).expect("a token");
            assert_eq!(name.as_str(), spelled);
        }
        assert_eq!(names.places.len(), PLACES);
    }
}
