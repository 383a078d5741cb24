//! Memory of connections over TLS 1.3 that asked once and now wait.

use std::io;

use flatpath_bench_common::http;
use flatpath_bench_common::report::{BenchReport, Wanted};
use flatpath_bench_common::servers::Run;

use super::{Bench, KINDS, OURS};
use crate::kind::Kind;
use crate::options::Scenario;
use crate::scenarios::idle::{self, IDLE};
use crate::session::SMALL_PATH;

/// User-space memory that is wanted of a connection at most.
const BYTES_MAX: f64 = 2048.0;

pub(super) fn run(bench: &Bench<'_>) -> io::Result<BenchReport> {
    let clients = bench.session.options.clients();
    let name = format!("{clients} idle connections over TLS 1.3");
    let turn = |kind, (): &mut ()| measure(bench, kind, clients);
    let session = bench.session;
    let table = session.interleave(Scenario::Https, &name, &KINDS, |_| Ok(()), turn)?;
    let table = table
        .with_ratio(IDLE, Kind::HttpsNginx)
        .with_ratio(IDLE, Kind::HttpsHyper);
    let mut report = BenchReport::of_servers("https-idle", name, table);
    for ours in OURS {
        report.target_of((ours, IDLE), None, Wanted::AtMost(BYTES_MAX));
    }
    Ok(report)
}

/// Each run starts its server anew: memory once given to an allocator does not come back. What the
/// clients themselves take is in the harness's process.
fn measure(bench: &Bench<'_>, kind: Kind, clients: u32) -> io::Result<Run> {
    // Near its limit a server closes what is idle, to have room for newcomers.
    let server = bench.start(kind, clients + clients / 8)?;
    let request = http::request(SMALL_PATH);
    let connect = || {
        let crowd = idle::connect(server.address, clients)?;
        let secured = crowd.into_iter().map(|socket| bench.client.secure(socket));
        secured.collect::<io::Result<Vec<_>>>()
    };
    idle::of_crowd(&server, connect, |stream| {
        http::ask(stream, &request).map(drop)
    })
}
