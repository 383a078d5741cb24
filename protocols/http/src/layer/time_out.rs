//! A time-out for handlers: others are answered while one takes too long, and so is its client.

use std::any::Any;
use std::time::Duration;

use http::StatusCode;

use crate::connection::client_watch::ClientWatch;
use crate::layer::answer::{Answer, Kind};
use crate::layer::{Detached, Layer, Needs, Next};
use crate::message::{Request, Response};
use crate::respond::into_response::refused;
use crate::streams::deferred::{Pending, Responder};
use crate::takeover::tunnel::TunnelWork;

/// A layer that answers 503 when what is inside takes longer than a time, from the arrival of the
/// whole request on.
///
/// A request that still waits for a worker then is answered all the same, at its time, and its
/// handler is not called. A function that runs cannot be stopped: the handler is left to end, on
/// its worker, and what it answers then is dropped; [`ClientWatch`](crate::ClientWatch) tells it
/// so. A future ([`Deferred::spawn`](crate::Deferred)) is dropped. The layers around see the 503;
/// those inside see what the handler answers at last. Where all workers are at something else, so
/// that none has begun with the layers around or can do what these do to the 503, the client gets
/// it without them: these do not learn of it.
///
/// Handlers with time-outs leave a quarter of the workers to all others, so that those which are at
/// what nobody waits for do not keep the rest from being served; a route or a router may have
/// [workers of its own](crate::Router::workers) instead.
///
/// Of several around one handler, that whose time is over first answers: a route may have less time
/// than its router.
///
/// The handler and the layers inside run on a worker that need not be the one of the layers around,
/// so each time-out costs another way to a worker. Around inline handlers, which must not take
/// long, around mounted services and uploads that are streamed, whose clients have deadlines of
/// their own, it does nothing. Put into a function of your own, it counts from the arrival too, but
/// nothing knows of it before a worker has begun with the request, and such a function needs the
/// body ([`WholeBody`](crate::WholeBody)) as this does; so it is with routers among
/// [`LiveSites`](crate::LiveSites).
///
/// ```
/// use std::time::Duration;
///
/// use flatpath_http::{Router, TimeOut};
///
/// let router: Router = Router::new()
///     .get("/report", || "made at length\n")
///     .layer(TimeOut::after(Duration::from_secs(10)));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct TimeOut(Duration);

impl TimeOut {
    /// A time-out after this time, from when the request has arrived with its body.
    #[must_use]
    pub fn after(time: Duration) -> Self {
        Self(time)
    }
}

impl Layer for TimeOut {
    /// Its time begins when the request has arrived.
    fn needs(&self) -> Needs {
        Needs::Body
    }

    fn time(&self) -> Option<Duration> {
        Some(self.0)
    }

    fn call(&self, mut request: Request, next: &Next<'_>) -> Answer {
        let Some(inner) = next.detached(&mut request) else {
            return next.run(request);
        };
        let pending = Pending::within(self.0, |responder| {
            if let Some(watch) = ClientWatch::of(&mut request) {
                watch.is_timed_by(responder.slot());
            }
            Box::new(Work(Some((inner, request, responder))))
        });
        Answer(Kind::Deferred(pending))
    }
}

/// What answers when the time is over.
pub(crate) fn too_slow() -> Response {
    let reason = "The request took too long.";
    refused(StatusCode::SERVICE_UNAVAILABLE, &reason)
}

/// What the other worker does, once, if it is not too late. Dropped before that, it answers: there
/// was no room for it.
struct Work(Option<(Detached, Request, Responder)>);

impl Drop for Work {
    fn drop(&mut self) {
        if let Some((_, _, responder)) = self.0.take() {
            let reason = "The server has too much to do.";
            let busy = refused(StatusCode::SERVICE_UNAVAILABLE, &reason);
            // Its client may be gone.
            let _sent = responder.send(busy);
        }
    }
}

impl TunnelWork for Work {
    fn run(&mut self) {
        if let Some((inner, request, responder)) = self.0.take()
            && !responder.slot().is_late()
        {
            // It may be too late now.
            let _sent = responder.answer(inner.run(request));
        }
    }

    fn panicked(&mut self) {}

    fn into_any(self: Box<Self>) -> Box<dyn Any + Send> {
        self
    }
}
