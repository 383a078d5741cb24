//! `bench neighbours`: does one party in trouble disturb the others?
//!
//! Innocent clients of every service talk to a server at a calm rate: first alone, then beside one
//! trouble after another (slow, hostile, hung or unlucky clients, and an unlucky machine). What
//! counts is how long the innocent wait and whether any of them sees an error. Each trouble gets a
//! fresh server, on io_uring and on epoll, and nginx gets the same where it has the service.
//!
//! | module      | what it is                                                    |
//! |-------------|---------------------------------------------------------------|
//! | `innocent`  | the clients that are measured                                 |
//! | `troubles`  | the list of troubles, what they do, and the server's options  |
//! | `h2`        | those over HTTP/2                                             |
//! | `crowd`     | many troublesome connections on one thread                    |
//! | `manners`   | how crowds behave, and the bytes that they send               |
//! | `server`    | the server under test, and nginx                              |
//!
//! The trouble comes from addresses of its own, many of them, so that a limit per address alone
//! does not pass the test. Everything runs on one machine: a trouble that takes processor time
//! takes it from the innocent clients too, which the row of nginx shows.
//!
//! With `NEIGHBOURS_TRACE` in the environment, each error of an innocent client, each wait beyond
//! [`LONGEST_MS`] and the server's log go to standard error.

mod crowd;
mod h2;
mod innocent;
mod manners;
mod mounts;
mod server;
mod troubles;

use std::io;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::Stage;
use flatpath_bench_common::profile::Profile;
use flatpath_bench_common::report::{BenchReport, Figure, Role, Table, Wanted, ratio};
use flatpath_testkit::process::raise_descriptor_limit;
use innocent::{CLIENTS, Clock, Kind, Part, Waits};
use server::{Candidate, Prepared};
use troubles::{Trouble, troubles};

/// Longest wait that an innocent client may see beside any trouble, in milliseconds.
const LONGEST_MS: f64 = 250.0;
/// The 99th percentile beside a trouble may be this long, however short it is without, in
/// milliseconds.
const P99_MS: f64 = 20.0;
/// Otherwise it may be this many times what it is without.
const P99_TIMES: f64 = 2.0;
/// The same for the row of busy loops, against nginx in the same run.
const BUSY_TIMES: f64 = 1.2;

/// One row: a trouble beside one candidate.
struct Outcome {
    trouble: &'static str,
    candidate: Candidate,
    /// In the order of [`innocent::CLIENTS`].
    clients: [Waits; CLIENTS.len()],
}

impl Outcome {
    fn errors(&self) -> u64 {
        self.clients.iter().map(|waits| waits.beside.errors).sum()
    }

    fn figures(&self) -> impl Iterator<Item = Option<Figure>> {
        let figures = self.clients.iter().flat_map(|waits| {
            let is_measured = waits.beside.count() > 0;
            let figure = move |value: f64| is_measured.then(|| Figure::once(value));
            [
                figure(waits.alone.percentile_ms(99.0)),
                figure(waits.beside.percentile_ms(50.0)),
                figure(waits.beside.percentile_ms(99.0)),
                figure(waits.beside.longest_ms()),
            ]
        });
        figures.chain([Some(Figure::once(self.errors() as f64))])
    }
}

/// What a row is to keep, and whether it does.
type Promise = (&'static str, fn(&Outcome) -> bool);

const PROMISES: [Promise; 3] = [
    ("no error", |outcome| outcome.errors() == 0),
    ("p99", |outcome| {
        let keeps = |waits: &Waits| {
            let bound_ms = (P99_TIMES * waits.alone.percentile_ms(99.0)).max(P99_MS);
            waits.beside.percentile_ms(99.0) <= bound_ms
        };
        outcome.clients.iter().all(keeps)
    }),
    ("longest wait", |outcome| {
        let longest = |waits: &Waits| waits.beside.longest_ms() <= LONGEST_MS;
        outcome.clients.iter().all(longest)
    }),
];

pub(crate) fn run(stage: &mut Stage, report: &mut BenchReport) -> io::Result<()> {
    // Troubles need thousands; without, they are smaller.
    let _ = raise_descriptor_limit();
    let mut outcomes = Vec::new();
    let candidates = Candidate::available(&mut report.notes);
    for trouble in chosen(stage.only.as_deref(), stage.profile)? {
        for candidate in &candidates {
            if *candidate == Candidate::Nginx && !trouble.nginx_has_it {
                continue;
            }
            let row = format!("{}, {}", trouble.name, candidate.name());
            (stage.progress)(&format!("neighbours: {row}"));
            match one(stage, &trouble, *candidate) {
                Ok(outcome) => outcomes.push(outcome),
                Err(error) if error.kind() == io::ErrorKind::Unsupported => {
                    report.note(format!("{row}: not measured: {error}"));
                }
                Err(error) => return Err(error),
            }
        }
    }
    tell(report, &outcomes);
    Ok(())
}

/// The rows to measure.
fn chosen(only: Option<&str>, profile: Profile) -> io::Result<Vec<Trouble>> {
    let mut chosen = troubles();
    chosen.retain(|trouble| match only {
        Some(only) => trouble.name.contains(only),
        None => profile == Profile::Full || trouble.is_in_quick,
    });
    let Some(only) = only.filter(|_| chosen.is_empty()) else {
        return Ok(chosen);
    };
    let names: Vec<_> = troubles().iter().map(|trouble| trouble.name).collect();
    let names = names.join("\n  ");
    let message = format!("--only: no row of neighbours contains {only:?}; they are\n  {names}");
    Err(io::Error::new(io::ErrorKind::InvalidInput, message))
}

/// One trouble beside one candidate: the clients alone, then both, then the end of both.
fn one(stage: &Stage, trouble: &Trouble, candidate: Candidate) -> io::Result<Outcome> {
    let prepared = Prepared::start(stage, candidate, trouble)?;
    let (arena, clock, stop) = (&prepared.arena, &Clock::default(), AtomicBool::new(false));
    let [warm_up, alone, beside] = stage
        .profile
        .pick(
            [500, 2_000, trouble.millis],
            [300, 1_000, 2_000],
            [20, 50, 100],
        )
        .map(Duration::from_millis);
    let mut outcome = Outcome {
        trouble: trouble.name,
        candidate,
        clients: Default::default(),
    };
    let caused = thread::scope(|scope| {
        let clients: Vec<_> = Kind::all(arena)
            .into_iter()
            .map(|kind| {
                (
                    kind,
                    scope.spawn(move || innocent::talk(kind, arena, clock)),
                )
            })
            .collect();
        thread::sleep(warm_up);
        clock.enter(Part::Alone);
        thread::sleep(alone);
        clock.enter(Part::Beside);
        let maker = scope.spawn(|| trouble.cause(arena, &stop));
        let end = Instant::now() + beside;
        while Instant::now() < end && !maker.is_finished() {
            thread::sleep(Duration::from_millis(5));
        }
        // The trouble lasts until the last client has its answer or has given up.
        clock.enter(Part::Over);
        let clients = clients
            .into_iter()
            .map(|(kind, client)| (kind, client.join()));
        let clients: Vec<_> = clients.collect();
        // ORDER: Relaxed: the flag alone matters, and the join below orders the rest.
        stop.store(true, Ordering::Relaxed);
        for (kind, waits) in clients {
            let waits = waits.unwrap_or_else(|cause| resume_unwind(cause));
            outcome.clients[kind.column()].add(&waits);
        }
        maker.join().unwrap_or_else(|cause| resume_unwind(cause))
    });
    prepared.stop();
    caused.map(|()| outcome)
}

fn tell(report: &mut BenchReport, outcomes: &[Outcome]) {
    let figures = ["alone p99", "p50", "p99", "longest"];
    let names = CLIENTS
        .iter()
        .flat_map(|client| figures.map(|figure| format!("{client} {figure}")));
    let mut table = Table::new(
        "What innocent clients wait beside each trouble: of HTTP on a kept connection, on a new \
         one for each request, of a worker, of files that are stored and streamed, and of others \
         (NFS, echo, relay)",
        "ms; errors: count",
        &["trouble", "server"],
        names
            .chain(["errors".into()])
            .map(|name| (name, Role::Detail)),
    );
    for outcome in outcomes {
        table.push(
            &[&outcome.trouble, &outcome.candidate.name()],
            outcome.figures(),
        );
    }
    report.tables.push(table);
    for candidate in [Candidate::Uring, Candidate::Epoll, Candidate::Nginx] {
        targets(report, outcomes, candidate);
    }
    busy(report, outcomes);
    report.note(format!(
        "wanted in every row: no error, p99 at most {P99_TIMES} x alone or {P99_MS} ms, longest \
         wait at most {LONGEST_MS} ms"
    ));
}

/// How many rows of a candidate keep each promise; the rows that do not are named.
fn targets(report: &mut BenchReport, outcomes: &[Outcome], candidate: Candidate) {
    let rows: Vec<_> = outcomes
        .iter()
        .filter(|outcome| outcome.candidate == candidate)
        .collect();
    if rows.is_empty() {
        return;
    }
    for (name, holds) in PROMISES {
        let missed: Vec<_> = rows.iter().filter(|outcome| !holds(outcome)).collect();
        if candidate != Candidate::Nginx {
            let what = format!("{}: rows that keep \"{name}\"", candidate.name());
            let kept = (rows.len() - missed.len()) as f64;
            report.target(what, "rows", Wanted::AtLeast(rows.len() as f64), Some(kept));
        }
        if !missed.is_empty() {
            let names: Vec<_> = missed.iter().map(|outcome| outcome.trouble).collect();
            report.note(format!(
                "{} misses \"{name}\" beside: {}",
                candidate.name(),
                names.join("; ")
            ));
        }
    }
}

/// Beside busy loops the scheduler decides; what nginx reaches there is the measure.
fn busy(report: &mut BenchReport, outcomes: &[Outcome]) {
    let of = |candidate| {
        outcomes
            .iter()
            .find(|outcome| outcome.trouble == troubles::BUSY && outcome.candidate == candidate)
    };
    let Some(nginx) = of(Candidate::Nginx) else {
        return;
    };
    for candidate in [Candidate::Uring, Candidate::Epoll] {
        let Some(ours) = of(candidate) else { continue };
        let name = candidate.name();
        for (what, kind) in [
            ("a hot file", Kind::Kept),
            ("a pooled answer", Kind::Pooled),
        ] {
            let [ours, theirs] = [ours, nginx]
                .map(|outcome| outcome.clients[kind.column()].beside.percentile_ms(99.0));
            let what = format!("{name} beside busy loops: p99 of {what} against nginx");
            let reached = ratio(Some(ours), Some(theirs));
            report.target(what, "x", Wanted::AtMost(BUSY_TIMES), reached);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_in_no_name_is_an_error_that_names_the_rows() {
        let one = chosen(Some("reset at once"), Profile::Quick).expect("a row");
        assert_eq!(one.len(), 1);
        let error = chosen(Some("no such row"), Profile::Full).err();
        let text = error.expect("no row").to_string();
        assert!(
            text.contains("\"no such row\"") && text.contains(one[0].name),
            "{text}"
        );
    }
}
