//! One request in ten sleeps 10 ms in its handler: what do the other nine feel of it?
//!
//! Each run drives a server three times, and keeps the 99th percentile of the quick requests:
//!
//! | drive | sleepers | pace | column |
//! |---|---|---|---|
//! | with | 10 % | as fast as it goes | quick p99 |
//! | alone | none | as fast as it goes | alone |
//! | paced | none | the rate of "with" | alone, paced |
//!
//! "alone" is the comparison of the target. It is a lenient one: without sleepers the clients
//! saturate the server and queue behind each other. "paced" has no such queue and is stricter.

use std::io;
use std::time::Duration;

use hdrhistogram::Histogram;

use crate::bench::{Bench, Pinning, Reading, float, warm_up};
use crate::generator::{self, Counted, Plan};
use crate::metric::{Figures, Metric};
use crate::nginx::{HELLO_BODY, HELLO_PATH};
use crate::options::Scenario;
use crate::peers::SLEEP_PATH;
use crate::reply;
use crate::report::{Case, Ratio};
use crate::server::{Kind, Server};
use crate::target::{Bound, Figure, Target};

pub(super) const KINDS: [Kind; 5] = [
    Kind::HyperBlocking,
    Kind::HyperRouted,
    Kind::TinyHttp,
    Kind::FlatpathPooled,
    Kind::FlatpathRouted,
];

const CONNECTIONS: u32 = 200;
const WORKERS: u32 = 32;
const SLEEPERS_PER_MILLE: u32 = 100;
/// Traffic before each count: the closed loop finds its balance.
const SETTLE: Duration = Duration::from_millis(200);

/// Runs the scenario.
///
/// # Errors
/// Only if the harness was told to stop.
pub(super) fn run(bench: &Bench) -> io::Result<Case> {
    let name = format!("one in ten sleeps 10 ms, {CONNECTIONS} connections, {WORKERS} workers");
    let setup = bench.setup(Pinning::Free, Some(WORKERS), CONNECTIONS);
    let start = |kind| {
        let server = Server::start(kind, &setup)?;
        reply::check(server.address(), HELLO_PATH, HELLO_BODY.as_bytes())?;
        reply::check(server.address(), SLEEP_PATH, HELLO_BODY.as_bytes())?;
        warm_up(&server, HELLO_PATH, SLEEP_PATH)?;
        Ok(server)
    };
    let measure = |server: &Server| measure(server, bench.options.seconds());
    let rows = bench.interleave(Scenario::Sleepers, &name, &KINDS, start, measure)?;
    let ratios = vec![Ratio {
        metric: Metric::QuickP99Micros,
        to: Kind::HyperBlocking,
    }];
    let notes = vec![
        "alone: the same load without sleepers; paced: without them at the rate it had with them"
            .to_owned(),
    ];
    Ok(Case::new(name, rows, ratios, &targets(), notes))
}

fn measure(server: &Server, seconds: u32) -> io::Result<Figures> {
    let mut before = None;
    let with = drive(server, seconds, SLEEPERS_PER_MILLE, None, || {
        before = Some(Reading::take(server)?);
        Ok(())
    })?;
    let before = before.ok_or_else(|| io::Error::other("the counting never began"))?;
    let used = before.until_now(server)?;
    let rate = with.requests_per_second();
    let alone = drive(server, seconds, 0, None, || Ok(()))?;
    let paced = drive(server, seconds, 0, Some(rate), || Ok(()))?;
    let mut figures = used.figures();
    figures.extend([
        (Metric::RequestsPerSecond, rate),
        (
            Metric::ServerMicrosPerRequest,
            used.server_micros_over(with.requests()),
        ),
        (Metric::QuickP99Micros, p99(&with.quick)),
        (Metric::SleeperP99Micros, p99(&with.sleepers)),
        (Metric::QuickP99AloneMicros, p99(&alone.quick)),
        (Metric::QuickP99PacedMicros, p99(&paced.quick)),
        (
            Metric::Errors,
            float(with.errors + alone.errors + paced.errors),
        ),
    ]);
    Ok(figures)
}

fn drive(
    server: &Server,
    seconds: u32,
    sleepers_per_mille: u32,
    requests_per_second: Option<f64>,
    counting: impl FnOnce() -> io::Result<()>,
) -> io::Result<Counted> {
    let plan = Plan {
        address: server.address(),
        connections: CONNECTIONS as usize,
        settle: SETTLE,
        counted: Duration::from_secs(seconds.into()),
        quick_path: HELLO_PATH.to_owned(),
        sleep_path: SLEEP_PATH.to_owned(),
        sleepers_per_mille,
        requests_per_second,
    };
    let counted = generator::run(&plan, counting)?;
    if counted.quick.is_empty() {
        return Err(io::Error::other("not one quick reply"));
    }
    Ok(counted)
}

fn p99(latencies: &Histogram<u64>) -> f64 {
    float(latencies.value_at_quantile(0.99))
}

fn targets() -> [Target; 3] {
    let ours = |metric| Figure(Kind::FlatpathRouted, metric);
    let with = ours(Metric::QuickP99Micros);
    let theirs = Figure(Kind::HyperBlocking, Metric::QuickP99Micros);
    let target = |reference, bound| Target {
        subject: with,
        reference: Some(reference),
        bound,
    };
    [
        target(ours(Metric::QuickP99AloneMicros), Bound::AtMost(2.0)),
        target(ours(Metric::QuickP99PacedMicros), Bound::AtMost(2.0)),
        target(theirs, Bound::Below(1.0)),
    ]
}
