//! Serves the notes of the file `notes.db` in this directory on port 8080.

use flatpath::Server;
use flatpath_example_rest_sqlite::notes;
use flatpath_http::Http;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let service = Http::service(notes("notes.db".into())?);
    Server::new().listen("127.0.0.1:8080", service).run()?;
    Ok(())
}
