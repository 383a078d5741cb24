//! Notes in an SQLite database, over HTTP and JSON: a service whose handlers block.
//!
//! | request           | answer                                                      |
//! |-------------------|-------------------------------------------------------------|
//! | `GET /notes`      | all notes; `?after=7` those with a higher number            |
//! | `POST /notes`     | 201 and the note; 400, 415 or 422 for what is no note       |
//! | `GET /notes/7`    | the note, or 404; 400 where there is no number              |
//! | `DELETE /notes/7` | 204, or 404                                                 |
//!
//! A worker runs one request at a time, so each worker has a connection to the database of its own:
//! there is no pool and no lock. It is opened when a worker first needs it. Errors of the database
//! are logged, and a 500; SQLite waits by itself while another worker writes.
#![forbid(unsafe_code)]

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use flatpath_http::http::StatusCode;
use flatpath_http::{IntoResponse, Json, Path, Query, Response, Router, State};
use rusqlite::{Connection, OptionalExtension, Row};
use serde::{Deserialize, Serialize};
use thread_local::ThreadLocal;

/// How long a worker waits for another one's transaction.
const BUSY_WAIT: Duration = Duration::from_secs(5);

/// A note as it is stored and sent.
#[derive(Debug, Serialize)]
struct Note {
    id: i64,
    text: String,
}

/// What a client sends for a new one.
#[derive(Debug, Deserialize)]
struct NewNote {
    text: String,
}

/// Which notes a client asks for.
#[derive(Debug, Deserialize)]
struct Page {
    #[serde(default)]
    after: i64,
}

/// A database file, and each worker's connection to it.
#[derive(Clone)]
struct Database(Arc<(PathBuf, ThreadLocal<Connection>)>);

impl Database {
    /// This worker's connection.
    fn connection(&self) -> rusqlite::Result<&Connection> {
        let (path, connections) = &*self.0;
        connections.get_or_try(|| {
            let connection = Connection::open(path)?;
            connection.busy_timeout(BUSY_WAIT)?;
            Ok(connection)
        })
    }
}

/// What SQLite reports: for the log, not for clients.
struct Failure(rusqlite::Error);

impl From<rusqlite::Error> for Failure {
    fn from(error: rusqlite::Error) -> Self {
        Self(error)
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        log::error!("the database fails: {}", self.0);
        StatusCode::INTERNAL_SERVER_ERROR.into_response()
    }
}

/// The notes in a database file, which is made if need be.
///
/// # Errors
/// What SQLite reports.
pub fn notes(path: PathBuf) -> rusqlite::Result<Router> {
    let database = Database(Arc::new((path, ThreadLocal::new())));
    let connection = database.connection()?;
    // Readers do not wait for the writer. The file remembers it.
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.execute_batch(
        "CREATE TABLE IF NOT EXISTS notes (id INTEGER PRIMARY KEY, text TEXT NOT NULL)",
    )?;
    Ok(Router::new()
        .get("/notes", list)
        .post("/notes", insert)
        .get("/notes/{id}", find)
        .delete("/notes/{id}", delete)
        .with_state(database))
}

fn list(
    State(database): State<Database>,
    Query(page): Query<Page>,
) -> Result<Json<Vec<Note>>, Failure> {
    let query = "SELECT id, text FROM notes WHERE id > ?1 ORDER BY id";
    let mut statement = database.connection()?.prepare_cached(query)?;
    let notes = statement.query_map([page.after], note_of)?;
    Ok(Json(notes.collect::<Result<_, _>>()?))
}

fn find(
    State(database): State<Database>,
    Path(id): Path<i64>,
) -> Result<Option<Json<Note>>, Failure> {
    let query = "SELECT id, text FROM notes WHERE id = ?1";
    let mut statement = database.connection()?.prepare_cached(query)?;
    Ok(statement.query_row([id], note_of).optional()?.map(Json))
}

fn insert(
    State(database): State<Database>,
    Json(NewNote { text }): Json<NewNote>,
) -> Result<(StatusCode, Json<Note>), Failure> {
    let query = "INSERT INTO notes (text) VALUES (?1)";
    let mut statement = database.connection()?.prepare_cached(query)?;
    let id = statement.insert([&text])?;
    Ok((StatusCode::CREATED, Json(Note { id, text })))
}

fn delete(State(database): State<Database>, Path(id): Path<i64>) -> Result<StatusCode, Failure> {
    let query = "DELETE FROM notes WHERE id = ?1";
    let mut statement = database.connection()?.prepare_cached(query)?;
    Ok(match statement.execute([id])? {
        0 => StatusCode::NOT_FOUND,
        _ => StatusCode::NO_CONTENT,
    })
}

fn note_of(row: &Row<'_>) -> rusqlite::Result<Note> {
    Ok(Note {
        id: row.get(0)?,
        text: row.get(1)?,
    })
}
