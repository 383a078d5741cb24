//! Memory mapped into this process.
//!
//! A child gets no part of it (`MADV_DONTFORK`): it must neither share nor copy memory that the
//! kernel writes to. Kernels that do not know the advice only leave more to a child that
//! misbehaves.
//!
//! Under Miri, which has no mappings, private memory comes from the allocator.

use std::ffi::c_void;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::ptr::NonNull;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::io::Errno;

/// The access that a mapping gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Access {
    /// Loads.
    Read,
    /// Loads and stores.
    Write,
}

/// A range of mapped memory, unmapped when it is dropped. Who reads and writes which part of it is
/// the business of its user, in whose hands [`Mapping::base`] is.
#[derive(Debug)]
pub struct Mapping {
    base: NonNull<c_void>,
    bytes: usize,
}

// SAFETY: an address range; every access is through `base` and justified where it is made.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Zeroed memory of this process alone, in whole pages of the machine. Untouched pages take no
    /// memory.
    ///
    /// # Errors
    /// The error of mmap(2); `EINVAL` for no bytes.
    pub fn private(bytes: usize) -> io::Result<Mapping> {
        let bytes = bytes.next_multiple_of(page_size());
        if cfg!(miri) {
            return heap(bytes);
        }
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_NORESERVE | libc::MAP_ANONYMOUS;
        Mapping::new(bytes, protection, flags, -1)
    }

    /// The first `bytes` of a file, shared with every process that maps it.
    ///
    /// # Errors
    /// The error of mmap(2).
    pub fn of_file(file: impl AsFd, bytes: usize, access: Access) -> io::Result<Mapping> {
        let protection = match access {
            Access::Read => libc::PROT_READ,
            Access::Write => libc::PROT_READ | libc::PROT_WRITE,
        };
        let file = file.as_fd().as_raw_fd();
        Mapping::new(bytes, protection, libc::MAP_SHARED, file)
    }

    fn new(bytes: usize, protection: i32, flags: i32, file: i32) -> io::Result<Mapping> {
        let anywhere = std::ptr::null_mut();
        // SAFETY: a fresh mapping aliases nothing in this process.
        let base = unsafe { libc::mmap(anywhere, bytes, protection, flags, file, 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base).ok_or(Errno::NOMEM)?;
        // SAFETY: the range is the mapping just made, and keeps its contents in this process.
        let _ = unsafe { libc::madvise(base.as_ptr(), bytes, libc::MADV_DONTFORK) };
        Ok(Mapping { base, bytes })
    }

    /// Where it begins: at a page of the machine.
    pub fn base(&self) -> NonNull<c_void> {
        self.base
    }

    /// Its length.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if cfg!(miri) {
            // SAFETY: `heap` allocated it so, and its user's borrows have ended.
            unsafe { std::alloc::dealloc(self.base.as_ptr().cast(), heap_layout(self.bytes)) };
            return;
        }
        // SAFETY: its user's borrows have ended with the value.
        let unmapped = unsafe { libc::munmap(self.base.as_ptr(), self.bytes) };
        debug_assert_eq!(unmapped, 0, "unmapping our own mapping");
    }
}

/// A new file in memory of `bytes` zeroes, which can be sealed.
///
/// # Errors
/// The error of memfd_create(2) or ftruncate(2).
pub fn memory_file(name: &str, bytes: usize) -> io::Result<OwnedFd> {
    let file = memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    ftruncate(&file, bytes as u64)?;
    Ok(file)
}

/// Lets no descriptor of the file change its size or write to it from now on. Writable mappings
/// that exist stay writable.
///
/// # Errors
/// The error of fcntl(2).
pub fn seal_against_writing(file: impl AsFd) -> io::Result<()> {
    let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::FUTURE_WRITE | SealFlags::SEAL;
    Ok(fcntl_add_seals(file, seals)?)
}

/// Bytes of a page of the machine.
pub fn page_size() -> usize {
    if cfg!(miri) {
        return 4096;
    }
    rustix::param::page_size()
}

/// As large and as aligned as a mapping.
fn heap_layout(bytes: usize) -> std::alloc::Layout {
    std::alloc::Layout::from_size_align(bytes, page_size()).expect("a mapping fits in memory")
}

fn heap(bytes: usize) -> io::Result<Mapping> {
    if bytes == 0 {
        return Err(Errno::INVAL.into());
    }
    // SAFETY: the size is not 0.
    let base = unsafe { std::alloc::alloc_zeroed(heap_layout(bytes)) };
    let base = NonNull::new(base.cast()).ok_or(Errno::NOMEM)?;
    Ok(Mapping { base, bytes })
}
