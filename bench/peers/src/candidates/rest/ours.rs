//! Flatpath with handlers that may block: they call SQLite themselves.

use std::io;
use std::path::Path;
use std::sync::Arc;

use flatpath_http::{Http, Json, Path as Parameter, Router, State};
use http::StatusCode;

use super::super::ours::run_with;
use super::super::serve::Serve;
use super::{Item, NewItem, create, find, insert};

/// Runs until the process is ended.
///
/// # Errors
/// If the database cannot be made, what the engine reports, or a driver that is none.
pub(in super::super) fn run(serve: &Serve) -> io::Result<()> {
    create(&serve.database)?;
    let database: Arc<Path> = serve.database.as_path().into();
    let app = Router::new()
        .get("/items/{id}", read)
        .post("/items", add)
        .with_state(database);
    run_with(serve, Http::service(app))
}

fn read(
    State(database): State<Arc<Path>>,
    Parameter(id): Parameter<i64>,
) -> Result<Json<Item>, StatusCode> {
    let item = find(&database, id).map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)?;
    item.map(Json).ok_or(StatusCode::NOT_FOUND)
}

fn add(
    State(database): State<Arc<Path>>,
    Json(new): Json<NewItem>,
) -> Result<(StatusCode, Json<Item>), StatusCode> {
    let item = insert(&database, new).map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)?;
    Ok((StatusCode::CREATED, Json(item)))
}
