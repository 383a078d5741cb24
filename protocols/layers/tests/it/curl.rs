//! What curl makes of layers, on both drivers: responses that are compressed, bodies that are
//! refused.

use std::process::Command;
use std::time::Duration;

use flatpath_http::flatpath::{DriverChoice, Running, Server};
use flatpath_http::http::header::CONTENT_TYPE;
use flatpath_http::{Body, Http, Router, routing};
use flatpath_layers::{BearerAuth, Compression, Cors, SetRequestId};
use flatpath_testkit::{Driver, each_driver, tools};

use crate::compression::text;

each_driver!(
    curl_decodes_what_it_has_asked_for,
    curl_hears_refusals_of_bodies_through_the_layers,
);

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
    let running = start(driver, router);
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

fn start(driver: Driver, router: Router) -> Running {
    let choice = match driver {
        Driver::Uring => DriverChoice::Uring,
        Driver::Epoll => DriverChoice::Epoll,
    };
    let server = Server::new().driver(choice).workers(2..=4);
    let server = server.listen("127.0.0.1:0", Http::service(router));
    server.start().expect("started")
}

fn curl_hears_refusals_of_bodies_through_the_layers(driver: Driver) {
    const BYTES_MAX: usize = 1000;
    let Some(curl) = tools::find("curl") else {
        return;
    };
    let origin = "https://app.example.org".parse().expect("an origin");
    let notes = routing::post(|body: String| body).body_bytes_max(BYTES_MAX as u64);
    let router: Router = Router::new()
        .route("/", notes)
        .layer(BearerAuth::new("notes", [("a token", "me")]))
        .layer(Cors::origins([origin]))
        .layer(SetRequestId::new());
    let running = start(driver, router);
    let address = running.addresses()[0].address;
    let file = tempfile::NamedTempFile::new().expect("a file");
    let body = format!("@{}", file.path().display());
    let token = ["--header", "Authorization: Bearer a token"];
    let chunked = ["--header", "Transfer-Encoding: chunked"];
    let waits = ["--header", "Expect: 100-continue"];
    for version in ["--http1.1", "--http2-prior-knowledge"] {
        let chunked: &[&str] = match version {
            "--http1.1" => &chunked,
            _ => &[],
        };
        for (bytes, options, status) in [
            (100_000, [&waits[..], &[]], "401"),
            (100, [&waits[..], &[]], "401"),
            (100_000, [&token, &[]], "413"),
            (100_000, [&token, chunked], "413"),
            (BYTES_MAX + 1, [&token, &waits], "413"),
            (BYTES_MAX, [&token, &waits], "200"),
            (BYTES_MAX, [&token, chunked], "200"),
        ] {
            std::fs::write(file.path(), text(bytes)).expect("written");
            let mut command = Command::new(&curl);
            command.args(["--silent", "--show-error", version, "--data-binary", &body]);
            command.args(options.concat());
            command.args(["--header", "Origin: https://app.example.org"]);
            command.args(["--dump-header", "/proc/self/fd/2", "--output", "/dev/null"]);
            command.args(["--write-out", "%{http_code} %{size_upload}"]);
            command.arg(format!("http://{address}/"));
            let output = tools::run(&mut command, TIME_MAX);
            let case = format!("{version} {bytes} {options:?}: {output:?}");
            let told = String::from_utf8_lossy(&output.stdout).into_owned();
            let (heard, sent) = told.split_once(' ').expect("two words");
            assert_eq!(heard, status, "{case}");
            let head = String::from_utf8_lossy(&output.stderr).to_ascii_lowercase();
            let granted = "access-control-allow-origin: https://app.example.org";
            assert!(head.contains(granted), "{case}");
            assert!(head.contains("x-request-id: "), "{case}");
            if status == "401" && version == "--http1.1" {
                assert_eq!(
                    (sent, head.contains("100 continue")),
                    ("0", false),
                    "{case}"
                );
            }
        }
    }
    running.handle().drain();
    running.wait().expect("it ends");
}
