//! What a running server reports of itself when it gets SIGUSR1: lines in the log.
//!
//! On a thread of its own: the figures are under locks that other threads hold, and the thread
//! that handles signals must not wait for one. Signals that come during a report are one report.

use std::io;
use std::sync::mpsc::sync_channel;
use std::thread;

use flatpath::Handle;
use flatpath::statistics::{InFlight, Statistics};
use flatpath_files::MountShares;
use flatpath_ingest::Ingest;

use crate::logging::REPORT;

/// Starts the thread that reports; what to call for a report, from any thread, without waiting.
///
/// # Errors
/// The thread cannot be started.
pub(crate) fn start(
    ingest: Option<Ingest>,
    mounts: Vec<MountShares>,
) -> io::Result<impl FnMut(&Handle) + Send + 'static> {
    let (ask, asked) = sync_channel::<Handle>(1);
    thread::Builder::new()
        .name("flatpath-report".into())
        .spawn(move || {
            for handle in asked {
                log(&handle, ingest.as_ref(), &mounts);
            }
        })?;
    // No room: a report is asked for and has not begun, so it will say what this one would.
    Ok(move |handle: &Handle| drop(ask.try_send(handle.clone())))
}

/// Logs the counters of the server, where its receive memory is, what ingest does, and how many
/// workers wait for which mount.
fn log(handle: &Handle, ingest: Option<&Ingest>, mounts: &[MountShares]) {
    log::info!(target: REPORT, "{}", counters(handle.statistics()));
    log::info!(target: REPORT, "{}", in_flight(&handle.in_flight(), handle.workers()));
    log::info!(target: REPORT, "descriptors: {}", handle.descriptors());
    for figures in handle.memory() {
        log::info!(target: REPORT, "memory: {figures}");
    }
    if let Some(ingest) = ingest {
        log::info!(target: REPORT, "ingest: {}", ingest.figures());
    }
    for (name, share) in mounts.iter().flat_map(MountShares::figures) {
        log::info!(
            target: REPORT,
            "{name}: inside={} waiting={} waited={} refused={}",
            share.inside,
            share.waiting,
            share.waited,
            share.refused
        );
    }
}

fn in_flight(in_flight: &InFlight, workers: u32) -> String {
    let InFlight {
        queued,
        running,
        oldest,
    } = in_flight;
    let oldest = oldest.map_or_else(
        || "none".into(),
        |(age, listener)| format!("{:.1}s of {listener}", age.as_secs_f64()),
    );
    format!("in flight: workers={workers} queued={queued} running={running} oldest={oldest}")
}

fn counters(statistics: &Statistics) -> String {
    let pairs = [
        ("accepted", &statistics.accepted),
        ("closed", &statistics.closed),
        ("refused", &statistics.refused),
        ("accept_pauses", &statistics.accept_pauses),
        ("expired", &statistics.expired),
        ("dispatched", &statistics.dispatched),
        ("handler_panics", &statistics.handler_panics),
        ("workers_grown", &statistics.workers_grown),
        ("share_waits", &statistics.share_waits),
        ("share_waits_over", &statistics.share_waits_over),
        ("memory_share_stalls", &statistics.share_stalls),
        (
            "memory_address_share_stalls",
            &statistics.address_share_stalls,
        ),
        (
            "memory_listener_share_stalls",
            &statistics.listener_share_stalls,
        ),
        ("holders_ended", &statistics.holders_ended),
        ("stalls_refused", &statistics.stalls_refused),
        ("receive_stalls", &statistics.receive_stalls),
        ("keep_stalls", &statistics.keep_stalls),
        ("body_bytes_kept", &statistics.body_bytes_kept),
        ("body_bytes_copied", &statistics.body_bytes_copied),
    ];
    let pairs = pairs.map(|(name, counter)| format!(" {name}={}", counter.read()));
    format!("server:{}", pairs.concat())
}
