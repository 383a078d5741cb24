//! Responses that last, or that come later.
//!
//! Bodies that workers read chunk by chunk ([`stream`]), that any thread feeds ([`channel`],
//! [`feed`]) or that go to many ([`sse`], [`event`], [`broadcast`], [`history`]), and responses
//! that are made elsewhere ([`deferred`], [`errand`]). Bodies of requests that another connection
//! passes on ([`passage`]). [`push`] and [`defer`] are the connection's side of them: only the
//! versions of HTTP call these two.

pub(crate) mod channel;
pub(crate) mod feed;
pub(crate) mod push;
pub(crate) mod event;
pub(crate) mod broadcast;
pub(crate) mod history;
pub mod sse;
pub(crate) mod stream;
pub(crate) mod passage;
pub(crate) mod deferred;
pub(crate) mod errand;
pub(crate) mod defer;
