//! The program that `cargo xtask cost` builds: examples/hello in one file.

use flatpath::Server;
use flatpath_http::{Http, IntoResponse, Request};

fn hello(request: Request) -> impl IntoResponse {
    format!("hello, {}\n", request.uri().path())
}

fn main() -> Result<(), flatpath::Error> {
    Server::new()
        .listen("127.0.0.1:8080", Http::pooled(hello))
        .run()
}
