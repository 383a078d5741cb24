//! Sinks around other sinks: what one changes of a body on its way, and of the answer to it.
//!
//! Everything that a sink is called for goes to the one inside, data in memory and in pipes alike;
//! [`Policy`] says what is different. So a call that is added to [`Sink`] is passed on here, once.
//!
//! Invariant
//! - AR1: of an upload that has ended, the sink inside is gone before its policy hears of it.

use flatpath::WorkerScope;
use flatpath::memory::{Payload, Piped};
use http::HeaderMap;

use crate::message::Response;
use crate::service::sink::{Begun, Sink};

/// What a sink does that is around another one.
pub(crate) trait Policy: Send {
    /// This number of bytes is there for the sink; `write` gives them to it.
    fn write(
        &mut self,
        bytes: usize,
        scope: &mut WorkerScope<'_>,
        write: impl FnOnce(&mut WorkerScope<'_>) -> Result<(), Box<Response>>,
    ) -> Result<(), Box<Response>> {
        let _ = bytes;
        write(scope)
    }

    /// The body is complete; `finish` has the sink answer that.
    fn finish(self, finish: impl FnOnce() -> Response) -> Response
    where
        Self: Sized,
    {
        finish()
    }

    /// The body never will be; `refuse` has the sink answer that.
    fn refused(self, refuse: impl FnOnce() -> Response) -> Response
    where
        Self: Sized,
    {
        refuse()
    }

    /// Nor is there an answer.
    fn abandoned(self)
    where
        Self: Sized,
    {
    }
}

/// See the module.
pub(crate) struct Around<P> {
    sink: Begun,
    policy: P,
}

impl<P: Policy> Around<P> {
    pub(crate) fn new(sink: Box<dyn Sink>, policy: P) -> Self {
        Self {
            sink: Begun::new(sink),
            policy,
        }
    }
}

impl<P: Policy> Sink for Around<P> {
    fn write(
        &mut self,
        piece: &mut Payload,
        scope: &mut WorkerScope<'_>,
    ) -> Result<(), Box<Response>> {
        let Self { sink, policy } = self;
        policy.write(piece.len(), scope, |scope| sink.write(piece, scope))
    }

    fn takes_pipes(&self) -> bool {
        self.sink.takes_pipes()
    }

    fn write_piped(
        &mut self,
        piped: &mut Piped,
        scope: &mut WorkerScope<'_>,
    ) -> Result<(), Box<Response>> {
        let Self { sink, policy } = self;
        policy.write(piped.len(), scope, |scope| sink.write_piped(piped, scope))
    }

    fn trailers(&mut self, trailers: HeaderMap) {
        self.sink.trailers(trailers);
    }

    fn keeps_parts(&self) -> bool {
        self.sink.keeps_parts()
    }

    fn finish(self: Box<Self>, scope: &mut WorkerScope<'_>) -> Response {
        let Self { sink, policy } = *self;
        policy.finish(|| sink.finish(scope))
    }

    fn refused(self: Box<Self>, response: Response) -> Response {
        let Self { sink, policy } = *self;
        policy.refused(|| sink.refused(response))
    }

    fn abandoned(self: Box<Self>) {
        let Self { sink, policy } = *self;
        drop(sink);
        policy.abandoned();
    }
}
