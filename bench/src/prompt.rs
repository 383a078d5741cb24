//! `bench prompt`: one connection, one request at a time, over HTTP.
//!
//! Before: a worker answers, which is two wake-ups of threads. Ours: the same handler, declared
//! prompt, which the network thread tries. Beside both, for what there is to reach: the same
//! handler inline, which may never block.
//!
//! With files of 4 KiB, each of many in turn: before is a worker's answer, ours the network
//! thread's from what is at hand; what there is to reach is the same files from the server's own
//! cache. Cold means that the server has kept nothing of the file, and the kernel has its pages and
//! its name.
//!
//! A request costs less than waking the thread that it is for, so where threads run decides the
//! figures: a processor that idles halts, and a virtual machine's takes tens of microseconds to
//! come back. Left to itself the scheduler moves client and server together or apart from one run
//! to the next. So they are bound, in the same way for every candidate:
//!
//! | placement | client           | server             | a request is made of             |
//! |-----------|------------------|--------------------|----------------------------------|
//! | apart     | on a core        | on all other cores | wake-ups of other cores, and work |
//! | together  | on the same core | on one core        | work: no core waits for another  |
//!
//! Clients are on other machines, so targets are for what is apart. What is together depends on no
//! setting of idle cores, and shows what an answer costs.

use std::fs;
use std::io;
use std::net::{Ipv4Addr, TcpStream};
use std::rc::Rc;
use std::time::{Duration, Instant};

use flatpath::{DriverChoice, Protocol, Running, Server};
use flatpath_bench_common::http;
use flatpath_bench_common::measure::{Turn, median, samples};
use flatpath_bench_common::report::{BenchReport, Figure, Role, Table, Wanted, ratio};
use flatpath_files::Files;
use flatpath_http::Http;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use tempfile::TempDir;

use crate::Stage;

const WORKER: &str = "a worker";
const OURS: &str = "ours, prompt";
const BEST: &str = "inline, cached";

const HANDLER: &str = "handler";
const FILE: &str = "file of 4 KiB";

const FILE_BYTES: usize = 4096;
/// Files asked for in turn: all of them are hot, or none is.
const FILES: usize = 512;
const HOT_MAX: usize = 4 * FILES;
const COLD_MAX: usize = 16;
/// A file that was changed a moment ago is not cached.
const UNTIL_STABLE: Duration = Duration::from_millis(60);

/// On which cores client and server run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Placement {
    Apart,
    Together,
}

/// The cores of the two ends.
#[derive(Clone, Copy)]
struct Cores {
    client: CpuSet,
    server: CpuSet,
}

impl Cores {
    /// Of those that this process may use. `None`: there are too few.
    fn of(placement: Placement, all: &CpuSet) -> Option<Cores> {
        let mut cores = (0..CpuSet::MAX_CPU).filter(|core| all.is_set(*core));
        let first = cores.next()?;
        let mut client = CpuSet::new();
        client.set(first);
        let mut server = *all;
        match placement {
            Placement::Together => server = client,
            Placement::Apart => server.unset(first),
        }
        (server.count() > 0).then_some(Cores { client, server })
    }
}

/// A server in this process, and the one connection to it.
struct Rig {
    _running: Running,
    client: TcpStream,
    cores: Cores,
    /// Asked for in turn.
    requests: Vec<Vec<u8>>,
    asked: usize,
    /// What is served, until the server has ended.
    folder: Option<Rc<TempDir>>,
}

impl Rig {
    /// `None`: this machine does not have the driver.
    fn new(
        choice: DriverChoice,
        cores: Cores,
        protocol: impl Protocol,
        requests: Vec<Vec<u8>>,
    ) -> io::Result<Option<Rig>> {
        let server = Server::new().driver(choice).network_threads(1);
        // Threads run where the one runs that starts them.
        sched_setaffinity(None, &cores.server)?;
        let started = server.listen("127.0.0.1:0", protocol).start();
        sched_setaffinity(None, &cores.client)?;
        let running = match started {
            Ok(running) => running,
            Err(flatpath::Error::Uring(_)) => return Ok(None),
            Err(error) => return Err(io::Error::other(error.to_string())),
        };
        let bound = running.listeners()[0].address.internet();
        let port = bound.map_or(0, |address| address.port());
        let client = http::connect((Ipv4Addr::LOCALHOST, port).into())?;
        client.set_nodelay(true)?;
        Ok(Some(Rig {
            _running: running,
            client,
            cores,
            requests,
            asked: 0,
            folder: None,
        }))
    }

    /// One request and its whole reply.
    fn ask(&mut self) -> io::Result<()> {
        let request = &self.requests[self.asked % self.requests.len()];
        self.asked += 1;
        match http::exchange(&mut self.client, request)?.1.status {
            200 | 206 => Ok(()),
            status => Err(io::Error::other(format!("status {status}"))),
        }
    }

    /// The median time of that number of requests, in microseconds.
    fn measure(&mut self, requests: usize) -> io::Result<f64> {
        sched_setaffinity(None, &self.cores.client)?;
        let mut latencies = Vec::with_capacity(requests);
        for _ in 0..requests {
            let begin = Instant::now();
            self.ask()?;
            latencies.push(begin.elapsed().as_nanos() as f64);
        }
        Ok(median(&latencies) / 1000.0)
    }
}

/// The same handler, in three places.
fn handlers(choice: DriverChoice, cores: Cores) -> io::Result<Option<Vec<Rig>>> {
    let hello = || "hello\n";
    let request = || vec![http::request("/")];
    let rigs = [
        Rig::new(choice, cores, Http::pooled(hello), request())?,
        Rig::new(choice, cores, Http::prompt(hello), request())?,
        Rig::new(choice, cores, Http::inline(hello), request())?,
    ];
    Ok(rigs.into_iter().collect())
}

/// Files by a worker, by a try, and from the cache.
fn files(choice: DriverChoice, cores: Cores) -> io::Result<Option<Vec<Rig>>> {
    let folder = Rc::new(tempfile::tempdir()?);
    for number in 0..FILES {
        fs::write(folder.path().join(number.to_string()), [b'x'; FILE_BYTES])?;
    }
    std::thread::sleep(UNTIL_STABLE);
    let each = || (0..FILES).map(|number| http::request(&format!("/{number}")));
    let keeping = |entries_max| {
        let files = Files::open(folder.path())?;
        let bytes_max = entries_max * 4 * FILE_BYTES;
        io::Result::Ok(Http::service(files.cache(entries_max, bytes_max)))
    };
    // A look at a part of a file is left to workers: here it is all of it.
    let by_worker = each().map(|request| {
        let range = format!("Range: bytes=0-{}\r\n\r\n", FILE_BYTES - 1);
        let head = request.strip_suffix(b"\r\n").unwrap_or_default();
        [head, range.as_bytes()].concat()
    });
    let rigs = [
        Rig::new(choice, cores, keeping(COLD_MAX)?, by_worker.collect())?,
        Rig::new(choice, cores, keeping(COLD_MAX)?, each().collect())?,
        Rig::new(choice, cores, keeping(HOT_MAX)?, each().collect())?,
    ];
    let kept = |mut rig: Rig| {
        rig.folder = Some(Rc::clone(&folder));
        rig
    };
    Ok(rigs.into_iter().map(|rig| rig.map(kept)).collect())
}

pub(crate) fn run(stage: &mut Stage, report: &mut BenchReport) -> io::Result<()> {
    let all = sched_getaffinity(None)?;
    let ended = run_bound(stage, report, &all);
    sched_setaffinity(None, &all)?;
    ended
}

fn run_bound(stage: &mut Stage, report: &mut BenchReport, all: &CpuSet) -> io::Result<()> {
    let profile = stage.profile;
    let requests = profile.pick(1_000, 500, 10);
    let rounds = stage.runs(profile.pick(31, 11, 1));
    let columns = [
        (WORKER, Role::Baseline),
        (OURS, Role::Ours),
        (BEST, Role::Competitor),
    ];
    let title = "One request at a time: from the request to its whole reply";
    let labels = ["driver", "what", "client and server"];
    let mut table = Table::new(title, "us, median", &labels, columns);
    for (driver, choice) in [
        ("uring", DriverChoice::Uring),
        ("epoll", DriverChoice::Epoll),
    ] {
        for (what, wanted) in [(HANDLER, 1.15), (FILE, 1.3)] {
            for (place, placement) in [
                ("apart", Placement::Apart),
                ("together", Placement::Together),
            ] {
                (stage.progress)(&format!("prompt: {what}, {driver}, {place}"));
                let Some(cores) = Cores::of(placement, all) else {
                    report.note("client and server cannot be apart: there is one core");
                    continue;
                };
                let rigs = match what {
                    HANDLER => handlers(choice, cores)?,
                    _ => files(choice, cores)?,
                };
                let Some(rigs) = rigs else { continue };
                table.push(&[&driver, &what, &place], measure(rigs, requests, rounds)?);
                let of = |name| table.figure(&[driver, what, place], name);
                let reached = ratio(of(OURS), of(BEST));
                if placement == Placement::Apart {
                    let what = format!("{what}, {driver}, against {BEST}");
                    report.target(what, "x", Wanted::AtMost(wanted), reached);
                }
            }
        }
    }
    report.note(
        "the client's thread is woken for every reply in all of them; a worker's reply wakes two \
         threads more",
    );
    report.tables = vec![table];
    Ok(())
}

fn measure(mut rigs: Vec<Rig>, requests: usize, rounds: usize) -> io::Result<Vec<Figure>> {
    // Threads, pools and caches first.
    for rig in &mut rigs {
        rig.measure(rig.requests.len() + requests / 5)?;
    }
    let turns = rigs
        .iter_mut()
        .map(|rig| -> Turn<'_, io::Result<f64>> { Box::new(|| rig.measure(requests)) });
    let mut turns: Vec<_> = turns.collect();
    let samples = samples(rounds, &mut turns).into_iter();
    let figures = samples.map(|runs| {
        let runs = runs.into_iter().collect::<io::Result<Vec<f64>>>()?;
        Ok(Figure::of(&runs))
    });
    figures.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_candidate_answers() {
        let all = sched_getaffinity(None).expect("known");
        let together = Cores::of(Placement::Together, &all).expect("there is a core");
        let apart = Cores::of(Placement::Apart, &all).unwrap_or(together);
        for choice in [DriverChoice::Uring, DriverChoice::Epoll] {
            for rigs in [handlers(choice, together), files(choice, apart)] {
                let Some(rigs) = rigs.expect("they start") else {
                    flatpath_testkit::skipped::not_offered("no io_uring", (6, 0));
                    continue;
                };
                let figures = measure(rigs, 20, 1).expect("every request is answered");
                assert!(figures.len() == 3 && figures.iter().all(|figure| figure.value > 0.0));
            }
        }
    }
}
