//! Programs with mistakes, a file for each trait that users meet. Beside each is what the compiler
//! says of it in our words; `tests/texts.rs` compares them.
//!
//! Without the feature `mistakes` the crate is empty, so that the workspace builds.

#![cfg(feature = "mistakes")]

mod check_handler;
mod extractors;
mod form_sink;
mod framing;
mod handler;
mod headers;
mod layer;
mod optional;
mod pairing;
mod protocol;
mod response;
mod rpc;
mod service;
mod sink;
mod websocket;
