//! Messages with a length in front, from a producer's stream to a consumer's memory.
//!
//! A producer sends messages over TCP: `framing` finds them in the bytes. A consumer is another
//! process of the same machine. It attaches over a Unix socket (`handshake`) and from then on
//! shares memory with the server (`layout`); no payload is copied on the way. Nothing here reads or
//! writes a descriptor: the server's half is `services/ingest`, the consumers' halves are
//! `clients/rust` and `clients/python`.
//!
//! # What a producer sends
//!
//! ```
//! use flatpath_messages::framing::{Decoder, Part, length, naming};
//!
//! // The token that names the consumer, if any, then messages, each with its length in front.
//! let mut stream = naming(7).to_vec();
//! stream.extend_from_slice(&length(5).unwrap());
//! stream.extend_from_slice(b"hello");
//!
//! let (mut decoder, mut rest) = (Decoder::default(), stream.as_slice());
//! let mut parts = Vec::new();
//! loop {
//!     let (consumed, part) = decoder.next(rest, 1024)?;
//!     rest = &rest[consumed..];
//!     if part == Part::Nothing {
//!         break;
//!     }
//!     parts.push(part);
//! }
//! let begin = Part::Begin { message_bytes: 5 };
//! assert_eq!(parts, [Part::Token { token: 7 }, begin, Part::Payload { last: true }]);
//! assert!(decoder.is_between_messages());
//! # Ok::<(), flatpath_messages::framing::TooLong>(())
//! ```
//!
//! # What is shared
//!
//! | descriptor          | server        | consumer | what it is                             |
//! |---------------------|---------------|----------|----------------------------------------|
//! | regions             | reads, writes | reads    | the memory that the kernel receives to |
//! | descriptor ring     | writes        | reads    | where the fragments of messages lie    |
//! | return ring         | reads         | writes   | tokens of fragments that are done with |
//! | descriptor doorbell | writes        | reads    | a pipe: how many descriptors are new   |
//! | return doorbell     | reads         | writes   | a pipe: how many returns are new       |
//! | the Unix socket     |               |          | its end is the end of the attachment   |
//!
//! # No index lies in shared memory
//!
//! A ring has a power of two of entries, and each side counts them in memory of its own. The
//! doorbell announces new entries: each byte in the pipe is a number of entries from 1 to 255. So
//! no side can be misled by an index that changes while it is read, and neither can claim to have
//! written what it has not (the entry would be read as what it was before, which is refused).
//!
//! Neither ring can overflow, although no word says how far the other side has read:
//! - L1: a descriptor with a token is outstanding until its token is returned, and at most
//!   `entries` are outstanding. Descriptor number `n` replaces `n - entries`. Tokens that were
//!   returned are among the descriptors that the consumer has read, and it reads in order, so it
//!   has read at least as many as it returned; hence `n - entries` was read.
//! - L2: a token is returned once, so at most `entries` returns wait to be read.
//! - L3: each byte in a doorbell stands for at least one entry, so at most `entries` bytes wait: a
//!   pipe of one page has room for [`ENTRIES_MAX`](layout::ENTRIES_MAX). A full doorbell proves
//!   that the other side broke these rules.
//!
//! # Ordering
//!
//! - E1 deliver: payload and descriptors are written, then the doorbell's `write` -> the doorbell's
//!   `read`, then descriptors and payload are read.
//! - E2 return: reads of the payload, then entries are written, then the doorbell's `write` -> the
//!   doorbell's `read`, then entries are read and pages used anew.
//!
//! The pipe makes both edges: the kernel takes and releases the lock of one pipe in `write` and in
//! `read`, which is release and acquire on every machine it runs on, and a byte cannot be read
//! before it was written. So a language without atomics may be a consumer. Entries are accessed as
//! aligned words all the same: a hostile writer must not cause undefined behaviour in a reader, and
//! cannot if both use relaxed atomics.
//!
//! A doorbell is a pipe and not an eventfd, whose two ends are one open file: a process that has
//! received it may clear `O_NONBLOCK`, fill the counter, and so put the server's next `write` to
//! sleep. The ends of a pipe are two open files with flags of their own.
//!
//! # What a hostile consumer can do
//!
//! - Map a region or the descriptor ring writable, write to it or punch holes in it: refused, as
//!   `F_SEAL_FUTURE_WRITE` was set after the server's own mapping. Opening the descriptor anew does
//!   not help: the seal is the file's.
//! - Shrink or grow anything shared: refused, as it is sealed, so no process gets a `SIGBUS`.
//! - Write anything to the return ring, also while it is read: an entry is loaded once, to memory
//!   of the server's, and a token is accepted only from the consumer that holds it.
//! - Return a token twice, or a forged, stale or foreign one: refused and counted; after
//!   [`REFUSALS_MAX`](limits::REFUSALS_MAX) refusals the consumer is detached.
//! - Announce more returns than it wrote: the entries before are read again, and are stale.
//! - Flood the return doorbell: a bounded number of bytes is read each round, and each claim is a
//!   refusal.
//! - Return nothing, or leave its doorbell unread: its window fills and its producers wait.
//! - Fill its own doorbell: the server's write, which never waits, finds it full and detaches it.
//! - Read a page that it has returned: it sees what was received there since. Consumers of one
//!   listener can read all that is received there, in any case.
//! - Die at any moment: what it held is taken back, exactly.
//!
//! A process that may trace the server (same user, no hardening) needs none of this.
#![forbid(unsafe_code)]

pub mod framing;
pub mod handshake;
pub mod layout;
pub mod limits;
