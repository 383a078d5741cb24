//! One request in ten sleeps 10 ms in its handler: what do the other nine feel of it?
//!
//! Each run drives a server three times, and keeps the 99th percentile of the quick requests:
//!
//! | drive | sleepers | rate | column |
//! |---|---|---|---|
//! | with | 10 % | as fast as it goes | quick p99 |
//! | alone | none | as fast as it goes | alone |
//! | paced | none | the rate of "with" | alone, paced |
//!
//! "alone" is the comparison of the target. It is a lenient one: without sleepers the clients
//! saturate the server and wait for each other. "paced" has no such queue and is stricter.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use flatpath_bench_common::generator::{self, Counted, Plan, warm_up};
use flatpath_bench_common::http;
use flatpath_bench_common::nginx::{HELLO_BODY, HELLO_PATH};
use flatpath_bench_common::report::{BenchReport, Wanted};
use flatpath_bench_common::servers::{CPU, ERRORS, Metric, RATE, Run};
use flatpath_bench_common::usage::Reading;
use hdrhistogram::Histogram;

use crate::candidates::SLEEP_PATH;
use crate::kind::Kind;
use crate::options::Scenario;
use crate::server::Server;
use crate::session::{Pinning, Session, common};

/// 99th percentile of the quick requests while some of the others sleep.
const QUICK: Metric = Metric::median("quick p99 us");
/// The same server and load without sleepers, as many requests as it can serve.
const ALONE: Metric = Metric::median("alone");
/// The same server without sleepers, at the request rate it had with them.
const PACED: Metric = Metric::median("alone, paced");
/// 99th percentile of the sleeping requests.
const SLEEPER: Metric = Metric::median("sleeper p99");

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

pub(super) fn run(session: &Session) -> io::Result<BenchReport> {
    let name = format!("one in ten sleeps 10 ms, {CONNECTIONS} connections, {WORKERS} workers");
    let setup = session.setup(Pinning::Free, Some(WORKERS), CONNECTIONS);
    let start = |kind| {
        let server = Server::start(kind, &setup)?;
        http::check(server.address, HELLO_PATH, HELLO_BODY.as_bytes())?;
        http::check(server.address, SLEEP_PATH, HELLO_BODY.as_bytes())?;
        warm_up(server.address, HELLO_PATH, SLEEP_PATH)?;
        Ok(server)
    };
    let turn = |_, server: &mut Server| measure(server, session.options.seconds());
    let table = session.interleave(Scenario::Sleepers, &name, &KINDS, start, turn)?;
    let table = table.with_ratio(QUICK, Kind::HyperBlocking);
    let mut report = BenchReport::of_servers("sleepers", name, table);
    report.notes.push(
        "alone: the same load without sleepers; paced: without them at the rate it had with them"
            .into(),
    );
    let ours = Kind::FlatpathRouted;
    report.target_of((ours, QUICK), Some((&ours, ALONE)), Wanted::AtMost(2.0));
    report.target_of((ours, QUICK), Some((&ours, PACED)), Wanted::AtMost(2.0));
    let theirs = (&Kind::HyperBlocking as _, QUICK);
    report.target_of((ours, QUICK), Some(theirs), Wanted::Below(1.0));
    Ok(report)
}

fn measure(server: &Server, seconds: u32) -> io::Result<Run> {
    let mut before = None;
    let with = drive(server.address, seconds, SLEEPERS_PER_MILLE, None, || {
        before = Some(Reading::take(Some(server.group()))?);
        Ok(())
    })?;
    let before = before.ok_or_else(|| io::Error::other("the counting never began"))?;
    let used = before.used()?;
    let rate = with.requests_per_second();
    let alone = drive(server.address, seconds, 0, None, || Ok(()))?;
    let paced = drive(server.address, seconds, 0, Some(rate), || Ok(()))?;
    let errors = with.errors + alone.errors + paced.errors;
    let mut run = vec![
        (RATE, rate),
        (CPU, used.server_micros_over(with.requests())),
        (QUICK, p99(&with.quick)),
        (ALONE, p99(&alone.quick)),
        (PACED, p99(&paced.quick)),
        (SLEEPER, p99(&with.sleepers)),
        (ERRORS, errors as f64),
    ];
    run.extend(common(server, &used)?);
    Ok(run)
}

fn drive(
    address: SocketAddr,
    seconds: u32,
    sleepers_per_mille: u32,
    requests_per_second: Option<f64>,
    counting: impl FnOnce() -> io::Result<()>,
) -> io::Result<Counted> {
    let plan = Plan {
        address,
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
    latencies.value_at_quantile(0.99) as f64
}
