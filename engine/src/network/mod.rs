//! The network thread: one driver, its connections, and one turn after the other.
//!
//! A turn waits for the kernel, handles every completion, takes back what workers have finished,
//! fires deadlines, and wakes a worker if it made work. Everything it wants from the kernel is
//! submitted by the next wait. It never runs code that may block.
//!
//! | file         | what is there                                                   |
//! |--------------|-----------------------------------------------------------------|
//! | thread.rs    | the tables, and `Event`: one connection, borrowed once          |
//! | turn.rs      | wait, and handle completions                                    |
//! | chores.rs    | what else is due, and in which order                            |
//! | accept.rs    | listeners: arm, pause, limit                                    |
//! | logging.rs   | lines of the access log for connections                        |
//! | introduce.rs | connections through a load balancer: who they come from          |
//! | admission.rs | does what `crate::admission` says of newcomers                  |
//! | receive.rs   | bytes in: offer, keep, stall                                    |
//! | defer.rs     | input that takes long, at the end of the turn                   |
//! | starve.rs    | receives that found no page                                     |
//! | send.rs      | bytes out                                                       |
//! | jobs.rs      | what comes back from workers, and what waits for room           |
//! | reconcile.rs | carry out what a call wished: output, receive, end, deadline    |
//! | shares.rs    | what a connection holds of the memory, and when it has to wait  |
//! | excess.rs    | the same for addresses and listeners                            |
//! | lasting.rs   | what addresses hold beyond their share is ended for others      |
//! | relieve.rs   | does what `crate::holders` says while connections wait for memory |
//! | relimit.rs   | limits that change while the server runs                         |
//! | splice.rs    | bytes straight from one connection to another                   |
//! | watch.rs     | eventfds whose consumers are called here                        |
//! | ending.rs    | deadlines, drain, close                                         |
//!
//! The other files hold plain state: waits.rs, starved.rs, listening.rs,
//! sources.rs; user_data.rs packs what travels with an operation, setup.rs builds the
//! thread.

mod accept;
mod admission;
mod chores;
mod defer;
mod ending;
mod excess;
mod introduce;
mod jobs;
mod lasting;
mod listening;
mod logging;
mod receive;
mod reconcile;
mod relieve;
mod relimit;
mod send;
mod setup;
mod shares;
mod sources;
mod splice;
mod starve;
mod starved;
mod thread;
mod turn;
mod user_data;
mod waits;
mod watch;

pub(crate) use setup::{Setup, places_of};
pub(crate) use thread::Network;
pub(crate) use turn::After;
pub(crate) use user_data::CONNECTIONS_BOUND;
#[cfg(test)]
pub(crate) use waits::Wait;
pub(crate) use waits::WaitSet;
