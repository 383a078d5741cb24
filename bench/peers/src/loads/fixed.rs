//! A fixed number of requests, and what one costs the server.
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

use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::time::Duration;

use flatpath_bench_common::http;
use flatpath_bench_common::servers::{CPU, Metric, Run};
use flatpath_bench_common::system_calls::Counting;
use flatpath_bench_common::tools::{self, Tool};
use flatpath_testkit::nfs;

use super::rounds::{Rounds, Way, nfs_call};
use super::websocket::Echoed;
use crate::comparison::{Load, Row, Turn};
use crate::ground::Ground;
use crate::instructions;
use crate::server::{Needs, Server};

/// User-space instructions of the server, divided by the requests.
pub(crate) const INSTRUCTIONS: Metric = Metric::median("instr/req");
/// System calls of the server, divided by the requests.
pub(crate) const CALLS: Metric = Metric::median("syscalls/req");

/// Requests that are counted by instruction or system call.
const COUNTED: u64 = 4000;
/// Requests before every count, so that caches, threads and pools are there.
const WARM_UP: u64 = 2000;
/// How long a server may take to end and to write its counts.
const FINISH: Duration = Duration::from_secs(60);
/// Bytes that a client of the relay sends before the other has to have them.
const RELAYED_BYTES: usize = 4 << 10;
const READ_BYTES: u32 = 4096;
const ECHO_BYTES: usize = 100;
/// Small enough for one reply.
const LIST_BYTES: u32 = 32 << 10;

/// This many connections that ask for something, again and again.
#[derive(Clone, Debug)]
pub(crate) struct Fixed {
    /// What is asked for by rows that ask for nothing of their own.
    pub(crate) asked: Asked,
    /// What else is asked for by the row of this name.
    pub(crate) others: Vec<(&'static str, Asked)>,
    pub(crate) connections: u32,
    /// Requests in a row on each.
    pub(crate) outstanding: u32,
    pub(crate) figure: Figure,
}

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Figure {
    /// CPU time, over this many requests a second: about what a core serves.
    Time(u64),
    /// Instructions and system calls.
    Instructions,
}

/// One request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// Method, path, a line of the head, and the status of the reply.
    Http(&'static str, &'static str, &'static str, u16),
    /// The same on a connection of its own.
    Closed(&'static str),
    GetAttr,
    /// 4 KiB.
    Read,
    ReadDirPlus,
    /// 4 KiB from one client of a pair to the other.
    Relayed,
    /// A WebSocket message of a line of a chat, which comes back.
    Echo,
}

impl Asked {
    /// The bytes that ask.
    fn request(self, address: SocketAddr) -> io::Result<Vec<u8>> {
        let http = |method, path, line: &str| {
            let end = if line.is_empty() { "" } else { "\r\n" };
            format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\n{line}{end}\r\n").into_bytes()
        };
        match self {
            Self::Http(method, path, line, _) => Ok(http(method, path, line)),
            Self::Closed(path) => Ok(http("GET", path, "Connection: close")),
            Self::GetAttr => nfs_call(address, |_, file| nfs::getattr(file)),
            Self::Read => nfs_call(address, |_, file| nfs::read(file, 0, READ_BYTES)),
            Self::ReadDirPlus => nfs_call(address, |root, _| {
                nfs::readdirplus(root, (0, 0), LIST_BYTES)
            }),
            Self::Relayed => Ok(vec![b'r'; RELAYED_BYTES]),
            Self::Echo => Ok(Echoed::new(ECHO_BYTES).sent),
        }
    }

    fn way(self) -> Way {
        match self {
            Self::Closed(_) => Way::Closed,
            Self::Relayed => Way::Relayed,
            Self::Echo => Way::Socket,
            _ => Way::Kept,
        }
    }

    /// Asks once over HTTP, and compares the status.
    fn check(self, address: SocketAddr) -> io::Result<()> {
        let Self::Http(.., status) = self else {
            return Ok(());
        };
        let (mut socket, mut reply) = (http::connect(address)?, vec![0; 13]);
        socket.write_all(&self.request(address)?)?;
        socket.read_exact(&mut reply)?;
        match reply == format!("HTTP/1.1 {status} ").as_bytes() {
            true => Ok(()),
            false => {
                let found = String::from_utf8_lossy(&reply).into_owned();
                Err(io::Error::other(format!("not {status} but {found}")))
            }
        }
    }
}

impl Fixed {
    fn rounds(&self, row: &Row, address: SocketAddr) -> io::Result<Rounds> {
        let mut others = self.others.iter();
        let other = others.find(|(name, _)| *name == row.name);
        let asked = other.map_or(self.asked, |(_, asked)| *asked);
        asked.check(address)?;
        Ok(Rounds {
            address,
            request: asked.request(address)?,
            connections: self.connections,
            outstanding: self.outstanding,
            way: asked.way(),
        })
    }
}

impl Load for Fixed {
    fn start<'a>(&'a self, ground: &'a Ground, row: &'a Row) -> io::Result<Turn<'a>> {
        let server = row.start(ground)?;
        let rounds = self.rounds(row, server.address)?;
        rounds.run(WARM_UP)?;
        Ok(Box::new(move || match self.figure {
            Figure::Time(each_second) => {
                let requests = each_second * u64::from(ground.pace.seconds);
                let before = server.threads()?;
                let requests = rounds.run(requests)?;
                let used = server.threads()?.since(&before);
                Ok(vec![(CPU, used.as_secs_f64() * 1e6 / requests as f64)])
            }
            Figure::Instructions => counted(ground, row, &server, &rounds),
        }))
    }

    fn tools(&self) -> &'static [Tool] {
        match self.figure {
            Figure::Time(_) => &[],
            Figure::Instructions => &[tools::STRACE, tools::VALGRIND],
        }
    }
}

/// What the requests of these rounds cost: `server` counts system calls; instructions are those of
/// servers started for them.
fn counted(ground: &Ground, row: &Row, server: &Server, rounds: &Rounds) -> io::Result<Run> {
    let counting = Counting::begin(server.group())?;
    let requests = rounds.run(COUNTED)?;
    let calls = counting.finish()? as f64 / requests as f64;
    let state = server.state();
    let once = instructions_of(ground, row, state, rounds, COUNTED)?;
    let twice = instructions_of(ground, row, state, rounds, 2 * COUNTED)?;
    let instructions = (twice.0 - once.0) / (twice.1 - once.1);
    Ok(vec![(INSTRUCTIONS, instructions), (CALLS, calls)])
}

/// Instructions from the start of a server to its end, and requests in between. The requests are
/// ones that another server with the same state was asked: callgrind knows no `openat2`, with which
/// an NFS server looks a name up, but handles need no name and are valid for both.
fn instructions_of(
    ground: &Ground,
    row: &Row,
    state: &std::path::Path,
    rounds: &Rounds,
    requests: u64,
) -> io::Result<(f64, f64)> {
    let directory = tempfile::tempdir()?;
    let counts = directory.path().join("counts");
    let needs = Needs {
        counts: Some(counts.clone()),
        state: Some(state.to_path_buf()),
        ..row.needs.clone()
    };
    let server = Row::named(&*row.name, row.kind, needs).start(ground)?;
    let rounds = Rounds {
        address: server.address,
        ..rounds.clone()
    };
    let requests = rounds.run(requests)?;
    server.finish(FINISH)?;
    Ok((instructions::total(&counts)?, requests as f64))
}
