//! Files over TLS on kept connections, driven by wrk.

use std::io;

use flatpath_bench_common::report::{BenchReport, Wanted};
use flatpath_bench_common::servers::{CPU, RATE};
use flatpath_bench_common::wrk::{Lifetime, Scheme};

use super::{Bench, KINDS, OURS};
use crate::kind::Kind;
use crate::options::Scenario;
use crate::server::Server;
use crate::session::{ACCEPTED, ANSWERED, LARGE_PATH, Pinning, SMALL_PATH, Target};
use crate::session::{large_body, small_body};

/// One table.
struct Shape {
    about: &'static str,
    path: &'static str,
    body: fn() -> Vec<u8>,
    connections: u32,
    /// Most of nginx's CPU time per request.
    cpu_max: f64,
}

const SHAPES: [Shape; 3] = [
    small(50),
    small(200),
    Shape {
        about: "file of 1 MiB",
        path: LARGE_PATH,
        body: large_body,
        connections: 50,
        cpu_max: 1.0,
    },
];

const fn small(connections: u32) -> Shape {
    Shape {
        about: "small file",
        path: SMALL_PATH,
        body: small_body,
        connections,
        cpu_max: 0.7,
    }
}

pub(super) fn run(bench: &Bench<'_>) -> io::Result<Vec<BenchReport>> {
    SHAPES.iter().map(|shape| shape.run(bench)).collect()
}

impl Shape {
    fn run(&self, bench: &Bench<'_>) -> io::Result<BenchReport> {
        let (name, body) = (self.name(), (self.body)());
        let start = |kind| bench.start(kind, self.connections);
        let target = Target {
            scheme: Scheme::Https,
            path: self.path,
            json: None,
            headers: &[],
            connections: self.connections,
            lifetime: Lifetime::KeepAlive,
            pinning: Pinning::Free,
        };
        let turn = |_, server: &mut Server| {
            let reply_bytes = bench.check(server, self.path, &body)?;
            bench.session.load(server, &target, reply_bytes)
        };
        let session = bench.session;
        let mut table = session.interleave(Scenario::Https, &name, &KINDS, start, turn)?;
        table.drop_column(ACCEPTED);
        table.drop_column(ANSWERED);
        let table = table
            .with_ratio(CPU, Kind::HttpsNginx)
            .with_ratio(RATE, Kind::HttpsNginx);
        let mut report = BenchReport::of_servers("https", name, table);
        for ours in OURS {
            let theirs = (&Kind::HttpsNginx as _, CPU);
            report.target_of((ours, CPU), Some(theirs), Wanted::AtMost(self.cpu_max));
        }
        Ok(report)
    }

    fn name(&self) -> String {
        let (about, connections) = (self.about, self.connections);
        format!("{about} over TLS, keep-alive, {connections} connections")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn no_two_tables_have_the_same_name() {
        let names: BTreeSet<_> = SHAPES.iter().map(Shape::name).collect();
        assert_eq!(names.len(), SHAPES.len());
    }
}
