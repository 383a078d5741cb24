//! HTTP/1.1 and HTTP/2 for Flatpath: strict framing, the http crate's types at the border.
//!
//! # A handler
//!
//! ```no_run
//! use flatpath_http::flatpath::{Error, Server};
//! use flatpath_http::{Http, IntoResponse, Request};
//!
//! fn hello(request: Request) -> impl IntoResponse {
//!     format!("hello, {}\n", request.uri().path())
//! }
//!
//! fn main() -> Result<(), Error> {
//!     // Workers run the handler: it may block.
//!     Server::new().listen("127.0.0.1:8080", Http::pooled(hello)).run()
//! }
//! ```
//!
//! A [`Handler`] takes the request, a look at it (`&Request`), or up to eight arguments that are
//! made of it ([`FromRequest`]), and returns what is [`IntoResponse`]. A body arrives completely
//! before its handler runs, up to 1 MiB unless [`Http::limits`] say otherwise
//! ([`Limits::body_bytes_max`]); a longer one is answered with 413.
//!
//! A panic of a handler is a 500, closes its connection (of HTTP/2: ends its stream), and is logged
//! with method and path. The
//! crate logs through the `log` crate: a program installs the logger.
//!
//! # Routes
//!
//! A [`Router`] sends requests to handlers by path and method. [`Parameters`] are those of the
//! path, [`State`] is what all handlers share, or a part of it ([`FromRef`]), [`Extension`] what a
//! layer hands on; what a type of your own is made of is told by [`FromRequestParts`] and
//! [`FromRequest`]. [`check_handler!`] has the compiler name what keeps a function from being a
//! handler. [`Host`], [`Peer`] and [`Tls`] tell where a request is sent to and where it comes from,
//! [`Either`] is one of two.
//!
//! [`Multipart`] is a form with files, and [`MultipartUpload`] takes a large one while it arrives:
//! see [`multipart`]. With the feature `cookies` there are jars of cookies, with `secure-cookies`
//! those that clients cannot change, and with `typed-headers` headers of the crate `headers`.
//!
//! ## Through serde
//!
//! With the feature `json`, `Path`, `Query`, `Form` and `Json` are arguments of any type that serde
//! can read, and `Json` is a reply. What does not fit is refused with 400, 415 or 422, and a line
//! that names the field:
//!
#![cfg_attr(feature = "json", doc = "```")]
#![cfg_attr(not(feature = "json"), doc = "```ignore")]
//! use flatpath_http::http::StatusCode;
//! use flatpath_http::{Http, Json, Path, Router};
//! use serde::{Deserialize, Serialize};
//!
//! #[derive(Serialize)]
//! struct Note {
//!     id: u64,
//!     text: String,
//! }
//!
//! #[derive(Deserialize)]
//! struct NewNote {
//!     text: String,
//! }
//!
//! fn find(Path(id): Path<u64>) -> Option<Json<Note>> {
//!     (id == 7).then(|| Json(Note { id, text: "buy milk".to_owned() }))
//! }
//!
//! fn add(Json(new): Json<NewNote>) -> (StatusCode, Json<Note>) {
//!     (StatusCode::CREATED, Json(Note { id: 8, text: new.text }))
//! }
//!
//! let http = Http::service(Router::new().get("/notes/{id}", find).post("/notes", add));
//! ```
//!
//! # On which thread
//!
//! [`Http::inline`] runs a handler on the network thread, for what takes microseconds and never
//! blocks; [`Http::prompt`] tries it there, for what seldom blocks; [`Http::routed`] decides per
//! request; [`Http::service`] takes a [`Service`].
//!
//! # Responses that last
//!
//! [`Body::channel`] makes a body that any thread feeds while it is sent; [`sse`] has server-sent
//! events, for one client and for all. Neither holds a thread while it waits. A body that is read
//! ([`Body::reader`]) is read by workers, a chunk at a time. A response that is made elsewhere, by
//! a future, say, is a [`Deferred`].
//!
//! # A streamed upload
//!
//! A route that is [`streamed`](Methods::streamed) gets a body piece by piece, in a [`Sink`], while
//! it arrives. No thread waits for the client; while a worker is busy with a piece, the next one
//! gathers up to a bound, and then the client has to wait. [`Upload::to`] is the sink of a file.
//!
//! ```
//! use flatpath_http::{
//!     Http, IntoResponse, Payload, Response, Router, Sink, Upload, WorkerScope, routing,
//! };
//! use flatpath_test::{Conditions, TestServer, each_seed};
//!
//! /// Answers an upload with the number of its bytes.
//! struct Counter {
//!     bytes: usize,
//! }
//!
//! impl Sink for Counter {
//!     fn write(
//!         &mut self,
//!         piece: &mut Payload,
//!         _: &mut WorkerScope<'_>,
//!     ) -> Result<(), Box<Response>> {
//!         self.bytes += piece.len();
//!         Ok(())
//!     }
//!
//!     fn finish(self: Box<Self>, _: &mut WorkerScope<'_>) -> Response {
//!         format!("{} bytes\n", self.bytes).into_response()
//!     }
//! }
//!
//! /// Called when the head has arrived.
//! fn count() -> Upload {
//!     Upload::new(Counter { bytes: 0 })
//! }
//!
//! // In a test: a seed decides when which part arrives, and when workers run.
//! each_seed(20, |seed| {
//!     let router = Router::new().route("/count", routing::put(count).streamed());
//!     let mut server = TestServer::new(Conditions::rough(seed), Http::service(router));
//!     let client = server.connect();
//!     client.write(b"PUT /count HTTP/1.1\r\nHost: h\r\nContent-Length: 100000\r\n\r\n");
//!     client.write(&[b'x'; 100_000]);
//!     let mut reply = Vec::new();
//!     server.run_until(|| {
//!         reply.extend(client.read());
//!         reply.ends_with(b"100000 bytes\n")
//!     });
//! });
//! ```
//!
//! # A test of a handler
//!
//! The same kit tests a handler as its clients see it, without a socket: heads, bodies, errors and
//! deadlines. For a parsed request alone there is [`testing`].
//!
//! ```
//! use flatpath_http::{Http, Request, Response};
//! use flatpath_test::{Conditions, TestServer};
//!
//! fn hello(request: &Request) -> Response {
//!     Response::new(format!("hello, {}\n", request.uri().path()).into())
//! }
//!
//! let mut server = TestServer::new(Conditions::calm(7), Http::pooled(hello));
//! let client = server.connect();
//! client.write(b"GET /you HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
//! let reply = server.read_to_end(&client);
//! assert!(reply.starts_with(b"HTTP/1.1 200 OK\r\n"));
//! assert!(reply.ends_with(b"hello, /you\n"));
//! ```
//!
//! # HTTP/2
//!
//! With the feature `http2` a client gets HTTP/2 (RFC 9113) that asks for it: in the handshake of
//! TLS, or by its first bytes. A handler sees it in [`Request::version`](http::Request::version)
//! alone. A connection has up to 100 streams, each with the deadlines of a request of HTTP/1, and
//! takes 256 KiB of a body ahead. While it is idle it takes about a kibibyte of memory, and no
//! buffer; each open stream is charged 2 KiB. A client that agrees on one version by ALPN and
//! speaks the other is refused.
//!
//! # What it does not do
//!
//! TLS, `CONNECT`, transfer codings other than `chunked`. Over HTTP/2: server push, upgrades other
//! than [tunnels](tunnel()).
//!
//! The parser, the decoder and the encoders touch no descriptor, clock or thread, and are open to
//! tests and fuzzing through [`Scan`], [`Decoder`] and [`testing`].
#![forbid(unsafe_code)]

// The modules, in reading order:
//
// | step    | modules                              | what they do                        |
// |---------|--------------------------------------|-------------------------------------|
// | border  | `protocol`, `service`, `closures`    | the engine's protocol; what answers |
// | handler | `handler`, `extract`, `into_response` | functions as services              |
// | routes  | `router`, `methods`, `parameters`    | paths to handlers                   |
// | routes  | `matched_path`, `mount`              | a route's path; services in a router |
// | routes  | `layer`, `answer`, `time_out`        | what is around handlers             |
// | routes  | `streamed`                           | uploads                             |
// | sites   | `sites`                              | services by host                    |
// | handler | `either`, `host`, `from_ref`         | more of what they take and return   |
// | handler | `check`                              | why a function is no handler        |
// | handler | `multipart`                          | forms with files                    |
// | handler | `cookies`, `typed_header`            | headers as types                    |
// | serde   | `path`, `form`, `json`, `fields`     | what handlers take and return       |
// | serde   | `problem`                            | errors for programs                 |
// | state   | `state`                              | listener, network thread, session   |
// | input   | `read`, `pending_body`               | from bytes to requests, and stalls  |
// | input   | `admission`                          | what becomes of a request           |
// | uploads | `upload`, `sink`, `around`           | bodies taken piece by piece         |
// | parse   | `scan`, `parse`, `target`, `framing` | RFC 9112 around httparse            |
// | values  | `header_values`                      | lists, codings, entity tags         |
// | guard   | `hosts`, `origins`                   | requests for others, or from others |
// | bodies  | `body`, `trailers`                   | lengths, chunks, what follows them  |
// | request | `request_builder`, `names`, `message` | the http crate's types, recycled   |
// | work    | `exchange`, `stream`                 | what a worker does with a request   |
// | reply   | `reply`, `respond`, `encode`, `date` | heads as bytes                      |
// | output  | `write`, `push`                      | replies in order, bounded streams   |
// | streams | `feed`, `channel`, `broadcast`       | bodies fed from elsewhere           |
// | streams | `deferred`, `defer`                  | responses made elsewhere            |
// | end     | `upgrade`, `tunnel`                  | other protocols on the connection   |
// | HTTP/2  | `h2`                                 | frames, HPACK, streams of the above |

#[cfg(feature = "cookies")]
pub mod cookies;
pub mod limits;
pub mod multipart;
pub mod testing;

mod chars;
mod fault;
mod scan;
mod head;
pub mod header_values;
mod client;
mod target;
mod dots;
mod hosts;
mod framing;
mod parse;
mod body;
mod date;
mod encode;
mod words;
mod prebuilt;
mod respond;
mod message;
mod names;
mod request_builder;
mod outgoing;
mod reply;
mod service;
mod sink;
mod around;
mod peer;
mod pending_body;
mod exchange;
mod stream;
mod channel;
mod event;
mod broadcast;
mod history;
mod feed;
mod file_body;
mod push;
pub mod sse;
#[cfg(feature = "http2")]
mod h2;
mod state;
mod due;
mod write;
mod defer;
mod tunnel;
mod upgrade;
mod trailers;
mod origins;
mod upload;
mod admission;
mod read;
mod refuse;
mod records;
mod protocol;
mod into_response;
mod carried;
mod request_id;
mod deferred;
mod answer;
mod extract;
mod from_ref;
mod either;
mod host;
mod handler;
#[doc(hidden)]
pub mod check;
mod closures;
mod parameters;
mod matched_path;
mod layer;
mod mount;
mod methods;
mod streamed;
mod whole;
mod time_out;
mod terms;
mod client_watch;
mod router;
mod site_match;
mod site_terms;
mod sites;
mod live_sites;
#[cfg(feature = "json")]
mod fields;
#[cfg(feature = "json")]
mod path;
#[cfg(feature = "json")]
mod form;
#[cfg(feature = "json")]
mod json;
#[cfg(feature = "json")]
mod problem;
#[cfg(feature = "typed-headers")]
mod typed_header;

pub mod routing {
    //! Functions that begin the handlers of a path: `routing::get(list).post(add)`.

    pub use crate::methods::{any, delete, get, head, options, patch, post, put};
}

pub use ::bytes::Bytes;
#[cfg(feature = "typed-headers")]
pub use ::headers;
pub use ::http;
pub use answer::{Answer, IntoAnswer};
pub use body::{Decoder, Piece};
pub use channel::{SendError, Sender, TrySendError};
pub use client::ForwardedHeader;
pub use client_watch::ClientWatch;
pub use closures::{HandlerService, HandlerState, Route};
pub use deferred::{Deferred, Responder, ResponderClosed};
pub use dots::without_dot_segments;
pub use either::Either;
pub use exchange::Exchange;
pub use extract::{
    Asks, Extension, ExtensionRejection, FromRequest, FromRequestParts, OptionalFromRequest,
    OptionalFromRequestParts, State, StringRejection, ViaParts, ViaRequest,
};
pub use fault::Fault;
pub use feed::Receiver;
#[cfg(feature = "json")]
pub use fields::FieldError;
pub use file_body::FileBody;
pub use flatpath;
pub use flatpath::memory::{Payload, RegionConfig};
pub use flatpath::{Turn, WorkerScope};
#[cfg(feature = "json")]
pub use form::{Form, FormRejection, Query, QueryRejection};
pub use from_ref::FromRef;
pub use handler::{ByReference, Handler};
pub use head::{Framing, Head, HeadNote, KnownHeader, TargetForm};
pub use host::{Host, HostRejection};
pub use hosts::{HostPattern, Hosts, InvalidHost};
pub use into_response::{AppendHeaders, Html, IntoHeaders, IntoResponse, InvalidHeader, Redirect};
#[cfg(feature = "json")]
pub use json::{Json, JsonRejection};
pub use layer::{Layer, Needs, Next, WholeBody};
pub use limits::Limits;
pub use live_sites::{LiveSites, LiveSitesHandle, LiveSitesState};
pub use matched_path::{MatchedPath, MatchedPathRejection};
pub use message::{Body, Reader, Request, Response};
pub use methods::Methods;
pub use mount::Mount;
pub use multipart::{Multipart, MultipartUpload};
pub use origins::{InvalidOrigin, OriginPattern, Origins};
pub use parameters::Parameters;
#[cfg(feature = "json")]
pub use path::{Path, PathRejection};
pub use peer::{Peer, PeerRejection, Tls, TlsRejection};
pub use prebuilt::{PrebuiltHead, amend_headers};
#[cfg(feature = "json")]
pub use problem::Problem;
pub use reply::{Disposition, Reply};
pub use request_id::RequestId;
pub use router::{Router, RouterState, TrailingSlash};
pub use scan::Scan;
pub use service::{BodyPlan, Place, Plan, Service};
pub use sink::{Sink, UploadDecision};
pub use site_match::{SiteKey, SiteMatch};
pub use site_terms::SiteTerms;
pub use sites::{InvalidSite, Sites, SitesState};
pub use state::{Http, Session, ThreadState};
pub use streamed::Upload;
pub use terms::{Terms, Work, WorkerParts};
pub use time_out::TimeOut;
pub use trailers::{LateTrailers, Trailers, TrailersEnd};
pub use tunnel::{Tunnel, TunnelStream, TunnelWork};
#[cfg(feature = "typed-headers")]
pub use typed_header::{TypedHeader, TypedHeaderRejection};
pub use upgrade::{tunnel, upgrade};
