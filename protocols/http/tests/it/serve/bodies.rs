//! Requests with bodies: framing, limits, `100 Continue`, answers that do not wait for them.

use std::sync::Arc;

use flatpath::DriverChoice;
use flatpath_http::{Body, Disposition, Head, Http, Limits, Reply, Request, Response, Service};
use flatpath_testkit::Client;
use http::{HeaderValue, StatusCode};

use crate::on_each_driver;
use crate::serve::{Door, get, post, serve};

on_each_driver!(
    bodies_arrive_whole_whatever_their_framing_and_size,
    bodies_that_are_too_long_are_refused_and_the_answer_is_read,
    continue_is_sent_when_the_body_will_be_read,
    continue_waits_for_the_replies_before_it,
    a_body_that_is_on_its_way_needs_no_continue,
    an_early_answer_skips_a_short_body_and_ends_at_a_long_one,
);

fn echo(request: &Request) -> Response {
    Response::new(
        request
            .body()
            .pieces()
            .flatten()
            .copied()
            .collect::<Vec<u8>>()
            .into(),
    )
}

fn chunked(path: &str, body: &str, size: usize) -> String {
    let mut request =
        format!("POST {path} HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n");
    for chunk in body.as_bytes().chunks(size) {
        request += &format!(
            "{:x}\r\n{}\r\n",
            chunk.len(),
            String::from_utf8_lossy(chunk)
        );
    }
    request + "0\r\n\r\n"
}

fn pattern(bytes: usize) -> String {
    (0..bytes)
        .map(|at| char::from(b'a' + u8::try_from(at * 7 % 25).expect("a letter")))
        .collect()
}

fn bodies_arrive_whole_whatever_their_framing_and_size(choice: DriverChoice) {
    let limits = Limits {
        body_bytes_max: 1 << 20,
        ..Limits::default()
    };
    let inline = serve(choice, Http::inline(echo).limits(limits.clone()));
    let pooled = serve(choice, Http::pooled(echo).limits(limits));
    for (_server, address) in [&inline, &pooled] {
        let mut client = Client::connect(*address);
        for bytes in [0, 1, 100, 4096, 4097, 16_384, 70_000, 300_000, 1 << 20] {
            let body = pattern(bytes);
            let mut sender = client.twin();
            for request in [post("/", &body), chunked("/", &body, 10_000)] {
                std::thread::scope(|scope| {
                    scope.spawn(|| sender.send(&request));
                    assert!(client.reply().body == body.as_bytes(), "{bytes} bytes");
                });
            }
        }
        client.send(chunked("/", "many small chunks", 1) + &get("/"));
        assert_eq!(client.reply().text(), "many small chunks");
        assert_eq!(client.reply().text(), "");
    }
}

fn bodies_that_are_too_long_are_refused_and_the_answer_is_read(choice: DriverChoice) {
    let limits = Limits {
        body_bytes_max: 1000,
        ..Limits::default()
    };
    let (_server, address) = serve(choice, Http::pooled(echo).limits(limits));
    assert_eq!(
        Client::connect(address)
            .exchange(post("/", &pattern(1000)))
            .status,
        200
    );
    assert_eq!(
        Client::connect(address)
            .exchange(chunked("/", &pattern(1000), 99))
            .status,
        200
    );
    let too_long = pattern(2_000_000);
    for request in [
        post("/", &too_long),
        chunked("/", &too_long, 100),
        chunked("/", &too_long, 5000),
    ] {
        let mut client = Client::connect(address);
        let mut sender = client.twin();
        std::thread::scope(|scope| {
            scope.spawn(|| sender.try_send(&request));
            let reply = client.reply();
            assert_eq!(reply.status, 413);
            assert!(reply.says_close());
            client.finish();
        });
    }
}

const EXPECTING: &str =
    "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n";

fn continue_is_sent_when_the_body_will_be_read(choice: DriverChoice) {
    let limits = Limits {
        body_bytes_max: 5,
        ..Limits::default()
    };
    let (_server, address) = serve(choice, Http::pooled(echo).limits(limits));
    let mut client = Client::connect(address);
    for _ in 0..2 {
        client.send(EXPECTING);
        assert_eq!(client.reply_to_head().status, 100);
        client.send("hello");
        assert_eq!(client.reply().text(), "hello");
    }
    client.send(EXPECTING.replace(": 5", ": 6"));
    assert_eq!(client.reply().status, 413, "the body would not be read");
}

fn continue_waits_for_the_replies_before_it(choice: DriverChoice) {
    let door = Arc::new(Door::default());
    let guard = Arc::clone(&door);
    let handler = move |request: &Request| {
        if request.uri().path() == "/door" {
            guard.pass();
        }
        echo(request)
    };
    let (_server, address) = serve(choice, Http::pooled(handler));
    let mut client = Client::connect(address);
    client.send(get("/door") + EXPECTING);
    door.until_waited(1);
    door.open();
    assert_eq!(
        client.reply_to_head().status,
        200,
        "a 100 before it would be taken for its own"
    );
    assert_eq!(client.reply_to_head().status, 100);
    client.send("hello");
    assert_eq!(client.reply().text(), "hello");
}

fn a_body_that_is_on_its_way_needs_no_continue(choice: DriverChoice) {
    let (_server, address) = serve(choice, Http::pooled(echo));
    let mut client = Client::connect(address);
    client.send(EXPECTING.to_owned() + "hello" + &get("/"));
    assert_eq!(client.reply().text(), "hello");
    assert_eq!(client.reply().text(), "");
}

/// Takes nothing but GET.
struct ReadOnly;

impl Service for ReadOnly {
    type ThreadState = ();

    fn thread_state(&self) {}

    fn inline(
        &self,
        _: &mut (),
        _: flatpath::Turn,
        head: &Head<'_>,
        reply: &mut Reply<'_>,
    ) -> Disposition<'_> {
        let mut response = Response::new("fine".into());
        if !head.is_get() {
            *response.body_mut() = Body::Empty;
            *response.status_mut() = StatusCode::METHOD_NOT_ALLOWED;
            let get = HeaderValue::from_static("GET");
            response.headers_mut().insert("allow", get);
        }
        reply.response(response)
    }

    fn pooled(&self, _: &mut Request, _: &mut flatpath::WorkerScope<'_>) -> Response {
        Response::default()
    }
}

fn an_early_answer_skips_a_short_body_and_ends_at_a_long_one(choice: DriverChoice) {
    let (_server, address) = serve(choice, Http::service(ReadOnly));
    let mut client = Client::connect(address);
    for _ in 0..2 {
        client.send(post("/", &pattern(20_000)) + &get("/"));
        let reply = client.reply();
        assert_eq!((reply.status, reply.field("allow")), (405, Some("GET")));
        assert!(!reply.says_close());
        assert_eq!(client.reply().text(), "fine");
    }
    for request in [
        post("/", &pattern(200_000)),
        chunked("/", "hello", 5),
        EXPECTING.to_owned(),
    ] {
        let mut client = Client::connect(address);
        let mut sender = client.twin();
        std::thread::scope(|scope| {
            scope.spawn(|| sender.try_send(&request));
            let reply = client.reply();
            assert!(reply.status == 405 && reply.says_close());
            client.finish();
        });
        assert_eq!(client.rest().0, b"");
    }
}
