//! Bodies that a service takes piece by piece, as they arrive.

use flatpath::WorkerScope;
use flatpath::memory::{Payload, Piped};
use http::{HeaderMap, StatusCode};

use crate::message::Response;
use crate::respond::into_response::IntoResponse;

/// Takes one request body, on workers.
///
/// No worker waits for a client: a sink is an object with methods that a worker calls whenever
/// something has arrived, and in between it lies with the connection. That is back-pressure too:
/// while a worker is busy with a piece, the next one gathers up to a bound, and then the connection
/// receives no more.
///
/// ```text
/// head ─► open (worker) ─► home ─► pieces ─► write (worker) ─► home ─► ... ─► finish ─► reply
///                                          broken off ─► abandoned ◄──┘ └──► refused ─► reply
/// ```
///
/// Invariants
/// - A sink is called by one thread at a time, in the order of the body.
/// - `finish` is called only when the whole body was written; `refused` when it never will be and
///   the client gets a response that says so, and `abandoned` when it gets none. One of them is
///   called, unless the sink itself has ended the upload: it answered an error, or panicked.
/// - All of it is called, and dropped, where it may block, but for `keeps_parts` and
///   `takes_pipes`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot take a body",
    label = "not a `Sink`",
    note = "`Upload::to(writer, finish)` makes one of a writer, a file say"
)]
pub trait Sink: Send {
    /// More of the body. May block.
    ///
    /// # Errors
    /// A response: it is sent instead of taking more, and the connection ends after it.
    fn write(
        &mut self,
        piece: &mut Payload,
        scope: &mut WorkerScope<'_>,
    ) -> Result<(), Box<Response>>;

    /// Whether more of the body may come in a pipe, to be moved to a file by reference. By default
    /// no. Called on the network thread.
    fn takes_pipes(&self) -> bool {
        false
    }

    /// More of the body, which lies in a pipe: only a sink that [takes pipes](Sink::takes_pipes) is
    /// called, after [`Sink::write`] for what came before it. May block. By default a 500.
    ///
    /// # Errors
    /// As those of [`Sink::write`].
    fn write_piped(
        &mut self,
        piped: &mut Piped,
        scope: &mut WorkerScope<'_>,
    ) -> Result<(), Box<Response>> {
        let _ = (piped, scope);
        debug_assert!(false, "a sink that takes pipes writes them");
        Err(Box::new(StatusCode::INTERNAL_SERVER_ERROR.into_response()))
    }

    /// The [trailers](crate::Trailers) of the body, if there are any: before the last of it is
    /// written, so that one which takes a body in one piece has both. By default they are dropped.
    fn trailers(&mut self, trailers: HeaderMap) {
        drop(trailers);
    }

    /// Whether a body that broke off is of use: then what arrived of it is written before the sink
    /// is dropped, as far as the server learns of the end from the client or by a deadline. By
    /// default no. Called on the network thread.
    fn keeps_parts(&self) -> bool {
        false
    }

    /// The body is complete. May block.
    fn finish(self: Box<Self>, scope: &mut WorkerScope<'_>) -> Response;

    /// The body will never be complete, and this is what its client gets: the body is too long,
    /// late or breaks the framing. A sink around another one passes it on, and may change what
    /// comes back. May block. By default the sink is [abandoned](Self::abandoned), and the response
    /// stays as it is.
    fn refused(self: Box<Self>, response: Response) -> Response {
        self.abandoned();
        response
    }

    /// The body has broken off, and the request is not served: the client went away, the body was
    /// [refused](Self::refused), or the server stops. A worker calls it, in most cases, so it may
    /// block; a drain waits for it. By default the sink is dropped.
    fn abandoned(self: Box<Self>) {}
}

/// A sink whose upload has begun: dropped before its end, it is abandoned.
pub(crate) struct Begun(Option<Box<dyn Sink>>);

impl Begun {
    pub(crate) fn new(sink: Box<dyn Sink>) -> Self {
        Self(Some(sink))
    }

    /// As [`Sink::write`]; a sink that answers an error is dropped.
    pub(crate) fn write(
        &mut self,
        piece: &mut Payload,
        scope: &mut WorkerScope<'_>,
    ) -> Result<(), Box<Response>> {
        self.call(scope, |sink, scope| sink.write(piece, scope))
    }

    /// As [`Sink::write_piped`]; likewise.
    pub(crate) fn write_piped(
        &mut self,
        piped: &mut Piped,
        scope: &mut WorkerScope<'_>,
    ) -> Result<(), Box<Response>> {
        self.call(scope, |sink, scope| sink.write_piped(piped, scope))
    }

    /// As [`Sink::trailers`].
    pub(crate) fn trailers(&mut self, trailers: HeaderMap) {
        // Meanwhile out of here, as for a call.
        if let Some(mut sink) = self.0.take() {
            sink.trailers(trailers);
            self.0 = Some(sink);
        }
    }

    fn call(
        &mut self,
        scope: &mut WorkerScope<'_>,
        write: impl FnOnce(&mut dyn Sink, &mut WorkerScope<'_>) -> Result<(), Box<Response>>,
    ) -> Result<(), Box<Response>> {
        // Meanwhile out of here: one that panics is not abandoned.
        let Some(mut sink) = self.0.take() else {
            debug_assert!(false, "it has answered already");
            return Ok(());
        };
        let written = write(&mut *sink, scope);
        if written.is_ok() || scope.is_parked() {
            self.0 = Some(sink);
        }
        written
    }

    pub(crate) fn takes_pipes(&self) -> bool {
        self.0.as_ref().is_some_and(|sink| sink.takes_pipes())
    }

    pub(crate) fn keeps_parts(&self) -> bool {
        self.0.as_ref().is_some_and(|sink| sink.keeps_parts())
    }

    /// As [`Sink::finish`].
    pub(crate) fn finish(mut self, scope: &mut WorkerScope<'_>) -> Response {
        match self.0.take() {
            Some(sink) => sink.finish(scope),
            None => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
        }
    }

    /// As [`Sink::refused`].
    pub(crate) fn refused(mut self, response: Response) -> Response {
        match self.0.take() {
            Some(sink) => sink.refused(response),
            None => response,
        }
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        if let Some(sink) = self.0.take() {
            flatpath::discard(Abandoned(Some(sink)));
        }
    }
}

/// A sink whose body will never be complete.
struct Abandoned(Option<Box<dyn Sink>>);

impl Drop for Abandoned {
    fn drop(&mut self) {
        if let Some(sink) = self.0.take()
            && flatpath::contain(|| sink.abandoned()).is_none()
        {
            log::error!("a sink panicked when its upload broke off");
        }
    }
}

/// What a service makes of the head of a request: see [`Service::open`](crate::Service::open).
// Exhaustive: a service that wraps another has to wrap each.
pub enum UploadDecision {
    /// The body goes here: piece by piece, or all of it at once if it is planned to be
    /// [opened](crate::BodyPlan::Opened).
    Sink(Box<dyn Sink>),
    /// The body is not wanted. The connection ends after this, unless the rest is short and on its
    /// way.
    Response(Response),
    /// The head decides nothing: [`Service::pooled`](crate::Service::pooled) gets the request with
    /// its body.
    Whole,
}

flatpath::opaque_debug! {
    impl[] UploadDecision as "UploadDecision";
}
