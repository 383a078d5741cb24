//! NFSv3: ours and nfs-ganesha, or ours with more and more workers, a table per workload.

use clap::ValueEnum;
use flatpath_bench_common::report::Wanted::{AtLeast, AtMost, Below};
use flatpath_bench_common::servers::{P50, P99, PEAK_MIB};

use crate::comparison::{Beside, Comparison, Load, Row, beside};
use crate::ground::Documents;
use crate::kind::Kind;
use crate::loads::busy::Busy;
use crate::loads::calls::{CONNECTIONS, CPU, Calls, DISPATCH, OPERATIONS, Observed, Workload};
use crate::loads::listing::{LISTING, Listing};
use crate::server::{Needs, Service};

/// Ours and nfs-ganesha, with these workloads, and this many files to list.
pub(super) fn compare(workloads: &[Workload], files: u32) -> Vec<Comparison> {
    let workloads = workloads.iter().copied();
    let (data, lists): (Vec<_>, Vec<_>) = workloads.partition(|it| it.is_data());
    let lists = lists
        .into_iter()
        .map(|workload| list(workload.bytes(), files));
    data.into_iter().map(calls).chain(lists).collect()
}

fn of(about: String, load: impl Load + 'static) -> Comparison {
    let needs = Needs {
        documents: Documents::Memory,
        ..Needs::of(Service::Nfs, CONNECTIONS)
    };
    let rows = Row::of(&[Kind::Flatpath, Kind::Ganesha], &needs);
    Comparison::new("nfs", about, rows, load)
}

fn calls(workload: Workload) -> Comparison {
    let (ours, ganesha) = ([Kind::Flatpath], beside(Kind::Ganesha));
    let table = match workload {
        Workload::AloneBusy => of(name_of(workload), Busy(Calls(workload))),
        _ => of(name_of(workload), Calls(workload)),
    };
    let table = table.ratios(Kind::Ganesha, &[CPU]);
    if workload.is_alone() {
        return table
            .wants(ours, OPERATIONS, &ganesha, AtLeast(1.2))
            .wants(ours, CPU, &ganesha, AtMost(0.7))
            .wants(ours, P50, &ganesha, AtMost(1.0))
            .wants(ours, P99, &ganesha, AtMost(1.0));
    }
    if !workload.is_random() {
        return table.wants(ours, OPERATIONS, &ganesha, AtLeast(1.5));
    }
    let least = if workload == Workload::RandomRead {
        3.5
    } else {
        2.0
    };
    table
        .wants(ours, OPERATIONS, &ganesha, AtLeast(least))
        .wants(ours, CPU, &ganesha, AtMost(0.5))
        .wants(ours, P99, &ganesha, Below(1.0))
}

/// READDIRPLUS of a large directory.
fn list(page_bytes: u32, files: u32) -> Comparison {
    let about = format!(
        "list, pages of {} KiB, one call at a time",
        page_bytes >> 10
    );
    let (ours, ganesha) = ([Kind::Flatpath], beside(Kind::Ganesha));
    of(about, Listing { files, page_bytes })
        .ratios(Kind::Ganesha, &[LISTING])
        .wants(ours, LISTING, &ganesha, AtMost(1.0))
        .wants(ours, PEAK_MIB, &ganesha, AtMost(1.0))
}

/// Ours with more and more workers: throughput must not fall, nor the cost of dispatch rise. Runs
/// of one round are compared with each other: the machine changes more between rounds.
pub(super) fn sweep(workloads: &[Workload], workers: &[u32]) -> Vec<Comparison> {
    let row = |workers: &u32| {
        let needs = Needs {
            workers: Some(*workers),
            ..Needs::of(Service::Nfs, CONNECTIONS)
        };
        Row::named(format!("{workers} workers"), None, needs)
    };
    let table = |workload| {
        let rows: Vec<_> = workers.iter().map(row).collect();
        let names: Vec<_> = rows.iter().map(|row| row.name.clone()).collect();
        let load = Observed(workload);
        let mut table = Comparison::new("nfs-sweep", name_of(workload), rows, load);
        let [first, more @ ..] = &names[..] else {
            return table;
        };
        for more in more {
            let first = Beside::Paired(first.clone());
            table = table
                .wants([more], OPERATIONS, &first, AtLeast(0.95))
                .wants([more], DISPATCH, &first, AtMost(1.1));
        }
        table
    };
    let data = workloads.iter().copied().filter(|it| it.is_data());
    data.map(table).collect()
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
