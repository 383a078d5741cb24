//! Consumer of messages that `flatpath serve --ingest` receives: they are read in the memory where
//! the kernel put them, and no byte of them is copied on the way.
//!
//! ```no_run
//! use flatpath_consumer::Consumer;
//!
//! let mut consumer = Consumer::attach("/run/flatpath/ingest")?;
//! while let Some(message) = consumer.receive()? {
//!     let bytes: usize = message.fragments().iter().map(|fragment| fragment.len()).sum();
//!     println!("{bytes} bytes from producer {}", message.producer());
//! } // dropped: the memory goes back to the server
//! # Ok::<(), flatpath_consumer::Error>(())
//! ```
//!
//! A message comes whole and consists of fragments, as many as receives it took. Each fragment
//! holds a page of the server's until it is dropped, by any thread. A consumer that holds as many
//! as its window ([`Consumer::window`]) gets no more, and its producers wait. Returns
//! are gathered: they are announced in batches and whenever [`Consumer::receive`] waits.
//!
//! A server that is relieved by another one (`--handover`) is followed: the consumer attaches to
//! the next one at the same path, and gets the rest of the first one's messages as well.
//!
//! Delivery is at most once: what was delivered to a consumer that dies is not delivered again.
//!
//! The server is trusted to leave alone what a consumer holds. The place of a fragment is checked
//! against the size of the memory all the same.
#![forbid(unsafe_code)]

mod attach;
mod attachment;
mod consumer;
mod error;
mod message;
mod returns;

pub use attach::{Attached, attach};
pub use consumer::Consumer;
pub use error::Error;
pub use message::{Fragment, Message};
