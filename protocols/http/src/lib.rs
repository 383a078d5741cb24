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
// | folder                      | its job                                                    |
// |-----------------------------|------------------------------------------------------------|
// | `service`, `handler`        | what answers a request: services, and functions as such    |
// | `extract`                   | what functions take; `cookies` and `multipart` as well     |
// | `respond`                   | what they return, on its way to its client                 |
// | `router`, `layer`, `sites`  | which function answers, what is around it, for which host  |
// | `head`, `header_values`     | requests as they arrive: their rules, without I/O          |
// | `connection`                | from a head to a decision and a job; the engine's protocol |
// | `h1`, `h2`                  | the two versions: their framing, and nothing else          |
// | `streams`                   | responses that last, or come later                         |
// | `proxy`                     | requests that other servers answer                         |
// | `takeover`                  | other protocols on the connection                          |
// | `message`, `trailers`       | requests, responses and bodies as types                    |
// | `limits`                    | all bounds                                                 |
// | `testing`                   | the crate without a server                                 |

#[cfg(feature = "cookies")]
pub mod cookies;
pub mod limits;
pub mod multipart;
pub mod testing;

mod head;
mod h1;
mod connection;
mod streams;
mod takeover;
pub mod header_values;
mod respond;
mod message;
mod service;
#[cfg(feature = "http2")]
mod h2;
mod trailers;
mod extract;
mod handler;
mod layer;
mod router;
mod sites;
mod proxy;

pub mod routing {
    //! Functions that begin the handlers of a path: `routing::get(list).post(add)`.

    pub use crate::router::methods::{any, delete, get, head, options, patch, post, put};
}

pub use ::bytes::Bytes;
#[cfg(feature = "typed-headers")]
pub use ::headers;
pub use ::http;
pub use connection::client::ForwardedHeader;
pub use connection::client_watch::ClientWatch;
pub use connection::exchange::Exchange;
pub use connection::state::{Http, Session, ThreadState};
#[cfg(feature = "json")]
pub use extract::fields::FieldError;
#[cfg(feature = "json")]
pub use extract::form::{Form, FormRejection, Query, QueryRejection};
pub use extract::from_ref::FromRef;
pub use extract::host::{Host, HostRejection};
#[cfg(feature = "json")]
pub use extract::json::{Json, JsonRejection};
#[cfg(feature = "json")]
pub use extract::path::{Path, PathRejection};
pub use extract::peer::{Peer, PeerRejection, Tls, TlsRejection};
pub use extract::request_id::RequestId;
#[cfg(feature = "typed-headers")]
pub use extract::typed_header::{TypedHeader, TypedHeaderRejection};
pub use extract::{
    Asks, Extension, ExtensionRejection, FromRequest, FromRequestParts, OptionalFromRequest,
    OptionalFromRequestParts, State, StringRejection, ViaParts, ViaRequest,
};
pub use flatpath;
pub use flatpath::memory::{Payload, RegionConfig};
pub use flatpath::{Turn, WorkerScope};
pub use h1::body::{Decoder, Piece};
#[doc(hidden)]
pub use handler::check;
pub use handler::either::Either;
pub use handler::{ByReference, Handler};
pub use head::dots::without_dot_segments;
pub use head::fault::Fault;
pub use head::scan::Scan;
pub use head::{Framing, Head, HeadNote, KnownHeader, TargetForm};
pub use layer::answer::{Answer, IntoAnswer};
#[cfg(feature = "json")]
pub use layer::problem::Problem;
pub use layer::time_out::TimeOut;
pub use layer::{Layer, Needs, Next, WholeBody};
pub use limits::Limits;
pub use message::{Body, Reader, Request, Response};
pub use multipart::{Multipart, MultipartUpload};
pub use proxy::Balance;
pub use proxy::request::{ForwardedFields, HostField};
pub use proxy::service::Proxy;
#[cfg(feature = "tls")]
pub use proxy::upstream::UpstreamTls;
pub use proxy::upstream::{InvalidUpstream, SERVERS_MAX, Upstream, UpstreamLimits, UpstreamServer};
pub use respond::file_body::FileBody;
pub use respond::into_response::{
    AppendHeaders, Html, IntoHeaders, IntoResponse, InvalidHeader, Redirect,
};
pub use respond::prebuilt::{PrebuiltHead, amend_headers};
pub use respond::reply::{Disposition, Reply};
pub use router::matched_path::{MatchedPath, MatchedPathRejection};
pub use router::methods::Methods;
pub use router::mount::Mount;
pub use router::parameters::Parameters;
pub use router::streamed::Upload;
pub use router::{Router, RouterState, TrailingSlash};
pub use service::closures::{HandlerService, HandlerState, Route};
pub use service::sink::{Sink, UploadDecision};
pub use service::terms::{Terms, Work, WorkerParts};
pub use service::{BodyPlan, Place, Plan, Service};
pub use sites::challenges::{HttpChallenges, TooManyChallenges};
pub use sites::hosts::{HostPattern, Hosts, InvalidHost};
pub use sites::live_sites::{LiveSites, LiveSitesHandle, LiveSitesState};
pub use sites::origins::{InvalidOrigin, OriginPattern, Origins};
pub use sites::site_match::{SiteKey, SiteMatch};
pub use sites::site_terms::SiteTerms;
pub use sites::{InvalidSite, Sites, SitesState};
pub use streams::channel::{SendError, Sender, TrySendError};
pub use streams::deferred::{Deferred, Responder, ResponderClosed};
pub use streams::feed::Receiver;
pub use streams::sse;
pub use takeover::tunnel::{Tunnel, TunnelStream, TunnelWork};
pub use takeover::upgrade::{tunnel, upgrade};
pub use trailers::{LateTrailers, Trailers, TrailersEnd};
