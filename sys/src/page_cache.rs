//! What of a file is in the kernel's page cache: `cachestat(2)`, Linux 6.5.
//!
//! A page counts from when the kernel makes room for it: its data may still be on the way from the
//! disk. Overlayfs has none of its own, whatever is cached of the file beneath.
//!
//! Cost: one system call, which walks over the cached pieces of the range.

use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd};

/// The same for every architecture that Linux has gained or kept since 5.0, but Alpha.
const SYS_CACHESTAT: libc::c_long = 451;

/// `struct cachestat_range` of the kernel.
#[repr(C)]
struct CachestatRange {
    offset: u64,
    /// 0: to the end of the file.
    length: u64,
}

/// `struct cachestat` of the kernel.
#[repr(C)]
#[derive(Default)]
struct Cachestat {
    cached: u64,
    dirty: u64,
    writeback: u64,
    evicted: u64,
    recently_evicted: u64,
}

/// How many pages of these bytes of a file are cached.
///
/// # Errors
/// `ENOSYS` before Linux 6.5, `EOPNOTSUPP` for a file without page cache, `EPERM` in a sandbox, or
/// for a file that the caller could not write to (since 6.16).
pub fn cached_pages(file: BorrowedFd<'_>, bytes: Range<u64>) -> io::Result<u64> {
    let range = CachestatRange {
        offset: bytes.start,
        length: bytes.end.saturating_sub(bytes.start),
    };
    if range.length == 0 {
        return Ok(0);
    }
    let mut found = Cachestat::default();
    // SAFETY: both structures are the kernel's, live for the call, and `file` is open.
    let result = unsafe {
        libc::syscall(
            SYS_CACHESTAT,
            file.as_raw_fd(),
            &raw const range,
            &raw mut found,
            0,
        )
    };
    match result {
        0 => Ok(found.cached),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::fd::AsFd as _;

    use super::*;
    use crate::skipped::not_offered;

    #[test]
    fn what_was_written_is_cached_and_what_was_forgotten_is_not() {
        let mut file = tempfile::tempfile().expect("a file");
        file.write_all(&[7; 40_000]).expect("written");
        let whole = match cached_pages(file.as_fd(), 0..40_000) {
            Ok(pages) => pages,
            Err(cause) => return not_offered(&format!("cachestat: {cause}"), (6, 5)),
        };
        let page = rustix::param::page_size() as u64;
        assert_eq!(whole, 40_000_u64.div_ceil(page));
        assert_eq!(cached_pages(file.as_fd(), 1..2).expect("told"), 1);
        assert_eq!(cached_pages(file.as_fd(), 5..5).expect("told"), 0);
        assert_eq!(
            cached_pages(file.as_fd(), 1 << 43..1 << 44).expect("told"),
            0
        );
        file.sync_all().expect("on disk");
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).expect("advice");
        let left = cached_pages(file.as_fd(), 0..40_000).expect("told");
        assert!(left == 0 || rustix::fs::fstatfs(&file).is_ok_and(|it| it.f_type == 0x0102_1994));
    }
}
