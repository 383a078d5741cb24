//! Files, a 404, alone, hello, pooled, busy, and items of a database: one request again and again.

use flatpath_bench_common::nginx::{HELLO_BODY, HELLO_PATH};
use flatpath_bench_common::report::Wanted::{AtLeast, AtMost, Below};
use flatpath_bench_common::servers::{CPU, P50, P99, RATE};
use flatpath_bench_common::wrk::Lifetime;

use crate::candidates::rest::ITEMS;
use crate::comparison::{Comparison, Row, beside};
use crate::ground::{Pinning, SMALL_PATH, small_body};
use crate::kind::Kind;
use crate::loads::busy::Busy;
use crate::loads::wrk::{Expected, Request, Wrk};
use crate::server::{FEW_WORKERS, Needs, Service};

const CONNECTIONS: [u32; 2] = [50, 200];
/// What a proxy keeps open to one server, not a crowd.
const FEW_CONNECTIONS: u32 = 8;

/// How connections and cores are used.
type Way = (Lifetime, Pinning);

const KEPT: Way = (Lifetime::KeepAlive, Pinning::Free);
const CLOSED: Way = (Lifetime::Close, Pinning::Free);
const KEPT_ON_ONE_CORE: Way = (Lifetime::KeepAlive, Pinning::ServerOnOneCore);

/// The small file, and what is not there.
pub(super) fn files() -> Vec<Comparison> {
    let mut tables = each([KEPT, CLOSED], |way, connections| {
        let most = if way == CLOSED { 0.75 } else { 0.65 };
        file("files", way, connections)
            .ratios(Kind::Nginx, &[CPU, RATE])
            .wants([Kind::Flatpath], CPU, &beside(Kind::Nginx), AtMost(most))
            .wants([Kind::Flatpath], RATE, &beside(Kind::Nginx), AtLeast(1.0))
    });
    tables.push(absent());
    tables
}

/// What is not there, which workers answer. wrk counts each of these replies as an error.
fn absent() -> Comparison {
    let request = Request {
        expected: Expected::Head(404, ""),
        ..Request::of("/absent", "")
    };
    let ours = [Kind::FlatpathUring, Kind::FlatpathEpoll];
    let kinds = [&[Kind::Nginx, Kind::H2o][..], &ours].concat();
    table("files", "404", request, &kinds, KEPT, CONNECTIONS[0])
        .ratios(Kind::H2o, &[CPU, RATE])
        .wants(ours, CPU, &beside(Kind::H2o), AtMost(0.95))
}

/// The small file, one request at a time.
pub(super) fn alone() -> Vec<Comparison> {
    let (ours, nginx) = ([Kind::Flatpath], beside(Kind::Nginx));
    let table = file("alone", KEPT, 1)
        .ratios(Kind::Nginx, &[CPU, RATE, P50, P99])
        .wants(ours, RATE, &nginx, AtLeast(1.0))
        .wants(ours, CPU, &nginx, AtMost(0.65))
        .wants(ours, P50, &nginx, AtMost(1.0))
        .wants(ours, P99, &nginx, AtMost(1.0));
    vec![table]
}

/// A fixed reply that cannot block.
pub(super) fn hello() -> Vec<Comparison> {
    let kinds = [Kind::Nginx, Kind::Hyper, Kind::FlatpathInline];
    each([KEPT, CLOSED], |way, connections| {
        table("hello", "hello", fixed(), &kinds, way, connections)
            .ratios(Kind::Nginx, &[CPU, RATE])
            .wants(
                [Kind::FlatpathInline],
                CPU,
                &beside(Kind::Nginx),
                AtMost(0.85),
            )
            .wants(
                [Kind::FlatpathInline],
                CPU,
                &beside(Kind::Hyper),
                Below(1.0),
            )
    })
}

/// The same reply from a handler that may block.
pub(super) fn pooled() -> Vec<Comparison> {
    let kinds = [
        Kind::FlatpathInline,
        Kind::FlatpathPooled,
        Kind::HyperBlocking,
        Kind::TinyHttp,
    ];
    each([KEPT, KEPT_ON_ONE_CORE], |way, connections| {
        let most = AtMost(if way == KEPT { 0.3 } else { 0.45 });
        table("pooled", "pooled hello", fixed(), &kinds, way, connections)
            .ratios(Kind::HyperBlocking, &[CPU])
            .wants(
                [Kind::FlatpathPooled],
                CPU,
                &beside(Kind::FlatpathInline),
                AtMost(1.25),
            )
            .wants(
                [Kind::FlatpathPooled],
                CPU,
                &beside(Kind::HyperBlocking),
                most,
            )
            .wants([Kind::FlatpathPooled], CPU, &beside(Kind::TinyHttp), most)
    })
}

/// A hot file, and a pooled answer beside nginx's `return 200`, while as many loops are busy as
/// there are cores.
pub(super) fn busy(cores: usize) -> Vec<Comparison> {
    let small = Request::of(SMALL_PATH, small_body());
    let file = [Kind::FlatpathUring, Kind::FlatpathEpoll];
    let pooled = [Kind::PooledUring, Kind::PooledEpoll];
    let cases = [
        ("hot file", small, file),
        ("pooled answer", fixed(), pooled),
    ];
    let table = |(name, request, ours): (&str, Request, [Kind; 2])| {
        let about =
            format!("{name} and {cores} busy loops, keep-alive, {FEW_CONNECTIONS} connections");
        let rows = Row::of(
            &[Kind::Nginx, ours[0], ours[1]],
            &Needs::of(Service::Http, FEW_CONNECTIONS),
        );
        let load = Busy(Wrk::kept(request, FEW_CONNECTIONS));
        Comparison::new("busy", about, rows, load)
            .ratios(Kind::Nginx, &[P99, CPU])
            .wants(ours, P99, &beside(Kind::Nginx), AtMost(1.2))
    };
    cases.into_iter().map(table).collect()
}

/// REST with SQLite: an item by its number, and an insertion. Once as both libraries come, with as
/// many threads as they start for it, and once with few: SQLite has locks of its own, so threads
/// beyond the cores make every request cost more.
pub(super) fn rest() -> Vec<Comparison> {
    const BODY: &[u8] = br#"{"id":500,"name":"item 500","cents":500}"#;
    const NEW: &str = r#"{"name":"a new item","cents":1250}"#;
    let read = Request::of("/items/500", BODY);
    let add = Request {
        before: read.path,
        json: Some(NEW),
        expected: Expected::Json(201, |item| {
            // With a number that was free.
            let is_new = item["id"].as_i64().is_some_and(|id| id > ITEMS);
            is_new && item["name"] == "a new item" && item["cents"] == 1250
        }),
        ..Request::of("/items", "")
    };
    let table = |what: &str, request: &Request, workers: Option<u32>| {
        let connections = CONNECTIONS[0];
        let needs = Needs {
            workers,
            ..Needs::of(Service::Http, connections)
        };
        let pool = needs.pool();
        let about = format!("{what}, JSON and SQLite, {connections} connections, {pool}");
        let ours = [Kind::RestUring, Kind::RestEpoll];
        let rows = Row::of(&[Kind::RestAxum, ours[0], ours[1]], &needs);
        let axum = beside(Kind::RestAxum);
        let load = Wrk::kept(request.clone(), connections);
        let table = Comparison::new("rest", about, rows, load);
        ours.iter()
            .fold(table.ratios(Kind::RestAxum, &[CPU, RATE]), |table, ours| {
                table.wants([ours], RATE, &axum, AtLeast(1.7)).wants(
                    [ours],
                    CPU,
                    &axum,
                    AtMost(0.6),
                )
            })
    };
    let pools = [None, Some(FEW_WORKERS)];
    let reads = pools.map(|workers| table("GET by id", &read, workers));
    let adds = pools.map(|workers| table("POST that inserts", &add, workers));
    reads.into_iter().chain(adds).collect()
}

fn each(ways: [Way; 2], table: impl Fn(Way, u32) -> Comparison) -> Vec<Comparison> {
    let tables = ways
        .iter()
        .flat_map(|way| CONNECTIONS.map(|many| table(*way, many)));
    tables.collect()
}

fn file(bench: &'static str, way: Way, connections: u32) -> Comparison {
    let kinds = [Kind::Nginx, Kind::NginxTuned, Kind::Flatpath];
    let request = Request::of(SMALL_PATH, small_body());
    table(bench, "small file", request, &kinds, way, connections)
}

fn fixed() -> Request {
    Request::of(HELLO_PATH, HELLO_BODY)
}

fn table(
    bench: &'static str,
    work: &str,
    request: Request,
    kinds: &[Kind],
    (lifetime, pinning): Way,
    connections: u32,
) -> Comparison {
    let life = match lifetime {
        Lifetime::KeepAlive => "keep-alive",
        Lifetime::Close => "close",
    };
    let cores = match pinning {
        Pinning::ServerOnOneCore => ", server on one core",
        _ => "",
    };
    let about = match connections {
        1 => format!("{work}, {life}, one connection, one request at a time{cores}"),
        many => format!("{work}, {life}, {many} connections{cores}"),
    };
    let needs = Needs {
        pinning,
        ..Needs::of(Service::Http, connections)
    };
    let load = Wrk {
        lifetime,
        ..Wrk::kept(request, connections)
    };
    Comparison::new(bench, about, Row::of(kinds, &needs), load)
}
