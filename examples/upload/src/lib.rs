//! An HTTP service of one's own, for a program that depends on the crate `flatpath-http` and
//! nothing else: `GET` answers with a greeting from the network thread, and the body of a `PUT` is
//! counted while it arrives, however long it is. The tests run it on real sockets and in the
//! simulation.
#![forbid(unsafe_code)]

use flatpath_http::http::{Method, StatusCode};
use flatpath_http::{
    Body, Disposition, Head, Payload, Reply, Request, Response, Service, Sink, Turn,
    UploadDecision, WorkerScope,
};

/// The service; it has no settings.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counter;

/// One upload.
#[derive(Debug, Default)]
struct Upload {
    bytes: usize,
}

impl Service for Counter {
    type ThreadState = ();

    fn thread_state(&self) {}

    fn inline(
        &self,
        _thread: &mut (),
        _turn: Turn,
        head: &Head<'_>,
        reply: &mut Reply<'_>,
    ) -> Disposition {
        match head.method() {
            "GET" => reply.response(Response::new(Body::from("hello\n"))),
            _ => Disposition::Pooled,
        }
    }

    fn pooled(&self, _request: &mut Request, _scope: &mut WorkerScope<'_>) -> Response {
        let mut response = Response::new(Body::Empty);
        *response.status_mut() = StatusCode::METHOD_NOT_ALLOWED;
        response
    }

    fn streams(&self, head: &Head<'_>) -> bool {
        head.method() == Method::PUT.as_str()
    }

    fn open(&self, _request: &mut Request, _scope: &mut WorkerScope<'_>) -> UploadDecision {
        UploadDecision::Sink(Box::new(Upload::default()))
    }
}

impl Sink for Upload {
    fn write(
        &mut self,
        piece: &mut Payload,
        _scope: &mut WorkerScope<'_>,
    ) -> Result<(), Box<Response>> {
        self.bytes += piece.len();
        Ok(())
    }

    fn finish(self: Box<Self>, _scope: &mut WorkerScope<'_>) -> Response {
        Response::new(Body::from(format!("{}\n", self.bytes)))
    }
}
