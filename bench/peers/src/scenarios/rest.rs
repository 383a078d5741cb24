//! REST with SQLite: an item by its number, and an insertion, driven by wrk.
//!
//! Once as both libraries come, with as many threads as they start for it, and once with few:
//! SQLite has locks of its own, so threads beyond the cores make every request cost more.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;

use flatpath_bench_common::generator::warm_up;
use flatpath_bench_common::http;
use flatpath_bench_common::report::{BenchReport, Wanted};
use flatpath_bench_common::servers::{CPU, RATE};
use flatpath_bench_common::wrk::{Lifetime, Scheme};

use crate::candidates::rest::ITEMS;
use crate::kind::Kind;
use crate::options::Scenario;
use crate::server::Server;
use crate::session::{ACCEPTED, ANSWERED, Pinning, Session, Target};

pub(super) const KINDS: [Kind; 3] = [Kind::RestAxum, Kind::RestUring, Kind::RestEpoll];

const CONNECTIONS: u32 = 50;
/// Few threads that may block: as many as the machine of the figures has cores.
const WORKERS: u32 = 4;
/// Threads that may block; nothing for each library's own default.
const POOLS: [Option<u32>; 2] = [None, Some(WORKERS)];
/// What the issue asks for, beside axum in the same run.
const RATE_MIN: f64 = 1.7;
const CPU_MAX: f64 = 0.6;
const READ_PATH: &str = "/items/500";
const READ_BODY: &[u8] = br#"{"id":500,"name":"item 500","cents":500}"#;
const ADD_PATH: &str = "/items";
const NEW: &str = r#"{"name":"a new item","cents":1250}"#;

/// What is asked for.
#[derive(Clone, Copy, Debug)]
enum Case {
    Read,
    Add,
}

pub(super) fn run(session: &Session) -> io::Result<Vec<BenchReport>> {
    [Case::Read, Case::Add]
        .into_iter()
        .flat_map(|case| POOLS.map(|workers| (case, workers)))
        .map(|(case, workers)| case.run(session, workers))
        .collect()
}

impl Case {
    fn run(self, session: &Session, workers: Option<u32>) -> io::Result<BenchReport> {
        let what = match self {
            Self::Read => "GET by id",
            Self::Add => "POST that inserts",
        };
        let pool = match workers {
            Some(workers) => format!("{workers} workers"),
            None => "workers by default".into(),
        };
        let name = format!("{what}, JSON and SQLite, {CONNECTIONS} connections, {pool}");
        let setup = session.setup(Pinning::Free, workers, CONNECTIONS);
        let start = |kind| {
            let server = Server::start(kind, &setup)?;
            warm_up(server.address, READ_PATH, READ_PATH)?;
            Ok(server)
        };
        let turn = |_, server: &mut Server| {
            let target = Target {
                scheme: Scheme::Http,
                path: self.path(),
                json: self.json(),
                headers: &[],
                connections: CONNECTIONS,
                lifetime: Lifetime::KeepAlive,
                pinning: Pinning::Free,
            };
            session.load(server, &target, self.check(server.address)?)
        };
        let mut table = session.interleave(Scenario::Rest, &name, &KINDS, start, turn)?;
        table.drop_column(ACCEPTED);
        table.drop_column(ANSWERED);
        let table = table
            .with_ratio(CPU, Kind::RestAxum)
            .with_ratio(RATE, Kind::RestAxum);
        let mut report = BenchReport::of_servers("rest", name, table);
        let theirs = Kind::RestAxum;
        for ours in [Kind::RestUring, Kind::RestEpoll] {
            let (rate, cpu) = (Wanted::AtLeast(RATE_MIN), Wanted::AtMost(CPU_MAX));
            report.target_of((ours, RATE), Some((&theirs, RATE)), rate);
            report.target_of((ours, CPU), Some((&theirs, CPU)), cpu);
        }
        Ok(report)
    }

    fn path(self) -> &'static str {
        match self {
            Self::Read => READ_PATH,
            Self::Add => ADD_PATH,
        }
    }

    /// What is sent.
    fn json(self) -> Option<&'static str> {
        match self {
            Self::Read => None,
            Self::Add => Some(NEW),
        }
    }

    /// Asks once: the bytes of the reply.
    fn check(self, address: SocketAddr) -> io::Result<usize> {
        match self {
            Self::Read => http::check(address, READ_PATH, READ_BODY),
            Self::Add => inserted(address),
        }
    }
}

/// Inserts an item: it must come back with a number that was free.
fn inserted(address: SocketAddr) -> io::Result<usize> {
    let request = format!(
        "POST {ADD_PATH} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n{NEW}",
        NEW.len()
    );
    let mut socket = http::connect(address)?;
    let (received, framed) = http::exchange(&mut socket, request.as_bytes())?;
    let body = &received[framed.body.clone()];
    let item: serde_json::Value = serde_json::from_slice(body)?;
    let is_new = item["id"].as_i64().is_some_and(|id| id > ITEMS);
    if framed.status == 201 && is_new && item["name"] == "a new item" && item["cents"] == 1250 {
        return Ok(framed.bytes());
    }
    let message = format!("status {}, {item}", framed.status);
    Err(io::Error::new(ErrorKind::InvalidData, message))
}
