//! `bench wakeups`: from one thread's wake-up of another to that one's first step, by each means.
//!
//! Before: a condition variable. Ours: a futex, by which a worker waits for a request, and a
//! network thread's wait for its ring, which an eventfd ends. Beside them: epoll, a thread that
//! blocks in an eventfd, and one that looks for a while before it waits for the futex.
//!
//! One thread sleeps for a while, notes the time, and wakes the other. What the wake-up costs is
//! the CPU time of both, the sleep included, which is the same for all: figures are to be compared
//! with each other. That a thread is woken while every processor is busy depends on the scheduler
//! alone.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use flatpath_driver::epoll::Epoll;
use flatpath_driver::uring::Uring;
use flatpath_driver::{Driver, DriverConfig};
use flatpath_structures::lock::{Condition, Lock};
use rustix::event::{EventfdFlags, eventfd};

use crate::Stage;
use flatpath_bench_common::measure::{Turn, figures, histogram, samples, thread_cpu_ns};
use flatpath_bench_common::report::{BenchReport, Role, Table};

/// How long the waker sleeps between two wake-ups; timers add about 50 us.
const PAUSES: [Duration; 2] = [Duration::from_micros(20), Duration::from_micros(500)];
const WARM_UP: usize = 20;
/// What was woken must come within this time.
const PATIENCE: Duration = Duration::from_secs(30);
/// Ends the thread that is woken.
const END: u64 = u64::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Means {
    Condvar,
    Futex,
    Eventfd,
    Ring,
    Epoll,
    /// Spins for this many microseconds, then sleeps as `Futex` does.
    Look(u64),
}

const CANDIDATES: [(&str, Role, Means); 7] = [
    ("condvar", Role::Baseline, Means::Condvar),
    ("futex (ours)", Role::Ours, Means::Futex),
    ("io_uring (ours)", Role::Ours, Means::Ring),
    ("epoll", Role::Detail, Means::Epoll),
    ("eventfd", Role::Detail, Means::Eventfd),
    ("look 5 us", Role::Detail, Means::Look(5)),
    ("look 50 us", Role::Detail, Means::Look(50)),
];

/// When the one who is to be woken was, in nanoseconds of `begin`; 0: it has not been.
struct Call {
    begin: Instant,
    at_ns: AtomicU64,
}

impl Call {
    fn now_ns(&self) -> u64 {
        (self.begin.elapsed().as_nanos() as u64).max(1)
    }

    fn is_there(&self) -> bool {
        // ORDER: Acquire and Release: the figures of the thread that is woken, at its end.
        self.at_ns.load(Ordering::Acquire) != 0
    }
}

type Wake = Box<dyn Fn() + Send>;
/// Returns when the call is there.
type Sleep = Box<dyn FnMut()>;

fn failed(what: &str, cause: impl std::fmt::Display) -> io::Error {
    io::Error::other(format!("{what}: {cause}"))
}

/// For the calling thread: how it sleeps, and how it is woken. `None`: not on this machine.
fn make(means: Means, call: &Arc<Call>) -> io::Result<Option<(Sleep, Wake)>> {
    let call = Arc::clone(call);
    Ok(Some(match means {
        Means::Condvar => condvar(call),
        Means::Futex => futex(call, Duration::ZERO),
        Means::Look(us) => futex(call, Duration::from_micros(us)),
        Means::Eventfd => {
            let event = Arc::new(eventfd(0, EventfdFlags::CLOEXEC)?);
            let other = Arc::clone(&event);
            let sleep = move || {
                while !call.is_there() {
                    let _ = rustix::io::read(&event, &mut [0; 8]);
                }
            };
            let wake = move || _ = rustix::io::write(&other, &1_u64.to_ne_bytes());
            (Box::new(sleep), Box::new(wake))
        }
        Means::Ring => match Uring::new(&DriverConfig::default()) {
            Ok(driver) => waiting(driver, call),
            Err(_) => return Ok(None),
        },
        Means::Epoll => {
            let driver = Epoll::new(&DriverConfig::default());
            waiting(driver.map_err(|error| failed("epoll", error))?, call)
        }
    }))
}

fn condvar(call: Arc<Call>) -> (Sleep, Wake) {
    let shared = Arc::new((Lock::new(()), Condition::new()));
    let other = Arc::clone(&shared);
    let sleep = move || {
        let mut guard = shared.0.lock();
        while !call.is_there() {
            guard = shared.1.wait(guard);
        }
    };
    let wake = move || {
        drop(other.0.lock());
        other.1.notify_one();
    };
    (Box::new(sleep), Box::new(wake))
}

fn futex(call: Arc<Call>, look: Duration) -> (Sleep, Wake) {
    let sleeper = thread::current();
    let sleep = move || {
        let begin = Instant::now();
        while !look.is_zero() && begin.elapsed() < look {
            if call.is_there() {
                return;
            }
            std::hint::spin_loop();
        }
        while !call.is_there() {
            thread::park();
        }
    };
    (Box::new(sleep), Box::new(move || sleeper.unpark()))
}

fn waiting(mut driver: impl Driver + 'static, call: Arc<Call>) -> (Sleep, Wake) {
    let waker = driver.waker();
    let mut completions = Vec::new();
    let sleep = move || {
        while !call.is_there() {
            let waited = driver.wait(None, &|| call.is_there(), &mut completions);
            waited.expect("the driver works");
            completions.clear();
        }
    };
    (Box::new(sleep), Box::new(move || waker.wake()))
}

/// What became of a slice, per wake-up.
#[derive(Clone, Copy, Debug, Default)]
struct Woken {
    p50_us: f64,
    p99_us: f64,
    /// What the waker waits for.
    wake_us: f64,
    /// Of both threads.
    cpu_us: f64,
}

/// The thread that is woken: latencies, and the CPU time of all that follows the warm-up.
fn sleeper(
    means: Means,
    call: &Arc<Call>,
    ready: &mpsc::Sender<Option<Wake>>,
) -> io::Result<(hdrhistogram::Histogram<u64>, u64)> {
    let mut latencies = histogram();
    let Some((mut sleep, wake)) = make(means, call)? else {
        let _ = ready.send(None);
        return Ok((latencies, 0));
    };
    let _ = ready.send(Some(wake));
    let (mut wakes, mut cpu_ns) = (0, 0);
    loop {
        sleep();
        let woken_ns = call.now_ns();
        // ORDER: Release: see `is_there`.
        let called_ns = call.at_ns.swap(0, Ordering::AcqRel);
        if called_ns == END {
            return Ok((latencies, thread_cpu_ns() - cpu_ns));
        }
        wakes += 1;
        if wakes == WARM_UP {
            cpu_ns = thread_cpu_ns();
        } else if wakes > WARM_UP {
            latencies.saturating_record(woken_ns.saturating_sub(called_ns));
        }
    }
}

/// Wakes a thread again and again for a slice.
fn measure(means: Means, pause: Duration, slice: Duration) -> io::Result<Option<Woken>> {
    let call = Arc::new(Call {
        begin: Instant::now(),
        at_ns: AtomicU64::new(0),
    });
    let (ready, made) = mpsc::channel();
    let other = Arc::clone(&call);
    let sleeper = thread::spawn(move || sleeper(means, &other, &ready));
    let Ok(Some(wake)) = made.recv() else {
        return join(sleeper).map(|_| None);
    };
    let (mut wakes, mut wake_ns, mut cpu_ns) = (0_u64, 0, 0);
    let mut begin = Instant::now();
    while wakes < WARM_UP as u64 + 2 || begin.elapsed() < slice {
        thread::sleep(pause);
        let deadline = Instant::now() + PATIENCE;
        while call.is_there() {
            if Instant::now() > deadline {
                return Err(io::Error::other(format!("{means:?} lost a wake-up")));
            }
            thread::sleep(pause);
        }
        if wakes == WARM_UP as u64 {
            (begin, wake_ns, cpu_ns) = (Instant::now(), 0, thread_cpu_ns());
        }
        let called_ns = call.now_ns();
        call.at_ns.store(called_ns, Ordering::Release);
        wake();
        wake_ns += call.now_ns() - called_ns;
        wakes += 1;
    }
    cpu_ns = thread_cpu_ns() - cpu_ns;
    while call.is_there() {
        thread::sleep(pause);
    }
    call.at_ns.store(END, Ordering::Release);
    wake();
    let (latencies, sleeper_ns) = join(sleeper)?;
    let each_us = |ns: u64| ns as f64 / 1e3 / (wakes - WARM_UP as u64) as f64;
    Ok(Some(Woken {
        p50_us: latencies.value_at_quantile(0.5) as f64 / 1e3,
        p99_us: latencies.value_at_quantile(0.99) as f64 / 1e3,
        wake_us: each_us(wake_ns),
        cpu_us: each_us(cpu_ns + sleeper_ns),
    }))
}

fn join<T>(thread: JoinHandle<io::Result<T>>) -> io::Result<T> {
    let panicked = |_| io::Error::other("a thread panicked");
    thread.join().map_err(panicked)?
}

/// A loop on every processor, until dropped.
struct Loops {
    over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Loops {
    fn start(is_busy: bool) -> Loops {
        let over = Arc::new(AtomicBool::new(false));
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let threads = (0..if is_busy { cores } else { 0 }).map(|_| {
            let over = Arc::clone(&over);
            thread::spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            })
        });
        let threads = threads.collect();
        Loops { over, threads }
    }
}

impl Drop for Loops {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        crate::dispatch::join(std::mem::take(&mut self.threads));
    }
}

pub(crate) fn run(stage: &mut Stage, report: &mut BenchReport) -> io::Result<()> {
    let profile = stage.profile;
    let possible = CANDIDATES.iter().filter(|(_, _, means)| {
        // Kept out of the tables where this machine does not have it.
        *means != Means::Ring || Uring::new(&DriverConfig::default()).is_ok()
    });
    let candidates: Vec<_> = possible.collect();
    let columns = candidates.iter().map(|(name, role, _)| (*name, *role));
    let table = |title, unit| Table::new(title, unit, &["machine", "pause us"], columns.clone());
    let mut tables = [
        table("From the call to the first step, median", "us"),
        table("The same, 99th percentile", "us"),
        table("What the waker waits", "us per wake-up"),
        table("CPU of both threads", "us per wake-up"),
    ];
    for (machine, is_busy) in [("idle", false), ("busy loops", true)] {
        let loops = Loops::start(is_busy);
        for pause in profile.pick(&PAUSES[..], &PAUSES, &PAUSES[..1]) {
            (stage.progress)(&format!("wakeups: {machine}, every {pause:?}"));
            let slice = profile.slice(2);
            let mut turns: Vec<Turn<'_, io::Result<Woken>>> = Vec::new();
            for (_, _, means) in &candidates {
                turns.push(Box::new(move || {
                    let woken = measure(*means, *pause, slice)?;
                    woken.ok_or_else(|| io::Error::other("io_uring was there before"))
                }));
            }
            let runs = samples(stage.runs(profile.rounds()), &mut turns).into_iter();
            let runs = runs.map(|runs| runs.into_iter().collect::<io::Result<Vec<_>>>());
            let runs = runs.collect::<io::Result<Vec<_>>>()?;
            let of: [fn(&Woken) -> f64; 4] = [
                |woken| woken.p50_us,
                |woken| woken.p99_us,
                |woken| woken.wake_us,
                |woken| woken.cpu_us,
            ];
            for (table, of) in tables.iter_mut().zip(of) {
                table.push(&[&machine, &pause.as_micros()], figures(&runs, of));
            }
        }
        drop(loops);
    }
    report.tables = tables.into();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_means_wakes() {
        for (name, _, means) in CANDIDATES {
            let slice = Duration::from_millis(2);
            match measure(means, PAUSES[0], slice).expect("none is lost") {
                Some(woken) => assert!(woken.p50_us > 0.0 && woken.cpu_us > 0.0, "{name}"),
                None => flatpath_testkit::skipped::cannot_run(name),
            }
        }
    }
}
