//! Memory of connections that asked once by HTTP/2 and now wait.

use std::io;

use flatpath_bench_common::http::patient;
use flatpath_bench_common::report::{BenchReport, Wanted};
use flatpath_bench_common::servers::Run;
use flatpath_bench_common::wrk::Scheme;

use super::{Bench, kinds, ours, over};
use crate::kind::Kind;
use crate::options::Scenario;
use crate::scenarios::idle::{self, IDLE};
use crate::session::SMALL_PATH;

/// User-space memory that is wanted of a connection at most.
const BYTES_MAX: f64 = 20.0 * 1024.0;

pub(super) fn run(bench: &Bench<'_>, scheme: Scheme) -> io::Result<BenchReport> {
    let clients = bench.session.options.clients();
    let name = format!("{clients} idle connections of {}", over(scheme));
    let turn = |kind, (): &mut ()| measure(bench, kind, scheme, clients);
    let session = bench.session;
    let table = session.interleave(Scenario::Http2, &name, kinds(scheme), |_| Ok(()), turn)?;
    let table = table.with_ratio(IDLE, Kind::Http2Nginx);
    let mut report = BenchReport::of_servers("http2-idle", name, table);
    for ours in ours(scheme) {
        report.target_of((ours, IDLE), None, Wanted::AtMost(BYTES_MAX));
    }
    Ok(report)
}

/// Each run starts its server anew: memory once given to an allocator does not come back. What the
/// clients themselves take is in the harness's process.
fn measure(bench: &Bench<'_>, kind: Kind, scheme: Scheme, clients: u32) -> io::Result<Run> {
    // Near its limit a server closes what is idle, to have room for newcomers.
    let server = bench.start(kind, scheme, clients + clients / 8)?;
    let connect = || {
        let crowd = idle::connect(server.address, clients)?.into_iter();
        let begun = crowd.map(|socket| bench.connect(patient(socket)?, scheme));
        begun.collect::<io::Result<Vec<_>>>()
    };
    idle::of_crowd(&server, connect, |connection| {
        connection.ask(SMALL_PATH).map(drop)
    })
}
