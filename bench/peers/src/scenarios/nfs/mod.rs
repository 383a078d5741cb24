//! NFSv3: ours and nfs-ganesha, or ours with more and more workers, a table per workload.

mod connection;
mod list;
pub(crate) mod load;

use std::net::SocketAddr;
use std::path::Path;
use std::{fmt, fs, io};

use clap::ValueEnum;
use flatpath_bench_common::report::{BenchReport, Wanted};
use flatpath_bench_common::servers::{Metric, P50, P99, PEAK_MIB, interleave};
use flatpath_bench_common::tools::{GANESHA, RPCBIND};
use flatpath_testkit::child::{self, Child, is_listening};
use tempfile::TempDir;

use self::connection::Mount;
use self::list::LISTING;
use self::load::{CONNECTIONS, CPU, OPERATIONS, Workload};
use super::busy::BusyLoops;
use crate::candidates::observed::Dispatches;
use crate::instructions::this_program;
use crate::kind::Kind;
use crate::options::Scenario;
use crate::server::{NFS, Server, Setup};
use crate::session::{Pinning, Session};

pub(super) const KINDS: [Kind; 2] = [Kind::Flatpath, Kind::Ganesha];

/// Where the exports are: a memory file system.
const MEMORY: &str = "/dev/shm";
/// As `ganesha.conf` says.
const GANESHA_NFS: ([u8; 4], u16) = ([127, 0, 0, 1], 22049);
const GANESHA_MOUNT: ([u8; 4], u16) = ([127, 0, 0, 1], 22050);
const RPCBIND_PORT: u16 = 111;
/// Mean cost of putting a call on the queue, wake-ups included.
const DISPATCH: Metric = Metric::median("dispatch ns");
/// From the first number of workers to a higher one: noise.
const RATE_KEPT_MIN: f64 = 0.95;
const DISPATCH_RATIO_MAX: f64 = 1.1;

/// A server with the directory that it exports.
struct Exporting {
    server: Server,
    mount: Mount,
    export: TempDir,
    /// The rpcbind that ganesha insists on.
    _helper: Option<Child>,
}

/// A candidate of the sweep.
#[derive(Clone, Copy)]
struct Workers(u32);

impl fmt::Display for Workers {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} workers", self.0)
    }
}

/// Ours and nfs-ganesha.
pub(super) fn compare(session: &Session) -> io::Result<Vec<BenchReport>> {
    let mut setup = session.setup(Pinning::Free, None, CONNECTIONS);
    setup.service = NFS;
    let start = |kind| match kind {
        Kind::Ganesha => ganesha(),
        kind => flatpath(kind, &setup),
    };
    let list = |workload| list(session, workload, start);
    let each = |workload: Workload| {
        let name = name_of(workload);
        let cores = match workload {
            Workload::AloneBusy => session.core_count(),
            _ => 0,
        };
        let loops = BusyLoops::start(cores)?;
        let turn = |_, it: &mut Exporting| {
            let group = it.server.group();
            let seconds = session.options.seconds();
            loops.leave_out(|| load::run(&it.mount, workload, seconds, group))
        };
        let table = session.interleave(Scenario::Nfs, &name, &KINDS, start, turn)?;
        let table = table.with_ratio(CPU, Kind::Ganesha);
        let mut report = BenchReport::of_servers("nfs", name.as_str(), table);
        let mut target = |metric, wanted| {
            report.target_of(
                (Kind::Flatpath, metric),
                Some((&Kind::Ganesha, metric)),
                wanted,
            );
        };
        if workload.is_alone() {
            target(OPERATIONS, Wanted::AtLeast(1.2));
            target(CPU, Wanted::AtMost(0.7));
            target(P50, Wanted::AtMost(1.0));
            target(P99, Wanted::AtMost(1.0));
        } else if workload == Workload::RandomRead {
            target(OPERATIONS, Wanted::AtLeast(3.5));
            target(CPU, Wanted::AtMost(0.5));
            target(P99, Wanted::Below(1.0));
        } else if workload.is_random() {
            target(OPERATIONS, Wanted::AtLeast(2.0));
            target(CPU, Wanted::AtMost(0.5));
            target(P99, Wanted::Below(1.0));
        } else {
            target(OPERATIONS, Wanted::AtLeast(1.5));
        }
        Ok(report)
    };
    let listings = listed(session).map(list);
    workloads(session).map(each).chain(listings).collect()
}

/// READDIRPLUS of a large directory.
fn list(
    session: &Session,
    workload: Workload,
    start: impl Fn(Kind) -> io::Result<Exporting>,
) -> io::Result<BenchReport> {
    let seconds = session.options.seconds();
    let files = session.options.sized(list::FILES[0], list::FILES[1]);
    let page_bytes = workload.bytes();
    let name = &format!(
        "list, pages of {} KiB, one call at a time",
        page_bytes >> 10
    );
    let start = |kind| {
        let it = start(kind)?;
        list::fill(it.export.path(), files)?;
        Ok(it)
    };
    let turn = |_, it: &mut Exporting| {
        let load = list::Load { files, page_bytes };
        list::run(&it.mount, load, seconds, it.server.group())
    };
    let table = session.interleave(Scenario::Nfs, name, &KINDS, start, turn)?;
    let mut report = BenchReport::of_servers(
        "nfs",
        name.as_str(),
        table.with_ratio(LISTING, Kind::Ganesha),
    );
    for metric in [LISTING, PEAK_MIB] {
        report.target_of(
            (Kind::Flatpath, metric),
            Some((&Kind::Ganesha, metric)),
            Wanted::AtMost(1.0),
        );
    }
    Ok(report)
}

/// Ours with more and more workers: throughput must not fall, nor dispatch become dearer. Runs of
/// one round are compared with each other: the machine changes more between rounds.
pub(super) fn sweep(session: &Session) -> io::Result<Vec<BenchReport>> {
    let workers = session.options.workers.iter().copied().map(Workers);
    let workers: Vec<Workers> = workers.collect();
    let runs = session.options.runs(Scenario::NfsSweep);
    let start = |workers| observed(workers, &session.options.driver);
    let each = |workload: Workload| {
        let name = name_of(workload);
        let turn = |_, it: &mut Exporting| {
            let before = Dispatches::ask(&mut it.server.process)?;
            let group = it.server.group();
            let mut run = load::run(&it.mount, workload, session.options.seconds(), group)?;
            let after = Dispatches::ask(&mut it.server.process)?;
            run.push((DISPATCH, after.mean_since(before)));
            Ok(run)
        };
        let table = interleave(&name, runs, &workers, start, turn)?;
        let mut report = BenchReport::of_servers("nfs-sweep", name, table);
        if let [first, more @ ..] = &workers[..] {
            for more in more {
                let mut target = |metric: Metric, wanted| {
                    let ratio = report.tables[0].paired(more, first, metric);
                    let what = format!("{more} {} / {first}", metric.name);
                    report.target(what, "x", wanted, ratio);
                };
                target(OPERATIONS, Wanted::AtLeast(RATE_KEPT_MIN));
                target(DISPATCH, Wanted::AtMost(DISPATCH_RATIO_MAX));
            }
        }
        Ok(report)
    };
    workloads(session).map(each).collect()
}

/// Those that move data.
fn workloads(session: &Session) -> impl Iterator<Item = Workload> {
    chosen(session).filter(|workload| workload.is_data())
}

fn listed(session: &Session) -> impl Iterator<Item = Workload> {
    chosen(session).filter(|workload| !workload.is_data())
}

fn chosen(session: &Session) -> impl Iterator<Item = Workload> {
    let chosen = &session.options.workload;
    let all = Workload::value_variants().iter().copied();
    all.filter(|workload| match chosen.is_empty() {
        true => !workload.is_other_size(),
        false => chosen.contains(workload),
    })
}

fn name_of(workload: Workload) -> String {
    let value = workload.to_possible_value();
    let name = value.as_ref().map_or("", |value| value.get_name());
    match workload.depth() {
        (1, 1) => format!("{name}, one connection, one call at a time"),
        (connections, outstanding) => {
            format!("{name}, {connections} connections, {outstanding} outstanding")
        }
    }
}

/// `flatpath serve` with an export of its own.
fn flatpath(kind: Kind, setup: &Setup<'_>) -> io::Result<Exporting> {
    let export = tempfile::tempdir_in(MEMORY)?;
    let setup = Setup {
        documents: export.path().to_path_buf(),
        ..setup.clone()
    };
    let server = Server::start(kind, &setup)?;
    Ok(Exporting::ours(server, export))
}

/// This program as a server that reports what dispatch costs.
fn observed(workers: Workers, driver: &str) -> io::Result<Exporting> {
    let export = tempfile::tempdir_in(MEMORY)?;
    let mut command = child::command(this_program(), &[]);
    command.arg("observed").arg(export.path());
    command.args([&workers.0.to_string(), driver]);
    let server = Server::announced(&mut command, tempfile::tempdir()?)?;
    Ok(Exporting::ours(server, export))
}

impl Exporting {
    fn ours(server: Server, export: TempDir) -> Self {
        let mount = Mount {
            nfs: server.address,
            mount: server.address,
            path: "/".into(),
        };
        Self {
            server,
            mount,
            export,
            _helper: None,
        }
    }
}

fn ganesha() -> io::Result<Exporting> {
    let export = tempfile::tempdir_in(MEMORY)?;
    let directory = tempfile::tempdir()?;
    let (file, pid) = (
        directory.path().join("ganesha.conf"),
        directory.path().join("pid"),
    );
    let path = export.path().display().to_string();
    let text = include_str!("../../candidates/ganesha.conf").replace("/dev/shm/peer", &path);
    fs::write(&file, text)?;
    fs::create_dir_all("/run/ganesha")?;
    let helper = (!is_listening(RPCBIND_PORT)).then(rpcbind).transpose()?;
    let mut command = child::command(GANESHA.find()?, &[]);
    command.arg("-F").arg("-f").arg(&file).arg("-p").arg(&pid);
    command.arg("-L").arg(Path::new("/dev/stderr"));
    let (nfs, mount) = (
        SocketAddr::from(GANESHA_NFS),
        SocketAddr::from(GANESHA_MOUNT),
    );
    let mut server = Server::at(&mut command, nfs, directory)?;
    server.process.await_port(mount.port())?;
    Ok(Exporting {
        server,
        mount: Mount { nfs, mount, path },
        export,
        _helper: helper,
    })
}

fn rpcbind() -> io::Result<Child> {
    let mut process = Child::start(child::command(RPCBIND.find()?, &[]).arg("-f"))?;
    process.await_port(RPCBIND_PORT)?;
    Ok(process)
}
