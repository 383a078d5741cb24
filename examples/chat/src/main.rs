//! Serves a chat on port 8080; open <http://127.0.0.1:8080/> twice.

use flatpath::Server;
use flatpath_example_chat::Chat;
use flatpath_http::Http;

fn main() -> Result<(), flatpath::Error> {
    let chat = Chat::default();
    Server::new()
        .listen("127.0.0.1:8080", Http::service(chat.router()))
        .run()
}
