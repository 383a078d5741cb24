//! Responses that are made later, elsewhere: by a future, by another thread, by an event.
//!
//! A handler returns a [`Deferred`] and is done. The request's job goes home without a reply and
//! lies with its connection, which holds no worker and no buffer for it. When the [`Responder`] has
//! a response, the connection is woken and sends the job to a worker, which does what layers do to
//! responses and writes the head, as for any other.
//!
//! ```text
//! handler ─► Deferred ─► home ─► with the connection ─────────► worker: changes, head ─► reply
//!    └─► Responder ─► send ─► wake ─┘        └─► the connection ends: on_close
//! ```
//!
//! | may run beside                   | those of `Responder` | those of `Pending` |
//! |----------------------------------|----------------------|--------------------|
//! | those of `Responder`             | yes                  | yes                |
//! | `then`, `is_ready`, `response`   | yes                  | no: one connection |
//!
//! Invariants
//! - DR1: there is one response: the responder's, or the 500 for a responder that is dropped
//!   without one.
//! - DR2: the connection is woken once, after the response is there, if it has found nothing.
//! - DR3: `on_close`'s function is called at most once, and only if the client does not get the
//!   responder's response: outside of the lock, and on a network thread contained.
//!
//! A [`TimeOut`](crate::TimeOut) is one whose responder is work for another worker, and which is
//! answered otherwise when its time is over. What is inside may have deferred its response in turn,
//! another `TimeOut` among it: then that takes the place of the first, which keeps its time.
//!
//! Ordering: a lock.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use flatpath::lock::Lock;
use flatpath::{ConnectionHandle, Ticket};
use http::StatusCode;

use crate::layer::answer::{Answer, Change, Kind, failed};
use crate::limits::TIME_OUT_GRACE;
use crate::message::Response;
use crate::respond::carried::Carried;
use crate::respond::into_response::{IntoResponse, refused};
use crate::streams::errand::Errand;
use crate::takeover::tunnel::TunnelWork;

/// A response that is made later, as what a handler returns; and the [`Responder`] that makes it.
///
/// Meanwhile no worker and no thread waits. A client that closes its side of the connection is
/// taken to be gone, as with [`Body::channel`](crate::Body::channel). What waits holds one of the
/// places for requests that last ([`Limits`](flatpath::Limits)); without one the client gets 503.
/// An inline handler may return one too, and then no worker is asked at all before the response is
/// there.
///
/// ```
/// use std::thread;
///
/// use flatpath_http::{Deferred, Router};
///
/// fn slow() -> Deferred {
///     let (responder, deferred) = Deferred::new();
///     // Any thread, or the callback of another library.
///     thread::spawn(move || responder.send("at last\n"));
///     deferred
/// }
///
/// let router: Router = Router::new().get("/slow", slow);
/// ```
#[must_use = "without it the request is answered by something else"]
pub struct Deferred(Pending);

/// Makes the response to a request whose handler has returned a [`Deferred`]. Dropped without
/// having made one, it answers 500.
#[must_use = "dropped, it answers 500"]
pub struct Responder {
    slot: Arc<Slot>,
}

/// The client of a [`Responder`] is gone, or its request has been answered otherwise: the response
/// was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponderClosed;

flatpath::impl_error! {
    ResponderClosed {
        Self => "the client does not wait for this response any more",
    }
}

type OnClose = Box<dyn FnOnce() + Send>;

/// Between the two.
#[derive(Default)]
pub(crate) struct Slot(Lock<State>);

#[derive(Default)]
struct State {
    made: Option<Made>,
    /// The responder is done, or it is too late for it.
    is_answered: bool,
    /// Nothing waits for the response.
    is_closed: bool,
    /// What is woken when there is a response.
    connection: Option<ConnectionHandle>,
    on_close: Option<OnClose>,
}

/// What has come of it.
enum Made {
    Response(Box<Response>),
    /// It is made by yet another responder.
    Elsewhere(Pending),
}

impl Deferred {
    /// A response that is still to be made, and what makes it.
    pub fn new() -> (Responder, Self) {
        let slot = Arc::new(Slot::default());
        let responder = Responder {
            slot: Arc::clone(&slot),
        };
        (responder, Self(Pending::new(slot)))
    }

    /// A response that is made by a future, which this runtime polls; a client that goes away drops
    /// the future. A panic in it is a 500.
    ///
    /// ```no_run
    /// use flatpath_http::{Deferred, Router, State};
    /// use tokio::runtime::{Handle, Runtime};
    ///
    /// async fn ask_others() -> String {
    ///     // Requests to other services, say, all at once.
    ///     "what they have said\n".to_owned()
    /// }
    ///
    /// fn fan_out(State(runtime): State<Handle>) -> Deferred {
    ///     Deferred::spawn(&runtime, ask_others())
    /// }
    ///
    /// # fn main() -> std::io::Result<()> {
    /// let runtime = Runtime::new()?;
    /// let router: Router = Router::new().get("/", fan_out).with_state(runtime.handle().clone());
    /// # let _ = router;
    /// # Ok(())
    /// # }
    /// ```
    #[cfg(feature = "async")]
    pub fn spawn<F>(runtime: &tokio::runtime::Handle, future: F) -> Self
    where
        F: Future<Output: IntoResponse> + Send + 'static,
    {
        let (responder, deferred) = Self::new();
        let slot = Arc::clone(&responder.slot);
        let task = runtime.spawn(async move {
            let response = future.await;
            // A client that is gone has aborted this, or is about to.
            let _sent = responder.send(response);
        });
        let task = task.abort_handle();
        slot.on_close(Box::new(move || task.abort()));
        deferred
    }
}

impl Deferred {
    pub(crate) fn pending_mut(&mut self) -> &mut Pending {
        &mut self.0
    }
}

impl fmt::Debug for Deferred {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Deferred").finish_non_exhaustive()
    }
}

impl Responder {
    /// Answers the request.
    ///
    /// # Errors
    /// Its client is gone, and the response was dropped.
    pub fn send(self, response: impl IntoResponse) -> Result<(), ResponderClosed> {
        self.answer(response.into_response().into())
    }

    /// Between it and what waits for it.
    pub(crate) fn slot(&self) -> Arc<Slot> {
        Arc::clone(&self.slot)
    }

    pub(crate) fn answer(self, answer: Answer) -> Result<(), ResponderClosed> {
        self.slot.answer(match answer.0 {
            Kind::Deferred(pending) => Made::Elsewhere(pending),
            other => Made::Response(Box::new(Answer(other).into_response_now())),
        })
    }

    /// Whether the client is gone: what is sent is dropped.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.slot.0.lock().is_closed
    }

    /// Calls a function when the client is gone and gets no response, at once if it is gone
    /// already. It may run on a network thread and must not block. One function: the latest counts.
    pub fn on_close(&self, act: impl FnOnce() + Send + 'static) {
        self.slot.on_close(Box::new(act));
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        let state = self.slot.0.lock();
        // Of a client that is gone nothing has to be said.
        let is_awaited = !state.is_answered && !state.is_closed;
        drop(state);
        if is_awaited {
            log::error!("a responder was dropped without a response; its client gets a 500");
            let _sent = self.slot.answer(Made::Response(Box::new(failed())));
        }
    }
}

impl fmt::Debug for Responder {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Responder").finish_non_exhaustive()
    }
}

impl Slot {
    /// Whether nothing that is made now would be the response.
    pub(crate) fn is_late(&self) -> bool {
        let state = self.0.lock();
        state.is_answered || state.is_closed
    }

    fn answer(&self, made: Made) -> Result<(), ResponderClosed> {
        let mut state = self.0.lock();
        let is_late = std::mem::replace(&mut state.is_answered, true) || state.is_closed;
        let on_close = state.on_close.take();
        if is_late {
            drop(state);
            made.discard();
            return Err(ResponderClosed);
        }
        let none = state.made.replace(made);
        let connection = state.connection.take();
        drop(state);
        debug_assert!(none.is_none(), "a responder answers once");
        if let Some(connection) = connection {
            connection.wake();
        }
        drop(on_close);
        Ok(())
    }

    /// What makes the response now, if it was deferred again.
    fn take_elsewhere(&self) -> Option<Pending> {
        let mut state = self.0.lock();
        match state
            .made
            .take_if(|made| matches!(made, Made::Elsewhere(_)))?
        {
            Made::Elsewhere(pending) => Some(pending),
            Made::Response(_) => None,
        }
    }

    fn on_close(&self, act: OnClose) {
        let mut state = self.0.lock();
        let act = match (state.is_answered, state.is_closed) {
            (true, _) => return,
            (false, true) => act,
            (false, false) => match state.on_close.replace(act) {
                None => return,
                Some(before) => {
                    drop(state);
                    return drop(before);
                }
            },
        };
        drop(state);
        act();
    }
}

impl Made {
    fn discard(self) {
        match self {
            Self::Response(response) => flatpath::discard(response),
            // It tells its responder.
            Self::Elsewhere(pending) => drop(pending),
        }
    }
}

/// The connection's end: dropped, it tells the responder that the client is gone.
pub(crate) struct Pending {
    slot: Arc<Slot>,
    /// What layers do to the response, innermost first.
    changes: Vec<Change>,
    /// What another worker does to make it, until that has begun.
    work: Option<Box<dyn TunnelWork>>,
    /// The job that does it, from then on.
    job: Option<Ticket>,
    /// A time-out has made the response.
    is_given_up: bool,
    /// How long it may take: one for each time-out that is around.
    bounds: Vec<Bound>,
    /// What makes it on the network thread.
    pub(crate) errand: Option<Box<Errand>>,
}

/// A time-out.
struct Bound {
    time: Duration,
    /// When it is over, once it is with its connection, in the time of `Turn::now`.
    end: Option<Duration>,
    /// How many of the changes are those of layers inside of it.
    inside: usize,
}

impl Pending {
    fn new(slot: Arc<Slot>) -> Self {
        Self {
            slot,
            changes: Vec::new(),
            work: None,
            job: None,
            is_given_up: false,
            bounds: Vec::new(),
            errand: None,
        }
    }

    /// A response that another worker makes, within a time.
    pub(crate) fn within(
        time: Duration,
        work: impl FnOnce(Responder) -> Box<dyn TunnelWork>,
    ) -> Self {
        let (responder, Deferred(pending)) = Deferred::new();
        let mut pending = pending;
        pending.work = Some(work(responder));
        pending.bounds.push(Bound {
            time,
            end: None,
            inside: 0,
        });
        pending
    }

    /// It is with its connection from now on, whose request has arrived at this time: what another
    /// worker has to do for it.
    pub(crate) fn begin(&mut self, arrived: Duration) -> Option<Box<dyn TunnelWork>> {
        for bound in &mut self.bounds {
            let end = arrived.saturating_add(bound.time);
            bound.end.get_or_insert(end);
        }
        self.work.take()
    }

    /// This job does the work.
    pub(crate) fn begun_by(&mut self, job: Option<Ticket>) {
        self.job = job;
    }

    /// By when a worker is to take the response on its way, where a time-out is around.
    pub(crate) fn leaves_by(&self, now: Duration) -> Option<Duration> {
        let is_timed = self.is_given_up || !self.bounds.is_empty();
        let end = self.end().map_or(now, |end| end.max(now));
        is_timed.then(|| end.saturating_add(TIME_OUT_GRACE))
    }

    /// Whether the response is ours and no layer changes it: no worker is needed for it.
    pub(crate) fn is_bare(&self) -> bool {
        (self.is_given_up || self.errand.is_some()) && self.changes.is_empty()
    }

    /// When its time is over, or its errand is to be called: the first of these.
    pub(crate) fn end(&self) -> Option<Duration> {
        let errand = self.errand.as_ref().and_then(|errand| errand.end());
        let bounds = self.bounds.iter().filter_map(|bound| bound.end);
        bounds.chain(errand).min()
    }

    /// If a time-out is over, this is the response, in place of its responder's, if there is none
    /// yet. The layers around that time-out change it. The job is returned that was to make it, if
    /// there is one.
    pub(crate) fn give_up(&mut self, now: Duration, response: Response) -> Option<Ticket> {
        self.follow();
        let ended = self.bounds.iter().filter(|bound| bound.end.is_some());
        let first = ended.min_by_key(|bound| bound.end)?;
        let inside = first.inside;
        if first.end.is_none_or(|end| end > now) {
            return None;
        }
        let mut state = self.slot.0.lock();
        if std::mem::replace(&mut state.is_answered, true) {
            // It came in time after all, if late.
            return None;
        }
        let none = state.made.replace(Made::Response(Box::new(response)));
        let on_close = state.on_close.take();
        drop(state);
        debug_assert!(none.is_none(), "it was not answered");
        self.is_given_up = true;
        self.bounds.clear();
        self.errand = None;
        call_on_close(on_close);
        if let Some(work) = self.work.take() {
            flatpath::discard(work);
        }
        let around = self.changes.split_off(inside);
        let inside = std::mem::replace(&mut self.changes, around);
        if !inside.is_empty() {
            flatpath::discard(inside);
        }
        self.job.take()
    }

    /// The response that a handler has deferred, out of what it has answered with.
    pub(crate) fn take(response: &mut Response) -> Option<Self> {
        Carried::take(response.extensions_mut())
    }

    /// Has the response changed when it is there.
    pub(crate) fn then(mut self, change: Change) -> Self {
        self.changes.push(change);
        self
    }

    /// Whether the response is there; if not, this connection is woken when it is.
    pub(crate) fn is_ready(&mut self, connection: impl Fn() -> ConnectionHandle) -> bool {
        loop {
            self.follow();
            let mut state = self.slot.0.lock();
            match &state.made {
                Some(Made::Response(_)) => return true,
                // It was deferred again meanwhile.
                Some(Made::Elsewhere(_)) => {}
                None => {
                    state.connection.get_or_insert_with(connection);
                    return false;
                }
            }
        }
    }

    /// Waits for the responder's responder where that has deferred the response again.
    fn follow(&mut self) {
        while let Some(mut inner) = self.slot.take_elsewhere() {
            std::mem::swap(&mut self.slot, &mut inner.slot);
            let outer = std::mem::replace(&mut self.changes, std::mem::take(&mut inner.changes));
            for bound in &mut self.bounds {
                bound.inside += self.changes.len();
            }
            self.changes.extend(outer);
            self.bounds.append(&mut inner.bounds);
            debug_assert!(self.work.is_none(), "what has not begun has no result");
            self.work = inner.work.take();
            // What has answered runs no more.
            self.job = inner.job.take();
            self.errand = inner.errand.take();
        }
    }

    /// The response, with what layers do to it. On a worker.
    pub(crate) fn response(mut self) -> Response {
        let made = self.slot.0.lock().made.take();
        let response = match made {
            Some(Made::Response(response)) => *response,
            _ => failed(),
        };
        let changes = std::mem::take(&mut self.changes).into_iter();
        changes.fold(response, |response, change| change(response))
    }
}

fn call_on_close(on_close: Option<OnClose>) {
    if let Some(on_close) = on_close
        && flatpath::contain(on_close).is_none()
    {
        log::error!("what a responder does when its client is gone has panicked");
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        let mut state = self.slot.0.lock();
        state.is_closed = true;
        let (made, on_close) = (state.made.take(), state.on_close.take());
        let connection = state.connection.take();
        drop(state);
        drop(connection);
        if let Some(made) = made {
            made.discard();
        }
        call_on_close(on_close);
        if let Some(work) = self.work.take() {
            flatpath::discard(work);
        }
        if !self.changes.is_empty() {
            flatpath::discard(std::mem::take(&mut self.changes));
        }
    }
}

impl fmt::Debug for Pending {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Pending").finish_non_exhaustive()
    }
}

impl IntoResponse for Pending {
    fn into_response(self) -> Response {
        let reason = "the response is made later, which is not possible here";
        let mut response = refused(StatusCode::INTERNAL_SERVER_ERROR, &reason);
        Carried::put(response.extensions_mut(), self);
        response
    }
}

impl IntoResponse for Deferred {
    fn into_response(self) -> Response {
        self.0.into_response()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use http::HeaderName;

    use super::*;

    /// A layer that adds a header.
    fn named(name: &'static str) -> Change {
        Box::new(move |mut response| {
            response.headers_mut().insert(name, 1.into());
            response
        })
    }

    #[test]
    fn a_time_out_answers_in_place_of_what_was_deferred_again() {
        for is_looked_at in [false, true] {
            let (outer, Deferred(mut pending)) = Deferred::new();
            let (inner, Deferred(again)) = Deferred::new();
            // A layer between: it is inside of the time-out.
            let again = again.then(named("x-inner"));
            let closed = Arc::new(AtomicUsize::new(0));
            let counted = Arc::clone(&closed);
            inner.on_close(move || {
                counted.fetch_add(1, Ordering::Relaxed);
            });
            outer
                .answer(again.into_response().into())
                .expect("it is awaited");
            pending.bounds.push(Bound {
                time: Duration::ZERO,
                end: Some(Duration::ZERO),
                inside: 0,
            });
            let mut pending = pending.then(named("x-outer"));
            if is_looked_at {
                pending.follow();
            }
            pending.give_up(
                Duration::ZERO,
                StatusCode::SERVICE_UNAVAILABLE.into_response(),
            );
            assert_eq!(closed.load(Ordering::Relaxed), 1, "its responder knows");
            inner.send("too late").expect_err("it is answered");
            let response = pending.response();
            let headers: Vec<_> = response.headers().keys().map(HeaderName::as_str).collect();
            assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
            assert_eq!(headers, ["x-outer"]);
        }
    }
}
