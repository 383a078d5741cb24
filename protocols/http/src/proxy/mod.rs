//! A reverse proxy: requests that other servers answer.
//!
//! ```text
//! client ─► service: head written anew ─► trip ─► policy: which server ─► idle connection, or new
//!    ▲         └─ body, piece by piece: Passage ─────────────────────────────┐    │
//!    │                                                                        ▼    ▼
//!    └── response ◄── Responder ◄── reply: fields ◄── codec ◄── connection to the server
//!    └── body ◄────── channel ◄───────────────────────────────────┘
//! ```
//!
//! All of it happens on network threads. What of it has I/O is in `connection` and `trip`; the
//! others are functions of what they are handed: bytes ([`codec`], [`request`], [`reply`]) and
//! times ([`policy`]).
//!
//! What was taken from those before: nginx's users know 502 for a request that met a connection
//! that was just being closed (Caddy's issue 6452, HAProxy's 1423, h2o's 281), so such a request is
//! sent again where RFC 9110 9.2.2 lets it be, and connections are kept for less time than any
//! server keeps them. nginx sent POST twice until 1.9.13: here never. Proxies that passed on what
//! they had read differently were smuggled through (Pingora's issues 674 and 945): here heads are
//! written anew, and what two could read differently is refused. Events came late from proxies that
//! buffer (Caddy's 677, 6293): here each piece goes on at once. Fields that name the client were
//! believed: here they are written anew unless an operator says otherwise.

mod codec;
mod connection;
mod failure;
mod policy;
mod reply;
pub(crate) mod request;
mod seat;
pub(crate) mod service;
mod switched;
mod trip;
pub(crate) mod upstream;

pub use policy::choice::Balance;
