//! One reply for both versions of HTTP: a table of replies, each of which is asked for over HTTP/1
//! and over HTTP/2, by GET and by HEAD. Status, fields and body are the same, and are what the
//! table says; only HTTP/1 gets the fields of its connection.

use flatpath::{DriverChoice, Turn, WorkerScope};
use flatpath_http::http::header::{HeaderMap, HeaderName, HeaderValue};
use flatpath_http::http::{Response as Parts, StatusCode};
use flatpath_http::testing::{Blocks, put_block};
use flatpath_http::{
    Body, Deferred, Disposition, Head, Hosts, Http, IntoResponse, Place, Plan, PrebuiltHead, Reply,
    Request, Response, Service,
};
use flatpath_testkit::Client;
use flatpath_testkit::reply::Asked;

use crate::h2_frames::{CONTINUATION, DATA, END_HEADERS, END_STREAM, HEADERS, frame, greeting};
use crate::on_each_driver;
use crate::serve::serve;

on_each_driver!(a_reply_is_the_same_over_both_versions);

/// What is too long to be copied after a head.
const LONG_BYTES: usize = 20_000;

/// A reply: the path, which says place and kind; status, fields but the date, and body.
type Case = (
    &'static str,
    u16,
    &'static [(&'static str, &'static str)],
    &'static str,
);

const CASES: &[Case] = &[
    (
        "/inline/text",
        200,
        &[("x-kind", "text"), LENGTH_5],
        "hello",
    ),
    (
        "/worker/text",
        200,
        &[("x-kind", "text"), LENGTH_5],
        "hello",
    ),
    ("/inline/static", 200, &[PLAIN, LENGTH_5], "hello"),
    ("/worker/static", 200, &[PLAIN, LENGTH_5], "hello"),
    ("/inline/empty", 200, &[LENGTH_0], ""),
    ("/worker/empty", 200, &[LENGTH_0], ""),
    ("/inline/long", 200, &[("content-length", "20000")], "long"),
    ("/worker/long", 200, &[("content-length", "20000")], "long"),
    ("/inline/204", 204, &[], ""),
    ("/worker/204", 204, &[], ""),
    ("/inline/205", 205, &[LENGTH_0], ""),
    ("/worker/205", 205, &[LENGTH_0], ""),
    ("/inline/304", 304, &[("etag", "\"x\"")], ""),
    ("/worker/304", 304, &[("etag", "\"x\"")], ""),
    ("/inline/304-length", 304, &[("content-length", "7")], ""),
    ("/worker/304-length", 304, &[("content-length", "7")], ""),
    ("/inline/599", 599, &[LENGTH_5], "hello"),
    ("/worker/599", 599, &[LENGTH_5], "hello"),
    ("/inline/103", 500, &[LENGTH_5], "hello"),
    ("/worker/103", 500, &[LENGTH_5], "hello"),
    ("/inline/fields", 200, OWN_FIELDS, "hello"),
    ("/worker/fields", 200, OWN_FIELDS, "hello"),
    (
        "/inline/wide",
        200,
        &[("x-wide", "wide"), LENGTH_5],
        "hello",
    ),
    (
        "/worker/wide",
        200,
        &[("x-wide", "wide"), LENGTH_5],
        "hello",
    ),
    ("/inline/read", 200, &[LENGTH_5], "hello"),
    ("/worker/read", 200, &[LENGTH_5], "hello"),
    ("/inline/read-on", 200, &[], "hello"),
    ("/worker/read-on", 200, &[], "hello"),
    ("/inline/fed", 200, &[], "hello"),
    ("/worker/fed", 200, &[], "hello"),
    ("/inline/deferred", 200, &[PLAIN, LENGTH_5], "hello"),
    ("/worker/deferred", 200, &[PLAIN, LENGTH_5], "hello"),
    ("/inline/panic", 500, &[LENGTH_0], ""),
    ("/worker/panic", 500, &[("content-length", "34")], FAILED),
    ("/worker/too-wide", 500, &[("content-length", "34")], FAILED),
    ("/inline/unanswered", 500, &[LENGTH_0], ""),
    (
        "/inline/prebuilt",
        200,
        &[("etag", "\"y\""), ("vary", "a"), LENGTH_5],
        "hello",
    ),
    (
        "/inline/prebuilt-long",
        200,
        &[
            ("etag", "\"y\""),
            ("vary", "a"),
            ("content-length", "20000"),
        ],
        "long",
    ),
    (
        "/inline/prebuilt-304",
        304,
        &[("etag", "\"y\""), ("vary", "a")],
        "",
    ),
    ("/inline/amended-prebuilt", 200, AMENDED, "hello"),
    ("/inline/amended-text", 200, AMENDED, "hello"),
    (
        "/other",
        421,
        &[PLAIN, ("content-length", "43")],
        "This server does not answer for this host.\n",
    ),
];

const PLAIN: (&str, &str) = ("content-type", "text/plain; charset=utf-8");
const LENGTH_0: (&str, &str) = ("content-length", "0");
const LENGTH_5: (&str, &str) = ("content-length", "5");
const FAILED: &str = "The request could not be handled.\n";

const OWN_FIELDS: &[(&str, &str)] = &[
    ("a-name-that-is-longer-than-those-of-the-table", "x"),
    ("set-cookie", "a=b"),
    ("set-cookie", "c=d"),
    ("x-empty", ""),
    (
        "www-authenticate",
        "Basic realm=\"there are more than eight\"",
    ),
    LENGTH_5,
];

/// The first of two layers has the last word.
const AMENDED: &[(&str, &str)] = &[
    ("etag", "\"first\""),
    ("vary", "a"),
    ("vary", "b"),
    ("x-second", "2"),
    LENGTH_5,
];

/// Makes the reply of each path.
struct Kinds(PrebuiltHead);

fn map(headers: &[(&'static str, &'static str)]) -> HeaderMap {
    let pair = |(name, value): &(&'static str, &'static str)| {
        let name = HeaderName::from_static(name);
        (name, HeaderValue::from_static(value))
    };
    headers.iter().map(pair).collect()
}

fn with(status: u16, headers: &HeaderMap, body: impl Into<Body>) -> Response {
    let mut response = Parts::new(body.into());
    *response.status_mut() = StatusCode::from_u16(status).expect("a status");
    *response.headers_mut() = headers.clone();
    response
}

/// The value or the body that a word stands for.
fn spelled(word: &str) -> String {
    match word {
        "long" | "wide" => "v".repeat(LONG_BYTES),
        word => word.to_owned(),
    }
}

fn response(path: &str) -> Response {
    let kind = path.rsplit('/').next().expect("a kind");
    let status = kind.parse().unwrap_or(200);
    match kind {
        "text" => with(200, &map(&[("x-kind", "text")]), "hello".to_owned()),
        "static" => "hello".into_response(),
        "empty" => with(200, &map(&[]), ()),
        "long" => with(200, &map(&[]), spelled("long")),
        "304" => with(304, &map(&[("etag", "\"x\"")]), "hello"),
        "304-length" => with(304, &map(&[("content-length", "7")]), ()),
        "fields" => {
            let framing = [
                ("content-length", "99"),
                ("transfer-encoding", "gzip"),
                ("connection", "x"),
                ("keep-alive", "x"),
                ("proxy-connection", "x"),
                ("upgrade", "x"),
                ("trailer", "x"),
                ("date", "never"),
            ];
            let own = OWN_FIELDS.split_last().expect("the length is the last").1;
            let mut headers = map(own);
            headers.extend(map(&framing));
            with(200, &headers, "hello")
        }
        "wide" => {
            let value = HeaderValue::try_from(spelled("wide")).expect("a value");
            let name = HeaderName::from_static("x-wide");
            with(200, &HeaderMap::from_iter([(name, value)]), "hello")
        }
        "too-wide" => {
            let value = HeaderValue::try_from("v".repeat(100_000)).expect("a value");
            let name = HeaderName::from_static("x-wide");
            with(200, &HeaderMap::from_iter([(name, value)]), "hello")
        }
        "read" => with(200, &map(&[]), Body::reader(&b"hello"[..], Some(5))),
        "read-on" => with(200, &map(&[]), Body::reader(&b"hello"[..], None)),
        "fed" => {
            let (sender, body) = Body::channel(100);
            sender.send("hello").expect("there is room");
            with(200, &map(&[]), body)
        }
        "deferred" => {
            let (responder, deferred) = Deferred::new();
            std::thread::spawn(move || {
                let _ = responder.send("hello");
            });
            deferred.into_response()
        }
        "panic" => panic!("as asked"),
        _ => with(status, &map(&[]), "hello"),
    }
}

impl Service for Kinds {
    type ThreadState = ();

    fn thread_state(&self) {}

    fn plan(&self, head: &Head<'_>) -> Plan<'_> {
        let place = match head.path().starts_with("/worker") {
            true => Place::Worker,
            false => Place::Inline,
        };
        Plan {
            place,
            ..Plan::default()
        }
    }

    fn inline(
        &self,
        (): &mut (),
        _: Turn,
        head: &Head<'_>,
        reply: &mut Reply<'_>,
    ) -> Disposition<'_> {
        let amend = |reply: &mut Reply<'_>| {
            reply.amend(&map(&[("etag", "\"first\""), ("vary", "b")]));
            reply.amend(&map(&[
                ("etag", "\"second\""),
                ("x-second", "2"),
                ("vary", "A"),
            ]));
        };
        let hello = "hello".into();
        match head.path().trim_start_matches("/inline/") {
            "unanswered" => Disposition::Answered,
            "prebuilt" => reply.prebuilt(&self.0, &hello),
            "prebuilt-304" => {
                let status = StatusCode::NOT_MODIFIED;
                let head = self.0.amended(status, &HeaderMap::new(), None);
                reply.prebuilt(&head, &"".into())
            }
            "prebuilt-long" => {
                let (status, length) = (StatusCode::OK, LONG_BYTES as u64);
                let head = self.0.amended(status, &HeaderMap::new(), Some(length));
                reply.prebuilt(&head, &spelled("long").into())
            }
            "amended-prebuilt" => {
                amend(reply);
                reply.prebuilt(&self.0, &hello)
            }
            "amended-text" => {
                amend(reply);
                let headers = map(&[("etag", "\"y\""), ("vary", "a")]);
                reply.response(with(200, &headers, "hello"))
            }
            _ => reply.response(response(head.path())),
        }
    }

    fn pooled(&self, request: &mut Request, _: &mut WorkerScope<'_>) -> Response {
        response(request.uri().path())
    }
}

/// What a client gets: the status, the fields in an order, and the body.
type Got = (u16, Vec<(String, String)>, String);

fn host_of(path: &str) -> &'static str {
    match path {
        "/other" => "other",
        _ => "h",
    }
}

/// Fields that mean something to a connection of HTTP/1 alone.
const OF_CONNECTION: [&str; 5] = [
    "connection",
    "keep-alive",
    "proxy-connection",
    "transfer-encoding",
    "upgrade",
];

fn over_http1(client: &mut Client, method: &str, path: &str) -> Got {
    let host = host_of(path);
    client.send(format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\n\r\n"));
    let asked = match method {
        "HEAD" => Asked::Head,
        _ => Asked::Any,
    };
    let reply = client.try_reply(asked).expect("a reply");
    let fields = reply.fields.into_iter();
    let mut fields: Vec<_> = fields
        .map(|(name, value)| (name.to_ascii_lowercase(), value))
        .filter(|(name, _)| !OF_CONNECTION.contains(&name.as_str()))
        .collect();
    fields.sort();
    let body = String::from_utf8(reply.body).expect("text");
    (reply.status, fields, body)
}

fn over_http2(client: &mut Client, method: &str, path: &str) -> Got {
    let fields = [
        (":method", method),
        (":scheme", "http"),
        (":authority", host_of(path)),
        (":path", path),
    ];
    let fields = fields.iter();
    let block = put_block(fields.map(|(name, value)| (name.as_bytes(), value.as_bytes())));
    let asked = frame(HEADERS, END_HEADERS | END_STREAM, 1, &block);
    client.send([greeting(), asked].concat());
    let (mut block, mut body) = (Vec::new(), Vec::new());
    let (mut has_head, mut is_over) = (false, false);
    while !(has_head && is_over) {
        let head = client.exactly(9);
        let bytes = usize::from(head[1]) << 8 | usize::from(head[2]);
        let payload = client.exactly(bytes);
        if head[8] != 1 {
            continue;
        }
        match head[3] {
            HEADERS | CONTINUATION => {
                block.extend(payload);
                has_head = head[4] & END_HEADERS != 0;
            }
            DATA => {
                assert_ne!(method, "HEAD", "{path}: its reply has no body");
                body.extend(payload);
            }
            kind => panic!("{method} {path}: a frame of the kind {kind}"),
        }
        is_over |= head[3] != CONTINUATION && head[4] & END_STREAM != 0;
    }
    let text = |bytes| String::from_utf8(bytes).expect("text");
    let fields = Blocks::default().fields(&block).expect("a block");
    let fields = fields.into_iter();
    let mut fields: Vec<_> = fields
        .map(|(name, value)| (text(name), text(value)))
        .collect();
    let (name, status) = fields.remove(0);
    assert_eq!(name, ":status");
    fields.sort();
    (status.parse().expect("a number"), fields, text(body))
}

fn a_reply_is_the_same_over_both_versions(choice: DriverChoice) {
    let headers = map(&[("etag", "\"y\""), ("vary", "a")]);
    let kinds = Kinds(PrebuiltHead::new(StatusCode::OK, &headers, Some(5)));
    let http = Http::service(kinds).hosts(Hosts::local().and(["h".parse().expect("a host")]));
    let (_server, address) = serve(choice, http);
    let mut wrong = String::new();
    for (path, status, fields, body) in CASES {
        let own = fields.iter();
        let mut fields: Vec<_> = own
            .map(|(name, value)| ((*name).to_owned(), spelled(value)))
            .collect();
        fields.sort();
        for method in ["GET", "HEAD"] {
            let body = match method {
                "HEAD" => String::new(),
                _ => spelled(body),
            };
            let expected = (*status, fields.clone(), body);
            for ask in [over_http1, over_http2] {
                let mut got = ask(&mut Client::connect(address), method, path);
                let dates = got.1.extract_if(.., |(name, _)| name == "date");
                let dates: Vec<_> = dates.map(|(_, value)| value).collect();
                let is_dated = matches!(&dates[..], [date] if date.ends_with(" GMT"));
                if got != expected || !is_dated {
                    let shown = format!("{dates:?} {got:?}");
                    wrong += &format!("{method} {path}: {shown:.300}\n");
                }
            }
        }
    }
    assert_eq!(wrong, "");
}
