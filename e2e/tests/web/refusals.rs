//! Requests that are refused: in HTTP's own words, and so that the client can read them.
//!
//! The whole list of framing rules is tested in the HTTP crate; here are those where the connection
//! itself matters: a client that is still sending when the refusal comes must not lose it to a
//! reset.

use flatpath_testkit::client::{Ending, request_bytes};
use flatpath_testkit::{Driver, Launch, Server, Site, each_driver};

each_driver!(
    refusals_reach_a_client_that_is_still_sending,
    framing_faults_are_refused_and_end_the_connection,
    lengths_are_refused_only_beyond_their_limit,
    old_clients_are_served_in_their_own_way,
);

fn serve(driver: Driver) -> (Server, Site) {
    let site = Site::new().with("small", "small");
    let server = Launch::serve(driver).directory(site.path()).start();
    (server, site)
}

fn refusals_reach_a_client_that_is_still_sending(driver: Driver) {
    const FLOOD: usize = 2 << 20;
    let (server, _site) = serve(driver);
    let flood = "x".repeat(FLOOD);
    let lines = "X-Many: y\r\n".repeat(FLOOD / 11);
    for (status, request) in [
        (
            414,
            format!("GET /{flood} HTTP/1.1\r\nHost: localhost\r\n\r\n"),
        ),
        (
            431,
            format!("GET /small HTTP/1.1\r\nHost: localhost\r\nX-Long: {flood}\r\n\r\n"),
        ),
        (
            431,
            format!("GET /small HTTP/1.1\r\nHost: localhost\r\n{lines}\r\n"),
        ),
        (
            400,
            format!("GET /small HTTP/1.1\r\nHost: localhost\r\nNot a field\r\n\r\n{flood}"),
        ),
    ] {
        let mut client = server.client();
        // All of it before anything is read, as a simple client does.
        let sent = client.try_send(request.as_bytes());
        assert!(
            sent.is_ok(),
            "{status}: the server cut the client off: {sent:?}"
        );
        let reply = client.reply();
        assert_eq!(reply.status, status);
        assert!(reply.says_close(), "{reply:?}");
        client.finish();
        client.expect_closed();
    }
    assert_eq!(server.client().get("/small").text(), "small");
}

fn framing_faults_are_refused_and_end_the_connection(driver: Driver) {
    let (server, _site) = serve(driver);
    for (status, request) in [
        (400, "GET /small HTTP/1.1\r\n\r\n"),
        (
            400,
            "GET /small HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n",
        ),
        (400, "GET /small HTTP/1.1\r\nHost : a\r\n\r\n"),
        (
            400,
            "GET /small HTTP/1.1\r\nHost: localhost\r\n folded\r\n\r\n",
        ),
        (400, "GET /small HTTP/1.1\nHost: localhost\n\n"),
        (400, "GET  /small HTTP/1.1\r\nHost: localhost\r\n\r\n"),
        (
            400,
            "POST /small HTTP/1.1\r\nHost: localhost\r\nContent-Length: +5\r\n\r\nhello",
        ),
        (
            400,
            "POST /small HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5, 6\r\n\r\nhello",
        ),
        (
            400,
            "POST / HTTP/1.1\r\nHost: localhost\r\n\
             Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
        ),
        (
            400,
            "POST /small HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked, gzip\r\n\r\n",
        ),
        (505, "GET /small HTTP/2.0\r\nHost: localhost\r\n\r\n"),
    ] {
        let mut client = server.client();
        client.send(request.as_bytes());
        let reply = client.reply();
        assert_eq!(reply.status, status, "{request:?}");
        assert!(reply.says_close(), "{request:?}: {reply:?}");
        client.finish();
        let (bytes, ending) = client.rest();
        assert!(bytes.is_empty() && ending == Ending::Closed, "{request:?}");
    }
}

fn lengths_are_refused_only_beyond_their_limit(driver: Driver) {
    let (server, _site) = serve(driver);
    let mut client = server.client();
    // RFC 9112, 3: "It is RECOMMENDED that all HTTP senders and recipients support, at a minimum,
    // request-line lengths of 8000 octets."
    let query = "q".repeat(8000 - "GET /small? HTTP/1.1".len());
    assert_eq!(client.get(&format!("/small?{query}")).status, 200);
    let value = "v".repeat(8000);
    assert_eq!(client.ask("/small", &[("X-Long", &value)]).status, 200);
    let names: Vec<String> = (0..60).map(|number| format!("X-{number}")).collect();
    let fields: Vec<_> = names.iter().map(|name| (name.as_str(), "v")).collect();
    assert_eq!(client.ask("/small", &fields).status, 200);
    // RFC 9112, 2.2: "a server that is expecting to receive and parse a request-line SHOULD ignore
    // at least one empty line (CRLF) received prior to the request-line."
    client.send([b"\r\n", request_bytes("GET", "/small", &[]).as_slice()].concat());
    assert_eq!(client.reply().status, 200);
    client.request("GET", "http://localhost/small", &[]);
    assert_eq!(
        client.reply().text(),
        "small",
        "the absolute form is the same request"
    );
}

fn old_clients_are_served_in_their_own_way(driver: Driver) {
    let (server, _site) = serve(driver);
    let mut client = server.client();
    client.send(b"GET /small HTTP/1.0\r\n\r\n");
    let reply = client.reply();
    assert_eq!((reply.status, reply.text()), (200, "small"));
    client.expect_closed();
    let mut client = server.client();
    client.send(b"GET /small HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    assert_eq!(client.reply().text(), "small");
}
