//! The metrics of a server, family by family.
//!
//! What a listener counts has the labels `listener` (its protocol), `address` and `thread`, the
//! network thread: sum over what is of no interest. Nothing has a label of a client, a path or
//! anything else without a bound.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::exposition::Exposition;
use crate::flatpath::ServerState;
use crate::flatpath::figures::{Figures, JobFigures, ListenerFigures, RunningHandler};
use crate::flatpath::statistics::{Durations, Statistics};
use crate::process::Process;

/// What one scrape reads.
#[derive(Default)]
pub(crate) struct Reading {
    /// There is a server to show.
    pub(crate) is_attached: bool,
    pub(crate) figures: Figures,
    /// The handlers that have run for longer than `slow_after`.
    pub(crate) slow: Vec<RunningHandler>,
    pub(crate) slow_after: Duration,
    /// What the kernel says about the process, where there is a `/proc`.
    pub(crate) process: Option<Process>,
}

/// Writes all families.
pub(crate) fn write(reading: &Reading, out: &mut Exposition) {
    let figures = &reading.figures;
    server(reading, out);
    counts(figures, out);
    requests(figures, out);
    jobs(reading, out);
    workers(figures, out);
    network_threads(figures, out);
    memory(figures, out);
    descriptors(figures, out);
    process(reading.process.as_ref(), out);
}

/// Calls `each` for every listener on every network thread, with its labels.
fn of_listeners(figures: &Figures, mut each: impl FnMut(&[(&str, &str)], &Statistics)) {
    for listener in &figures.listeners {
        for (thread, statistics) in &listener.threads {
            let thread = thread.to_string();
            let labels = [
                ("listener", listener.name),
                ("address", &listener.address),
                ("thread", &thread),
            ];
            each(&labels, statistics);
        }
    }
}

/// Families of one number for every listener on every network thread.
#[rustfmt::skip]
const COUNTS: [Count; 16] = [
    ("flatpath_spliced_pairs", |counts| counts.spliced.saturating_sub(counts.unspliced)),
    ("flatpath_connections", Statistics::connections),
    ("flatpath_connections_accepted_total", |counts| counts.accepted),
    ("flatpath_connections_closed_total", |counts| counts.closed),
    ("flatpath_connections_evicted_total", |counts| counts.evicted),
    ("flatpath_accept_pauses_total", |counts| counts.accept_pauses),
    ("flatpath_received_bytes_total", |counts| counts.received_bytes),
    ("flatpath_sent_bytes_total", |counts| counts.sent_bytes),
    ("flatpath_stalls_refused_total", |counts| counts.stalls_refused),
    ("flatpath_connections_ended_for_memory_total", |counts| counts.holders_ended),
    ("flatpath_crowding_total", |counts| counts.crowding),
    ("flatpath_spliced_pairs_total", |counts| counts.spliced),
    ("flatpath_splices_refused_total", |counts| counts.splices_refused),
    ("flatpath_jobs_dispatched_total", |counts| counts.dispatched),
    ("flatpath_handler_panics_total", |counts| counts.handler_panics),
    ("flatpath_prompt_rights_lost_total", |counts| counts.prompt_rights_lost),
];

/// Families of several, told apart by one more label.
#[rustfmt::skip]
const GROUPS: [Group; 6] = [
    ("flatpath_connections_refused_total", "reason", |counts| vec![
        ("room", counts.refused.saturating_sub(counts.refused_by_address)),
        ("address", counts.refused_by_address),
        ("proxy_header", counts.refused_headers),
    ]),
    ("flatpath_connections_expired_total", "phase", |counts| counts.expired_by_phase().into()),
    ("flatpath_stalls_total", "cause", |counts| counts.stalls_by_cause().into()),
    ("flatpath_body_bytes_total", "way", |counts| vec![
        ("retained", counts.body_bytes_kept), ("copied", counts.body_bytes_copied),
    ]),
    ("flatpath_spliced_bytes_total", "way", |counts| vec![
        ("copied", counts.spliced_bytes.saturating_sub(counts.spliced_bytes_moved)),
        ("moved", counts.spliced_bytes_moved),
    ]),
    ("flatpath_jobs_held_back_total", "reason", |counts| vec![
        ("share", counts.share_waits), ("memory", counts.memory_waits),
    ]),
];

/// A name, and where its number is.
type Count = (&'static str, fn(&Statistics) -> u64);

/// A name, the label, and its values with their numbers.
type Group = (
    &'static str,
    &'static str,
    fn(&Statistics) -> Vec<(&'static str, u64)>,
);

fn counts(figures: &Figures, out: &mut Exposition) {
    for (name, value) in COUNTS {
        out.family(name);
        of_listeners(figures, |labels, statistics| {
            out.count(labels, value(statistics));
        });
    }
    for (name, label, values) in GROUPS {
        out.family(name);
        of_listeners(figures, |labels, statistics| {
            for (which, count) in values(statistics) {
                out.count(&[labels, &[(label, which)]].concat(), count);
            }
        });
    }
}

fn server(reading: &Reading, out: &mut Exposition) {
    let Figures { uptime, state, .. } = reading.figures;
    out.family("flatpath_build_info")
        .count(&[("version", env!("CARGO_PKG_VERSION"))], 1);
    out.family("flatpath_start_time_seconds");
    if reading.is_attached {
        let start = SystemTime::now().checked_sub(uptime);
        let start = start.and_then(|start| start.duration_since(UNIX_EPOCH).ok());
        out.sample(&[], start.unwrap_or_default().as_secs_f64());
    }
    let is_ready = reading.is_attached && state == ServerState::Running;
    out.family("flatpath_ready").count(&[], u64::from(is_ready));
}

fn requests(figures: &Figures, out: &mut Exposition) {
    out.family("flatpath_requests_total");
    for listener in &figures.listeners {
        for (thread, statistics) in &listener.threads {
            let thread = thread.to_string();
            for (class, count) in listener.request_classes.iter().zip(statistics.requests) {
                let labels = [
                    ("listener", listener.name),
                    ("address", &listener.address),
                    ("thread", &thread),
                    ("class", class),
                ];
                out.count(&labels, count);
            }
        }
    }
}

fn labels_of(listener: &ListenerFigures) -> [(&'static str, &str); 2] {
    [("listener", listener.name), ("address", &listener.address)]
}

fn jobs(reading: &Reading, out: &mut Exposition) {
    let figures = &reading.figures;
    out.family("flatpath_jobs");
    for listener in &figures.listeners {
        let jobs = &listener.jobs;
        for (state, count) in [
            ("queued", jobs.queued),
            ("held_back", jobs.held_back),
            ("parked", jobs.parked),
            ("running", jobs.running),
        ] {
            let [name, address] = labels_of(listener);
            out.count(&[name, address, ("state", state)], count as u64);
        }
    }
    let ages: [(_, fn(&JobFigures) -> _); 2] = [
        ("flatpath_oldest_queued_seconds", |jobs| jobs.oldest_queued),
        ("flatpath_longest_running_seconds", |jobs| {
            jobs.longest_running
        }),
    ];
    for (name, age) in ages {
        out.family(name);
        for listener in &figures.listeners {
            let age = age(&listener.jobs).unwrap_or_default();
            out.sample(&labels_of(listener), age.as_secs_f64());
        }
    }
    out.family("flatpath_slow_handlers");
    for (number, listener) in figures.listeners.iter().enumerate() {
        let slow = reading.slow.iter();
        let slow = slow.filter(|handler| handler.listener == number).count();
        out.count(&labels_of(listener), slow as u64);
    }
}

fn workers(figures: &Figures, out: &mut Exposition) {
    let workers = &figures.workers;
    out.family("flatpath_workers")
        .count(&[("state", "idle")], u64::from(workers.idle));
    let busy = workers.threads.saturating_sub(workers.idle);
    out.count(&[("state", "busy")], u64::from(busy));
    out.family("flatpath_workers_max")
        .count(&[], u64::from(workers.max));
    out.family("flatpath_workers_started_total")
        .count(&[], workers.grown);
}

fn network_threads(figures: &Figures, out: &mut Exposition) {
    out.family("flatpath_network_thread_info");
    for thread in &figures.threads {
        let number = thread.number.to_string();
        out.count(&[("thread", &number), ("driver", thread.driver)], 1);
    }
    out.family("flatpath_turn_seconds");
    for thread in &figures.threads {
        histogram(out, &thread.number.to_string(), &thread.turns);
    }
    out.family("flatpath_turn_age_seconds");
    for thread in &figures.threads {
        let age = thread.turn.map_or(0.0, |turn| turn.age.as_secs_f64());
        out.sample(&[("thread", &thread.number.to_string())], age);
    }
    out.family("flatpath_signals_total");
    for thread in &figures.threads {
        out.count(&[("thread", &thread.number.to_string())], thread.signals);
    }
}

fn histogram(out: &mut Exposition, thread: &str, durations: &Durations) {
    let mut sum = 0;
    for (bucket, count) in durations.counts.iter().enumerate() {
        sum += count;
        let bound = Durations::bound(bucket).map_or(f64::INFINITY, |bound| bound.as_secs_f64());
        let bound = bound.to_string().replace("inf", "+Inf");
        out.line(
            "_bucket",
            &[("thread", thread), ("le", &bound)],
            format_args!("{sum}"),
        );
    }
    let seconds = durations.sum.as_secs_f64();
    out.line("_sum", &[("thread", thread)], format_args!("{seconds}"));
    out.line("_count", &[("thread", thread)], format_args!("{sum}"));
}

fn memory(figures: &Figures, out: &mut Exposition) {
    out.family("flatpath_buffer_bytes");
    for class in &figures.pool.classes {
        let size = class.buffer_bytes.to_string();
        let size = ("size", size.as_str());
        out.count(&[size, ("state", "in_use")], class.in_use_bytes as u64);
        out.count(&[size, ("state", "idle")], class.idle_bytes as u64);
    }
    out.family("flatpath_buffer_budget_bytes")
        .count(&[], figures.pool.budget_bytes as u64);
    out.family("flatpath_buffers_refused_total")
        .count(&[], figures.pool.refused);
    out.family("flatpath_buffers_degraded_total")
        .count(&[], figures.pool.degraded);
    out.family("flatpath_receive_bytes");
    for region in &figures.receive_memory {
        let thread = region.thread.to_string();
        let labels = [("region", region.name), ("thread", thread.as_str())];
        let bytes = |pages: u32| u64::from(pages) * u64::from(region.page_bytes);
        let retained = region.pages_retained.min(region.pages);
        let free = region.pages - retained;
        out.count(&[labels[0], labels[1], ("state", "free")], bytes(free));
        let labels = [labels[0], labels[1], ("state", "retained")];
        out.count(&labels, bytes(retained));
    }
}

fn descriptors(figures: &Figures, out: &mut Exposition) {
    let descriptors = &figures.descriptors;
    out.family("flatpath_descriptors");
    for (purpose, count) in [
        ("connections", descriptors.connections),
        ("files", descriptors.held),
        ("caches", descriptors.cached),
    ] {
        out.count(&[("purpose", purpose)], count as u64);
    }
    out.family("flatpath_descriptors_max")
        .count(&[], descriptors.room as u64);
    out.family("flatpath_descriptors_refused_total")
        .count(&[], descriptors.refused);
    out.family("flatpath_descriptors_given_back_total")
        .count(&[], descriptors.given_back);
}

/// In the names that client libraries of Prometheus use.
fn process(process: Option<&Process>, out: &mut Exposition) {
    let Some(process) = process else { return };
    out.family("process_cpu_seconds_total")
        .sample(&[], process.cpu.as_secs_f64());
    out.family("process_resident_memory_bytes")
        .count(&[], process.resident_bytes);
    out.family("process_virtual_memory_bytes")
        .count(&[], process.virtual_bytes);
    out.family("process_threads").count(&[], process.threads);
}
