//! A connection, and what it has with workers.
//!
//! The state of a listener, a thread and a session ([`state`]); the protocol that the engine calls
//! ([`protocol`]); what becomes of a request ([`admission`], [`refuse`]); its body on its way
//! ([`pending_body`], [`upload`], [`passed`]); its job ([`exchange`]); its line in the access log
//! ([`records`]); its client ([`client`], [`client_watch`]).
//!
//! Both versions of HTTP use it. Routers, extractors and sites do not.

pub(crate) mod protocol;
pub(crate) mod state;
pub(crate) mod admission;
pub(crate) mod exchange;
pub(crate) mod due;
pub(crate) mod records;
pub(crate) mod client;
pub(crate) mod client_watch;
pub(crate) mod refuse;
pub(crate) mod pending_body;
pub(crate) mod upload;
pub(crate) mod passed;
