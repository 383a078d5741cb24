//! Serves the notes of the file `notes.db` in this directory on port 8080.

use flatpath::Server;
use flatpath_example_rest_sqlite::Notes;
use flatpath_http::{Http, Request};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let notes = Notes::open("notes.db".into())?;
    let service = Http::pooled(move |request: &Request| notes.answer(request));
    Server::new().listen("127.0.0.1:8080", service).run()?;
    Ok(())
}
