//! Secrets, compared in a time that depends neither on their content nor on their length.
//!
//! Cost: `SECRET_BYTES_MAX` bytes for a comparison.

use subtle::{Choice, ConstantTimeEq};

/// The longest secret of a list, in bytes; a longer one that a client sends is not right.
pub(super) const SECRET_BYTES_MAX: usize = 512;

/// A secret, padded with zeros.
pub(super) struct Secret {
    bytes: [u8; SECRET_BYTES_MAX],
    length: u64,
}

impl Secret {
    /// `None` if it is too long.
    pub(super) fn new(text: &[u8]) -> Option<Self> {
        let mut bytes = [0; SECRET_BYTES_MAX];
        bytes.get_mut(..text.len())?.copy_from_slice(text);
        let length = text.len() as u64;
        Some(Self { bytes, length })
    }

    /// Whether both are the same.
    pub(super) fn is(&self, other: &Self) -> Choice {
        self.bytes.ct_eq(&other.bytes) & self.length.ct_eq(&other.length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn are_same(a: &[u8], b: &[u8]) -> bool {
        let secret = |text| Secret::new(text).expect("short enough");
        secret(a).is(&secret(b)).into()
    }

    #[test]
    fn secrets_are_the_same_in_content_and_length() {
        let longest = [b'x'; SECRET_BYTES_MAX];
        let mut other = longest;
        other[SECRET_BYTES_MAX - 1] = b'y';
        for (a, b, same) in [
            (&b""[..], &b""[..], true),
            (b"a", b"a", true),
            (b"a", b"b", false),
            (b"a", b"a\0", false),
            (b"", b"\0", false),
            (&longest, &longest, true),
            (&longest, &other, false),
        ] {
            assert_eq!(are_same(a, b), same, "{a:?} {b:?}");
        }
        assert!(Secret::new(&[0; SECRET_BYTES_MAX + 1]).is_none());
    }
}
