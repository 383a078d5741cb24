//! What tests and benches share: processes, clients, deadlines, swarms of connections.
//!
//! A test starts the `flatpath` binary on a free port ([`Launch`]), talks to it through sockets
//! ([`Client`], [`Swarm`]) or a program ([`tools`]), and looks at it from outside ([`Process`]).
//! [`each_driver!`] makes two tests of a function: one on io_uring, one on epoll.
//!
//! What cannot be done panics, and the panic names it: in a test that is the failure. Every wait
//! has a deadline ([`Deadline`]) and names what it waited for; no test asserts a time. A server
//! that panics fails its test, whatever the test itself saw.
//!
//! The kit depends on no crate of this workspace but the client for tests, which depends on none,
//! so that every crate's tests can use it.
//!
//! Environment: `FLATPATH` names another binary to aim at; `CI=true` turns a missing tool into a
//! failure.
#![forbid(unsafe_code)]
#![allow(missing_debug_implementations, reason = "tests print none of these")]

pub mod alone;
pub mod authority;
pub mod binary;
pub mod cgroup;
pub mod child;
pub mod client;
pub mod clients;
pub mod deadline;
pub mod driver;
pub mod freeze;
pub mod fuse;
pub mod h2_frames;
pub mod https;
pub mod image;
pub mod ingest;
pub mod logged;
pub mod lossy;
pub mod mount;
pub mod nfs;
pub mod process;
pub mod scanner;
pub mod seeds;
pub mod server;
pub mod site;
pub mod skipped;
pub mod supervised;
pub mod swarm;
pub mod tls;
pub mod tools;
pub mod websocket;

pub use alone::in_child;
pub use authority::{Authority, Issued};
pub use cgroup::MemoryGroup;
pub use child::Child;
pub use client::Client;
pub use deadline::{Deadline, Over, patience, stretched, until, until_true};
pub use driver::{Driver, drivers_here};
pub use flatpath_test_client::{Reply, reply};
pub use freeze::Frozen;
pub use fuse::Fuse;
pub use lossy::Lossy;
pub use process::Process;
pub use seeds::noise;
pub use server::{Launch, Server, handovers};
pub use site::Site;
pub use swarm::Swarm;
