//! What a running server tells of itself when it gets SIGUSR1: lines in the log.

use flatpath::{Handle, Statistics};
use flatpath_ingest::Ingest;

/// Logs the counters of the server, where its receive memory is, and what ingest does.
pub(crate) fn tell(handle: &Handle, ingest: Option<&Ingest>) {
    log::info!("{}", counters(handle.statistics()));
    for figures in handle.memory() {
        log::info!("memory: {figures}");
    }
    if let Some(ingest) = ingest {
        log::info!("ingest: {}", ingest.figures());
    }
}

fn counters(statistics: &Statistics) -> String {
    let pairs = [
        ("accepted", &statistics.accepted),
        ("closed", &statistics.closed),
        ("refused", &statistics.refused),
        ("expired", &statistics.expired),
        ("dispatched", &statistics.dispatched),
        ("receive_stalls", &statistics.receive_stalls),
        ("keep_stalls", &statistics.keep_stalls),
        ("body_bytes_kept", &statistics.body_bytes_kept),
        ("body_bytes_copied", &statistics.body_bytes_copied),
    ];
    let pairs = pairs.map(|(name, counter)| format!(" {name}={}", counter.read()));
    format!("server:{}", pairs.concat())
}
