//! Every bound of the NFS service in one place, as sums with a comment per term.

use std::time::Duration;

/// The longest handle (RFC 1813 section 2.4), in bytes.
pub const HANDLE_BYTES_MAX: usize = 64;

/// The longest name in a directory, in bytes: what Linux file systems take.
pub(crate) const NAME_BYTES_MAX: usize = 255;

/// First pause before a handle is tried again that the kernel has no memory for; each further one
/// is twice as long.
pub(crate) const HANDLE_PAUSE_MIN: Duration = Duration::from_millis(1);

/// Last such pause; all of them together are half a second of one worker.
pub(crate) const HANDLE_PAUSE_MAX: Duration = Duration::from_millis(256);

/// Names are read from the wire up to this length, so that the answer to a longer one is "too long"
/// and not that it is garbage, in bytes.
pub const NAME_BYTES_READ_MAX: usize = 1024;

/// The longest target of a symbolic link and the longest path to mount, in bytes.
pub const PATH_BYTES_MAX: usize = 4095;

/// The longest path of MOUNT (RFC 1813 section 5.1.1), in bytes.
pub const MOUNT_PATH_BYTES_MAX: usize = 1024;

/// The most data of one READ or WRITE, in bytes.
pub const DATA_BYTES_MAX: usize = flatpath_rpc::limits::DATA_BYTES_MAX;

/// Bytes of one receive buffer: what a socket on a fast way has ready at once.
pub(crate) const RECEIVE_BUFFER_BYTES: u32 = 64 * 1024;

/// Receive buffers of one network thread.
pub(crate) const RECEIVE_BUFFERS: u32 = 256;

/// From this length on READ sends a file's own pages and copies nothing, in bytes: below it, the
/// system calls that takes cost more than the copy.
pub(crate) const PIPED_BYTES_MIN: usize = 32 * 1024;

/// Pipes for READ at once, two descriptors each; with more calls than that under way, the others
/// are copied.
pub(crate) const PIPES_MAX: usize = 64;

/// The largest READDIR and READDIRPLUS reply, in bytes: one buffer of the third class with the head
/// of the reply before it.
pub(crate) const DIRECTORY_BYTES_MAX: usize = 32 * 1024;

/// A scan of the tree asks the kernel for directory entries in pieces of this size, in bytes.
pub(crate) const ENTRIES_BYTES: usize = 32 * 1024;

/// A listing asks for them in pieces of at least this size, in bytes: any name
/// fits with its number, cookie, kind and end.
pub(crate) const ENTRIES_BYTES_MIN: usize = 1024;
const _: () = assert!(ENTRIES_BYTES_MIN >= 8 + 8 + 2 + 1 + NAME_BYTES_MAX + 8);

/// Open files kept for handles that are in use, per server; three descriptors each at most.
pub const NODES_MAX: usize = 4096;

/// Time between two looks at the file of the handles' key.
pub(crate) const KEY_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Between two looks at whether the directories of exports were removed.
pub(crate) const ROOT_LOOK_INTERVAL: Duration = Duration::from_millis(400);

/// Time between two looks at the open files.
pub(crate) const SWEEP_INTERVAL: Duration = Duration::from_millis(500);

/// Looks at an unused file after which it is closed for reading and writing: 2 s to 2.5 s,
/// as the kernel's server does. A program cannot be started while it is open for writing.
pub(crate) const SWEEPS_IDLE: u8 = 4;

/// Looks at an unused file between two questions whether it still has a name: every 2 s.
pub(crate) const SWEEPS_PER_QUESTION: u8 = 4;

/// Time after which no further idle file is written to disk in one sweep.
pub(crate) const SWEEP_SYNC_TIME_MAX: Duration = Duration::from_secs(1);

/// Files that are closed at most when another one is added: one to make room, and more where
/// connections need their descriptors, which the sweep closes faster.
pub(crate) const EVICTED_PER_INSERT_MAX: usize = 2;

/// The least time between two looks of the sweep at what connections need.
pub(crate) const SWEEP_PAUSE: Duration = Duration::from_millis(2);

/// Parts the table of open files is divided in.
pub(crate) const NODE_SHARDS: usize = 16;

/// Locks that make "before, change, after" of one directory a unit.
pub(crate) const CHANGE_LOCKS: usize = 256;

/// Hints (parent and name) kept for files that the kernel cannot find by handle.
pub(crate) const PATH_HINTS_MAX: usize = 128 * 1024;

/// Steps up from a file to where the kernel has a path, or down from the root. At most one system
/// call for each, for files that lie so deep that their path is longer than 4,095 bytes.
pub(crate) const DEPTH_MAX: usize = 16 * 1024;

/// Entries looked at when the tree is scanned for a file without a hint.
pub(crate) const SCAN_ENTRIES_MAX: u64 = 16 * 1024 * 1024;

/// How long a fruitless scan is remembered at least.
pub(crate) const ABSENT_TIME_MIN: Duration = Duration::from_secs(5);

/// How long it is remembered in times of what it took, so that clients with handles of files that
/// are gone cost at most a twentieth of one worker, however large the tree.
pub(crate) const ABSENT_SHARE: u32 = 19;

/// Callers that wait for another one's scan, each with its worker.
pub(crate) const SCAN_WAITERS_MAX: usize = 8;

/// How long such a caller waits, scans of others together: less than the time after which
/// clients send a call again. Tests wait for as long as a busy machine takes.
pub(crate) const SCAN_TIME_MAX: Duration = Duration::from_secs(if cfg!(test) { 60 } else { 5 });

/// Fruitless scans remembered.
pub(crate) const ABSENT_MAX: usize = 1024;

/// The longest target of a symbolic link that is remembered with its open file, in bytes: 1 MiB for
/// all of [`NODES_MAX`].
pub(crate) const TARGET_BYTES_MAX: usize = 256;

/// Verdicts of the kernel remembered per open file.
pub(crate) const GRANTS_MAX: usize = 8;

/// Longest time to connect to rpcbind, and to get a reply from it.
pub(crate) const RPCBIND_CALL_TIME_MAX: Duration = Duration::from_secs(2);

/// Age of a file's last change from which on a verdict about it is remembered. Kernels keep times
/// of files in ticks of up to 10 ms; within one a second change would leave no trace.
pub(crate) const GRANT_AGE_MIN: Duration = Duration::from_secs(1);

/// Exports of a server, each with a thread that closes its idle files.
pub const EXPORTS_MAX: usize = 64;

/// Clients with rights of their own in one export: hosts and networks.
pub const RULES_MAX: usize = 1024;

/// Addresses that the name of one host may have.
pub(crate) const HOST_ADDRESSES_MAX: usize = 16;

/// Open files that an export may keep at least, however many exports share [`NODES_MAX`].
pub(crate) const NODES_PER_EXPORT_MIN: usize = 64;
const _: () = assert!(EXPORTS_MAX * NODES_PER_EXPORT_MIN <= NODES_MAX);

/// The longest list of exports (MOUNT's EXPORT), in bytes: one buffer with the head of the reply.
pub(crate) const EXPORT_LIST_BYTES_MAX: usize = DIRECTORY_BYTES_MAX - 4;

/// How long the reload of exports waits for calls in exports that are gone.
pub(crate) const RETIRE_TIME_MAX: Duration = Duration::from_secs(5);

/// Between two looks whether such a call has ended.
pub(crate) const RETIRE_PAUSE: Duration = Duration::from_millis(2);

/// Numbers of groups that are kept for users, of four bytes: 1 MiB.
pub(crate) const GROUP_NUMBERS_MAX: usize = 256 * 1024;

/// How long the groups of a user are used before they are looked up again.
pub(crate) const GROUPS_AGE_MAX: Duration = Duration::from_secs(5 * 60);

/// The same of a user that this machine does not know.
pub(crate) const GROUPS_AGE_UNKNOWN: Duration = Duration::from_secs(60);

/// How long a lookup that failed is not tried again.
pub(crate) const GROUPS_AGE_FAILED: Duration = Duration::from_secs(5);

/// Callers that wait for another one's lookup of the same user, each with its worker.
pub(crate) const LOOKUP_WAITERS_MAX: usize = 8;

/// How long such a caller waits, as for a scan; in tests longer than they have patience.
pub(crate) const LOOKUP_TIME_MAX: Duration = Duration::from_secs(if cfg!(test) { 600 } else { 5 });

/// Services that a portmapper lists, each at one address; more are not listed.
pub const OFFERS_MAX: usize = 16;

/// The longest string in a call to a portmapper that is read, in bytes.
pub const PORTMAP_STRING_BYTES_MAX: usize = 255;

/// The longest list of a portmapper, in bytes: for each service of [`OFFERS_MAX`] five programs,
/// and for each of those whether there is one 4, program and version 8, the transport 4 + 4, the
/// address 4 + 56, the owner or the kind of transport 4 + 3 * 8.
pub(crate) const PORTMAP_LIST_BYTES_MAX: usize = OFFERS_MAX * 5 * (4 + 8 + 8 + 60 + 28) + 4;
const _: () = assert!(PORTMAP_LIST_BYTES_MAX <= DIRECTORY_BYTES_MAX);
