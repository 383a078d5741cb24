//! A request whose head has been through layers, and whose body arrives completely: what is to go
//! on when it is there.
//!
//! ```text
//! head ─► layers ─► Whole, the answer so far ─► the body ─► layers that need it ─► handler
//!                     └─► the body is refused: a response, for the layers outside
//! ```
//!
//! It is a sink that gets all of the body in one piece, so what ends an upload ends this: a client
//! that goes away, a refusal, a panic. Layers outside change its response as that of any upload.
//!
//! Invariant
//! - WH1: what is left of the request is answered once, by the first call of `write`, and by its
//!   next ones where a service has to wait for its turn.

use std::cell::RefCell;
use std::sync::Arc;

use flatpath::WorkerScope;
use flatpath::memory::Payload;
use http::HeaderMap;

use crate::handler::Call;
use crate::layer::answer::{Answer, Kind, Waiting, failed};
use crate::layer::{BodyAt, Core, Next, OwnedCall, Shared};
use crate::message::{Request, Response};
use crate::router::mount::{self, Mounted};
use crate::router::streamed;
use crate::service::sink::Sink;
use crate::trailers::Trailers;

/// See the module.
pub(crate) struct Whole {
    /// From the innermost: those that are still to run.
    layers: Box<[Shared]>,
    inside: Inside,
    left: Left,
}

/// What is inside of all layers.
pub(crate) enum Inside {
    Handler(OwnedCall),
    Service(Place),
}

/// A mounted service.
pub(crate) struct Place {
    pub(crate) number: usize,
    pub(crate) service: Arc<dyn Mounted>,
    pub(crate) prefix_bytes: usize,
}

/// What is left to do.
enum Left {
    All(Request),
    /// It waits for its turn.
    Rest(Waiting),
    Nothing(Response),
}

impl Whole {
    pub(crate) fn answer(layers: &[Shared], inside: Inside, request: Request) -> Answer {
        Answer(Kind::Upload(Box::new(Self {
            layers: layers.into(),
            inside,
            left: Left::All(request),
        })))
    }

    fn run(
        &self,
        mut request: Request,
        piece: &mut Payload,
        scope: &mut WorkerScope<'_>,
    ) -> Answer {
        if !piece.is_empty() {
            *request.body_mut() = std::mem::take(piece).into();
        }
        let scope = RefCell::new(scope);
        let call = |request: &mut Request| match &self.inside {
            Inside::Handler(call) => call(request),
            Inside::Service(at) => at.ask(request, &mut scope.borrow_mut()),
        };
        let detach = || match &self.inside {
            Inside::Handler(call) => Some(Arc::clone(call)),
            Inside::Service(_) => None,
        };
        let core = Core {
            call: &call,
            detach: &detach,
            body: BodyAt::Request,
        };
        let layers = &self.layers;
        Next { layers, core }.run(request)
    }

    fn resume(&self, waiting: Waiting, scope: &mut WorkerScope<'_>) -> Answer {
        waiting.resume(|_, _, mut request| match &self.inside {
            Inside::Handler(call) => call(&mut request),
            Inside::Service(at) => at.ask(&mut request, scope),
        })
    }
}

/// A handler, for another run of a worker.
pub(crate) fn owned(call: &Call<()>) -> OwnedCall {
    let call = Arc::clone(call);
    Arc::new(move |request| {
        let is_empty = request.body().is_empty();
        let mut response = call(request, &());
        // An empty body has nothing to be streamed.
        match is_empty.then(|| streamed::take(&mut response)).flatten() {
            Some(sink) => Answer(Kind::Upload(sink)),
            None => response.into(),
        }
    })
}

impl Place {
    fn ask(&self, request: &mut Request, scope: &mut WorkerScope<'_>) -> Answer {
        let service = (self.number, &self.service);
        mount::ask(
            service,
            self.prefix_bytes,
            mount::Body::Here,
            request,
            scope,
        )
    }
}

impl Sink for Whole {
    fn trailers(&mut self, trailers: HeaderMap) {
        if let Left::All(request) = &mut self.left {
            Trailers(trailers).leave(request);
        }
    }

    fn write(
        &mut self,
        piece: &mut Payload,
        scope: &mut WorkerScope<'_>,
    ) -> Result<(), Box<Response>> {
        let answer = match std::mem::replace(&mut self.left, Left::Nothing(failed())) {
            Left::All(request) => self.run(request, piece, scope),
            Left::Rest(waiting) => self.resume(waiting, scope),
            answered @ Left::Nothing(_) => {
                debug_assert!(false, "WH1: the body comes in one piece");
                self.left = answered;
                return Ok(());
            }
        };
        if scope.is_parked() {
            self.left = Left::Rest(Waiting::of(answer));
            return Err(Box::default());
        }
        self.left = Left::Nothing(match answer.0 {
            Kind::Upload(sink) => sink.finish(scope),
            other => Answer(other).into_response_now(),
        });
        Ok(())
    }

    fn finish(self: Box<Self>, _: &mut WorkerScope<'_>) -> Response {
        match self.left {
            Left::Nothing(response) => response,
            Left::All(_) | Left::Rest(_) => {
                debug_assert!(false, "a body is written before its end");
                failed()
            }
        }
    }
}
