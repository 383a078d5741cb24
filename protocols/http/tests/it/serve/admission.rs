//! One admission for both versions of HTTP: a table of requests, each of which is sent over HTTP/1
//! and over HTTP/2. What is asked of the service, what its client gets and what the access log says
//! are the same, and are what the table says.

use std::collections::BTreeMap;
use std::mem::take;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use flatpath::access_log::{LogFormat, LogOutput, LogSink};
use flatpath::memory::{Payload, PoolHandle};
use flatpath::prompt::PromptRight;
use flatpath::{DriverChoice, Server, Turn, WorkerScope};
use flatpath_http::testing::{Blocks, put_block};
use flatpath_http::{
    BodyPlan, Disposition, Framing, Head, Hosts, Http, Origins, Peer, Place, Plan, Reply, Request,
    Response, Service, Sink, SiteTerms, Sites, UploadDecision,
};
use flatpath_testkit::Client;

use crate::h2_frames::{DATA, END_HEADERS, END_STREAM, HEADERS, RESET, frame, greeting};
use crate::on_each_driver;
use crate::serve::start;

on_each_driver!(a_request_is_admitted_alike_over_both_versions);

/// What a request's plan says: the first two parts of its path.
const ROUTE: &str = "/{place}/{body}";
/// The longest body of the plan `short`.
const SHORT: u64 = 10;

/// What a service was asked, in order.
type Asked = Arc<Mutex<Vec<&'static str>>>;

/// Does what the path of a request says, and notes what it is asked.
struct Witness {
    asked: Asked,
    right: PromptRight,
}

impl Witness {
    fn note(&self, what: &'static str) {
        self.asked.lock().expect("no panic").push(what);
    }
}

fn part(path: &str, at: usize) -> &str {
    path.split('/').nth(at).unwrap_or_default()
}

/// What code of a service sees of a request.
fn seen(by: &str, line: [&str; 2], bytes: usize, has_peer: bool) -> Response {
    let [method, target] = line;
    Response::new(format!("{by}: {method} {target}, {bytes} bytes, {has_peer}").into())
}

fn seen_by_worker(by: &str, request: &Request, bytes: usize) -> Response {
    let target = request.uri().path_and_query().expect("a target").as_str();
    let line = [request.method().as_str(), target];
    seen(by, line, bytes, Peer::of(request).is_some())
}

impl Service for Witness {
    type ThreadState = ();

    fn thread_state(&self) {}

    fn plan(&self, head: &Head<'_>) -> Plan<'_> {
        self.note("plan");
        Plan {
            place: match part(head.path(), 1) {
                "prompt" => Place::Prompt(&self.right),
                "worker" => Place::Worker,
                _ => Place::Inline,
            },
            body: match part(head.path(), 2) {
                "short" => BodyPlan::Whole {
                    bytes_max: Some(SHORT),
                },
                "stream" => BodyPlan::Streamed,
                "unread" => BodyPlan::Unread,
                _ => BodyPlan::default(),
            },
            asks_peer: head.query() == Some("peer"),
            route: Some(ROUTE),
        }
    }

    fn inline(
        &self,
        (): &mut (),
        _: Turn,
        head: &Head<'_>,
        reply: &mut Reply<'_>,
    ) -> Disposition<'_> {
        self.note("inline");
        match part(head.path(), 1) {
            "leave" => Disposition::Pooled,
            "leave-prompt" => Disposition::Prompt(&self.right),
            "panic" => panic!("as asked"),
            _ => {
                let line = [head.method(), head.target()];
                reply.response(seen("inline", line, 0, head.peer().is_some()))
            }
        }
    }

    /// Whether the engine allows a try depends on the moment, so none is noted.
    fn prompt(
        &self,
        (): &mut (),
        _: Turn,
        head: &Head<'_>,
        _: PoolHandle<'_>,
        _: &mut Reply<'_>,
    ) -> Disposition<'_> {
        if head.framing() != Framing::Empty {
            self.note("prompt with a body");
        }
        Disposition::Pooled
    }

    fn pooled(&self, request: &mut Request, _: &mut WorkerScope<'_>) -> Response {
        self.note("pooled");
        let body = take(request.body_mut()).into_vec().expect("in memory");
        seen_by_worker("pooled", request, body.len())
    }

    fn open(&self, request: &mut Request, _: &mut WorkerScope<'_>) -> UploadDecision {
        self.note("open");
        match part(request.uri().path(), 2) {
            "stream" => UploadDecision::Sink(Box::new(Counted(0))),
            _ => UploadDecision::Response(seen_by_worker("open", request, 0)),
        }
    }
}

/// Counts a body.
struct Counted(usize);

impl Sink for Counted {
    fn write(&mut self, piece: &mut Payload, _: &mut WorkerScope<'_>) -> Result<(), Box<Response>> {
        self.0 += piece.len();
        Ok(())
    }

    fn finish(self: Box<Self>, _: &mut WorkerScope<'_>) -> Response {
        Response::new(format!("stored {} bytes", self.0).into())
    }
}

/// Lines of the access logs, with their numbers.
#[derive(Default)]
struct Lines {
    lines: Mutex<Vec<(u16, String)>>,
    written: Condvar,
}

/// The lines of an access log.
#[derive(Clone, Default)]
pub(crate) struct Kept(Arc<Lines>);

impl LogSink for Kept {
    fn open(&self) -> Box<dyn LogOutput> {
        Box::new(self.clone())
    }

    fn dropped(&self, _: u64) {}
}

impl LogOutput for Kept {
    fn write(&mut self, lines: &mut Vec<u8>) {
        self.write_to(0, lines);
    }

    fn write_to(&mut self, log: u16, lines: &mut Vec<u8>) {
        let text = String::from_utf8(take(lines)).expect("text");
        let mut kept = self.0.lines.lock().expect("no panic");
        kept.extend(text.lines().map(|line| (log, line.to_owned())));
        self.0.written.notify_all();
    }
}

impl Kept {
    /// The only line since the last call: its log, and what it says of request and reply.
    pub(crate) fn line(&self) -> String {
        let lines = self.0.lines.lock().expect("no panic");
        let limit = Duration::from_secs(60);
        let waited = self
            .0
            .written
            .wait_timeout_while(lines, limit, |lines| lines.is_empty());
        let (mut lines, _) = waited.expect("no panic");
        assert_eq!(lines.len(), 1, "{lines:?}");
        let (log, line) = lines.pop().expect("one");
        let from = line.find("\"method\"").expect("a method");
        let to = line.find(",\"seconds\"").expect("a time");
        let end = line.rfind(",\"aborted\"").expect("an end");
        let line = [&line[from..to], &line[end..]].concat();
        format!("log {log}: {}", line.replace("HTTP/2.0", "HTTP/1.1"))
    }
}

/// How a body is sent.
#[derive(Clone, Copy, PartialEq)]
enum Sent {
    Nothing,
    /// A body of this many bytes, with its length.
    Known(usize),
    /// A body of this many bytes, without its length.
    Unknown(usize),
    /// A body of this many bytes, with `Expect: 100-continue`.
    Expect(usize),
}

use Sent::{Expect, Known, Nothing, Unknown};

impl Sent {
    fn bytes(self) -> Vec<u8> {
        match self {
            Nothing => Vec::new(),
            Known(bytes) | Unknown(bytes) | Expect(bytes) => vec![b'x'; bytes],
        }
    }

    fn fields(self) -> Vec<(&'static str, String)> {
        match self {
            Nothing | Unknown(_) => Vec::new(),
            Known(bytes) => vec![("content-length", bytes.to_string())],
            Expect(bytes) => vec![
                ("content-length", bytes.to_string()),
                ("expect", "100-continue".to_owned()),
            ],
        }
    }
}

/// A request, what is asked of the service for it, its status, and what the log says beside that.
struct Case {
    line: &'static str,
    fields: &'static [(&'static str, &'static str)],
    sent: Sent,
    asked: &'static [&'static str],
    status: &'static [u16],
    log: &'static str,
}

const fn case(
    line: &'static str,
    sent: Sent,
    asked: &'static [&'static str],
    status: &'static [u16],
) -> Case {
    Case {
        line,
        fields: &[],
        sent,
        asked,
        status,
        log: "log 7",
    }
}

const CASES: &[Case] = &[
    // The host, the origin.
    Case {
        fields: &[("host", "other")],
        log: "log 0",
        ..case("GET /inline/whole", Nothing, &[], &[421])
    },
    Case {
        fields: &[("origin", "http://evil.example")],
        ..case("POST /inline/whole", Nothing, &[], &[403])
    },
    Case {
        fields: &[("origin", "http://h")],
        ..case("POST /inline/whole", Known(5), &["plan", "inline"], &[200])
    },
    // The client.
    case(
        "GET /inline/whole?peer",
        Nothing,
        &["plan", "inline"],
        &[200],
    ),
    case(
        "GET /worker/whole?peer",
        Nothing,
        &["plan", "pooled"],
        &[200],
    ),
    // On this thread, whatever the body.
    case("HEAD /inline/whole", Nothing, &["plan", "inline"], &[200]),
    case("POST /inline/short", Known(11), &["plan", "inline"], &[200]),
    case(
        "POST /inline/short",
        Expect(11),
        &["plan", "inline"],
        &[200],
    ),
    case(
        "POST /inline/stream",
        Unknown(5),
        &["plan", "inline"],
        &[200],
    ),
    case("GET /panic/whole", Nothing, &["plan", "inline"], &[500]),
    case(
        "GET /leave/whole",
        Nothing,
        &["plan", "inline", "pooled"],
        &[200],
    ),
    // A try is for what has no body.
    case("GET /prompt/whole", Nothing, &["plan", "pooled"], &[200]),
    case("POST /prompt/whole", Known(5), &["plan", "pooled"], &[200]),
    case(
        "POST /leave-prompt/whole",
        Known(5),
        &["plan", "inline", "pooled"],
        &[200],
    ),
    // A body that comes first.
    case("POST /worker/short", Known(10), &["plan", "pooled"], &[200]),
    case("POST /worker/short", Known(11), &["plan"], &[413]),
    case("POST /leave/short", Known(11), &["plan", "inline"], &[413]),
    case(
        "POST /worker/short",
        Expect(10),
        &["plan", "pooled"],
        &[100, 200],
    ),
    case("POST /worker/short", Expect(11), &["plan"], &[413]),
    case(
        "POST /worker/short",
        Unknown(10),
        &["plan", "pooled"],
        &[200],
    ),
    case("POST /worker/short", Unknown(11), &["plan"], &[413]),
    // A body in pieces.
    case("POST /worker/stream", Nothing, &["plan", "pooled"], &[200]),
    case("POST /worker/stream", Known(11), &["plan", "open"], &[200]),
    case(
        "POST /worker/stream",
        Unknown(11),
        &["plan", "open"],
        &[200],
    ),
    case(
        "POST /worker/stream",
        Expect(11),
        &["plan", "open"],
        &[100, 200],
    ),
    // A body that nothing reads.
    case("POST /worker/unread", Known(5), &["plan", "pooled"], &[200]),
    case("POST /worker/unread", Expect(5), &["plan", "open"], &[200]),
    case("POST /worker/unread", Unknown(5), &["plan", "open"], &[200]),
];

/// What a client gets: statuses and the body.
type Got = (Vec<u16>, String);

impl Case {
    fn method(&self) -> &'static str {
        self.line.split(' ').next().expect("a method")
    }

    fn target(&self) -> &'static str {
        self.line.split(' ').nth(1).expect("a target")
    }

    fn host(&self) -> &'static str {
        let host = self.fields.iter().find(|(name, _)| *name == "host");
        host.map_or("h", |(_, host)| host)
    }

    /// All but the host.
    fn fields(&self) -> impl Iterator<Item = (&'static str, String)> {
        let own = self.fields.iter().filter(|(name, _)| *name != "host");
        let own = own.map(|(name, value)| (*name, (*value).to_owned()));
        own.chain(self.sent.fields())
    }

    fn is_asked_first(&self) -> bool {
        matches!(self.sent, Expect(_))
    }

    fn over_http1(&self, client: &mut Client) -> Got {
        let mut text = format!("{} HTTP/1.1\r\nHost: {}\r\n", self.line, self.host());
        for (name, value) in self.fields() {
            text += &format!("{name}: {value}\r\n");
        }
        let mut body = self.sent.bytes();
        if let Unknown(bytes) = self.sent {
            text += "Transfer-Encoding: chunked\r\n";
            body = format!("{bytes:x}\r\n{}\r\n0\r\n\r\n", "x".repeat(bytes)).into_bytes();
        }
        client.send(text + "\r\n");
        if !self.is_asked_first() {
            client.send(&body);
        }
        let mut statuses = Vec::new();
        loop {
            let head = client.until("\r\n\r\n");
            let head = String::from_utf8(head).expect("text").to_lowercase();
            let status = head.split(' ').nth(1).expect("a status");
            statuses.push(status.parse().expect("a number"));
            if statuses.last() == Some(&100) {
                client.send(&body);
                continue;
            }
            let length = head.split("content-length: ").nth(1).expect("a length");
            let length = length.lines().next().expect("a line");
            let bytes = match self.method() {
                "HEAD" => 0,
                _ => length.parse().expect("a number"),
            };
            let body = client.exactly(bytes);
            return (statuses, String::from_utf8(body).expect("text"));
        }
    }

    fn over_http2(&self, client: &mut Client) -> Got {
        let own: Vec<_> = self.fields().collect();
        let fields = [
            (":method", self.method()),
            (":scheme", "http"),
            (":authority", self.host()),
            (":path", self.target()),
        ];
        let own = own.iter().map(|(name, value)| (*name, value.as_str()));
        let fields = fields.into_iter().chain(own);
        let block = put_block(fields.map(|(name, value)| (name.as_bytes(), value.as_bytes())));
        let (flags, sent) = match self.sent {
            Nothing => (END_HEADERS | END_STREAM, Vec::new()),
            _ => (END_HEADERS, frame(DATA, END_STREAM, 1, &self.sent.bytes())),
        };
        client.send([greeting(), frame(HEADERS, flags, 1, &block)].concat());
        if !self.is_asked_first() {
            client.send(&sent);
        }
        let (mut statuses, mut body, mut blocks) = (Vec::new(), Vec::new(), Blocks::default());
        loop {
            let head = client.exactly(9);
            let bytes = usize::from(head[1]) << 8 | usize::from(head[2]);
            let payload = client.exactly(bytes);
            match head[3] {
                HEADERS => {
                    let fields: BTreeMap<_, _> = blocks
                        .fields(&payload)
                        .expect("a block")
                        .into_iter()
                        .collect();
                    let status = String::from_utf8(fields[&b":status"[..]].clone());
                    statuses.push(status.expect("text").parse().expect("a number"));
                    if statuses.last() == Some(&100) {
                        client.send(&sent);
                    }
                }
                DATA => body.extend(payload),
                RESET => panic!("{}: reset after {statuses:?}", self.line),
                _ => continue,
            }
            if head[4] & END_STREAM != 0 {
                if self.is_asked_first() {
                    // No more comes of it.
                    client.send(frame(RESET, 0, 1, &[0, 0, 0, 8]));
                }
                return (statuses, String::from_utf8(body).expect("text"));
            }
        }
    }
}

fn a_request_is_admitted_alike_over_both_versions(choice: DriverChoice) {
    let (asked, kept) = (Asked::default(), Kept::default());
    let witness = Witness {
        asked: Arc::clone(&asked),
        right: PromptRight::granted("witness"),
    };
    let sites = Sites::new().add(&["h".parse().expect("a host")], "/", witness);
    let sites = sites.expect("one site").terms(SiteTerms::new().log(7));
    let http = Http::service(sites)
        .hosts(Hosts::local().and(["h".parse().expect("a host")]))
        .origins(Origins::own());
    let server = Server::new().workers(2..=4);
    let server = server.access_log(LogFormat::Json, Arc::new(kept.clone()));
    let (_server, address) = start(server, choice, http);
    // It was asked before it serves.
    asked.lock().expect("no panic").clear();
    let mut wrong = String::new();
    for case in CASES {
        let outcome = |ask: fn(&Case, &mut Client) -> Got| {
            let mut client = Client::connect(address);
            let got = ask(case, &mut client);
            drop(client);
            let line = kept.line();
            (take(&mut *asked.lock().expect("no panic")), got, line)
        };
        let first = outcome(Case::over_http1);
        let second = outcome(Case::over_http2);
        let (calls, (statuses, text), line) = &first;
        let has_route = line.contains("\"route\":");
        let is_right = first == second
            && (&calls[..], &statuses[..]) == (case.asked, case.status)
            && line.starts_with(case.log)
            && has_route != calls.is_empty()
            && text.ends_with("true") == case.line.ends_with("?peer");
        if !is_right {
            wrong += &format!("{}:\n  {first:?}\n  {second:?}\n", case.line);
        }
    }
    assert_eq!(wrong, "");
}
