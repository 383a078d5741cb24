//! While busy loops run, one for each core: how long does a client wait when all cores are busy?
//!
//! | case | nginx | ours |
//! |---|---|---|
//! | hot file | opens and sends it | from the network thread's cache |
//! | pooled answer | `return 200` | the same reply, from a handler on a worker |
//!
//! With few connections a reply waits for the scheduler, not for other requests. A server with one
//! thread is woken once for it; one that hands the request to a worker has two more wake-ups. While
//! more than one request in a hundred waits for a time slice of a loop, the 99th percentile is the
//! length of that wait.

use std::io;
use std::time::Instant;

use flatpath_bench_common::nginx::{HELLO_BODY, HELLO_PATH};
use flatpath_bench_common::report::{BenchReport, Wanted};
use flatpath_bench_common::servers::{CPU, OTHERS, P99, Run};
use flatpath_bench_common::usage::{Ticks, group_ticks};
use flatpath_bench_common::wrk::Lifetime;
use flatpath_testkit::child::{self, Child};

use crate::kind::Kind;
use crate::options::Scenario;
use crate::server::Server;
use crate::session::{ACCEPTED, ANSWERED, Pinning, SMALL_PATH, Session, Work, small_body};

/// Every server of both cases.
pub(super) const KINDS: [Kind; 5] = [
    Kind::Nginx,
    Kind::FlatpathUring,
    Kind::FlatpathEpoll,
    Kind::PooledUring,
    Kind::PooledEpoll,
];

/// What a proxy keeps open to one server, not a crowd.
const CONNECTIONS: u32 = 8;
/// What the issue asks for: p99 over nginx's in the same run.
const P99_RATIO_MAX: f64 = 1.2;

/// What is asked for, and of which servers.
struct Busy {
    name: &'static str,
    work: Work,
    kinds: [Kind; 3],
}

/// Processes that compute and never sleep. They end when this is dropped, and with the bench.
pub(super) struct BusyLoops(Vec<Child>);

/// Runs both cases.
///
/// # Errors
/// Only if the bench was told to stop, or the busy loops cannot be started.
pub(super) fn run(session: &Session) -> io::Result<Vec<BenchReport>> {
    let loops = BusyLoops::start(session.core_count())?;
    let mut reports = Vec::new();
    for case in cases() {
        if !session.options.choose(&case.kinds).is_empty() {
            reports.push(case.run(session, &loops)?);
        }
    }
    Ok(reports)
}

fn cases() -> [Busy; 2] {
    let work = |path, body| Work {
        path,
        body,
        connections: CONNECTIONS,
        lifetime: Lifetime::KeepAlive,
        pinning: Pinning::Free,
    };
    [
        Busy {
            name: "hot file",
            work: work(SMALL_PATH, small_body()),
            kinds: [Kind::Nginx, Kind::FlatpathUring, Kind::FlatpathEpoll],
        },
        Busy {
            name: "pooled answer",
            work: work(HELLO_PATH, HELLO_BODY.into()),
            kinds: [Kind::Nginx, Kind::PooledUring, Kind::PooledEpoll],
        },
    ]
}

impl Busy {
    fn run(&self, session: &Session, loops: &BusyLoops) -> io::Result<BenchReport> {
        let name = self.title(loops.0.len());
        let start = |kind| self.work.start(session, kind);
        let turn = |_, server: &mut Server| loops.leave_out(|| session.drive(server, &self.work));
        let mut table = session.interleave(Scenario::Busy, &name, &self.kinds, start, turn)?;
        table.drop_column(ACCEPTED);
        table.drop_column(ANSWERED);
        let table = table
            .with_ratio(P99, Kind::Nginx)
            .with_ratio(CPU, Kind::Nginx);
        let mut report = BenchReport::of_servers("busy", name, table);
        for kind in self.kinds.iter().filter(|kind| !kind.is_nginx()) {
            let wanted = Wanted::AtMost(P99_RATIO_MAX);
            report.target_of((kind, P99), Some((&Kind::Nginx, P99)), wanted);
        }
        Ok(report)
    }

    fn title(&self, loops: usize) -> String {
        let name = self.name;
        format!("{name} and {loops} busy loops, keep-alive, {CONNECTIONS} connections")
    }
}

impl BusyLoops {
    /// Starts as many; none is fine.
    pub(super) fn start(count: usize) -> io::Result<Self> {
        let start = |_| {
            let mut command = child::command("sh", &[]);
            Child::start(command.args(["-c", "while :; do :; done"]))
        };
        (0..count).map(start).collect::<io::Result<_>>().map(Self)
    }

    /// Measures, and takes what the loops used out of what others used.
    pub(super) fn leave_out(&self, measure: impl FnOnce() -> io::Result<Run>) -> io::Result<Run> {
        let (before, began) = (self.ticks()?, Instant::now());
        let mut run = measure()?;
        let used = self.ticks()?.since(before).as_secs_f64();
        let percent = used / began.elapsed().as_secs_f64().max(1e-9) * 100.0;
        for (metric, others) in &mut run {
            if *metric == OTHERS {
                *others = (*others - percent).max(0.0);
            }
        }
        Ok(run)
    }

    /// An error if one of them has ended: the figures would be of another machine.
    fn ticks(&self) -> io::Result<Ticks> {
        let mut sum = 0;
        for process in &self.0 {
            sum += group_ticks(process.id())?.0;
        }
        Ok(Ticks(sum))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_server_belongs_to_a_case_and_every_case_has_nginx() {
        let cases = cases();
        let taking_part: BTreeSet<_> = cases.iter().flat_map(|case| case.kinds).collect();
        assert_eq!(taking_part, KINDS.into_iter().collect());
        for case in cases {
            assert!(case.kinds.contains(&Kind::Nginx), "{}", case.name);
        }
    }

    #[test]
    fn busy_loops_are_not_others_and_end_when_dropped() {
        let loops = BusyLoops::start(2).expect("started");
        let ids: Vec<_> = loops.0.iter().map(Child::id).collect();
        let run = loops.leave_out(|| Ok(vec![(OTHERS, 0.0)]));
        let run = run.expect("they run");
        assert!(run[0].1.abs() < 1e-9, "{run:?}");
        drop(loops);
        for id in ids {
            assert!(!std::path::Path::new(&format!("/proc/{id}")).exists());
        }
    }
}
