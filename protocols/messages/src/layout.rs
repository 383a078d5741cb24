//! The two rings, entry by entry. Words are little endian and lie at multiples of their size.
//!
//! A descriptor, 32 bytes, written by the server:
//!
//! | at | type | what                                                                    |
//! |----|------|-------------------------------------------------------------------------|
//! | 0  | u64  | token: to be returned once, when the fragment is done with              |
//! | 8  | u64  | where the fragment begins, in bytes from the beginning of its region    |
//! | 16 | u32  | its length in bytes, never zero                                         |
//! | 20 | u16  | flags: 1 the message begins here, 2 it ends here                        |
//! | 22 | u16  | number of the region                                                    |
//! | 24 | u32  | length of the whole message in bytes                                    |
//! | 28 | u32  | number of the producer's connection; it may be used again after it ends |
//!
//! The descriptors of a message follow each other and are announced together, so a message is
//! always whole. A return, 16 bytes, written by the consumer:
//!
//! | at | type | what                    |
//! |----|------|-------------------------|
//! | 0  | u64  | token                   |
//! | 8  | u64  | number of the region    |
//!
//! The number of the region is beside the token because tokens are numbers of one region's holder.

/// Most entries of a ring: what fits the smallest pipe, one byte each (L3).
pub const ENTRIES_MAX: u32 = 4096;

/// Words of eight bytes in a descriptor.
pub const DESCRIPTOR_WORDS: usize = 4;

/// Words of eight bytes in a return.
pub const RETURN_WORDS: usize = 2;

const FIRST: u16 = 1;
const LAST: u16 = 2;

/// Where one fragment of a message lies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Descriptor {
    /// To be returned when the fragment is done with.
    pub token: u64,
    /// Bytes from the beginning of the region.
    pub offset: u64,
    /// Bytes.
    pub length: u32,
    /// Which region.
    pub region: u16,
    /// The message begins here.
    pub first: bool,
    /// The message ends here.
    pub last: bool,
    /// Bytes of the whole message.
    pub message_bytes: u32,
    /// Which connection it came from.
    pub producer: u32,
}

impl Descriptor {
    /// The entry in the ring; words in this machine's order, stored as little endian.
    pub fn words(&self) -> [u64; DESCRIPTOR_WORDS] {
        let flags = if self.first { FIRST } else { 0 } | if self.last { LAST } else { 0 };
        [
            self.token,
            self.offset,
            u64::from(self.length) | u64::from(flags) << 32 | u64::from(self.region) << 48,
            u64::from(self.message_bytes) | u64::from(self.producer) << 32,
        ]
    }

    /// The inverse of [`Descriptor::words`]. Unknown flags are ignored.
    pub fn of(words: [u64; DESCRIPTOR_WORDS]) -> Descriptor {
        let flags = (words[2] >> 32) as u16;
        Descriptor {
            token: words[0],
            offset: words[1],
            length: words[2] as u32,
            region: (words[2] >> 48) as u16,
            first: flags & FIRST != 0,
            last: flags & LAST != 0,
            message_bytes: words[3] as u32,
            producer: (words[3] >> 32) as u32,
        }
    }

    /// Where the fragment lies in its region of `region_bytes`; `None` if it does not lie within.
    pub fn range(&self, region_bytes: u64) -> Option<std::ops::Range<usize>> {
        let end = self.offset.checked_add(u64::from(self.length))?;
        if end > region_bytes {
            return None;
        }
        Some(usize::try_from(self.offset).ok()?..usize::try_from(end).ok()?)
    }
}

/// A token that is given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Return {
    /// The token of the descriptor.
    pub token: u64,
    /// The region of the descriptor.
    pub region: u16,
}

impl Return {
    /// The entry in the ring.
    pub fn words(&self) -> [u64; RETURN_WORDS] {
        [self.token, u64::from(self.region)]
    }

    /// The inverse of [`Return::words`]; `None` if no region has such a number.
    pub fn of(words: [u64; RETURN_WORDS]) -> Option<Return> {
        let region = u16::try_from(words[1]).ok()?;
        Some(Return {
            token: words[0],
            region,
        })
    }
}

/// The bytes that tell the other side of `entries` new ones: few, as each counts up to 255.
pub fn announcement(entries: u32) -> impl Iterator<Item = u8> {
    let (full, rest) = (entries / 255, (entries % 255) as u8);
    std::iter::repeat_n(255, full as usize).chain((rest > 0).then_some(rest))
}

/// How many entries the bytes of a doorbell announce.
pub fn announced(bytes: &[u8]) -> u64 {
    bytes.iter().map(|byte| u64::from(*byte)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_descriptor_lies_as_the_header_says() {
        let descriptor = Descriptor {
            token: 0x0102_0304_0506_0708,
            offset: 0x1112_1314_1516_1718,
            length: 0x2122_2324,
            region: 0x3132,
            first: false,
            last: true,
            message_bytes: 0x4142_4344,
            producer: 0x5152_5354,
        };
        let bytes: Vec<u8> = descriptor
            .words()
            .iter()
            .flat_map(|word| word.to_le_bytes())
            .collect();
        let expected = [
            8, 7, 6, 5, 4, 3, 2, 1, 0x18, 0x17, 0x16, 0x15, 0x14, 0x13, 0x12, 0x11, 0x24, 0x23,
            0x22, 0x21, 2, 0, 0x32, 0x31, 0x44, 0x43, 0x42, 0x41, 0x54, 0x53, 0x52, 0x51,
        ];
        assert_eq!(bytes, expected);
        assert_eq!(Descriptor::of(descriptor.words()), descriptor);
    }

    #[test]
    fn a_return_comes_back_and_one_of_no_region_does_not() {
        let given = Return {
            token: u64::MAX,
            region: 7,
        };
        assert_eq!(Return::of(given.words()), Some(given));
        assert_eq!(Return::of([1, 1 << 16]), None);
    }

    #[test]
    fn a_fragment_outside_its_region_has_no_range() {
        let fragment = |offset, length| Descriptor {
            offset,
            length,
            ..Descriptor::default()
        };
        assert_eq!(fragment(0, 8).range(8), Some(0..8));
        assert_eq!(fragment(1, 8).range(8), None);
        assert_eq!(fragment(u64::MAX, 8).range(8), None);
        assert_eq!(fragment(9, 0).range(8), None);
    }

    #[test]
    fn what_is_announced_is_what_is_read() {
        for entries in [0, 1, 254, 255, 256, 510, 511, ENTRIES_MAX] {
            let bytes: Vec<u8> = announcement(entries).collect();
            assert_eq!(announced(&bytes), u64::from(entries));
            assert!(
                bytes.len() as u32 <= entries,
                "L3: a byte is an entry at least"
            );
            assert!(!bytes.contains(&0));
        }
    }
}
