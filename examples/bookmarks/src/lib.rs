//! Bookmarks of a team: a service of the size that many have.
//!
//! | request                      | answer                                                     |
//! |------------------------------|------------------------------------------------------------|
//! | `POST /api/session`          | 204 and the cookie of a session; 401, 429                  |
//! | `DELETE /api/session`        | 204: signed out                                            |
//! | `GET /api/bookmarks`         | a page of them: `?after=7&limit=50&tag=rust`               |
//! | `POST /api/bookmarks`        | 201 and the bookmark; 400, 415 or 422 for what is none     |
//! | `GET /api/bookmarks/{id}`    | the bookmark, or 404                                       |
//! | `PUT /api/bookmarks/{id}`    | the bookmark as it is now, or 404                          |
//! | `DELETE /api/bookmarks/{id}` | 204, or 404                                                |
//! | `POST /api/import`           | 201: all bookmarks of a form's JSON `file`, or none        |
//! | `GET /api/events`            | server-sent events: what was added                         |
//! | other paths                  | the files of a directory, or its page `404.html`           |
//!
//! | module      | what it is                                                |
//! |-------------|-----------------------------------------------------------|
//! | `database`  | tables and statements, with a connection for each thread  |
//! | `password`  | what is stored of a password                              |
//! | `session`   | who is signed in                                          |
//! | `bookmarks` | the handlers of bookmarks                                 |
//! | `error`     | what answers in place of a handler                        |
//!
//! All but sign-in and files is for those who are signed in. Errors are problems (RFC 9457). Each
//! response has an id of its request, and headers that make browsers careful.
#![forbid(unsafe_code)]

pub mod database;

mod bookmarks;
mod error;
mod password;
mod session;

use std::error::Error;
use std::path::Path;
use std::sync::Arc;

use flatpath_files::{Files, Rules};
use flatpath_http::cookies::{HasKeys, Keys};
use flatpath_http::http::StatusCode;
use flatpath_http::sse::Broadcast;
use flatpath_http::{Problem, Router, routing};
use flatpath_layers::{Compression, RateLimit, SecurityHeaders, SetRequestId};

pub use password::{ITERATIONS, hash, is_correct};

use database::Database;

/// The longest import.
pub const IMPORT_BYTES_MAX: u64 = 16 << 20;

/// Attempts to sign in, of one address, in a minute.
pub const SIGN_INS_PER_MINUTE: u32 = 10;

/// What all handlers share.
struct App {
    database: Database,
    keys: Keys,
    added: Broadcast,
}

impl HasKeys for App {
    fn keys(&self) -> &Keys {
        &self.keys
    }
}

/// The service: sessions are signed with the secret, and `public` has the files.
///
/// # Errors
/// The secret has fewer than 32 bytes, or the directory cannot be opened.
pub fn service(database: Database, secret: &[u8], public: &Path) -> Result<Router, Box<dyn Error>> {
    let rules = Rules::new().error_page(StatusCode::NOT_FOUND, "/404.html")?;
    let files = Files::open(public)?.rules(rules);
    let sign_in = routing::post(session::sign_in).layer(RateLimit::per_minute(SIGN_INS_PER_MINUTE));
    let api = Router::new()
        .route("/session", sign_in.delete(session::sign_out))
        .route(
            "/bookmarks",
            routing::get(bookmarks::list).post(bookmarks::add),
        )
        .route(
            "/bookmarks/{id}",
            // A page that the kernel has is read without a wait, and most are.
            routing::get(bookmarks::find)
                .prompt()
                .put(bookmarks::replace)
                .delete(bookmarks::remove),
        )
        .route(
            "/import",
            routing::post(bookmarks::import).body_bytes_max(IMPORT_BYTES_MAX),
        )
        .route("/events", routing::get(bookmarks::listen).inline())
        .fallback(|| StatusCode::NOT_FOUND)
        .with_state(Arc::new(App {
            database,
            keys: Keys::new(secret)?,
            added: Broadcast::new(),
        }));
    Ok(Router::new()
        .nest("/api", api)
        .fallback_service(files)
        .layer(Problem::layer)
        .layer(Compression::new())
        .layer(SecurityHeaders::new())
        .layer(SetRequestId::new()))
}
