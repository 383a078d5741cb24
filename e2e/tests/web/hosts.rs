//! `--hosts` and `--allow-origin`: what a page of another site can do to a server on loopback.

use std::fs;

use flatpath_testkit::{Client, Driver, Launch, Server, Site, each_driver};

each_driver!(
    a_server_on_loopback_answers_for_local_names_alone,
    named_hosts_and_origins_are_served_too,
);

/// The status of the answer to a request for this host.
fn status(server: &Server, listener: &str, line: &str, headers: &str) -> String {
    let mut client = Client::connect(server.address(listener));
    let head =
        format!("{line} HTTP/1.1\r\n{headers}Connection: close\r\nContent-Length: 0\r\n\r\n");
    client.send(head.as_bytes());
    let answer = client.exactly("HTTP/1.1 200".len());
    String::from_utf8_lossy(&answer["HTTP/1.1 ".len()..]).into_owned()
}

fn a_server_on_loopback_answers_for_local_names_alone(driver: Driver) {
    let site = Site::new();
    fs::write(site.path().join("small"), "small").expect("written");
    let options = ["--writable", "--admin", "127.0.0.1:0"];
    let server = Launch::serve(driver)
        .directory(site.path())
        .with(options)
        .start();
    let of = |listener, line, headers: &str| status(&server, listener, line, headers);
    for (host, code) in [
        ("localhost", "200"),
        ("127.0.0.1:80", "200"),
        ("evil.example", "421"),
    ] {
        let headers = format!("Host: {host}\r\n");
        assert_eq!(of("http", "GET /small", &headers), code, "{host}");
        assert_eq!(of("admin", "GET /status.json", &headers), code, "{host}");
    }
    let foreign = "Host: localhost\r\nOrigin: http://evil.example\r\n";
    assert_eq!(of("http", "PUT /pwn.html", foreign), "403");
    assert_eq!(of("http", "PUT /pwn.html", "Host: evil.example\r\n"), "421");
    assert!(!site.path().join("pwn.html").exists());
    assert_eq!(of("http", "PUT /own.html", "Host: localhost\r\n"), "201");
}

fn named_hosts_and_origins_are_served_too(driver: Driver) {
    let site = Site::new();
    let options = [
        "--writable",
        "--hosts",
        "files.example.org",
        "--allow-origin",
        "https://app.example.org",
    ];
    let server = Launch::serve(driver)
        .directory(site.path())
        .with(options)
        .start();
    let of = |line, headers: &str| status(&server, "http", line, headers);
    assert_eq!(of("GET /", "Host: files.example.org\r\n"), "200");
    assert_eq!(of("GET /", "Host: www.example.org\r\n"), "421");
    let page = "Host: files.example.org\r\nOrigin: https://app.example.org\r\n";
    assert_eq!(of("PUT /new", page), "201");
}
