//! Memory of connections that were used once and now wait.
//!
//! Every connection asks once, so that whatever a server keeps per connection was touched. What
//! counts is `RssAnon`, the memory of the process itself: kernel socket memory is the same for
//! all, and what clients take is in the harness's process. Afterwards every connection asks once
//! more: one that was dropped is not idle but lost.
//!
//! Each run starts its server anew: memory once given to an allocator does not come back.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::Duration;

use flatpath_bench_common::generator;
use flatpath_bench_common::http;
use flatpath_bench_common::servers::{LOST, Metric, PEAK_MIB, Run, SERVED};
use flatpath_bench_common::source::Source;
use rustix::net::SocketFlags;

use super::newcomers;
use super::tls::Client;
use super::wrk::{Request, Wrk};
use crate::comparison::{Load, Row, Turn};
use crate::ground::Ground;
use crate::kind::Kind;
use crate::server::{Server, Service};

/// User-space memory an idle connection adds.
pub(crate) const IDLE: Metric = Metric::median("idle B/conn");
/// All memory of the process over the connections: what was set aside at start as well.
const ALL: Metric = Metric::median("all B/conn");
/// What a connection added at the moment of highest use.
const PEAK: Metric = Metric::most("peak B/conn");

/// How long a server gets to put buffers back after the last reply.
const SETTLE: Duration = Duration::from_millis(500);

/// This many connections. What they ask is what the row of the table has the kind for.
pub(crate) struct Idle {
    pub(crate) connections: u32,
    pub(crate) asked: fn(Kind) -> Request,
}

impl Load for Idle {
    fn start<'a>(&'a self, ground: &'a Ground, row: &'a Row) -> io::Result<Turn<'a>> {
        Ok(Box::new(move || self.measure(ground, row)))
    }
}

impl Idle {
    fn measure(&self, ground: &Ground, row: &Row) -> io::Result<Run> {
        let server = row.start(ground)?;
        let kind = row.kind.ok_or_else(|| io::Error::other("no server"))?;
        let asked = (self.asked)(kind);
        let (path, request) = (asked.path, http::request(asked.path));
        let connect = || connect(server.address, self.connections);
        if row.needs.service == Service::Https {
            let client = Client::new(&ground.issued, &[])?;
            Wrk::kept(asked, 1).check(&server, Some(&client))?;
            newcomers::warm_up(&client, server.address)?;
            let secured = || -> io::Result<Vec<_>> {
                connect()?.into_iter().map(|it| client.secure(it)).collect()
            };
            return of_crowd(&server, secured, |it| http::ask(it, &request).map(drop));
        }
        Wrk::kept(asked, 1).check(&server, None)?;
        generator::warm_up(server.address, path, path)?;
        of_crowd(&server, connect, |it| http::ask(it, &request).map(drop))
    }
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
    let before = server.memory()?;
    let mut crowd = connect()?;
    for socket in &mut crowd {
        ask(socket)?;
    }
    thread::sleep(SETTLE);
    let after = server.memory()?;
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
