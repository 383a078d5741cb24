//! Layers of tower around handlers, polled without a runtime.
//!
//! A service of tower that only looks at what passes is ready whenever it is polled, but for what
//! it waits for inside: there is our handler. So it needs no runtime: it is polled here, and while
//! it waits for the handler, the handler is run.
//!
//! ```text
//! Next::run ◄─ request ─ TowerHandler, innermost ◄─ tower's service ◄─ request
//!     │
//!     └─ response, now or at the end of an upload ─► tower's service ─► response
//! ```
//!
//! Invariants
//! - T1: the service is polled when it begins, and when a response for it is there; nothing else
//!   wakes it. One that waits for anything else, a timer say, is a 500 and a line in the log.
//! - T2: a response passes the service when it is there, of an upload at the end of its body.
//!
//! Cost: a clone of the service, its future on the heap, and two locks that no other thread wants.

mod body;
mod exchange;

use std::convert::Infallible;
use std::error::Error;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use flatpath_http::{
    Answer, Body, IntoAnswer, IntoResponse, LateTrailers, Layer, Needs, Next, Request, Response,
    Trailers,
};
use http::{HeaderName, StatusCode};
use tower_service::Service;

use exchange::{Exchange, HandlerFuture};

pub use body::TowerBody;
pub use exchange::TowerHandler;

/// A layer of tower, such as those of tower-http, around handlers and services.
///
/// Its service is made once, and cloned for each request. It gets requests and responses with the
/// body [`TowerBody`], and runs where the handler runs. Its futures have to be ready when they are
/// polled: those that wait for a timer or a task get their clients a 500, and those that need the
/// runtime of tokio panic, which is a 500, too.
///
/// A request for a route that is [`streamed`](flatpath_http::Methods::streamed) has no body when it
/// passes: its body goes to the [`Upload`](flatpath_http::Upload) that the handler has returned,
/// and the response passes at its end. So a service that bounds or changes the bodies of requests
/// does so there by what the headers say, and no further. It may ask the handler again only after a
/// response that was there at once: after an upload or a [`Deferred`](flatpath_http::Deferred) its
/// client gets a 500.
///
/// A body that the service wraps in one of its own is taken from there while it is sent, by a
/// worker that waits for it. A body that is fed ([`Body::channel`], events) could make it wait for
/// long, so that is a 500: a service may pass it on, and not wrap it.
///
/// [Trailers](flatpath_http::Trailers) are frames of a body for the service, in both directions:
/// what it leaves of them, or adds, comes after the body. A head names those that the handler has
/// named.
///
/// ```
/// use flatpath_http::Router;
/// use flatpath_http::http::{HeaderValue, header};
/// use flatpath_layers::Tower;
/// use tower_http::set_header::SetResponseHeaderLayer;
///
/// let server = HeaderValue::from_static("ours");
/// let layer = SetResponseHeaderLayer::overriding(header::SERVER, server);
/// let router: Router = Router::new().get("/", || "hello\n").layer(Tower::new(layer));
/// ```
///
/// A service of tower may look at the body of a request, so it is called when all of that is there;
/// one that needs the head alone is put [at the head](Self::at_head).
#[derive(Clone)]
pub struct Tower<S> {
    service: S,
    needs: Needs,
}

impl<S> Tower<S> {
    /// The service that this layer puts around handlers.
    #[must_use]
    pub fn new<L: tower_layer::Layer<TowerHandler, Service = S>>(layer: L) -> Self {
        Self {
            service: layer.layer(TowerHandler::new()),
            needs: Needs::Body,
        }
    }

    /// Has it called when the head of a request is there, as other layers are: for one that admits
    /// requests, say. The body that it gets is empty.
    ///
    /// ```
    /// use flatpath_http::Router;
    /// use flatpath_layers::Tower;
    /// use tower_http::validate_request::ValidateRequestHeaderLayer;
    ///
    /// let text = Tower::new(ValidateRequestHeaderLayer::accept("text/plain")).at_head();
    /// let router: Router = Router::new().post("/", |body: String| body).layer(text);
    /// ```
    #[must_use]
    pub fn at_head(self) -> Self {
        let needs = Needs::Head;
        Self { needs, ..self }
    }
}

impl<S, B> Layer<fn(B)> for Tower<S>
where
    S: Service<http::Request<TowerBody>, Response = http::Response<B>>,
    S: Clone + Send + Sync + 'static,
    S::Error: Into<Box<dyn Error + Send + Sync>>,
    S::Future: Send + 'static,
    B: http_body::Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    fn needs(&self) -> Needs {
        self.needs
    }

    fn call(&self, request: Request, next: &Next<'_>) -> Answer {
        let mut service = self.service.clone();
        let mut context = Context::from_waker(Waker::noop());
        match service.poll_ready(&mut context) {
            Poll::Ready(Ok(())) => {}
            Poll::Ready(Err(error)) => return failed(&*error.into()).into(),
            Poll::Pending => return failed(&NotReady).into(),
        }
        let exchange = Exchange::default();
        let (mut parts, body) = request.into_parts();
        parts.extensions.insert(exchange.clone());
        let body = TowerBody::of_request(body, parts.extensions.remove());
        let request = http::Request::from_parts(parts, body);
        let call = Call {
            future: Box::pin(service.call(request)),
            exchange,
            was_fed: false,
            named: Vec::new(),
        };
        call.run(next)
    }
}

/// A request inside a service of tower.
struct Call<F> {
    future: Pin<Box<F>>,
    exchange: Exchange,
    /// A response of the handler had a body that is fed.
    was_fed: bool,
    /// The trailers that responses of the handler have named.
    named: Vec<HeaderName>,
}

impl<F, B, E> Call<F>
where
    F: Future<Output = Result<http::Response<B>, E>> + Send + 'static,
    E: Into<Box<dyn Error + Send + Sync>>,
    B: http_body::Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    /// To the response, or to what will make it.
    fn run(mut self, next: &Next<'_>) -> Answer {
        loop {
            if let Some(response) = self.poll() {
                return response.into_answer();
            }
            let Some((request, place)) = self.exchange.take_request() else {
                return failed(&NotReady).into();
            };
            let answer = next.run(request);
            let Some(response) = answer.response() else {
                return answer.map(move |response: Response| {
                    self.note(&response);
                    place.put(response);
                    self.poll()
                        .unwrap_or_else(|| match self.exchange.take_request() {
                            Some(_) => failed(&AsksAgain),
                            None => failed(&NotReady),
                        })
                });
            };
            self.note(response);
            // It is there, so this is called at once; what it leaves behind is not sent.
            let _ = answer.map(move |response: Response| place.put(response));
        }
    }

    /// What has to be known of a response of the handler once the service has it.
    fn note(&mut self, response: &Response) {
        self.was_fed |= is_fed(response);
        let trailers = response.extensions().get::<LateTrailers>();
        let named = trailers.map_or(&[][..], LateTrailers::names);
        self.named.extend_from_slice(named);
    }

    /// The response, if the service has it.
    fn poll(&mut self) -> Option<Response> {
        let mut context = Context::from_waker(Waker::noop());
        match self.future.as_mut().poll(&mut context) {
            Poll::Pending => None,
            Poll::Ready(Err(error)) => Some(failed(&*error.into())),
            Poll::Ready(Ok(response)) => {
                let (parts, body) = response.into_parts();
                let named = std::mem::take(&mut self.named);
                Some(match body::take_back(body, self.was_fed, named) {
                    Ok((body, trailers)) => {
                        let response = Response::from_parts(parts, body);
                        match trailers {
                            Some(trailers) => trailers.after(response),
                            None => response,
                        }
                    }
                    Err(refused) => failed(&refused),
                })
            }
        }
    }
}

/// The service waits for something that does not come.
#[derive(Debug)]
struct NotReady;

flatpath::impl_error! {
    NotReady {
        Self => "it is not ready: it waits for what only a runtime can bring, such as a timer",
    }
}

/// The service has a second request for the handler when there is nothing inside any more that
/// could answer it.
#[derive(Debug)]
struct AsksAgain;

flatpath::impl_error! {
    AsksAgain {
        Self => "it asks its handler again after a response that was made later: at the end of an \
                 upload, whose body is gone, or of a `Deferred`",
    }
}

/// The client does not learn why.
fn failed(why: &dyn Error) -> Response {
    log::error!("a layer of tower fails, and its client gets a 500: {why}");
    StatusCode::INTERNAL_SERVER_ERROR.into_response()
}

impl<S> fmt::Debug for Tower<S> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Tower").finish_non_exhaustive()
    }
}

/// Takes a request of the service to the handler.
impl<B> Service<http::Request<B>> for TowerHandler
where
    B: http_body::Body + Send + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    type Response = http::Response<TowerBody>;
    type Error = Infallible;
    type Future = HandlerFuture;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<B>) -> HandlerFuture {
        let (mut parts, body) = request.into_parts();
        let Some(exchange) = parts.extensions.remove::<Exchange>() else {
            log::error!("a layer of tower has taken the extensions of a request away");
            return HandlerFuture::ready(StatusCode::INTERNAL_SERVER_ERROR.into_response());
        };
        match body::request_body(body) {
            Ok((body, trailers)) => {
                if let Some(trailers) = trailers {
                    parts.extensions.insert(Trailers(trailers));
                }
                exchange.ask(Request::from_parts(parts, body))
            }
            Err(error) => {
                let reason = format!("the body was refused: {error}\n");
                HandlerFuture::ready((StatusCode::BAD_REQUEST, reason).into_response())
            }
        }
    }
}

/// Whether a body is fed by what may take its time.
fn is_fed(response: &Response) -> bool {
    matches!(response.body(), Body::Channel(_))
}
