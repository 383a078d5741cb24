//! Server-sent events: a response that lasts, and brings events as they happen (WHATWG HTML,
//! section 9.2; `EventSource` in browsers).
//!
//! A stream holds neither a worker nor a thread. One that waits is its connection and less than 200
//! bytes, so that a server has as many listeners as connections.
//!
//! | events for              | take                                                     |
//! |-------------------------|----------------------------------------------------------|
//! | one client              | [`channel`]: [`Events`] sends, with back-pressure        |
//! | all who listen          | [`Broadcast`]: encoded once, never blocks, cuts off who is slow |
//!
//! ```
//! use std::time::Duration;
//!
//! use flatpath_http::{Request, Response, sse};
//!
//! fn count(_: Request) -> Response {
//!     let (events, response) = sse::channel();
//!     std::thread::spawn(move || {
//!         for number in 1.. {
//!             let event = sse::Event::new().id(number.to_string()).data("tick");
//!             if events.send(event).is_err() {
//!                 // The client is gone, or the server drains.
//!                 break;
//!             }
//!             std::thread::sleep(Duration::from_secs(1));
//!         }
//!     });
//!     response
//! }
//! # let _ = count;
//! ```
//!
//! - While nothing is sent, a comment is, every
//!   [`push_interval`](flatpath::Limits::push_interval): proxies keep the stream open, and a client
//!   that has vanished is noticed when it acknowledges nothing for `write_timeout`.
//! - A drain ends the streams after what waits. Browsers come back by themselves, to the next
//!   server.

use std::fmt;

use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue};

use crate::message::{Body, Response};
use crate::streams::channel::{self, Kind, SendError, Sender, TrySendError};

pub use crate::streams::broadcast::Broadcast;
pub use crate::streams::event::Event;

/// What may wait for one client, in bytes.
const WAITING_BYTES_MAX: usize = 64 * 1024;

/// The header of a client that comes back (WHATWG HTML, 9.2.4).
const LAST_EVENT_ID: &str = "last-event-id";

/// What a client is told that has missed events.
const MISSED: &[u8] = b"event: missed\ndata: \n\n";

/// The response that its client gets events with, and what sends them. At most 64 KiB of events
/// wait for the client to read.
///
/// ```
/// use std::thread;
/// use std::time::Duration;
///
/// use flatpath_http::{Response, Router, sse};
///
/// /// A number each second, until the client is gone or the server drains.
/// fn numbers() -> Response {
///     let (events, response) = sse::channel();
///     thread::spawn(move || {
///         for number in 1_u64.. {
///             if events.send(number.to_string()).is_err() {
///                 return;
///             }
///             thread::sleep(Duration::from_secs(1));
///         }
///     });
///     response
/// }
///
/// let router: Router = Router::new().get("/numbers", numbers);
/// # let _ = router;
/// ```
#[must_use]
pub fn channel() -> (Events, Response) {
    let (sender, pieces) = channel::channel(WAITING_BYTES_MAX, Kind::Events);
    (Events(sender), response(Body::Channel(pieces.into())))
}

impl Broadcast {
    /// The response that makes its client a listener, of the events that are sent from now on.
    #[must_use]
    pub fn response(&self) -> Response {
        self.response_after([])
    }

    /// The response to a client that may come back: with the events since its `Last-Event-ID`
    /// ([`Broadcast::response_since`]) if it has that header, and of those that are sent from now
    /// on if not.
    ///
    /// ```
    /// use flatpath_http::http::HeaderMap;
    /// use flatpath_http::sse::{Broadcast, Event};
    /// use flatpath_http::{Router, routing};
    ///
    /// let news = Broadcast::with_history(1000);
    /// let listen = news.clone();
    /// let listen = move |headers: HeaderMap| listen.response_to(&headers);
    /// let router: Router = Router::new().route("/news", routing::get(listen).inline());
    /// news.send(Event::new().id("2026-11-27/1").data("hello"));
    /// # let _ = router;
    /// ```
    #[must_use]
    pub fn response_to(&self, headers: &HeaderMap) -> Response {
        match headers.get(LAST_EVENT_ID) {
            Some(id) => self.response_since(id.as_bytes()),
            None => self.response(),
        }
    }

    /// The response with all events that were sent after the one with this id, and those that will
    /// be: each once and in order, whatever is sent meanwhile. They are those of the history,
    /// shared, and not copied for this client.
    ///
    /// If no event of the history has the id, because that one has left it, or was sent by another
    /// server, or never was, nobody knows how many the client has missed. Its stream begins with an
    /// event named `missed`, with empty data and without an id, and then has the whole history, of
    /// which the client has seen nothing. So a page reloads what it shows when it gets `missed`.
    ///
    /// Ids are to be different for as long as clients may come back, across restarts of the
    /// server; of several events with the same the latest counts. An event without an id comes
    /// again with those after the last id that the client has seen, so give each one.
    #[must_use]
    pub fn response_since(&self, last_event_id: impl AsRef<[u8]>) -> Response {
        let listener = self.listener_since(last_event_id.as_ref(), MISSED);
        response(Body::Channel(listener.into()))
    }

    /// The response with all events of the history, and those that will be sent: for newcomers that
    /// are to know what happened last.
    #[must_use]
    pub fn response_with_history(&self) -> Response {
        response(Body::Channel(self.listener_to_all().into()))
    }

    /// As [`Broadcast::response`], of these events first: what a newcomer is to know that is not
    /// in the history.
    ///
    /// No event is left out and none comes twice if a lock is held while an event is recorded and
    /// sent, and while the record is read and this is called.
    ///
    /// ```
    /// use std::sync::Mutex;
    ///
    /// use flatpath_http::Response;
    /// use flatpath_http::sse::{Broadcast, Event};
    ///
    /// struct Scores {
    ///     all: Mutex<Vec<u32>>,
    ///     listeners: Broadcast,
    /// }
    ///
    /// fn event(number: usize, score: u32) -> Event {
    ///     Event::new().id(number.to_string()).data(score.to_string())
    /// }
    ///
    /// impl Scores {
    ///     fn add(&self, score: u32) {
    ///         let mut all = self.all.lock().expect("whole");
    ///         self.listeners.send(event(all.len(), score));
    ///         all.push(score);
    ///     }
    ///
    ///     fn listen_from(&self, number: usize) -> Response {
    ///         let all = self.all.lock().expect("whole");
    ///         let missed = all.iter().copied().enumerate().skip(number);
    ///         self.listeners.response_after(missed.map(|(number, score)| event(number, score)))
    ///     }
    /// }
    /// # let scores = Scores { all: Mutex::default(), listeners: Broadcast::new() };
    /// # scores.add(7);
    /// # let _ = scores.listen_from(0);
    /// ```
    #[must_use]
    pub fn response_after(&self, first: impl IntoIterator<Item = Event>) -> Response {
        let first = first.into_iter().map(|event| event.to_bytes());
        let first = first.collect::<Vec<_>>().concat();
        response(Body::Channel(self.listener(first.into()).into()))
    }
}

fn response(body: Body) -> Response {
    let mut response = Response::new(body);
    for (name, value) in [
        // Always UTF-8: 9.2.5.
        (CONTENT_TYPE, "text/event-stream"),
        (CACHE_CONTROL, "no-store"),
        // nginx would gather events otherwise.
        (http::HeaderName::from_static("x-accel-buffering"), "no"),
    ] {
        let headers = response.headers_mut();
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

/// Sends events to one client; see [`channel`]. Dropped, it ends the stream.
pub struct Events(Sender);

impl Events {
    /// Sends an event; waits while 64 KiB wait for the client. A network thread (an inline handler,
    /// say) must not wait: there a full stream is an error.
    ///
    /// # Errors
    /// [`SendError`] when the client is gone, the server drains, or a network thread would have to
    /// wait.
    pub fn send(&self, event: impl Into<Event>) -> Result<(), SendError> {
        self.0.send(event.into())
    }

    /// Sends an event if there is room for it.
    ///
    /// # Errors
    /// Gives the event back, as text, when the client has not read enough, or is gone, or the
    /// server drains.
    pub fn try_send(&self, event: impl Into<Event>) -> Result<(), TrySendError> {
        self.0.try_send(event.into())
    }

    /// Whether the client is gone, or the server drains: nothing more is sent.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.0.is_closed()
    }

    /// Calls a function when the stream has closed, or there is room again after
    /// [`TrySendError::Full`]; see [`Sender::on_event`].
    pub fn on_event(&self, act: impl Fn() + Send + Sync + 'static) {
        self.0.on_event(act);
    }
}

impl fmt::Debug for Events {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Events").finish_non_exhaustive()
    }
}
