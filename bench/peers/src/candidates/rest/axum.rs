//! axum as its documentation shows it: a router, state, `Json`, and `spawn_blocking` for SQLite.
//!
//! The runtime is that of `#[tokio::main]`, or one with few threads.

use std::io;
use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::Arc;

use axum::extract::{Path as Parameter, State};
use axum::http::StatusCode;
use axum::routing::{get, post};
use axum::serve::ListenerExt;
use axum::{Json, Router};
use tokio::net::TcpListener;
use tokio::task;

use super::super::hyper::runtime;
use super::super::serve::{Serve, announce};
use super::{Item, NewItem, create, find, insert};

/// Runs until the process is ended.
///
/// # Errors
/// If the database, the runtime or the listener cannot be made.
pub(in super::super) fn run(serve: &Serve) -> io::Result<()> {
    create(&serve.database)?;
    let database: Arc<Path> = serve.database.as_path().into();
    let app = Router::new()
        .route("/items/{id}", get(read))
        .route("/items", post(add))
        .with_state(database);
    runtime(serve.workers)?.block_on(async move {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        announce("http", listener.local_addr()?)?;
        // A socket that refuses only answers later.
        let listener = listener.tap_io(|socket| drop(socket.set_nodelay(true)));
        axum::serve(listener, app).await
    })
}

async fn read(
    State(database): State<Arc<Path>>,
    Parameter(id): Parameter<i64>,
) -> Result<Json<Item>, StatusCode> {
    let item = blocking(move || find(&database, id)).await?;
    item.map(Json).ok_or(StatusCode::NOT_FOUND)
}

async fn add(
    State(database): State<Arc<Path>>,
    Json(new): Json<NewItem>,
) -> Result<(StatusCode, Json<Item>), StatusCode> {
    let item = blocking(move || insert(&database, new)).await?;
    Ok((StatusCode::CREATED, Json(item)))
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> rusqlite::Result<T> + Send + 'static,
) -> Result<T, StatusCode> {
    match task::spawn_blocking(work).await {
        Ok(Ok(done)) => Ok(done),
        _ => Err(StatusCode::INTERNAL_SERVER_ERROR),
    }
}
