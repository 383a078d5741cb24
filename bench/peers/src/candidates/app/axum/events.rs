//! What was added, to everybody who listens; those who come back get what they have missed.

use std::collections::VecDeque;

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::sse::{Event, KeepAlive, Sse};
use flatpath::lock::Lock;
use futures_util::{Stream, StreamExt, stream};
use tokio::sync::broadcast::{self, Receiver, Sender};
use tokio::sync::watch;
use tokio_stream::wrappers::BroadcastStream;
use tokio_stream::wrappers::errors::BroadcastStreamRecvError;

use super::App;
use super::session::User;

/// Events that are kept, and that a listener may be behind.
const EVENTS_MAX: usize = 256;

pub(super) struct Added {
    history: Lock<VecDeque<(String, Event)>>,
    listeners: Sender<Event>,
    is_over: watch::Sender<bool>,
}

impl Added {
    pub(super) fn new() -> Self {
        Self {
            history: Lock::default(),
            listeners: broadcast::channel(EVENTS_MAX).0,
            is_over: watch::Sender::new(false),
        }
    }

    pub(super) fn send(&self, id: i64, event: Event) {
        let event = event.id(id.to_string());
        let mut history = self.history.lock();
        if history.len() == EVENTS_MAX {
            history.pop_front();
        }
        history.push_back((id.to_string(), event.clone()));
        // There may be no listener.
        let _ = self.listeners.send(event);
    }

    /// Ends all streams.
    pub(super) fn end(&self) {
        self.is_over.send_replace(true);
    }

    /// What was sent after the event with this id, and what will be. If that event is not there
    /// any more, the first one says so.
    fn listen(&self, last_id: Option<&str>) -> (Vec<Event>, Receiver<Event>) {
        let history = self.history.lock();
        let mut missed = Vec::new();
        let mut begin = history.len();
        if let Some(last_id) = last_id {
            let last = history.iter().rposition(|(id, _)| id == last_id);
            if last.is_none() {
                // Browsers fire nothing without data, and axum writes no line of an empty text.
                missed.push(Event::default().event("missed").data(" "));
            }
            begin = last.map_or(0, |last| last + 1);
        }
        missed.extend(history.iter().skip(begin).map(|(_, event)| event.clone()));
        (missed, self.listeners.subscribe())
    }
}

/// A listener that is too far behind is cut off.
pub(super) async fn listen(
    _: User,
    State(app): State<App>,
    headers: HeaderMap,
) -> Sse<impl Stream<Item = Result<Event, BroadcastStreamRecvError>>> {
    let last_id = headers.get("last-event-id").and_then(|id| id.to_str().ok());
    let (missed, events) = app.0.added.listen(last_id);
    let mut is_over = app.0.added.is_over.subscribe();
    let end = async move { is_over.wait_for(|is_over| *is_over).await.is_ok() };
    let events = stream::iter(missed)
        .map(Ok)
        .chain(BroadcastStream::new(events));
    Sse::new(events.take_until(Box::pin(end))).keep_alive(KeepAlive::default())
}
