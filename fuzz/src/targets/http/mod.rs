//! HTTP: requests through the parser, and through a connection.

pub(crate) mod connection;
pub(crate) mod frames;
pub(crate) mod hpack;
pub(crate) mod requests;

mod second;
