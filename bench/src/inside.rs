//! The whole server, before and after: the old way in the place of ours, everything else the same.
//!
//! Feature `before` only, as the product's own build has nothing of the old ways: see
//! `flatpath::before`. An HTTP server in this process, clients that keep their connections and
//! send the next request when all have their answer. Figures are those of the server's threads
//! alone, per request.
//!
//! - Pool: clients that have sent half a head hold a buffer each, and were there first; so every
//!   reply of the others walks past all of them.
//! - Dispatch: twice as many requests at a time as workers, each of which sleeps for 10 ms, as one
//!   that waits for a disk does. So most requests come while every worker is busy.

use std::collections::BTreeSet;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use flatpath::before::{Before, Walk};
use flatpath::{Protocol, Running, Server};
use flatpath_http::{Http, Request, Response};

use crate::Stage;
use crate::accept::server::{cpu_ns, tasks};
use crate::error::Error;
use crate::measure::per_operation;
use crate::plot::Plot;
use crate::report::{BenchReport, Column, Figure, Role, Row, Table, Wanted, ratio};

const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: bench\r\n\r\n";
const HALF_A_HEAD: &[u8] = b"GET / HTTP/1.1\r\nHost: be";
const PATIENCE: Duration = Duration::from_secs(20);
const WORK: Duration = Duration::from_millis(10);
const CPU: &str = "CPU us";
const WALL: &str = "wall us";
const NAMES: [&str; 3] = ["walked list", "fixed: test first", "ours"];
const WALKS: [Option<Walk>; 3] = [Some(Walk::Swap), Some(Walk::TestThenSwap), None];

/// A running server, and those who talk to it.
struct Arena {
    running: Running,
    tasks: BTreeSet<u32>,
    clients: Vec<TcpStream>,
    holders: Vec<TcpStream>,
    reply: Vec<u8>,
}

/// What one request costs.
#[derive(Clone, Copy, Debug)]
struct Cost {
    wall_us: f64,
    cpu_us: f64,
}

/// How many take part.
#[derive(Clone, Copy, Debug)]
struct Crowd {
    workers: u32,
    clients: usize,
    holders: usize,
}

impl Arena {
    fn start(protocol: impl Protocol, before: Before, crowd: Crowd) -> Result<Self, Error> {
        let failed = |error: flatpath::Error| Error::Server(error.to_string());
        let others = tasks(std::process::id())?;
        let server = Server::new()
            .listen("127.0.0.1:0", protocol)
            .workers(crowd.workers..=crowd.workers)
            .before(before);
        let running = server.start().map_err(failed)?;
        let all = tasks(std::process::id())?;
        let bound = running.addresses().first().map(|bound| bound.address);
        let address = bound.ok_or_else(|| Error::Server("it listens nowhere".into()))?;
        let connect = |count| (0..count).map(|_| dial(address)).collect::<io::Result<_>>();
        let mut holders: Vec<TcpStream> = connect(crowd.holders)?;
        for holder in &mut holders {
            holder.write_all(HALF_A_HEAD)?;
        }
        let mut clients: Vec<TcpStream> = connect(crowd.clients)?;
        let reply = match clients.first_mut() {
            Some(client) => first_reply(client)?,
            None => Vec::new(),
        };
        Ok(Self {
            running,
            tasks: all.difference(&others).copied().collect(),
            clients,
            holders,
            reply,
        })
    }

    /// Rounds of one request from each client, for as long as the slice.
    fn run(&mut self, slice: Duration) -> Result<Cost, Error> {
        let cpu = |tasks| {
            cpu_ns(std::process::id(), tasks).ok_or_else(|| Error::Server("it ended early".into()))
        };
        let before = cpu(&self.tasks)?;
        let (begin, mut requests) = (Instant::now(), 0_u64);
        while begin.elapsed() < slice {
            for client in &mut self.clients {
                client.write_all(REQUEST)?;
            }
            for client in &mut self.clients {
                client.read_exact(&mut self.reply)?;
                requests += 1;
            }
        }
        let wall = begin.elapsed();
        let cpu = Duration::from_nanos(cpu(&self.tasks)?.saturating_sub(before));
        Ok(Cost {
            wall_us: per_operation(wall, requests) / 1e3,
            cpu_us: per_operation(cpu, requests) / 1e3,
        })
    }

    fn stop(self) -> Result<(), Error> {
        drop((self.clients, self.holders));
        self.running.handle().drain();
        self.running
            .wait()
            .map_err(|error| Error::Server(error.to_string()))
    }
}

fn dial(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    Ok(stream)
}

/// All replies are as long as the first.
fn first_reply(client: &mut TcpStream) -> io::Result<Vec<u8>> {
    client.write_all(REQUEST)?;
    let mut reply = vec![0; 4_096];
    let mut length = 0;
    while !reply[..length].ends_with(b"\r\n\r\nok\n") {
        match client.read(&mut reply[length..])? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => length += count,
        }
    }
    reply.truncate(length);
    Ok(reply)
}

fn reply() -> Response {
    Response::new("ok\n".into())
}

fn table(title: &str, load: &'static str) -> Table {
    let roles = [Role::Before, Role::Fixed, Role::Ours];
    let columns = NAMES.iter().zip(roles);
    Table {
        title: title.into(),
        unit: "of the server, per request",
        labels: vec![load, "figure"],
        columns: columns
            .map(|(name, role)| Column::new(*name, role))
            .collect(),
        rows: Vec::new(),
    }
}

/// The three servers in turns; two rows.
fn measure(
    table: &mut Table,
    label: &str,
    mut arenas: Vec<Arena>,
    (rounds, slice): (usize, Duration),
) -> Result<(), Error> {
    let mut samples = vec![(Vec::new(), Vec::new()); arenas.len()];
    // The first round warms up.
    for round in 0..=rounds {
        for step in 0..arenas.len() {
            let index = (round + step) % arenas.len();
            let cost = arenas[index].run(slice)?;
            if round > 0 {
                samples[index].0.push(cost.cpu_us);
                samples[index].1.push(cost.wall_us);
            }
        }
    }
    for arena in arenas {
        arena.stop()?;
    }
    let cpu = samples.iter().map(|s| Some(Figure::of(&s.0))).collect();
    let wall = samples.iter().map(|s| Some(Figure::of(&s.1))).collect();
    for (name, figures) in [(CPU, cpu), (WALL, wall)] {
        table.rows.push(Row {
            labels: vec![label.into(), name.into()],
            figures,
            published: None,
        });
    }
    Ok(())
}

fn effort(stage: &Stage<'_>) -> (usize, Duration) {
    let millis = stage.pace.pick(250, 80, 2);
    (stage.pace.rounds(), Duration::from_millis(millis))
}

/// Pools of the real server.
pub(crate) fn pool(stage: &mut Stage<'_>, report: &mut BenchReport) -> Result<(), Error> {
    // Three servers, and both ends of every connection are here.
    let room = crate::accept::descriptors() / 6;
    let sizes: &[usize] = stage
        .pace
        .pick(&[10, 200, 1_000, 2_500], &[10, 2_500], &[5]);
    let mut table = table(
        "In the server: a request, while other connections hold a buffer each",
        "hold a buffer",
    );
    for &wished in sizes {
        let holders = wished.min(room);
        stage.step(&format!("buffers: in the server, {holders} connections"));
        let crowd = Crowd {
            workers: 1,
            clients: 8,
            holders,
        };
        let start = |pool: Option<Walk>| {
            let before = Before {
                pool,
                ..Before::default()
            };
            Arena::start(Http::inline(|_: &Request| reply()), before, crowd)
        };
        let arenas = WALKS.map(start).into_iter().collect::<Result<_, _>>()?;
        let effort = effort(stage);
        measure(&mut table, &holders.to_string(), arenas, effort)?;
    }
    let of = |held: usize, name| table.figure(&[&held.to_string(), CPU], name);
    let (few, many) = (sizes[0], sizes[sizes.len() - 1].min(room));
    let what = format!("in the server, ours: {many} connections with a buffer against {few}");
    let flat = ratio(of(many, NAMES[2]), of(few, NAMES[2]));
    report.target(what, "x", Wanted::AtMost(1.2), flat);
    let mut plot = Plot::lines(
        "in-server",
        &table,
        &[CPU],
        "connections that hold a buffer",
    );
    plot.y = "CPU us per request";
    report.plots.push(plot);
    report.tables.push(table);
    Ok(())
}

/// Dispatch of the real server.
pub(crate) fn dispatch(stage: &mut Stage<'_>, report: &mut BenchReport) -> Result<(), Error> {
    let sizes: &[u32] = stage.pace.pick(&[8, 32, 128, 512], &[8, 512], &[2]);
    let mut table = table(
        "In the server: a request that sleeps 10 ms in a worker, two at a time for each worker",
        "workers",
    );
    for &workers in sizes {
        stage.step(&format!("dispatch: in the server, {workers} workers"));
        let crowd = Crowd {
            workers,
            clients: 2 * workers as usize,
            holders: 0,
        };
        let work = |_: &Request| {
            std::thread::sleep(WORK);
            reply()
        };
        let start = |dispatch: Option<Walk>| {
            let before = Before {
                dispatch,
                ..Before::default()
            };
            Arena::start(Http::pooled(work), before, crowd)
        };
        let arenas = WALKS.map(start).into_iter().collect::<Result<_, _>>()?;
        let effort = effort(stage);
        measure(&mut table, &workers.to_string(), arenas, effort)?;
    }
    let mut plot = Plot::lines("in-server", &table, &[CPU], "workers");
    plot.y = "CPU us per request";
    report.plots.push(plot);
    report.tables.push(table);
    Ok(())
}
