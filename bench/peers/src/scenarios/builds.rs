//! What a request costs two builds of the server: the same options, the same requests, in turn.
//!
//! | figure | how |
//! |---|---|
//! | CPU time | the server's threads, in nanoseconds, over a fixed number of requests |
//! | instructions | callgrind, once with N requests and once with 2 N: the difference over N |
//! | system calls | strace or perf, over N requests |
//!
//! The last two do not depend on what else the machine does. callgrind knows no io_uring, so both
//! are counted with epoll; it runs one thread at a time, so work that is handed to workers is woken
//! for more often than in time.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use flatpath_bench_common::report::{BenchReport, Wanted};
use flatpath_bench_common::servers::{CPU, Metric, Run};
use flatpath_bench_common::system_calls::Counting;
use flatpath_bench_common::usage::thread_times;

use super::rounds::{self, Rounds, Way};
use crate::instructions;
use crate::kind::Kind;
use crate::options::Scenario;
use crate::server::{NFS, RELAY, Server, Setup};
use crate::session::{Pinning, SMALL_PATH, Session};

/// User-space instructions of the server, divided by the requests.
pub(super) const INSTRUCTIONS: Metric = Metric::median("instr/req");
/// System calls of the server, divided by the requests.
const CALLS: Metric = Metric::median("syscalls/req");

pub(super) const KINDS: [Kind; 5] = [
    Kind::FlatpathBefore,
    Kind::Flatpath,
    Kind::LibraryBefore,
    Kind::FlatpathInline,
    Kind::FlatpathPooled,
];

/// What the issues allow: one percent.
const RATIO_MAX: f64 = 1.01;
/// Far from the limit: near it connections are accepted one by one.
pub(super) const CONNECTIONS_MAX: u32 = 4096;
/// Requests that are counted by instruction or system call.
const COUNTED: u64 = 4000;
/// Requests before every count, so that caches, threads and pools are there.
pub(super) const WARM_UP: u64 = 2000;
/// How long a server may take to end and to write its counts.
const FINISH: Duration = Duration::from_secs(60);

/// One table.
#[derive(Clone, Copy)]
struct Load {
    name: &'static str,
    server: Kind,
    service: &'static str,
    request: Request,
    connections: u32,
    outstanding: u32,
    /// About what a core serves in a second.
    requests: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Request {
    Get(&'static str),
    GetAndClose(&'static str),
    Unchanged(&'static str),
    NfsRead,
    Relayed,
}

use Request::{Get, GetAndClose, NfsRead, Relayed, Unchanged};

const fn load(name: &'static str, request: Request, connections: u32, requests: u64) -> Load {
    Load {
        name,
        server: Kind::Flatpath,
        service: "http",
        request,
        connections,
        outstanding: 1,
        requests,
    }
}

const fn nfs(name: &'static str, outstanding: u32, requests: u64) -> Load {
    Load {
        service: NFS,
        outstanding,
        ..load(name, NfsRead, 1, requests)
    }
}

const fn relay(name: &'static str, connections: u32, requests: u64) -> Load {
    Load {
        service: RELAY,
        ..load(name, Relayed, connections, requests)
    }
}

const fn library(name: &'static str, server: Kind, requests: u64) -> Load {
    Load {
        server,
        ..load(name, Get("/"), 50, requests)
    }
}

const ABSENT: &str = "/absent";

/// Bytes that a client of the relay sends before the other has to have them.
const RELAYED_BYTES: usize = 4 << 10;

const LOADS: [Load; 12] = [
    load("hot file, kept", Get(SMALL_PATH), 50, 100_000),
    load("hot file, kept", Get(SMALL_PATH), 1, 30_000),
    load("hot file, closed", GetAndClose(SMALL_PATH), 50, 20_000),
    load("304 of a hot file", Unchanged(SMALL_PATH), 50, 100_000),
    load("404, through workers", Get(ABSENT), 50, 50_000),
    load("404, through workers", Get(ABSENT), 1, 15_000),
    nfs("NFS read of 4 KiB", 16, 50_000),
    nfs("NFS read of 4 KiB", 1, 15_000),
    relay("relay, 4 KiB", 50, 50_000),
    relay("relay, 4 KiB", 1, 15_000),
    library("fixed reply", Kind::FlatpathInline, 100_000),
    library("fixed reply, pooled", Kind::FlatpathPooled, 50_000),
];

/// Runs every comparison that the options have the programs for.
pub(super) fn run(session: &Session) -> io::Result<Vec<BenchReport>> {
    let library = session.options.before_peers.is_some();
    LOADS
        .iter()
        .filter(|load| library || load.server == Kind::Flatpath)
        .map(|load| load.run(session))
        .collect()
}

impl Load {
    fn run(&self, session: &Session) -> io::Result<BenchReport> {
        let (kinds, setup) = (self.kinds(), self.setup(session));
        let name = self.name();
        let counts = session.options.instructions;
        let requests = self.requests * u64::from(session.options.seconds());
        let start = |kind| {
            let server = Server::start(kind, &setup)?;
            self.rounds(server.address)?.run(WARM_UP)?;
            Ok(server)
        };
        let turn = |kind, server: &mut Server| {
            if counts {
                self.count(kind, server, &setup)
            } else {
                self.time(server, requests)
            }
        };
        let mut table = session.interleave(Scenario::Builds, &name, &kinds, start, turn)?;
        let metrics = if counts {
            &[INSTRUCTIONS, CALLS][..]
        } else {
            &[CPU]
        };
        let [before, now] = kinds;
        for metric in metrics {
            table = table.with_ratio(*metric, before);
        }
        let mut report = BenchReport::of_servers("builds", name, table);
        for metric in metrics {
            let wanted = Wanted::AtMost(RATIO_MAX);
            report.target_of((now, *metric), Some((&before, *metric)), wanted);
        }
        Ok(report)
    }

    fn setup<'a>(&self, session: &'a Session) -> Setup<'a> {
        let mut setup = session.setup(Pinning::GeneratorOnOneCore, None, self.connections);
        setup.service = self.service;
        setup.connections = CONNECTIONS_MAX;
        setup.library = Some(self.server);
        if session.options.instructions {
            setup.driver = "epoll";
        }
        setup
    }

    fn kinds(&self) -> [Kind; 2] {
        match self.server {
            Kind::Flatpath => [Kind::FlatpathBefore, Kind::Flatpath],
            library => [Kind::LibraryBefore, library],
        }
    }

    fn name(&self) -> String {
        let Self {
            name,
            connections,
            outstanding,
            ..
        } = self;
        format!("{name}, {connections} connections, {outstanding} outstanding")
    }

    fn rounds(&self, address: SocketAddr) -> io::Result<Rounds> {
        let get = |path, header| {
            format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{header}\r\n").into_bytes()
        };
        Ok(Rounds {
            address,
            request: match self.request {
                Get(path) => get(path, ""),
                GetAndClose(path) => get(path, "Connection: close\r\n"),
                Unchanged(path) => get(path, "If-None-Match: *\r\n"),
                NfsRead => rounds::nfs_read(address)?,
                Relayed => vec![b'r'; RELAYED_BYTES],
            },
            connections: self.connections,
            outstanding: self.outstanding,
            way: match self.request {
                GetAndClose(_) => Way::Closed,
                Relayed => Way::Relayed,
                _ => Way::Kept,
            },
        })
    }

    fn time(&self, server: &Server, requests: u64) -> io::Result<Run> {
        timed(server, &self.rounds(server.address)?, requests)
    }

    fn count(&self, kind: Kind, server: &Server, setup: &Setup<'_>) -> io::Result<Run> {
        counted(kind, server, setup, &self.rounds(server.address)?)
    }
}

/// What the requests of these rounds cost: `server` counts system calls; instructions are those of
/// servers started for them.
pub(super) fn counted(
    kind: Kind,
    server: &Server,
    setup: &Setup<'_>,
    rounds: &Rounds,
) -> io::Result<Run> {
    let counting = Counting::begin(server.group())?;
    let requests = rounds.run(COUNTED)?;
    let calls = counting.finish()? as f64 / requests as f64;
    let setup = Setup {
        state: Some(server.state().to_path_buf()),
        ..setup.clone()
    };
    let once = instructions(kind, &setup, rounds, COUNTED)?;
    let twice = instructions(kind, &setup, rounds, 2 * COUNTED)?;
    let instructions = (twice.0 - once.0) / (twice.1 - once.1);
    Ok(vec![(INSTRUCTIONS, instructions), (CALLS, calls)])
}

/// CPU time of a server over this many requests, divided by them.
pub(super) fn timed(server: &Server, rounds: &Rounds, requests: u64) -> io::Result<Run> {
    let before = thread_times(server.group())?;
    let requests = rounds.run(requests)?;
    let used = thread_times(server.group())?.since(&before);
    Ok(vec![(CPU, used.as_secs_f64() * 1e6 / requests as f64)])
}

/// Instructions from the start of a server to its end, and requests in between. The requests are
/// ones that another server with the same state was asked: callgrind knows no `openat2`, with which
/// an NFS server looks a name up, but handles need no name and are valid for both.
fn instructions(
    kind: Kind,
    setup: &Setup<'_>,
    rounds: &Rounds,
    requests: u64,
) -> io::Result<(f64, f64)> {
    let directory = tempfile::tempdir()?;
    let counts = directory.path().join("counts");
    let setup = Setup {
        counts: Some(counts.clone()),
        ..setup.clone()
    };
    let server = Server::start(kind, &setup)?;
    let rounds = Rounds {
        address: server.address,
        ..rounds.clone()
    };
    let requests = rounds.run(requests)?;
    server.finish(FINISH)?;
    Ok((instructions::total(&counts)?, requests as f64))
}
