//! A chat: what one client says, all get at once, as server-sent events.
//!
//! | request       | answer                                        |
//! |---------------|-----------------------------------------------|
//! | `GET /`       | a page that shows the chat                    |
//! | `GET /events` | the events, for as long as the client listens |
//! | `POST /say`   | 204; the body is what all get                 |
//! | `GET /count`  | how many listen                               |
//!
//! A listener holds no thread, whether it listens for a second or for a day, and hardly any memory.
//! What has no body is answered on the network threads, where nothing here can block.
#![forbid(unsafe_code)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use flatpath_http::http::StatusCode;
use flatpath_http::sse::{Broadcast, Event};
use flatpath_http::{Html, Response, Router, State, routing};

/// What may be said at once, in bytes.
const SAID_BYTES_MAX: u64 = 4 * 1024;

/// One chat. Clones are the same one.
#[derive(Clone, Default)]
pub struct Chat {
    listeners: Broadcast,
    said: Arc<AtomicU64>,
}

impl Chat {
    /// The routes of this chat.
    #[must_use]
    pub fn router(&self) -> Router {
        Router::new()
            .route("/", routing::get(page).inline())
            .route("/events", routing::get(listen).inline())
            .route("/count", routing::get(count).inline())
            .route("/say", routing::post(say).body_bytes_max(SAID_BYTES_MAX))
            .with_state(self.clone())
    }
}

fn page() -> Html<&'static str> {
    Html(include_str!("page.html"))
}

fn listen(State(chat): State<Chat>) -> Response {
    chat.listeners.response()
}

fn count(State(chat): State<Chat>) -> String {
    chat.listeners.listeners().to_string()
}

fn say(State(chat): State<Chat>, words: String) -> StatusCode {
    let number = chat.said.fetch_add(1, Ordering::Relaxed);
    // Whatever is in it, it stays the data of one event.
    let event = Event::new().event("said").id(number.to_string());
    chat.listeners.send(event.data(words));
    StatusCode::NO_CONTENT
}
