//! Whether a client still waits: for handlers that work for long.

use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::extract::{Asks, FromRequestParts};
use crate::message::Request;
use crate::streams::deferred::Slot;

/// Tells a handler that works for long whether its client still waits, as an argument of it. What
/// the handler answers once the client is gone reaches nobody, so it may as well end.
///
/// ```
/// use flatpath_http::http::StatusCode;
/// use flatpath_http::{ClientWatch, Router};
///
/// fn count(client: ClientWatch) -> Result<String, StatusCode> {
///     let mut sum = 0_u64;
///     for step in 0..1_000 {
///         if client.is_gone() {
///             // Nobody gets it.
///             return Err(StatusCode::SERVICE_UNAVAILABLE);
///         }
///         sum += step; // Or whatever takes its time.
///     }
///     Ok(format!("{sum}\n"))
/// }
///
/// let router: Router = Router::new().get("/count", count);
/// ```
///
/// A clone may be kept for as long as the work takes: by the thread that makes a
/// [`Deferred`](crate::Deferred) response, by the sink of an [`Upload`](crate::Upload).
///
/// A client is gone when its connection is, when it has closed its side of it over HTTP/1.1 (the
/// few that do so and still read get the answer all the same), and when it has reset its stream or
/// ended its connection over HTTP/2. Nobody waits any more either when a
/// [`TimeOut`](crate::TimeOut) has answered, or the response is on its way.
///
/// Cost: asking is one load, and a lock where a time-out is around. A connection pays an allocation
/// of a few bytes for its first such request, over HTTP/2 each such request, and each an entry in
/// its extensions.
///
/// Limits: a client whose machine has vanished without a word is found out by the deadlines of its
/// connection only. Over HTTP/1.1 the server learns nothing while it does not read: because the
/// client has sent more requests than are answered at a time, or bytes after its last one, or the
/// rest of a body is held back.
/// Handlers that run [inline](crate::Methods::inline) are told nothing: there it is always false.
#[derive(Clone, Default)]
pub struct ClientWatch {
    is_gone: Arc<AtomicBool>,
    /// Of the time-out that is around, if one is.
    timed: Option<Arc<Slot>>,
}

impl fmt::Debug for ClientWatch {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = formatter.debug_struct("ClientWatch");
        shown
            .field("is_gone", &self.is_gone())
            .finish_non_exhaustive()
    }
}

impl ClientWatch {
    /// Whether nobody waits for the answer any more. It stays so.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        // ORDER: Relaxed: it publishes nothing.
        self.is_gone.load(Ordering::Relaxed) || self.timed.as_ref().is_some_and(|it| it.is_late())
    }

    /// That of a request whose handler asks for one.
    pub(crate) fn of(request: &mut Request) -> Option<&mut Self> {
        request.extensions_mut().get_mut()
    }

    /// A time-out is around, which answers in place of this.
    pub(crate) fn is_timed_by(&mut self, slot: Arc<Slot>) {
        self.timed = Some(slot);
    }
}

impl<S> FromRequestParts<S> for ClientWatch {
    type Rejection = Infallible;

    const ASKS: Asks = Asks::CLIENT;

    fn from_request_parts(request: &mut Request, _: &S) -> Result<Self, Infallible> {
        Ok(request.extensions().get().cloned().unwrap_or_default())
    }
}

/// The connection's end, or that of a stream: dropped, it says that the client is gone.
#[derive(Default)]
pub(crate) struct Watched(Arc<AtomicBool>);

impl Watched {
    pub(crate) fn watch(&self) -> ClientWatch {
        ClientWatch {
            is_gone: Arc::clone(&self.0),
            timed: None,
        }
    }

    pub(crate) fn is_gone(&self) {
        // ORDER: Relaxed: as above.
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.is_gone();
    }
}
