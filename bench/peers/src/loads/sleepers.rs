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
use flatpath_bench_common::servers::{CPU, ERRORS, Metric, RATE, Run};
use flatpath_bench_common::usage::Reading;
use hdrhistogram::Histogram;

use crate::candidates::serve::SLEEP_PATH;
use crate::comparison::{Load, Row, Turn};
use crate::ground::Ground;
use crate::server::Server;

/// 99th percentile of the quick requests while some of the others sleep.
pub(crate) const QUICK: Metric = Metric::median("quick p99 us");
/// The same server and load without sleepers, as many requests as it can serve.
pub(crate) const ALONE: Metric = Metric::median("alone");
/// The same server without sleepers, at the request rate it had with them.
pub(crate) const PACED: Metric = Metric::median("alone, paced");
/// 99th percentile of the sleeping requests.
const SLEEPER: Metric = Metric::median("sleeper p99");

const SLEEPERS_PER_MILLE: u32 = 100;
/// Traffic before each count: the closed loop finds its balance.
const SETTLE: Duration = Duration::from_millis(200);

/// This many connections.
pub(crate) struct Sleepers(pub(crate) u32);

impl Load for Sleepers {
    fn start<'a>(&'a self, ground: &'a Ground, row: &'a Row) -> io::Result<Turn<'a>> {
        let server = row.start(ground)?;
        http::check(server.address, HELLO_PATH, HELLO_BODY.as_bytes())?;
        http::check(server.address, SLEEP_PATH, HELLO_BODY.as_bytes())?;
        warm_up(server.address, HELLO_PATH, SLEEP_PATH)?;
        Ok(Box::new(move || self.measure(&server, ground.time())))
    }
}

impl Sleepers {
    fn measure(&self, server: &Server, time: Duration) -> io::Result<Run> {
        let (address, mut before) = (server.address, None);
        let with = self.drive(address, time, SLEEPERS_PER_MILLE, None, || {
            before = Some(Reading::take(Some(server.group()))?);
            Ok(())
        })?;
        let before = before.ok_or_else(|| io::Error::other("the counting never began"))?;
        let (used, rate) = (before.used()?, with.requests_per_second());
        let alone = self.drive(address, time, 0, None, || Ok(()))?;
        let paced = self.drive(address, time, 0, Some(rate), || Ok(()))?;
        let errors = with.errors + alone.errors + paced.errors;
        let run = vec![
            (RATE, rate),
            (CPU, used.server_micros_over(with.requests())),
            (QUICK, p99(&with.quick)),
            (ALONE, p99(&alone.quick)),
            (PACED, p99(&paced.quick)),
            (SLEEPER, p99(&with.sleepers)),
            (ERRORS, errors as f64),
        ];
        server.shown(&used, run)
    }

    fn drive(
        &self,
        address: SocketAddr,
        counted: Duration,
        sleepers_per_mille: u32,
        requests_per_second: Option<f64>,
        counting: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<Counted> {
        let plan = Plan {
            address,
            connections: self.0 as usize,
            settle: SETTLE,
            counted,
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
}

fn p99(latencies: &Histogram<u64>) -> f64 {
    latencies.value_at_quantile(0.99) as f64
}
