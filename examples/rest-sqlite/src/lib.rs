//! Notes in an SQLite database, over HTTP and JSON: a service whose handlers block.
//!
//! | request           | answer                                    |
//! |-------------------|-------------------------------------------|
//! | `GET /notes`      | all notes                                 |
//! | `POST /notes`     | 201 and the note; 400 for what is no note |
//! | `GET /notes/7`    | the note, or 404                          |
//! | `DELETE /notes/7` | 204, or 404                               |
//!
//! A worker runs one request at a time, so each worker has a connection to the database of its own,
//! in a `thread_local!`: there is no pool and no lock. It is opened when a worker first needs it.
//! Errors of the database are 500; SQLite waits by itself while another worker writes.
#![forbid(unsafe_code)]

use std::cell::OnceCell;
use std::path::PathBuf;
use std::time::Duration;

use flatpath_http::http::{Method, StatusCode, header};
use flatpath_http::{Body, Request, Response};
use rusqlite::{Connection, OptionalExtension, Row};
use serde::{Deserialize, Serialize};

/// How long a worker waits for another one's transaction.
const BUSY_WAIT: Duration = Duration::from_secs(5);

thread_local! {
    static DATABASE: OnceCell<Connection> = const { OnceCell::new() };
}

/// The service.
#[derive(Clone, Debug)]
pub struct Notes {
    path: PathBuf,
}

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

impl Notes {
    /// The notes in a database file, which is made if need be. One process has one.
    ///
    /// # Errors
    /// What SQLite reports.
    pub fn open(path: PathBuf) -> rusqlite::Result<Self> {
        let database = Connection::open(&path)?;
        // Readers do not wait for the writer. The file remembers it.
        database.pragma_update(None, "journal_mode", "WAL")?;
        database.execute_batch(
            "CREATE TABLE IF NOT EXISTS notes (id INTEGER PRIMARY KEY, text TEXT NOT NULL)",
        )?;
        Ok(Self { path })
    }

    /// Answers a request. Blocks while SQLite reads and writes.
    pub fn answer(&self, request: &Request) -> Response {
        let method = request.method();
        let id = request.uri().path().strip_prefix("/notes/");
        let result = match id.map(str::parse) {
            Some(Ok(id)) => match *method {
                Method::GET | Method::HEAD => self.find(id),
                Method::DELETE => self.delete(id),
                _ => return status(StatusCode::METHOD_NOT_ALLOWED),
            },
            None if request.uri().path() == "/notes" => match *method {
                Method::GET | Method::HEAD => self.list(),
                Method::POST => self.insert(request),
                _ => return status(StatusCode::METHOD_NOT_ALLOWED),
            },
            _ => return status(StatusCode::NOT_FOUND),
        };
        result.unwrap_or_else(|_| status(StatusCode::INTERNAL_SERVER_ERROR))
    }

    fn find(&self, id: i64) -> rusqlite::Result<Response> {
        let query = "SELECT id, text FROM notes WHERE id = ?1";
        let note = self.with(|database| {
            database
                .prepare_cached(query)?
                .query_row([id], note_of)
                .optional()
        })?;
        Ok(note.map_or_else(
            || status(StatusCode::NOT_FOUND),
            |note| json(StatusCode::OK, &note),
        ))
    }

    fn list(&self) -> rusqlite::Result<Response> {
        let notes = self.with(|database| {
            let mut statement = database.prepare_cached("SELECT id, text FROM notes")?;
            let notes = statement.query_map([], note_of)?;
            notes.collect::<rusqlite::Result<Vec<Note>>>()
        })?;
        Ok(json(StatusCode::OK, &notes))
    }

    fn insert(&self, request: &Request) -> rusqlite::Result<Response> {
        let Ok(NewNote { text }) = serde_json::from_slice(&request.body().to_bytes()) else {
            return Ok(status(StatusCode::BAD_REQUEST));
        };
        let id = self.with(|database| {
            let mut statement = database.prepare_cached("INSERT INTO notes (text) VALUES (?1)")?;
            statement.insert([&text])
        })?;
        Ok(json(StatusCode::CREATED, &Note { id, text }))
    }

    fn delete(&self, id: i64) -> rusqlite::Result<Response> {
        let deleted = self.with(|database| {
            database
                .prepare_cached("DELETE FROM notes WHERE id = ?1")?
                .execute([id])
        })?;
        Ok(status(match deleted {
            0 => StatusCode::NOT_FOUND,
            _ => StatusCode::NO_CONTENT,
        }))
    }

    /// Calls `work` with this worker's connection to the database.
    fn with<T>(
        &self,
        work: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> rusqlite::Result<T> {
        DATABASE.with(|cell| {
            if cell.get().is_none() {
                let database = Connection::open(&self.path)?;
                database.busy_timeout(BUSY_WAIT)?;
                // It was empty, and this thread alone has it.
                let _ = cell.set(database);
            }
            work(cell.get().expect("set above"))
        })
    }
}

fn note_of(row: &Row<'_>) -> rusqlite::Result<Note> {
    Ok(Note {
        id: row.get(0)?,
        text: row.get(1)?,
    })
}

fn json(status: StatusCode, value: &impl Serialize) -> Response {
    let body = serde_json::to_vec(value).expect("numbers and text are always JSON");
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    let value = header::HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, value);
    response
}

fn status(status: StatusCode) -> Response {
    let mut response = Response::new(Body::Empty);
    *response.status_mut() = status;
    response
}
