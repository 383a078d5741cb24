//! HTTP: requests through the parser, and through a connection.

pub(crate) mod connection;
pub(crate) mod requests;

mod second;
