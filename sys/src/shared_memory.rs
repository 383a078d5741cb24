//! Memory shared with another process, which may be hostile: words in rings, and bytes to read.
//!
//! Which word means what, and in which order things happen, is the business of the protocol above.
//!
//! | made by                    | this process  | receiver of the descriptor  |
//! |----------------------------|---------------|-----------------------------|
//! | [`SharedWords::to_write`]  | reads, writes | reads                       |
//! | [`SharedWords::to_read`]   | reads         | reads, writes               |
//! | [`SharedBuffer::to_write`] | reads, writes | reads                       |
//! | [`SharedWords::open`]      | as asked for  |                             |
//! | [`SharedBytes::open`]      | reads         |                             |
//!
//! Invariants
//! - M1: a file that is mapped here cannot shrink: it is sealed by its maker, and `open` refuses
//!   one that is not. So no access raises `SIGBUS`.
//! - M2: `to_write` adds `F_SEAL_FUTURE_WRITE` after its own mapping. From then on no process,
//!   however it opened the file, maps it writable, makes a mapping writable, writes or punches
//!   holes.
//! - M3: words are accessed by relaxed atomic loads and stores only. What another process does to
//!   them meanwhile is a race between atomics, and never undefined.
//! - M4: bytes are handed out as a slice, and only of a file that is sealed as by M2. So the maker
//!   alone could write to them, through the mapping that it made before the seal. Where that is
//!   this process, `open` refuses: what safe code here may write to is never a slice here.
//!   Where it is another process, its protocol promises not to: the server does not receive into a
//!   page with tokens out. A process that opens bytes trusts their maker with this, as a consumer
//!   trusts the server that it attaches to.
//!
//! Ordering: none here; the protocol's doorbells order (see `flatpath-messages`).
//!
//! Cost: a load or a store; the first touch of a page costs a page fault.

use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::fs::{SealFlags, fcntl_add_seals, fcntl_get_seals, fstat};

use crate::mapping::{Mapping, memory_file, seal_against_writing};

pub use crate::mapping::Access;

/// Words of eight bytes, little endian, shared with another process.
#[derive(Debug)]
pub struct SharedWords {
    mapping: Mapping,
    /// After the mapping, so that it is dropped after it.
    _writes: Option<Writes>,
    words: usize,
    access: Access,
}

impl SharedWords {
    /// Zeroed words that this process writes and others, given the descriptor, can only read.
    ///
    /// # Errors
    /// `InvalidInput` for more than memory can have; what the kernel says.
    pub fn to_write(name: &str, words: usize) -> io::Result<(SharedWords, OwnedFd)> {
        let file = memory_file(name, bytes_of(words)?)?;
        let mapped = SharedWords::map(&file, words, Access::Write)?;
        // After the mapping, which stays writable (M2).
        seal_against_writing(&file)?;
        Ok((mapped, file))
    }

    /// Zeroed words that this process only reads and others, given the descriptor, write.
    ///
    /// # Errors
    /// `InvalidInput` for more than memory can have; what the kernel says.
    pub fn to_read(name: &str, words: usize) -> io::Result<(SharedWords, OwnedFd)> {
        let file = memory_file(name, bytes_of(words)?)?;
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        Ok((SharedWords::map(&file, words, Access::Read)?, file))
    }

    /// Maps words that another process made.
    ///
    /// # Errors
    /// `InvalidInput` if the file is shorter or could shrink, is that of a [`SharedBuffer`] of this
    /// process, or for more than memory can have; what the kernel says.
    pub fn open(file: impl AsFd, words: usize, access: Access) -> io::Result<SharedWords> {
        check(&file, bytes_of(words)?)?;
        refuse_written(&file, &[Unit::Bytes])?;
        SharedWords::map(file, words, access)
    }

    fn map(file: impl AsFd, words: usize, access: Access) -> io::Result<SharedWords> {
        let writes = match access {
            Access::Read => None,
            Access::Write => Some(Writes::to(&file, Unit::Words)?),
        };
        let mapping = Mapping::of_file(file, bytes_of(words)?, access)?;
        Ok(SharedWords {
            mapping,
            _writes: writes,
            words,
            access,
        })
    }

    /// Loads a word, also while another process writes to it.
    ///
    /// # Panics
    /// If there is no such word.
    #[inline]
    pub fn load(&self, word: usize) -> u64 {
        // ORDER: relaxed (M3): the doorbell of the protocol above orders it.
        u64::from_le(self.word(word).load(Ordering::Relaxed))
    }

    /// Stores a word.
    ///
    /// # Panics
    /// If there is no such word, or it may only be read.
    #[inline]
    pub fn store(&self, word: usize, value: u64) {
        assert_eq!(self.access, Access::Write, "these words are for reading");
        // ORDER: relaxed (M3): the doorbell of the protocol above orders it.
        self.word(word).store(value.to_le(), Ordering::Relaxed);
    }

    #[inline]
    fn word(&self, word: usize) -> &AtomicU64 {
        assert!(word < self.words, "word {word} of {}", self.words);
        // SAFETY: within the mapping, as it has room for `words` and `word` is below.
        let address = unsafe { self.mapping.base().cast::<AtomicU64>().add(word) };
        // SAFETY: aligned (the mapping is to pages), zeroed or written, alive as long as self, and
        // accessed atomically by all code here; relaxed loads of read-only memory only load.
        unsafe { address.as_ref() }
    }
}

/// While it lives, this process may write to a file by safe code (M4).
#[derive(Debug)]
struct Writes(FileId, Unit);

/// The unit of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    /// Words, atomically: other threads may load them at the same time.
    Words,
    /// Bytes.
    Bytes,
}

/// A file of this machine, for as long as it is open or mapped somewhere: device and inode.
type FileId = (u64, u64);

/// The files that this process may write to, as often as it has mapped them for it.
static WRITTEN: Mutex<Vec<(FileId, Unit)>> = Mutex::new(Vec::new());

impl Writes {
    fn to(file: impl AsFd, unit: Unit) -> io::Result<Writes> {
        let id = id_of(file)?;
        written().push((id, unit));
        Ok(Writes(id, unit))
    }
}

/// Refuses a file that this process writes to in such units.
fn refuse_written(file: impl AsFd, units: &[Unit]) -> io::Result<()> {
    let id = id_of(file)?;
    let is_written = |(other, unit): &(FileId, Unit)| *other == id && units.contains(unit);
    match written().iter().any(is_written) {
        true => Err(io::ErrorKind::InvalidInput.into()),
        false => Ok(()),
    }
}

impl Drop for Writes {
    fn drop(&mut self) {
        let mut written = written();
        let own = (self.0, self.1);
        if let Some(place) = written.iter().position(|one| *one == own) {
            written.swap_remove(place);
        }
    }
}

fn written() -> MutexGuard<'static, Vec<(FileId, Unit)>> {
    // Not the engine's lock, which is above this crate. Nothing under this one panics half way.
    WRITTEN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn id_of(file: impl AsFd) -> io::Result<FileId> {
    let stat = fstat(file)?;
    Ok((stat.st_dev, stat.st_ino))
}

/// Bytes that another process made, to be read.
#[derive(Debug)]
pub struct SharedBytes {
    mapping: Mapping,
}

impl SharedBytes {
    /// Maps the first `bytes` of a file that only its maker can write to (M2).
    ///
    /// # Errors
    /// `InvalidInput` if the file is shorter, could shrink, could be mapped for writing by others,
    /// or is mapped for writing by [`SharedWords`] or a [`SharedBuffer`] of this process; what the
    /// kernel says.
    ///
    /// ```
    /// use flatpath_sys::shared_memory::{SharedBuffer, SharedBytes};
    ///
    /// let (mut ours, file) = SharedBuffer::to_write("ours", 4096)?;
    /// ours.bytes_mut()[0] = 7;
    /// // A slice of them would change while it is borrowed.
    /// assert!(SharedBytes::open(&file, 4096).is_err());
    /// drop(ours);
    /// let theirs = SharedBytes::open(&file, 4096)?;
    /// assert_eq!(theirs.bytes(0..2), Some(&[7, 0][..]));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn open(file: impl AsFd, bytes: usize) -> io::Result<SharedBytes> {
        check(&file, bytes)?;
        let unwritable = SealFlags::FUTURE_WRITE | SealFlags::WRITE;
        // Sealed first: from then on no process can open it for writing.
        if !fcntl_get_seals(&file)?.intersects(unwritable) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        refuse_written(&file, &[Unit::Words, Unit::Bytes])?;
        let mapping = Mapping::of_file(file, bytes, Access::Read)?;
        Ok(SharedBytes { mapping })
    }

    /// How many there are; never zero.
    #[expect(clippy::len_without_is_empty, reason = "a mapping is never empty")]
    pub fn len(&self) -> usize {
        self.mapping.bytes()
    }

    /// The bytes in `range`, which their maker leaves alone for as long as the slice is used (M4).
    /// `None` if they are not all there.
    #[inline]
    pub fn bytes(&self, range: Range<usize>) -> Option<&[u8]> {
        if range.start > range.end || range.end > self.mapping.bytes() {
            return None;
        }
        // SAFETY: within the mapping.
        let start = unsafe { self.mapping.base().cast::<u8>().add(range.start) };
        // SAFETY: within the mapping, which lives as long as self; M1: readable; M4: not written.
        Some(unsafe { std::slice::from_raw_parts(start.as_ptr(), range.len()) })
    }
}

/// Bytes that this process writes and others, given the descriptor, can only read.
#[derive(Debug)]
pub struct SharedBuffer {
    words: SharedWords,
    /// As above.
    _writes: Writes,
}

impl SharedBuffer {
    /// Zeroed bytes, and their descriptor.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn to_write(name: &str, bytes: usize) -> io::Result<(SharedBuffer, OwnedFd)> {
        let words = bytes.div_ceil(size_of::<u64>());
        let (words, file) = SharedWords::to_write(name, words)?;
        let writes = Writes::to(&file, Unit::Bytes)?;
        let buffer = SharedBuffer {
            words,
            _writes: writes,
        };
        Ok((buffer, file))
    }

    /// The bytes, to be written; readers elsewhere read them when notified.
    #[inline]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        let mapping = &self.words.mapping;
        let base = mapping.base().cast::<u8>();
        // SAFETY: the mapping is writable (`to_write`) and borrowed mutably with self, which is its
        // only owner here; no other process can write to it (M2), and no safe code of this one has
        // another mapping of it (M4).
        unsafe { std::slice::from_raw_parts_mut(base.as_ptr(), mapping.bytes()) }
    }
}

/// The bytes of this many words.
fn bytes_of(words: usize) -> io::Result<usize> {
    words
        .checked_mul(size_of::<u64>())
        .ok_or_else(|| io::ErrorKind::InvalidInput.into())
}

/// M1, for a file that came from elsewhere.
fn check(file: impl AsFd, bytes: usize) -> io::Result<()> {
    let length = fstat(&file)?.st_size;
    let long_enough = u64::try_from(length).is_ok_and(|length| length >= bytes as u64);
    if bytes == 0 || !long_enough || !fcntl_get_seals(&file)?.contains(SealFlags::SHRINK) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use rustix::fs::{FallocateFlags, Mode, OFlags, ftruncate};
    use rustix::io::Errno;
    use rustix::mm::{MprotectFlags, mprotect};

    use super::*;
    use std::io::ErrorKind::{InvalidInput, PermissionDenied};

    #[test]
    fn what_one_side_stores_the_other_loads() {
        let (ours, file) = SharedWords::to_write("test", 512).expect("made");
        let theirs = SharedWords::open(&file, 512, Access::Read).expect("mapped");
        ours.store(511, 0x0102_0304_0506_0708);
        assert_eq!(theirs.load(511), 0x0102_0304_0506_0708);
        drop(ours);
        let bytes = SharedBytes::open(&file, 4096).expect("mapped");
        assert_eq!(bytes.bytes(4088..4096), Some(&[8, 7, 6, 5, 4, 3, 2, 1][..]));

        let (ours, file) = SharedWords::to_read("test", 1).expect("made");
        let theirs = SharedWords::open(&file, 1, Access::Write).expect("mapped");
        theirs.store(0, 7);
        assert_eq!(ours.load(0), 7);
    }

    #[test]
    fn what_is_for_reading_cannot_be_written_by_any_way_known() {
        let (ours, file) = SharedWords::to_write("test", 512).expect("made");
        let again = format!("/proc/self/fd/{}", file.as_raw_fd());
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        let reopened = rustix::fs::open(again, flags, Mode::empty()).expect("it is our own");
        for file in [&file, &reopened] {
            let refused = SharedWords::open(file, 512, Access::Write).expect_err("sealed");
            assert_eq!(refused.kind(), PermissionDenied, "mapped writable");
            assert_eq!(rustix::io::write(file, b"x"), Err(Errno::PERM), "written");
            let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            let punched = rustix::fs::fallocate(file, punch, 0, 4096);
            assert_eq!(punched, Err(Errno::PERM), "a hole");
            assert_eq!(ftruncate(file, 0), Err(Errno::PERM), "shrunk");
            assert_eq!(ftruncate(file, 1 << 20), Err(Errno::PERM), "grown");
            let unsealed = fcntl_add_seals(file, SealFlags::WRITE);
            assert_eq!(unsealed, Err(Errno::PERM), "other seals");
            let read_only = SharedWords::open(file, 512, Access::Read).expect("for reading");
            let base = read_only.mapping.base().as_ptr();
            // SAFETY: the range is a mapping of this test's own.
            let made_writable = unsafe { mprotect(base, 4096, MprotectFlags::WRITE) };
            assert_eq!(made_writable, Err(Errno::ACCESS), "made writable");
        }
        ours.store(0, 9);
        assert_eq!(ours.load(0), 9, "our own mapping stays writable");
    }

    #[test]
    fn a_buffer_is_written_here_and_read_there() {
        let (mut ours, file) = SharedBuffer::to_write("test", 4096).expect("made");
        ours.bytes_mut()[10..13].copy_from_slice(b"abc");
        let refused = SharedBytes::open(&file, 4096).expect_err("a slice that changes");
        assert_eq!(refused.kind(), InvalidInput);
        drop(ours);
        let theirs = SharedBytes::open(&file, 4096).expect("mapped");
        assert_eq!(theirs.bytes(10..13), Some(&b"abc"[..]));
        let refused = SharedWords::open(&file, 512, Access::Write).expect_err("sealed");
        assert_eq!(refused.kind(), PermissionDenied);
    }

    #[test]
    fn a_file_that_is_short_or_could_shrink_is_not_mapped() {
        let (_, file) = SharedWords::to_read("test", 8).expect("made");
        let refused = SharedWords::open(&file, 9, Access::Read).expect_err("short");
        assert_eq!(refused.kind(), InvalidInput);
        let unsealed = memory_file("test", 64).expect("made");
        let refused = SharedBytes::open(&unsealed, 64).expect_err("not sealed");
        assert_eq!(refused.kind(), InvalidInput);
    }

    #[test]
    fn more_words_than_memory_can_have_are_refused() {
        // Eight times as much is eight bytes, if it wraps around.
        let words = usize::MAX / 8 + 2;
        let (_, file) = SharedWords::to_read("test", 8).expect("made");
        for access in [Access::Read, Access::Write] {
            let refused = SharedWords::open(&file, words, access).expect_err("too many");
            assert_eq!(refused.kind(), InvalidInput);
        }
        for made in [
            SharedWords::to_write("test", words),
            SharedWords::to_read("test", words),
        ] {
            assert_eq!(made.expect_err("too many").kind(), InvalidInput);
        }
    }

    #[test]
    fn bytes_that_others_may_write_are_no_slice() {
        let (_, file) = SharedWords::to_read("test", 512).expect("made");
        let writer = SharedWords::open(&file, 512, Access::Write);
        let refused = SharedBytes::open(&file, 4096).expect_err("it would change");
        assert_eq!(refused.kind(), InvalidInput);
        drop(writer);
        let refused = SharedBytes::open(&file, 4096).expect_err("it could change");
        assert_eq!(refused.kind(), InvalidInput);
    }

    #[test]
    fn a_range_outside_has_no_bytes() {
        let (_, file) = SharedWords::to_write("test", 8).expect("made");
        let bytes = SharedBytes::open(&file, 64).expect("mapped");
        assert_eq!(bytes.bytes(0..64).map(<[u8]>::len), Some(64));
        assert_eq!(bytes.bytes(1..65), None);
        assert_eq!(bytes.bytes(64..64), Some(&[][..]));
        #[expect(clippy::reversed_empty_ranges, reason = "that is the point")]
        let reversed = bytes.bytes(2..1);
        assert_eq!(reversed, None);
    }

    #[test]
    #[should_panic(expected = "for reading")]
    fn a_store_to_words_for_reading_is_caught() {
        let (ours, _file) = SharedWords::to_read("test", 1).expect("made");
        ours.store(0, 1);
    }
}
