//! The example `bookmarks` in axum, with what its users take for each part.
//!
//! | part | by |
//! |---|---|
//! | SQLite | `spawn_blocking` |
//! | sessions | `SignedCookieJar` of axum-extra |
//! | limit of sign-ins | tower_governor |
//! | compression, request ids, files, panics | tower-http |
//! | events | `Sse` over a tokio broadcast, with a history for those who come back |
//! | problems, careful headers | `map_response` |
//!
//! All layers are one `ServiceBuilder`, so that a request pays for one boxed service. A panic, a
//! drain and streams of events end as ours do.

mod bookmarks;
mod error;
mod events;
mod layers;
mod session;

use std::error::Error as StdError;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{DefaultBodyLimit, FromRef};
use axum::http::StatusCode;
use axum::middleware::map_response;
use axum::routing::{get, post};
use axum::serve::ListenerExt;
use axum_extra::extract::cookie::Key;
use flatpath_example_bookmarks::database::Database;
use flatpath_example_bookmarks::{IMPORT_BYTES_MAX, SIGN_INS_PER_MINUTE};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::{select, task};
use tower::ServiceBuilder;
use tower_governor::GovernorLayer;
use tower_governor::governor::GovernorConfigBuilder;
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::compression::CompressionLayer;
use tower_http::request_id::{MakeRequestUuid, PropagateRequestIdLayer, SetRequestIdLayer};
use tower_http::services::{ServeDir, ServeFile};

use self::error::Error;
use self::events::Added;

/// The longest body, but for imports.
const BODY_BYTES_MAX: usize = 1 << 20;

/// What all handlers share.
#[derive(Clone)]
pub(super) struct App(Arc<Shared>);

struct Shared {
    database: Database,
    key: Key,
    added: Added,
}

impl FromRef<App> for Key {
    fn from_ref(app: &App) -> Self {
        app.0.key.clone()
    }
}

impl App {
    /// # Errors
    /// The secret has fewer than 32 bytes.
    pub(super) fn new(database: Database, secret: &[u8]) -> Result<Self, Box<dyn StdError>> {
        if secret.len() < 32 {
            return Err("the secret has fewer than 32 bytes".into());
        }
        Ok(Self(Arc::new(Shared {
            database,
            key: Key::derive_from(secret),
            added: Added::new(),
        })))
    }

    /// Calls the database on a thread that may block.
    async fn database<T: Send + 'static>(
        &self,
        call: impl FnOnce(&Database) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, Error> {
        let app = self.clone();
        Ok(task::spawn_blocking(move || call(&app.0.database)).await??)
    }

    /// The service; `public` has the files.
    ///
    /// # Errors
    /// A limit of 0 sign-ins.
    fn service(self, public: &Path) -> Result<Router, Box<dyn StdError>> {
        let sign_ins = GovernorConfigBuilder::default()
            .period(Duration::from_secs(60) / SIGN_INS_PER_MINUTE)
            .burst_size(SIGN_INS_PER_MINUTE)
            .finish()
            .ok_or("no sign-in is admitted")?;
        let sign_in = post(session::sign_in).layer(GovernorLayer::new(sign_ins));
        let import_limit = DefaultBodyLimit::max(IMPORT_BYTES_MAX as usize);
        let api = Router::new()
            .route("/session", sign_in.delete(session::sign_out))
            .route("/bookmarks", get(bookmarks::list).post(bookmarks::add))
            .route(
                "/bookmarks/{id}",
                get(bookmarks::find)
                    .put(bookmarks::replace)
                    .delete(bookmarks::remove),
            )
            .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
            .route("/import", post(bookmarks::import).layer(import_limit))
            .route("/events", get(events::listen))
            .fallback(async || StatusCode::NOT_FOUND)
            .with_state(self);
        let files =
            ServeDir::new(public).not_found_service(ServeFile::new(public.join("404.html")));
        let layers = ServiceBuilder::new()
            .layer(SetRequestIdLayer::x_request_id(MakeRequestUuid))
            .layer(PropagateRequestIdLayer::x_request_id())
            .layer(CompressionLayer::new())
            .layer(map_response(layers::careful))
            .layer(map_response(layers::problem))
            .layer(CatchPanicLayer::new());
        Ok(Router::new()
            .nest("/api", api)
            .fallback_service(files)
            .layer(layers))
    }

    /// Answers requests until the process is asked to end, and those that have begun even then.
    ///
    /// # Errors
    /// What the listener reports.
    pub(super) async fn serve(
        self,
        listener: TcpListener,
        public: &Path,
    ) -> Result<(), Box<dyn StdError>> {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let app = self.clone();
        let asked_to_end = async move {
            select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            app.0.added.end();
        };
        // A socket that refuses only answers later.
        let listener = listener.tap_io(|socket| drop(socket.set_nodelay(true)));
        let service = self
            .service(public)?
            .into_make_service_with_connect_info::<SocketAddr>();
        let served: io::Result<()> = axum::serve(listener, service)
            .with_graceful_shutdown(asked_to_end)
            .await;
        Ok(served?)
    }
}
