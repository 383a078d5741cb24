//! The network thread: one driver, its connections, and one turn after the other.
//!
//! A turn waits for the kernel, handles every completion, takes back what workers have finished,
//! fires deadlines, and wakes a worker if it made work. Everything it wants from the kernel is
//! submitted by the next wait. It never runs code that may block.
//!
//! | file          | what is there                                                    |
//! |---------------|------------------------------------------------------------------|
//! | setup.rs      | builds the thread                                                |
//! | event_loop.rs | the turn, whole: wait, completions, everything else that is due  |
//! |               | **steps of a turn**                                              |
//! | jobs.rs       | what comes back from workers, and what waits for room            |
//! | ahead.rs      | windows of files that workers read before they are sent          |
//! | end_of_turn.rs | the end of the turn: long input, long output                    |
//! | watch.rs      | eventfds whose consumers are called here                         |
//! | ending.rs     | deadlines and drain                                              |
//! | accept.rs     | the same for accept: arms and cancels it, takes in what comes    |
//! | introduce.rs  | connections through a load balancer: where they come from        |
//! | connect.rs    | opens connections that protocols wish                            |
//! | relimit.rs    | limits that change while the server runs                         |
//! | admission.rs  | does what `crate::admission` says: closes, ends and refuses      |
//! | long_lived.rs | ends what addresses hold beyond their share, for others          |
//! |               | **the end of an event**                                          |
//! | conclude.rs   | what follows from an event, for its connection and the tables    |
//! | splice.rs     | two connections: bytes straight from one to the other            |
//! |               | **without a connection**                                         |
//! | datagrams.rs  | what comes without a connection, and its replies                 |
//! |               | **one connection** (`Event`)                                     |
//! | reconcile.rs  | carries out what a call wished: output, receive, end, deadline   |
//! | memory.rs     | does what `crate::memory` says of it, and in each turn of all    |
//! | receive.rs    | bytes in: what the inbox says is next                            |
//! | supply.rs     | pages and buffers for the inbox                                  |
//! | piped.rs      | long bodies in, by reference                                     |
//! | written.rs    | what was in records, in pages of the listener's own              |
//! | secure.rs     | TLS between the socket and the protocol                          |
//! | long_input.rs | input that takes long, and connections that bring much           |
//! | send.rs       | bytes out                                                        |
//! | wide.rs       | how much of them the kernel takes at a time                      |
//! | refuse.rs     | ends it for lack of room, or for what it holds                   |
//! | logging.rs    | its line in the access log                                       |
//! |               | **tables**                                                       |
//! | thread.rs     | all of them, and `Event`: one connection, borrowed once          |
//! | bulk.rs       | what makes input long, and a connection bulk                     |
//! | sends.rs      | what sends share                                                 |
//! | timers.rs     | when the next chore is due                                       |
//! | pending.rs    | what was found and is not handled yet                            |
//! | drain.rs      | which protocols are left to notify of a drain                    |
//! | listening.rs  | listeners, and their sockets                                     |
//! | sources.rs    | eventfds                                                         |
//! | cipher_cache.rs | connections whose ciphers are ready for use                    |
//! | user_data.rs  | what travels with an operation                                   |
//!
//! Calls go down this table, but for two pairs of files that call each other, those of the end of
//! an event and `receive.rs` with `written.rs`, and for the steps of a turn in `memory.rs`.

pub(crate) mod mailbox;
pub(crate) mod open_driver;
pub(crate) mod waits;
pub(crate) mod wakes;
mod accept;
mod admission;
mod ahead;
mod bulk;
mod cipher_cache;
mod conclude;
mod connect;
mod datagrams;
mod drain;
mod end_of_turn;
mod ending;
mod event_loop;
mod introduce;
mod jobs;
mod listening;
mod logging;
mod long_input;
mod long_lived;
mod memory;
mod pending;
mod piped;
mod receive;
mod reconcile;
mod refuse;
mod relimit;
mod secure;
mod send;
mod sends;
mod setup;
mod sources;
mod splice;
mod supply;
mod thread;
mod timers;
mod user_data;
mod watch;
mod wide;
mod written;

#[cfg(all(feature = "simulation", feature = "tls"))]
pub(crate) use cipher_cache::CIPHERS_CACHED_MAX;
pub(crate) use datagrams::{DatagramSetup, add_datagram_region};
pub(crate) use event_loop::After;
pub(crate) use setup::{Setup, places_of};
pub(crate) use thread::Network;
pub(crate) use user_data::CONNECTIONS_BOUND;
