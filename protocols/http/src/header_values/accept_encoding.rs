//! `Accept-Encoding` (RFC 9110, 12.5.3): the content codings that a client takes.
//!
//! Cost: one pass over the header.

use super::elements;

/// A content coding that this server may send.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ContentCoding {
    /// `br` (RFC 7932).
    Brotli,
    /// `zstd` (RFC 8878).
    Zstd,
    /// `gzip` (RFC 1952).
    Gzip,
    /// The content as it is.
    Identity,
}

/// How many there are.
const CODINGS: usize = 4;

/// The codings that a client takes of those that a server has, best first.
///
/// ```
/// use flatpath_http::header_values::{AcceptEncoding, ContentCoding};
///
/// // In the order in which the server would choose.
/// let ours = [ContentCoding::Brotli, ContentCoding::Gzip, ContentCoding::Identity];
/// let header: &[u8] = b"gzip, br;q=0.5, zstd";
/// let accepted = AcceptEncoding::parse([header], &ours);
/// assert_eq!(accepted.codings().next(), Some(ContentCoding::Gzip));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AcceptEncoding {
    order: [Option<ContentCoding>; CODINGS],
}

/// Weights are thousandths; this is `q=1`.
pub(super) const WEIGHT_MAX: u16 = 1_000;

impl ContentCoding {
    /// The value of `Content-Encoding`; `None` for the content as it is.
    #[must_use]
    pub fn token(self) -> Option<&'static str> {
        match self {
            Self::Brotli => Some("br"),
            Self::Zstd => Some("zstd"),
            Self::Gzip => Some("gzip"),
            Self::Identity => None,
        }
    }
}

impl AcceptEncoding {
    /// Without the header, or with an empty one: the content as it is.
    pub const PLAIN: Self = Self {
        order: [Some(ContentCoding::Identity), None, None, None],
    };

    /// Reads all `Accept-Encoding` headers of a request. The client's weights decide between the
    /// codings that the server has; where they are equal, the order of `ours` does. Elements that
    /// are malformed or unknown are left out; the first mention of a coding counts.
    ///
    /// O(length of the headers).
    pub fn parse<'a>(values: impl IntoIterator<Item = &'a [u8]>, ours: &[ContentCoding]) -> Self {
        let mut weights = Weights::default();
        let mut is_present = false;
        for element in values.into_iter().flat_map(elements) {
            is_present = true;
            weights.note(element);
        }
        if !is_present {
            return Self::PLAIN;
        }
        let mut order = [None; CODINGS];
        for (place, coding) in order.iter_mut().zip(ours) {
            *place = Some(*coding).filter(|coding| weights.of(*coding) > 0);
        }
        // Stable, so that our own order decides between equal weights.
        order.sort_by_key(|coding| std::cmp::Reverse(coding.map(|it| weights.of(it))));
        Self { order }
    }

    /// The codings to try, best first. Empty when the client takes none that we have.
    pub fn codings(&self) -> impl Iterator<Item = ContentCoding> + use<> {
        self.order.into_iter().flatten()
    }
}

/// The weight of each coding. The first mention counts.
#[derive(Default)]
struct Weights {
    brotli: Option<u16>,
    zstd: Option<u16>,
    gzip: Option<u16>,
    identity: Option<u16>,
    others: Option<u16>,
}

impl Weights {
    /// One element of the list: a coding with or without its weight. A malformed one is left out.
    fn note(&mut self, element: &[u8]) {
        let mut pieces = element.split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
        let name = pieces.next().unwrap_or_default();
        let weight = match (pieces.next(), pieces.next()) {
            (None, _) => Some(WEIGHT_MAX),
            (Some(parameter), None) => parse_weight(parameter),
            (Some(_), Some(_)) => None,
        };
        let Some(weight) = weight else { return };
        let is = |spelled: &[u8]| name.eq_ignore_ascii_case(spelled);
        let entry = if is(b"br") {
            &mut self.brotli
        } else if is(b"zstd") {
            &mut self.zstd
        } else if is(b"gzip") || is(b"x-gzip") {
            &mut self.gzip
        } else if is(b"identity") {
            &mut self.identity
        } else if is(b"*") {
            &mut self.others
        } else {
            return;
        };
        entry.get_or_insert(weight);
    }

    /// "*" stands for what is not named. The plain content is acceptable even if nothing names it,
    /// but last: a client that lists codings wants one of them.
    fn of(&self, coding: ContentCoding) -> u16 {
        match coding {
            ContentCoding::Brotli => self.brotli.or(self.others).unwrap_or(0),
            ContentCoding::Zstd => self.zstd.or(self.others).unwrap_or(0),
            ContentCoding::Gzip => self.gzip.or(self.others).unwrap_or(0),
            ContentCoding::Identity => self.identity.or(self.others).unwrap_or(1),
        }
    }
}

/// `q=0.25` in thousandths: `( "0" [ "." 0*3DIGIT ] ) / ( "1" [ "." 0*3("0") ] )`.
pub(super) fn parse_weight(parameter: &[u8]) -> Option<u16> {
    let [b'q' | b'Q', b'=', whole @ (b'0' | b'1'), fraction @ ..] = parameter else {
        return None;
    };
    let digits = match fraction {
        [] => fraction,
        [b'.', digits @ ..] if digits.len() <= 3 => digits,
        _ => return None,
    };
    let mut weight = u16::from(whole - b'0') * WEIGHT_MAX;
    let mut place = WEIGHT_MAX;
    for digit in digits {
        if !digit.is_ascii_digit() {
            return None;
        }
        place /= 10;
        weight += u16::from(digit - b'0') * place;
    }
    (weight <= WEIGHT_MAX).then_some(weight)
}

#[cfg(test)]
mod tests {
    use super::ContentCoding::{Brotli, Gzip, Identity, Zstd};
    use super::*;

    /// What most tests choose from.
    const THREE: [ContentCoding; 3] = [Brotli, Gzip, Identity];

    fn order(value: &str) -> Vec<ContentCoding> {
        order_of(value, &THREE)
    }

    fn order_of(value: &str, ours: &[ContentCoding]) -> Vec<ContentCoding> {
        AcceptEncoding::parse([value.as_bytes()], ours)
            .codings()
            .collect()
    }

    #[test]
    fn only_what_the_server_has_is_chosen_in_its_order_where_weights_are_equal() {
        let value = "gzip, br, zstd";
        for (ours, expected) in [
            (
                &[Zstd, Brotli, Gzip, Identity][..],
                &[Zstd, Brotli, Gzip, Identity][..],
            ),
            (&[Gzip, Zstd], &[Gzip, Zstd]),
            (&[Identity], &[Identity]),
            (&[], &[]),
        ] {
            assert_eq!(order_of(value, ours), expected);
        }
        let four = [Brotli, Zstd, Gzip, Identity];
        assert_eq!(
            order_of("zstd, *;q=0.5", &four),
            [Zstd, Brotli, Gzip, Identity]
        );
        assert_eq!(order_of("zstd;q=0, *", &four), [Brotli, Gzip, Identity]);
    }

    #[test]
    fn without_the_header_the_content_is_plain() {
        assert_eq!(AcceptEncoding::parse([], &THREE), AcceptEncoding::PLAIN);
        assert_eq!(order(""), [Identity]);
        assert_eq!(order(" , "), [Identity]);
    }

    #[test]
    fn weights_decide_and_the_smaller_form_wins_ties() {
        for (value, expected) in [
            ("gzip, br", vec![Brotli, Gzip, Identity]),
            ("gzip, deflate, br, zstd", vec![Brotli, Gzip, Identity]),
            ("br;q=0.5, gzip", vec![Gzip, Brotli, Identity]),
            ("br;q=0.123,gzip;q=0.124", vec![Gzip, Brotli, Identity]),
            ("GZIP", vec![Gzip, Identity]),
            ("x-gzip", vec![Gzip, Identity]),
            ("gzip ; q=1.000", vec![Gzip, Identity]),
            ("identity, gzip;q=0.5", vec![Identity, Gzip]),
            ("identity;q=0.1, gzip;q=0.5", vec![Gzip, Identity]),
            ("deflate", vec![Identity]),
        ] {
            assert_eq!(order(value), expected, "{value}");
        }
    }

    #[test]
    fn zero_means_never_and_the_star_means_the_rest() {
        for (value, expected) in [
            ("br;q=0, gzip", vec![Gzip, Identity]),
            ("br;q=0.000", vec![Identity]),
            ("*", vec![Brotli, Gzip, Identity]),
            ("br;q=0, *", vec![Gzip, Identity]),
            ("gzip, *;q=0", vec![Gzip]),
            ("gzip;q=0.5, *;q=0.1", vec![Gzip, Brotli, Identity]),
            ("*;q=0", vec![]),
            ("identity;q=0", vec![]),
            ("gzip, identity;q=0", vec![Gzip]),
            ("*;q=0, identity;q=0.5", vec![Identity]),
        ] {
            assert_eq!(order(value), expected, "{value}");
        }
    }

    #[test]
    fn malformed_elements_are_left_out() {
        for value in [
            "br;q=2",
            "br;q=1.001",
            "br;q=-1",
            "br;q=0.1234",
            "br;q=",
            "br;q",
            "br;x=1",
            "br;q=.5",
            "br;q=0.5;q=1",
            "br;q=0,5x;q=1",
            ";q=1",
            "br gzip",
        ] {
            assert_eq!(order(value), [Identity], "{value}");
        }
    }

    #[test]
    fn several_headers_are_one_list() {
        let values = [&b"gzip;q=0.5"[..], b"br;q=0.9"];
        let accepted = AcceptEncoding::parse(values, &THREE);
        assert_eq!(
            accepted.codings().collect::<Vec<_>>(),
            [Brotli, Gzip, Identity]
        );
    }

    #[test]
    fn the_first_mention_counts() {
        assert_eq!(order("br;q=0, br"), [Identity]);
    }

    #[test]
    fn preferences_that_differ_are_not_equal() {
        let mut preferences = std::collections::HashMap::new();
        for value in [
            "",
            "br",
            "gzip",
            "br,gzip",
            "gzip,br;q=0.5",
            "*;q=0",
            "identity,br;q=0.5",
            "identity,gzip;q=0.5",
            "identity,br;q=0.5,gzip;q=0.4",
            "br,*;q=0",
            "gzip,*;q=0",
            "identity,br;q=0.4,gzip;q=0.5",
            "br,gzip,identity;q=0",
            "gzip,br;q=0.5,identity;q=0",
        ] {
            let accepted = AcceptEncoding::parse([value.as_bytes()], &THREE);
            assert_eq!(preferences.insert(accepted, value), None, "{value}");
        }
    }
}
