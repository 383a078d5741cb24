//! Clients that listen to the application's events, while bookmarks are added as fast as all of
//! them hear of it.
//!
//! At most [`AHEAD_MAX`] bookmarks have been added of which some client has not heard: far fewer
//! than a listener may be behind. A latency is the time from the request that adds one until all
//! clients together have had as many events. The clients look for events every few milliseconds,
//! and that is in it, for each server alike.

use std::collections::VecDeque;
use std::io;
use std::thread;
use std::time::{Duration, Instant};

use flatpath_bench_common::http;
use flatpath_bench_common::measure::histogram;
use flatpath_bench_common::report::BenchReport;
use flatpath_bench_common::servers::{ERRORS, LOST, Metric, Run};
use flatpath_bench_common::usage::Reading;

use super::super::sse::listeners::Listeners;
use super::super::sse::{CPU_EVENT, EVENTS};
use super::{KINDS, Started, name, report};
use crate::kind::Kind;
use crate::options::Scenario;
use crate::session::{Session, common};

/// 99th percentile of the time until all have heard.
const HEARD: Metric = Metric::median("heard p99 us");

/// Bookmarks of which some client has not heard yet.
const AHEAD_MAX: usize = 16;
/// Between two looks at what has been heard.
const LOOK_EVERY: Duration = Duration::from_micros(200);
/// How long an event may take to all.
const PATIENCE: Duration = Duration::from_secs(10);
/// Not counted, in front of each run.
const SETTLE: Duration = Duration::from_millis(300);

pub(super) fn run(session: &Session, workers: Option<u32>) -> io::Result<BenchReport> {
    let clients = session.options.app_listeners();
    let name = name("events", &format!("{clients} listeners"), workers);
    let turn = |kind, (): &mut ()| measure(session, kind, workers, clients);
    let table = session.interleave(Scenario::App, &name, &KINDS, |_| Ok(()), turn)?;
    Ok(report(name, table, [EVENTS, CPU_EVENT, HEARD]))
}

fn measure(session: &Session, kind: Kind, workers: Option<u32>, clients: u32) -> io::Result<Run> {
    // Near its limit a server closes what rests, to have room for newcomers.
    let Started { server, user } = Started::of(session, kind, workers, clients + clients / 8)?;
    // They get cores as the server does: the next bookmark waits for them.
    let listeners = Listeners::connect(server.address, clients.into(), user.listen(), false)?;
    let mut socket = http::connect(server.address)?;
    let mut add = || user.add_on(&mut socket).map(drop);
    hear(&listeners, clients, SETTLE, &mut add)?;
    let (heard, reading) = (listeners.events(), Reading::take(Some(server.group()))?);
    let seconds = Duration::from_secs(session.options.seconds().into());
    let latencies = hear(&listeners, clients, seconds, &mut add)?;
    let (events, used) = (listeners.events() - heard, reading.used()?);
    let mut run = vec![
        (EVENTS, events as f64 / used.wall.as_secs_f64()),
        (CPU_EVENT, used.server_micros_over(events)),
        (HEARD, latencies.value_at_quantile(0.99) as f64),
        (ERRORS, 0.0),
        (LOST, listeners.ended() as f64),
    ];
    run.extend(common(&server, &used)?);
    Ok(run)
}

/// Adds bookmarks for so long, and waits until all clients have heard of each: the times that took,
/// in microseconds.
fn hear(
    listeners: &Listeners,
    clients: u32,
    time: Duration,
    add: &mut impl FnMut() -> io::Result<()>,
) -> io::Result<hdrhistogram::Histogram<u64>> {
    let mut latencies = histogram();
    let mut unheard = VecDeque::new();
    let (begin, mut wanted) = (Instant::now(), listeners.events());
    loop {
        let is_over = begin.elapsed() >= time;
        if is_over && unheard.is_empty() {
            return Ok(latencies);
        }
        match is_over || unheard.len() == AHEAD_MAX {
            true => thread::sleep(LOOK_EVERY),
            false => {
                wanted += u64::from(clients);
                unheard.push_back((wanted, Instant::now()));
                add()?;
            }
        }
        let heard = listeners.events();
        while let Some((events, sent)) = unheard.front() {
            if heard < *events {
                if sent.elapsed() > PATIENCE {
                    let missing = events - heard;
                    return Err(io::Error::other(format!("{missing} events were not heard")));
                }
                break;
            }
            latencies.saturating_record(sent.elapsed().as_micros() as u64);
            unheard.pop_front();
        }
    }
}
