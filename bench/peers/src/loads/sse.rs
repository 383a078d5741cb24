//! Many clients listen to server-sent events, which go to all; others send ordinary requests.
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
//! get one last (`scheduling`), and they look for events every few milliseconds, unwoken.
//!
//! Memory is `RssAnon`, after the listeners have had events, less what it was before they came.

use std::io;
use std::thread;
use std::time::Duration;

use flatpath_bench_common::generator::{self, Counted, Plan, warm_up};
use flatpath_bench_common::http;
use flatpath_bench_common::nginx::{HELLO_BODY, HELLO_PATH};
use flatpath_bench_common::servers::{ERRORS, LOST, Metric, Run};

use super::listeners::Listeners;
use crate::candidates::sse::EVENTS_PATH;
use crate::comparison::{Load, Row, Turn};
use crate::ground::Ground;
use crate::server::Server;

/// User-space memory a listener adds.
pub(crate) const MEMORY: Metric = Metric::median("B/listener");
/// CPU time of the server by the events received.
pub(crate) const CPU_EVENT: Metric = Metric::median("CPU us/event");
pub(crate) const EVENTS: Metric = Metric::median("events/s");
/// 99th percentile of ordinary requests: without listeners, beside them, and to another process.
pub(crate) const ALONE: Metric = Metric::median("alone p99 us");
pub(crate) const BESIDE: Metric = Metric::median("beside p99 us");
const CONTROL: Metric = Metric::median("control p99 us");
/// Threads of the server while all listen.
const THREADS: Metric = Metric::most("threads");

/// Ordinary requests: a calm rate, so that a wait is the server's and not a queue's.
const CONNECTIONS: usize = 8;
const REQUESTS_PER_SECOND: f64 = 1_000.0;
/// Events until everybody has had some, and buffers are put back.
const SETTLE: f64 = 2.5;

/// This many listeners, for so long.
pub(crate) struct Sse {
    pub(crate) listeners: u32,
    pub(crate) time: Duration,
}

impl Load for Sse {
    fn start<'a>(&'a self, ground: &'a Ground, row: &'a Row) -> io::Result<Turn<'a>> {
        Ok(Box::new(move || self.measure(ground, row)))
    }
}

impl Sse {
    fn measure(&self, ground: &Ground, row: &Row) -> io::Result<Run> {
        let (is_full, count) = (!ground.pace.is_quick, self.listeners.into());
        let server = row.start(ground)?;
        http::check(server.address, HELLO_PATH, HELLO_BODY.as_bytes())?;
        warm_up(server.address, HELLO_PATH, HELLO_PATH)?;
        let alone = self.ask(&server, is_full)?;
        let before = server.memory()?.anonymous_kib;
        let request = http::request(EVENTS_PATH);
        let listeners = Listeners::connect(server.address, count, request, is_full)?;
        thread::sleep(row.needs.every.mul_f64(SETTLE));
        let added = server.memory()?.anonymous_kib.saturating_sub(before);
        let (events, used) = server.watch(|| {
            let heard = listeners.events();
            thread::sleep(self.time);
            Ok(listeners.events() - heard)
        })?;
        let threads = server.threads()?.count();
        let beside = self.ask(&server, is_full)?;
        let another = row.start(ground)?;
        warm_up(another.address, HELLO_PATH, HELLO_PATH)?;
        let control = self.ask(&another, is_full)?;
        let errors = alone.errors + beside.errors + control.errors;
        let p99 = |counted: &Counted| counted.quick.value_at_quantile(0.99) as f64;
        let run = vec![
            (EVENTS, events as f64 / used.wall.as_secs_f64()),
            (CPU_EVENT, used.server_micros_over(events)),
            (MEMORY, (added * 1024) as f64 / f64::from(self.listeners)),
            (ALONE, p99(&alone)),
            (BESIDE, p99(&beside)),
            (CONTROL, p99(&control)),
            (THREADS, threads as f64),
            (ERRORS, errors as f64),
            (LOST, listeners.ended() as f64),
        ];
        server.shown(&used, run)
    }

    /// Ordinary requests, from a thread of their own; it gets a core first if `is_first`.
    fn ask(&self, server: &Server, is_first: bool) -> io::Result<Counted> {
        let plan = Plan {
            address: server.address,
            connections: CONNECTIONS,
            settle: Duration::from_millis(200),
            counted: self.time,
            quick_path: HELLO_PATH.to_owned(),
            sleep_path: HELLO_PATH.to_owned(),
            sleepers_per_mille: 0,
            requests_per_second: Some(REQUESTS_PER_SECOND),
        };
        let counted = super::apart(is_first, || generator::run(&plan, || Ok(())))?;
        if counted.quick.is_empty() {
            return Err(io::Error::other("not one reply to an ordinary request"));
        }
        Ok(counted)
    }
}
