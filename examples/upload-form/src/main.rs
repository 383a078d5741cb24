//! Serves an upload form on port 8080, for the directory of its argument; open
//! <http://127.0.0.1:8080/>.

use flatpath::Server;
use flatpath_example_upload_form::upload_form;
use flatpath_http::{Http, Origins};

fn main() -> Result<(), flatpath::Error> {
    let directory = std::env::args_os().nth(1).unwrap_or_else(|| ".".into());
    // Pages of other sites may not send forms here.
    let service = Http::service(upload_form(directory.into())).origins(Origins::own());
    Server::new().listen("127.0.0.1:8080", service).run()
}
