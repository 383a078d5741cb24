//! The servers inside this binary.
//!
//! | module | what it is |
//! |---|---|
//! | `ours`, `hyper`, `tiny`, `echo` | a fixed reply, or an echo |
//! | `secured` | files over TLS, in hyper and tokio-rustls |
//! | `rest` | JSON and SQLite: ours, and axum |
//! | `app` | the example `bookmarks`, and its twin in axum |
//! | `sockets` | an echo of WebSocket messages: ours, and tokio-tungstenite |
//! | `sse` | server-sent events: ours, and axum |
//! | `copying`, `share` | a tokio server that puts messages into the memory of consumers |
//! | `bare` | the least that any relay has to ask of the kernel |
//! | `observed` | NFS that reports what dispatch costs |
//!
//! `flatpath-peers serve KIND` runs them, but for the last.
//!
//! Those of a fixed reply give it for every path; where a server sleeps it is for the path
//! [`SLEEP_PATH`] only. They run until they are ended from outside.

pub(crate) mod app;
mod bare;
mod copying;
mod echo;
mod hyper;
pub(crate) mod observed;
mod ours;
pub(crate) mod rest;
mod secured;
mod share;
mod sockets;
pub(crate) mod sse;
mod tiny;

use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use flatpath::DriverChoice;

use self::copying::Copies;
use crate::kind::Kind;

/// The path whose handler sleeps.
pub(crate) const SLEEP_PATH: &str = "/sleep";
/// For how long: what a slow disk or a small query takes.
pub(crate) const SLEEP: Duration = Duration::from_millis(10);

/// The arguments of the hidden `serve` command.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Serve {
    /// Which server.
    kind: Kind,
    /// Threads that may block.
    #[arg(long)]
    workers: Option<u32>,
    /// The driver of a server that is Flatpath.
    #[arg(long, default_value = "auto")]
    driver: String,
    /// Connections that must be possible.
    #[arg(long, default_value_t = 1024)]
    max_connections: u32,
    /// Milliseconds between two server-sent events.
    #[arg(long, default_value_t = 1000)]
    every_ms: u32,
    /// Where a relay listens.
    #[arg(long, default_value = "127.0.0.1:0")]
    address: SocketAddr,
    /// Where consumers attach.
    #[arg(long, default_value = "ingest")]
    socket: PathBuf,
    /// Where a server makes its database.
    #[arg(long, default_value = "items.db")]
    database: PathBuf,
    /// The files of an application.
    #[arg(long, default_value = "public")]
    public: PathBuf,
    /// The certificate of a server over TLS, in PEM.
    #[arg(long, default_value = "certificate.pem")]
    certificate: PathBuf,
    /// Its key.
    #[arg(long, default_value = "key.pem")]
    key: PathBuf,
}

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
        Kind::AppUring | Kind::AppEpoll => app::ours::run(serve),
        Kind::AppAxum => app::twin::run(serve),
        Kind::SocketsUring | Kind::SocketsEpoll => sockets::ours::run(serve),
        Kind::SocketsTungstenite => sockets::tungstenite::run(),
        Kind::SseUring | Kind::SseEpoll => sse::ours::run(serve),
        Kind::SseAxum => sse::axum::run(serve),
        Kind::HttpsHyper => secured::run(&serve.certificate, &serve.key),
        Kind::TinyHttp => tiny::run(serve.workers),
        Kind::TokioEcho => echo::run(),
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

/// The driver of this name.
///
/// # Errors
/// No driver has it.
pub(crate) fn driver(name: &str) -> io::Result<DriverChoice> {
    match name {
        "auto" => Ok(DriverChoice::Auto),
        "uring" => Ok(DriverChoice::Uring),
        "epoll" => Ok(DriverChoice::Epoll),
        _ => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("no driver is named {name}"),
        )),
    }
}

/// Says where the server listens, in the words of `flatpath serve`.
fn announce(name: &str, address: SocketAddr) -> io::Result<()> {
    let mut output = io::stdout().lock();
    writeln!(output, "listening {name} {address}\nready")?;
    output.flush()
}
