//! Beside busy loops, one for each core: how long does a client wait when every core is wanted?
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
use std::process::Stdio;
use std::time::Instant;

use crate::bench::{Bench, Pinning, SMALL_PATH, float, small_body, warm_up};
use crate::children::Group;
use crate::launch;
use crate::metric::{Figures, Metric};
use crate::nginx::{HELLO_BODY, HELLO_PATH};
use crate::options::Scenario;
use crate::proc::{self, Ticks};
use crate::reply;
use crate::report::{Case, Ratio};
use crate::server::{Kind, Server};
use crate::target::{Bound, Figure, Target};
use crate::wrk::{Lifetime, Load};

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
struct Work {
    name: &'static str,
    path: &'static str,
    body: Vec<u8>,
    kinds: [Kind; 3],
}

/// Processes that compute and never sleep. They end when this is dropped, and with the harness,
/// however that ends (see `launch.rs`).
struct BusyLoops(Vec<Group>);

/// Runs both cases.
///
/// # Errors
/// Only if the harness was told to stop, or the busy loops cannot be started.
pub(super) fn run(bench: &Bench) -> io::Result<Vec<Case>> {
    let loops = BusyLoops::start(bench.core_count())?;
    let mut cases = Vec::new();
    for work in works() {
        if !bench.options.choose(&work.kinds).is_empty() {
            cases.push(work.run(bench, &loops)?);
        }
    }
    Ok(cases)
}

fn works() -> [Work; 2] {
    [
        Work {
            name: "hot file",
            path: SMALL_PATH,
            body: small_body(),
            kinds: [Kind::Nginx, Kind::FlatpathUring, Kind::FlatpathEpoll],
        },
        Work {
            name: "pooled answer",
            path: HELLO_PATH,
            body: HELLO_BODY.into(),
            kinds: [Kind::Nginx, Kind::PooledUring, Kind::PooledEpoll],
        },
    ]
}

impl Work {
    fn run(&self, bench: &Bench, loops: &BusyLoops) -> io::Result<Case> {
        let name = self.title(loops.0.len());
        let setup = bench.setup(Pinning::Free, None, CONNECTIONS);
        let start = |kind| {
            let server = Server::start(kind, &setup)?;
            reply::check(server.address(), self.path, &self.body)?;
            warm_up(&server, self.path, self.path)?;
            Ok(server)
        };
        let measure = |server: &Server| {
            let reply_bytes = reply::check(server.address(), self.path, &self.body)?;
            let load = Load {
                address: server.address(),
                path: self.path.to_owned(),
                connections: CONNECTIONS,
                seconds: bench.options.seconds(),
                lifetime: Lifetime::KeepAlive,
                cores: Vec::new(),
            };
            let mut figures = loops.leave_out(|| bench.drive(server, &load))?;
            figures.insert(Metric::ReplyBytes, float(reply_bytes as u64));
            Ok(figures)
        };
        let rows = bench.interleave(Scenario::Busy, &name, &self.kinds, start, measure)?;
        let ratios = [Metric::P99Micros, Metric::ServerMicrosPerRequest].map(|metric| Ratio {
            metric,
            to: Kind::Nginx,
        });
        Ok(Case::new(
            name,
            rows,
            ratios.into(),
            &self.targets(),
            Vec::new(),
        ))
    }

    fn title(&self, loops: usize) -> String {
        let name = self.name;
        format!("{name} beside {loops} busy loops, keep-alive, {CONNECTIONS} connections")
    }

    fn targets(&self) -> Vec<Target> {
        let ours = self.kinds.iter().filter(|kind| !kind.is_nginx());
        ours.map(|kind| Target {
            subject: Figure(*kind, Metric::P99Micros),
            reference: Some(Figure(Kind::Nginx, Metric::P99Micros)),
            bound: Bound::AtMost(P99_RATIO_MAX),
        })
        .collect()
    }
}

impl BusyLoops {
    fn start(count: usize) -> io::Result<Self> {
        let mut loops = Self(Vec::with_capacity(count));
        for _ in 0..count {
            let mut command = launch::command("sh", &[]);
            command
                .args(["-c", "while :; do :; done"])
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null());
            loops.0.push(Group::start(&mut command)?);
        }
        Ok(loops)
    }

    /// Measures, and takes what the loops used out of what others used.
    fn leave_out(&self, measure: impl FnOnce() -> io::Result<Figures>) -> io::Result<Figures> {
        let (before, began) = (self.ticks()?, Instant::now());
        let mut figures = measure()?;
        let used = self.ticks()?.since(before).as_secs_f64();
        let percent = used / began.elapsed().as_secs_f64().max(1e-9) * 100.0;
        if let Some(others) = figures.get_mut(&Metric::OthersPercent) {
            *others = (*others - percent).max(0.0);
        }
        Ok(figures)
    }

    /// An error if one of them has ended: the figures would be of another machine.
    fn ticks(&self) -> io::Result<Ticks> {
        let mut sum = 0;
        for group in &self.0 {
            sum += proc::group_ticks(group.id())?.0;
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
        let works = works();
        let taking_part: BTreeSet<_> = works.iter().flat_map(|work| work.kinds).collect();
        assert_eq!(taking_part, KINDS.into_iter().collect());
        for work in works {
            assert!(work.kinds.contains(&Kind::Nginx), "{}", work.name);
            assert_eq!(work.targets().len(), 2, "{}", work.name);
        }
    }

    #[test]
    fn busy_loops_are_not_others_and_end_when_dropped() {
        let loops = BusyLoops::start(2).expect("started");
        let ids: Vec<_> = loops.0.iter().map(Group::id).collect();
        let figures = loops.leave_out(|| Ok(Figures::from([(Metric::OthersPercent, 0.0)])));
        let figures = figures.expect("they run");
        assert!(figures[&Metric::OthersPercent].abs() < 1e-9, "{figures:?}");
        drop(loops);
        for id in ids {
            assert!(!std::path::Path::new(&format!("/proc/{id}")).exists());
        }
    }
}
