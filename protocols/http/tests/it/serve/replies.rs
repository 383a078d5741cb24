//! What comes back for one request.

use flatpath::DriverChoice;
use flatpath_http::{Body, Disposition, Head, Http, Reply, Request, Response, Route, Service};
use flatpath_testkit::Client;
use flatpath_testkit::logged::Logged;
use log::LevelFilter;

use crate::on_each_driver;
use crate::serve::{get, serve};

on_each_driver!(
    inline_pooled_and_routed_handlers_answer_alike,
    head_gets_the_head_of_get,
    old_clients_are_kept_when_they_ask,
    requests_one_byte_at_a_time_are_served,
    panicking_handlers_are_a_500_and_the_server_lives,
    a_half_closed_client_gets_its_replies,
    what_a_worker_sends_to_the_network_thread_arrives,
    large_heads_of_replies_are_sent_whole,
    faults_are_answered_and_end_the_connection,
    later_minor_versions_are_answered_as_1_1,
);

fn describe(request: &Request) -> Response {
    let text = format!(
        "{} {} {:?}",
        request.method(),
        request.uri(),
        request.headers().len()
    );
    http::Response::builder()
        .header("x-kind", "test")
        .body(text.into())
        .expect("a valid response")
}

fn inline_pooled_and_routed_handlers_answer_alike(choice: DriverChoice) {
    let routed = Http::routed(
        |head: &Head<'_>| {
            if head.path() == "/fast" {
                Route::Inline
            } else {
                Route::Pooled
            }
        },
        describe,
    );
    let inline = serve(choice, Http::inline(describe));
    let pooled = serve(choice, Http::pooled(describe));
    let routed = serve(choice, routed);
    for (_server, address) in [&inline, &pooled, &routed] {
        let mut client = Client::connect(*address);
        for path in ["/fast", "/slow?a=b", "/fast", "/fast", "/slow"] {
            let reply = client.get(path);
            assert_eq!(
                (reply.status, reply.text()),
                (200, format!("GET {path} 1").as_str())
            );
            assert_eq!(reply.field("x-kind"), Some("test"));
            assert_eq!(reply.field("connection"), None);
            assert!(
                reply
                    .field("date")
                    .is_some_and(|date| date.ends_with(" GMT"))
            );
        }
    }
}

fn head_gets_the_head_of_get(choice: DriverChoice) {
    for http in [
        serve(choice, Http::inline(describe)),
        serve(choice, Http::pooled(describe)),
    ] {
        let mut client = Client::connect(http.1);
        client.send("HEAD /a HTTP/1.1\r\nHost: h\r\n\r\n");
        let reply = client.reply_to_head();
        assert_eq!(
            (reply.status, reply.field("content-length")),
            (200, Some("9"))
        );
        assert_eq!(client.get("/b").text(), "GET /b 1", "no body lies between");
    }
}

fn old_clients_are_kept_when_they_ask(choice: DriverChoice) {
    let (_server, address) = serve(choice, Http::pooled(describe));
    let mut kept = Client::connect(address);
    for _ in 0..3 {
        let reply = kept.exchange("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
        assert_eq!(reply.field("connection"), Some("keep-alive"));
    }
    assert!(kept.exchange("GET / HTTP/1.0\r\n\r\n").says_close());
    assert_eq!(kept.rest().0, b"");
}

fn requests_one_byte_at_a_time_are_served(choice: DriverChoice) {
    let (_server, address) = serve(
        choice,
        Http::pooled(|request: Request| {
            Response::new(
                request
                    .body()
                    .pieces()
                    .flatten()
                    .copied()
                    .collect::<Vec<u8>>()
                    .into(),
            )
        }),
    );
    let mut client = Client::connect(address);
    let request = "\r\nPOST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n\
                   5;a=b\r\nhello\r\n1\r\n!\r\n0\r\nA: b\r\n\r\n";
    for _ in 0..2 {
        for byte in request.as_bytes() {
            client.send([*byte]);
        }
        assert_eq!(client.reply().text(), "hello!");
    }
}

fn panicking_handlers_are_a_500_and_the_server_lives(choice: DriverChoice) {
    let handler = |request: &Request| {
        assert!(
            !request.uri().path().starts_with("/panic"),
            "this handler panics on purpose"
        );
        describe(request)
    };
    let by_value = move |request: Request| handler(&request);
    let logged = Logged::begin(LevelFilter::Error);
    let servers = [
        serve(choice, Http::inline(handler)),
        serve(choice, Http::pooled(handler)),
        serve(choice, Http::inline(by_value)),
        serve(choice, Http::pooled(by_value)),
    ];
    for (number, (_server, address)) in servers.into_iter().enumerate() {
        // Of this test and server alone.
        let path = format!("/panic-{choice:?}-{number}");
        for _ in 0..3 {
            let mut client = Client::connect(address);
            assert_eq!(client.get("/").status, 200);
            let reply = client.get(&format!("{path}?secret"));
            assert_eq!(reply.status, 500);
            assert!(reply.says_close());
            assert_eq!(client.rest().0, b"");
        }
        let said = format!("the handler of GET {path} panicked; its client gets a 500");
        assert!(
            logged.count(|line| line == said) > 0,
            "it names the request"
        );
    }
}

fn later_minor_versions_are_answered_as_1_1(choice: DriverChoice) {
    for (_server, address) in [
        serve(choice, Http::inline(describe)),
        serve(choice, Http::pooled(describe)),
    ] {
        let mut client = Client::connect(address);
        for minor in [2, 9, 1] {
            client.send(format!("GET /{minor} HTTP/1.{minor}\r\nHost: h\r\n\r\n"));
            let reply = client.reply();
            assert!(reply.text().starts_with(&format!("GET /{minor} ")));
        }
    }
}

fn a_half_closed_client_gets_its_replies(choice: DriverChoice) {
    for (_server, address) in [
        serve(choice, Http::inline(describe)),
        serve(choice, Http::pooled(describe)),
    ] {
        let mut client = Client::connect(address);
        client.send(get("/1") + &get("/2"));
        client.finish();
        assert_eq!(client.reply().text(), "GET /1 1");
        assert_eq!(client.reply().text(), "GET /2 1");
        assert_eq!(client.rest().0, b"");
    }
    let (_server, address) = serve(choice, Http::pooled(describe));
    let mut client = Client::connect(address);
    client.send(get("/1") + "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\nshort");
    client.finish();
    assert_eq!(client.reply().text(), "GET /1 1");
    assert_eq!(client.rest().0, b"", "what was not finished is not served");
}

/// Counts what its workers send home.
struct Counter;

#[derive(Clone)]
struct Note(u64);

impl Service for Counter {
    type ThreadState = u64;

    fn thread_state(&self) -> u64 {
        0
    }

    fn inline(
        &self,
        thread: &mut u64,
        _: flatpath::Turn,
        head: &Head<'_>,
        reply: &mut Reply<'_>,
    ) -> Disposition<'_> {
        match head.path() {
            "/count" => reply.response(Response::new(thread.to_string().into())),
            _ => Disposition::Pooled,
        }
    }

    fn pooled(&self, _: &mut Request, _: &mut flatpath::WorkerScope<'_>) -> Response {
        let mut response = Response::new(Body::Empty);
        response.extensions_mut().insert(Note(7));
        response
    }

    fn response_ready(&self, thread: &mut u64, _: flatpath::Turn, note: &mut http::Extensions) {
        *thread += note.get::<Note>().map_or(0, |note| note.0);
    }
}

fn what_a_worker_sends_to_the_network_thread_arrives(choice: DriverChoice) {
    let (_server, address) = serve(choice, Http::service(Counter));
    let mut client = Client::connect(address);
    for count in 0..4 {
        assert_eq!(client.get("/count").text(), (7 * count).to_string());
        assert_eq!(client.get("/work").status, 200);
    }
}

fn large_heads_of_replies_are_sent_whole(choice: DriverChoice) {
    let value = |request: &Request| "v".repeat(request.uri().path()[1..].parse().unwrap_or(0));
    let handler = move |request: &Request| {
        let headers = http::Response::builder().header("x-large", value(request));
        headers.body("body".into()).expect("a valid response")
    };
    for (_server, address) in [
        serve(choice, Http::inline(handler)),
        serve(choice, Http::pooled(handler)),
    ] {
        let mut client = Client::connect(address);
        for bytes in [1, 3000, 3900, 4000, 4096, 20_000, 60_000] {
            let reply = client.get(&format!("/{bytes}"));
            assert_eq!(reply.field("x-large").map(str::len), Some(bytes));
            assert_eq!(reply.text(), "body");
        }
    }
    let (_server, address) = serve(choice, Http::pooled(handler));
    assert_eq!(
        Client::connect(address).get("/70000").status,
        500,
        "longer than any head may be"
    );
}

fn faults_are_answered_and_end_the_connection(choice: DriverChoice) {
    let (_server, address) = serve(choice, Http::inline(describe));
    let long = format!("GET /{} HTTP/1.1\r\nHost: h\r\n\r\n", "a".repeat(9000));
    let headers = format!(
        "GET / HTTP/1.1\r\nHost: h\r\n{}\r\n",
        "A: b\r\n".repeat(200)
    );
    let cases = [
        ("GET / HTTP/1.1\r\n\r\n", 400),
        ("\x16\x03\x01", 400),
        ("GET / HTTP/2.0\r\nHost: h\r\n\r\n", 505),
        ("CONNECT h:1 HTTP/1.1\r\nHost: h\r\n\r\n", 501),
        (
            "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
            501,
        ),
        (
            "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n+5\r\nhello",
            400,
        ),
        (
            "POST / HTTP/1.1\r\nHost: h\r\nExpect: miracles\r\n\r\n",
            417,
        ),
        (&long, 414),
        (&headers, 431),
    ];
    for (request, status) in cases {
        let mut client = Client::connect(address);
        client.send(request);
        let reply = client.reply();
        assert_eq!(reply.status, status, "{request:.80}");
        assert!(reply.says_close() && !reply.body.is_empty());
        let _ = client.try_send(get("/ignored"));
        client.finish();
        assert_eq!(client.rest().0, b"", "nothing after a fault is answered");
    }
}
