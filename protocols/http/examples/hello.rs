//! The smallest server: `cargo run --release --example hello -- pooled|inline ADDR uring|epoll`.
//!
//! `pooled` runs the function on a worker, where it may block; `inline` on the network thread.

use flatpath::{Choice, Server};
use flatpath_http::{Http, Request, Response};

fn hello(_request: &Request) -> Response {
    Response::new("hello, world\n".into())
}

fn main() -> Result<(), flatpath::Error> {
    let mut arguments = std::env::args().skip(1);
    let mode = arguments.next().unwrap_or_else(|| "pooled".into());
    let address = arguments.next().unwrap_or_else(|| "127.0.0.1:8080".into());
    let choice = match arguments.next().as_deref() {
        Some("uring") => Choice::Uring,
        Some("epoll") => Choice::Epoll,
        _ => Choice::Auto,
    };
    let server = Server::new().driver(choice);
    match mode.as_str() {
        "inline" => server.listen(address.as_str(), Http::inline(hello)).run(),
        _ => server.listen(address.as_str(), Http::pooled(hello)).run(),
    }
}
