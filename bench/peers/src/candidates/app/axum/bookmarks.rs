//! Bookmarks: read, written and imported.

use axum::Json;
use axum::extract::{Multipart, Path, Query, State};
use axum::http::StatusCode;
use axum::response::IntoResponse;
use axum::response::sse::Event;
use flatpath_example_bookmarks::database::{Bookmark, Draft, Page, Wanted};
use serde_json::{Value, json};

use super::App;
use super::error::Error;
use super::session::User;

pub(super) async fn list(
    _: User,
    State(app): State<App>,
    Query(wanted): Query<Wanted>,
) -> Result<Json<Page>, Error> {
    let page = app.database(move |database| database.list(&wanted)).await?;
    Ok(Json(page))
}

pub(super) async fn find(
    _: User,
    State(app): State<App>,
    Path(id): Path<i64>,
) -> Result<Json<Bookmark>, Error> {
    let found = app.database(move |database| database.find(id)).await?;
    found.map(Json).ok_or(Error::Unknown(id))
}

pub(super) async fn add(
    User(name): User,
    State(app): State<App>,
    Json(draft): Json<Draft>,
) -> Result<impl IntoResponse, Error> {
    draft.check().map_err(Error::Invalid)?;
    let bookmark = app
        .database(move |database| database.insert(&draft, &name))
        .await?;
    let event = Event::default().event("added").json_data(&bookmark)?;
    app.0.added.send(bookmark.id, event);
    let location = [("location", format!("/api/bookmarks/{}", bookmark.id))];
    Ok((StatusCode::CREATED, location, Json(bookmark)))
}

pub(super) async fn replace(
    _: User,
    State(app): State<App>,
    Path(id): Path<i64>,
    Json(draft): Json<Draft>,
) -> Result<Json<Bookmark>, Error> {
    draft.check().map_err(Error::Invalid)?;
    let replaced = app
        .database(move |database| database.replace(id, &draft))
        .await?;
    replaced.map(Json).ok_or(Error::Unknown(id))
}

pub(super) async fn remove(
    _: User,
    State(app): State<App>,
    Path(id): Path<i64>,
) -> Result<StatusCode, Error> {
    match app.database(move |database| database.remove(id)).await? {
        true => Ok(StatusCode::NO_CONTENT),
        false => Err(Error::Unknown(id)),
    }
}

/// The bookmarks of a form's field `file`: a list, as JSON.
pub(super) async fn import(
    User(name): User,
    State(app): State<App>,
    mut form: Multipart,
) -> Result<(StatusCode, Json<Value>), Error> {
    let file = loop {
        match form.next_field().await.map_err(Error::Form)? {
            Some(field) if field.name() == Some("file") => {
                break field.bytes().await.map_err(Error::Form)?;
            }
            Some(_) => {}
            None => return Err(Error::Invalid("the form has no field `file`")),
        }
    };
    let drafts: Vec<Draft> = serde_json::from_slice(&file)
        .map_err(|_| Error::Invalid("the file is no list of bookmarks"))?;
    drafts
        .iter()
        .try_for_each(Draft::check)
        .map_err(Error::Invalid)?;
    let (count, last) = app
        .database(move |database| database.import(&drafts, &name))
        .await?;
    let added = json!({ "added": count });
    if let Some(last) = last {
        let event = Event::default().event("imported").json_data(&added)?;
        app.0.added.send(last, event);
    }
    Ok((StatusCode::CREATED, Json(added)))
}
