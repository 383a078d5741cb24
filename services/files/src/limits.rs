//! The bounds of this crate, each with the sum it comes from.

use std::time::Duration;

/// Longest relative path that is looked up: Linux' `PATH_MAX` (4,096) less the closing NUL.
pub const PATH_BYTES_MAX: usize = 4_096 - 1;

/// Longest name of one file or directory (`NAME_MAX` of every Linux file system).
pub const NAME_BYTES_MAX: usize = 255;

/// Symbolic links followed for one path where this crate walks by itself: what the kernel allows.
pub const LINKS_MAX: usize = 40;

/// Tries of a lookup that the kernel broke off because something was renamed meanwhile (`EAGAIN`).
pub const RENAME_TRIES_MAX: usize = 16;

/// Tries to read a small file between two of its changes.
pub const CHANGE_TRIES_MAX: usize = 3;

/// Ranges taken from one `Range` field; a field with more is ignored and the whole file is sent.
/// Download managers ask for up to 16 at once, PDF viewers for fewer.
pub const RANGES_MAX: usize = 32;

/// Overlapping ranges tolerated in one field. RFC 9110, 14.2: a server may ignore "more than two
/// overlapping ranges", the sign of an attack.
pub const RANGE_OVERLAPS_MAX: usize = 2;

/// Entries of a directory listing. 10,000 entries × about 160 bytes of HTML = 1.6 MB at most for
/// ordinary names, and 10,000 lookups, which a worker does in about 10 ms.
pub const LISTING_ENTRIES_MAX: usize = 10_000;

/// Bytes read from a file at a time on the way into a small answer.
pub const READ_BYTES: usize = 64 * 1024;

/// Largest file that is kept in a lane's cache, and that a worker reads in one go.
pub const HOT_FILE_BYTES_MAX: usize = 64 * 1024;

/// Files kept per network thread.
pub const HOT_ENTRIES_MAX: usize = 1_024;

/// Bytes kept per network thread: bodies, heads, keys and what is known about the paths.
pub const HOT_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Longest request path that is a key of the cache: longer ones are rare and always cold.
pub const HOT_TARGET_BYTES_MAX: usize = 512;

/// Directories above a cached file. Each costs one `statx` per turn to make sure that it has not
/// become a link, so files further down are read by a worker each time.
pub const HOT_DEPTH_MAX: usize = 8;

/// A file changed this shortly ago may change again without getting a new time: two clock ticks at
/// the slowest tick rate of Linux, 2 × 10 ms.
pub const RACY_NS: u64 = 2 * 10_000_000;

/// The same where a file system keeps whole seconds only: the two seconds of FAT.
pub const RACY_COARSE_NS: u64 = 2 * 1_000_000_000;

/// Longest file that PUT or an upload makes, unless said otherwise: 1 TiB.
pub const UPLOAD_FILE_BYTES_MAX: u64 = 1 << 40;

/// Resumable uploads that may be unfinished at once, unless said otherwise.
pub const UNFINISHED_MAX: usize = 1_024;

/// How long an unfinished upload is kept after its last byte, unless said otherwise: a day, so that
/// what was broken off in the evening is resumed in the morning.
pub const UPLOAD_EXPIRES: Duration = Duration::from_secs(24 * 60 * 60);
