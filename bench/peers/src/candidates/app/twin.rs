//! The twin on the runtime of `#[tokio::main]`, or on one with few threads.

use std::io;
use std::net::Ipv4Addr;

use tokio::net::TcpListener;

use super::super::hyper::runtime;
use super::super::serve::{Serve, announce};
use super::{App, SECRET, axum};

/// Runs until the process is ended.
///
/// # Errors
/// If the database, the runtime or the listener cannot be made.
pub(in super::super) fn run(serve: &Serve) -> io::Result<()> {
    let App { database, public } = App::open(serve)?;
    runtime(serve.workers)?.block_on(async move {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        announce("http", listener.local_addr()?)?;
        let twin = axum::App::new(database, SECRET);
        let served = match twin {
            Ok(twin) => twin.serve(listener, &public).await,
            Err(error) => Err(error),
        };
        served.map_err(|error| io::Error::other(error.to_string()))
    })
}
