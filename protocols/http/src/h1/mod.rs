//! HTTP/1.1 on a connection: requests in the order in which they come ([`read`]), the framing of
//! their bodies ([`body`]), and replies in the same order ([`write`]).
//!
//! What becomes of a request is decided in [`admission`](crate::connection::admission), for both
//! versions. Used by `connection` and by what continues a reply (`streams`, and `h2` for what all
//! replies share); nothing that a handler sees uses it.

pub(crate) mod read;
pub(crate) mod write;
pub(crate) mod body;
