//! A user of the application, with bookmarks: signs in, asks, and listens.

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use flatpath_bench_common::http;
use flatpath_bench_common::measure::histogram;
use flatpath_bench_common::report::Table;
use flatpath_bench_common::servers::{ERRORS, LOST, Metric, Run};
use flatpath_bench_common::tools::{self, Tool};
use serde_json::{Value, json};

use super::listeners::Listeners;
use super::sse::{CPU_EVENT, EVENTS};
use super::wrk::{Expected, Request, Wrk};
use crate::candidates::app::{PASSWORD, USER};
use crate::comparison::{Load, Row, Turn};
use crate::ground::{Ground, SMALL_PATH, small_body};
use crate::server::Server;

/// 99th percentile of the time until all have heard.
pub(crate) const HEARD: Metric = Metric::median("heard p99 us");

/// Bookmarks that are there at the start.
const BOOKMARKS: usize = 1000;
const DRAFT: &str = r#"{"url":"https://www.example.org/new","title":"A new one","tags":["new"]}"#;
/// Bookmarks of which some client has not heard yet: far fewer than a listener may be behind.
const AHEAD_MAX: usize = 16;
/// Between two looks at what has been heard.
const LOOK_EVERY: Duration = Duration::from_micros(200);
/// How long an event may take to all.
const PATIENCE: Duration = Duration::from_secs(10);
/// Not counted, in front of each run.
const SETTLE: Duration = Duration::from_millis(300);

/// What a user asks for again and again, by wrk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asks {
    /// One bookmark.
    Find,
    /// The longest page of them, with gzip.
    List,
    /// That one more is added.
    Add,
    /// A file, which takes no session.
    File,
}

/// Requests of this kind, on this many connections.
pub(crate) struct Asking(pub(crate) Asks, pub(crate) u32);

/// Users who listen to events, while bookmarks are added as fast as all of them hear of it.
///
/// A latency is the time from the request that adds one until all clients together have had as many
/// events. The clients look for events every few milliseconds, and that is in it, for each server
/// alike.
pub(crate) struct Listening(pub(crate) u32);

impl Asks {
    /// The request of who has this cookie.
    fn request(self, cookie: &str) -> Request {
        let path = match self {
            Self::Find => "/api/bookmarks/500",
            Self::List => "/api/bookmarks?after=300&limit=100",
            Self::Add => "/api/bookmarks",
            Self::File => return Request::of(SMALL_PATH, small_body()),
        };
        let mut headers = vec![cookie.to_owned()];
        if self == Self::List {
            headers.push("Accept-Encoding: gzip".into());
        }
        Request {
            path,
            before: path,
            json: (self == Self::Add).then_some(DRAFT),
            headers,
            expected: match self {
                // The servers frame it in their own ways; that it has the same content is a test's
                // affair.
                Self::List => Expected::Head(200, "content-encoding: gzip"),
                Self::Add => Expected::Json(201, |body| {
                    body["title"] == "A new one" && body["id"].is_number()
                }),
                _ => Expected::Json(200, |body| {
                    let (names, draft) = (["url", "title", "tags"], draft(500));
                    let is_it = names.iter().all(|name| body[name] == draft[name]);
                    is_it && body["id"] == 500 && body["added_by"] == USER
                }),
            },
        }
    }
}

impl Load for Asking {
    fn start<'a>(&'a self, ground: &'a Ground, row: &'a Row) -> io::Result<Turn<'a>> {
        let Self(asks, connections) = *self;
        let server = row.start(ground)?;
        let wrk = Wrk::kept(asks.request(&with_bookmarks(server.address)?), connections);
        let mut turn = wrk.turns(ground, row, server)?;
        if !ground.pace.is_quick {
            // Not counted: until threads, caches and connections to the database are there.
            turn()?;
        }
        Ok(turn)
    }

    fn tools(&self) -> &'static [Tool] {
        &[tools::WRK]
    }

    fn remarks(&self, ground: &Ground, table: &mut Table) -> Vec<String> {
        let asked = Wrk::kept(self.0.request(""), self.1);
        asked.remarks_of(ground.pace.seconds, table)
    }
}

impl Load for Listening {
    fn start<'a>(&'a self, ground: &'a Ground, row: &'a Row) -> io::Result<Turn<'a>> {
        Ok(Box::new(move || self.hear(&row.start(ground)?, ground)))
    }
}

impl Listening {
    fn hear(&self, server: &Server, ground: &Ground) -> io::Result<Run> {
        let (address, clients) = (server.address, u64::from(self.0));
        let cookie = with_bookmarks(address)?;
        let listen = format!("GET /api/events HTTP/1.1\r\nHost: localhost\r\n{cookie}\r\n\r\n");
        // They get cores as the server does: the next bookmark waits for them.
        let listeners = Listeners::connect(address, clients, listen.into_bytes(), false)?;
        let (mut socket, add) = (http::connect(address)?, Asks::Add.request(&cookie));
        let mut add = || add.check(&mut socket).map(drop);
        hear(&listeners, clients, SETTLE, &mut add)?;
        let heard = listeners.events();
        let (latencies, used) =
            server.watch(|| hear(&listeners, clients, ground.time(), &mut add))?;
        let events = listeners.events() - heard;
        let run = vec![
            (EVENTS, events as f64 / used.wall.as_secs_f64()),
            (CPU_EVENT, used.server_micros_over(events)),
            (HEARD, latencies.value_at_quantile(0.99) as f64),
            (ERRORS, 0.0),
            (LOST, listeners.ended() as f64),
        ];
        server.shown(&used, run)
    }
}

/// Adds bookmarks for so long, and waits until all clients have heard of each: the times that took,
/// in microseconds.
fn hear(
    listeners: &Listeners,
    clients: u64,
    time: Duration,
    add: &mut impl FnMut() -> io::Result<()>,
) -> io::Result<hdrhistogram::Histogram<u64>> {
    let mut latencies = histogram();
    let mut unheard = VecDeque::new();
    let (begin, mut wanted) = (Instant::now(), listeners.events());
    loop {
        let is_over = begin.elapsed() >= time;
        if is_over && unheard.is_empty() {
            return Ok(latencies);
        }
        match is_over || unheard.len() == AHEAD_MAX {
            true => thread::sleep(LOOK_EVERY),
            false => {
                wanted += clients;
                unheard.push_back((wanted, Instant::now()));
                add()?;
            }
        }
        let heard = listeners.events();
        while let Some((events, sent)) = unheard.front() {
            if heard < *events {
                if sent.elapsed() > PATIENCE {
                    let missing = events - heard;
                    return Err(io::Error::other(format!("{missing} events were not heard")));
                }
                break;
            }
            latencies.saturating_record(sent.elapsed().as_micros() as u64);
            unheard.pop_front();
        }
    }
}

/// Signs in and adds bookmarks: the line of a head that shows the session.
fn with_bookmarks(address: SocketAddr) -> io::Result<String> {
    let who = json!({"name": USER, "password": PASSWORD}).to_string();
    let json = "Content-Type: application/json\r\n";
    let (head, _) = post(address, "/api/session", json, &who, 204)?;
    let mut lines = head.lines().filter_map(|line| line.split_once(": "));
    let cookie = lines.find(|(name, _)| name.eq_ignore_ascii_case("set-cookie"));
    let cookie = cookie.and_then(|(_, line)| line.split(';').next());
    let cookie = format!("Cookie: {}", cookie.ok_or_else(|| unexpected(&head))?);
    let drafts: Vec<Value> = (1..=BOOKMARKS).map(draft).collect();
    let part = "--b\r\ncontent-disposition: form-data; name=\"file\"\r\n\r\n";
    let form = format!("{part}{}\r\n--b--\r\n", Value::from(drafts));
    let fields = format!("{cookie}\r\nContent-Type: multipart/form-data; boundary=b\r\n");
    let (_, body) = post(address, "/api/import", &fields, &form, 201)?;
    let body: Value = serde_json::from_str(&body)?;
    match body == json!({"added": BOOKMARKS}) {
        true => Ok(cookie),
        false => Err(unexpected(&body)),
    }
}

/// Posts once: all that was received, and the body.
fn post(
    address: SocketAddr,
    path: &str,
    fields: &str,
    body: &str,
    status: u16,
) -> io::Result<(String, String)> {
    let length = body.len();
    let head = format!("POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n");
    let request = format!("{head}{fields}\r\n{body}").into_bytes();
    let (received, framed) = http::exchange(&mut http::connect(address)?, &request)?;
    let [received, body] = [&received[..], &received[framed.body]]
        .map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    match framed.status == status {
        true => Ok((received, body)),
        false => Err(unexpected(&received)),
    }
}

/// What is imported with this number.
fn draft(number: usize) -> Value {
    json!({
        "url": format!("https://www.example.org/articles/{number}"),
        "title": format!("Article {number} about something or other"),
        "tags": ["article", format!("tag-{}", number % 7)],
    })
}

fn unexpected(reply: &(impl ToString + ?Sized)) -> io::Error {
    let message = format!("unexpected: {}", reply.to_string());
    io::Error::new(ErrorKind::InvalidData, message)
}
