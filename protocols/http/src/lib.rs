//! HTTP/1.1 for Flatpath: strict framing, the http crate's types at the border.
//!
//! ```no_run
//! use flatpath::Server;
//! use flatpath_http::{Http, Request, Response};
//!
//! fn hello(request: &Request) -> Response {
//!     Response::new(format!("hello, {}\n", request.uri().path()).into())
//! }
//!
//! # fn main() -> Result<(), flatpath::Error> {
//! // Workers run the handler: it may block.
//! Server::new().listen("127.0.0.1:8080", Http::pooled(hello)).run()
//! # }
//! ```
//!
//! In reading order:
//!
//! | step    | modules                              | what they do                        |
//! |---------|--------------------------------------|-------------------------------------|
//! | border  | `protocol`, `service`, `closures`    | the engine's protocol; what answers |
//! | state   | `state`                              | listener, network thread, session   |
//! | input   | `read`, `pending_body`               | from bytes to requests, and stalls  |
//! | uploads | `upload`, `sink`                     | bodies taken piece by piece         |
//! | parse   | `scan`, `parse`, `target`, `framing` | RFC 9112 around httparse            |
//! | bodies  | `body`                               | lengths, chunks, trailers           |
//! | request | `request_builder`, `names`, `message` | the http crate's types, recycled   |
//! | work    | `exchange`, `stream`                 | what a worker does with a request   |
//! | reply   | `reply`, `respond`, `encode`, `date` | heads as bytes                      |
//! | output  | `write`                              | replies in order, bounded streams   |
//!
//! The parser, the decoder and the encoders touch no descriptor, clock or thread, and are open to
//! tests and fuzzing through [`Scan`], [`parse`](parse()), [`Decoder`] and [`testing`].
//!
//! Deliberately absent: HTTP/2, TLS, upgrades, `CONNECT`, transfer codings other than `chunked`,
//! trailers (checked and dropped), merging of request bodies with trailers.
#![forbid(unsafe_code)]

pub mod limits;
pub mod testing;

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
mod request_builder;
mod reply;
mod service;
mod sink;
mod pending_body;
mod exchange;
mod stream;
mod state;
mod write;
mod upload;
mod read;
mod protocol;
mod closures;

pub use ::http;
pub use body::{Decoder, Piece};
pub use closures::{HandlerState, Inline, Pooled, Route, Routed};
pub use exchange::Exchange;
pub use fault::Fault;
pub use flatpath::{Payload, RegionConfig, Turn, WorkerScope};
pub use head::{Framing, Head, HeaderSlots, KnownHeader, TargetForm};
pub use limits::Limits;
pub use message::{Body, Reader, Request, Response};
pub use parse::parse;
pub use reply::{Disposition, Reply, ReplyHeaders};
pub use scan::Scan;
pub use service::Service;
pub use sink::{Sink, UploadDecision};
pub use state::{Http, Session, ThreadState};
