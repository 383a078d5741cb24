//! Memory of connections that were used once and now wait.
//!
//! Every connection asks once, so that whatever a server keeps per connection was touched. What
//! counts is `RssAnon`, the memory of the process itself: kernel socket memory is the same for
//! all. Afterwards every connection asks once more: one that was dropped is not idle but lost.
//!
//! Each run starts its server anew: memory once given to an allocator does not come back.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::Duration;

use flatpath_bench_common::generator::warm_up;
use flatpath_bench_common::http;
use flatpath_bench_common::report::{BenchReport, Wanted};
use flatpath_bench_common::servers::{LOST, Metric, PEAK_MIB, Run, SERVED};
use flatpath_bench_common::source::Source;
use flatpath_bench_common::usage::group_memory;
use rustix::net::SocketFlags;

use crate::kind::Kind;
use crate::options::Scenario;
use crate::server::Server;
use crate::session::{Pinning, Session};

/// User-space memory an idle connection adds.
pub(super) const IDLE: Metric = Metric::median("idle B/conn");
/// All memory of the process over the connections: what was set aside at start as well.
const ALL: Metric = Metric::median("all B/conn");
/// What a connection added at the moment of highest use.
const PEAK: Metric = Metric::most("peak B/conn");

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
/// What the issue of this name allows per connection.
const BYTES_PER_CONNECTION_MAX: f64 = 1024.0;

pub(super) fn run(session: &Session) -> io::Result<BenchReport> {
    let clients = session.options.clients();
    let name = format!("{clients} idle keep-alive connections");
    let turn = |kind, (): &mut ()| measure(session, kind, clients);
    let table = session.interleave(Scenario::Idle, &name, &KINDS, |_| Ok(()), turn)?;
    let mut report = BenchReport::of_servers("idle", name, table);
    for kind in [Kind::FlatpathInline, Kind::Flatpath] {
        let wanted = Wanted::AtMost(BYTES_PER_CONNECTION_MAX);
        report.target_of((kind, IDLE), None, wanted);
    }
    Ok(report)
}

fn measure(session: &Session, kind: Kind, clients: u32) -> io::Result<Run> {
    let server = Server::start(kind, &session.setup(Pinning::Free, None, clients))?;
    let (path, body) = super::path_and_body(kind);
    http::check(server.address, path, &body)?;
    warm_up(server.address, path, path)?;
    let connect = || connect(server.address, clients);
    let request = http::request(path);
    of_crowd(&server, connect, |socket| {
        http::ask(socket, &request).map(drop)
    })
}

/// What the connections of a crowd add to a server that has already worked: each asks once, and
/// once more at the end.
///
/// # Errors
/// If one of them gets no first reply, or the server is gone.
pub(super) fn of_crowd<C>(
    server: &Server,
    connect: impl FnOnce() -> io::Result<Vec<C>>,
    ask: impl Fn(&mut C) -> io::Result<()>,
) -> io::Result<Run> {
    thread::sleep(SETTLE);
    let before = group_memory(server.group())?;
    let mut crowd = connect()?;
    for socket in &mut crowd {
        ask(socket)?;
    }
    thread::sleep(SETTLE);
    let after = group_memory(server.group())?;
    let alive = crowd.iter_mut().filter_map(|socket| ask(socket).ok());
    let alive = alive.count() as f64;
    let clients = crowd.len() as f64;
    let each = |kib: u64| (kib * 1024) as f64 / clients;
    let idle_kib = after.anonymous_kib.saturating_sub(before.anonymous_kib);
    let peak_kib = after.peak_kib.saturating_sub(before.peak_kib);
    Ok(vec![
        (SERVED, alive),
        (LOST, clients - alive),
        (IDLE, each(idle_kib)),
        (ALL, each(after.anonymous_kib)),
        (PEAK, each(peak_kib)),
        (PEAK_MIB, after.peak_kib as f64 / 1024.0),
    ])
}

/// As many connections, which have asked for nothing yet.
pub(super) fn connect(server: SocketAddr, clients: u32) -> io::Result<Vec<TcpStream>> {
    let mut source = Source::fresh();
    (0..clients)
        .map(|_| {
            let socket = source.dial(server, SocketFlags::empty())?;
            http::patient(TcpStream::from(socket))
        })
        .collect()
}
