//! Files, hello and pooled: one request again and again, driven by wrk.

use std::io;

use crate::bench::{Bench, Pinning, SMALL_PATH, float, small_body, warm_up};
use crate::metric::Metric;
use crate::nginx::{HELLO_BODY, HELLO_PATH};
use crate::options::Scenario;
use crate::reply;
use crate::report::{Case, Ratio, Row};
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
/// Fewer connections than this share answered at a time means that others starve; wrk itself
/// keeps about half of them busy when it is the slower side.
const ANSWERED_SHARE: f64 = 0.2;
/// More connections than this share of the requests are no accident.
const DROPPED_SHARE: f64 = 0.01;
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
        let notes = self.notes(&rows, bench.options.seconds());
        Ok(Case::new(name, rows, self.ratios(), &self.targets(), notes))
    }

    /// What wrk does not count as an error.
    fn notes(&self, rows: &[Row], seconds: u32) -> Vec<String> {
        let starved = rows.iter().filter_map(|row| self.starved(row));
        starved
            .chain(rows.iter().filter_map(|row| self.dropped(row, seconds)))
            .collect()
    }

    /// A connection that never gets its reply.
    fn starved(&self, row: &Row) -> Option<String> {
        let connections = f64::from(self.connections);
        let answered = *row.figures.get(&Metric::Answered)?;
        let few = self.lifetime == Lifetime::KeepAlive && answered < ANSWERED_SHARE * connections;
        few.then(|| {
            let server = row.server.label();
            format!(
                "{server}: some {answered:.0} of {connections} connections were answered at a time"
            )
        })
    }

    /// A connection the server closes instead of replying: wrk silently makes another.
    fn dropped(&self, row: &Row, seconds: u32) -> Option<String> {
        let requests = row.figures.get(&Metric::RequestsPerSecond)? * f64::from(seconds);
        let connections = f64::from(self.connections);
        let needed = match self.lifetime {
            Lifetime::KeepAlive => connections,
            Lifetime::Close => connections + requests,
        };
        let more = row.figures.get(&Metric::Accepted)? - needed;
        (more > connections.max(requests * DROPPED_SHARE)).then(|| {
            let server = row.server.label();
            format!(
                "{server}: {more:.0} connections more than needed; it, or another program, closes"
            )
        })
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
            Pinning::GeneratorOnOneCore => ", generator on one core",
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
    use crate::metric::Figures;
    use std::collections::BTreeSet;

    #[test]
    fn no_two_tables_have_the_same_name() {
        let scenarios = [Scenario::Files, Scenario::Hello, Scenario::Pooled];
        let shapes: Vec<_> = scenarios.into_iter().flat_map(shapes).collect();
        let names: BTreeSet<_> = shapes.iter().map(Shape::name).collect();
        assert_eq!((names.len(), shapes.len()), (12, 12), "{names:?}");
    }

    fn seen(lifetime: Lifetime, answered: f64, accepted: f64) -> Vec<String> {
        let shape = Shape {
            scenario: Scenario::Hello,
            connections: 50,
            lifetime,
            pinning: Pinning::Free,
        };
        let figures = Figures::from([
            (RATE, 10_000.0),
            (Metric::Answered, answered),
            (Metric::Accepted, accepted),
        ]);
        shape.notes(&[Row::new(Kind::TinyHttp, vec![figures], None)], 2)
    }

    #[test]
    fn starving_connections_are_noticed() {
        assert_eq!(seen(Lifetime::KeepAlive, 25.0, 50.0), [""; 0]);
        let notes = seen(Lifetime::KeepAlive, 4.0, 50.0);
        assert_eq!(
            notes,
            ["tiny_http: some 4 of 50 connections were answered at a time"]
        );
    }

    #[test]
    fn connections_that_were_dropped_are_noticed() {
        assert_eq!(seen(Lifetime::Close, 4.0, 20_051.0), [""; 0]);
        for (lifetime, accepted) in [(Lifetime::KeepAlive, 1050.0), (Lifetime::Close, 21_050.0)] {
            let notes = seen(lifetime, 25.0, accepted);
            assert_eq!(notes.len(), 1, "{notes:?}");
            assert!(notes[0].starts_with("tiny_http: 1000 connections more than needed"));
        }
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
