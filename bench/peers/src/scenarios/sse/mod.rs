//! Many clients listen to server-sent events, one a second to all; others send ordinary requests.
//!
//! Each run starts its server anew and has four intervals:
//!
//! | interval | listeners | ordinary requests | columns |
//! |---|---|---|---|
//! | alone | none | paced | `alone p99` |
//! | listening | all | none | CPU per event, events per second |
//! | beside | all | paced | `beside p99` |
//! | control | all | paced, to another process | `control p99` |
//!
//! The other process is the same server without listeners: what the machine adds to a request while
//! events go out, as both ends of all connections share its cores. Clients would be on other
//! machines: so in a full run the thread that takes latencies gets a core first and the listeners
//! get one last ([`scheduling`]), and they look for events every few milliseconds, unwoken.
//!
//! Memory is `RssAnon`, after the listeners have had events, less what it was before they came.

pub(super) mod listeners;

use std::io;
use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use flatpath_bench_common::generator::{self, Counted, Plan, warm_up};
use flatpath_bench_common::http;
use flatpath_bench_common::nginx::{HELLO_BODY, HELLO_PATH};
use flatpath_bench_common::report::{BenchReport, Wanted};
use flatpath_bench_common::scheduling;
use flatpath_bench_common::servers::{ERRORS, LOST, Metric, Run};
use flatpath_bench_common::usage::{Reading, group_memory, thread_times};

use self::listeners::Listeners;
use crate::candidates::sse::EVENTS_PATH;
use crate::kind::Kind;
use crate::options::Scenario;
use crate::server::Server;
use crate::session::{Pinning, Session, common};

/// User-space memory a listener adds.
const MEMORY: Metric = Metric::median("B/listener");
/// CPU time of the server by the events received.
pub(super) const CPU_EVENT: Metric = Metric::median("CPU us/event");
pub(super) const EVENTS: Metric = Metric::median("events/s");
/// 99th percentile of ordinary requests: without listeners, beside them, and to another process.
const ALONE: Metric = Metric::median("alone p99 us");
const BESIDE: Metric = Metric::median("beside p99 us");
const CONTROL: Metric = Metric::median("control p99 us");
/// Threads of the server while all listen.
const THREADS: Metric = Metric::most("threads");

pub(super) const KINDS: [Kind; 3] = [Kind::SseAxum, Kind::SseUring, Kind::SseEpoll];
const OURS: [Kind; 2] = [Kind::SseUring, Kind::SseEpoll];

/// Most CPU time per event, beside axum in the same run.
const CPU_MAX: f64 = 0.7;
/// Most user-space memory of a listener.
const MEMORY_MAX: f64 = 1536.0;
/// Most of the latency of ordinary requests, beside that without listeners.
const BESIDE_MAX: f64 = 2.0;

/// Threads that may block: far fewer than listeners, so that none can be held by one.
const WORKERS: u32 = 2;
/// Ordinary requests: a calm rate, so that a wait is the server's and not a queue's.
const CONNECTIONS: usize = 8;
const REQUESTS_PER_SECOND: f64 = 1_000.0;
/// Events until everybody has had some, and buffers are put back.
const SETTLE: f64 = 2.5;

pub(super) fn run(session: &Session) -> io::Result<BenchReport> {
    let listeners = session.options.listeners();
    let name = format!("{listeners} listeners of server-sent events, one a second to all");
    let turn = |kind, (): &mut ()| measure(session, kind, listeners);
    let table = session.interleave(Scenario::Sse, &name, &KINDS, |_| Ok(()), turn)?;
    let table = table.with_ratio(CPU_EVENT, Kind::SseAxum);
    let mut report = BenchReport::of_servers("sse", name, table);
    for ours in OURS {
        let theirs = Kind::SseAxum;
        let wanted = Wanted::AtMost(CPU_MAX);
        report.target_of((ours, CPU_EVENT), Some((&theirs, CPU_EVENT)), wanted);
        report.target_of((ours, MEMORY), None, Wanted::AtMost(MEMORY_MAX));
        let wanted = Wanted::AtMost(BESIDE_MAX);
        report.target_of((ours, BESIDE), Some((&ours, ALONE)), wanted);
    }
    Ok(report)
}

fn measure(session: &Session, kind: Kind, clients: u32) -> io::Result<Run> {
    let options = &session.options;
    let (seconds, is_full) = (options.event_seconds(), !options.common.quick);
    // Near its limit a server closes what rests, to have room for newcomers.
    let places = clients + clients / 8;
    let setup = session.setup(Pinning::Free, Some(WORKERS), places);
    let server = Server::start(kind, &setup)?;
    http::check(server.address, HELLO_PATH, HELLO_BODY.as_bytes())?;
    warm_up(server.address, HELLO_PATH, HELLO_PATH)?;
    let alone = ask(&server, seconds, is_full)?;
    let before = group_memory(server.group())?.anonymous_kib;
    let listeners = Listeners::connect(
        server.address,
        clients.into(),
        http::request(EVENTS_PATH),
        is_full,
    )?;
    thread::sleep(setup.every.mul_f64(SETTLE));
    let added = group_memory(server.group())?
        .anonymous_kib
        .saturating_sub(before);
    let (heard, reading) = (listeners.events(), Reading::take(Some(server.group()))?);
    thread::sleep(seconds);
    let (events, used) = (listeners.events() - heard, reading.used()?);
    let threads = thread_times(server.group())?.count();
    let beside = ask(&server, seconds, is_full)?;
    let another = Server::start(kind, &setup)?;
    warm_up(another.address, HELLO_PATH, HELLO_PATH)?;
    let control = ask(&another, seconds, is_full)?;
    let errors = alone.errors + beside.errors + control.errors;
    let p99 = |counted: &Counted| counted.quick.value_at_quantile(0.99) as f64;
    let mut run = vec![
        (EVENTS, events as f64 / used.wall.as_secs_f64()),
        (CPU_EVENT, used.server_micros_over(events)),
        (MEMORY, (added * 1024) as f64 / f64::from(clients)),
        (ALONE, p99(&alone)),
        (BESIDE, p99(&beside)),
        (CONTROL, p99(&control)),
        (THREADS, threads as f64),
        (ERRORS, errors as f64),
        (LOST, listeners.ended() as f64),
    ];
    run.extend(common(&server, &used)?);
    Ok(run)
}

/// Ordinary requests for so long, from a thread of their own; it gets a core first if `is_first`.
fn ask(server: &Server, counted: Duration, is_first: bool) -> io::Result<Counted> {
    let address = server.address;
    let asks = thread::spawn(move || {
        if is_first && !scheduling::takes_latencies()? {
            eprintln!("only root may give the clients a core first: latencies hold their waits");
        }
        ask_from_here(address, counted)
    });
    let counted = asks.join();
    counted.unwrap_or_else(|_| Err(io::Error::other("the thread that asks panicked")))
}

fn ask_from_here(address: SocketAddr, counted: Duration) -> io::Result<Counted> {
    let plan = Plan {
        address,
        connections: CONNECTIONS,
        settle: Duration::from_millis(200),
        counted,
        quick_path: HELLO_PATH.to_owned(),
        sleep_path: HELLO_PATH.to_owned(),
        sleepers_per_mille: 0,
        requests_per_second: Some(REQUESTS_PER_SECOND),
    };
    let counted = generator::run(&plan, || Ok(()))?;
    if counted.quick.is_empty() {
        return Err(io::Error::other("not one reply to an ordinary request"));
    }
    Ok(counted)
}
