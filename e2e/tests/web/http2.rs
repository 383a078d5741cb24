//! HTTP/2 with real clients: curl, nghttp and h2load, over TLS and by prior knowledge.

use std::fs;
use std::process::Command;

use flatpath_testkit::deadline::patience;
use flatpath_testkit::{Client, Driver, Server, Site, each_driver, tools, until_true};

use flatpath_testkit::https::{content, curl, localhost, output, text, url};

each_driver!(
    curl_gets_and_stores,
    ordinary_requests_of_curl_are_no_failures_and_no_stalls,
    nghttp_and_h2load_are_served,
    what_was_agreed_on_is_spoken,
);

fn plain_url(server: &Server, path: &str) -> String {
    format!("http://{}{path}", server.address("http"))
}

fn curl_gets_and_stores(driver: Driver) {
    let (small, large) = (content(1 << 10), content(3 << 20));
    let site = Site::new().with("small", &small).with("large", &large);
    let log = Site::new();
    let file = log.at("access").display().to_string();
    let options = ["--http", "127.0.0.1:0", "--writable", "--access-log", &file];
    let (server, authority) = localhost(driver, &site, &options);
    let certificate = authority.at("site.crt");
    for (option, base) in [
        ("--http2", url(&server, "")),
        ("--http2-prior-knowledge", plain_url(&server, "")),
    ] {
        let Some(_) = curl(&certificate) else {
            return;
        };
        let curl = || {
            let mut curl = curl(&certificate).expect("it is there");
            curl.arg(option);
            curl
        };
        assert_eq!(output(curl().arg(format!("{base}/small"))), small);
        assert!(output(curl().arg(format!("{base}/large"))) == large);
        let range = ["-r", "70000-1070000"];
        let part = output(curl().args(range).arg(format!("{base}/large")));
        assert!(part == large[70_000..=1_070_000]);
        let head = text(curl().arg("-I").arg(format!("{base}/large")));
        assert!(head.starts_with("HTTP/2 200 "), "{head}");
        assert!(head.contains("\r\ncontent-length: 3145728\r\n"), "{head}");
        let mut put = curl();
        put.args(["-w", "%{http_code} %{http_version}", "-T"]);
        put.arg(site.at("large")).arg(format!("{base}/new{option}"));
        assert_eq!(text(&mut put), "201 2");
        let stored = fs::read(site.at(&format!("new{option}"))).expect("stored");
        assert!(stored == large);
    }
    // All at once, on one connection. By prior knowledge curl 7.88 fails at that, beside nginx too.
    let mut many = curl(&certificate).expect("it is there");
    many.arg("--http2").args([
        "-Z",
        "-o",
        "/dev/null",
        "-w",
        "%{http_code} %{http_version}\n",
    ]);
    many.arg(url(&server, "/small?[1-50]"));
    let said = text(&mut many);
    assert_eq!(said.matches("200 2\n").count(), 50, "{said}");
    server.end();
    let lines = fs::read_to_string(file).expect("written");
    for at in 1..=50 {
        let line = format!("] \"GET /small?{at} HTTP/2.0\" 200 1024 ");
        assert_eq!(lines.matches(&line).count(), 1, "{line}: {lines}");
    }
}

/// Curl closes after HTTP/2 without a close_notify, and after HTTP/1.1 with one.
fn ordinary_requests_of_curl_are_no_failures_and_no_stalls(driver: Driver) {
    let site = Site::new().with("small", content(1 << 10));
    let options = ["--http", "127.0.0.1:0", "--admin", "127.0.0.1:0"];
    let (server, authority) = localhost(driver, &site, &options);
    let certificate = authority.at("site.crt");
    for option in ["--http2", "--http1.1"] {
        for _ in 0..5 {
            let Some(mut curl) = curl(&certificate) else {
                return;
            };
            output(curl.arg(option).arg(url(&server, "/small")));
        }
    }
    let metrics = || Client::connect(server.address("admin")).get("/metrics");
    let listener = format!("address=\"{}\"", server.address("https"));
    // The counters of the listener with TLS, and not those of the page itself.
    let of_https = |name: &str, label: &str| {
        let metrics = metrics();
        let lines = metrics.text().lines().map(str::to_owned);
        let lines = lines.filter(|it| it.starts_with(name) && it.contains(label));
        let lines = lines.filter(|it| it.contains(&listener));
        let values = lines.filter_map(|it| it.rsplit(' ').next()?.parse::<u64>().ok());
        values.sum::<u64>()
    };
    until_true("all are closed", || {
        of_https("flatpath_connections_closed_total", "") == 10
    });
    assert_eq!(of_https("flatpath_requests_total", "2xx"), 10);
    assert_eq!(of_https("flatpath_tls_handshakes_total", ""), 10);
    assert_eq!(of_https("flatpath_tls_failures_total", ""), 0);
    assert_eq!(of_https("flatpath_stalls_total", ""), 0);
    server.end();
}

fn nghttp_and_h2load_are_served(driver: Driver) {
    let small = content(1 << 10);
    let site = Site::new().with("small", &small);
    let (server, _authority) = localhost(driver, &site, &["--http", "127.0.0.1:0"]);
    let (Some(nghttp), Some(h2load)) = (tools::find("nghttp"), tools::find("h2load")) else {
        return;
    };
    for url in [url(&server, "/small"), plain_url(&server, "/small")] {
        let said = output(Command::new(&nghttp).arg(&url));
        assert!(said.ends_with(&small), "{url}");
        let mut load = Command::new(&h2load);
        load.args(["-n", "4000", "-c", "4", "-m", "32"]).arg(&url);
        let said = text(&mut load);
        assert!(said.contains("4000 succeeded, 0 failed"), "{said}");
    }
    server.end();
}

/// A client that agrees on one protocol (ALPN) and speaks the other is refused.
fn what_was_agreed_on_is_spoken(driver: Driver) {
    let site = Site::new().with("file", b"what is in it");
    let (server, authority) = localhost(driver, &site, &[]);
    let Some(openssl) = tools::find("openssl") else {
        return;
    };
    let ask = "GET /file HTTP/1.1\\r\\nHost: localhost\\r\\nConnection: close\\r\\n\\r\\n";
    let preface = "PRI * HTTP/2.0\\r\\n\\r\\nSM\\r\\n\\r\\n";
    for (agreed, said, heard) in [
        ("http/1.1", ask, Some("what is in it")),
        ("h2", ask, None),
        ("http/1.1", preface, Some("HTTP/1.1 505 ")),
    ] {
        let client = format!("printf '{said}' | \"$0\" s_client -quiet -alpn {agreed} \"$@\"");
        let mut command = Command::new("sh");
        command.arg("-c").arg(client).arg(&openssl);
        let port = server.address("https").port();
        command.args(["-connect", &format!("127.0.0.1:{port}"), "-CAfile"]);
        command.arg(authority.at("site.crt"));
        let output = tools::run(&mut command, patience()).stdout;
        let said = String::from_utf8_lossy(&output);
        match heard {
            Some(words) => assert!(said.contains(words), "{agreed}: {said}"),
            None => assert!(!said.contains("what is in it"), "{agreed}: {said}"),
        }
    }
    server.end();
}
