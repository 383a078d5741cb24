//! Bodies that a service takes piece by piece, as they arrive.

use flatpath::WorkerScope;
use flatpath::memory::Payload;

use crate::message::Response;

/// Takes one request body, on workers.
///
/// No worker waits for a client: a sink is an object with methods that a worker calls whenever
/// something has arrived, and in between it lies with the connection. That is back-pressure too:
/// while a worker is busy with a piece, the next one gathers up to a bound, and then the connection
/// receives no more.
///
/// ```text
/// head ─► open (worker) ─► home ─► pieces ─► write (worker) ─► home ─► ... ─► finish ─► reply
/// ```
///
/// Invariants
/// - A sink is called by one thread at a time, in the order of the body.
/// - `finish` is called only when the whole body was written. A sink that is dropped before belongs
///   to a request that is not served: its client went away, or broke the framing. It may be dropped
///   on the network thread, so what is slow to drop has to be handed to another thread.
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

    /// Whether a body that broke off is of use: then what arrived of it is written before the sink
    /// is dropped, as far as the server learns of the end from the client or by a deadline. By
    /// default no. Called on the network thread.
    fn keeps_parts(&self) -> bool {
        false
    }

    /// The body is complete. May block.
    fn finish(self: Box<Self>, scope: &mut WorkerScope<'_>) -> Response;
}

/// What a service makes of the head of a request whose body it takes piece by piece.
pub enum UploadDecision {
    /// The body goes here.
    Sink(Box<dyn Sink>),
    /// The body is not wanted: the connection ends after this.
    Response(Response),
}
