//! What the benches share: crowds of clients, where clients come from, and a network for both.
//!
//! - [`source`]: addresses and ports of clients, more than one address has.
//! - [`crowd`]: clients of an echo server, many at once or one after the other.
//! - [`fuse`]: a file system that hangs on request, also for the tests with real clients.
//! - [`namespace`]: a network with a congestion control that is known.
#![forbid(unsafe_code)]

pub mod crowd;
pub mod fuse;
pub mod namespace;
pub mod source;
