//! Requests for other hosts and writes of foreign pages, as clients see them answered.

use flatpath_http::{Hosts, Http, HttpChallenges, Origins, Request, Response};
use flatpath_test::{Conditions, TestServer};

/// What a server of `files.example.org` answers to this input.
fn answer(input: &str) -> String {
    let names = ["files.example.org".parse().expect("a host")];
    let echo = |request: Request| Response::new(request.uri().path().to_owned().into());
    let http = Http::pooled(echo)
        .hosts(Hosts::local().and(names))
        .origins(Origins::own());
    let mut server = TestServer::new(Conditions::calm(1), http);
    let client = server.connect();
    client.write(input.as_bytes());
    client.shutdown_write();
    String::from_utf8(server.read_to_end(&client)).expect("ASCII")
}

fn statuses(input: &str) -> Vec<String> {
    let answer = answer(input);
    let heads = answer.split("HTTP/1.1 ").skip(1);
    heads.map(|head| head[..3].to_owned()).collect()
}

#[test]
fn a_request_for_another_host_is_misdirected_and_the_last() {
    let get = |host: &str| format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n");
    assert_eq!(statuses(&get("files.example.org:8080")), ["200"]);
    assert_eq!(statuses(&get("localhost")), ["200"]);
    let refused = answer(&get("evil.example"));
    assert!(
        refused.starts_with("HTTP/1.1 421 Misdirected Request\r\n"),
        "{refused}"
    );
    assert!(refused.contains("\r\nConnection: close\r\n"), "{refused}");
    assert!(
        !refused.contains("evil"),
        "nothing of the request: {refused}"
    );
    // Another host after one that was admitted, on the same connection and network thread.
    let both = get("localhost") + &get("evil.example") + &get("localhost");
    assert_eq!(statuses(&both), ["200", "421"]);
}

/// RFC 9112 section 3.2.2: in absolute form the target names the host, whatever `Host` says.
#[test]
fn the_host_of_an_absolute_target_is_the_one_that_counts() {
    let both = |target: &str, host: &str| {
        statuses(&format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n"))
    };
    assert_eq!(both("http://localhost/a", "evil.example"), ["200"]);
    assert_eq!(both("http://evil.example/a", "localhost"), ["421"]);
    assert_eq!(both("http://evil.example:80", "evil.example"), ["421"]);
    assert_eq!(both("http://127.0.0.1:8080/a", "localhost"), ["200"]);
}

#[test]
fn a_request_of_http_1_0_may_name_no_host() {
    assert_eq!(statuses("GET / HTTP/1.0\r\n\r\n"), ["200"]);
    assert_eq!(
        statuses("GET / HTTP/1.0\r\nHost: evil.example\r\n\r\n"),
        ["421"]
    );
}

#[test]
fn an_empty_host_is_malformed() {
    for host in ["", " ", ":80"] {
        for version in ["1.0", "1.1"] {
            let got = statuses(&format!("GET / HTTP/{version}\r\nHost:{host}\r\n\r\n"));
            assert_eq!(got, ["400"], "{host:?} {version}");
        }
    }
}

#[test]
fn a_foreign_page_writes_nothing_and_its_body_is_not_a_request() {
    let put = |headers: &str| {
        format!("PUT /a HTTP/1.1\r\nHost: localhost\r\n{headers}Content-Length: 27\r\n\r\n")
            + "GET / HTTP/1.1\r\nHost: h\r\n\r\n"
    };
    assert_eq!(statuses(&put("")), ["200"]);
    assert_eq!(statuses(&put("Origin: http://localhost\r\n")), ["200"]);
    let refused = answer(&put("Origin: http://evil.example\r\n"));
    assert!(
        refused.starts_with("HTTP/1.1 403 Forbidden\r\n"),
        "{refused}"
    );
    assert_eq!(statuses(&put("Origin: null\r\n")), ["403"]);
    assert_eq!(statuses(&put("Sec-Fetch-Site: cross-site\r\n")), ["403"]);
}

#[test]
fn by_default_every_host_and_every_page_is_served() {
    let http = Http::pooled(|| "hello");
    let mut server = TestServer::new(Conditions::calm(1), http);
    let client = server.connect();
    client.write(b"POST / HTTP/1.1\r\nHost: any.example\r\nOrigin: http://other\r\n\r\n");
    client.shutdown_write();
    assert!(server.read_to_end(&client).starts_with(b"HTTP/1.1 200 "));
}

/// Whatever the host; and the rest of the prefix is the service's.
#[test]
fn sim_a_challenge_that_is_pending_comes_before_hosts_and_the_service() {
    let challenges = HttpChallenges::default();
    challenges.put("token", "token.key").expect("room");
    let names = ["files.example.org".parse().expect("a host")];
    let echo = |request: Request| Response::new(request.uri().path().to_owned().into());
    let http = Http::pooled(echo).hosts(Hosts::local().and(names));
    let mut server = TestServer::new(Conditions::calm(1), http.challenges(&challenges));
    let mut said = |path: &str, host: &str| {
        let client = server.connect();
        // Behind a request that a worker has: the replies stay in order.
        let get = |path: &str, host: &str| format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n");
        let input = get("/first", "localhost") + &get(path, host);
        client.write(input.as_bytes());
        client.shutdown_write();
        let answer = String::from_utf8(server.read_to_end(&client)).expect("ASCII");
        let (first, second) = answer.split_once("/first").expect("the first reply");
        assert!(first.starts_with("HTTP/1.1 200"), "{answer}");
        let body = second.rsplit("\r\n\r\n").next().unwrap_or_default();
        (second[9..12].to_owned(), body.to_owned())
    };
    let own = |token: &str| format!("/.well-known/acme-challenge/{token}");
    for host in ["localhost", "evil.example"] {
        let (status, body) = said(&own("token"), host);
        assert_eq!((&*status, &*body), ("200", "token.key"), "{host}");
    }
    assert_eq!(said(&own("other"), "localhost").1, own("other"));
    assert_eq!(said(&own("other"), "evil.example").0, "421");
    challenges.remove("token");
    assert_eq!(said(&own("token"), "localhost").1, own("token"));
}
