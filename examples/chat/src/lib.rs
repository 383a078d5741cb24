//! A chat over WebSockets: what one client says, all get at once.
//!
//! | request     | answer                                                        |
//! |-------------|---------------------------------------------------------------|
//! | `GET /`     | a page that shows the chat                                    |
//! | `GET /chat` | a WebSocket; the first message of a client is its name        |
//!
//! A client holds no thread. One that does not keep up is closed: it may come back, and others do
//! not wait for it.
#![forbid(unsafe_code)]

use flatpath_http::http::header;
use flatpath_http::{Html, IntoResponse, Request, Response, Router, http::StatusCode, routing};
use flatpath_websocket::{
    Broadcast, Close, Handler, Limits, Member, Message, Socket, WebSocket, code,
};

/// What may be said at once, in bytes.
const SAID_BYTES_MAX: usize = 4 * 1024;

/// One chat. Clones are the same one.
#[derive(Clone, Debug, Default)]
pub struct Chat(Broadcast);

impl Chat {
    /// The routes of this chat.
    #[must_use]
    pub fn router(&self) -> Router {
        // Telling others never waits, so it may be done on the network threads.
        let sockets = WebSocket::inline().limits(Limits {
            message_bytes_max: SAID_BYTES_MAX,
            ..Limits::default()
        });
        let chat = self.clone();
        let join = move |request: Request| join(&chat, &sockets, &request);
        Router::new()
            .route(
                "/",
                routing::get(|| Html(include_str!("page.html"))).inline(),
            )
            .route("/chat", routing::get(join).inline())
    }
}

fn join(chat: &Chat, sockets: &WebSocket, request: &Request) -> Response {
    // Any page may open a socket to any server: only this server's own pages may join.
    let headers = request.headers();
    let host = headers.get(header::HOST).and_then(|it| it.to_str().ok());
    let origin = headers.get(header::ORIGIN).and_then(|it| it.to_str().ok());
    let is_own = |origin: &str| origin.split_once("://").map(|(_, host)| host) == host;
    if origin.is_some_and(|origin| !is_own(origin)) {
        return StatusCode::FORBIDDEN.into_response();
    }
    let guest = Guest {
        chat: chat.clone(),
        name: None,
    };
    sockets.accept(request, guest).into_response()
}

/// One client.
struct Guest {
    chat: Chat,
    /// Once it has told it, and is a member.
    name: Option<(String, Member)>,
}

impl Handler for Guest {
    fn message(&mut self, socket: &Socket, message: Message) {
        let Some(words) = message.text() else {
            return socket.close(code::UNSUPPORTED, "only text is said here");
        };
        let Chat(all) = &self.chat;
        match &self.name {
            Some((name, _)) => all.send(format!("{name}: {words}")),
            None => {
                self.name = Some((words.to_owned(), all.join(socket)));
                all.send(format!("{words} has come"))
            }
        };
    }

    fn closed(&mut self, _: &Socket, _: &Close) {
        if let Some((name, member)) = self.name.take() {
            drop(member);
            self.chat.0.send(format!("{name} has left"));
        }
    }
}
