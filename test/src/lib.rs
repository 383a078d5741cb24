//! The test kit of Flatpath: a whole server in one thread, with a network, clients and a clock of
//! its own.
//!
//! The engine's code is the product's; the kernel is simulated. A seed decides when which part of
//! the bytes arrives, when workers run and what goes wrong, so that a failure can be repeated. A
//! test takes microseconds of real time for seconds of simulated time, and waits for what it wants
//! to see: a wait has a bound in simulated time, and what never comes fails the test.
//!
//! ```
//! use flatpath::{Context, Protocol, Received};
//! use flatpath_test::{ClientState, Conditions, TestServer, each_seed};
//!
//! /// Says everything twice.
//! struct Twice;
//!
//! impl Protocol for Twice {
//!     type ThreadState = ();
//!     type Session = ();
//!     type Job = ();
//!
//!     fn received(&self, context: &mut Context<'_, Self>, input: &[u8]) -> Received {
//!         context.write(&input.repeat(2)).expect("a short reply");
//!         Received::Consumed
//!     }
//! }
//!
//! // 50 runs; a failing one names its seed, and FLATPATH_SEED=N repeats it alone.
//! each_seed(50, |seed| {
//!     let mut server = TestServer::new(Conditions::rough(seed), Twice);
//!     let client = server.connect();
//!     client.write(b"a");
//!     assert_eq!(server.read_exact(&client, 2), b"aa");
//!
//!     client.shutdown_write();
//!     server.run_until(|| client.state() == ClientState::Finished);
//!     // Dropped, the server drains, and fails the test if anything was not given back.
//! });
//! ```
//!
//! # What to look at
//!
//! | for                                            | see                                      |
//! |------------------------------------------------|------------------------------------------|
//! | what goes wrong, and how often                 | [`Conditions`], [`Faults`]               |
//! | deadlines                                      | [`SimulatedServer::advance`]             |
//! | servers that connections are opened to         | [`World::upstream`], [`Upstream`]        |
//! | a slow reader, a kernel without descriptors    | [`SimulatedServer::world`], [`World`]    |
//! | an event of the test's own order               | [`SimulatedServer::turn`]                |
//! | the drain                                      | [`SimulatedServer::drain`]               |
//! | counters                                       | [`SimulatedServer::statistics`]          |
//! | what was not given back                        | [`TestServer::end`]                      |
//! | requests of HTTP, and their replies            | [`Requests`], [`HttpConnection`], [`Reply`] |
//! | messages of a framed protocol                  | [`MessageClient`]                        |
//! | the same on a real address                     | [`HttpClient`], [`MessageClient::connect`] |
//!
//! # Speed
//!
//! Without optimisation the simulation takes several times as long, and tests of many seeds are
//! most of a suite. Cargo builds dependencies of tests without it unless the program's `Cargo.toml`
//! says otherwise:
//!
//! ```toml
//! [profile.dev.package."*"]
//! opt-level = 1
//! ```
//!
//! Not simulated: threads of a program's own, files, and other sockets than the listeners'.
#![forbid(unsafe_code)]

mod http;
mod messages;
mod server;

pub use flatpath::simulation::{
    Answer, Client, ClientState, Conditions, Fault, Faults, Injected, Leaks, Random,
    SimulatedServer, Upstream, World, each_seed,
};
pub use flatpath_test_client::{Socket, Wire};
pub use http::{
    Http, HttpClient, HttpConnection, OnServer, Received, Reply, Request, Requests, Upload,
};
pub use messages::MessageClient;
pub use server::TestServer;
