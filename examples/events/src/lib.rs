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

use std::collections::VecDeque;
use std::sync::Arc;

use flatpath::lock::Lock;
use flatpath_http::http::{HeaderMap, StatusCode};
use flatpath_http::sse::{Broadcast, Event};
use flatpath_http::{Html, Response, Router, State, routing};

/// What may be said at once, in bytes.
const SAID_BYTES_MAX: u64 = 4 * 1024;

/// How much of what was said newcomers get.
const REMEMBERED_MAX: usize = 50;

/// One chat. Clones are the same one.
#[derive(Clone, Default)]
pub struct Chat {
    listeners: Broadcast,
    said: Arc<Lock<Said>>,
}

/// What was said, numbered.
#[derive(Default)]
struct Said {
    latest: VecDeque<(u64, String)>,
    count: u64,
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
    let last_id = headers.get("last-event-id");
    let last_id = last_id.and_then(|id| id.to_str().ok()?.parse::<u64>().ok());
    // Under the lock: nothing is missing between what was said and what will be, nor comes twice.
    let said = chat.said.lock();
    let missed = said
        .latest
        .iter()
        .filter(|it| last_id.is_none_or(|id| it.0 > id));
    let missed = missed.map(|(number, words)| event(*number, words));
    chat.listeners.response_after(missed)
}

fn count(State(chat): State<Chat>) -> String {
    chat.listeners.listeners().to_string()
}

fn say(State(chat): State<Chat>, words: String) -> StatusCode {
    let mut said = chat.said.lock();
    let number = said.count;
    said.count += 1;
    chat.listeners.send(event(number, &words));
    if said.latest.len() == REMEMBERED_MAX {
        said.latest.pop_front();
    }
    said.latest.push_back((number, words));
    StatusCode::NO_CONTENT
}
