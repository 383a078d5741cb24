//! Memory of connections that were used once and now wait.
//!
//! Every connection asks once, so that whatever a server keeps per connection was touched. What
//! counts is `RssAnon`, the memory of the process itself: kernel socket memory is the same for
//! all. Afterwards every connection asks once more: one that was dropped is not idle but lost.
//!
//! Each run starts its server anew: memory once given to an allocator does not come back.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use flatpath_bench_common::source::Source;
use rustix::net::SocketFlags;

use crate::bench::{Bench, Pinning, float, warm_up};
use crate::metric::{Figures, Metric};
use crate::options::Scenario;
use crate::proc;
use crate::reply;
use crate::report::{Case, Row};
use crate::server::{Kind, Server};
use crate::target::{Bound, Figure, Target};

pub(super) const KINDS: [Kind; 7] = [
    Kind::Nginx,
    Kind::Hyper,
    Kind::HyperBlocking,
    Kind::TinyHttp,
    Kind::FlatpathInline,
    Kind::FlatpathBefore,
    Kind::Flatpath,
];

/// How long a server gets to put buffers back after the last reply.
const SETTLE: Duration = Duration::from_millis(500);
/// How long a single reply may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// What the issue of this name allows per connection.
const BYTES_PER_CONNECTION_MAX: f64 = 1024.0;

/// Runs the scenario.
///
/// # Errors
/// Only if the harness was told to stop.
pub(super) fn run(bench: &Bench) -> io::Result<Case> {
    let clients = bench.options.clients();
    let name = format!("{clients} idle keep-alive connections");
    let mut rows: Vec<Row> = Vec::new();
    for kind in bench.options.choose(&KINDS) {
        rows.push(Row::new(kind, Vec::new(), None));
    }
    let runs = bench.options.runs(Scenario::Idle);
    for run in 1..=runs {
        for row in rows.iter_mut().filter(|row| row.failure.is_none()) {
            crate::children::refuse_if_interrupted()?;
            eprintln!("{name}: run {run}/{runs}: {}", row.server.label());
            match measure(bench, row.server, clients) {
                Ok(figures) => row.runs.push(figures),
                Err(error) => row.failure = Some(error.to_string()),
            }
        }
    }
    let rows = rows
        .into_iter()
        .map(|row| Row::new(row.server, row.runs, row.failure))
        .collect();
    Ok(Case::new(name, rows, Vec::new(), &targets(), Vec::new()))
}

fn measure(bench: &Bench, kind: Kind, clients: u32) -> io::Result<Figures> {
    let server = Server::start(kind, &bench.setup(Pinning::Free, None, clients))?;
    let (path, body) = super::path_and_body(kind);
    reply::check(server.address(), path, &body)?;
    warm_up(&server, path, path)?;
    thread::sleep(SETTLE);
    let before = proc::group_memory(server.group())?;
    let mut crowd = connect(&server, clients)?;
    let asked = reply::request(path);
    for socket in &mut crowd {
        ask(socket, &asked)?;
    }
    thread::sleep(SETTLE);
    let after = proc::group_memory(server.group())?;
    let alive = crowd
        .iter_mut()
        .filter_map(|socket| ask(socket, &asked).ok())
        .count();
    let per_connection =
        |before: u64, after: u64| float(after.saturating_sub(before) * 1024) / f64::from(clients);
    let alive = float(alive as u64);
    let all = float(after.anonymous_kib * 1024) / f64::from(clients);
    Ok(Figures::from([
        (
            Metric::IdleBytesPerConnection,
            per_connection(before.anonymous_kib, after.anonymous_kib),
        ),
        (
            Metric::PeakBytesPerConnection,
            per_connection(before.peak_kib, after.peak_kib),
        ),
        (Metric::AllBytesPerConnection, all),
        (Metric::PeakMib, float(after.peak_kib) / 1024.0),
        (Metric::Served, alive),
        (Metric::Lost, f64::from(clients) - alive),
    ]))
}

fn connect(server: &Server, clients: u32) -> io::Result<Vec<TcpStream>> {
    let mut source = Source::fresh();
    (0..clients)
        .map(|_| {
            let socket = TcpStream::from(source.dial(server.address(), SocketFlags::empty())?);
            socket.set_read_timeout(Some(PATIENCE))?;
            socket.set_write_timeout(Some(PATIENCE))?;
            Ok(socket)
        })
        .collect()
}

/// Asks once and reads the reply to its end.
fn ask(socket: &mut TcpStream, request: &[u8]) -> io::Result<()> {
    socket.write_all(request)?;
    let mut received = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let count = socket
            .read(&mut buffer)
            .map_err(|error| match error.kind() {
                io::ErrorKind::WouldBlock => {
                    io::Error::other(format!("no reply within {PATIENCE:?}"))
                }
                _ => error,
            })?;
        match count {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => received.extend_from_slice(&buffer[..count]),
        }
        match reply::frame(&received)? {
            None => {}
            Some(framed) if framed.status == 200 => return Ok(()),
            Some(framed) => return Err(io::Error::other(format!("status {}", framed.status))),
        }
    }
}

fn targets() -> [Target; 2] {
    [Kind::FlatpathInline, Kind::Flatpath].map(|kind| Target {
        subject: Figure(kind, Metric::IdleBytesPerConnection),
        reference: None,
        bound: Bound::AtMost(BYTES_PER_CONNECTION_MAX),
    })
}
