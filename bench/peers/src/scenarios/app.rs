//! An application of real size, and its twin in axum: what its users ask for, driven by wrk, and
//! events to all who listen.
//!
//! Both have a session to check, JSON, SQLite, and layers around each reply. Once with as many
//! threads as each library starts, and once with few that may block: SQLite has locks of its own,
//! so threads beyond the cores make every request cost more.

use flatpath_bench_common::report::Wanted::{AtLeast, AtMost};
use flatpath_bench_common::servers::{CPU, Metric, P99, RATE};

use crate::comparison::{Comparison, Load, Row, beside};
use crate::kind::Kind;
use crate::loads::sse::{CPU_EVENT, EVENTS};
use crate::loads::user::{Asking, Asks, HEARD, Listening};
use crate::server::{Needs, Service};

const CONNECTIONS: u32 = 50;

/// With these numbers of threads that may block (nothing: each library's own default), and this
/// many who listen.
pub(super) fn tables(pools: &[Option<u32>], listeners: u32) -> Vec<Comparison> {
    let asks = [
        ("GET one bookmark", Asks::Find),
        ("GET a hundred, gzip", Asks::List),
        ("POST that inserts", Asks::Add),
        ("GET a file of 1 KiB", Asks::File),
    ];
    let of_pool = |workers: &Option<u32>| {
        let needs = Needs {
            workers: *workers,
            ..Needs::of(Service::Http, CONNECTIONS)
        };
        let mut tables = Vec::new();
        for (what, asks) in asks {
            let what = format!("{what}, {CONNECTIONS} connections");
            let load = Asking(asks, CONNECTIONS);
            tables.push(table(&what, needs.clone(), load, [RATE, CPU, P99]));
        }
        let what = format!("events, {listeners} listeners");
        let needs = Needs {
            workers: *workers,
            ..Needs::of_crowd(Service::Http, listeners)
        };
        let events = table(
            &what,
            needs,
            Listening(listeners),
            [EVENTS, CPU_EVENT, HEARD],
        );
        tables.push(events.crowd(listeners));
        tables
    };
    pools.iter().flat_map(of_pool).collect()
}

fn table(
    what: &str,
    needs: Needs,
    load: impl Load + 'static,
    [rate, cpu, p99]: [Metric; 3],
) -> Comparison {
    let about = format!("application: {what}, {}", needs.pool());
    let ours = [Kind::AppUring, Kind::AppEpoll];
    let rows = Row::of(&[Kind::AppAxum, ours[0], ours[1]], &needs);
    let mut table = Comparison::new("app", about, rows, load);
    table = table.ratios(Kind::AppAxum, &[rate, cpu, p99]);
    for ours in ours {
        table = table
            .wants([ours], rate, &beside(Kind::AppAxum), AtLeast(1.2))
            .wants([ours], cpu, &beside(Kind::AppAxum), AtMost(0.7))
            .wants([ours], p99, &beside(Kind::AppAxum), AtMost(1.0));
    }
    table
}
