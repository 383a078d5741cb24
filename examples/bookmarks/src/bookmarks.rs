//! Bookmarks: read, written, imported, and told of.

use std::sync::Arc;

use flatpath_http::http::{HeaderMap, StatusCode};
use flatpath_http::sse::Event;
use flatpath_http::{IntoResponse, Json, Multipart, Path, Query, Response, State};
use serde_json::{Value, json};

use crate::App;
use crate::database::{Bookmark, Draft, Page, Wanted};
use crate::error::Error;
use crate::session::User;

pub(crate) fn list(
    _: User,
    State(app): State<Arc<App>>,
    Query(wanted): Query<Wanted>,
) -> Result<Json<Page>, Error> {
    Ok(Json(app.database.list(&wanted)?))
}

pub(crate) fn find(
    _: User,
    State(app): State<Arc<App>>,
    Path(id): Path<i64>,
) -> Result<Json<Bookmark>, Error> {
    let found = app.database.find(id)?;
    found.map(Json).ok_or(Error::Unknown(id))
}

pub(crate) fn add(
    User(name): User,
    State(app): State<Arc<App>>,
    Json(draft): Json<Draft>,
) -> Result<impl IntoResponse, Error> {
    draft.check().map_err(Error::Invalid)?;
    let bookmark = app.database.insert(&draft, &name)?;
    let event = Event::new().event("added").id(bookmark.id.to_string());
    app.added.send(event.json(&bookmark));
    let location = [("location", format!("/api/bookmarks/{}", bookmark.id))];
    Ok((StatusCode::CREATED, location, Json(bookmark)))
}

pub(crate) fn replace(
    _: User,
    State(app): State<Arc<App>>,
    Path(id): Path<i64>,
    Json(draft): Json<Draft>,
) -> Result<Json<Bookmark>, Error> {
    draft.check().map_err(Error::Invalid)?;
    let replaced = app.database.replace(id, &draft)?;
    replaced.map(Json).ok_or(Error::Unknown(id))
}

pub(crate) fn remove(
    _: User,
    State(app): State<Arc<App>>,
    Path(id): Path<i64>,
) -> Result<StatusCode, Error> {
    match app.database.remove(id)? {
        true => Ok(StatusCode::NO_CONTENT),
        false => Err(Error::Unknown(id)),
    }
}

/// The bookmarks of a form's field `file`: a list, as JSON.
pub(crate) fn import(
    User(name): User,
    State(app): State<Arc<App>>,
    form: Multipart,
) -> Result<(StatusCode, Json<Value>), Error> {
    let file = form
        .field("file")
        .ok_or(Error::Invalid("the form has no field `file`"))?;
    let drafts: Vec<Draft> = serde_json::from_slice(&file.data)
        .map_err(|_| Error::Invalid("the file is no list of bookmarks"))?;
    drafts
        .iter()
        .try_for_each(Draft::check)
        .map_err(Error::Invalid)?;
    let (count, last) = app.database.import(&drafts, &name)?;
    let added = json!({ "added": count });
    if let Some(last) = last {
        let event = Event::new().event("imported").id(last.to_string());
        app.added.send(event.json(&added));
    }
    Ok((StatusCode::CREATED, Json(added)))
}

pub(crate) fn listen(_: User, State(app): State<Arc<App>>, headers: HeaderMap) -> Response {
    app.added.response_to(&headers)
}
