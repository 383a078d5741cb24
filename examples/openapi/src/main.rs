//! Serves the tasks on port 8080, and their description at <http://127.0.0.1:8080/openapi.json>.

use flatpath::Server;
use flatpath_example_openapi::tasks;
use flatpath_http::Http;

fn main() -> Result<(), flatpath::Error> {
    let service = Http::service(tasks());
    Server::new().listen("127.0.0.1:8080", service).run()
}
