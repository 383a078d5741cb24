//! ONC RPC version 2 (RFC 5531) over streams, with XDR (RFC 4506).
//!
//! A reader's way through: `record` finds records in bytes, `message` opens calls, `auth` says who
//! calls, `xdr` reads arguments and writes results, `reply` builds an answer in pooled buffers,
//! `duplicate_requests` answers repeated calls, and `server` makes all of it a protocol of the
//! engine. Everything but `server` and `job` is without input and output: no descriptor, no clock,
//! no thread.
//!
//! Not here: datagrams (an amplifier), calls to clients, RPCSEC_GSS, TLS.
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
mod job;
mod server;
#[cfg(test)]
mod testing;

pub use auth::{AuthStatus, Credential, Groups};
pub use flatpath::NoRoom;
pub use job::RpcJob;
pub use message::{Accepted, Call, Denied, Refusal, open};
pub use programs::{CallOutcome, Programs, Route};
pub use record::{Arguments, Data};
pub use reply::Reply;
pub use server::{Rpc, RpcSession};
