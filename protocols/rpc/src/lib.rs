//! ONC RPC version 2 (RFC 5531) over streams and datagrams, with XDR (RFC 4506).
//!
//! A reader's way through: `record` finds records in bytes, `message` opens calls, `auth` says who
//! calls, `xdr` reads arguments and writes results, `reply` builds an answer in pooled buffers,
//! `duplicate_requests` answers repeated calls, `server` makes all of it a protocol of the engine,
//! and `datagrams` a service of it. Everything but `server` and `job` is without input and output:
//! no descriptor, no clock, no thread.
//!
//! ```
//! use flatpath::memory::PoolHandle;
//! use flatpath_rpc::xdr::Writer;
//! use flatpath_rpc::{Arguments, Call, CallOutcome, Programs, Reply, Route, Rpc};
//!
//! /// Every procedure of every program answers with its own number.
//! struct Numbers;
//!
//! impl Programs for Numbers {
//!     fn name(&self) -> &'static str {
//!         "numbers"
//!     }
//!
//!     fn route(&self, _: &Call) -> Route {
//!         Route::Inline
//!     }
//!
//!     fn inline(&self, call: &Call, _: Arguments<'_>, results: &mut Writer<'_>) -> CallOutcome {
//!         results.u32(call.procedure);
//!         CallOutcome::Results
//!     }
//!
//!     fn pooled(
//!         &self,
//!         _: &Call,
//!         _: Arguments<'_>,
//!         _: &mut Reply,
//!         _: PoolHandle<'_>,
//!     ) -> CallOutcome {
//!         CallOutcome::SystemError // `route` sends nothing to workers
//!     }
//! }
//!
//! // In a test: a call of procedure 5 (RFC 5531 section 9), in a record of its own.
//! use flatpath_test::{Conditions, TestServer};
//!
//! let mut server = TestServer::new(Conditions::calm(1), Rpc::new(Numbers));
//! let client = server.connect();
//! let words = [1 << 31 | 40_u32, 9, 0, 2, 100_000, 1, 5, 0, 0, 0, 0];
//! client.write(&words.map(u32::to_be_bytes).concat());
//! let reply = server.read_exact(&client, 32);
//! assert_eq!(reply[4..8], 9_u32.to_be_bytes(), "the number of the call");
//! assert_eq!(reply[28..], 5_u32.to_be_bytes(), "its result");
//! ```
//!
//! Not here: calls to clients, RPCSEC_GSS, TLS of its own.
#![forbid(unsafe_code)]

pub mod limits;
pub mod xdr;
pub mod record;

mod auth;
mod digest;
mod duplicate_requests;
mod record_source;
mod message;
mod programs;
mod origin;
mod reply;
mod reply_counts;
mod admission;
mod job;
mod datagrams;
mod server;
#[cfg(test)]
mod testing;

pub use auth::{AuthStatus, Credential, Groups};
pub use datagrams::RpcDatagrams;
pub use flatpath::NoRoom;
pub use job::RpcJob;
pub use message::{Accepted, Call, Denied, Probe, Refusal, Transport, open};
pub use programs::{CallOutcome, Found, Programs, Route};
pub use record::{Arguments, Data};
pub use reply::{DataRoom, Reply};
pub use reply_counts::ReplyCounts;
pub use server::{Rpc, RpcSession, RpcThread};
