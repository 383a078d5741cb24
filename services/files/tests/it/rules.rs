//! A site with rules as curl gets it, on both drivers.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use flatpath::{DriverChoice, Server, WorkerScope};
use flatpath_files::{
    CleanUrls, Files, HeaderChange, Pattern, RootFiles, RuleError, Rules, WriteOptions, Writing,
};
use flatpath_http::{
    Body, Disposition, Head, Http, Reply, Request, Response, Router, Service, Turn,
};
use flatpath_testkit::{Driver, each_driver, patience, tools};
use http::StatusCode;

each_driver!(curl_gets_what_the_rules_say);

/// What answers 429 to everything, with the page of the files.
struct Refusing(Files);

impl Service for Refusing {
    type ThreadState = ();

    fn thread_state(&self) {}

    fn inline(&self, (): &mut (), _: Turn, _: &Head<'_>, _: &mut Reply<'_>) -> Disposition<'_> {
        Disposition::Pooled
    }

    fn pooled(&self, request: &mut Request, scope: &mut WorkerScope<'_>) -> Response {
        let mut response = Response::new(Body::from("built in"));
        *response.status_mut() = StatusCode::TOO_MANY_REQUESTS;
        response.headers_mut().insert("retry-after", 7.into());
        self.0.with_error_page(request, response, scope)
    }
}

fn rules() -> Result<Rules, RuleError> {
    let rules = Rules::new()
        .redirect("/old/*".parse()?, "/new", StatusCode::MOVED_PERMANENTLY)?
        .clean_urls(CleanUrls::Served)
        .fallback("/app/*".parse()?, "/app.html")?
        .error_page(StatusCode::NOT_FOUND, "/404.html")?
        .error_page(StatusCode::TOO_MANY_REQUESTS, "/429.html")?
        .headers(Pattern::hashed(), [HeaderChange::immutable()])?
        .root_files(RootFiles::Read);
    Ok(rules)
}

fn open(directory: &Path) -> Files {
    let files = Files::open(directory).expect("a directory");
    files.rules(rules().expect("rules"))
}

fn curl_gets_what_the_rules_say(driver: Driver) {
    let Some(curl) = tools::find("curl") else {
        return;
    };
    let directory = tempfile::tempdir().expect("temporary directory");
    let write = |name: &str, text: &str| {
        let path = directory.path().join(name);
        fs::create_dir_all(path.parent().expect("a parent")).expect("made");
        fs::write(path, text).expect("written");
    };
    write("new/page.html", "a page\n");
    write("app.html", "the application\n");
    write("404.html", "lost\n");
    write("429.html", "too often\n");
    write("app.3f2a9c1b.js", "script\n");
    write("_redirects", "/here /new/page 308\n");
    let writable = open(directory.path()).writable(Writing::Allowed(WriteOptions::default()));
    let router = Router::new()
        .nest_service("/written", writable)
        .nest_service("/often", Refusing(open(directory.path())))
        .nest_service("/below", open(directory.path()))
        .fallback_service(open(directory.path()));
    let choice = match driver {
        Driver::Uring => DriverChoice::Uring,
        Driver::Epoll => DriverChoice::Epoll,
    };
    let server = Server::new().driver(choice).workers(2..=4);
    let http = Http::service(router);
    let running = server.listen("127.0.0.1:0", http).start().expect("started");
    let address = running.addresses()[0].address;
    let get = |path: &str| get(&curl, address, path);
    // The second round is answered from the cache as far as it can be.
    for _ in 0..2 {
        for (path, expected) in [
            ("/old/page.html?x=1", "a page\n200 /new/page?x=1"),
            ("/here", "a page\n200 /new/page"),
            ("/below/old/page.html", "a page\n200 /below/new/page"),
            ("/new/page", "a page\n200 /new/page"),
            ("/app/any/where", "the application\n200 /app/any/where"),
            ("/none", "lost\n404 /none"),
            ("/_redirects", "lost\n404 /_redirects"),
            ("/often/x", "too often\n429 /often/x"),
        ] {
            assert_eq!(get(path).0, expected, "{path}");
        }
        let (_, head) = get("/app.3f2a9c1b.js");
        assert!(
            head.contains("cache-control: public, max-age=31536000, immutable"),
            "{head}"
        );
        let (_, head) = get("/often/x");
        assert!(head.contains("retry-after: 7"), "{head}");
    }
    write("_headers", "/new/*\n  X-Changed: yes\n");
    for _ in 0..2 {
        let (_, head) = get("/new/page");
        assert!(head.contains("x-changed: yes"), "{head}");
    }
    assert_no_rules_are_written(&curl, address);
    running.handle().drain();
    running.wait().expect("it ends");
}

/// Who may write files does not write rules, by either way.
fn assert_no_rules_are_written(curl: &Path, address: SocketAddr) {
    let tus = ["Tus-Resumable: 1.0.0", "Upload-Length: 1"];
    for (path, method, headers, status) in [
        ("/written/_headers", "PUT", &[][..], "403"),
        ("/written/%5fredirects", "PUT", &[], "403"),
        ("/written/_redirects", "POST", &tus, "403"),
        (
            "/written/",
            "POST",
            &[tus[0], tus[1], "Upload-Metadata: filename X2hlYWRlcnM="],
            "403",
        ),
        ("/written/other", "PUT", &[], "201"),
    ] {
        let mut command = Command::new(curl);
        command.args([
            "--silent",
            "--request",
            method,
            "--write-out",
            "%{response_code}",
        ]);
        command.args(["--output", "/dev/null"]);
        command.args(headers.iter().flat_map(|header| ["--header", header]));
        if method == "PUT" {
            command.args(["--data-binary", "/* /evil 301"]);
        }
        command.arg(format!("http://{address}{path}"));
        let output = tools::run(&mut command, patience());
        let said = String::from_utf8_lossy(&output.stdout);
        assert_eq!(said, status, "{method} {path}: {output:?}");
    }
}

/// What curl says of a path, after the redirects: a body with status and address, and all heads.
fn get(curl: &Path, address: SocketAddr, path: &str) -> (String, String) {
    let mut command = Command::new(curl);
    command.args([
        "--silent",
        "--show-error",
        "--location",
        "--max-redirs",
        "5",
    ]);
    command.args(["--dump-header", "/proc/self/fd/2", "--path-as-is"]);
    command.args(["--write-out", "%{response_code} %{url_effective}"]);
    command.arg(format!("http://{address}{path}"));
    let output = tools::run(&mut command, patience());
    assert!(output.status.success(), "{path}: {output:?}");
    let text = String::from_utf8(output.stdout).expect("text");
    let head = String::from_utf8(output.stderr).expect("text");
    let text = text.replace(&format!("http://{address}"), "");
    (text, head.to_ascii_lowercase())
}
