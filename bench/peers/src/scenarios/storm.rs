//! Everybody connects at once; each sends 128 bytes and wants them back.
//!
//! System calls are counted in a run of its own, whose time and CPU are not used: counting them
//! slows the server down.

use std::io;
use std::thread;
use std::time::Duration;

use flatpath_bench_common::crowd::{self, Manner, Visit};

use crate::bench::{Bench, Pinning, Reading, float};
use crate::calls;
use crate::children::refuse_if_interrupted;
use crate::metric::{Figures, Metric};
use crate::options::Scenario;
use crate::report::{Case, Ratio};
use crate::server::{Kind, Server};
use crate::target::{Bound, Figure, Target};

pub(super) const KINDS: [Kind; 3] = [Kind::TokioEcho, Kind::EchoSingle, Kind::EchoMultishot];

/// The server gets this long to see the last connections close; it counts as the server's time.
const SETTLE: Duration = Duration::from_millis(100);

/// Runs the scenario.
///
/// # Errors
/// Only if the harness was told to stop.
pub(super) fn run(bench: &Bench) -> io::Result<Case> {
    let clients = bench.options.clients();
    let name = format!("{clients} clients at once, 128-byte echo");
    let setup = bench.setup(Pinning::Free, None, clients);
    let start = |kind| Server::start(kind, &setup);
    let mut counted: Vec<Kind> = Vec::new();
    let mut counter = None;
    let measure = |server: &Server| {
        let mut figures = measure(server, clients)?;
        if !counted.contains(&server.kind()) {
            counted.push(server.kind());
            let calls = count_calls(server, clients, &mut counter)?;
            figures.insert(Metric::SystemCallsPerConnection, calls);
        }
        Ok(figures)
    };
    let rows = bench.interleave(Scenario::Storm, &name, &KINDS, start, measure)?;
    let ratios = vec![Ratio {
        metric: Metric::ServerMicrosPerConnection,
        to: Kind::EchoSingle,
    }];
    let mut notes = vec!["served and lost: sums over all runs".to_owned()];
    notes
        .extend(counter.map(|name| format!("system calls counted by {name}, in a run of its own")));
    Ok(Case::new(name, rows, ratios, &targets(), notes))
}

fn measure(server: &Server, clients: u32) -> io::Result<Figures> {
    let before = Reading::take(server)?;
    let overflows = crate::proc::listen_overflows()?;
    let Visit { served, lost, wall } = storm(server, clients)?;
    thread::sleep(SETTLE);
    let used = before.until_now(server)?;
    let overflows = crate::proc::listen_overflows()?.saturating_sub(overflows);
    let mut figures = used.figures();
    // The crowd is always at its limit while it connects.
    figures.remove(&Metric::GeneratorPercent);
    figures.extend([
        (Metric::Served, f64::from(served)),
        (Metric::Lost, f64::from(lost)),
        (Metric::WallMillis, wall.as_secs_f64() * 1e3),
        (Metric::ServerMillis, used.server_millis()),
        (
            Metric::ServerMicrosPerConnection,
            used.server_micros_over(clients.into()),
        ),
        (Metric::ListenOverflows, float(overflows)),
    ]);
    Ok(figures)
}

/// Lets the crowd loose.
fn storm(server: &Server, clients: u32) -> io::Result<Visit> {
    crowd::at_once(
        server.address(),
        clients,
        Manner::TOGETHER,
        refuse_if_interrupted,
    )
}

fn count_calls(
    server: &Server,
    clients: u32,
    counter: &mut Option<&'static str>,
) -> io::Result<f64> {
    let counting = calls::Counting::begin(server.group())?;
    *counter = Some(counting.name());
    storm(server, clients)?;
    thread::sleep(SETTLE);
    Ok(float(counting.finish()?) / f64::from(clients))
}

fn targets() -> [Target; 2] {
    [Kind::EchoSingle, Kind::EchoMultishot].map(|kind| Target {
        subject: Figure(kind, Metric::Lost),
        reference: None,
        bound: Bound::AtMost(0.0),
    })
}
