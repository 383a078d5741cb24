//! What a request costs two builds of the server, with the same options and the same requests, in
//! turn; and what a library costs those who adopt it.

use flatpath_bench_common::report::Wanted::AtMost;
use flatpath_bench_common::servers::CPU;

use crate::comparison::{Beside, Comparison, Row, beside};
use crate::ground::{Pinning, SMALL_PATH};
use crate::kind::Kind;
use crate::loads::fixed::{Asked, CALLS, Figure, Fixed, INSTRUCTIONS};
use crate::loads::hello::{self, HelloWorld, Library};
use crate::server::{Needs, Service};

/// Far from the limit: near it connections are accepted one by one.
pub(super) const CONNECTIONS_MAX: u32 = 4096;

/// A name, what is asked for, connections, requests in a row, and those that a core serves in a
/// second.
type Case = (&'static str, Asked, u32, u32, u64);

const fn get(path: &'static str, line: &'static str, status: u16) -> Asked {
    Asked::Http("GET", path, line, status)
}

const CASES: [(Service, Case); 10] = {
    use Service::{Http, Nfs, Relay};
    const HOT: Asked = get(SMALL_PATH, "", 200);
    const ABSENT: Asked = get("/absent", "", 404);
    const SAME: Asked = get(SMALL_PATH, "If-None-Match: *", 304);
    [
        (Http, ("hot file, kept", HOT, 50, 1, 100_000)),
        (Http, ("hot file, kept", HOT, 1, 1, 30_000)),
        (
            Http,
            ("hot file, closed", Asked::Closed(SMALL_PATH), 50, 1, 20_000),
        ),
        (Http, ("304 of a hot file", SAME, 50, 1, 100_000)),
        (Http, ("404", ABSENT, 50, 1, 50_000)),
        (Http, ("404", ABSENT, 1, 1, 15_000)),
        (Nfs, ("NFS read of 4 KiB", Asked::Read, 1, 16, 50_000)),
        (Nfs, ("NFS read of 4 KiB", Asked::Read, 1, 1, 15_000)),
        (Relay, ("relay, 4 KiB", Asked::Relayed, 50, 1, 50_000)),
        (Relay, ("relay, 4 KiB", Asked::Relayed, 1, 1, 15_000)),
    ]
};

/// By instructions or by time; with another build of this program its library's fixed replies and
/// WebSockets, too.
pub(super) fn tables(by_instructions: bool, has_library: bool) -> Vec<Comparison> {
    let builds = [Kind::FlatpathBefore, Kind::Flatpath];
    let commands = CASES.iter();
    let mut tables: Vec<_> = commands
        .map(|(service, case)| table(*service, *case, builds, by_instructions))
        .collect();
    if has_library {
        let fixed = get("/", "", 200);
        let libraries: [(Case, Kind); 4] = [
            (("fixed reply", fixed, 50, 1, 100_000), Kind::FlatpathInline),
            (
                ("fixed reply, pooled", fixed, 50, 1, 50_000),
                Kind::FlatpathPooled,
            ),
            (
                ("WebSocket echo", Asked::Echo, 50, 1, 100_000),
                Kind::SocketsEpoll,
            ),
            (
                ("WebSocket echo, pooled", Asked::Echo, 50, 1, 50_000),
                Kind::SocketsPooled,
            ),
        ];
        tables.extend(libraries.map(|(case, kind)| {
            table(
                Service::Http,
                case,
                [Kind::LibraryBefore, kind],
                by_instructions,
            )
        }));
    }
    tables
}

/// Hello world with each library, built from nothing.
pub(super) fn adopt() -> Comparison {
    let (ours, axum) = ([Library::Flatpath.name()], beside(Library::Axum.name()));
    let no_server = Needs::of(Service::Http, 0);
    let row = |library: Library| Row::named(library.name(), None, no_server.clone());
    let rows = Library::ALL.map(row).to_vec();
    Comparison::new("adopt", "hello world, built from nothing", rows, HelloWorld)
        .runs(3)
        .ratios(Library::Axum.name(), &[hello::WALL])
        .wants(ours, hello::CRATES, &Beside::Nothing, AtMost(24.0))
        .wants(ours, hello::WALL, &axum, AtMost(0.6))
        .wants(ours, hello::CPU, &axum, AtMost(0.6))
        .wants(ours, hello::SIZE, &axum, AtMost(0.8))
}

fn table(
    service: Service,
    (name, asked, connections, outstanding, each_second): Case,
    [before, now]: [Kind; 2],
    by_instructions: bool,
) -> Comparison {
    let about = format!("{name}, {connections} connections, {outstanding} outstanding");
    let needs = Needs {
        pinning: Pinning::GeneratorOnOneCore,
        connections: Some(CONNECTIONS_MAX),
        library: Some(now),
        ..Needs::of(service, connections)
    };
    let (figure, metrics) = figure(by_instructions, each_second);
    let load = Fixed {
        asked,
        others: Vec::new(),
        connections,
        outstanding,
        figure,
    };
    let rows = Row::of(&[before, now], &needs);
    let table = Comparison::new("builds", about, rows, load).ratios(before, metrics);
    let wants =
        |table: Comparison, metric: &_| table.wants([now], *metric, &beside(before), AtMost(1.01));
    let table = metrics.iter().fold(table, wants);
    match by_instructions {
        true => counted(table),
        false => table,
    }
}

/// The same where instructions are counted: once, as they repeat, and with epoll, as callgrind
/// knows no io_uring.
pub(super) fn counted(mut table: Comparison) -> Comparison {
    for row in &mut table.rows {
        row.needs.driver = Some("epoll");
    }
    table.runs(1)
}

/// What is counted, and the columns that show it.
pub(super) fn figure(
    by_instructions: bool,
    each_second: u64,
) -> (Figure, &'static [flatpath_bench_common::servers::Metric]) {
    match by_instructions {
        true => (Figure::Instructions, &[INSTRUCTIONS, CALLS]),
        false => (Figure::Time(each_second), &[CPU]),
    }
}
