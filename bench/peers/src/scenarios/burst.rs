//! All clients connect at once; each sends 128 bytes and wants them back.
//!
//! System calls are counted in a run of its own, whose time and CPU are not used: counting them
//! slows the server down.

use std::io;
use std::thread;
use std::time::Duration;

use flatpath_bench_common::crowd::{self, Arrival, Outcome};
use flatpath_bench_common::report::{BenchReport, Wanted};
use flatpath_bench_common::servers::{GENERATOR, LOST, Metric, Run, SERVED};
use flatpath_bench_common::system_calls::Counting;
use flatpath_bench_common::usage::{Reading, listen_overflows};
use flatpath_testkit::child::refuse_if_interrupted;

use crate::kind::Kind;
use crate::options::Scenario;
use crate::server::Server;
use crate::session::{Pinning, Session, common};

pub(super) const KINDS: [Kind; 3] = [Kind::TokioEcho, Kind::EchoSingle, Kind::EchoMultishot];

/// From the first connection attempt to the last reply.
const WALL: Metric = Metric::median("wall ms");
/// CPU time of the server in a whole run, and by connection.
const CPU: Metric = Metric::median("CPU ms");
const CPU_EACH: Metric = Metric::median("CPU us/conn");
/// System calls of the server by connection, from a run of its own.
const CALLS: Metric = Metric::median("syscalls/conn");
/// Connections the kernel dropped because the listen queue was full.
const OVERFLOWS: Metric = Metric::sum("overflows");

/// The server gets this long to see the last connections close; it counts as the server's time.
const SETTLE: Duration = Duration::from_millis(100);

pub(super) fn run(session: &Session) -> io::Result<BenchReport> {
    let clients = session.options.clients();
    let name = format!("{clients} clients at once, 128-byte echo");
    let setup = session.setup(Pinning::Free, None, clients);
    let start = |kind| Server::start(kind, &setup);
    let mut counted: Vec<Kind> = Vec::new();
    let mut counter = None;
    let turn = |kind, server: &mut Server| {
        let mut run = measure(server, clients)?;
        if !counted.contains(&kind) {
            counted.push(kind);
            run.push((CALLS, count_calls(server, clients, &mut counter)?));
        }
        Ok(run)
    };
    let table = session.interleave(Scenario::Burst, &name, &KINDS, start, turn)?;
    let table = table.with_ratio(CPU_EACH, Kind::EchoSingle);
    let mut report = BenchReport::of_servers("burst", name, table);
    report
        .notes
        .push("served and lost: sums over all runs".into());
    let by = counter.map(|name| format!("system calls counted by {name}, in a run of its own"));
    report.notes.extend(by);
    for kind in [Kind::EchoSingle, Kind::EchoMultishot] {
        report.target_of((kind, LOST), None, Wanted::AtMost(0.0));
    }
    Ok(report)
}

fn measure(server: &Server, clients: u32) -> io::Result<Run> {
    let before = Reading::take(Some(server.group()))?;
    let overflows = listen_overflows()?;
    let Outcome { served, lost, wall } = burst(server, clients)?;
    thread::sleep(SETTLE);
    let used = before.used()?;
    let overflows = listen_overflows()?.saturating_sub(overflows);
    let mut run = vec![
        (SERVED, f64::from(served)),
        (LOST, f64::from(lost)),
        (WALL, wall.as_secs_f64() * 1e3),
        (CPU, used.server.as_secs_f64() * 1e3),
        (CPU_EACH, used.server_micros_over(clients.into())),
        (OVERFLOWS, overflows as f64),
    ];
    // The crowd is always at its limit while it connects.
    let shown = common(server, &used)?
        .into_iter()
        .filter(|figure| figure.0 != GENERATOR);
    run.extend(shown);
    Ok(run)
}

fn burst(server: &Server, clients: u32) -> io::Result<Outcome> {
    crowd::at_once(
        server.address,
        clients,
        Arrival::TOGETHER,
        refuse_if_interrupted,
    )
}

fn count_calls(
    server: &Server,
    clients: u32,
    counter: &mut Option<&'static str>,
) -> io::Result<f64> {
    let counting = Counting::begin(server.group())?;
    *counter = Some(counting.name());
    burst(server, clients)?;
    thread::sleep(SETTLE);
    Ok(counting.finish()? as f64 / f64::from(clients))
}
