//! Flatpath: a server engine on which every step of a connection costs the same at any size.
//!
//! The engine accepts, receives, sends, counts memory, keeps deadlines, runs blocking work on a
//! bounded set of threads and drains: on io_uring, and on epoll where io_uring is refused, with the
//! same behaviour. A program says what the bytes mean.
//!
//! # A handler
//!
//! Most programs answer HTTP requests. The crate `flatpath-http` is a protocol of this engine; a
//! handler is a function, which a worker thread runs, so it may block (the same program is
//! compiled on that crate's first page):
//!
//! ```ignore
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
//! [`Server::run`] returns when a SIGTERM has come and the requests in flight are answered.
//! [`Server::start`] returns at once, with a [`Running`] server to control. [`Limits`] has every
//! bound that an operator may set.
//!
//! # A streamed upload
//!
//! The body of a request arrives completely before its handler runs, up to a bound. A service that
//! takes longer bodies gets them piece by piece in a `Sink`: see the first page of `flatpath-http`.
//!
//! # A protocol of one's own
//!
//! Where the stream is made of messages, [`framing::Framed`] does what all such protocols have to
//! do, and a function answers each message; see [`framing`]. `examples/cache` in the repository is
//! such a protocol with its test. What follows is the trait underneath.
//!
//! A [`Protocol`] gets bytes on the network thread, and says how many of them it has used. It must
//! not block there: what may block is a job for a worker ([`Context::job`], [`Protocol::run`]).
//! What else happens to a connection is an [`Event`], to which the engine has answers of its own.
//! Memory, for one, may be short at any moment; then a protocol returns [`Received::Blocked`], and
//! is given the same bytes again later.
//!
//! ```no_run
//! use flatpath::{Context, Event, Phase, Protocol, Received, Server, Stall};
//! use flatpath::limits::INPUT_BYTES_MAX;
//!
//! /// Answers each line with its length.
//! struct Lengths;
//!
//! impl Protocol for Lengths {
//!     type ThreadState = (); // what one network thread keeps: caches, say
//!     type Session = (); // what one connection keeps
//!     type Job = (); // what goes to a worker and back
//!
//!     fn received(&self, context: &mut Context<'_, Self>, input: &[u8]) -> Received {
//!         let mut consumed = 0;
//!         for line in input.split_inclusive(|byte| *byte == b'\n') {
//!             if !line.ends_with(b"\n") {
//!                 break;
//!             }
//!             if context.output_is_full() {
//!                 // The client does not read: it is not read from either.
//!                 return Received::Blocked { consumed, on: Stall::Output };
//!             }
//!             let reply = format!("{}\n", line.len() - 1);
//!             if context.write(reply.as_bytes()).is_err() {
//!                 return Received::Blocked { consumed, on: Stall::Memory };
//!             }
//!             consumed += line.len();
//!             // Which deadline guards the connection now: the one between requests.
//!             context.restart_phase(Phase::Idle);
//!         }
//!         if input.len() - consumed >= INPUT_BYTES_MAX {
//!             // No more than this is kept: the line would never be whole.
//!             context.abort();
//!         }
//!         Received::NeedMore { consumed }
//!     }
//!
//!     fn event(&self, context: &mut Context<'_, Self>, event: Event<'_>) {
//!         match event {
//!             // The place to refuse a peer; `peer` is unknown for some kinds of sockets.
//!             Event::Connected if context.peer().is_some_and(|it| !it.ip().is_loopback()) => {
//!                 context.abort();
//!             }
//!             other => other.by_default(context),
//!         }
//!     }
//! }
//!
//! fn main() -> Result<(), flatpath::Error> {
//!     Server::new().listen("127.0.0.1:7777", Lengths).run()
//! }
//! ```
//!
//! # A test
//!
//! The crate `flatpath-test` runs the same engine on a simulated kernel, network and clock, in one
//! thread: a seed decides every fault and every order, so a failure can be repeated. Real sockets
//! show what a protocol does; a simulation shows it for thousands of short reads, resets and late
//! completions.
//!
//! ```
//! use flatpath_test::{Conditions, TestServer, each_seed};
//! # use flatpath::{Context, Protocol, Received};
//! # struct Lengths;
//! # impl Protocol for Lengths {
//! #     type ThreadState = ();
//! #     type Session = ();
//! #     type Job = ();
//! #     fn received(&self, context: &mut Context<'_, Self>, input: &[u8]) -> Received {
//! #         let mut consumed = 0;
//! #         for line in input.split_inclusive(|byte| *byte == b'\n') {
//! #             if !line.ends_with(b"\n") {
//! #                 break;
//! #             }
//! #             let reply = format!("{}\n", line.len() - 1);
//! #             context.write(reply.as_bytes()).expect("a small reply");
//! #             consumed += line.len();
//! #         }
//! #         Received::NeedMore { consumed }
//! #     }
//! # }
//!
//! each_seed(50, |seed| {
//!     // Short receives and sends, late and repeated completions; no lost connections.
//!     let mut server = TestServer::new(Conditions::rough(seed), Lengths);
//!     let client = server.connect();
//!     client.write(b"one\nthree\n");
//!     assert_eq!(server.read_line(&client), "3\n");
//!     client.shutdown_write();
//!     assert_eq!(server.read_to_end(&client), b"5\n");
//! });
//! ```
//!
//! # Further
//!
//! | module          | for                                                                 |
//! |-----------------|---------------------------------------------------------------------|
//! | [`access_log`]  | a line for each reply or connection                                 |
//! | [`address_limit`] | how much of each bound one address may have                          |
//! | [`blocking`]    | calls that may block for long, and how many of them may at a time    |
//! | [`datagrams`]   | UDP: services that answer datagrams                                 |
//! | [`descriptors`] | descriptors that a service keeps open                               |
//! | [`files`]       | files whose content is sent by the kernel                           |
//! | [`framing`]     | messages in a stream, and protocols made of a function for each      |
//! | [`limits`]      | what the code is built around, and what an operator may set         |
//! | [`memory`]      | received bytes, buffers, and bodies made of both                    |
//! | [`metrics`]     | tables of what is counted, which every output walks                 |
//! | [`prompt`]      | requests that need not wait, answered where they arrive             |
//! | [`proxy_header`] | where a client comes from, as a load balancer says it              |
//! | `simulation`    | what the crate `flatpath-test` is built on (a feature)               |
//! | [`statistics`]  | counters                                                            |
//! | [`watch`]       | eventfds that call a function on a network thread                   |
//!
//! # Features
//!
//! On by default: the drivers `uring` and `epoll`, and `handover`, which is [`handover`]. `tls` is
//! [`Server::with_tls`]; `simulation` is for the test kit. `docs/features.md` in the repository has
//! what they are, and how to measure what each costs.
//!
//! `ARCHITECTURE.md` in the repository follows a connection through the code.
#![forbid(unsafe_code)]
#![cfg_attr(
    not(all(any(feature = "epoll", feature = "uring"), feature = "handover")),
    allow(
        dead_code,
        unused_variables,
        reason = "what a driver, or what hands sockets over, would use"
    )
)]

pub mod datagrams;
pub mod files;
pub mod limits;
pub mod memory;
#[cfg(feature = "simulation")]
pub mod simulation;
#[doc(hidden)]
pub mod housekeeper;
#[doc(hidden)]
pub mod regular_file;
pub mod trusted;
pub mod watch;

// The rooms, from what a user calls to what acts:
//
// | room                  | its one job                                                      |
// |-----------------------|------------------------------------------------------------------|
// | server                | what a user calls: options, start, signals, hand-over, the end   |
// | protocol              | what an author implements, and what its calls are given          |
// | connection            | one connection: what it reads, what it sends, when it is slow   |
// | admission             | decides which connections have a place; knows no driver          |
// | memory                | decides who has memory; knows no driver                          |
// | pairs                 | decides what becomes of bytes between two spliced connections    |
// | workers               | runs jobs that may block, and decides how many at a time         |
// | tls, datagrams, watch | what few listeners have                                          |
// | observe               | what is counted, logged and shown                                |
// | network               | acts: the loop of a network thread, one match for each verdict   |
mod admission;

mod connection;
mod error;
mod lists;
mod network;
mod observe;
mod pairs;
mod protocol;
mod server;
mod subnet;
#[cfg(feature = "tls")]
pub mod tls;
#[cfg(not(feature = "tls"))]
#[path = "tls/off.rs"]
mod tls;
mod workers;

pub use admission::address_limit;
pub use admission::descriptors;
pub use admission::turns::ConnectionEnd;
pub use bytes::Bytes;
pub use connection::proxy_header;
pub use error::{Error, LeftBehind, NoRoom};
pub use flatpath_driver::{DriverChoice, DriverConfig, OperationMode, Remote};
#[doc(hidden)]
pub use flatpath_structures::lock;
#[doc(hidden)]
pub use flatpath_structures::panics::contain;
#[doc(hidden)]
pub use flatpath_structures::{impl_error, opaque_debug};
pub use limits::Limits;
pub use observe::access_log;
#[doc(hidden)]
pub use observe::episode;
pub use observe::figures;
pub use observe::metrics;
pub use observe::statistics;
pub use protocol::connect::{Connect, ConnectError, ConnectReason, ConnectStep, TlsFault};
pub use protocol::connection_handle::ConnectionHandle;
pub use protocol::connector::Connector;
pub use protocol::context::{Context, Job, Ticket};
pub use protocol::discard::{copied, discard, discard_bytes, guarded, on_network_thread};
pub use protocol::framing;
pub use protocol::hand_over::HandOver;
pub use protocol::io::Io;
#[doc(hidden)]
pub use protocol::outbox::{Admitted, Flushed, Outbox, Piece, Refused};
pub use protocol::pace::Pace;
pub use protocol::phase::{Phase, Stall};
pub use protocol::successor::Successor;
pub use protocol::tls_terms::{PeerCertificate, TlsTerms};
pub use protocol::turn::Turn;
pub use protocol::{Event, PerThread, Protocol, Received, ThreadEvent};
pub use server::Server;
#[cfg(feature = "handover")]
pub use server::handover;
pub use server::lifecycle::ServerState;
pub use server::listener_limits::ListenerLimits;
pub use server::network_threads::NetworkThreads;
pub use server::options::{
    KeptWork, ListenerOptions, Pages, PartSize, Spread, TlsVersion, WorkersPart,
};
pub use server::running::{Bound, Handle, Running};
pub use server::service_socket::ServiceSocket;
pub use server::signals::{SignalWatch, Stopping};
pub use server::sockets;
pub use subnet::{BadSubnet, Subnet, SubnetMap};
pub use workers::blocking;
pub use workers::prompt;
pub use workers::scope::{JobConnection, WorkerScope};

/// For tests of parts that know no driver.
#[cfg(test)]
use flatpath_driver::simulation::Random;
