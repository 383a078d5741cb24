//! `bench events`: from a write to an eventfd to the function that wants to know.
//!
//! Before: the network thread that sees the signal hands it to a worker, with the engine's own
//! queue and worker pool, and the worker calls the function. Ours: a [pairing](flatpath_pairing)
//! of the eventfd with the function, which the network thread calls. Beside both, for what a thread
//! of its own for each source would give: it blocks in the eventfd and calls the function itself.
//!
//! One thread writes to all sources, one after the other, then sleeps until all functions were
//! called; the next burst comes when everybody has gone to sleep. So one source shows what wake-ups
//! cost, and many show what a busy thread does.

use std::io;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle, Thread};
use std::time::{Duration, Instant};

use flatpath::watch::Eventfd;
use flatpath::{DriverChoice, Running, Server};
use flatpath_echo::Echo;
use flatpath_pairing::{Callback, Endpoint, EventSource, Item, Pairing, Pairings, Token};

use crate::Stage;
use crate::dispatch::{Dispatcher, Workers, join};
use flatpath_bench_common::measure::{Turn, median, samples};
use flatpath_bench_common::report::{BenchReport, Figure, Role, Table, Wanted, ratio};

/// Long enough for all threads to go to sleep.
const PAUSE: Duration = Duration::from_micros(300);
/// As the engine has by default.
const WORKERS: u32 = 2;

const WORKER: &str = "a worker calls";
const OURS: &str = "ours";
const THREADS: &str = "a thread each";

/// How a signal gets to the function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Worker,
    Direct,
    Threads,
}

/// When each source was written to and its function called, in nanoseconds of one clock; and who
/// waits for the last of them.
struct Burst {
    begin: Instant,
    called: Vec<AtomicU64>,
    left: AtomicUsize,
    writer: OnceLock<Thread>,
}

impl Burst {
    fn new(sources: usize) -> Arc<Burst> {
        Arc::new(Burst {
            begin: Instant::now(),
            called: (0..sources).map(|_| AtomicU64::new(0)).collect(),
            left: AtomicUsize::new(0),
            writer: OnceLock::new(),
        })
    }

    fn now_ns(&self) -> u64 {
        self.begin.elapsed().as_nanos() as u64
    }

    /// The function: notes the time.
    fn call(&self, source: usize) {
        self.called[source].store(self.now_ns(), Ordering::Relaxed);
        // ORDER: AcqRel: the notes before the writer's look at them.
        if self.left.fetch_sub(1, Ordering::AcqRel) == 1
            && let Some(writer) = self.writer.get()
        {
            writer.unpark();
        }
    }

    /// Writes to all, waits for all: nanoseconds from each write to its call.
    fn run(&self, eventfds: &[Arc<Eventfd>], latencies: &mut Vec<f64>) -> io::Result<()> {
        self.writer.get_or_init(thread::current);
        // ORDER: Release: nobody counts down before the writes below.
        self.left.store(eventfds.len(), Ordering::Release);
        let mut written = Vec::with_capacity(eventfds.len());
        for eventfd in eventfds {
            written.push(self.now_ns());
            eventfd.write(1).map_err(failed("writing an eventfd"))?;
        }
        let deadline = Instant::now() + Duration::from_secs(10);
        // ORDER: Acquire: the notes.
        while self.left.load(Ordering::Acquire) > 0 {
            if Instant::now() > deadline {
                return Err(io::Error::other("a signal was lost"));
            }
            thread::park_timeout(Duration::from_secs(1));
        }
        for (written, called) in written.iter().zip(&self.called) {
            let called = called.load(Ordering::Relaxed);
            latencies.push(called.saturating_sub(*written) as f64);
        }
        Ok(())
    }
}

fn failed(what: &'static str) -> impl Fn(io::Error) -> io::Error {
    move |cause| io::Error::other(format!("{what}: {cause}"))
}

struct Rig {
    burst: Arc<Burst>,
    eventfds: Vec<Arc<Eventfd>>,
    /// The engine's way to a worker, without the engine.
    workers: Option<Arc<Workers>>,
    threads: Vec<JoinHandle<()>>,
    pairings: Vec<Pairing>,
    running: Option<Running>,
}

impl Rig {
    /// `None`: this machine does not have the driver.
    fn new(choice: DriverChoice, way: Way, sources: usize) -> io::Result<Option<Rig>> {
        let mut rig = Rig {
            burst: Burst::new(sources),
            eventfds: Vec::new(),
            workers: None,
            threads: Vec::new(),
            pairings: Vec::new(),
            running: None,
        };
        if way == Way::Threads {
            rig.block(sources)?;
            return Ok(Some(rig));
        }
        let server = Server::new().driver(choice);
        let running = match server.listen("127.0.0.1:0", Echo).start() {
            Ok(running) => running,
            Err(flatpath::Error::Uring(_)) => return Ok(None),
            Err(error) => return Err(io::Error::other(error.to_string())),
        };
        if way == Way::Worker {
            let burst = Arc::clone(&rig.burst);
            let call = move |source| burst.call(source as usize);
            rig.workers = Some(Arc::new(Workers::start(WORKERS, sources as u32, call)));
        }
        rig.pair(&running, sources)?;
        rig.running = Some(running);
        Ok(Some(rig))
    }

    /// A thread for each source, blocked in it.
    fn block(&mut self, sources: usize) -> io::Result<()> {
        for source in 0..sources {
            let eventfd = Arc::new(Eventfd::new().map_err(failed("making an eventfd"))?);
            self.eventfds.push(Arc::clone(&eventfd));
            let burst = Arc::clone(&self.burst);
            self.threads.push(thread::spawn(move || {
                use rustix::event::{PollFd, PollFlags, poll};
                while let Some(descriptor) = eventfd.descriptor() {
                    let _ = poll(&mut [PollFd::new(&descriptor, PollFlags::IN)], None);
                    match eventfd.take() {
                        Ok(1) => burst.call(source),
                        Ok(_) => return,
                        Err(_) => {}
                    }
                }
            }));
        }
        Ok(())
    }

    fn pair(&mut self, running: &Running, sources: usize) -> io::Result<()> {
        let pairings = Pairings::new(sources as u32);
        for number in 0..sources {
            let token = Token(number as u64 + 1);
            let eventfd = Eventfd::new().map_err(failed("making an eventfd"))?;
            let source = Arc::new(Endpoint::new(EventSource::new(&running.handle(), eventfd)));
            self.eventfds.push(Arc::clone(source.eventfd()));
            let function = match &self.workers {
                Some(workers) => {
                    let workers = Arc::clone(workers);
                    Callback::new(move |_: Item<'_>| workers.enqueue(number as u32))
                }
                None => {
                    let burst = Arc::clone(&self.burst);
                    Callback::new(move |_: Item<'_>| burst.call(number))
                }
            };
            let function = Arc::new(Endpoint::new(function));
            let refused = |error| io::Error::other(format!("pairing: {error}"));
            self.pairings
                .push(pairings.consume(token, &function).map_err(refused)?);
            self.pairings
                .push(pairings.produce(token, &source).map_err(refused)?);
        }
        Ok(())
    }

    /// The median of so many bursts, in microseconds.
    fn measure(&self, bursts: usize) -> io::Result<f64> {
        let mut latencies = Vec::new();
        // The first ones find cold caches, and the watches not yet begun.
        for burst in 0..bursts + bursts / 10 + 1 {
            if burst == bursts / 10 + 1 {
                latencies.clear();
            }
            self.burst.run(&self.eventfds, &mut latencies)?;
            thread::sleep(PAUSE);
        }
        Ok(median(&latencies) / 1000.0)
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.pairings.clear();
        drop(self.running.take());
        // Two are no signal: the threads end.
        for eventfd in &self.eventfds {
            let _ = eventfd.write(2);
        }
        join(std::mem::take(&mut self.threads));
    }
}

pub(crate) fn run(stage: &mut Stage, report: &mut BenchReport) -> io::Result<()> {
    let profile = stage.profile;
    let sizes: &[usize] = profile.pick(&[1, 16, 256], &[1, 16, 256], &[1]);
    let bursts = profile.pick(1000, 200, 2);
    let columns = [
        (WORKER, Role::Baseline),
        (OURS, Role::Ours),
        (THREADS, Role::Detail),
    ];
    let (title, labels) = ("From the write to the call", ["driver", "sources at once"]);
    let mut table = Table::new(title, "us, median", &labels, columns);
    for (name, choice) in [
        ("uring", DriverChoice::Uring),
        ("epoll", DriverChoice::Epoll),
    ] {
        for &sources in sizes {
            (stage.progress)(&format!("events: {sources} sources, {name}"));
            let bursts = (bursts / sources.isqrt()).max(2);
            if let Some(figures) = measure(choice, sources, bursts, stage.runs(profile.rounds()))? {
                table.push(&[&name, &sources], figures);
            }
        }
    }
    for driver in ["uring", "epoll"] {
        let labels = [driver, "1"];
        let reached = ratio(table.figure(&labels, WORKER), table.figure(&labels, OURS));
        let what = format!("worker against ours, {driver}, one signal");
        report.target(what, "x", Wanted::AtLeast(3.0), reached);
    }
    report.note(
        "the target is for one signal, which costs wake-ups; signals of a burst wait for each \
         other, and what counts there is what one of them costs its thread",
    );
    report.tables = vec![table];
    Ok(())
}

/// All ways, interleaved. `None`: no such driver here.
fn measure(
    choice: DriverChoice,
    sources: usize,
    bursts: usize,
    rounds: usize,
) -> io::Result<Option<Vec<Figure>>> {
    let mut rigs = Vec::new();
    for way in [Way::Worker, Way::Direct, Way::Threads] {
        let Some(rig) = Rig::new(choice, way, sources)? else {
            return Ok(None);
        };
        rigs.push(rig);
    }
    let mut turns: Vec<Turn<'_, io::Result<f64>>> = Vec::new();
    for rig in &rigs {
        turns.push(Box::new(|| rig.measure(bursts)));
    }
    let samples = samples(rounds, &mut turns).into_iter();
    let figures = samples.map(|runs| {
        let runs = runs.into_iter().collect::<io::Result<Vec<f64>>>()?;
        Ok(Figure::of(&runs))
    });
    figures.collect::<io::Result<_>>().map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_calls_every_function() {
        for choice in [DriverChoice::Uring, DriverChoice::Epoll] {
            for way in [Way::Worker, Way::Direct, Way::Threads] {
                let Some(rig) = Rig::new(choice, way, 5).expect("it starts") else {
                    flatpath_testkit::skipped::not_offered("no io_uring", (6, 0));
                    continue;
                };
                assert!(rig.measure(3).expect("no signal is lost") > 0.0);
            }
        }
    }
}
