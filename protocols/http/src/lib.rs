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

pub use body::{Decoder, Piece};
pub use fault::Fault;
pub use flatpath::{Turn, WorkerScope};
pub use head::{Form, Framing, Head, Known, Room};
pub use limits::Limits;
pub use message::{Body, Reader, Request, Response};
pub use parse::parse;
pub use reply::{Fields, Reply};
pub use scan::Scan;
pub use service::{Run, Service};
