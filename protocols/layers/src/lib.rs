//! Ready layers for `flatpath-http`.
//!
//! A layer is put around the handlers and services that a router has so far
//! ([`Router::layer`](flatpath_http::Router::layer)); the one that was added last is the outermost.
//! These are the usual ones, and [`Tower`] puts layers of tower there.
//!
//! | layer               | does                                       | feature                  |
//! |---------------------|--------------------------------------------|--------------------------|
//! | [`Cors`]            | lets pages of other origins read responses |                          |
//! | [`SetRequestId`]    | gives each request an id                   |                          |
//! | [`SecurityHeaders`] | makes browsers more careful                |                          |
//! | [`RouteMetrics`]    | counts responses by route                  |                          |
//! | [`RateLimit`]       | refuses an address what is beyond a rate   |                          |
//! | [`Compression`]     | compresses responses                       | `zstd`, `brotli`, `gzip` |
//! | [`BasicAuth`]       | admits who sends a password                | `auth`                   |
//! | [`BearerAuth`]      | admits who sends a token                   | `auth`                   |
//! | [`BodyEtag`]        | answers 304 to what the client has already | `etag`                   |
//! | [`TracingSpan`]     | puts a span around each request            | `tracing`                |
//! | [`Tower`]           | layers of tower, as those of tower-http    | `tower`                  |
//!
//! [`Guard`] stands around a service, and decides on the network thread, so that what the service
//! answers inline stays inline: by networks, by limits of requests and bytes, and by passwords of a
//! file ([`Htpasswd`], feature `htpasswd`). It is for services that are mounted; [`RateLimit`] and
//! [`BasicAuth`] do the same for handlers.
//!
//! No feature is on by default: what brings a crate of others is left out until it is asked for.
//!
//! An order that suits most programs, from the first that is added to the last:
//!
//! ```
//! use flatpath_http::{Http, InvalidOrigin, Router};
//! use flatpath_layers::{
//!     BearerAuth, BodyEtag, Compression, Cors, RateLimit, SecurityHeaders, SetRequestId,
//!     TracingSpan,
//! };
//!
//! # fn main() -> Result<(), InvalidOrigin> {
//! let router = Router::new()
//!     .get("/report", || "a long report\n".repeat(1000))
//!     .layer(BodyEtag::strong()) // Of the body before compression.
//!     .layer(Compression::new())
//!     .layer(BearerAuth::new("api", [("a long token", "deploy")]))
//!     .layer(RateLimit::per_second(50)) // Also of tokens that are guessed.
//!     .layer(SecurityHeaders::new())
//!     .layer(Cors::origins(["https://app.example.org".parse()?])) // Of refusals as well.
//!     .layer(TracingSpan::new())
//!     .layer(SetRequestId::new());
//! let service = Http::service(router);
//! # Ok(())
//! # }
//! ```
//!
//! A layer runs where the handler runs, also on a network thread; none of these blocks there.
#![forbid(unsafe_code)]
#![cfg_attr(
    not(all(
        feature = "auth",
        feature = "etag",
        feature = "htpasswd",
        feature = "tower",
        feature = "tracing"
    )),
    allow(rustdoc::broken_intra_doc_links, reason = "the table names all layers")
)]

mod clock;
pub mod limits;
mod vary;
mod cors;
mod request_id;
mod security_headers;
mod rate_limit;
mod route_metrics;
#[cfg(any(feature = "brotli", feature = "gzip", feature = "zstd"))]
mod compression;
#[cfg(feature = "auth")]
mod auth;
#[cfg(feature = "htpasswd")]
mod htpasswd;
mod guard;
#[cfg(feature = "etag")]
mod body_etag;
#[cfg(feature = "tracing")]
mod tracing_span;
#[cfg(feature = "tower")]
mod tower;

#[cfg(feature = "auth")]
pub use auth::{AuthUser, BasicAuth, BearerAuth};
#[cfg(feature = "etag")]
pub use body_etag::BodyEtag;
#[cfg(any(feature = "brotli", feature = "gzip", feature = "zstd"))]
pub use compression::{Compression, Effort, Encoding};
pub use cors::Cors;
pub use guard::{Access, AccessHandle, Guard, GuardState};
#[cfg(feature = "htpasswd")]
pub use htpasswd::{Htpasswd, HtpasswdError, PasswordChecks};
pub use rate_limit::RateLimit;
pub use request_id::SetRequestId;
pub use route_metrics::RouteMetrics;
pub use security_headers::SecurityHeaders;
#[cfg(feature = "tower")]
pub use tower::{Tower, TowerBody, TowerHandler};
#[cfg(feature = "tracing")]
pub use tracing_span::TracingSpan;
