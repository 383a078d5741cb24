//! A chat: what one client says, all get at once, as server-sent events.
//!
//! | request       | answer                                        |
//! |---------------|-----------------------------------------------|
//! | `GET /`       | a page that shows the chat                    |
//! | `GET /events` | what was said last, or since the client's `Last-Event-ID`, and from then on |
//! | `POST /say`   | 204; the body is what all get                 |
//! | `GET /count`  | how many listen                               |
//!
//! A listener holds no thread, whether it listens for a second or for a day, and hardly any memory.
//! What has no body is answered on the network threads, where nothing here can block.
#![forbid(unsafe_code)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use flatpath_http::http::{HeaderMap, StatusCode};
use flatpath_http::sse::{Broadcast, Event};
use flatpath_http::{Html, Response, Router, State, routing};

/// What may be said at once, in bytes.
const SAID_BYTES_MAX: u64 = 4 * 1024;

/// How much of what was said newcomers get.
const REMEMBERED_MAX: usize = 50;

/// One chat. Clones are the same one.
#[derive(Clone, Debug)]
pub struct Chat {
    /// What was said last, and all who listen.
    said: Broadcast,
    next: Arc<AtomicU64>,
}

impl Default for Chat {
    fn default() -> Self {
        // No id is given twice, whenever the server is started again: clients may come back.
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let first = now.map_or(0, |now| now.as_micros() as u64);
        Chat {
            said: Broadcast::with_history(REMEMBERED_MAX),
            next: Arc::new(AtomicU64::new(first)),
        }
    }
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

/// Whatever is in the words, they stay the data of one event.
fn event(number: u64, words: &str) -> Event {
    Event::new()
        .event("said")
        .id(number.to_string())
        .data(words)
}

fn page() -> Html<&'static str> {
    Html(include_str!("page.html"))
}

fn listen(State(chat): State<Chat>, headers: HeaderMap) -> Response {
    match headers.contains_key("last-event-id") {
        true => chat.said.response_to(&headers),
        false => chat.said.response_with_history(),
    }
}

fn count(State(chat): State<Chat>) -> String {
    chat.said.listeners().to_string()
}

fn say(State(chat): State<Chat>, words: String) -> StatusCode {
    let number = chat.next.fetch_add(1, Ordering::Relaxed);
    chat.said.send(event(number, &words));
    StatusCode::NO_CONTENT
}
