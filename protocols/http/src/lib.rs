//! HTTP/1.1 for Flatpath.
#![forbid(unsafe_code)]

pub mod limits;
pub mod trial;

mod chars;
mod fault;
mod scan;
mod head;
mod target;
mod framing;
mod parse;
mod body;
mod date;
mod encode;
mod respond;
mod message;
mod names;
mod draft;
mod reply;
mod service;
mod incoming;
mod exchange;
mod session;
mod hand;
mod intake;
mod delivery;
mod protocol;
mod closures;

pub use crate::protocol::{Http, Lane};
pub use ::http;
pub use body::{Decoder, Piece};
pub use closures::{Bench, Inline, Pooled, Route, Routed};
pub use exchange::Exchange;
pub use fault::Fault;
pub use flatpath::{Turn, WorkerScope};
pub use head::{Form, Framing, Head, Known, Room};
pub use limits::Limits;
pub use message::{Body, Reader, Request, Response};
pub use parse::parse;
pub use reply::{Fields, Reply};
pub use scan::Scan;
pub use service::{Run, Service};
pub use session::Session;
