//! Files, alone, hello and pooled: one request again and again, driven by wrk.

use std::io;

use flatpath_bench_common::nginx::{HELLO_BODY, HELLO_PATH};
use flatpath_bench_common::report::{BenchReport, Table, Wanted};
use flatpath_bench_common::servers::{CPU, Metric, P50, P99, RATE};
use flatpath_bench_common::usage;
use flatpath_bench_common::wrk::Lifetime;

use crate::kind::Kind;
use crate::options::Scenario;
use crate::server::Server;
use crate::session::{ACCEPTED, ANSWERED, Pinning, SMALL_PATH, Session, Work, small_body};

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

/// Sockets that earlier runs have left in TIME_WAIT.
const TIME_WAIT: Metric = Metric::median("TIME_WAIT before");

/// One table.
struct Shape {
    scenario: Scenario,
    connections: u32,
    lifetime: Lifetime,
    pinning: Pinning,
}

/// Runs every case of the scenario.
pub(super) fn run(session: &Session, scenario: Scenario) -> io::Result<Vec<BenchReport>> {
    let shapes = shapes(scenario);
    shapes.iter().map(|shape| shape.run(session)).collect()
}

fn shapes(scenario: Scenario) -> Vec<Shape> {
    if scenario == Scenario::Alone {
        return vec![Shape {
            scenario,
            connections: 1,
            lifetime: Lifetime::KeepAlive,
            pinning: Pinning::Free,
        }];
    }
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
    fn run(&self, session: &Session) -> io::Result<BenchReport> {
        let name = self.name();
        let work = self.work();
        let start = |kind| work.start(session, kind);
        let turn = |_, server: &mut Server| {
            let time_wait = usage::time_wait()?;
            let mut run = session.drive(server, &work)?;
            if self.lifetime == Lifetime::Close {
                run.push((TIME_WAIT, time_wait as f64));
            }
            Ok(run)
        };
        let kinds = super::kinds_of(self.scenario);
        let mut table = session.interleave(self.scenario, &name, kinds, start, turn)?;
        let notes = self.notes(&table, session.options.seconds());
        table.drop_column(ACCEPTED);
        table.drop_column(ANSWERED);
        let (to, metrics) = self.ratios();
        for metric in metrics {
            table = table.with_ratio(*metric, to);
        }
        let mut report = BenchReport::of_servers(self.bench(), name, table);
        report.notes.extend(notes);
        for (subject, metric, reference, wanted) in self.targets() {
            report.target_of((subject, metric), Some((&reference, metric)), wanted);
        }
        Ok(report)
    }

    /// What wrk does not count as an error.
    fn notes(&self, table: &Table, seconds: u32) -> Vec<String> {
        let servers = || table.rows.iter().map(|row| row.labels[0].as_str());
        servers()
            .filter_map(|server| self.starved(table, server))
            .chain(servers().filter_map(|server| self.dropped(table, server, seconds)))
            .collect()
    }

    /// A connection that never gets its reply.
    fn starved(&self, table: &Table, server: &str) -> Option<String> {
        let connections = f64::from(self.connections);
        let answered = table.of(server, ANSWERED)?;
        let few = self.lifetime == Lifetime::KeepAlive && answered < ANSWERED_SHARE * connections;
        few.then(|| {
            format!(
                "{server}: some {answered:.0} of {connections} connections were answered at a time"
            )
        })
    }

    /// A connection the server closes instead of replying: wrk silently makes another.
    fn dropped(&self, table: &Table, server: &str, seconds: u32) -> Option<String> {
        let requests = table.of(server, RATE)? * f64::from(seconds);
        let connections = f64::from(self.connections);
        let needed = match self.lifetime {
            Lifetime::KeepAlive => connections,
            Lifetime::Close => connections + requests,
        };
        let more = table.of(server, ACCEPTED)? - needed;
        (more > connections.max(requests * DROPPED_SHARE)).then(|| {
            format!(
                "{server}: {more:.0} connections more than needed; it, or another program, closes"
            )
        })
    }

    fn bench(&self) -> &'static str {
        match self.scenario {
            Scenario::Files => "files",
            Scenario::Alone => "alone",
            Scenario::Hello => "hello",
            _ => "pooled",
        }
    }

    fn name(&self) -> String {
        let work = match self.scenario {
            Scenario::Files | Scenario::Alone => "small file",
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
        match self.connections {
            1 => format!("{work}, {lifetime}, one connection, one request at a time{pinning}"),
            many => format!("{work}, {lifetime}, {many} connections{pinning}"),
        }
    }

    fn work(&self) -> Work {
        let (path, body) = match self.scenario {
            Scenario::Files | Scenario::Alone => (SMALL_PATH, small_body()),
            _ => (HELLO_PATH, HELLO_BODY.into()),
        };
        Work {
            path,
            body,
            connections: self.connections,
            lifetime: self.lifetime,
            pinning: self.pinning,
        }
    }

    fn ratios(&self) -> (Kind, &'static [Metric]) {
        match self.scenario {
            Scenario::Pooled => (Kind::HyperBlocking, &[CPU]),
            Scenario::Alone => (Kind::Nginx, &[CPU, RATE, P50, P99]),
            _ => (Kind::Nginx, &[CPU, RATE]),
        }
    }

    fn targets(&self) -> Vec<(Kind, Metric, Kind, Wanted)> {
        use Wanted::{AtLeast, AtMost, Below};
        match (self.scenario, self.lifetime, self.pinning) {
            (Scenario::Files, lifetime, _) => {
                let closes = lifetime == Lifetime::Close;
                let cpu = if closes { 0.75 } else { 0.65 };
                vec![
                    (Kind::Flatpath, CPU, Kind::Nginx, AtMost(cpu)),
                    (Kind::Flatpath, RATE, Kind::Nginx, AtLeast(1.0)),
                ]
            }
            (Scenario::Alone, ..) => vec![
                (Kind::Flatpath, RATE, Kind::Nginx, AtLeast(1.0)),
                (Kind::Flatpath, CPU, Kind::Nginx, AtMost(0.65)),
                (Kind::Flatpath, P50, Kind::Nginx, AtMost(1.0)),
                (Kind::Flatpath, P99, Kind::Nginx, AtMost(1.0)),
            ],
            (Scenario::Pooled, _, pinning) => {
                let others = if pinning == Pinning::Free { 0.3 } else { 0.45 };
                let pooled = Kind::FlatpathPooled;
                vec![
                    (pooled, CPU, Kind::FlatpathInline, AtMost(1.25)),
                    (pooled, CPU, Kind::HyperBlocking, AtMost(others)),
                    (pooled, CPU, Kind::TinyHttp, AtMost(others)),
                ]
            }
            _ => vec![
                (Kind::FlatpathInline, CPU, Kind::Nginx, AtMost(0.85)),
                (Kind::FlatpathInline, CPU, Kind::Hyper, Below(1.0)),
            ],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flatpath_bench_common::servers::interleave;
    use std::collections::BTreeSet;

    #[test]
    fn no_two_tables_have_the_same_name() {
        let scenarios = [
            Scenario::Files,
            Scenario::Alone,
            Scenario::Hello,
            Scenario::Pooled,
        ];
        let shapes: Vec<_> = scenarios.into_iter().flat_map(shapes).collect();
        let names: BTreeSet<_> = shapes.iter().map(Shape::name).collect();
        assert_eq!((names.len(), shapes.len()), (13, 13), "{names:?}");
    }

    fn seen(lifetime: Lifetime, answered: f64, accepted: f64) -> Vec<String> {
        let shape = Shape {
            scenario: Scenario::Hello,
            connections: 50,
            lifetime,
            pinning: Pinning::Free,
        };
        let run = [(RATE, 10_000.0), (ANSWERED, answered), (ACCEPTED, accepted)];
        let turn = |_, (): &mut ()| Ok(run.to_vec());
        let table = interleave("a test", 1, &[Kind::TinyHttp], |_| Ok(()), turn);
        shape.notes(&table.expect("no signal"), 2)
    }

    #[test]
    fn starving_connections_are_noticed() {
        assert_eq!(seen(Lifetime::KeepAlive, 25.0, 50.0), [""; 0]);
        let notes = seen(Lifetime::KeepAlive, 4.0, 50.0);
        assert_eq!(
            notes,
            ["tiny-http: some 4 of 50 connections were answered at a time"]
        );
    }

    #[test]
    fn connections_that_were_dropped_are_noticed() {
        assert_eq!(seen(Lifetime::Close, 4.0, 20_051.0), [""; 0]);
        for (lifetime, accepted) in [(Lifetime::KeepAlive, 1050.0), (Lifetime::Close, 21_050.0)] {
            let notes = seen(lifetime, 25.0, accepted);
            assert_eq!(notes.len(), 1, "{notes:?}");
            assert!(notes[0].starts_with("tiny-http: 1000 connections more than needed"));
        }
    }

    #[test]
    fn every_target_and_ratio_is_about_servers_of_its_table() {
        for scenario in [
            Scenario::Files,
            Scenario::Alone,
            Scenario::Hello,
            Scenario::Pooled,
        ] {
            let kinds = super::super::kinds_of(scenario);
            for shape in shapes(scenario) {
                for (subject, _, reference, _) in shape.targets() {
                    assert!(kinds.contains(&subject), "{}", shape.name());
                    assert!(kinds.contains(&reference), "{}", shape.name());
                }
                assert!(kinds.contains(&shape.ratios().0), "{}", shape.name());
            }
        }
    }
}
