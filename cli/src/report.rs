//! What a running server reports of itself when it gets SIGUSR1: lines in the log.
//!
//! By the housekeeper: the figures are under locks that other threads hold for moments, and the
//! thread that handles signals waits for none. Signals that come before a report are one report.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use flatpath::Handle;
use flatpath::figures::{Figures, JobFigures};
use flatpath::housekeeper::{Next, Task};
use flatpath::lock::Lock;
use flatpath_files::MountShares;
use flatpath_ingest::Ingest;

use crate::logging::REPORT;

/// What to call for a report, from any thread, without waiting.
///
/// # Errors
/// The housekeeper cannot be started.
pub(crate) fn start(
    ingests: Vec<Ingest>,
    mounts: Vec<MountShares>,
) -> io::Result<impl FnMut(&Handle) + Send + 'static> {
    let asked: Arc<Lock<Option<Handle>>> = Arc::default();
    let server = Arc::clone(&asked);
    let task = Task::begin("report", move |_| {
        let server = server.lock().take();
        if let Some(server) = server {
            log(&server, &ingests, &mounts);
        }
        Next::WhenWoken
    });
    let task = task?;
    Ok(move |server: &Handle| {
        *asked.lock() = Some(server.clone());
        task.wake();
    })
}

/// Logs the counters of the server, where its receive memory is, what ingest does, and how many
/// workers wait for which mount.
fn log(handle: &Handle, ingests: &[Ingest], mounts: &[MountShares]) {
    let figures = handle.figures();
    log::info!(target: REPORT, "{}", counters(&figures));
    log::info!(target: REPORT, "{}", in_flight(&figures));
    log::info!(target: REPORT, "descriptors: {}", figures.descriptors);
    for region in &figures.receive_memory {
        log::info!(target: REPORT, "memory: {region}");
    }
    for ingest in ingests {
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

fn in_flight(figures: &Figures) -> String {
    let jobs = figures.jobs();
    let age = |age: fn(&JobFigures) -> Option<Duration>| {
        let ages = figures.listeners.iter();
        let ages = ages.filter_map(|listener| Some((age(&listener.jobs)?, listener.name)));
        ages.max().map_or_else(
            || "none".into(),
            |(age, name)| format!("{:.1}s of {name}", age.as_secs_f64()),
        )
    };
    format!(
        "in flight: workers={} queued={} held_back={} parked={} running={} oldest={} longest={}",
        figures.workers.threads,
        jobs.queued,
        jobs.held_back,
        jobs.parked,
        jobs.running,
        age(|jobs| jobs.oldest_queued),
        age(|jobs| jobs.longest_running)
    )
}

fn counters(figures: &Figures) -> String {
    let total = figures.total();
    let pairs = [
        ("accepted", total.accepted),
        ("closed", total.closed),
        ("refused", total.refused),
        ("accept_pauses", total.accept_pauses),
        ("expired", total.expired()),
        ("dispatched", total.dispatched),
        ("handler_panics", total.handler_panics),
        ("workers_grown", figures.workers.grown),
        ("share_waits", total.share_waits),
        ("share_waits_over", total.share_waits_over),
        ("memory_share_stalls", total.share_stalls),
        ("memory_address_share_stalls", total.address_share_stalls),
        ("memory_listener_share_stalls", total.listener_share_stalls),
        ("holders_ended", total.holders_ended),
        ("stalls_refused", total.stalls_refused),
        ("receive_stalls", total.receive_stalls),
        ("keep_stalls", total.keep_stalls),
        ("body_bytes_kept", total.body_bytes_kept),
        ("body_bytes_copied", total.body_bytes_copied),
    ];
    let pairs = pairs.map(|(name, count)| format!(" {name}={count}"));
    format!("server:{}", pairs.concat())
}
