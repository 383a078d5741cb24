//! What layers get to see, and services below a prefix, as clients see them, in the simulation.

use std::panic::panic_any;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use flatpath_http::flatpath::blocking::{BlockingLimit, Entry, Permit, WaitLimits};
use flatpath_http::http::{Extensions, StatusCode};
use flatpath_http::{
    Answer, BodyPlan, Disposition, Head, Http, IntoResponse, Layer, MatchedPath, Mount, Next,
    Parameters, Payload, Place, Plan, Reply, Request, Response, Router, Service, Sink, Turn,
    Upload, UploadDecision, WorkerScope, routing,
};
use flatpath_test::{Conditions, TestServer, each_seed};

/// The reply to one request, the last of its connection.
pub(crate) fn reply_to(server: &mut TestServer, line: &str, body: &str) -> String {
    let client = server.connect();
    let length = body.len();
    let head = format!("{line} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n");
    client.write(format!("{head}Content-Length: {length}\r\n\r\n{body}").as_bytes());
    String::from_utf8(server.read_to_end(&client)).expect("ASCII")
}

pub(crate) fn status(reply: &str) -> &str {
    reply.split(' ').nth(1).unwrap_or(reply)
}

/// Counts its calls and the responses that it sees, and marks these with their route and status.
#[derive(Clone, Default)]
struct Seen {
    calls: Arc<AtomicUsize>,
    responses: Arc<AtomicUsize>,
}

impl Layer for Seen {
    fn call(&self, request: Request, next: &Next<'_>) -> Answer {
        self.calls.fetch_add(1, Ordering::Relaxed);
        let route = MatchedPath::of(&request).map_or("-", MatchedPath::as_str);
        let (route, responses) = (route.to_owned(), Arc::clone(&self.responses));
        next.run(request).map(move |response: Response| {
            responses.fetch_add(1, Ordering::Relaxed);
            let seen = format!("{} {route}", response.status().as_u16());
            ([("x-seen", seen)], response)
        })
    }
}

/// Fails where its body says so.
struct Count(usize);

impl Sink for Count {
    fn write(&mut self, piece: &mut Payload, _: &mut WorkerScope<'_>) -> Result<(), Box<Response>> {
        let bytes: Vec<u8> = piece
            .parts()
            .flat_map(|part| part.bytes().to_vec())
            .collect();
        self.0 += bytes.len();
        match bytes.last() {
            Some(b'!') => Err(Box::new(StatusCode::CONFLICT.into_response())),
            Some(b'?') => panic_any("the sink panics on purpose"),
            _ => Ok(()),
        }
    }

    fn finish(self: Box<Self>, _: &mut WorkerScope<'_>) -> Response {
        match self.0 {
            13 => panic_any("the sink panics on purpose"),
            bytes => bytes.to_string().into_response(),
        }
    }
}

#[test]
fn sim_a_layer_sees_the_response_to_every_request() {
    let upload = || Upload::new(Count(0));
    let guarded = || Err::<Upload, _>(StatusCode::UNAUTHORIZED);
    let fails = || -> &'static str { panic_any("the handler panics on purpose") };
    each_seed(10, |seed| {
        let seen = Seen::default();
        let router = Router::new()
            .get("/a", || "a")
            .get("/text/{id}", |parameters: Parameters| {
                format!("{parameters:?}")
            })
            .post("/text", |text: String| text)
            .get("/fails", fails)
            .route("/inline", routing::get(|| "inline").inline())
            .route("/inline-fails", routing::get(fails).inline())
            .route("/short", routing::put(upload).body_bytes_max(4).streamed())
            .route("/upload", routing::put(upload).streamed())
            .route("/guarded", routing::put(guarded).streamed())
            .put("/whole", upload)
            .layer(seen.clone());
        let mut server = TestServer::new(Conditions::rough(seed), Http::service(router));
        let asked = [
            ("GET /a", "", "200 /a"),
            ("POST /a", "", "405 /a"),
            ("OPTIONS /a", "", "204 /a"),
            ("OPTIONS *", "", "204 -"),
            ("GET /none", "", "404 -"),
            ("GET /text/7", "", "200 /text/{id}"),
            ("GET /text/%ff", "", "400 /text/{id}"),
            ("POST /text", "a text", "200 /text"),
            ("POST /text", "\u{0}", "200 /text"),
            ("GET /fails", "", "500 /fails"),
            ("GET /inline", "", "200 /inline"),
            ("GET /inline-fails", "", "500 /inline-fails"),
            ("PUT /short", "four", "200 /short"),
            ("PUT /short", "fives", "413 /short"),
            ("PUT /upload", "", "200 /upload"),
            ("PUT /upload", "a body", "200 /upload"),
            ("PUT /upload", "a body!", "409 /upload"),
            ("PUT /upload", "a body?", "500 /upload"),
            ("PUT /upload", "thirteen byte", "500 /upload"),
            ("PUT /guarded", "a body", "401 /guarded"),
            ("PUT /whole", "a body", "500 /whole"),
        ];
        for (line, body, mark) in asked {
            let reply = reply_to(&mut server, line, body);
            assert_eq!(status(&reply), &mark[..3], "seed {seed}: {line}: {reply}");
            let header = format!("X-Seen: {mark}\r\n");
            assert!(
                reply.contains(&header),
                "seed {seed}: {line} {body}: {reply}"
            );
        }
        assert_eq!(seen.calls.load(Ordering::Relaxed), asked.len());
        assert_eq!(seen.responses.load(Ordering::Relaxed), asked.len());
    });
}

#[test]
fn sim_a_chunked_upload_that_is_too_long_is_seen_too() {
    let router = Router::new()
        .route(
            "/short",
            routing::put(|| Upload::new(Count(0)))
                .body_bytes_max(4)
                .streamed(),
        )
        .layer(Seen::default());
    let mut server = TestServer::new(Conditions::rough(3), Http::service(router));
    let client = server.connect();
    client.write(
        b"PUT /short HTTP/1.1\r\nHost: h\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n\
          5\r\n12345\r\n0\r\n\r\n",
    );
    let reply = String::from_utf8(server.read_to_end(&client)).expect("ASCII");
    assert_eq!(status(&reply), "413", "{reply}");
    assert!(reply.contains("X-Seen: 413 /short\r\n"), "{reply}");
}

#[test]
fn layers_run_from_the_last_to_the_first_and_back() {
    let marks = |name: &'static str| {
        move |request: Request, next: &Next<'_>| -> Answer {
            next.run(request).map(move |mut response: Response| {
                let mark = name.parse().expect("a value");
                response.headers_mut().append("x-order", mark);
                response
            })
        }
    };
    let router = Router::new()
        .route("/", routing::get(|| "a").layer(marks("route")).post(|| "b"))
        .layer(marks("first"))
        .layer(marks("last"));
    let mut server = TestServer::new(Conditions::calm(1), Http::service(router));
    let mut order = |line: &str| {
        let reply = reply_to(&mut server, line, "");
        let marks = reply
            .lines()
            .filter_map(|line| line.strip_prefix("X-Order: "));
        marks.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(order("GET /"), ["route", "first", "last"]);
    assert_eq!(order("POST /"), ["first", "last"]);
}

#[test]
fn a_layer_may_refuse_or_ask_twice() {
    let refuses = |request: Request, next: &Next<'_>| -> Result<Answer, StatusCode> {
        match request.uri().query() {
            Some("no") => Err(StatusCode::FORBIDDEN),
            _ => Ok(next.run(request)),
        }
    };
    let again = |request: Request, next: &Next<'_>| -> Answer {
        let method = request.method().clone();
        let uri = request.uri().clone();
        let answer = next.run(request);
        let is_failed = answer
            .response()
            .is_some_and(|response| response.status() == 500);
        if !is_failed {
            return answer;
        }
        let mut request = Request::default();
        (*request.method_mut(), *request.uri_mut()) = (method, uri);
        next.run(request)
    };
    let calls = AtomicUsize::new(0);
    let sometimes = move || match calls.fetch_add(1, Ordering::Relaxed) {
        0 => Err(StatusCode::INTERNAL_SERVER_ERROR),
        _ => Ok("at last"),
    };
    let router = Router::new()
        .get("/", sometimes)
        .layer(again)
        .layer(refuses);
    let mut server = TestServer::new(Conditions::calm(1), Http::service(router));
    assert_eq!(status(&reply_to(&mut server, "GET /?no", "")), "403");
    let reply = reply_to(&mut server, "GET /", "");
    assert!(reply.ends_with("\r\n\r\nat last"), "{reply}");
}

/// A limit, of which those who enter keep their places until the test takes them away.
#[derive(Clone)]
pub(crate) struct Places {
    pub(crate) limit: BlockingLimit,
    kept: Arc<Mutex<Vec<Permit>>>,
}

impl Places {
    pub(crate) fn new() -> Self {
        let limits = WaitLimits {
            waiting_max: 100,
            stuck_after: Duration::from_secs(3600),
        };
        let limit = BlockingLimit::new("the limit of a test", limits);
        let kept = Arc::default();
        Self { limit, kept }
    }

    /// Whether the job goes on; what it answers otherwise is dropped.
    fn enter(&self, scope: &mut WorkerScope<'_>) -> bool {
        match self.limit.enter(scope) {
            Entry::Entered(permit) => self.kept.lock().expect("no panic").push(permit),
            Entry::Parked => return false,
            Entry::Refused => panic!("the limit is never stuck"),
        }
        true
    }

    /// Takes their places away from all who have one.
    pub(crate) fn make_room(&self) {
        self.kept.lock().expect("no panic").clear();
    }

    /// Sends requests until one waits for its turn, then makes room: the replies to all of them.
    fn replies(&self, server: &mut TestServer, request: &str) -> Vec<String> {
        let mut clients = Vec::new();
        while self.limit.figures().waiting == 0 {
            let client = server.connect();
            client.write(request.as_bytes());
            clients.push(client);
            let inside = self.limit.figures().inside;
            server.run_until(|| {
                let figures = self.limit.figures();
                figures.waiting > 0 || figures.inside > inside
            });
        }
        self.make_room();
        let read = |client| String::from_utf8(server.read_to_end(client)).expect("ASCII");
        clients.iter().map(read).collect()
    }
}

/// Tells what it gets, wherever it runs; keeps count in its thread state.
pub(crate) struct Teller {
    name: &'static str,
    places: Option<Places>,
}

/// A note from a worker.
#[derive(Clone)]
struct Told;

impl Teller {
    pub(crate) fn new(name: &'static str) -> Self {
        Self { name, places: None }
    }

    /// The same, where each request of a worker needs a place.
    pub(crate) fn within(name: &'static str, places: &Places) -> Self {
        let places = Some(places.clone());
        Self { name, places }
    }

    fn tell(&self, place: &str, prefix: &str, path: &str) -> Response {
        format!("{} {place} [{prefix}] {path}\n", self.name).into_response()
    }
}

impl Service for Teller {
    /// Notes that have come back.
    type ThreadState = usize;

    fn thread_state(&self) -> usize {
        0
    }

    fn plan(&self, head: &Head<'_>) -> Plan<'_> {
        Plan {
            place: match head.path() {
                "/inline" | "/notes" => Place::Inline,
                _ => Place::Worker,
            },
            body: match head.path() {
                "/upload" => BodyPlan::Streamed,
                _ => BodyPlan::default(),
            },
            ..Plan::default()
        }
    }

    fn inline(
        &self,
        thread: &mut usize,
        _: Turn,
        head: &Head<'_>,
        reply: &mut Reply<'_>,
    ) -> Disposition<'_> {
        match head.path() {
            "/notes" => reply.response(format!("{thread} notes\n").into_response()),
            _ => reply.response(self.tell("inline", "?", head.target())),
        }
    }

    fn pooled(&self, request: &mut Request, scope: &mut WorkerScope<'_>) -> Response {
        if self
            .places
            .as_ref()
            .is_some_and(|places| !places.enter(scope))
        {
            return StatusCode::SERVICE_UNAVAILABLE.into_response();
        }
        let prefix = Mount::of(request).map_or("", Mount::prefix);
        let bare = Mount::of(request).is_some_and(Mount::is_bare);
        let path = request.uri().path_and_query().map_or("", |it| it.as_str());
        let body = request.body().to_bytes();
        let path = format!("{path} {}", String::from_utf8_lossy(&body));
        let mut response = self.tell(
            if bare { "bare" } else { "worker" },
            prefix,
            path.trim_end(),
        );
        response.extensions_mut().insert(Told);
        response
    }

    fn open(&self, request: &mut Request, _: &mut WorkerScope<'_>) -> UploadDecision {
        match (request.uri().path(), request.uri().query()) {
            (_, Some("no")) => UploadDecision::Response(StatusCode::FORBIDDEN.into_response()),
            ("/upload", _) => match self.places.clone() {
                Some(places) => UploadDecision::Sink(Box::new(Taking { places, bytes: 0 })),
                None => UploadDecision::Sink(Box::new(Count(0))),
            },
            // It waits for its turn with its body.
            _ => UploadDecision::Whole,
        }
    }

    fn response_ready(&self, thread: &mut usize, _: Turn, note: &mut Extensions) {
        *thread += usize::from(note.remove::<Told>().is_some());
    }
}

/// Counts a body, each piece in its turn.
struct Taking {
    places: Places,
    bytes: usize,
}

impl Sink for Taking {
    fn write(
        &mut self,
        piece: &mut Payload,
        scope: &mut WorkerScope<'_>,
    ) -> Result<(), Box<Response>> {
        if !self.places.enter(scope) {
            return Err(Box::new(StatusCode::SERVICE_UNAVAILABLE.into_response()));
        }
        self.bytes += piece.len();
        Ok(())
    }

    fn finish(self: Box<Self>, _: &mut WorkerScope<'_>) -> Response {
        self.bytes.to_string().into_response()
    }
}

#[test]
fn sim_services_are_mounted_below_prefixes() {
    each_seed(10, |seed| {
        let inner = Router::new()
            .get("/", || "inner root\n")
            .get("/known", || "known\n")
            .nest_service("/deep", Teller::new("deep"))
            .fallback(|request: &Request| format!("inner fallback {}\n", request.uri().path()));
        let router = Router::new()
            .get("/", || "root\n")
            .get("/a/known", || "a route\n")
            .nest_service("/a", Teller::new("a"))
            .nest_service("/b/c/", Teller::new("bc"))
            .nest("/in", inner)
            .fallback_service(Teller::new("rest"));
        let mut server = TestServer::new(Conditions::rough(seed), Http::service(router));
        for (line, end) in [
            ("GET /", "root\n"),
            ("GET /a/known", "a route\n"),
            ("GET /a/x?y=1", "a worker [/a] /x?y=1\n"),
            ("DELETE /a/x/y", "a worker [/a] /x/y\n"),
            ("GET /a", "a bare [/a] /\n"),
            ("GET /a?b", "a bare [/a] /?b\n"),
            ("GET /a/", "a worker [/a] /\n"),
            ("GET /a/inline", "a inline [?] /inline\n"),
            ("GET /a/inline?q", "a inline [?] /inline?q\n"),
            ("GET http://h/a/inline?q", "a inline [?] /inline?q\n"),
            ("GET http://h/a/x?q", "a worker [/a] /x?q\n"),
            ("GET /a//x", "a worker [/a] //x\n"),
            ("GET /ab", "rest worker [] /ab\n"),
            ("GET /b/c/d", "bc worker [/b/c] /d\n"),
            ("GET /b/d", "rest worker [] /b/d\n"),
            ("GET /in", "inner root\n"),
            ("GET /in/known", "known\n"),
            ("GET /in/other", "inner fallback /in/other\n"),
            ("GET /in/deep/x", "deep worker [/in/deep] /x\n"),
            ("GET /inline", "rest inline [?] /inline\n"),
        ] {
            let reply = reply_to(&mut server, line, "");
            assert!(
                reply.ends_with(&format!("\r\n\r\n{end}")),
                "seed {seed}: {line}: {reply}"
            );
        }
        let reply = reply_to(&mut server, "POST /a/x", "a body");
        assert!(reply.ends_with("a worker [/a] /x a body\n"), "{reply}");
        let reply = reply_to(&mut server, "PUT /a/upload", "a body");
        assert!(reply.ends_with("\r\n\r\n6"), "{reply}");
        assert_eq!(
            status(&reply_to(&mut server, "PUT /a/upload?no", "a body")),
            "403"
        );
        assert_eq!(status(&reply_to(&mut server, "POST /in/known", "")), "405");
        // Each has the notes of its own requests: a GET and a POST, and two, and one.
        for (prefix, notes) in [("/a", 8), ("/b/c", 1), ("/in/deep", 1), ("", 2)] {
            let reply = reply_to(&mut server, &format!("GET {prefix}/notes"), "");
            let end = format!("\r\n\r\n{notes} notes\n");
            assert!(reply.ends_with(&end), "seed {seed}: {prefix}: {reply}");
        }
    });
}

#[test]
fn sim_layers_stand_around_services_too() {
    each_seed(10, |seed| {
        let seen = Seen::default();
        let router = Router::new()
            .nest_service("/a", Teller::new("a"))
            .layer(seen.clone())
            .fallback_service(Teller::new("rest"));
        let mut server = TestServer::new(Conditions::rough(seed), Http::service(router));
        for (line, body, mark, end) in [
            ("GET /a/inline", "", "200 /a", "a worker [/a] /inline\n"),
            ("POST /a/x", "a body", "200 /a", "a worker [/a] /x a body\n"),
            ("PUT /a/upload", "a body", "200 /a", "\r\n\r\n6"),
            ("PUT /a/upload", "a body!", "409 /a", "\r\n\r\n"),
            ("PUT /a/upload?no", "a body", "403 /a", "\r\n\r\n"),
        ] {
            let reply = reply_to(&mut server, line, body);
            let has_mark = reply.contains(&format!("X-Seen: {mark}\r\n"));
            assert!(
                has_mark && reply.ends_with(end),
                "seed {seed}: {line}: {reply}"
            );
        }
        let outside = reply_to(&mut server, "GET /x", "");
        assert!(!outside.contains("X-Seen"), "{outside}");
        let reply = reply_to(&mut server, "GET /notes", "");
        assert!(reply.ends_with("1 notes\n"), "seed {seed}: {reply}");
    });
}

#[test]
fn sim_a_request_that_waits_for_its_turn_has_been_through_its_layers_once() {
    each_seed(30, |seed| {
        let places = Places::new();
        let mut teller = Teller::new("slow");
        teller.places = Some(places.clone());
        let seen = Seen::default();
        let router = Router::new().nest_service("/a", teller).layer(seen.clone());
        let mut server = TestServer::new(Conditions::rough(seed), Http::service(router));
        let (mut asked, end) = (
            0,
            "Host: h\r\nConnection: close\r\nContent-Length: 4\r\n\r\nbody",
        );
        for (line, answer) in [
            ("POST /a/x", "slow worker [/a] /x body\n"),
            ("PUT /a/upload", "\r\n\r\n4"),
        ] {
            let replies = places.replies(&mut server, &format!("{line} HTTP/1.1\r\n{end}"));
            asked += replies.len();
            for reply in replies {
                let is_marked = reply.contains("X-Seen: 200 /a\r\n");
                assert!(
                    is_marked && reply.ends_with(answer),
                    "seed {seed}: {line}: {reply}"
                );
            }
        }
        assert_eq!(seen.calls.load(Ordering::Relaxed), asked);
        assert_eq!(seen.responses.load(Ordering::Relaxed), asked);
    });
}

#[test]
fn sim_a_layer_may_answer_in_place_of_what_waits() {
    each_seed(10, |seed| {
        let places = Places::new();
        let mut teller = Teller::new("slow");
        teller.places = Some(places.clone());
        let instead = |request: Request, next: &Next<'_>| match next.run(request).response() {
            Some(_) => "it was there\n",
            None => "it waits\n",
        };
        let router = Router::new().nest_service("/a", teller).layer(instead);
        let mut server = TestServer::new(Conditions::rough(seed), Http::service(router));
        let request = "GET /a/x HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
        let mut replies = places.replies(&mut server, request);
        let last = replies.pop().expect("one has waited");
        assert!(last.ends_with("\r\n\r\nit waits\n"), "seed {seed}: {last}");
        for reply in replies {
            assert!(
                reply.ends_with("\r\n\r\nit was there\n"),
                "seed {seed}: {reply}"
            );
        }
    });
}

#[test]
fn sim_a_router_may_be_mounted_with_its_services() {
    each_seed(10, |seed| {
        let fast = |request: &Request| format!("fast {}\n", request.uri());
        let inner = Router::new()
            .route("/", routing::get(fast).inline())
            .nest_service("/t", Teller::new("t"));
        let router = Router::new()
            .nest_service("/first", Teller::new("first"))
            .nest_service("/r", inner);
        let mut server = TestServer::new(Conditions::rough(seed), Http::service(router));
        for (path, end) in [
            ("/r", "fast /\n"),
            ("/r?a=b", "fast /?a=b\n"),
            ("/r/", "fast /\n"),
            ("/r/?a=b", "fast /?a=b\n"),
            ("/r/t/x", "t worker [/t] /x\n"),
            ("/r/t/notes", "1 notes\n"),
            ("/first/notes", "0 notes\n"),
        ] {
            let reply = reply_to(&mut server, &format!("GET {path}"), "");
            let end = format!("\r\n\r\n{end}");
            assert!(reply.ends_with(&end), "seed {seed}: {path}: {reply}");
        }
    });
}

#[test]
fn a_body_that_is_announced_as_too_long_does_not_reach_the_handler() {
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    let upload = move || {
        counted.fetch_add(1, Ordering::Relaxed);
        Upload::new(Count(0))
    };
    let router = Router::new().route("/", routing::put(upload).body_bytes_max(4).streamed());
    let mut server = TestServer::new(Conditions::calm(1), Http::service(router));
    assert_eq!(status(&reply_to(&mut server, "PUT /", "fives")), "413");
    assert_eq!(calls.load(Ordering::Relaxed), 0);
    assert_eq!(status(&reply_to(&mut server, "PUT /", "four")), "200");
    assert_eq!(calls.load(Ordering::Relaxed), 1);
}
