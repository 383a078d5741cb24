//! UTF-8 that arrives in pieces: whether it can still become text.

/// The beginning of a character that the next piece continues; a character is at most four bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Utf8 {
    begun: [u8; 3],
    count: u8,
}

impl Utf8 {
    /// Checks the next piece. False: this is not UTF-8, whatever follows.
    #[must_use]
    pub(crate) fn accepts(&mut self, piece: &[u8]) -> bool {
        let mut rest = piece;
        while self.count > 0 {
            let Some((next, after)) = rest.split_first() else {
                return true;
            };
            rest = after;
            let count = usize::from(self.count);
            let mut character = [0; 4];
            character[..count].copy_from_slice(&self.begun[..count]);
            character[count] = *next;
            self.count = 0;
            if !self.begins(&character[..=count]) {
                return false;
            }
        }
        self.begins(rest)
    }

    /// Whether nothing is missing: what was accepted is text.
    pub(crate) fn is_whole(self) -> bool {
        self.count == 0
    }

    /// Checks bytes from the beginning of a character on, and keeps the beginning of the last one.
    fn begins(&mut self, bytes: &[u8]) -> bool {
        let Err(error) = std::str::from_utf8(bytes) else {
            return true;
        };
        let left = &bytes[error.valid_up_to()..];
        if error.error_len().is_some() || left.len() > self.begun.len() {
            return false;
        }
        self.begun[..left.len()].copy_from_slice(left);
        self.count = left.len() as u8;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_split_of_text_is_accepted_and_whole_only_at_its_end() {
        let text = "aß水𐍈\u{10FFFF}z".as_bytes();
        for first in 0..=text.len() {
            for second in first..=text.len() {
                let mut utf8 = Utf8::default();
                assert!(utf8.accepts(&text[..first]));
                let begun = std::str::from_utf8(&text[..first]).is_ok();
                assert_eq!(utf8.is_whole(), begun, "{first}");
                assert!(utf8.accepts(&text[first..second]));
                assert!(utf8.accepts(&text[second..]));
                assert!(utf8.is_whole());
            }
        }
    }

    #[test]
    fn model_the_first_byte_that_cannot_continue_is_refused() {
        for seed in 0..20_000 {
            let mut random = fastrand::Rng::with_seed(seed);
            let bytes: Vec<u8> = (0..random.usize(1..9))
                .map(|_| {
                    random.choice([0x41, 0x80, 0xa0, 0xbf, 0xc3, 0xe0, 0xed, 0xf0, 0xf4, 0xf5])
                })
                .map(Option::unwrap_or_default)
                .collect();
            let mut utf8 = Utf8::default();
            for (at, byte) in bytes.iter().enumerate() {
                let known = std::str::from_utf8(&bytes[..=at]);
                let can_be = known.is_ok_and(|_| true)
                    || known.is_err_and(|error| error.error_len().is_none());
                assert_eq!(utf8.accepts(&[*byte]), can_be, "seed {seed}: {bytes:x?}");
                if !can_be {
                    break;
                }
                assert_eq!(utf8.is_whole(), known.is_ok(), "seed {seed}: {bytes:x?}");
            }
        }
    }
}
