//! Every bound of ONC RPC in one place, as sums with a comment per term.

use flatpath::limits::BUFFER_CLASSES;

/// Data one call or reply may carry, in bytes: the largest READ and WRITE.
pub const DATA_BYTES_MAX: usize = 1024 * 1024;

/// What surrounds the data of a call: xid to procedure 24, credential and verifier 2 * (8 + 400),
/// arguments without data (two handles 2 * 68, two names 2 * 260, a path 4 + 4096, attributes 64),
/// rounded up.
pub const HEAD_BYTES_MAX: usize = 8 * 1024;

/// A whole record, all fragments together, in bytes. Checked against the marker before a byte of
/// the fragment is believed.
pub const RECORD_BYTES_MAX: usize = DATA_BYTES_MAX + HEAD_BYTES_MAX;

/// A record up to this length is made contiguous whatever way it arrived, in bytes. Longer ones are
/// data with a head, and the head lies in the first chunk.
pub(crate) const CONTIGUOUS_BYTES_MAX: usize = 2 * HEAD_BYTES_MAX;

/// Bytes of a long record that lie in its first chunk: the head of any call with data. Message to
/// procedure 24, credential and verifier 2 * (8 + 400), a handle 68, offset, count, how and length
/// 20: 928, rounded up.
pub(crate) const FRONT_BYTES_MIN: usize = 1024;

/// Pages that the records of one connection may retain; what comes beyond is copied. Two WRITEs of
/// a megabyte as they come where the network is slower than the server, in pieces of a few
/// segments, and what arrives meanwhile.
pub(crate) const PAGES_RETAINED_MAX: u32 = 48;

/// Pages that whole records hold from which on a chunk of [`CHUNK_BYTES_LARGE`] or more of the next
/// is copied: four WRITEs of a stream that fills its pages. More would only leave the processor's
/// caches before it is written.
pub(crate) const PAGES_FILLED_MAX: u32 = 16;

/// What such a stream brings at once, in bytes.
pub(crate) const CHUNK_BYTES_LARGE: usize = PAGE_BYTES as usize / 2;

/// The engine's own bound, which is never reached: a record that waits for its end must not stop
/// its connection.
pub(crate) const PAGES_PER_CONNECTION_MAX: u32 = PAGES_RETAINED_MAX + 16;

/// Bytes of one such page: what one receive takes at most. A stream has that much ready, and each
/// receive costs an acknowledgement and a completion: with 64 KiB a WRITE takes a tenth more CPU.
pub const PAGE_BYTES: u32 = 256 * 1024;

/// Pages that a listener's connections receive long records into, on each network thread.
pub const PAGES_PER_LISTENER: u32 = 64;

/// Of these, pages that are never retained.
pub(crate) const PAGES_RESERVED: u32 = 8;

/// Fragments of one record. Known clients send one, or one per write buffer of theirs.
pub const RECORD_FRAGMENTS_MAX: u32 = 1024;

/// Fragments without a byte in one record. They bring nothing, so a few are an oddity and many an
/// attack.
pub const EMPTY_RECORD_FRAGMENTS_MAX: u32 = 16;

/// Body of a credential or verifier, in bytes (RFC 5531 section 8.2).
pub const AUTH_BYTES_MAX: usize = 400;

/// Name of the machine in AUTH_SYS, in bytes (RFC 5531 appendix A).
pub const MACHINE_NAME_BYTES_MAX: usize = 255;

/// Supplementary groups in AUTH_SYS (RFC 5531 appendix A).
pub const GROUPS_MAX: usize = 16;

/// Calls of one connection with workers at once; more wait in the socket.
pub const CALLS_MAX: u32 = 128;

/// Reply head: marker 4, xid 4, REPLY 4, accepted 4, verifier 8, status 4.
pub const REPLY_HEAD_BYTES: usize = 28;

/// Room for the longest inline or error reply, in bytes: the head, and results that no service
/// answers on the network thread beyond.
pub const INLINE_REPLY_BYTES_MAX: usize = REPLY_HEAD_BYTES + 484;

/// Buffer taken for a reply before its call goes to a worker, in bytes: attributes before and after
/// two directories, a handle and the head come to less than 1 KiB. Data takes buffers of its own.
pub const REPLY_BYTES_MIN: usize = 2 * 1024;

/// A reply up to this length is copied after other replies instead of being sent as a segment of
/// its own, in bytes.
pub(crate) const REPLY_COPY_BYTES_MAX: usize = 1024;

/// The longest reply for which a call is tried on the network thread, in bytes. One caller would
/// gain from more, several at a time would lose (`docs/figures.md`, "When to try").
pub(crate) const PROMPT_REPLY_BYTES_MAX: usize = REPLY_BYTES_MIN + 32 * 1024;

/// Replies kept for repeated calls: enough for every call in flight of a hundred busy clients.
pub const CACHED_REPLIES_MAX: usize = 16 * 1024;

/// How long a reply is kept for its connection and for the client's port, in nanoseconds: what the
/// kernel's server allows (`RC_EXPIRE`), twice the time after which clients send a call again.
pub(crate) const CACHED_REPLY_AGE_NS_MAX: u64 = 120_000_000_000;

/// How long a reply is kept for a client that comes from another port after its connection broke,
/// in nanoseconds: clients connect again at once, or after a few seconds.
pub(crate) const CACHED_REPLY_MOVED_NS_MAX: u64 = 30_000_000_000;

/// Pauses of 5 ms in which the news may come that the connection of a call has ended that another
/// connection seems to repeat, or the end of a call whose client is on another connection now.
pub(crate) const LOOKUP_PAUSES_MAX: u32 = 20;

/// Calls of a sixteenth of the cache that differ from another client's calls only by their
/// connection.
pub(crate) const CACHED_TWINS_MAX: usize = 16;

/// The longest reply that is kept for repeated calls, in bytes: 28 of head, two directories with
/// attributes before and after 2 * 116, a handle 72, attributes 88, status 4, rounded up.
pub const CACHED_REPLY_BYTES_MAX: usize = 512;

/// Idle periods of the engine a quiet connection lives through: five of 75 s are the six minutes
/// after which the kernel's server disconnects, too.
pub(crate) const IDLE_PERIODS_MAX: u8 = 5;

/// Memory for the replies to datagrams that workers answer, in bytes: a buffer of the first class
/// and a longer one of the second, which has room for every reply to a datagram, for each of four
/// workers, as many as the engine gives to one listener's datagrams.
pub const DATAGRAM_REPLIES_BYTES: usize = 4 * (BUFFER_CLASSES[0] + BUFFER_CLASSES[1]);
