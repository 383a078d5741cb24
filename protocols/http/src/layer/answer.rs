//! What a request comes to, for layers: a response that is there, or one that is still to come.
//!
//! A handler that takes a body piece by piece has no response yet when it returns to its layers,
//! and a service may have to wait for its turn. So a layer changes the response by a function
//! ([`Answer::map`]). It is called at once for a response that is there, and otherwise when there
//! is one: the end of an upload, a refusal before that, the 500 for a panic.
//!
//! | answer   | its response is made by                             | then                       |
//! |----------|-----------------------------------------------------|----------------------------|
//! | ready    | the handler, or a layer inside                      | changes run at once        |
//! | upload   | the sink of the body, by an error or at its end     | changes run on that worker |
//! |          | the refusal of a body that is never complete        | changes run on that worker |
//! | waiting  | the service, when the job runs again ([`Waiting`])  | changes run on that worker |
//! | deferred | whatever has its [`Responder`](crate::Responder)    | changes run on a worker    |
//!
//! Invariant
//! - A1: a change runs once, with the one response of its request, or not at all: where no response
//!   is sent, as the client is gone.

use flatpath::{WorkerScope, contain};
use http::StatusCode;

use crate::message::{Request, Response};
use crate::respond::carried::Carried;
use crate::respond::into_response::{IntoHeaders, IntoResponse, refused};
use crate::service::around::{Around, Policy};
use crate::service::sink::{Sink, UploadDecision};
use crate::streams::deferred::Pending;

/// What a layer does to a response.
pub(crate) type Change = Box<dyn FnOnce(Response) -> Response + Send>;

/// What [`Next::run`](crate::Next::run) gives to a layer: the response to the request, or what
/// will make it.
///
/// ```
/// use std::time::Instant;
///
/// use flatpath_http::{Answer, Next, Request, Response, Router};
///
/// /// A layer that logs how long requests take, uploads to the end of their bodies.
/// fn timed(request: Request, next: &Next<'_>) -> Answer {
///     let (begun, path) = (Instant::now(), request.uri().path().to_owned());
///     next.run(request).map(move |response: Response| {
///         log::info!("{path}: {} after {:?}", response.status(), begun.elapsed());
///         response
///     })
/// }
///
/// let router: Router = Router::new().get("/", || "hello\n").layer(timed);
/// ```
///
/// Headers alone may be put in front of it: `([("x-served-by", "us")], next.run(request))`.
#[must_use = "without it the request has no response"]
pub struct Answer(pub(crate) Kind);

pub(crate) enum Kind {
    Ready(Response),
    Upload(Box<dyn Sink>),
    Waiting(Waiting),
    Deferred(Pending),
}

impl Answer {
    /// Changes the response: `change` is called once it is there, which is now for most. It may
    /// block where the layer may.
    pub fn map<R: IntoResponse>(self, change: impl FnOnce(Response) -> R + Send + 'static) -> Self {
        Self(match self.0 {
            Kind::Ready(response) => Kind::Ready(change(response).into_response()),
            Kind::Upload(sink) => {
                let changing = Changing(Some(boxed(change)));
                Kind::Upload(Box::new(Around::new(sink, changing)))
            }
            Kind::Waiting(waiting) => Kind::Waiting(waiting.then(boxed(change))),
            Kind::Deferred(pending) => Kind::Deferred(pending.then(boxed(change))),
        })
    }

    /// The response, where it is there.
    #[must_use]
    pub fn response(&self) -> Option<&Response> {
        match &self.0 {
            Kind::Ready(response) => Some(response),
            Kind::Upload(_) | Kind::Waiting(_) | Kind::Deferred(_) => None,
        }
    }

    /// The response, or its placeholder until it is made. Not for answers that wait for a body.
    pub(crate) fn into_response_now(self) -> Response {
        match self.0 {
            Kind::Ready(response) => response,
            Kind::Deferred(pending) => pending.into_response(),
            Kind::Upload(_) | Kind::Waiting(_) => {
                debug_assert!(false, "only what runs on workers waits");
                failed()
            }
        }
    }
}

fn boxed<R: IntoResponse>(change: impl FnOnce(Response) -> R + Send + 'static) -> Change {
    Box::new(|response| change(response).into_response())
}

impl From<Response> for Answer {
    fn from(mut response: Response) -> Self {
        Self(match Pending::take(&mut response) {
            None => Kind::Ready(response),
            Some(pending) => Kind::Deferred(pending),
        })
    }
}

impl std::fmt::Debug for Answer {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.0 {
            Kind::Ready(response) => formatter.debug_tuple("Answer").field(response).finish(),
            Kind::Upload(_) => formatter.write_str("Answer(at the end of an upload)"),
            Kind::Waiting(_) => formatter.write_str("Answer(waiting for its turn)"),
            Kind::Deferred(_) => formatter.write_str("Answer(deferred)"),
        }
    }
}

/// What a layer may return: an [`Answer`], a response of its own, headers or a status in front of
/// an answer, or a `Result` of an answer and a refusal.
#[diagnostic::on_unimplemented(
    message = "a layer cannot return `{Self}`",
    label = "neither an `Answer` nor a response",
    note = "a layer returns what `next.run(request)` gave it, or anything that is `IntoResponse`"
)]
pub trait IntoAnswer {
    /// The answer, made of this.
    fn into_answer(self) -> Answer;
}

impl IntoAnswer for Answer {
    fn into_answer(self) -> Answer {
        self
    }
}

impl<T: IntoResponse> IntoAnswer for T {
    fn into_answer(self) -> Answer {
        self.into_response().into()
    }
}

impl<E: IntoResponse> IntoAnswer for Result<Answer, E> {
    fn into_answer(self) -> Answer {
        self.unwrap_or_else(|refusal| refusal.into_response().into())
    }
}

impl<H: IntoHeaders + Send + 'static> IntoAnswer for (H, Answer) {
    fn into_answer(self) -> Answer {
        let (headers, answer) = self;
        answer.map(|response| (headers, response))
    }
}

impl IntoAnswer for (StatusCode, Answer) {
    fn into_answer(self) -> Answer {
        let (status, answer) = self;
        answer.map(move |response| (status, response))
    }
}

impl UploadDecision {
    /// Changes the response, whenever it is made. Not that of a request which is still to be
    /// answered as a [whole](Self::Whole).
    #[must_use]
    pub fn map(self, change: impl FnOnce(Response) -> Response + Send + 'static) -> Self {
        match self {
            Self::Sink(sink) => Answer(Kind::Upload(sink)).map(change).into(),
            Self::Response(response) => Answer::from(response).map(change).into(),
            Self::Whole => Self::Whole,
        }
    }
}

impl From<Answer> for UploadDecision {
    fn from(answer: Answer) -> Self {
        match answer.0 {
            Kind::Upload(sink) => Self::Sink(sink),
            other => Self::Response(Answer(other).into_response_now()),
        }
    }
}

/// The 500 of a request whose handler has panicked.
pub(crate) fn failed() -> Response {
    let reason = "The request could not be handled.";
    refused(StatusCode::INTERNAL_SERVER_ERROR, &reason)
}

/// What changes the response of a sink, until it is there.
struct Changing(Option<Change>);

impl Changing {
    fn changed(&mut self, response: Option<Response>) -> Response {
        let mut response = response.unwrap_or_else(|| {
            log::error!("the sink of a body panicked; its client gets a 500");
            failed()
        });
        match (self.0.take(), Pending::take(&mut response)) {
            (None, None) => response,
            (Some(change), None) => change(response),
            (None, Some(pending)) => pending.into_response(),
            // It is still to be made.
            (Some(change), Some(pending)) => pending.then(change).into_response(),
        }
    }
}

impl Policy for Changing {
    fn write(
        &mut self,
        _: usize,
        scope: &mut WorkerScope<'_>,
        write: impl FnOnce(&mut WorkerScope<'_>) -> Result<(), Box<Response>>,
    ) -> Result<(), Box<Response>> {
        match contain(|| write(scope)) {
            Some(Ok(())) => Ok(()),
            // It is dropped, and the piece comes again.
            Some(dropped) if scope.is_parked() => dropped,
            Some(Err(response)) => Err(Box::new(self.changed(Some(*response)))),
            None => Err(Box::new(self.changed(None))),
        }
    }

    fn finish(mut self, finish: impl FnOnce() -> Response) -> Response {
        self.changed(contain(finish))
    }

    fn refused(mut self, refuse: impl FnOnce() -> Response) -> Response {
        self.changed(contain(refuse))
    }
}

/// A request that has been through its layers, and whose service waits for its turn in a limit. The
/// next run of its job begins here, so that layers run once.
pub(crate) struct Waiting {
    pub(crate) rest: Rest,
    /// Innermost first.
    changes: Vec<Change>,
}

/// What is left to do for an answer.
pub(crate) enum Rest {
    /// This mounted service has to be asked again.
    Service {
        number: usize,
        prefix_bytes: usize,
        request: Box<Request>,
    },
    /// Nothing: a layer has answered in its place.
    Answered(Box<Answer>),
}

impl Waiting {
    pub(crate) fn new(rest: Rest) -> Self {
        let changes = Vec::new();
        Self { rest, changes }
    }

    /// What is left to do of an answer that was made while its job was told to wait.
    pub(crate) fn of(answer: Answer) -> Self {
        match answer.0 {
            Kind::Waiting(waiting) => waiting,
            answered => Self::new(Rest::Answered(Box::new(Answer(answered)))),
        }
    }

    fn then(mut self, change: Change) -> Self {
        self.changes.push(change);
        self
    }

    /// What an earlier run has left.
    pub(crate) fn take(request: &mut Request) -> Option<Self> {
        Carried::take(request.extensions_mut())
    }

    /// Leaves it to the next run.
    pub(crate) fn leave(self, request: &mut Request) {
        Carried::put(request.extensions_mut(), self);
    }

    /// Continues in the next run. `ask` gets the number of the service, how many bytes of the path
    /// are cut off, and the request.
    pub(crate) fn resume(self, ask: impl FnOnce(usize, usize, Request) -> Answer) -> Answer {
        let answer = match self.rest {
            Rest::Service {
                number,
                prefix_bytes,
                request,
            } => ask(number, prefix_bytes, *request),
            Rest::Answered(answer) => *answer,
        };
        let changes = self.changes.into_iter();
        changes.fold(answer, Answer::map)
    }
}
