//! Serves the greeting on port 8080 until a SIGTERM comes and what is in flight is answered.

use flatpath::Server;
use flatpath_example_hello::hello;
use flatpath_http::Http;

fn main() -> Result<(), flatpath::Error> {
    Server::new()
        .listen("127.0.0.1:8080", Http::pooled(hello))
        .run()
}
