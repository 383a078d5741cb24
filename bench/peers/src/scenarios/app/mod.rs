//! An application of real size, and its twin in axum: what its users ask for, driven by wrk, and
//! events to all who listen.
//!
//! Both have a session to check, JSON, SQLite, and layers around each reply. Once with as many
//! threads as each library starts, and once with few that may block: SQLite has locks of its own,
//! so threads beyond the cores make every request cost more.

mod client;
mod events;

use std::io;
use std::net::SocketAddr;

use flatpath_bench_common::report::{BenchReport, Table, Wanted};
use flatpath_bench_common::servers::{CPU, Metric, P99, RATE};
use flatpath_bench_common::wrk::{Lifetime, Scheme};

use self::client::User;
use crate::kind::Kind;
use crate::options::Scenario;
use crate::server::Server;
use crate::session::{ACCEPTED, ANSWERED, Pinning, SMALL_PATH, Session, Target, small_body};

pub(super) const KINDS: [Kind; 3] = [Kind::AppAxum, Kind::AppUring, Kind::AppEpoll];
const OURS: [Kind; 2] = [Kind::AppUring, Kind::AppEpoll];

const CONNECTIONS: u32 = 50;
/// Few threads that may block: as many as the machine of the figures has cores.
const WORKERS: u32 = 4;
/// Threads that may block; nothing for each library's own default.
const POOLS: [Option<u32>; 2] = [None, Some(WORKERS)];
/// Bookmarks that are there at the start.
const BOOKMARKS: usize = 1000;
/// What the issue asks for, beside the twin in the same run.
const RATE_MIN: f64 = 1.2;
const CPU_MAX: f64 = 0.7;
const P99_MAX: f64 = 1.0;

const ADD_PATH: &str = "/api/bookmarks";
const FIND_PATH: &str = "/api/bookmarks/500";
/// The longest page.
const LIST_PATH: &str = "/api/bookmarks?after=300&limit=100";
const GZIP: &str = "Accept-Encoding: gzip";
const DRAFT: &str = r#"{"url":"https://www.example.org/new","title":"A new one","tags":["new"]}"#;

/// What is asked for.
#[derive(Clone, Copy, Debug)]
enum Case {
    Find,
    List,
    Add,
    File,
}

/// A server with bookmarks, and who is signed in.
struct Started {
    server: Server,
    user: User,
}

impl Started {
    fn of(session: &Session, kind: Kind, workers: Option<u32>, clients: u32) -> io::Result<Self> {
        let server = Server::start(kind, &session.setup(Pinning::Free, workers, clients))?;
        let user = User::sign_in(server.address)?;
        user.import(server.address, BOOKMARKS)?;
        Ok(Self { server, user })
    }
}

pub(super) fn run(session: &Session) -> io::Result<Vec<BenchReport>> {
    let mut reports = Vec::new();
    // A quick run shows that it works.
    let pools = session.options.sized(&POOLS[..], &POOLS[..1]);
    for workers in pools.iter().copied() {
        for case in [Case::Find, Case::List, Case::Add, Case::File] {
            reports.push(case.run(session, workers)?);
        }
        reports.push(events::run(session, workers)?);
    }
    Ok(reports)
}

/// The name of a table.
fn name(what: &str, clients: &str, workers: Option<u32>) -> String {
    let pool = match workers {
        Some(workers) => format!("{workers} workers"),
        None => "workers by default".into(),
    };
    format!("application: {what}, {clients}, {pool}")
}

/// The report of a table, with what is wanted of its rate, CPU and p99.
fn report(name: String, table: Table, [rate, cpu, p99]: [Metric; 3]) -> BenchReport {
    let theirs = Kind::AppAxum;
    let wanted = [
        (rate, Wanted::AtLeast(RATE_MIN)),
        (cpu, Wanted::AtMost(CPU_MAX)),
        (p99, Wanted::AtMost(P99_MAX)),
    ];
    let with_ratio = |table: Table, (metric, _)| table.with_ratio(metric, theirs);
    let table = wanted.into_iter().fold(table, with_ratio);
    let mut report = BenchReport::of_servers("app", name, table);
    for ours in OURS {
        for (metric, wanted) in wanted {
            report.target_of((ours, metric), Some((&theirs, metric)), wanted);
        }
    }
    report
}

impl Case {
    fn run(self, session: &Session, workers: Option<u32>) -> io::Result<BenchReport> {
        let name = name(self.what(), &format!("{CONNECTIONS} connections"), workers);
        let load = |started: &Started| {
            let headers = self.headers(&started.user);
            let target = Target {
                scheme: Scheme::Http,
                path: self.path(),
                json: matches!(self, Self::Add).then_some(DRAFT),
                headers: &headers,
                connections: CONNECTIONS,
                lifetime: Lifetime::KeepAlive,
                pinning: Pinning::Free,
            };
            let bytes = self.check(started.server.address, &started.user)?;
            session.load(&started.server, &target, bytes)
        };
        let start = |kind| {
            let started = Started::of(session, kind, workers, CONNECTIONS)?;
            if !session.options.common.quick {
                // Not counted: until threads, caches and connections to the database are there.
                load(&started)?;
            }
            Ok(started)
        };
        let turn = |_, started: &mut Started| load(started);
        let mut table = session.interleave(Scenario::App, &name, &KINDS, start, turn)?;
        table.drop_column(ACCEPTED);
        table.drop_column(ANSWERED);
        Ok(report(name, table, [RATE, CPU, P99]))
    }

    fn what(self) -> &'static str {
        match self {
            Self::Find => "GET one bookmark",
            Self::List => "GET a hundred, gzip",
            Self::Add => "POST that inserts",
            Self::File => "GET a file of 1 KiB",
        }
    }

    fn path(self) -> &'static str {
        match self {
            Self::Find => FIND_PATH,
            Self::List => LIST_PATH,
            Self::Add => ADD_PATH,
            Self::File => SMALL_PATH,
        }
    }

    /// Lines of the head beside the usual ones.
    fn headers(self, user: &User) -> Vec<String> {
        match self {
            Self::Find | Self::Add => vec![user.cookie_header()],
            Self::List => vec![user.cookie_header(), GZIP.into()],
            Self::File => Vec::new(),
        }
    }

    /// Asks once: the bytes of the reply.
    fn check(self, address: SocketAddr, user: &User) -> io::Result<usize> {
        match self {
            Self::Find => user.find(address, FIND_PATH, 500),
            Self::List => user.list(address, LIST_PATH, GZIP),
            Self::Add => user.add(address),
            Self::File => flatpath_bench_common::http::check(address, SMALL_PATH, &small_body()),
        }
    }
}
