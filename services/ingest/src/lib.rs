//! Ingest for Flatpath: producers send messages over TCP, consumers are other processes that read
//! them in the memory where the kernel put them.
//!
//! ```text
//! producer ─TCP─► session: length, fragments ─► consumer: tokens, descriptor ring ═► process
//!                    │ waits for room of its consumer    ▲ returns: control thread ◄═══┘
//! ```
//!
//! # Contract
//! - A message is a length (four bytes, big endian) and as many bytes; a length of zero only proves
//!   that the producer lives. `flatpath-messages` also has the shared memory and the handshake.
//! - A consumer gets whole messages. Those of one producer come in order, to one consumer: the next
//!   in turn when the producer's first message begins, until either has left.
//! - Delivery is **at most once**. The producer gets no acknowledgement. A message that was
//!   delivered to a consumer that dies is not delivered again, whether it was read or not; a
//!   message that was not delivered yet, all or part of it, goes to the next consumer. A message
//!   whose producer leaves before its end is dropped.
//! - A producer that names a token before its first message belongs to the consumer that names the
//!   same, and to no other; the first of the two waits. A token has one of each at a time.
//! - A producer whose consumer has no room is not received from, and no other producer is touched.
//!   Without any consumer all producers wait.
//! - A consumer can return only what it holds. What it held when it died is taken back, exactly.
//! - When another process takes over ([`Ingest::hand_over`]), a producer reads the end of this
//!   side's stream: it ends its message and connects again. All that it sends until then is
//!   delivered here. One that waits, and no consumer is attached here, is reset. Consumers are
//!   told to attach to the other process as well; they stay attached here until the end.
//!
//! # How the memory is divided
//! All memory is one region per network thread, fixed at start. Half of its pages are for what
//! waiting producers have sent, one page each: as many producers may connect. Of the rest, a part
//! stays with the kernel, and each possible consumer has an equal share: its window. A message
//! begins only when its consumer's window has room for all of it, so every message that has begun
//! can be delivered, and no order of arrivals is a deadlock.
//!
//! # Threads
//! Network threads deliver, and collect returns after each turn; the control thread attaches
//! consumers, collects the other returns and notices deaths. They share each consumer's lock, which
//! is held for a message or a batch of returns, and never over a system call that waits.
#![forbid(unsafe_code)]

mod settings;
mod statistics;
mod wakeup;
mod window;
mod consumer;
mod consumers;
mod pairing;
mod session;
mod shared;
mod handshake;
mod control;
mod protocol;

pub use control::{Control, ControlThread};
pub use protocol::Ingest;
pub use session::Session;
pub use settings::{Error, Settings};
pub use statistics::{Figures, METRICS};
