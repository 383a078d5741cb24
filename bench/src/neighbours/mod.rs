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
//! | `troubles`  | the list of troubles, and the options of the server for each  |
//! | `causes`    | what they do                                                  |
//! | `crowd`     | many troublesome connections on one thread                    |
//! | `server`    | the server under test, and nginx                              |
//!
//! The trouble comes from addresses of its own, many of them, so that a limit per address alone
//! does not pass the test. Everything runs on one machine: a trouble that takes processor time
//! takes it from the innocent clients too, which the row of nginx shows.
//!
//! With `NEIGHBOURS_TRACE` in the environment, each error of an innocent client and the server's
//! log go to standard error.

mod causes;
mod crowd;
mod innocent;
mod server;
mod troubles;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::Stage;
use flatpath_bench_common::process::raise_descriptor_limit;
use flatpath_bench_common::profile::Profile;
use flatpath_bench_common::report::{BenchReport, Figure, Role, Table, Wanted};
use innocent::{Clock, Kind, Part, Waits};
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
    /// A client of HTTP that keeps its connection.
    kept: Pair,
    /// One that makes a connection for each request.
    new: Pair,
    /// One whose answers come from a worker.
    pooled: Pair,
    /// Clients of the other services.
    others: Pair,
}

/// What clients waited without the trouble, and with it.
#[derive(Default)]
struct Pair {
    alone: Waits,
    beside: Waits,
}

impl Pair {
    fn keeps_p99(&self) -> bool {
        let bound_ms = (P99_TIMES * self.alone.percentile_ms(99.0)).max(P99_MS);
        self.beside.percentile_ms(99.0) <= bound_ms
    }
}

impl Outcome {
    fn all(&self) -> [&Pair; 4] {
        [&self.kept, &self.new, &self.pooled, &self.others]
    }

    fn p99_is_met(&self) -> bool {
        self.all().into_iter().all(Pair::keeps_p99)
    }

    fn longest_is_met(&self) -> bool {
        let longest = |pair: &Pair| pair.beside.longest_ms() <= LONGEST_MS;
        self.all().into_iter().all(longest)
    }

    fn errors(&self) -> u64 {
        self.all().iter().map(|pair| pair.beside.errors()).sum()
    }

    fn figures(&self) -> impl Iterator<Item = Option<Figure>> {
        let figures = self.all().into_iter().flat_map(|pair| {
            let is_measured = pair.beside.count() > 0;
            let figure = move |value: f64| is_measured.then(|| Figure::once(value));
            [
                figure(pair.alone.percentile_ms(99.0)),
                figure(pair.beside.percentile_ms(50.0)),
                figure(pair.beside.percentile_ms(99.0)),
                figure(pair.beside.longest_ms()),
            ]
        });
        figures.chain([Some(Figure::once(self.errors() as f64))])
    }
}

/// Runs the bench.
pub(crate) fn run(stage: &mut Stage<'_>) -> io::Result<BenchReport> {
    // Troubles need thousands; without, they are smaller.
    let _ = raise_descriptor_limit();
    let about = "innocent clients, alone and beside each of many troubles";
    let mut report = BenchReport::new("neighbours", about);
    let mut outcomes = Vec::new();
    let candidates = Candidate::available(stage.server, &mut report.notes);
    for trouble in chosen(stage.only, stage.profile)? {
        for candidate in &candidates {
            if *candidate == Candidate::Nginx && !trouble.nginx_has_it {
                continue;
            }
            let row = format!("{}, {}", trouble.name, candidate.name());
            stage.step(&format!("neighbours: {row}"));
            match one(stage, &trouble, *candidate) {
                Ok(outcome) => outcomes.push(outcome),
                Err(error) if error.kind() == io::ErrorKind::Unsupported => {
                    report.note(format!("{row}: not measured: {error}"));
                }
                Err(error) => return Err(error),
            }
        }
    }
    tell(&mut report, &outcomes);
    Ok(report)
}

/// The rows to measure.
///
/// # Errors
/// None contains what was asked for.
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
fn one(stage: &Stage<'_>, trouble: &Trouble, candidate: Candidate) -> io::Result<Outcome> {
    let prepared = Prepared::start(stage.server, candidate, trouble)?;
    let arena = Arc::new(prepared.arena(stage.profile));
    let clock = Arc::new(Clock::default());
    let kinds = Kind::all(&arena);
    let clients: Vec<_> = kinds
        .into_iter()
        .map(|kind| {
            let (arena, clock) = (Arc::clone(&arena), Arc::clone(&clock));
            (
                kind,
                thread::spawn(move || innocent::talk(kind, &arena, &clock)),
            )
        })
        .collect();

    thread::sleep(stage.profile.pick(500, 300, 20).millis());
    clock.enter(Part::Alone);
    thread::sleep(stage.profile.pick(2_000, 1_000, 50).millis());

    clock.enter(Part::Beside);
    let stop = Arc::new(AtomicBool::new(false));
    let maker = thread::spawn({
        let (arena, stop, cause) = (Arc::clone(&arena), Arc::clone(&stop), trouble.cause);
        move || cause(&arena, &stop)
    });
    let end = Instant::now() + stage.profile.pick(trouble.millis, 2_000, 100).millis();
    while Instant::now() < end && !maker.is_finished() {
        thread::sleep(Duration::from_millis(5));
    }
    // The trouble lasts until the last client has its answer or has given up.
    clock.enter(Part::Over);
    let mut outcome = Outcome {
        trouble: trouble.name,
        candidate,
        kept: Pair::default(),
        new: Pair::default(),
        pooled: Pair::default(),
        others: Pair::default(),
    };
    for (kind, client) in clients {
        let (alone, beside) = client
            .join()
            .map_err(|_| io::Error::other("an innocent client panicked; this is a bug"))?;
        let pair = match kind {
            Kind::Kept => &mut outcome.kept,
            Kind::New => &mut outcome.new,
            Kind::Pooled => &mut outcome.pooled,
            Kind::Nfs | Kind::Echo | Kind::Relay => &mut outcome.others,
        };
        pair.alone.add(&alone);
        pair.beside.add(&beside);
    }
    // ORDER: Relaxed: the flag alone matters, and the join below orders the rest.
    stop.store(true, Ordering::Relaxed);
    let caused = maker
        .join()
        .map_err(|_| io::Error::other("the trouble panicked; this is a bug"))?;
    drop(arena);
    prepared.stop();
    caused?;
    Ok(outcome)
}

fn tell(report: &mut BenchReport, outcomes: &[Outcome]) {
    let figures = ["alone p99", "p50", "p99", "longest"];
    let names = ["kept", "new", "pooled", "other"]
        .iter()
        .flat_map(|client| figures.map(|figure| format!("{client} {figure}")));
    let mut table = Table::new(
        "What innocent clients wait beside each trouble: of HTTP on a kept connection, on a new \
         one for each request, of a worker, and of others (NFS, echo, relay)",
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

/// What a row is to keep.
type Promise = fn(&Outcome) -> bool;

/// How many rows of a candidate keep each promise; the rows that do not are named.
fn targets(report: &mut BenchReport, outcomes: &[Outcome], candidate: Candidate) {
    let rows: Vec<_> = outcomes
        .iter()
        .filter(|outcome| outcome.candidate == candidate)
        .collect();
    if rows.is_empty() {
        return;
    }
    let promises: [(&str, Promise); 3] = [
        ("no error", |outcome| outcome.errors() == 0),
        ("p99", Outcome::p99_is_met),
        ("longest wait", Outcome::longest_is_met),
    ];
    for (name, holds) in promises {
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
        let ratio = |ours: &Waits, theirs: &Waits| {
            let theirs = theirs.percentile_ms(99.0);
            (theirs > 0.0).then(|| ours.percentile_ms(99.0) / theirs)
        };
        let name = candidate.name();
        let compared = [
            ("a hot file", &ours.kept, &nginx.kept),
            ("a pooled answer", &ours.pooled, &nginx.pooled),
        ];
        for (what, ours, theirs) in compared {
            report.target(
                format!("{name} beside busy loops: p99 of {what} against nginx"),
                "x",
                Wanted::AtMost(BUSY_TIMES),
                ratio(&ours.beside, &theirs.beside),
            );
        }
    }
}

/// Milliseconds, where a profile chooses between plain numbers.
trait Millis {
    fn millis(self) -> Duration;
}

impl Millis for u64 {
    fn millis(self) -> Duration {
        Duration::from_millis(self)
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
