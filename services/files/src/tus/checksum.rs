//! `Upload-Checksum`: a digest of one request's body, compared before its bytes count.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::HeaderValue;
use sha1_smol::Sha1;

use flatpath::memory::Payload;

/// `Tus-Checksum-Algorithm`: the one that the protocol demands and that its clients send.
pub(super) const ALGORITHMS: HeaderValue = HeaderValue::from_static("sha1");

/// A digest being computed, and what it must come to.
pub(super) struct Checksum {
    digest: Sha1,
    expected: Vec<u8>,
}

impl Checksum {
    /// From `ALGORITHM BASE64`; `None` where the algorithm is unknown or the digest malformed.
    pub(super) fn parse(value: &[u8]) -> Option<Self> {
        let space = value.iter().position(|byte| *byte == b' ')?;
        let (name, encoded) = (&value[..space], value[space + 1..].trim_ascii());
        if name != b"sha1" {
            return None;
        }
        let expected = STANDARD.decode(encoded).ok()?;
        Some(Self {
            digest: Sha1::new(),
            expected,
        })
    }

    /// Takes more of the body. Linear in its length.
    pub(super) fn update(&mut self, piece: &Payload) {
        for part in piece.parts() {
            self.digest.update(part.bytes());
        }
    }

    /// Whether the body was the expected one.
    pub(super) fn matches(self) -> bool {
        self.digest.digest().bytes()[..] == self.expected
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_of_nothing_are_known() {
        let right = Checksum::parse(b"sha1 2jmj7l5rSw0yVb/vlWAYkK/YBwk=").expect("well formed");
        assert!(right.matches());
        let other = Checksum::parse(b"sha1 AAAA").expect("well formed");
        assert!(!other.matches(), "a digest that is too short");
    }

    #[test]
    fn what_is_unknown_or_malformed_is_no_checksum() {
        for value in [
            "",
            "sha1",
            "sha256 AAAA",
            "md4 AAAA",
            "sha1 !",
            "SHA1 AAAA",
            " AAAA",
        ] {
            assert!(Checksum::parse(value.as_bytes()).is_none(), "{value}");
        }
    }
}
