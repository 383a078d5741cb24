//! What the benches share: crowds of clients, where clients come from, and a network for both.
//!
//! - [`source`]: addresses and ports of clients, more than one address has.
//! - [`crowd`]: clients of an echo server, many at once or one after the other.
//! - [`namespace`]: a network with a congestion control that is known.
#![forbid(unsafe_code)]

pub mod crowd;
pub mod namespace;
pub mod source;
