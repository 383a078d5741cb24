//! Which of a file's precompressed siblings to send: `Accept-Encoding` (RFC 9110, 12.5.3).
//!
//! `a.css.br` and `a.css.gz` beside `a.css` are the same content, compressed before. The client's
//! weights decide; where they are equal, the smaller form wins: br, then gzip, then plain. Without
//! the header, or with an empty one, the file is sent plain. A sibling is only looked at when the
//! file itself is there, and is trusted to be up to date.
//!
//! Cost: one pass over the header.

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Coding {
    /// Brotli, from a sibling that ends in `.br`.
    Brotli,
    /// Gzip, from a sibling that ends in `.gz`.
    Gzip,
    Identity,
}

/// The codings that a client takes, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Preference {
    order: [Option<Coding>; CODINGS],
}

const CODINGS: usize = 3;

/// All codings, in the order that this server would choose.
const ALL: [Coding; CODINGS] = [Coding::Brotli, Coding::Gzip, Coding::Identity];

/// Weights are thousandths; this is `q=1`.
const WEIGHT_MAX: u16 = 1_000;

impl Coding {
    pub(crate) fn suffix(self) -> &'static [u8] {
        match self {
            Self::Brotli => b".br",
            Self::Gzip => b".gz",
            Self::Identity => b"",
        }
    }

    /// The value of `Content-Encoding`, if there is to be one.
    pub(crate) fn token(self) -> Option<&'static str> {
        match self {
            Self::Brotli => Some("br"),
            Self::Gzip => Some("gzip"),
            Self::Identity => None,
        }
    }
}

impl Preference {
    /// Without the header: the file as it is.
    pub(crate) const PLAIN: Self = Self {
        order: [Some(Coding::Identity), None, None],
    };

    /// Reads all `Accept-Encoding` headers of a request.
    pub(crate) fn parse<'a>(values: impl Iterator<Item = &'a [u8]>) -> Self {
        let mut weights = Weights::default();
        let mut is_present = false;
        for value in values {
            for element in crate::headers::elements(value) {
                is_present = true;
                weights.note(element);
            }
        }
        if !is_present {
            return Self::PLAIN;
        }
        let mut ranked = ALL.map(|coding| (weights.of(coding), coding));
        // Stable, so that our own order decides between equal weights.
        ranked.sort_by_key(|(weight, _)| std::cmp::Reverse(*weight));
        let mut order = [None; CODINGS];
        for (place, (weight, coding)) in order.iter_mut().zip(ranked) {
            *place = (weight > 0).then_some(coding);
        }
        Self { order }
    }

    /// The codings to try, best first. Empty when the client takes none that we have.
    pub(crate) fn codings(&self) -> impl Iterator<Item = Coding> + use<> {
        self.order.into_iter().flatten()
    }
}

/// The weight of each coding. The first mention counts.
#[derive(Default)]
struct Weights {
    brotli: Option<u16>,
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

    /// "*" stands for what is not named. The plain file is acceptable even if nothing names it, but
    /// last: a client that lists codings wants one of them.
    fn of(&self, coding: Coding) -> u16 {
        match coding {
            Coding::Brotli => self.brotli.or(self.others).unwrap_or(0),
            Coding::Gzip => self.gzip.or(self.others).unwrap_or(0),
            Coding::Identity => self.identity.or(self.others).unwrap_or(1),
        }
    }
}

/// `q=0.25` in thousandths: `( "0" [ "." 0*3DIGIT ] ) / ( "1" [ "." 0*3("0") ] )`.
fn parse_weight(parameter: &[u8]) -> Option<u16> {
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
    use super::Coding::{Brotli, Gzip, Identity};
    use super::*;

    fn order(value: &str) -> Vec<Coding> {
        Preference::parse([value.as_bytes()].into_iter())
            .codings()
            .collect()
    }

    #[test]
    fn without_the_header_the_file_is_plain() {
        let none: [&[u8]; 0] = [];
        assert_eq!(Preference::parse(none.into_iter()), Preference::PLAIN);
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
        let preference = Preference::parse(values.into_iter());
        assert_eq!(
            preference.codings().collect::<Vec<_>>(),
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
            let preference = Preference::parse([value.as_bytes()].into_iter());
            assert_eq!(preferences.insert(preference, value), None, "{value}");
        }
    }
}
