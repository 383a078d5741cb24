//! The bounds of this crate, each with the sum it comes from.

use std::time::Duration;

/// Longest relative path that is looked up: Linux' `PATH_MAX` (4,096) less the closing NUL.
pub const PATH_BYTES_MAX: usize = 4_096 - 1;

/// Longest name of one file or directory (`NAME_MAX` of every Linux file system).
pub const NAME_BYTES_MAX: usize = 255;

/// Symbolic links followed for one path where this crate walks by itself: what the kernel allows.
pub const LINKS_MAX: usize = 40;

/// Tries of a lookup that the kernel broke off because something was renamed during it (`EAGAIN`).
pub(crate) const RENAME_TRIES_MAX: usize = 16;

/// Tries to read a small file between two of its changes.
pub(crate) const CHANGE_TRIES_MAX: usize = 3;

/// Ranges taken from one `Range` header; a header with more is ignored and the whole file is sent.
/// Download managers ask for up to 16 at once, PDF viewers for fewer.
pub const RANGES_MAX: usize = 32;

/// Overlapping ranges tolerated in one header. RFC 9110, 14.2: a server may ignore "more than two
/// overlapping ranges", the sign of an attack.
pub const RANGE_OVERLAPS_MAX: usize = 2;

/// Entries that a directory listing shows at a time. 10,000 entries × about 240 bytes of HTML =
/// 2.4 MB at most for ordinary names, and 10,000 lookups, which a worker does in about 10 ms.
pub(crate) const LISTING_ENTRIES_MAX: usize = 10_000;

/// Entries of a tar archive of a directory: a worker opens each once before the first byte, half a
/// second for as many.
pub const ARCHIVE_TAR_ENTRIES_MAX: usize = 100_000;

/// Entries of a zip archive: what its directory says of each is kept until its end, about 600 bytes
/// with the name.
pub const ARCHIVE_ZIP_ENTRIES_MAX: usize = 10_000;

/// Directories within each other in an archive: a quarter of the names that the longest path has.
pub(crate) const ARCHIVE_DEPTH_MAX: usize = 512;

/// Bytes of all paths in a tar archive: 84 for each of its entries.
#[cfg(feature = "archives")]
pub(crate) const ARCHIVE_TAR_PATH_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Bytes of all paths in a zip archive: 105 for each of its entries, or fewer longer ones.
#[cfg(feature = "archives")]
pub(crate) const ARCHIVE_ZIP_PATH_BYTES_MAX: usize = 1024 * 1024;

/// Archives that are made at a time: each has the server read a whole tree.
pub const ARCHIVES_MAX: usize = 4;

/// Memory of one archive: the paths of tar 8 MiB; or those of zip 1 MiB, of its directory 10,000 ×
/// 600 bytes; and two chunks of content.
pub const ARCHIVE_BYTES_MAX: usize = 8 * 1024 * 1024 + 2 * READ_BYTES;

/// Bytes of a README that its directory's page shows: longer than nearly all, and a small part of
/// a page with many entries.
pub(crate) const README_BYTES_MAX: usize = 64 * 1024;

/// Elements of a README within each other that its page has, of Markdown.
#[cfg(feature = "markdown")]
pub(crate) const MARKDOWN_DEPTH_MAX: usize = 32;

/// Markers at the beginning of one line of a README, `>` or `-`, that its page takes for Markdown:
/// more than anyone writes. The parser looks at each of those that are open for every further line,
/// so 64 KiB of them would take half a second.
#[cfg(feature = "markdown")]
pub(crate) const MARKDOWN_MARKERS_MAX: usize = 128;

/// Bytes of text and tags that a page has of a README in Markdown: eight times as many as are read,
/// more than any has whose markup serves its text.
#[cfg(feature = "markdown")]
pub(crate) const MARKDOWN_BYTES_MAX: usize = 8 * README_BYTES_MAX;

/// Files that one form stores: each is open until all have arrived. With a script a page stores any
/// number, one after another.
pub const FORM_FILES_MAX: usize = 32;

/// Fields of a form: its files, and a few that say what is wanted.
pub(crate) const FORM_FIELDS_MAX: usize = FORM_FILES_MAX + 8;

/// Bytes of the head of a field of a form: a name of 255 bytes, with all around it.
pub(crate) const FORM_HEADER_BYTES_MAX: usize = 4 * 1024;

/// Descriptors that a form holds: its directory, and each of its files with the directory again.
pub(crate) const FORM_DESCRIPTORS: usize = 1 + FORM_FILES_MAX;

/// Bytes read from a file at a time on the way into a small answer.
pub const READ_BYTES: usize = 64 * 1024;

/// Largest file that is cached by a network thread, and that a worker reads in one go.
pub(crate) const CACHE_FILE_BYTES_MAX: usize = 64 * 1024;

/// Longest file that a worker compresses at once, with the whole of it in memory: 1 MiB has nearly
/// all scripts and pages. A longer one is compressed while it is sent, again for each client.
pub const COMPRESS_WHOLE_BYTES_MAX: u64 = 1024 * 1024;

/// Longest file that is compressed while it is sent. Of what is compressed nothing can be resumed,
/// so a longer file is sent as it is: 64 MiB take a second or two of a processor.
pub const COMPRESS_FILE_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// Longest compressed form that is cached by a network thread. Four times as much as of plain
/// files: to make it again costs a thousand times as much as to read it.
pub(crate) const CACHE_COMPRESSED_BYTES_MAX: usize = 256 * 1024;

/// Files kept per network thread.
pub const CACHE_ENTRIES_MAX: usize = 1_024;

/// Bytes kept per network thread: bodies, heads, keys and what is known about the paths.
pub const CACHE_BYTES_MAX: usize = 16 * 1024 * 1024;

/// The part of the cache's entries and bytes that is for names with nothing there. Clients make
/// such names up: they take no room from files.
pub(crate) const CACHE_ABSENT_DIVISOR: usize = 16;

/// Longest request path that is a key of the cache: longer ones are rare and always cold.
pub(crate) const CACHE_TARGET_BYTES_MAX: usize = 512;

/// Directories above a cached file. Each costs one `statx` per turn to make sure that it has not
/// become a link, so files further down are read by a worker each time.
pub(crate) const CACHE_DEPTH_MAX: usize = 8;

/// A file changed this shortly ago, by the clock that files have their times from, may change again
/// without getting a new time: where a file system rounds it, as exFAT does to 10 ms, twice that.
pub(crate) const RACY_NS: u64 = 2 * 10_000_000;

/// A file that is left alone for this long is no longer one that changed shortly ago: the clock of
/// files is up to a tick late, 10 ms at the slowest rate of Linux, and more where a tick is late.
pub(crate) const STABLE_AFTER: Duration = Duration::from_nanos(RACY_NS + 11_000_000);

/// A change time that is this little ahead may be of now, by the clock of a file server. Clocks
/// that NTP keeps differ by less than a second, others by some seconds a day.
pub(crate) const CLOCKS_DIFFER_MAX: Duration = Duration::from_secs(60);

/// The same where a file system keeps whole seconds only: the two seconds of FAT.
pub(crate) const RACY_COARSE_NS: u64 = 2 * 1_000_000_000;

/// Longest file that PUT or an upload makes, by default: 1 TiB.
pub(crate) const UPLOAD_FILE_BYTES_MAX: u64 = 1 << 40;

/// Descriptors that a download holds in addition to its socket while it is read: the file.
pub(crate) const DOWNLOAD_DESCRIPTORS: usize = 1;

/// The same for a PUT: the file and its directory.
pub(crate) const PUT_DESCRIPTORS: usize = 1 + 1;

/// The same for an upload by tus: the file, its directory, and that of the records.
pub(crate) const TUS_DESCRIPTORS: usize = 1 + 1 + 1;

/// Resumable uploads that may be unfinished at once, by default.
pub(crate) const UNFINISHED_MAX: usize = 1_024;

/// The part of the file system that the bytes of all unfinished uploads may take, unless said
/// otherwise: what was broken off and never comes back leaves the other half to everything else,
/// and no upload is refused that could not fill the disk by itself.
pub(crate) const UNFINISHED_DISK_PART: u64 = 2;

/// How long an unfinished upload is kept after its last byte, by default: a day, so that
/// what was broken off in the evening is resumed in the morning.
pub(crate) const UPLOAD_EXPIRES: Duration = Duration::from_secs(24 * 60 * 60);

/// How long an upload is kept that never got a byte: five minutes, as what is lost with it is one
/// request.
pub(crate) const UPLOAD_EMPTY_EXPIRES: Duration = Duration::from_secs(5 * 60);

/// Uploads that are tried to be removed for that of an address with less than its share.
pub(crate) const UPLOADS_REMOVED_TRIES: usize = 8;

/// The longest time for which an answer from the cache is given without looking at its file again,
/// where looking may block (a network or user-space file system, or another mount than that of the
/// served directory). NFS clients themselves trust what they know for 3 to 60 seconds.
pub(crate) const STAT_AGE_NS: u64 = 1_000_000_000;

/// The part of that time after which one request is sent to a worker to look again, while the
/// others are still answered: 1/2.
pub(crate) const STAT_AGE_REFRESH_DIVISOR: u64 = 2;

/// Names that are looked at, at the start, for temporary files of servers that were killed: some
/// minutes on a disk.
pub(crate) const LEFTOVER_NAMES_MAX: usize = 4_000_000;

/// The age of such a file where the lock of its server may not reach this machine: far beyond a
/// PUT.
pub(crate) const LEFTOVER_AGE_REMOTE: Duration = Duration::from_secs(24 * 3600);

/// Other services with directories below that of a service: each has a number of 16 bits.
pub(crate) const OWNERS_MAX: usize = u16::MAX as usize;

/// Directories that a service has had before, and that other services remember as its own: the
/// releases that a deploy leaves behind.
pub(crate) const OWNER_FORMER_MAX: usize = 16;

/// Mounts below the served directory that are distinguished.
pub(crate) const MOUNTS_MAX: usize = 1_024;

/// Rules of one kind, which are found by hash. Cloudflare takes 2,000 redirects with fixed paths.
pub const RULES_MAX: usize = 4_096;

/// Rules of one kind whose pattern is an expression or a glob, each of which is tried in turn:
/// 256 × about 50 ns = 13 µs for a path that none is for. Cloudflare takes 100.
pub const EXPRESSIONS_MAX: usize = 256;

/// Bytes of one expression when it is compiled, and of what a worker keeps for running it.
pub const EXPRESSION_BYTES_MAX: usize = 64 * 1024;

/// Longest address that a rule leads to: what servers and browsers take (RFC 9110, 4.1, asks for
/// at least 8,000). A rule whose variables make more of it leads to nothing.
pub const RULE_TARGET_BYTES_MAX: usize = 8_000;

/// Files that one `try` rule names.
pub const TRY_FILES_MAX: usize = 8;

/// Redirects of a list that are followed to see whether they lead back: as many as browsers follow.
pub(crate) const REDIRECT_HOPS_MAX: usize = 20;

/// Hexadecimal digits of a hash in a file's name: 8 in the short form of bundlers, 64 in SHA-256.
pub(crate) const HASH_LENGTH_MIN: usize = 8;
/// See [`HASH_LENGTH_MIN`].
pub(crate) const HASH_LENGTH_MAX: usize = 64;

/// Longest `_headers` or `_redirects` that is read: 4,096 rules × 64 bytes.
pub const RULE_FILE_BYTES_MAX: usize = 256 * 1024;

/// Mistakes of one version of such a file that the log names; then it says how many more there are.
pub(crate) const RULE_FILE_MISTAKES_MAX: usize = 8;

/// How long the server remembers that an upload is finished, for a client that lost the answer.
pub(crate) const FINISHED_KEPT: Duration = Duration::from_secs(60 * 60);

/// Between two looks at what the path of a served directory leads to.
pub(crate) const FOLLOW_INTERVAL: Duration = Duration::from_millis(400);

/// A path that leads nowhere is looked at again after this time, before its directory counts as
/// lost: between the two renames of a deploy.
pub(crate) const FOLLOW_GRACE: Duration = Duration::from_millis(100);

/// Times between two looks for expired uploads: a quarter of the time they are kept, within these.
pub(crate) const SWEEP_INTERVAL_MIN: Duration = Duration::from_millis(250);
/// See [`SWEEP_INTERVAL_MIN`].
pub(crate) const SWEEP_INTERVAL_MAX: Duration = Duration::from_secs(60);

/// Bytes of one upload's record: three headers, each as long as a request's head may be
/// (64 KiB), with every byte escaped to three.
pub const RECORD_BYTES_MAX: u64 = 3 * 3 * 64 * 1024;

/// Tries to make the directory of records while the sweep removes it for being empty.
pub(crate) const STORE_TRIES_MAX: usize = 4;
