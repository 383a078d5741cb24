//! A full handshake, a request for the small file, and a close.
//!
//! The load is the harness's own. wrk resumes sessions: of its connections to `openssl s_server`
//! with `Connection: close`, all but the first ones did.

use std::io;
use std::time::Duration;

use flatpath_bench_common::report::{BenchReport, Wanted};
use flatpath_bench_common::servers::{CPU, ERRORS, P50, P99, RATE, REPLY_BYTES};
use flatpath_bench_common::usage::Reading;

use super::newcomers::one_request_each;
use super::{Bench, KINDS, OURS};
use crate::kind::Kind;
use crate::options::Scenario;
use crate::server::Server;
use crate::session::{SMALL_PATH, common, small_body};

/// Clients at a time.
const CONNECTIONS: u32 = 50;
/// Most of nginx's CPU time per request.
const CPU_MAX: f64 = 0.9;

pub(super) fn run(bench: &Bench<'_>) -> io::Result<BenchReport> {
    let name = format!("small file over TLS, a full handshake each, {CONNECTIONS} connections");
    let time = Duration::from_secs(bench.session.options.seconds().into());
    let start = |kind| bench.start(kind, CONNECTIONS);
    let turn = |_, server: &mut Server| {
        let reply_bytes = bench.check(server, SMALL_PATH, &small_body())?;
        let before = Reading::take(Some(server.group()))?;
        let counts = one_request_each(&bench.client, server.address, CONNECTIONS as usize, time)?;
        let used = before.used()?;
        if counts.served == 0 {
            return Err(io::Error::other("not one reply"));
        }
        let mut run = vec![
            (RATE, counts.served as f64 / used.wall.as_secs_f64()),
            (CPU, used.server_micros_over(counts.served)),
            (P50, counts.quantile(0.5)),
            (P99, counts.quantile(0.99)),
            (ERRORS, counts.failed as f64),
            (REPLY_BYTES, reply_bytes as f64),
        ];
        run.extend(common(server, &used)?);
        Ok(run)
    };
    let session = bench.session;
    let table = session.interleave(Scenario::Https, &name, &KINDS, start, turn)?;
    let table = table
        .with_ratio(CPU, Kind::HttpsNginx)
        .with_ratio(RATE, Kind::HttpsNginx);
    let mut report = BenchReport::of_servers("https-handshakes", name, table);
    report.notes.push(
        "the load is not wrk, which resumes sessions; its clients never do, and use TLS 1.3".into(),
    );
    for ours in OURS {
        let theirs = (&Kind::HttpsNginx as _, CPU);
        report.target_of((ours, CPU), Some(theirs), Wanted::AtMost(CPU_MAX));
    }
    Ok(report)
}
