//! Answers of `/status.json` and what is asked of them: samples of a metric by its name and labels.

use std::cell::RefCell;
use std::collections::BTreeSet;

use serde_json::Value;

/// One answer, and the one before if there was one.
pub(super) struct Pair<'a> {
    pub(super) before: Option<&'a Value>,
    pub(super) now: &'a Value,
    /// The metrics that were asked for by name.
    pub(super) used: RefCell<BTreeSet<&'static str>>,
}

/// The labels that samples must have.
pub(super) type Labels<'a> = &'a [(&'static str, &'a str)];

/// Whether two answers are of one server, which did not begin anew between them.
pub(super) fn is_same_server(before: &Value, now: &Value) -> bool {
    let uptime = |status: &Value| status["uptime_seconds"].as_f64();
    before["pid"] == now["pid"] && uptime(before) <= uptime(now)
}

pub(super) fn list<'a>(value: &'a Value, name: &str) -> &'a [Value] {
    value[name].as_array().map_or(&[], Vec::as_slice)
}

/// The text of a label of a sample.
pub(super) fn label<'a>(sample: &'a Value, name: &str) -> &'a str {
    sample["labels"][name].as_str().unwrap_or("?")
}

pub(super) fn uptime(status: &Value) -> Option<f64> {
    status["uptime_seconds"].as_f64()
}

impl<'a> Pair<'a> {
    pub(super) fn new(before: Option<&'a Value>, now: &'a Value) -> Pair<'a> {
        let used = RefCell::default();
        Pair { before, now, used }
    }

    /// The samples of a metric that have these labels; `None` if the answer has no such metric.
    pub(super) fn samples<'s>(
        &self,
        status: &'s Value,
        name: &'static str,
        labels: Labels<'_>,
    ) -> Option<Vec<&'s Value>> {
        self.used.borrow_mut().insert(name);
        let samples = status["metrics"][name]["samples"].as_array()?;
        let has_all = |sample: &&Value| {
            let mut labels = labels.iter();
            labels.all(|(name, value)| sample["labels"][*name] == **value)
        };
        Some(samples.iter().filter(has_all).collect())
    }

    /// The sum of these samples.
    pub(super) fn sum(
        &self,
        status: &Value,
        name: &'static str,
        labels: Labels<'_>,
    ) -> Option<f64> {
        let samples = self.samples(status, name, labels)?;
        samples.iter().map(|it| it["value"].as_f64()).sum()
    }

    /// The same of the last answer.
    pub(super) fn now(&self, name: &'static str, labels: Labels<'_>) -> Option<f64> {
        self.sum(self.now, name, labels)
    }

    /// The largest of these samples of the last answer, 0 without one.
    pub(super) fn longest(&self, name: &'static str) -> Option<f64> {
        let samples = self.samples(self.now, name, &[])?;
        let ages = samples.iter().filter_map(|it| it["value"].as_f64());
        Some(ages.fold(0.0, f64::max))
    }

    /// How fast a number grows that both answers have.
    pub(super) fn growth(&self, count: impl Fn(&Value) -> Option<f64>) -> Option<f64> {
        let (now, until) = (count(self.now)?, uptime(self.now)?);
        let since = self
            .before
            .and_then(|before| Some((count(before)?, uptime(before)?)));
        let (before, since) = since.unwrap_or((0.0, 0.0));
        Some(if until > since {
            (now - before).max(0.0) / (until - since)
        } else {
            0.0
        })
    }

    /// How fast these samples grow together.
    pub(super) fn rate(&self, name: &'static str, labels: Labels<'_>) -> Option<f64> {
        self.growth(|status| self.sum(status, name, labels))
    }

    /// The name and address of each listener.
    pub(super) fn all_listeners(&self) -> impl Iterator<Item = (&'a str, &'a str)> {
        let samples = self.samples(self.now, "flatpath_connections", &[]);
        let samples = samples.unwrap_or_default().into_iter();
        samples.map(|it| (label(it, "listener"), label(it, "address")))
    }

    /// The number of each network thread, and its driver.
    pub(super) fn network_threads(&self) -> impl Iterator<Item = (&'a str, &'a str)> {
        let samples = self.samples(self.now, "flatpath_network_thread_info", &[]);
        let samples = samples.unwrap_or_default().into_iter();
        samples.map(|it| (label(it, "thread"), label(it, "driver")))
    }

    /// The histogram of a network thread's turns in an answer.
    pub(super) fn turns_in<'s>(&self, status: &'s Value, thread: &str) -> Option<&'s Value> {
        let samples = self.samples(status, "flatpath_turn_seconds", &[("thread", thread)]);
        samples?.first().copied()
    }

    /// The turns of a network thread between the two answers, by bucket.
    pub(super) fn turns(&self, thread: &str) -> Vec<f64> {
        let counts = |status| -> Vec<f64> {
            let turns = self.turns_in(status, thread);
            let counts = turns.map_or(&[][..], |turns| list(turns, "counts"));
            counts.iter().filter_map(Value::as_f64).collect()
        };
        let mut found = counts(self.now);
        let before = self.before.map(counts).unwrap_or_default();
        let gone = found.iter_mut().zip(before);
        gone.for_each(|(count, gone)| *count -= gone);
        found
    }

    /// The longest turn of each bucket but the last one.
    pub(super) fn bounds(&self) -> &'a [Value] {
        list(&self.now["metrics"]["flatpath_turn_seconds"], "bounds")
    }
}
