//! Flatpath with a handler that may block: it calls SQLite itself.

use std::io;
use std::path::Path;

use flatpath_http::{Http, Request, Response};
use http::{HeaderValue, Method, StatusCode, header};
use serde::Serialize;

use super::super::{Serve, ours};
use super::{NewItem, create, find, insert};

const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// Runs until the process is ended.
///
/// # Errors
/// If the database cannot be made, what the engine reports, or a driver that is none.
pub(in super::super) fn run(serve: &Serve) -> io::Result<()> {
    create(&serve.database)?;
    let database = serve.database.clone();
    ours::run_with(
        serve,
        Http::pooled(move |request: &Request| answer(&database, request)),
    )
}

fn answer(database: &Path, request: &Request) -> Result<Response, StatusCode> {
    let path = request.uri().path();
    if request.method() == Method::POST && path == "/items" {
        let new: NewItem = serde_json::from_slice(&request.body().to_bytes())
            .map_err(|_| StatusCode::BAD_REQUEST)?;
        let item = insert(database, new).map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)?;
        return json(StatusCode::CREATED, &item);
    }
    let id = path.strip_prefix("/items/").and_then(|id| id.parse().ok());
    let id = id.ok_or(StatusCode::NOT_FOUND)?;
    match find(database, id) {
        Ok(Some(item)) => json(StatusCode::OK, &item),
        Ok(None) => Err(StatusCode::NOT_FOUND),
        Err(_) => Err(StatusCode::INTERNAL_SERVER_ERROR),
    }
}

fn json(status: StatusCode, item: &impl Serialize) -> Result<Response, StatusCode> {
    let body = serde_json::to_vec(item).map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)?;
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, JSON);
    Ok(response)
}
