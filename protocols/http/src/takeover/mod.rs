//! Other protocols on a connection or on one of its streams.
//!
//! A handler answers with what takes it over: an upgrade gives it a whole connection of HTTP/1
//! ([`upgrade`]), a tunnel one stream of HTTP/2 ([`tunnel`]). Handlers and layers begin them, the
//! versions of HTTP carry them out.

pub(crate) mod tunnel;
pub(crate) mod upgrade;
