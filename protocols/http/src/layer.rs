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
//! - LA2: a layer runs once for a request. What has to wait for its turn goes on behind the layers.
//! - LA3: the layers of a nested router are around its 404, too, or the fallback in its place.

use std::sync::Arc;
use std::time::Duration;

use flatpath::contain;

use crate::answer::{Answer, IntoAnswer, failed};
use crate::extract;
use crate::message::Request;
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

type LayerCall = dyn Fn(Request, &Next<'_>) -> Answer + Send + Sync;

/// A layer of any kind, which stands around several endpoints.
#[derive(Clone)]
pub(crate) struct Shared {
    call: Arc<LayerCall>,
    /// See [`Layer::time`].
    pub(crate) time: Option<Duration>,
}

pub(crate) fn share<M: 'static>(layer: impl Layer<M>) -> Shared {
    Shared {
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
    layers: &'a [Shared],
    core: Core<'a>,
}

/// What is inside of all layers.
#[derive(Clone, Copy)]
pub(crate) struct Core<'a> {
    pub(crate) call: &'a dyn Fn(&mut Request) -> Answer,
    /// The same for another worker, where that is possible.
    pub(crate) detach: &'a dyn Fn() -> Option<OwnedCall>,
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

    /// The same for another worker. `None`: it has to run here.
    pub(crate) fn detached(&self) -> Option<Detached> {
        let call = (self.core.detach)()?;
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
    match layers.split_last() {
        None => (core.call)(request),
        Some((outermost, layers)) => {
            (outermost.call)(extract::take(request), &Next { layers, core })
        }
    }
}
