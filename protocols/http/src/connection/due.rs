//! What of the reply that is due is with its connection: at most one thing at a time (N2 of
//! `state`).

use flatpath::Job;

use crate::connection::state::Http;
use crate::respond::outgoing::Outgoing;
use crate::service::Service;

/// What of the reply that is due is with the connection.
#[derive(Default)]
pub(crate) enum Due<S: Service> {
    /// Nothing: it is with a worker, if one is due.
    #[default]
    Nothing,
    /// A request whose body is streamed, while it waits for more of that.
    Upload(Job<Http<S>>),
    /// A reply whose body is read, while its latest chunk waits for the output to drain.
    Stream(Job<Http<S>>),
    /// A reply whose body is fed from elsewhere, after its head.
    Fed(Box<Outgoing>),
    /// An inline answer that found no memory. It must not be asked for twice.
    Waiting(Box<Outgoing>),
    /// The connection speaks HTTP/2: all of its streams, which the module `h2` alone
    /// knows.
    #[cfg(feature = "http2")]
    Http2(Box<Http2Streams>),
}

/// A pointer to them is one word: the session of HTTP/1 has no room for two.
#[cfg(feature = "http2")]
pub(crate) struct Http2Streams(pub(crate) Box<dyn std::any::Any>);

impl<S: Service> Due<S> {
    #[cfg(feature = "http2")]
    pub(crate) fn take_http2(&mut self) -> Option<Box<Http2Streams>> {
        match std::mem::take(self) {
            Self::Http2(streams) => Some(streams),
            other => self.put_back(other),
        }
    }

    pub(crate) fn is_upload(&self) -> bool {
        matches!(self, Self::Upload(_))
    }

    pub(crate) fn is_waiting(&self) -> bool {
        matches!(self, Self::Waiting(_))
    }

    pub(crate) fn take_upload(&mut self) -> Option<Job<Http<S>>> {
        match std::mem::take(self) {
            Self::Upload(job) => Some(job),
            other => self.put_back(other),
        }
    }

    pub(crate) fn take_stream(&mut self) -> Option<Job<Http<S>>> {
        match std::mem::take(self) {
            Self::Stream(job) => Some(job),
            other => self.put_back(other),
        }
    }

    pub(crate) fn take_fed(&mut self) -> Option<Box<Outgoing>> {
        match std::mem::take(self) {
            Self::Fed(reply) => Some(reply),
            other => self.put_back(other),
        }
    }

    pub(crate) fn take_waiting(&mut self) -> Option<Box<Outgoing>> {
        match std::mem::take(self) {
            Self::Waiting(reply) => Some(reply),
            other => self.put_back(other),
        }
    }

    fn put_back<T>(&mut self, other: Self) -> Option<T> {
        *self = other;
        None
    }
}
