//! The example `bookmarks` as it is.

use std::io;

use flatpath_example_bookmarks::service;
use flatpath_http::Http;

use super::super::ours::run_with;
use super::super::serve::Serve;
use super::{App, SECRET};

/// Runs until the process is ended.
///
/// # Errors
/// If the database cannot be made, what the engine reports, or a driver that is none.
pub(in super::super) fn run(serve: &Serve) -> io::Result<()> {
    let App { database, public } = App::open(serve)?;
    let service =
        service(database, SECRET, &public).map_err(|error| io::Error::other(error.to_string()))?;
    run_with(serve, Http::service(service))
}
