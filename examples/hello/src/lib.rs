//! The smallest HTTP service: one function, which workers run, so it may block. `main.rs` serves
//! it; the tests ask it over real sockets, with both drivers, and in the simulation.
#![forbid(unsafe_code)]

use flatpath_http::{IntoResponse, Request};

/// Greets the path that was asked for.
pub fn hello(request: Request) -> impl IntoResponse {
    format!("hello, {}\n", request.uri().path())
}
