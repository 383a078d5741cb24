//! The registry that introduces producers to consumers, as services use it.
//!
//! Two parties register under one key; as soon as both are there each is told of the other, and
//! from then on nothing needs to go through a worker. What they do about it is theirs: two
//! connections of one network thread are best joined ([`Context::join`](crate::Context::join)), as
//! `examples/rendezvous.rs` does. A registration kept in a connection's session ends with it, so a
//! connection that is gone is never introduced to anybody.
//!
//! The words of the contract: `add_consumer` and `add_producer` connect, `del_consumer` and
//! `del_producer` disconnect, `stop` and `start` frame both, always. `Taken`, `RegisteredTwice` and
//! `EmptyKey` refuse without touching who is there; a refused connect rolls back. The registry's
//! own header says what may run beside what.

pub use flatpath_structures::pairing::{
    Consumer, Endpoint, PairingKey, Producer, RegisterError, Registered, Registration, Registry,
};
