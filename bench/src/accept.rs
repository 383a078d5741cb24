//! `bench accept`: one accept per connection, against one multishot accept for all.
//!
//! Both are the real server (`flatpath serve --echo`), each in a process of its own, side by side
//! and in turns. Two loads: a crowd that connects at once, each client with 128 bytes to echo; and
//! clients that come one after the other. Figures are those of the server process alone, the
//! closing of connections included: wall time, CPU time as the scheduler counts it, system calls as
//! the driver counts them.

use std::io;
use std::time::Duration;

use crate::Stage;
use crate::published;
use flatpath::OperationMode;
use flatpath_bench_common::crowd::{self, Outcome};
use flatpath_bench_common::measure::per_operation;
use flatpath_bench_common::profile::Profile;
use flatpath_bench_common::report::{BenchReport, Figure, Role, Table, Wanted, ratio};
use server::Server;

mod server;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Load {
    AtOnce(u32),
    OneByOne(u32),
}

/// All runs against one server.
#[derive(Debug, Default)]
struct Runs {
    wall_micros: Vec<f64>,
    cpu_micros: Vec<f64>,
    system_calls: Option<f64>,
    lost: u32,
}

impl Load {
    fn clients(self) -> u32 {
        match self {
            Self::AtOnce(clients) | Self::OneByOne(clients) => clients,
        }
    }

    fn name(self) -> String {
        match self {
            Self::AtOnce(clients) => format!("{clients} at once"),
            Self::OneByOne(clients) => format!("{clients} one by one"),
        }
    }

    fn visit(self, server: &Server) -> io::Result<Outcome> {
        let address = server.address();
        match self {
            Self::AtOnce(count) => crowd::at_once(address, count),
            Self::OneByOne(count) => crowd::one_by_one(address, count),
        }
    }
}

pub(crate) fn run(stage: &mut Stage, report: &mut BenchReport) -> io::Result<()> {
    let profile = stage.profile;
    let most = profile.pick(10_000, 10_000, 50).min(descriptors());
    let loads = [
        Load::AtOnce(most),
        Load::OneByOne(profile.pick(2_000, 500, 10)),
    ];
    let runs = [profile.pick(20, 3, 1), profile.pick(10, 3, 1)].map(|runs| stage.runs(runs));
    let title = "The server's cost of a connection: accept, 128 bytes there and back, close";
    let columns = [("single", Role::Baseline), ("multishot", Role::Ours)];
    let mut table = Table::new(title, "per connection", &["clients", "figure"], columns);
    let mut driver = String::new();
    for (load, runs) in loads.into_iter().zip(runs) {
        let both = compare(stage, load, runs, &mut driver)?;
        let lost: u32 = both.iter().map(|runs| runs.lost).sum();
        if lost > 0 {
            report.note(format!("{lost} clients got no echo: {}", load.name()));
        }
        rows(&mut table, load, &both);
        targets(report, &table, load);
    }
    report.tables.push(table);
    report.note(
        "one by one there is nothing to save in system calls: a single accept is armed with the \
         wait that the server makes anyway",
    );
    report.note(format!(
        "driver {driver}; only io_uring has a multishot accept"
    ));
    report.note(format!(
        "published: 10,000 clients, clock() of client and server together; a CPU figure includes \
         everything a connection costs the server, of which accept is one part. At most {} clients \
         have their connection in the making at a time: the kernel's queue holds no more",
        crowd::CONNECTING_MAX
    ));
    if profile != Profile::Full {
        report.note(format!("{} runs instead of 20", runs[0]));
    }
    Ok(())
}

/// Descriptors this process may have for connections.
fn descriptors() -> u32 {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let spare = limit.current.unwrap_or(u64::MAX).saturating_sub(1_200);
    u32::try_from(spare).unwrap_or(u32::MAX)
}

/// Both servers, in turns.
fn compare(
    stage: &mut Stage,
    load: Load,
    runs: usize,
    driver: &mut String,
) -> io::Result<[Runs; 2]> {
    let servers = [
        Server::start(&stage.server, OperationMode::Single)?,
        Server::start(&stage.server, OperationMode::Multishot)?,
    ];
    let mut all = [Runs::default(), Runs::default()];
    // The first round warms up: pools fill, ports are new.
    for round in 0..=runs {
        (stage.progress)(&format!("accept: {}, run {round} of {runs}", load.name()));
        for step in 0..servers.len() {
            let index = (round + step) % servers.len();
            let (server, runs) = (&servers[index], &mut all[index]);
            let before = server.cpu_time()?;
            let outcome = load.visit(server)?;
            let cpu_time = server.settled_cpu_time()?.since(&before);
            runs.lost += outcome.lost;
            if round > 0 {
                let per_client = |time: Duration| per_operation(time, load.clients().into()) / 1e3;
                runs.wall_micros.push(per_client(outcome.wall));
                runs.cpu_micros.push(per_client(cpu_time));
            }
        }
    }
    let connections = f64::from(load.clients()) * (runs + 1) as f64;
    for (server, runs) in servers.into_iter().zip(&mut all) {
        let end = server.stop()?;
        runs.system_calls = end.system_calls.map(|calls| calls as f64 / connections);
        *driver = end.driver;
    }
    Ok(all)
}

const CPU: &str = "CPU us";
const CALLS: &str = "system calls";

fn rows(table: &mut Table, load: Load, both: &[Runs; 2]) {
    let name = load.name();
    let fold = |pick: fn(&Runs) -> &Vec<f64>| both.each_ref().map(|runs| Figure::of(pick(runs)));
    table.push(&[&name, &"wall us"], fold(|runs| &runs.wall_micros));
    table
        .push(&[&name, &CPU], fold(|runs| &runs.cpu_micros))
        .published = matches!(load, Load::AtOnce(_)).then_some(published::ACCEPT);
    let calls = both
        .each_ref()
        .map(|runs| runs.system_calls.map(Figure::once));
    table.push(&[&name, &CALLS], calls);
}

fn targets(report: &mut BenchReport, table: &Table, load: Load) {
    let name = load.name();
    let of = |figure, column| table.figure(&[&name, figure], column);
    let calls = ratio(of(CALLS, "single"), of(CALLS, "multishot"));
    if let Load::AtOnce(_) = load {
        let what = format!("system calls, single against multishot, {name}");
        report.target(what, "x", Wanted::AtLeast(1.1), calls);
    }
    let cpu = ratio(of(CPU, "multishot"), of(CPU, "single")).map(|part| (1.0 - part) * 100.0);
    let what = format!("CPU saved by multishot, {name}");
    report.target(what, "%", Wanted::AtLeast(1.65), cpu);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_client_is_lost_with_either_accept() {
        let mut stage = Stage {
            profile: Profile::Tiny,
            runs: None,
            server: flatpath_testkit::binary::flatpath().into(),
            only: None,
            progress: Box::new(|_| {}),
        };
        for load in [Load::AtOnce(60), Load::OneByOne(5)] {
            let both = compare(&mut stage, load, 1, &mut String::new()).expect("both serve");
            for runs in both {
                assert_eq!((runs.lost, runs.cpu_micros.len()), (0, 1));
                assert!(runs.system_calls.is_some_and(|calls| calls > 0.0));
            }
        }
    }
}
