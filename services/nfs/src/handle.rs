//! File handles as clients see them: what a file is, under a keyed checksum.
//!
//! | bytes   | what                                                                  |
//! |---------|-----------------------------------------------------------------------|
//! | 1       | version, 1                                                            |
//! | 1       | length of the kernel's handle, 0 when there is none                   |
//! | 2       | its kind                                                              |
//! | 4       | export: see X1 of `exports`                                           |
//! | 8       | inode                                                                 |
//! | 8       | time of birth in nanoseconds: with the inode, one file for ever       |
//! | 0..=24  | the kernel's handle, with the inode's generation                      |
//! | 16      | SipHash-2-4-128 of all that, under the server's key                   |
//!
//! A file has one handle for as long as it lives, whatever its name. Nothing in a handle is secret;
//! without the key none can be made, so a client can only ask for files it was shown.
//!
//! Invariants
//! - H1: of a handle whose checksum is wrong in any bit nothing is used. It is [`Status::Stale`],
//!   as it may be of another key: Linux's client looks its file up again, where it makes "Unknown
//!   error 521" of [`Status::BadHandle`]. That is for bytes that are no handle under any key.

use flatpath_sys::file_handle::KernelHandle;
use siphasher::sip128::{Hasher128, SipHasher24};
use std::collections::HashMap;
use std::hash::Hasher;

use crate::limits::HANDLE_BYTES_MAX;
use crate::status::Status;

const VERSION: u8 = 1;
const FIXED_BYTES: usize = 24;
const MAC_BYTES: usize = 16;

/// The longest handle of the kernel that fits, in bytes.
pub(crate) const KERNEL_BYTES_MAX: usize = HANDLE_BYTES_MAX - FIXED_BYTES - MAC_BYTES;

const _: () = assert!(
    HANDLE_BYTES_MAX <= u8::MAX as usize,
    "the length of a handle is kept in a byte"
);

/// The secret that handles are made with.
#[derive(Clone, Copy)]
pub(crate) struct HandleKey(pub(crate) [u8; 16]);

impl HandleKey {
    pub(crate) fn mac(&self, bytes: &[u8]) -> u128 {
        let mut hasher = SipHasher24::new_with_key(&self.0);
        hasher.write(bytes);
        hasher.finish128().as_u128()
    }
}

/// One file for ever: inode numbers are used again, but not with the same time of birth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FileKey {
    pub(crate) inode: u64,
    /// Time of birth in nanoseconds since the epoch; 0 where the file system does not know.
    pub(crate) birth_ns: u64,
}

impl FileKey {
    pub(crate) fn to_bytes(self) -> [u8; 16] {
        (u128::from(self.inode) << 64 | u128::from(self.birth_ns)).to_be_bytes()
    }

    /// One of `parts` parts that a table or a set of locks is divided in.
    pub(crate) fn part(self, parts: usize) -> usize {
        let mixed = self.inode.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()[0];
        usize::from(mixed) % parts
    }
}

/// A map by file. Handles are signed, and the kernel chooses inode numbers, so clients have no say
/// in the keys: a fast hash will do, where std's costs a READ one part in eighty.
pub(crate) type FileMap<T> = HashMap<FileKey, T, foldhash::fast::RandomState>;

/// A handle as it goes over the wire.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct WireHandle {
    bytes: [u8; HANDLE_BYTES_MAX],
    length: u8,
}

impl WireHandle {
    pub(crate) fn as_slice(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }
}

/// The content of a handle, once its checksum was found right.
#[derive(Clone, Copy)]
pub(crate) struct Opened {
    pub(crate) export: u32,
    pub(crate) key: FileKey,
    pub(crate) kernel: Option<KernelHandle>,
}

/// Makes the handle of a file. A handle of the kernel's that does not fit is left out.
pub(crate) fn seal(
    secret: &HandleKey,
    export: u32,
    key: FileKey,
    kernel: Option<&KernelHandle>,
) -> WireHandle {
    let kernel = kernel.filter(|kernel| kernel.bytes().len() <= KERNEL_BYTES_MAX);
    let kind = kernel.and_then(|kernel| u16::try_from(kernel.kind()).ok());
    let name = kernel
        .filter(|_| kind.is_some())
        .map_or(&[][..], KernelHandle::bytes);
    let mut bytes = [0; HANDLE_BYTES_MAX];
    bytes[0] = VERSION;
    bytes[1] = name.len() as u8;
    bytes[2..4].copy_from_slice(&kind.unwrap_or(0).to_be_bytes());
    bytes[4..8].copy_from_slice(&export.to_be_bytes());
    bytes[8..24].copy_from_slice(&key.to_bytes());
    let end = FIXED_BYTES + name.len();
    bytes[FIXED_BYTES..end].copy_from_slice(name);
    let mac = secret.mac(&bytes[..end]);
    bytes[end..end + MAC_BYTES].copy_from_slice(&mac.to_be_bytes());
    WireHandle {
        bytes,
        length: (end + MAC_BYTES) as u8,
    }
}

/// The export that bytes name which may be a handle. Nothing is known of them by that: the export's
/// [`open`] decides.
pub(crate) fn claimed(bytes: &[u8]) -> Option<u32> {
    let number = bytes.get(4..8)?.first_chunk()?;
    Some(u32::from_be_bytes(*number))
}

/// Whether bytes are a handle of ours, under whatever key.
fn has_form(bytes: &[u8]) -> bool {
    let kernel_bytes = bytes.len().checked_sub(FIXED_BYTES + MAC_BYTES);
    kernel_bytes.is_some_and(|kernel_bytes| {
        kernel_bytes <= KERNEL_BYTES_MAX
            && bytes[0] == VERSION
            && usize::from(bytes[1]) == kernel_bytes
    })
}

/// Reads a handle after its checksum was found right (H1).
///
/// # Errors
/// [`Status::Stale`] for one of another key, [`Status::BadHandle`] for what is none.
pub(crate) fn open(secret: &HandleKey, bytes: &[u8]) -> Result<Opened, Status> {
    if !has_form(bytes) {
        return Err(Status::BadHandle);
    }
    let (body, mac) = bytes.split_at(bytes.len() - MAC_BYTES);
    let found = mac
        .iter()
        .fold(0, |sum: u128, byte| (sum << 8) | u128::from(*byte));
    // One comparison of two whole numbers: its time tells nothing about where they differ.
    if secret.mac(body) ^ found != 0 {
        return Err(Status::Stale);
    }
    let word = |at: usize| {
        body[at..at + 8]
            .iter()
            .fold(0, |sum, byte| (sum << 8) | u64::from(*byte))
    };
    let name = &body[FIXED_BYTES..];
    let kind = i32::from(u16::from_be_bytes([body[2], body[3]]));
    let kernel = if name.is_empty() {
        None
    } else {
        KernelHandle::new(kind, name)
    };
    Ok(Opened {
        export: u32::from_be_bytes([body[4], body[5], body[6], body[7]]),
        key: FileKey {
            inode: word(8),
            birth_ns: word(16),
        },
        kernel,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: HandleKey = HandleKey([7; 16]);
    const KEY: FileKey = FileKey {
        inode: 0x0102_0304_0506_0708,
        birth_ns: 99,
    };

    fn handle(kernel: usize) -> WireHandle {
        let kernel = KernelHandle::new(1, &vec![5; kernel]).expect("short enough");
        seal(&SECRET, 42, KEY, Some(&kernel))
    }

    #[test]
    fn a_handle_says_what_was_put_in() {
        for bytes in [0, 8, KERNEL_BYTES_MAX, KERNEL_BYTES_MAX + 1] {
            let handle = handle(bytes);
            assert!(handle.as_slice().len() <= HANDLE_BYTES_MAX);
            assert_eq!(claimed(handle.as_slice()), Some(42));
            let opened = open(&SECRET, handle.as_slice()).expect("our own");
            assert_eq!((opened.export, opened.key), (42, KEY));
            let kept = opened.kernel.map_or(0, |kernel| kernel.bytes().len());
            assert_eq!(kept, if bytes > KERNEL_BYTES_MAX { 0 } else { bytes });
        }
    }

    #[test]
    fn with_any_bit_flipped_or_under_another_key_it_is_stale_unless_it_is_none_at_all() {
        let good = handle(12).as_slice().to_vec();
        for bit in 0..good.len() * 8 {
            let mut forged = good.clone();
            forged[bit / 8] ^= 1 << (bit % 8);
            // The version and the length.
            let expected = match bit / 8 {
                0 | 1 => Status::BadHandle,
                _ => Status::Stale,
            };
            assert_eq!(open(&SECRET, &forged).err(), Some(expected), "bit {bit}");
        }
        let other = open(&HandleKey([8; 16]), &good).err();
        assert_eq!(other, Some(Status::Stale));
    }

    #[test]
    fn every_other_length_is_a_bad_handle() {
        let good = handle(12).as_slice().to_vec();
        for end in 0..good.len() {
            assert_eq!(open(&SECRET, &good[..end]).err(), Some(Status::BadHandle));
        }
        let mut longer = good.clone();
        longer.push(0);
        assert_eq!(open(&SECRET, &longer).err(), Some(Status::BadHandle));
    }
}
