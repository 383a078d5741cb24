//! Compressed responses as curl takes them, on both drivers.

use std::process::Command;
use std::time::Duration;

use flatpath_http::flatpath::{DriverChoice, Server};
use flatpath_http::http::header::CONTENT_TYPE;
use flatpath_http::{Body, Http, Router, routing};
use flatpath_layers::Compression;
use flatpath_testkit::{Driver, each_driver, tools};

use crate::compression::text;

each_driver!(curl_decodes_what_it_has_asked_for);

/// Far beyond what it takes.
const TIME_MAX: Duration = Duration::from_secs(60);

fn curl_decodes_what_it_has_asked_for(driver: Driver) {
    let Some(curl) = tools::find("curl") else {
        return;
    };
    let html = [(CONTENT_TYPE, "text/html")];
    let whole = move || (html.clone(), Body::from(text(100_000)));
    let html = [(CONTENT_TYPE, "text/html")];
    let read = move || {
        let source = std::io::Cursor::new(text(1_000_000));
        (html.clone(), Body::reader(source, None))
    };
    let router: Router = Router::new()
        .get("/whole", whole.clone())
        .route("/inline", routing::get(whole).inline())
        .get("/read", read)
        .layer(Compression::new());
    let choice = match driver {
        Driver::Uring => DriverChoice::Uring,
        Driver::Epoll => DriverChoice::Epoll,
    };
    let server = Server::new().driver(choice).workers(2..=4);
    let http = Http::service(router);
    let running = server.listen("127.0.0.1:0", http).start().expect("started");
    let address = running.addresses()[0].address;
    for (path, bytes) in [
        ("/whole", 100_000),
        ("/inline", 100_000),
        ("/read", 1_000_000),
    ] {
        let mut command = Command::new(&curl);
        command.args([
            "--silent",
            "--show-error",
            "--fail",
            "--compressed",
            "--dump-header",
        ]);
        command.args(["/proc/self/fd/2", &format!("http://{address}{path}")]);
        let output = tools::run(&mut command, TIME_MAX);
        assert!(output.status.success(), "{path}: {output:?}");
        let head = String::from_utf8_lossy(&output.stderr).to_ascii_lowercase();
        assert!(head.contains("content-encoding: "), "{path}: {head}");
        assert!(output.stdout == text(bytes).as_bytes(), "{path}");
    }
    running.handle().drain();
    running.wait().expect("it ends");
}
