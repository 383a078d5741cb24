//! HTTP/1.1 as the engine's [`Protocol`]: from bytes that arrive to services and back.
//!
//! ```text
//! received → intake: head ─► inline service ────────────────────► delivery: queue
//!                      └─► (body) ─► job ─► worker: head, chunk ─► delivery: in order
//!                                     ▲                                │ the next chunk
//!                                     └── drained ◄── room in output ◄─┘
//! ```
//!
//! Replies go out in the order of their requests. An inline service is asked only when no reply is
//! owed; a request behind one that is with a worker goes to the workers too.

use bytes::Bytes;
use flatpath::{Context, Job, ListenerOptions, Phase, Protocol, Received, WorkerScope};

use crate::date::DateLine;
use crate::exchange::Exchange;
use crate::hand::Hand;
use crate::incoming::Incoming;
use crate::limits::{Limits, SPARES_MAX};
use crate::names::Names;
use crate::service::Service;
use crate::session::{Ring, Session};

/// A service, spoken to in HTTP/1.1.
#[derive(Clone, Debug)]
pub struct Http<S> {
    pub(crate) service: S,
    pub(crate) limits: Limits,
}

impl<S: Service> Http<S> {
    /// HTTP/1.1 for this service.
    pub fn service(service: S) -> Self {
        Self {
            service,
            limits: Limits::default(),
        }
    }

    /// The service itself again.
    pub fn into_service(self) -> S {
        self.service
    }

    /// Other limits than the default ones; what exceeds the crate's bounds is brought down to them.
    #[must_use]
    pub fn limits(self, limits: Limits) -> Self {
        Self {
            limits: limits.within_bounds(),
            ..self
        }
    }
}

/// What one network thread keeps for a listener that speaks HTTP.
pub struct Lane<S: Service> {
    pub(crate) service: S::Lane,
    /// Where inline replies are written before they are queued.
    pub(crate) scratch: Vec<u8>,
    pub(crate) date: DateLine,
    /// Where the head of a later minor version is read from, as one of 1.1.
    pub(crate) later_minor: Vec<u8>,
    pub(crate) names: Names,
    /// Recycled.
    #[expect(clippy::vec_box, reason = "the box is what is recycled")]
    pub(crate) incoming: Vec<Box<Incoming>>,
    /// Recycled.
    #[expect(clippy::vec_box, reason = "the box is what is recycled")]
    pub(crate) rings: Vec<Box<Ring<S>>>,
}

impl<S: Service> Lane<S> {
    /// Drops a request whose body was arriving, and keeps what can be used again.
    pub(crate) fn recycle_incoming(&mut self, mut incoming: Box<Incoming>) {
        incoming.clear();
        if self.incoming.len() < SPARES_MAX {
            self.incoming.push(incoming);
        }
    }

    /// Keeps an empty ring.
    pub(crate) fn recycle_ring(&mut self, ring: Box<Ring<S>>) {
        if self.rings.len() < SPARES_MAX {
            self.rings.push(ring);
        }
    }
}

/// What a client is told that finds no room. Retrying is right, and soon enough in a second.
pub(crate) const REFUSAL: &str = "HTTP/1.1 503 Service Unavailable\r\n\
    Content-Type: text/plain; charset=utf-8\r\n\
    Content-Length: 44\r\n\
    Retry-After: 1\r\n\
    Connection: close\r\n\
    \r\n\
    The server is busy. Please try again later.\n";

/// What a client is told whose request made the service panic, where there is no buffer for it.
pub(crate) const FAILURE: &str = "HTTP/1.1 500 Internal Server Error\r\n\
    Content-Type: text/plain; charset=utf-8\r\n\
    Content-Length: 34\r\n\
    Connection: close\r\n\
    \r\n\
    The request could not be handled.\n";

impl<S: Service> Protocol for Http<S> {
    type ThreadState = Lane<S>;
    type Session = Session<S>;
    type Job = Exchange;

    fn name(&self) -> &'static str {
        "http"
    }

    fn options(&self) -> ListenerOptions {
        ListenerOptions {
            // RFC 9112 section 9: the client speaks first, and many connections carry one request.
            defer_accept: true,
            region: self.service.region(),
            refusal: Bytes::from_static(REFUSAL.as_bytes()),
            ..ListenerOptions::default()
        }
    }

    fn thread_state(&self) -> Lane<S> {
        Lane {
            service: self.service.lane(),
            scratch: Vec::new(),
            date: DateLine::new(),
            later_minor: Vec::new(),
            names: Names::new(),
            incoming: Vec::new(),
            rings: Vec::new(),
        }
    }

    fn received(&self, context: &mut Context<'_, Self>, input: &[u8]) -> Received {
        Hand { context }.received(input)
    }

    fn input_ended(&self, context: &mut Context<'_, Self>, _left: &[u8]) {
        Hand { context }.input_ended();
    }

    fn run(&self, job: &mut Exchange, scope: &mut WorkerScope<'_>) {
        job.run(&self.service, scope);
    }

    fn panicked(&self, job: &mut Exchange) {
        job.panicked();
    }

    fn finished(&self, context: &mut Context<'_, Self>, job: Job<Self>) {
        Hand { context }.finished(job);
    }

    fn retire(&self, _lane: &mut Lane<S>, job: &mut Exchange) {
        job.reset();
    }

    fn drained(&self, context: &mut Context<'_, Self>) {
        Hand { context }.drained();
    }

    fn expired(&self, context: &mut Context<'_, Self>, phase: Phase) {
        Hand { context }.expired(phase);
    }

    fn draining(&self, context: &mut Context<'_, Self>) {
        Hand { context }.draining();
    }

    fn pressed(&self, context: &mut Context<'_, Self>) {
        Hand { context }.pressed();
    }

    fn abandoned(&self, context: &mut Context<'_, Self>) {
        Hand { context }.abandoned();
    }

    fn closed(&self, lane: &mut Lane<S>, session: &mut Session<S>) {
        if let Some(incoming) = session.incoming.take() {
            lane.recycle_incoming(incoming);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constant_words_are_whole_replies() {
        for words in [REFUSAL, FAILURE] {
            let (head, body) = words.split_once("\r\n\r\n").expect("a head and a body");
            let length = head
                .split("Content-Length: ")
                .nth(1)
                .and_then(|rest| rest.lines().next());
            assert_eq!(length, Some(body.len().to_string().as_str()));
            assert!(head.ends_with("\r\nConnection: close"));
        }
        assert!(REFUSAL.contains("\r\nRetry-After: "));
    }
}
