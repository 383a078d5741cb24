//! Memory that a protocol or a service handles: received bytes where they lie ([`Fragment`] of a
//! [`Region`]), buffers of the server's [`Pool`], bodies made of both ([`Payload`]), bytes in a
//! pipe ([`Piped`]); a share for work that is done now and then ([`MemoryShare`]); and where the
//! pages of receive memory are, for display.
//!
//! # Who gets it, who waits, and who gives it back
//!
//! The memory for buffers is one budget. Who is charged:
//!
//! | what                                     | is charged to                                     |
//! |------------------------------------------|---------------------------------------------------|
//! | a buffer, until it is dropped            | its connection, wherever the buffer is            |
//! | what a program made for a client         | the same, beside the buffers, while it waits      |
//! | a connection that waits for memory       | its address and its listener, as 16 buffers       |
//! | all of these                             | its address and its listener, from a quarter on   |
//! | common pages kept while it is stalled    | its connection, and its network thread            |
//! | work that is done now and then           | a [`MemoryShare`]                                 |
//!
//! What follows, by how much of the budget is used:
//!
//! | who has how much            | what follows                                                  |
//! |-----------------------------|---------------------------------------------------------------|
//! | all: a quarter              | addresses and listeners are counted, and a connection has a   |
//! |                             | fair part for what waits for its client                       |
//! | all: three quarters         | that part is nothing                                          |
//! | all: all but the reserve    | what is small is given, the rest waits                        |
//! | a connection: 64 KiB        | it gets nothing of the reserve                                |
//! | a connection: a 16th        | its input pauses                                              |
//! | an address: its share       | the input of its connections that hold more pauses            |
//! | a listener: its share       | the same                                                      |
//! | an address: under a 256th   | it is served while others wait                                |
//! | kept and retained: 3 / 4 of | a stalled connection that comes to keep more is refused       |
//! | the common pages            |                                                               |
//!
//! What a connection is in, and what ends it:
//!
//! | state   | what it means                       | ends with                                   |
//! |---------|-------------------------------------|---------------------------------------------|
//! | reads   | its input is given                  | any of the following                        |
//! | pauses  | a share is used up: its input waits | half of its own share, and some room below  |
//! |         |                                     | the others; a refusal after `stall_timeout` |
//! | waits   | no buffer was free                  | a buffer, oldest first; or the same refusal |
//! | starves | its receive found no page           | a page, oldest first                        |
//! | over    | its users hold too many fragments   | half of them                                |
//! | refused | too few pages, or a time is over    | its protocol's refusal, and the close       |
//! | ended   | others wait for what it holds       | the same where it can be sent, or a reset   |
//!
//! While connections wait, others give back what they have, in this order:
//!
//! 1. From the beginning, the largest holders are asked to hand on what they have gathered.
//! 2. For bulk of a favoured user, after 10 ms: what lasted longest for an address above the
//!    average is ended.
//! 3. After 100 ms, on the network thread that has the largest: the largest holder that was seen to
//!    move little for some two seconds is ended, then one of a single buffer with nothing in work.
//! 4. After 2.5 s in which every holder moved: the largest.
//!
//! Each of these is a decision about numbers, which one file of `engine/src/memory` makes and
//! tests: `account.rs` what a connection may do after an event, `pages.rs` the same of pages,
//! `shortage.rs` when something is given back, `holders.rs` by which connection, `appeals.rs` by
//! which network thread, `pools.rs` where a buffer comes from, and `share.rs` what is occasional.

pub(crate) mod held;

pub use flatpath_driver::{
    Attachment, Backing, Filling, Fragment, PipeLeave, Piped, Pipes, Region, RegionConfig,
    SmallReceives,
};
pub use flatpath_structures::pool::{
    Buffer, Charge, Pool, PoolConfig, PoolHandle, PoolStatistics, Zero,
};
pub use flatpath_sys::allocator::bound_arenas;

pub use crate::admission::turns::{Client, Turn, TurnLimit};
pub use crate::observe::regions::MemoryFigures;
pub use crate::protocol::payload::{Copied, Part, Payload};
pub use pools::Wanted;
pub use share::{MemoryShare, ShareHold, SharePart};

pub(crate) mod account;
mod appeals;
pub(crate) mod holders;
pub(crate) mod holding;
pub(crate) mod pages;
pub(crate) mod pools;
pub(crate) mod share;
pub(crate) mod shortage;
