//! Files, hello and pooled: one request again and again, driven by wrk.

use std::io;

use crate::bench::{Bench, Pinning, SMALL_PATH, float, small_body, warm_up};
use crate::metric::Metric;
use crate::nginx::{HELLO_BODY, HELLO_PATH};
use crate::options::Scenario;
use crate::reply;
use crate::report::{Case, Ratio};
use crate::server::{Kind, Server};
use crate::target::{Bound, Figure, Target};
use crate::wrk::{Lifetime, Load};

pub(super) const FILES: [Kind; 3] = [Kind::Nginx, Kind::NginxTuned, Kind::Flatpath];
pub(super) const HELLO: [Kind; 3] = [Kind::Nginx, Kind::Hyper, Kind::FlatpathInline];
pub(super) const POOLED: [Kind; 4] = [
    Kind::FlatpathInline,
    Kind::FlatpathPooled,
    Kind::HyperBlocking,
    Kind::TinyHttp,
];

const CONNECTIONS: [u32; 2] = [50, 200];
const CPU: Metric = Metric::ServerMicrosPerRequest;
const RATE: Metric = Metric::RequestsPerSecond;

/// One table.
struct Shape {
    scenario: Scenario,
    connections: u32,
    lifetime: Lifetime,
    pinning: Pinning,
}

/// Runs every case of the scenario.
///
/// # Errors
/// Only if the harness was told to stop.
pub(super) fn run(bench: &Bench, scenario: Scenario) -> io::Result<Vec<Case>> {
    shapes(scenario)
        .iter()
        .map(|shape| shape.run(bench))
        .collect()
}

fn shapes(scenario: Scenario) -> Vec<Shape> {
    let variants = match scenario {
        Scenario::Pooled => [
            (Lifetime::KeepAlive, Pinning::Free),
            (Lifetime::KeepAlive, Pinning::ServerOnOneCore),
        ],
        _ => [
            (Lifetime::KeepAlive, Pinning::Free),
            (Lifetime::Close, Pinning::Free),
        ],
    };
    let shape = |(lifetime, pinning)| {
        CONNECTIONS.map(|connections| Shape {
            scenario,
            connections,
            lifetime,
            pinning,
        })
    };
    variants.into_iter().flat_map(shape).collect()
}

impl Shape {
    fn run(&self, bench: &Bench) -> io::Result<Case> {
        let name = self.name();
        let setup = bench.setup(self.pinning, None, self.connections);
        let (path, body) = self.work();
        let start = |kind| {
            let server = Server::start(kind, &setup)?;
            reply::check(server.address(), path, &body)?;
            warm_up(&server, path, path)?;
            Ok(server)
        };
        let measure = |server: &Server| {
            // Checked again before every run: a server that has gone wrong must not be timed.
            let reply_bytes = reply::check(server.address(), path, &body)?;
            let load = Load {
                address: server.address(),
                path: path.to_owned(),
                connections: self.connections,
                seconds: bench.options.seconds(),
                lifetime: self.lifetime,
                cores: bench.generator_cores(self.pinning),
            };
            let mut figures = bench.drive(server, &load)?;
            figures.insert(Metric::ReplyBytes, float(reply_bytes as u64));
            Ok(figures)
        };
        let kinds = super::kinds_of(self.scenario);
        let rows = bench.interleave(self.scenario, &name, kinds, start, measure)?;
        Ok(Case::new(
            name,
            rows,
            self.ratios(),
            &self.targets(),
            Vec::new(),
        ))
    }

    fn name(&self) -> String {
        let work = match self.scenario {
            Scenario::Files => "small file",
            Scenario::Hello => "hello",
            _ => "pooled hello",
        };
        let lifetime = match self.lifetime {
            Lifetime::KeepAlive => "keep-alive",
            Lifetime::Close => "close",
        };
        let pinning = match self.pinning {
            Pinning::Free => "",
            Pinning::ServerOnOneCore => ", server on one core",
        };
        format!(
            "{work}, {lifetime}, {} connections{pinning}",
            self.connections
        )
    }

    fn work(&self) -> (&'static str, Vec<u8>) {
        match self.scenario {
            Scenario::Files => (SMALL_PATH, small_body()),
            _ => (HELLO_PATH, HELLO_BODY.into()),
        }
    }

    fn ratios(&self) -> Vec<Ratio> {
        match self.scenario {
            Scenario::Pooled => vec![Ratio {
                metric: CPU,
                to: Kind::HyperBlocking,
            }],
            _ => [CPU, RATE]
                .map(|metric| Ratio {
                    metric,
                    to: Kind::Nginx,
                })
                .into(),
        }
    }

    fn targets(&self) -> Vec<Target> {
        match (self.scenario, self.lifetime, self.pinning) {
            (Scenario::Files, lifetime, _) => {
                let cpu = if lifetime == Lifetime::Close {
                    0.75
                } else {
                    0.65
                };
                vec![
                    target(Kind::Flatpath, CPU, Kind::Nginx, Bound::AtMost(cpu)),
                    target(Kind::Flatpath, RATE, Kind::Nginx, Bound::AtLeast(1.0)),
                ]
            }
            (Scenario::Pooled, _, pinning) => {
                let peers = if pinning == Pinning::Free { 0.3 } else { 0.45 };
                let pooled = Kind::FlatpathPooled;
                vec![
                    target(pooled, CPU, Kind::FlatpathInline, Bound::AtMost(1.25)),
                    target(pooled, CPU, Kind::HyperBlocking, Bound::AtMost(peers)),
                    target(pooled, CPU, Kind::TinyHttp, Bound::AtMost(peers)),
                ]
            }
            _ => vec![
                target(Kind::FlatpathInline, CPU, Kind::Nginx, Bound::AtMost(0.85)),
                target(Kind::FlatpathInline, CPU, Kind::Hyper, Bound::Below(1.0)),
            ],
        }
    }
}

fn target(subject: Kind, metric: Metric, reference: Kind, bound: Bound) -> Target {
    Target {
        subject: Figure(subject, metric),
        reference: Some(Figure(reference, metric)),
        bound,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn no_two_tables_have_the_same_name() {
        let scenarios = [Scenario::Files, Scenario::Hello, Scenario::Pooled];
        let shapes: Vec<_> = scenarios.into_iter().flat_map(shapes).collect();
        let names: BTreeSet<_> = shapes.iter().map(Shape::name).collect();
        assert_eq!((names.len(), shapes.len()), (12, 12), "{names:?}");
    }

    #[test]
    fn every_target_and_ratio_is_about_servers_of_its_table() {
        for scenario in [Scenario::Files, Scenario::Hello, Scenario::Pooled] {
            let kinds = super::super::kinds_of(scenario);
            for shape in shapes(scenario) {
                for target in shape.targets() {
                    assert!(kinds.contains(&target.subject.0), "{}", shape.name());
                    let reference = target.reference.expect("all are ratios");
                    assert!(kinds.contains(&reference.0), "{}", shape.name());
                }
                for ratio in shape.ratios() {
                    assert!(kinds.contains(&ratio.to), "{}", shape.name());
                }
            }
        }
    }
}
