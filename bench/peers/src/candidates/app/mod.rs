//! An application of real size: the example `bookmarks`, and its twin in axum.
//!
//! Both have the same routes, the same replies and the same layers around them. They share what
//! has nothing to do with HTTP, so that statements, settings and stored passwords are the same:
//! the example's `database` and `password`. They differ in who receives, routes, calls and sends,
//! and in what their authors had to write.

mod axum;

use std::io;
use std::net::Ipv4Addr;
use std::num::NonZeroU32;
use std::path::PathBuf;

use flatpath_example_bookmarks::database::Database;
use flatpath_example_bookmarks::{hash, service};
use flatpath_http::Http;
use tokio::net::TcpListener;

use super::hyper::runtime;
use super::ours::run_with;
use super::serve::{Serve, announce};

/// Who may sign in.
pub(crate) const USER: &str = "ada";
/// The password.
pub(crate) const PASSWORD: &str = "lovelace";
/// Few, so that a server starts soon.
const ITERATIONS: NonZeroU32 = NonZeroU32::new(1000).expect("not zero");
/// What sessions are signed with.
const SECRET: &[u8] = b"a secret of the bench, 32 bytes.";

/// What the bench's command line says of either server.
struct App {
    database: Database,
    public: PathBuf,
}

impl App {
    /// A database with one user.
    fn open(serve: &Serve) -> io::Result<Self> {
        let database = Database::open(serve.database.clone()).map_err(io::Error::other)?;
        let user = hash(PASSWORD, ITERATIONS)?;
        database.put_user(USER, &user).map_err(io::Error::other)?;
        let public = serve.public.clone();
        Ok(Self { database, public })
    }
}

/// Runs the example as it is until the process is ended.
///
/// # Errors
/// If the database cannot be made, what the engine reports, or a driver that is none.
pub(super) fn ours(serve: &Serve) -> io::Result<()> {
    let App { database, public } = App::open(serve)?;
    let service =
        service(database, SECRET, &public).map_err(|error| io::Error::other(error.to_string()))?;
    run_with(serve, Http::service(service))
}

/// Runs the twin, on the runtime of `#[tokio::main]` or on one with few threads.
///
/// # Errors
/// If the database, the runtime or the listener cannot be made.
pub(super) fn twin(serve: &Serve) -> io::Result<()> {
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

#[cfg(test)]
mod tests {
    /// What the author of each has written, without what they share. The twin has no command line.
    const OURS: [&str; 5] = [
        include_str!("../../../../../examples/bookmarks/src/lib.rs"),
        include_str!("../../../../../examples/bookmarks/src/bookmarks.rs"),
        include_str!("../../../../../examples/bookmarks/src/error.rs"),
        include_str!("../../../../../examples/bookmarks/src/main.rs"),
        include_str!("../../../../../examples/bookmarks/src/session.rs"),
    ];
    const TWIN: [&str; 6] = [
        include_str!("axum/mod.rs"),
        include_str!("axum/bookmarks.rs"),
        include_str!("axum/error.rs"),
        include_str!("axum/events.rs"),
        include_str!("axum/layers.rs"),
        include_str!("axum/session.rs"),
    ];

    const SHARED: [&str; 2] = [
        include_str!("../../../../../examples/bookmarks/src/database.rs"),
        include_str!("../../../../../examples/bookmarks/src/password.rs"),
    ];

    /// Lines that are neither empty nor a comment.
    fn lines(files: &[&str]) -> usize {
        let lines = files.iter().flat_map(|file| file.lines()).map(str::trim);
        lines
            .filter(|line| !line.is_empty() && !line.starts_with("//"))
            .count()
    }

    #[test]
    fn the_example_has_fewer_lines_than_its_twin() {
        let readme = include_str!("../../../README.md");
        let (ours, twin, shared) = (lines(&OURS), lines(&TWIN), lines(&SHARED));
        assert!(ours <= twin, "{ours} lines beside {twin}");
        let told = format!(
            "{ours} lines beside {twin}, without comments and without the {shared} that both share"
        );
        assert!(readme.contains(&told), "the README does not say: {told}");
    }
}
