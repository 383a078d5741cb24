//! `--proxy` and `proxy = …` of sites: another server answers, and its clients notice nothing.

use std::net::SocketAddr;

use flatpath_testkit::https::Certificates;
use flatpath_testkit::{Client, Driver, Launch, Server, Site, each_driver, https, until_true};
use rustix::process::Signal;

each_driver!(
    requests_and_replies_pass_both_ways,
    a_site_is_a_directory_or_asks_servers,
    the_server_learns_its_client_and_no_claim,
    a_reload_changes_the_servers,
    what_no_server_answers_is_502_and_a_line,
    curl_passes_over_tls_with_both_versions,
);

/// A server of files, which clients may change.
fn upstream(driver: Driver, site: &Site, options: &[&str]) -> Server {
    let options = ["--writable"].iter().chain(options);
    Launch::serve(driver)
        .with(options)
        .directory(site.path())
        .start()
}

fn url(server: &Server) -> String {
    format!("http://{}", server.address("http"))
}

/// A proxy with these settings.
fn proxy(driver: Driver, run: &Site, settings: &str) -> Server {
    run.write(
        "flatpath.toml",
        format!("http = \"127.0.0.1:0\"\n{settings}"),
    );
    Launch::configured(driver, run.path()).start()
}

fn requests_and_replies_pass_both_ways(driver: Driver) {
    let (site, run) = (Site::new().with("file", "contents"), Site::new());
    let large = https::content(3_000_000);
    site.write("large", &large);
    let server = upstream(driver, &site, &[]);
    let front = proxy(driver, &run, &format!("proxy = \"{}\"\n", url(&server)));
    let mut client = front.client();
    for _ in 0..3 {
        assert_eq!(client.get("/file").text(), "contents");
        assert_eq!(client.get("/large").body, large);
        assert_eq!(client.get("/none").status, 404);
    }
    for (framing, body) in [
        ("Content-Length: 5\r\n", "12345"),
        (
            "Transfer-Encoding: chunked\r\n",
            "3\r\n123\r\n2\r\n45\r\n0\r\n\r\n",
        ),
    ] {
        let request = format!("PUT /new HTTP/1.1\r\nHost: localhost\r\n{framing}\r\n{body}");
        let reply = client.exchange(request);
        assert!([201, 204].contains(&reply.status), "{}", reply.status);
        assert_eq!(client.get("/new").text(), "12345", "{framing}");
    }
    client.request("HEAD", "/large", &[]);
    let head = client.reply_to_head();
    assert_eq!(head.field("content-length"), Some("3000000"));
    let part = client.ask("/large", &[("Range", "bytes=5-9")]);
    assert_eq!((part.status, &part.body[..]), (206, &large[5..10]));
    front.end();
    server.end();
}

fn a_site_is_a_directory_or_asks_servers(driver: Driver) {
    let (site, run) = (Site::new().with("file", "of the server"), Site::new());
    std::fs::create_dir(site.path().join("kept")).expect("made");
    site.write("kept/file", "with its prefix");
    run.write("file", "of the directory");
    let server = upstream(driver, &site, &[]);
    let at = url(&server);
    let front = proxy(
        driver,
        &run,
        &format!(
            "[[site]]\ndir = \".\"\n\
             [[site]]\nprefix = \"/app\"\nproxy = \"{at}\"\n\
             [[site]]\nprefix = \"/kept\"\nproxy = [\"{at}\", \"{at}\"]\n\
             proxy-keep-prefix = true\nproxy-balance = \"round-robin\"\n",
        ),
    );
    let mut client = front.client();
    for (path, text) in [
        ("/file", "of the directory"),
        ("/app/file", "of the server"),
        ("/kept/file", "with its prefix"),
    ] {
        assert_eq!(client.get(path).text(), text, "{path}");
    }
    assert_eq!(client.get("/app/").status, 200, "the listing of the server");
    front.end();
    server.end();
}

fn the_server_learns_its_client_and_no_claim(driver: Driver) {
    let (site, run) = (Site::new().with("file", "contents"), Site::new());
    let log = run.at("log").display().to_string();
    let trusting = ["--forwarded-from", "127.0.0.1", "--access-log", &log];
    let server = upstream(driver, &site, &trusting);
    let front = proxy(driver, &run, &format!("proxy = \"{}\"\n", url(&server)));
    let from = SocketAddr::from(([127, 0, 0, 9], 0));
    let mut client = Client::connect_from(from, front.address("http"));
    let claim = [
        ("X-Forwarded-For", "192.0.2.1"),
        ("X_Forwarded_For", "192.0.2.2"),
    ];
    assert_eq!(client.ask("/file", &claim).text(), "contents");
    let lines = || std::fs::read_to_string(run.at("log")).unwrap_or_default();
    until_true("the server has logged it", || lines().ends_with('\n'));
    assert!(lines().starts_with("127.0.0.9 "), "{}", lines());
    front.end();
    server.end();
}

fn a_reload_changes_the_servers(driver: Driver) {
    let sites = ["one", "other"].map(|text| Site::new().with("file", text));
    let servers = [0, 1].map(|number| upstream(driver, &sites[number], &[]));
    let run = Site::new();
    let settings = |server: &Server| {
        format!(
            "http = \"127.0.0.1:0\"\n[[site]]\nproxy = \"{}\"\n",
            url(server)
        )
    };
    run.write("flatpath.toml", settings(&servers[0]));
    let front = Launch::configured(driver, run.path()).start();
    let mut client = front.client();
    assert_eq!(client.get("/file").text(), "one");
    run.write("flatpath.toml", settings(&servers[1]));
    front.process().signal(Signal::HUP);
    until_true("the other one is asked", || {
        client.get("/file").text() == "other"
    });
    front.end();
    for server in servers {
        server.end();
    }
}

fn what_no_server_answers_is_502_and_a_line(driver: Driver) {
    let (site, run) = (Site::new().with("file", "contents"), Site::new());
    let server = upstream(driver, &site, &[]);
    let front = proxy(driver, &run, &format!("proxy = \"{}\"\n", url(&server)));
    let mut client = front.client();
    assert_eq!(client.get("/file").text(), "contents");
    let at = server.address("http");
    server.end();
    assert_eq!(client.get("/file").status, 502);
    // The client's connection has lost nothing.
    assert_eq!(client.get("/file").status, 502);
    front.await_log(&format!("server {at}"));
    front.end();
}

fn curl_passes_over_tls_with_both_versions(driver: Driver) {
    let (site, run) = (Site::new().with("file", "contents"), Site::new());
    let large = https::content(1_000_000);
    run.write("large", &large);
    let server = upstream(driver, &site, &[]);
    let certificates = Certificates::default();
    certificates.make("site", &["localhost"]);
    let launch = https::launch(driver).with(certificates.options(&["site"]));
    let front = launch.with(["--proxy", &url(&server)]).start();
    for version in ["--http1.1", "--http2"] {
        let Some(mut curl) = https::curl(&certificates.at("site.crt")) else {
            return;
        };
        let file = https::url(&front, "/file");
        assert_eq!(https::text(curl.arg(version).arg(file)), "contents");
        let mut curl = https::curl(&certificates.at("site.crt")).expect("as before");
        let (new, from) = (https::url(&front, "/new"), run.at("large"));
        curl.arg(version).arg("--upload-file").arg(from).arg(new);
        https::output(&mut curl);
        let stored = std::fs::read(site.at("new")).expect("it is there");
        assert!(stored == large, "{version}: {} bytes", stored.len());
    }
    front.end();
    server.end();
}
