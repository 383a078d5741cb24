//! `/status.json`: all metrics as one object, which the status page and `flatpath top` read.
//!
//! | member               | what it is                                                          |
//! |----------------------|---------------------------------------------------------------------|
//! | `pid`                | the process                                                         |
//! | `state`              | `starting`, `running`, `leaving`, `draining` or `forced`            |
//! | `uptime_seconds`     | since the server was started; 0 before                              |
//! | `slow_after_seconds` | what makes a handler slow                                           |
//! | `slow_handlers`      | the ones that run now: where, in which thread, for how long         |
//! | `turns`              | the listener that each busy network thread is at                    |
//! | `metrics`            | those of `/metrics` by name, with their samples                     |
//!
//! A sample has `labels`, an object, and `value`; one of a histogram has how many values fell into
//! each bucket in `counts` (the last one has no bound), their `sum`, and how many there are as its
//! `value`. Metrics of listeners are summed over network threads. Counters grow from the start of
//! the server on: an `uptime_seconds` that has shrunk tells that another server answers. Members
//! may be added. The book has all of them (`operate.md`).

use serde_json::{Map, Value as Json, json};

use crate::flatpath::figures::{Figures, RunningHandler};
use crate::flatpath::metrics::{Family, Sample, Value};
use crate::own::Reading;

/// The object.
pub(crate) fn object(reading: &Reading, families: Vec<Family>) -> Json {
    let figures = &reading.figures;
    let slow = reading.slow.iter().map(|handler| slow(handler, figures));
    let turns = figures.threads.iter().filter_map(|thread| {
        let (name, address) = named(figures, thread.turn?.listener);
        Some(json!({ "thread": thread.number, "listener": name, "address": address }))
    });
    let metrics = families.into_iter().map(|family| {
        let family = family.by_listener();
        (family.name.to_owned(), metric(&family))
    });
    json!({
        "pid": std::process::id(),
        "state": reading.state(),
        "uptime_seconds": figures.uptime.as_secs_f64(),
        "slow_after_seconds": reading.slow_after.as_secs_f64(),
        "slow_handlers": slow.collect::<Json>(),
        "turns": turns.collect::<Json>(),
        "metrics": metrics.collect::<Map<_, _>>(),
    })
}

/// The listener by its place in the server: its name and address.
fn named(figures: &Figures, listener: usize) -> (Json, Json) {
    match figures.listeners.get(listener) {
        Some(listener) => (listener.name.into(), listener.address.as_str().into()),
        None => (Json::Null, Json::Null),
    }
}

fn slow(handler: &RunningHandler, figures: &Figures) -> Json {
    let (name, address) = named(figures, handler.listener);
    json!({
        "listener": name,
        "address": address,
        "inline": handler.is_inline,
        "thread": handler.thread,
        "seconds": handler.age.as_secs_f64(),
    })
}

fn metric(family: &Family) -> Json {
    let samples = family.samples.iter().map(|it| sample(&family.labels, it));
    let mut metric = json!({
        "kind": family.kind.name(),
        "unit": family.unit(),
        "help": family.help,
        "samples": samples.collect::<Json>(),
    });
    if let Some(Value::Histogram(histogram)) = family.samples.first().map(|it| &it.value) {
        metric["bounds"] = histogram.bounds.as_slice().into();
    }
    metric
}

fn sample(names: &[&'static str], sample: &Sample) -> Json {
    let labels = names.iter().zip(&sample.labels);
    let labels = labels.map(|(name, value)| ((*name).to_owned(), value.as_str().into()));
    let labels = labels.collect::<Map<_, _>>();
    match &sample.value {
        Value::Whole(count) => json!({ "labels": labels, "value": count }),
        Value::Real(number) => json!({ "labels": labels, "value": number }),
        Value::Histogram(it) => json!({
            "labels": labels, "value": it.count(), "counts": it.counts, "sum": it.sum,
        }),
    }
}
