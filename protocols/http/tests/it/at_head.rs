//! Layers run when the head of a request is there, and see what becomes of its body: for each way
//! in which a route takes one, over each version of HTTP, in the simulation.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use flatpath_http::http::StatusCode;
use flatpath_http::testing::{Blocks, put_block};
use flatpath_http::{
    Answer, Deferred, Disposition, Head, Http, IntoResponse, Limits, Next, Payload, Reply, Request,
    Response, Router, Service, Sink, TimeOut, Turn, Upload, WorkerScope, routing,
};
use flatpath_test::{Client, Conditions, TestServer};

use crate::h2_frames::{DATA, END_HEADERS, END_STREAM, HEADERS, frame, greeting, whole_frames};

pub(crate) const BODY_TIMEOUT: Duration = Duration::from_secs(5);

/// Longest bodies, by route or by listener.
const BYTES_MAX: u64 = 10;

/// What handlers have got of bodies.
#[derive(Clone, Default)]
pub(crate) struct Got(pub(crate) Arc<AtomicUsize>);

impl Got {
    pub(crate) fn take(&self, bytes: usize) -> String {
        self.0.fetch_add(1, Ordering::Relaxed);
        format!("{bytes} bytes\n")
    }
}

/// Takes a body piece by piece.
struct Count(Got, usize);

impl Sink for Count {
    fn write(&mut self, piece: &mut Payload, _: &mut WorkerScope<'_>) -> Result<(), Box<Response>> {
        self.1 += piece.len();
        Ok(())
    }

    fn finish(self: Box<Self>, _: &mut WorkerScope<'_>) -> Response {
        self.0.take(self.1).into_response()
    }
}

/// A service that needs the whole request, and says nothing of that.
struct Bare(Got);

impl Service for Bare {
    type ThreadState = ();

    fn thread_state(&self) {}

    fn inline(&self, (): &mut (), _: Turn, _: &Head<'_>, _: &mut Reply<'_>) -> Disposition<'_> {
        Disposition::Pooled
    }

    fn pooled(&self, request: &mut Request, _: &mut WorkerScope<'_>) -> Response {
        let bytes = request.body().length().expect("it is here");
        self.0.take(bytes as usize).into_response()
    }
}

/// Lets those in who say who they are.
pub(crate) fn guard(request: Request, next: &Next<'_>) -> Result<Answer, StatusCode> {
    assert!(
        request.body().is_empty(),
        "a layer at the head sees no body"
    );
    match request.headers().contains_key("authorization") {
        true => Ok(next.run(request)),
        false => Err(StatusCode::UNAUTHORIZED),
    }
}

/// Marks each response with its status.
pub(crate) fn mark(request: Request, next: &Next<'_>) -> Answer {
    next.run(request).map(|response: Response| {
        let seen = response.status().as_u16().to_string();
        ([("x-seen", seen)], response)
    })
}

const ROUTES: [&str; 8] = [
    "/buffered",
    "/listener",
    "/streamed",
    "/deferred",
    "/inline",
    "/timed",
    "/router/inside",
    "/bare/inside",
];

pub(crate) fn router(got: &Got) -> Router {
    let whole = |got: &Got| {
        let got = got.clone();
        move |body: String| got.take(body.len())
    };
    let (upload, deferred) = (got.clone(), got.clone());
    let upload = move || Upload::new(Count(upload.clone(), 0));
    let defer = move |body: String| {
        let (responder, answer) = Deferred::new();
        let text = deferred.take(body.len());
        thread::spawn(move || responder.send(text));
        answer
    };
    let bounded = |methods: flatpath_http::Methods| methods.body_bytes_max(BYTES_MAX);
    let inside = Router::new().route("/inside", bounded(routing::put(whole(got))));
    let timed = routing::put(whole(got)).layer(TimeOut::after(Duration::from_secs(3600)));
    Router::new()
        .route("/buffered", bounded(routing::put(whole(got))))
        .put("/listener", whole(got))
        .route("/streamed", bounded(routing::put(upload).streamed()))
        .route("/deferred", bounded(routing::put(defer)))
        .route("/inline", bounded(routing::put(whole(got)).inline()))
        .route("/timed", bounded(timed))
        .nest_service("/router", inside)
        .nest_service("/bare", Bare(got.clone()))
        .layer(guard)
        .layer(mark)
}

pub(crate) fn server(seed: u64, router: Router) -> TestServer {
    let mut conditions = Conditions::rough(seed);
    conditions.limits.body_timeout = BODY_TIMEOUT;
    let limits = Limits {
        body_bytes_max: BYTES_MAX,
        ..Limits::default()
    };
    TestServer::new(conditions, Http::service(router).limits(limits))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    Http1,
    Http2,
}

/// What a client says of its request before the body.
#[derive(Clone, Copy)]
pub(crate) struct Asks {
    pub(crate) path: &'static str,
    /// `None`: it says nothing.
    pub(crate) length: Option<u64>,
    pub(crate) is_known: bool,
    pub(crate) expects: bool,
}

const FIELDS: [(&str, &str); 2] = [("authorization", "me"), ("expect", "100-continue")];

impl Asks {
    fn fields(self) -> Vec<(&'static str, String)> {
        let has = [self.is_known, self.expects];
        let fields = FIELDS.into_iter().zip(has);
        let named = fields.filter_map(|(field, has)| has.then_some(field));
        let named = named.map(|(name, value)| (name, value.to_owned()));
        let length = self.length.map(|it| ("content-length", it.to_string()));
        named.chain(length).collect()
    }

    pub(crate) fn head(self, version: Version) -> Vec<u8> {
        let mut fields = self.fields();
        if version == Version::Http1 {
            if self.length.is_none() {
                fields.push(("transfer-encoding", "chunked".to_owned()));
            }
            let lines = fields
                .iter()
                .map(|(name, value)| format!("{name}: {value}\r\n"));
            let lines: String = lines.collect();
            return format!("PUT {} HTTP/1.1\r\nHost: h\r\n{lines}\r\n", self.path).into_bytes();
        }
        let mut all = vec![
            (":method", "PUT".to_owned()),
            (":scheme", "http".to_owned()),
            (":path", self.path.to_owned()),
            (":authority", "h".to_owned()),
        ];
        all.extend(fields);
        let all = all
            .iter()
            .map(|(name, value)| (name.as_bytes(), value.as_bytes()));
        frame(HEADERS, END_HEADERS, 1, &put_block(all))
    }

    pub(crate) fn data(self, version: Version, data: &str, is_last: bool) -> Vec<u8> {
        match (version, self.length) {
            (Version::Http2, _) => {
                let flags = if is_last { END_STREAM } else { 0 };
                frame(DATA, flags, 1, data.as_bytes())
            }
            (Version::Http1, Some(_)) => data.as_bytes().to_vec(),
            (Version::Http1, None) => {
                let end = if is_last { "0\r\n\r\n" } else { "" };
                format!("{:x}\r\n{data}\r\n{end}", data.len()).into_bytes()
            }
        }
    }
}

/// A client, and all that it has heard.
pub(crate) struct Talk {
    version: Version,
    pub(crate) client: Client,
    pub(crate) heard: Vec<u8>,
}

impl Talk {
    pub(crate) fn new(server: &mut TestServer, version: Version) -> Self {
        let client = server.connect();
        if version == Version::Http2 {
            client.write(&greeting());
        }
        server.settle();
        let heard = Vec::new();
        Self {
            version,
            client,
            heard,
        }
    }

    pub(crate) fn says(&mut self, server: &mut TestServer, bytes: &[u8]) {
        self.client.write(bytes);
        self.listens(server);
    }

    /// Until nothing more happens.
    pub(crate) fn listens(&mut self, server: &mut TestServer) {
        for _ in 0..20 {
            server.settle();
            thread::yield_now();
        }
        self.heard.extend(self.client.read());
    }

    /// The statuses that it has got, each with the mark of the layer.
    pub(crate) fn heads(&self) -> Vec<(u16, Option<u16>)> {
        match self.version {
            Version::Http1 => {
                let text = String::from_utf8_lossy(&self.heard).into_owned();
                text.split("HTTP/1.1 ").skip(1).map(head_of_text).collect()
            }
            Version::Http2 => {
                let mut blocks = Blocks::default();
                let frames = whole_frames(&self.heard).into_iter();
                let heads = frames.filter(|it| it.kind == HEADERS && it.stream != 0);
                let mut fields = |block: &[u8]| blocks.fields(block).expect("a block");
                heads
                    .map(|it| head_of_fields(&fields(it.payload)))
                    .collect()
            }
        }
    }
}

fn head_of_text(text: &str) -> (u16, Option<u16>) {
    let seen = text.lines().find_map(|line| line.strip_prefix("X-Seen: "));
    let status = text[..3].parse().expect("a status");
    (status, seen.map(|seen| seen.parse().expect("a status")))
}

fn head_of_fields(fields: &[(Vec<u8>, Vec<u8>)]) -> (u16, Option<u16>) {
    let value = |wanted: &[u8]| {
        let found = fields.iter().find(|(name, _)| name == wanted)?;
        String::from_utf8_lossy(&found.1).parse().ok()
    };
    (value(b":status").expect("a status"), value(b"x-seen"))
}

/// What a client does after its head.
#[derive(Clone, Copy)]
enum Does {
    Sends(&'static str),
    Ends(&'static str),
    /// Over HTTP/1, a chunk that is none.
    Breaks,
    IsLate,
}

/// A row of the table: what is said, and the statuses that come of it, step by step.
#[derive(Clone, Copy)]
struct Row {
    name: &'static str,
    asks: Asks,
    steps: &'static [(Does, &'static [u16])],
    /// What the head alone comes to.
    first: &'static [u16],
}

impl Row {
    /// How many requests a handler gets.
    fn handled(&self) -> usize {
        let mut statuses = self.steps.iter().flat_map(|(_, statuses)| *statuses);
        usize::from(statuses.any(|status| *status == 200))
    }
}

pub(crate) const ASKS: Asks = Asks {
    path: "",
    length: None,
    is_known: true,
    expects: false,
};

fn row(
    name: &'static str,
    asks: Asks,
    first: &'static [u16],
    steps: &'static [(Does, &'static [u16])],
) -> Row {
    Row {
        name,
        asks,
        steps,
        first,
    }
}

fn of_length(length: u64) -> Asks {
    Asks {
        length: Some(length),
        ..ASKS
    }
}

/// It waits to hear that its body is wanted.
fn waits(asks: Asks) -> Asks {
    Asks {
        expects: true,
        ..asks
    }
}

fn stranger(asks: Asks) -> Asks {
    Asks {
        is_known: false,
        ..waits(asks)
    }
}

/// What the head alone comes to.
fn refused_at_the_head() -> Vec<Row> {
    vec![
        row("401, by length", stranger(of_length(4)), &[401], &[]),
        row("401, chunked", stranger(ASKS), &[401], &[]),
        row("401 for too long", stranger(of_length(11)), &[401], &[]),
        row("413 by length", of_length(11), &[413], &[]),
        row("413 by length, waits", waits(of_length(11)), &[413], &[]),
    ]
}

type Steps = &'static [(Does, &'static [u16])];

const LONG: Steps = &[
    (Does::Sends("six by"), &[]),
    (Does::Sends("six by"), &[413]),
];
const LATE: Steps = &[(Does::Sends("ab"), &[]), (Does::IsLate, &[408])];
const BROKEN: Steps = &[(Does::Sends("ab"), &[]), (Does::Breaks, &[400])];
const WHOLE: Steps = &[(Does::Ends("abcd"), &[200])];
const PIECES: Steps = &[
    (Does::Sends("ab"), &[]),
    (Does::Sends("cd"), &[]),
    (Does::Ends("ef"), &[200]),
];

/// What the body comes to that breaks a rule.
fn refused_later() -> Vec<Row> {
    vec![
        row("413 chunked", ASKS, &[], LONG),
        row(
            "413 at once",
            ASKS,
            &[],
            &[(Does::Ends("eleven byte"), &[413])],
        ),
        row("408", of_length(4), &[], LATE),
        row("408 at once", of_length(4), &[], &[(Does::IsLate, &[408])]),
        row("408 after 100", waits(ASKS), &[100], LATE),
        row("400", ASKS, &[], BROKEN),
        row(
            "400 after 100",
            waits(ASKS),
            &[100],
            &[(Does::Breaks, &[400])],
        ),
    ]
}

fn served() -> Vec<Row> {
    vec![
        row("200", ASKS, &[], PIECES),
        row("200 by length", of_length(4), &[], WHOLE),
        row("200 after 100", waits(of_length(4)), &[100], WHOLE),
        row("200 after 100, chunked", waits(ASKS), &[100], WHOLE),
    ]
}

fn check(seed: u64, version: Version, path: &'static str, row: &Row) {
    let case = format!("{version:?} {path}, {}, seed {seed}", row.name);
    let got = Got::default();
    let mut server = server(seed, router(&got));
    let asks = Asks { path, ..row.asks };
    let mut talk = Talk::new(&mut server, version);
    talk.says(&mut server, &asks.head(version));
    let mut expected = Vec::new();
    let with_mark = |status: &u16| (*status, (*status >= 200).then_some(*status));
    let mut compare = |talk: &Talk, more: &[u16]| {
        expected.extend(more.iter().map(with_mark));
        let heard = String::from_utf8_lossy(&talk.heard);
        assert_eq!(talk.heads(), expected, "{case}: {heard}");
    };
    compare(&talk, row.first);
    for (does, statuses) in row.steps {
        match *does {
            Does::Sends(data) => talk.says(&mut server, &asks.data(version, data, false)),
            Does::Ends(data) => talk.says(&mut server, &asks.data(version, data, true)),
            Does::Breaks => talk.says(&mut server, b"nonsense\r\n"),
            Does::IsLate => {
                server.advance(2 * BODY_TIMEOUT);
                talk.listens(&mut server);
            }
        }
        if row.handled() > 0 && path == "/deferred" {
            // Another thread answers.
            server.run_until(|| got.0.load(Ordering::Relaxed) >= statuses.len());
            for _ in 0..100 {
                thread::sleep(Duration::from_millis(1));
                talk.listens(&mut server);
                if talk.heads().len() >= expected_len(row, statuses) {
                    break;
                }
            }
        }
        compare(&talk, statuses);
    }
    assert_eq!(got.0.load(Ordering::Relaxed), row.handled(), "{case}");
}

/// How many statuses there are once the last has come.
fn expected_len(row: &Row, last: &[u16]) -> usize {
    let all = row
        .steps
        .iter()
        .map(|(_, statuses)| statuses.len())
        .sum::<usize>();
    if last.is_empty() {
        0
    } else {
        row.first.len() + all
    }
}

#[test]
fn sim_layers_decide_at_the_head_and_see_what_becomes_of_the_body() {
    for version in [Version::Http1, Version::Http2] {
        for row in [refused_at_the_head(), refused_later(), served()].concat() {
            let breaks = row
                .steps
                .iter()
                .any(|(does, _)| matches!(does, Does::Breaks));
            if breaks && version == Version::Http2 {
                continue;
            }
            for path in ROUTES {
                // What is streamed goes to its sink in pieces that are worth a worker.
                let is_short = row.steps.iter().any(|(_, statuses)| statuses == &[413]);
                let comes_later = matches!(row.steps.last(), Some((Does::Sends(_), _)));
                if path == "/streamed" && is_short && comes_later {
                    continue;
                }
                (0..3).for_each(|seed| check(seed, version, path, &row));
            }
        }
    }
}
