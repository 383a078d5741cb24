//! Masks of frames (RFC 6455 section 5.3), eight bytes at a time.

/// The mask of a frame, from a byte of its payload on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mask([u8; 4]);

impl Mask {
    pub(crate) fn new(mask: [u8; 4]) -> Mask {
        Mask(mask)
    }

    /// Takes the mask off, or puts it on. The next bytes of the frame need [`Mask::after`].
    pub(crate) fn apply(self, bytes: &mut [u8]) {
        let Mask([a, b, c, d]) = self;
        let wide = u64::from_ne_bytes([a, b, c, d, a, b, c, d]);
        let (words, rest) = bytes.as_chunks_mut::<8>();
        for word in words {
            *word = (u64::from_ne_bytes(*word) ^ wide).to_ne_bytes();
        }
        for (byte, mask) in rest.iter_mut().zip(self.0.iter().cycle()) {
            *byte ^= mask;
        }
    }

    /// The mask of what follows `bytes` more bytes.
    pub(crate) fn after(mut self, bytes: usize) -> Mask {
        self.0.rotate_left(bytes % 4);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_from_every_byte_is_as_section_5_3_says() {
        let mask = [0x37, 0xfa, 0x21, 0x3d];
        for from in 0..5 {
            for length in 0..40 {
                let bytes: Vec<u8> = (0..length).collect();
                let mut masked = bytes.clone();
                Mask::new(mask).after(from).apply(&mut masked);
                for (at, (masked, byte)) in masked.iter().zip(&bytes).enumerate() {
                    assert_eq!(*masked, byte ^ mask[(from + at) % 4]);
                }
            }
        }
    }
}
