//! A keyed checksum of arguments of any length, cheap enough for a mebibyte per call.
//!
//! Whole blocks go through NH, the universal hash of UMAC and VMAC (RFC 4418, with words of 64
//! bits): two blocks that differ give the same 128 bits for one key in 2^64 at most. Those, what is
//! after the last whole block, and the length go through SipHash-1-3. Without the secrets no client
//! can make two arguments with one checksum in which what counts differs.
//!
//! What counts: every bit of the first [`HEAD_BLOCKS`] blocks and of the end, and of what lies
//! between, a line of 64 bytes in each 4 KiB. A call that has the number, the place and the length
//! of another, and is not its repetition, is a fault of its client already; knfsd tells them apart
//! by the first 256 bytes (`RC_CSUMLEN` of fs/nfsd/nfscache.c).
//!
//! Invariants
//! - C1: the checksum depends on the bytes alone, not on how they are cut into slices: a repeated
//!   call may come in other pieces.
//!
//! Cost: 0.7 us for 16 KiB, 3.5 us for 1 MiB (`docs/figures.md`). Below a block it is SipHash.

use std::hash::Hasher;

use siphasher::sip128::{Hasher128, SipHasher13};

/// Words of secret.
pub(crate) const WORDS: usize = 128;
/// What one step takes, in bytes.
const BLOCK_BYTES: usize = WORDS * 8;
const LINE_BYTES: usize = 64;

/// Blocks at the beginning that count whole.
const HEAD_BLOCKS: usize = 16;
/// Behind them a line of one block in so many.
const SPARSE_BLOCKS: usize = 4;

/// See the module.
pub(crate) struct Digest<'a> {
    hasher: SipHasher13,
    words: &'a [u64; WORDS],
    /// The beginning of a block that lies in several slices.
    begun: [u8; BLOCK_BYTES],
    filled: usize,
    blocks: usize,
    bytes: u64,
}

/// NH of the lines of a block that count.
fn step(words: &[u64; WORDS], lines: &[[u8; LINE_BYTES]]) -> u128 {
    let (secrets, _) = words.as_chunks::<8>();
    // Four sums, so that no addition waits for the one before it.
    let mut sums = [0_u128; 4];
    for (line, secrets) in lines.iter().zip(secrets) {
        let (pairs, _) = line.as_chunks::<16>();
        let (secrets, _) = secrets.as_chunks::<2>();
        for ((sum, pair), [first, second]) in sums.iter_mut().zip(pairs).zip(secrets) {
            let pair = u128::from_le_bytes(*pair);
            let (low, high) = (pair as u64, (pair >> 64) as u64);
            let (low, high) = (low.wrapping_add(*first), high.wrapping_add(*second));
            *sum = sum.wrapping_add(u128::from(low) * u128::from(high));
        }
    }
    sums.into_iter().fold(0, u128::wrapping_add)
}

impl<'a> Digest<'a> {
    /// Continues from the state of `hasher`.
    pub(crate) fn new(hasher: SipHasher13, words: &'a [u64; WORDS]) -> Digest<'a> {
        Digest {
            hasher,
            words,
            begun: [0; BLOCK_BYTES],
            filled: 0,
            blocks: 0,
            bytes: 0,
        }
    }

    fn take(&mut self, block: &[u8; BLOCK_BYTES]) {
        let (lines, _) = block.as_chunks();
        let lines = match self.blocks {
            ..HEAD_BLOCKS => lines,
            place if place % SPARSE_BLOCKS == 0 => &lines[..1],
            _ => &[],
        };
        self.blocks += 1;
        if !lines.is_empty() {
            self.hasher.write(&step(self.words, lines).to_le_bytes());
        }
    }

    /// Takes the next bytes.
    pub(crate) fn feed(&mut self, mut slice: &[u8]) {
        self.bytes += slice.len() as u64;
        if self.filled > 0 {
            let missing = slice.len().min(BLOCK_BYTES - self.filled);
            let (front, rest) = slice.split_at(missing);
            self.begun[self.filled..][..missing].copy_from_slice(front);
            self.filled += missing;
            slice = rest;
            if self.filled < BLOCK_BYTES {
                return;
            }
            let block = self.begun;
            self.take(&block);
            self.filled = 0;
        }
        let (blocks, rest) = slice.as_chunks::<BLOCK_BYTES>();
        for block in blocks {
            self.take(block);
        }
        self.begun[..rest.len()].copy_from_slice(rest);
        self.filled = rest.len();
    }

    /// The checksum of everything.
    pub(crate) fn finish(mut self) -> u128 {
        self.hasher.write(&self.begun[..self.filled]);
        // The length says how many blocks there were, so that no block can pass for a rest.
        self.hasher.write(&self.bytes.to_le_bytes());
        self.hasher.finish128().as_u128()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD_BYTES: usize = HEAD_BLOCKS * BLOCK_BYTES;

    fn words() -> Box<[u64; WORDS]> {
        Box::new(std::array::from_fn(|at| {
            (at as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
        }))
    }

    fn digest(words: &[u64; WORDS], slices: &[&[u8]]) -> u128 {
        let mut digest = Digest::new(SipHasher13::new_with_keys(1, 2), words);
        for slice in slices {
            digest.feed(slice);
        }
        digest.finish()
    }

    #[test]
    fn how_the_bytes_are_cut_does_not_matter() {
        let words = words();
        let bytes: Vec<u8> = (0..HEAD_BYTES + 9 * BLOCK_BYTES + 77)
            .map(|at| (at % 251) as u8)
            .collect();
        let whole = digest(&words, &[&bytes]);
        for piece in [1, 7, BLOCK_BYTES - 1, BLOCK_BYTES, BLOCK_BYTES + 1, 3000] {
            let pieces: Vec<&[u8]> = bytes.chunks(piece).collect();
            assert_eq!(digest(&words, &pieces), whole, "pieces of {piece}");
        }
    }

    #[test]
    fn every_bit_of_a_block_and_of_the_rest_counts() {
        let words = words();
        let mut bytes = vec![0x5a; BLOCK_BYTES + 9];
        let mut seen = std::collections::HashSet::from([digest(&words, &[&bytes])]);
        for bit in 0..bytes.len() * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(seen.insert(digest(&words, &[&bytes])), "bit {bit}");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
    }

    #[test]
    fn of_the_middle_of_long_arguments_a_line_of_each_page_counts() {
        let words = words();
        let mut bytes = vec![0x5a; HEAD_BYTES + 8 * BLOCK_BYTES + 9];
        let same = digest(&words, &[&bytes]);
        let counts = |at: usize, bytes: &mut [u8]| {
            bytes[at] ^= 1;
            let differs = digest(&words, &[bytes]) != same;
            bytes[at] ^= 1;
            differs
        };
        let page = SPARSE_BLOCKS * BLOCK_BYTES;
        let end = bytes.len() - 1;
        for at in [0, HEAD_BYTES - 1, HEAD_BYTES, HEAD_BYTES + page, end] {
            assert!(counts(at, &mut bytes), "{at}");
        }
        assert!(counts(HEAD_BYTES + page + LINE_BYTES - 1, &mut bytes));
        assert!(!counts(HEAD_BYTES + page + LINE_BYTES, &mut bytes));
        assert!(!counts(HEAD_BYTES + page - 1, &mut bytes));
    }

    #[test]
    fn lengths_secrets_and_the_order_of_blocks_count() {
        let (words, mut others) = (words(), words());
        others[WORDS - 1] ^= 1;
        let zeros = vec![0; 3 * BLOCK_BYTES];
        let mut seen = std::collections::HashSet::new();
        for length in 0..=zeros.len() {
            assert!(seen.insert(digest(&words, &[&zeros[..length]])), "{length}");
        }
        assert!(seen.insert(digest(&others, &[&zeros])), "another secret");
        let mut one = zeros.clone();
        one[5] = 1;
        let mut other = zeros;
        other[BLOCK_BYTES + 5] = 1;
        assert_ne!(digest(&words, &[&one]), digest(&words, &[&other]));
    }
}
