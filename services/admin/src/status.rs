//! `/status.json`: the figures as one object, which the status page and `flatpath top` read.
//!
//! Every member is there in every answer, also before the server runs; then lists are empty.
//! Counters grow from the start of the server on: one that has shrunk, or an `uptime_seconds` that
//! has, tells that another process answers. Names end in their unit. Members may be added.

use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::families::Reading;
use crate::family::Family;
use crate::flatpath::ServerState;
use crate::flatpath::figures::{Figures, JobFigures, ListenerFigures, RunningHandler};
use crate::flatpath::statistics::{DURATION_BUCKETS, Durations, Statistics};

/// The figures as an object.
pub(crate) fn object(reading: &Reading, more: &[Family]) -> Value {
    let figures = &reading.figures;
    let listeners = figures.listeners.iter().map(listener);
    let slow = reading.slow.iter().map(|handler| slow(handler, figures));
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "pid": std::process::id(),
        "state": if reading.is_attached { word(figures.state) } else { "starting" },
        "uptime_seconds": figures.uptime.as_secs_f64(),
        "listeners": listeners.collect::<Value>(),
        "network_threads": network_threads(figures),
        // The longest turn of each bucket; the last one has no bound.
        "turn_bounds_seconds": (0..DURATION_BUCKETS)
            .map(|bucket| Durations::bound(bucket).map(|bound| bound.as_secs_f64()))
            .collect::<Vec<_>>(),
        "workers": {
            "idle": figures.workers.idle,
            "busy": figures.workers.threads.saturating_sub(figures.workers.idle),
            "min": figures.workers.min,
            "max": figures.workers.max,
            "started": figures.workers.grown,
        },
        "slow_after_seconds": reading.slow_after.as_secs_f64(),
        "slow_handlers": slow.collect::<Value>(),
        "buffers": buffers(figures),
        "receive_memory": receive_memory(figures),
        "descriptors": {
            "connections": figures.descriptors.connections,
            "files": figures.descriptors.held,
            "caches": figures.descriptors.cached,
            "max": figures.descriptors.room,
            "refused": figures.descriptors.refused,
            "given_back": figures.descriptors.given_back,
        },
        "process": reading.process.map(|process| json!({
            "cpu_seconds": process.cpu.as_secs_f64(),
            "resident_bytes": process.resident_bytes,
            "threads": process.threads,
        })),
        "more": more.iter().map(family).collect::<Value>(),
    })
}

/// A state in one word.
pub(crate) fn word(state: ServerState) -> &'static str {
    match state {
        ServerState::Running => "running",
        ServerState::Leaving => "leaving",
        ServerState::Draining => "draining",
        ServerState::Forced => "forced",
    }
}

fn seconds(age: Option<Duration>) -> f64 {
    age.unwrap_or_default().as_secs_f64()
}

fn counts(counts: impl IntoIterator<Item = (&'static str, u64)>) -> Value {
    let counts = counts.into_iter();
    let counts = counts.map(|(name, count)| (name.to_owned(), count.into()));
    Value::Object(counts.collect::<Map<_, _>>())
}

fn listener(listener: &ListenerFigures) -> Value {
    let total: Statistics = listener.total();
    let jobs: &JobFigures = &listener.jobs;
    let classes = listener.request_classes.iter().copied();
    json!({
        "listener": listener.name,
        "address": listener.address,
        "connections": total.connections(),
        "accepted": total.accepted,
        "closed": total.closed,
        "refused": counts([
            ("room", total.refused.saturating_sub(total.refused_by_address)),
            ("address", total.refused_by_address),
            ("proxy_header", total.refused_headers),
        ]),
        "evicted": total.evicted,
        "accept_pauses": total.accept_pauses,
        "expired": counts(total.expired_by_phase()),
        "stalls": counts(total.stalls_by_cause()),
        "stalls_refused": total.stalls_refused,
        "ended_for_memory": total.holders_ended,
        "requests": counts(classes.zip(total.requests)),
        "received_bytes": total.received_bytes,
        "sent_bytes": total.sent_bytes,
        "spliced_pairs": total.spliced.saturating_sub(total.unspliced),
        "spliced_bytes": total.spliced_bytes,
        "dispatched": total.dispatched,
        "handler_panics": total.handler_panics,
        "jobs": {
            "queued": jobs.queued,
            "held_back": jobs.held_back,
            "parked": jobs.parked,
            "running": jobs.running,
        },
        "oldest_queued_seconds": seconds(jobs.oldest_queued),
        "longest_running_seconds": seconds(jobs.longest_running),
    })
}

/// The listener by its place in the server: its name and address.
fn named(figures: &Figures, listener: usize) -> (Value, Value) {
    match figures.listeners.get(listener) {
        Some(listener) => (listener.name.into(), listener.address.as_str().into()),
        None => (Value::Null, Value::Null),
    }
}

fn network_threads(figures: &Figures) -> Value {
    let threads = figures.threads.iter().map(|thread| {
        let (name, address) = match thread.turn {
            Some(turn) => named(figures, turn.listener),
            None => (Value::Null, Value::Null),
        };
        json!({
            "thread": thread.number,
            "driver": thread.driver,
            "turns": thread.turns.count(),
            "turn_counts": thread.turns.counts,
            "busy_seconds": thread.turns.sum.as_secs_f64(),
            // The present turn: 0 and no listener while the thread waits.
            "turn_age_seconds": seconds(thread.turn.map(|turn| turn.age)),
            "turn_listener": name,
            "turn_address": address,
            "signals": thread.signals,
        })
    });
    threads.collect()
}

fn slow(handler: &RunningHandler, figures: &Figures) -> Value {
    let (name, address) = named(figures, handler.listener);
    json!({
        "listener": name,
        "address": address,
        // The thread is a network thread, or else a worker.
        "inline": handler.is_inline,
        "thread": handler.thread,
        "seconds": handler.age.as_secs_f64(),
    })
}

fn buffers(figures: &Figures) -> Value {
    let classes = figures.pool.classes.iter().map(|class| {
        json!({
            "buffer_bytes": class.buffer_bytes,
            "in_use_bytes": class.in_use_bytes,
            "idle_bytes": class.idle_bytes,
        })
    });
    json!({
        "budget_bytes": figures.pool.budget_bytes,
        "refused": figures.pool.refused,
        "degraded": figures.pool.degraded,
        "classes": classes.collect::<Value>(),
    })
}

fn receive_memory(figures: &Figures) -> Value {
    let regions = figures.receive_memory.iter().map(|region| {
        let retained = region.pages_retained.min(region.pages);
        let bytes = |pages: u32| u64::from(pages) * u64::from(region.page_bytes);
        json!({
            "region": region.name,
            "thread": region.thread,
            "free_bytes": bytes(region.pages - retained),
            "retained_bytes": bytes(retained),
        })
    });
    regions.collect()
}

fn family(family: &Family) -> Value {
    let samples = family.samples.iter().map(|sample| {
        let labels = sample.labels.iter();
        let labels = labels.map(|(name, value)| ((*name).to_owned(), value.as_str().into()));
        json!({ "labels": labels.collect::<Map<_, _>>(), "value": sample.value })
    });
    json!({
        "name": family.name,
        "kind": family.kind.name(),
        "help": family.help,
        "samples": samples.collect::<Value>(),
    })
}
