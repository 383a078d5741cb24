//! `Upload-Checksum`: a digest of one request's body, compared before its bytes count.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::HeaderValue;
use sha1::Sha1;
use sha2::digest::DynDigest;
use sha2::{Sha256, Sha512};

use flatpath::memory::Payload;

/// `Tus-Checksum-Algorithm`. The protocol asks for sha1; some clients prefer the others.
pub(super) const ALGORITHMS: HeaderValue = HeaderValue::from_static("sha1,sha256,sha512");

/// A digest being computed, and what it must come to.
pub(super) struct Checksum {
    digest: Box<dyn DynDigest + Send>,
    expected: Vec<u8>,
}

impl Checksum {
    /// From `ALGORITHM BASE64`; `None` where the algorithm is unknown or the digest malformed.
    pub(super) fn parse(value: &[u8]) -> Option<Self> {
        let space = value.iter().position(|byte| *byte == b' ')?;
        let (name, encoded) = (&value[..space], value[space + 1..].trim_ascii());
        let digest: Box<dyn DynDigest + Send> = match name {
            b"sha1" => Box::<Sha1>::default(),
            b"sha256" => Box::<Sha256>::default(),
            b"sha512" => Box::<Sha512>::default(),
            _ => return None,
        };
        let expected = STANDARD.decode(encoded).ok()?;
        Some(Self { digest, expected })
    }

    /// Takes more of the body. Linear in its length.
    pub(super) fn update(&mut self, piece: &Payload) {
        for part in piece.parts() {
            self.digest.update(part.bytes());
        }
    }

    /// Whether the body was the expected one.
    pub(super) fn matches(self) -> bool {
        self.digest.finalize()[..] == self.expected
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_of_nothing_are_known() {
        for value in [
            "sha1 2jmj7l5rSw0yVb/vlWAYkK/YBwk=",
            "sha256 47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=",
        ] {
            let checksum = Checksum::parse(value.as_bytes()).expect("well formed");
            assert!(checksum.matches(), "{value}");
        }
        let other = Checksum::parse(b"sha1 AAAA").expect("well formed");
        assert!(!other.matches(), "a digest that is too short");
    }

    #[test]
    fn what_is_unknown_or_malformed_is_no_checksum() {
        for value in ["", "sha1", "md4 AAAA", "sha1 !", "SHA1 AAAA", " AAAA"] {
            assert!(Checksum::parse(value.as_bytes()).is_none(), "{value}");
        }
    }
}
