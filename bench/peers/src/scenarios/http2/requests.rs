//! The small file on kept connections, driven by h2load.

use std::io;

use flatpath_bench_common::h2load::Load;
use flatpath_bench_common::report::{BenchReport, Wanted};
use flatpath_bench_common::servers::{CPU, ERRORS, P50, P99, RATE, REPLY_BYTES};
use flatpath_bench_common::usage::Reading;
use flatpath_bench_common::wrk::Scheme;

use super::{Bench, kinds, ours, over};
use crate::kind::Kind;
use crate::options::Scenario;
use crate::server::Server;
use crate::session::common;

const CONNECTIONS: u32 = 50;

/// One table.
struct Shape {
    /// Requests at once on each connection.
    streams: u32,
    /// Most of nginx's CPU time per request.
    cpu_max: f64,
}

const SHAPES: [Shape; 2] = [
    Shape {
        streams: 1,
        cpu_max: 0.7,
    },
    Shape {
        streams: 32,
        cpu_max: 0.4,
    },
];

pub(super) fn run(bench: &Bench<'_>, scheme: Scheme) -> io::Result<Vec<BenchReport>> {
    let shapes = SHAPES.iter();
    shapes.map(|shape| shape.run(bench, scheme)).collect()
}

impl Shape {
    fn run(&self, bench: &Bench<'_>, scheme: Scheme) -> io::Result<BenchReport> {
        let (over, streams) = (over(scheme), self.streams);
        let name = format!(
            "small file by {over}, {CONNECTIONS} connections with {streams} requests at a time"
        );
        let start = |kind| bench.start(kind, scheme, CONNECTIONS);
        let turn = |_, server: &mut Server| {
            let reply_bytes = bench.check(server, scheme)?;
            let load = Load {
                connections: CONNECTIONS,
                streams,
                ..bench.load(server, scheme)
            };
            let before = Reading::take(Some(server.group()))?;
            let counted = bench.drive(&load)?;
            let used = before.used()?;
            let quantile = |it| counted.latencies.value_at_quantile(it) as f64;
            let mut run = vec![
                (RATE, counted.requests as f64 / f64::from(load.seconds)),
                (CPU, used.server_micros_over(counted.requests)),
                (P50, quantile(0.5)),
                (P99, quantile(0.99)),
                (ERRORS, counted.errors as f64),
                (REPLY_BYTES, reply_bytes as f64),
            ];
            run.extend(common(server, &used)?);
            Ok(run)
        };
        let session = bench.session;
        let table = session.interleave(Scenario::Http2, &name, kinds(scheme), start, turn)?;
        let table = table
            .with_ratio(CPU, Kind::Http2Nginx)
            .with_ratio(RATE, Kind::Http2Nginx);
        let mut report = BenchReport::of_servers("http2", name, table);
        for ours in ours(scheme) {
            let theirs = (&Kind::Http2Nginx as _, CPU);
            report.target_of((ours, CPU), Some(theirs), Wanted::AtMost(self.cpu_max));
        }
        Ok(report)
    }
}
