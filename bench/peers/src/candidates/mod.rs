//! The servers inside this binary.
//!
//! | module | what it is |
//! |---|---|
//! | `ours`, `hyper`, `tiny` | a fixed reply |
//! | `secured` | files over TLS, in hyper and tokio-rustls |
//! | `rest` | JSON and SQLite: ours, and axum |
//! | `app` | the example `bookmarks`, and its twin in axum |
//! | `sockets` | an echo of WebSocket messages: ours, and tokio-tungstenite |
//! | `sse` | server-sent events: ours, and axum |
//! | `copying`, `share` | a tokio server that puts messages into the memory of consumers |
//! | `bare` | the least that any relay has to ask of the kernel |
//! | `observed` | NFS that reports what dispatch costs |
//! | `serve` | what they share |
//!
//! `flatpath-peers serve KIND` runs them, but for the last.
//!
//! Those of a fixed reply give it for every path; where a server sleeps it is for the path
//! `SLEEP_PATH` only. They run until they are ended from outside.

pub(crate) mod app;
mod bare;
mod copying;
mod hyper;
pub(crate) mod observed;
mod ours;
pub(crate) mod rest;
mod secured;
pub(crate) mod serve;
mod share;
mod sockets;
pub(crate) mod sse;
mod tiny;

use std::io;

use flatpath_websocket::WebSocket;

use self::copying::Copies;
use self::serve::Serve;
use crate::kind::Kind;

/// Runs the server until the process is ended.
///
/// # Errors
/// If it cannot listen, or is not one of the servers in this binary.
pub(crate) fn run(serve: &Serve) -> io::Result<()> {
    match serve.kind {
        Kind::Hyper => hyper::inline(),
        Kind::HyperBlocking => hyper::blocking(serve.workers, hyper::Blocking::Everything),
        Kind::HyperRouted => hyper::blocking(serve.workers, hyper::Blocking::Sleepers),
        Kind::FlatpathInline => ours::run(serve, ours::Place::Inline),
        Kind::FlatpathPooled | Kind::PooledUring | Kind::PooledEpoll => {
            ours::run(serve, ours::Place::Pooled)
        }
        Kind::FlatpathRouted => ours::run(serve, ours::Place::Routed),
        Kind::RestUring | Kind::RestEpoll => rest::ours::run(serve),
        Kind::RestAxum => rest::axum::run(serve),
        Kind::AppUring | Kind::AppEpoll => app::ours(serve),
        Kind::AppAxum => app::twin(serve),
        Kind::SocketsUring | Kind::SocketsEpoll => sockets::ours(serve, WebSocket::inline()),
        Kind::SocketsPooled => sockets::ours(serve, WebSocket::pooled()),
        Kind::SocketsTungstenite => sockets::tungstenite(),
        Kind::SseUring | Kind::SseEpoll => sse::ours::run(serve),
        Kind::SseAxum => sse::axum::run(serve),
        Kind::HttpsHyper => secured::run(&serve.certificate, &serve.key),
        Kind::TinyHttp => tiny::run(serve.workers),
        Kind::TokioCopying => copying::run(&serve.socket, 1, Copies::Once),
        Kind::TokioCopyingTwo => copying::run(&serve.socket, 2, Copies::Once),
        Kind::TokioStraight => copying::run(&serve.socket, 1, Copies::Never),
        Kind::Bare => bare::run(serve.address),
        other => {
            let message = format!("{other} is not a server of this binary");
            Err(io::Error::new(io::ErrorKind::InvalidInput, message))
        }
    }
}
