//! What stands around handlers and services: layers.
//!
//! ```text
//! request ─► layer added last ─► ... ─► layer added first ─► handler or service
//! answer  ◄─ its map          ◄─ ... ◄─ its map           ◄─┘
//! ```
//!
//! Invariants
//! - LA1: a layer sees the answer to every request for what it stands around, whatever makes it: an
//!   upload, an extractor's refusal, a body that is too long for its route, 404, 405, a service, or
//!   a panic inside, which is a 500 to the layers around.
//! - LA2: a layer runs once for a request. What has to wait for its turn, or for its body,
//!   continues inside of the layers.
//! - LA3: the layers of a nested router are around its 404, too, or the fallback in its place.
//! - LA4: what a layer sees of a request does not depend on how its bytes have come: the head
//!   alone, unless it or a layer around it [needs](Layer::needs) the body.
//!
//! Its folder has what a layer may answer ([`answer`]), a request between its head and its body
//! ([`whole`]), and layers of this crate ([`time_out`], [`problem`]). Routers and sites use it; the
//! versions of HTTP know of it that a time-out is due.

pub(crate) mod answer;
#[cfg(feature = "json")]
pub(crate) mod problem;
pub(crate) mod time_out;
pub(crate) mod whole;

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use flatpath::contain;

use crate::extract;
use crate::layer::answer::{Answer, IntoAnswer, failed};
use crate::message::{Body, Request};
use crate::service::log_panic;

/// What stands around handlers: a function of a request and the [`Next`], or a type of its own.
///
/// It runs where the handler runs, and may block where it may.
///
/// ```
/// use flatpath_http::http::StatusCode;
/// use flatpath_http::{Answer, IntoAnswer, Layer, Next, Request, Router};
///
/// /// Lets those in who know the word.
/// struct Password(&'static str);
///
/// impl Layer for Password {
///     fn call(&self, request: Request, next: &Next<'_>) -> Answer {
///         let word = request.headers().get("x-password");
///         match word.is_some_and(|word| word == self.0) {
///             true => next.run(request),
///             false => StatusCode::UNAUTHORIZED.into_answer(),
///         }
///     }
/// }
///
/// let router: Router = Router::new().get("/", || "welcome\n").layer(Password("sesame"));
/// ```
///
/// `M` only tells functions from types.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a layer",
    label = "not a layer",
    note = "a layer is a type that implements `Layer`, or a function \
            `fn(Request, &Next<'_>) -> R`, where `R` is `Answer`, or anything that is `IntoAnswer`"
)]
pub trait Layer<M = ()>: Send + Sync + 'static {
    /// Answers a request, with what is inside or without it.
    fn call(&self, request: Request, next: &Next<'_>) -> Answer;

    /// What it needs before it runs. By default that is the head: a layer that admits or refuses
    /// requests, or changes responses, runs before the client has been asked for the body, which is
    /// empty then.
    fn needs(&self) -> Needs {
        Needs::Head
    }

    /// How long a request may take from its arrival on, if the layer answers it otherwise then.
    #[doc(hidden)]
    fn time(&self) -> Option<Duration> {
        None
    }
}

impl<F, R> Layer<fn() -> R> for F
where
    F: Fn(Request, &Next<'_>) -> R + Send + Sync + 'static,
    R: IntoAnswer,
{
    fn call(&self, request: Request, next: &Next<'_>) -> Answer {
        self(request, next).into_answer()
    }
}

/// What a layer needs before it runs: see [`Layer::needs`].
// Exhaustive: there is nothing else in a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Needs {
    /// The head of the request.
    #[default]
    Head,
    /// Its body too, all of it. The layers inside wait with it. On a
    /// [streamed](crate::Methods::streamed) route there is none to wait for: it goes past layers.
    Body,
}

/// A layer that runs when the body is there, whatever it says itself: for a function.
///
/// ```
/// use flatpath_http::http::StatusCode;
/// use flatpath_http::{Answer, Next, Request, Router, WholeBody};
///
/// /// Takes what begins with a signature.
/// fn signed(request: Request, next: &Next<'_>) -> Result<Answer, StatusCode> {
///     match request.body().to_bytes().starts_with(b"signature") {
///         true => Ok(next.run(request)),
///         false => Err(StatusCode::FORBIDDEN),
///     }
/// }
///
/// let router: Router = Router::new().post("/", || "taken\n").layer(WholeBody(signed));
/// # let _ = router;
/// ```
#[derive(Clone, Copy, Debug)]
pub struct WholeBody<L>(pub L);

impl<M: 'static, L: Layer<M>> Layer<fn(WholeBody<M>)> for WholeBody<L> {
    fn call(&self, request: Request, next: &Next<'_>) -> Answer {
        self.0.call(request, next)
    }

    fn needs(&self) -> Needs {
        Needs::Body
    }

    fn time(&self) -> Option<Duration> {
        self.0.time()
    }
}

type LayerCall = dyn Fn(Request, &Next<'_>) -> Answer + Send + Sync;

/// A layer of any kind, which stands around several endpoints.
#[derive(Clone)]
pub(crate) struct Shared {
    call: Arc<LayerCall>,
    /// See [`Layer::needs`].
    needs: Needs,
    /// See [`Layer::time`].
    pub(crate) time: Option<Duration>,
}

pub(crate) fn share<M: 'static>(layer: impl Layer<M>) -> Shared {
    Shared {
        needs: layer.needs(),
        time: layer.time(),
        call: Arc::new(move |request, next: &Next<'_>| layer.call(request, next)),
    }
}

/// What a layer calls to go on: the layer inside, or at last the handler.
///
/// ```
/// use flatpath_http::{Answer, Next, Request, Router};
///
/// fn logged(request: Request, next: &Next<'_>) -> Answer {
///     let target = request.uri().clone();
///     next.run(request).map(move |response| {
///         println!("{target}: {}", response.status());
///         response
///     })
/// }
///
/// let router: Router = Router::new().get("/", || "hello\n").layer(logged);
/// # let _ = router;
/// ```
pub struct Next<'a> {
    /// From the innermost.
    pub(crate) layers: &'a [Shared],
    pub(crate) core: Core<'a>,
}

/// What is inside of all layers.
#[derive(Clone, Copy)]
pub(crate) struct Core<'a> {
    pub(crate) call: &'a dyn Fn(&mut Request) -> Answer,
    /// The same for another worker, where that is possible.
    pub(crate) detach: &'a dyn Fn() -> Option<OwnedCall>,
    pub(crate) body: BodyAt<'a>,
}

/// Where the body of a request is while layers run (LA4).
#[derive(Clone, Copy)]
pub(crate) enum BodyAt<'a> {
    /// With the request, if there is one.
    Request,
    /// Here, for the first that needs it.
    Kept(&'a RefCell<Option<Body>>),
    /// On its way: what makes the answer of what is to go on when it is there.
    ToCome(&'a dyn Fn(&[Shared], Request) -> Answer),
}

impl BodyAt<'_> {
    fn put_back(self, request: &mut Request) {
        if let Self::Kept(kept) = self
            && let Some(body) = kept.take()
        {
            *request.body_mut() = body;
        }
    }
}

pub(crate) type OwnedCall = Arc<dyn Fn(&mut Request) -> Answer + Send + Sync>;

/// A [`Next`] for another worker.
pub(crate) struct Detached {
    layers: Box<[Shared]>,
    call: OwnedCall,
}

impl Detached {
    /// As [`Next::run`].
    pub(crate) fn run(&self, request: Request) -> Answer {
        let core = Core {
            call: &*self.call,
            detach: &|| Some(Arc::clone(&self.call)),
            body: BodyAt::Request,
        };
        let layers = &self.layers;
        Next { layers, core }.run(request)
    }
}

impl Next<'_> {
    /// What answers the request. A panic inside is a 500 here, and a line in the log.
    pub fn run(&self, mut request: Request) -> Answer {
        let answer = contain(|| through(self.layers, self.core, &mut request));
        answer.unwrap_or_else(|| {
            log_panic(request.method().as_str(), request.uri().path());
            failed().into()
        })
    }

    /// The same for another worker, with this request. `None`: it has to run here.
    pub(crate) fn detached(&self, request: &mut Request) -> Option<Detached> {
        let call = (self.core.detach)()?;
        self.core.body.put_back(request);
        let layers = self.layers.into();
        Some(Detached { layers, call })
    }
}

impl std::fmt::Debug for Next<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = formatter.debug_struct("Next");
        shown.field("layers", &self.layers.len());
        shown.finish_non_exhaustive()
    }
}

/// Answers a request through layers, of which the last is the outermost.
pub(crate) fn through(layers: &[Shared], core: Core<'_>, request: &mut Request) -> Answer {
    let Some((outermost, inside)) = layers.split_last() else {
        core.body.put_back(request);
        return (core.call)(request);
    };
    match (outermost.needs, core.body) {
        (Needs::Head, _) => {}
        (Needs::Body, BodyAt::ToCome(leave)) => return leave(layers, extract::take(request)),
        (Needs::Body, at) => at.put_back(request),
    }
    let next = Next {
        layers: inside,
        core,
    };
    (outermost.call)(extract::take(request), &next)
}
