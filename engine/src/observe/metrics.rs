//! Metrics: constant tables of what is counted, and what a table says at a moment.
//!
//! A [`Metric`] is a row of a table that stands where its number is born: those of the engine in
//! [`statistics`](crate::statistics) and [`figures`](crate::figures), those of a service in the
//! service. Reading a table gives [`Family`]s, and every output walks these (the text for
//! Prometheus, `/status.json`, the status page, `flatpath top`, the report of SIGUSR1). So a metric
//! has one name and one help text, and a new one is one row.
//!
//! ```
//! use std::sync::atomic::{AtomicU64, Ordering};
//! use flatpath::metrics::{Metric, read};
//!
//! #[derive(Default)]
//! struct App {
//!     logins: AtomicU64,
//! }
//!
//! const METRICS: &[Metric<App>] = &[Metric::counter(
//!     "myapp_logins_total", "Logins, by what the user proved to know.", &["by"],
//!     |app, out| out.put(&["key"], app.logins.load(Ordering::Relaxed)),
//! )];
//!
//! let families = read(METRICS, &App::default());
//! assert_eq!(families[0].samples[0].labels, ["key"]);
//! ```
//!
//! Names are those of Prometheus: in snake case with a prefix for the program, the unit, and
//! `_total` at the end of a counter. Nothing has a label whose values have no bound, such as a
//! client or a path.
//!
//! Cost: that of the functions of the table; the numbers are read when a caller asks.

use std::borrow::Borrow;
use std::time::Duration;

/// How a number moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
// Exhaustive: each way to show numbers has to know how each moves.
pub enum Kind {
    /// It only grows, from the start of the server.
    Counter,
    /// It goes up and down.
    Gauge,
    /// How many values fell into each of several ranges.
    Histogram,
}

impl Kind {
    /// As Prometheus calls it.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        }
    }
}

/// A row of a table: a number that a `S` has, or several that labels tell apart.
#[derive(Debug)]
pub struct Metric<S: ?Sized + 'static> {
    /// Its name in every output.
    pub name: &'static str,
    /// How it moves.
    pub kind: Kind,
    /// What it means, in one line.
    pub help: &'static str,
    /// What tells its samples apart.
    pub labels: &'static [&'static str],
    /// Puts its samples. It must not block.
    pub read: fn(&S, &mut Samples),
}

impl<S: ?Sized> Metric<S> {
    const fn new(
        kind: Kind,
        name: &'static str,
        help: &'static str,
        labels: &'static [&'static str],
        read: fn(&S, &mut Samples),
    ) -> Metric<S> {
        Metric {
            name,
            kind,
            help,
            labels,
            read,
        }
    }

    /// A counter; its name ends in `_total`.
    pub const fn counter(
        name: &'static str,
        help: &'static str,
        labels: &'static [&'static str],
        read: fn(&S, &mut Samples),
    ) -> Metric<S> {
        Metric::new(Kind::Counter, name, help, labels, read)
    }

    /// A gauge.
    pub const fn gauge(
        name: &'static str,
        help: &'static str,
        labels: &'static [&'static str],
        read: fn(&S, &mut Samples),
    ) -> Metric<S> {
        Metric::new(Kind::Gauge, name, help, labels, read)
    }

    /// A histogram.
    pub const fn histogram(
        name: &'static str,
        help: &'static str,
        labels: &'static [&'static str],
        read: fn(&S, &mut Samples),
    ) -> Metric<S> {
        Metric::new(Kind::Histogram, name, help, labels, read)
    }
}

/// Where a row puts its samples.
#[derive(Debug, Default)]
pub struct Samples {
    /// Values of the labels that the source has.
    source: Vec<String>,
    found: Vec<Sample>,
}

impl Samples {
    /// A sample: a value for each label of the row, in their order, and the number. The values of
    /// labels may have any character, and are unlike those of the row's other samples.
    pub fn put(&mut self, labels: &[&str], value: impl Into<Value>) {
        let own = labels.iter().map(|label| (*label).to_owned());
        self.found.push(Sample {
            labels: self.source.iter().cloned().chain(own).collect(),
            value: value.into(),
        });
    }
}

/// A metric with all its samples at a moment.
#[derive(Clone, Debug, PartialEq)]
pub struct Family {
    /// Its name in every output.
    pub name: &'static str,
    /// How it moves.
    pub kind: Kind,
    /// What it means, in one line.
    pub help: &'static str,
    /// What tells its samples apart.
    pub labels: Vec<&'static str>,
    /// Maybe none.
    pub samples: Vec<Sample>,
}

/// One number of a metric.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// As many as the metric has labels.
    pub labels: Vec<String>,
    /// The number.
    pub value: Value,
}

/// A number.
#[derive(Clone, Debug, PartialEq)]
// Exhaustive: each way to show numbers has to know each.
pub enum Value {
    /// A whole one.
    Whole(u64),
    /// Any: seconds have a fraction.
    Real(f64),
    /// A distribution.
    Histogram(Histogram),
}

/// How many values fell into each bucket.
#[derive(Clone, Debug, PartialEq)]
pub struct Histogram {
    /// The largest value of each bucket but the last one, which has no bound.
    pub bounds: Vec<f64>,
    /// How many fell into each: above the bound of the one before, up to its own.
    pub counts: Vec<u64>,
    /// All values together.
    pub sum: f64,
}

impl Histogram {
    /// How many values there are.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }
}

impl Value {
    /// Whether there is nothing to tell: 0, or a histogram of nothing.
    pub fn is_zero(&self) -> bool {
        match self {
            Value::Whole(count) => *count == 0,
            Value::Real(number) => *number == 0.0,
            Value::Histogram(histogram) => histogram.count() == 0,
        }
    }

    fn add(&mut self, other: &Value) {
        match (&mut *self, other) {
            (Value::Whole(sum), Value::Whole(more)) => *sum += more,
            (Value::Real(sum), Value::Real(more)) => *sum += more,
            (Value::Histogram(sum), Value::Histogram(more)) => {
                sum.counts
                    .iter_mut()
                    .zip(&more.counts)
                    .for_each(|(sum, more)| *sum += more);
                sum.sum += more.sum;
            }
            _ => debug_assert!(false, "the samples of a row are of one type"),
        }
    }
}

impl From<u64> for Value {
    fn from(count: u64) -> Value {
        Value::Whole(count)
    }
}

impl From<u32> for Value {
    fn from(count: u32) -> Value {
        Value::Whole(count.into())
    }
}

impl From<usize> for Value {
    fn from(count: usize) -> Value {
        Value::Whole(count as u64)
    }
}

impl From<bool> for Value {
    fn from(is_so: bool) -> Value {
        Value::Whole(is_so.into())
    }
}

impl From<f64> for Value {
    fn from(number: f64) -> Value {
        Value::Real(number)
    }
}

/// Seconds.
impl From<Duration> for Value {
    fn from(duration: Duration) -> Value {
        Value::Real(duration.as_secs_f64())
    }
}

impl From<Histogram> for Value {
    fn from(histogram: Histogram) -> Value {
        Value::Histogram(histogram)
    }
}

impl Family {
    /// `bytes` or `seconds`, as the name says; `None` for what is only counted.
    pub fn unit(&self) -> Option<&'static str> {
        let name = self.name.strip_suffix("_total").unwrap_or(self.name);
        let has = |unit: &&str| {
            name.strip_suffix(*unit)
                .is_some_and(|name| name.ends_with('_'))
        };
        ["bytes", "seconds"].into_iter().find(has)
    }

    /// A sample in a line of text: `name{label=value}=number`, without these labels. Of a histogram
    /// its count and its sum.
    pub fn text(&self, sample: &Sample, without: &[&str]) -> String {
        let labels = self.labels.iter().zip(&sample.labels);
        let labels = labels.filter(|(name, _)| !without.contains(name));
        let labels: Vec<_> = labels
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        let (name, labels) = match labels.is_empty() {
            true => (self.name, String::new()),
            false => (self.name, format!("{{{}}}", labels.join(","))),
        };
        match &sample.value {
            Value::Whole(count) => format!("{name}{labels}={count}"),
            Value::Real(number) => format!("{name}{labels}={number}"),
            Value::Histogram(it) => {
                let (count, sum) = (it.count(), it.sum);
                format!("{name}_count{labels}={count} {name}_sum{labels}={sum}")
            }
        }
    }

    /// As people look at it: what network threads count for a listener, summed over `thread`.
    #[must_use]
    pub fn by_listener(self) -> Family {
        match self.labels.contains(&"listener") {
            true => self.sum_without("thread"),
            false => self,
        }
    }

    /// Without one of its labels: samples that it alone told apart are summed. As it is, if it has
    /// no such label. O(samples²), for tens of them.
    #[must_use]
    pub(crate) fn sum_without(mut self, label: &str) -> Family {
        let Some(at) = self.labels.iter().position(|own| *own == label) else {
            return self;
        };
        self.labels.remove(at);
        let mut sums: Vec<Sample> = Vec::new();
        for mut sample in std::mem::take(&mut self.samples) {
            sample.labels.remove(at);
            match sums.iter_mut().find(|sum| sum.labels == sample.labels) {
                Some(sum) => sum.value.add(&sample.value),
                None => sums.push(sample),
            }
        }
        self.samples = sums;
        self
    }
}

/// Reads a table. O(its samples).
pub fn read<S: ?Sized>(table: &[Metric<S>], source: &S) -> Vec<Family> {
    read_each(table, &[], &[(Vec::new(), source)])
}

/// The numbers that are not 0, in one line: `name{label=value}=number`, without these labels.
pub fn line(families: &[Family], without: &[&str]) -> String {
    let parts = families.iter().flat_map(|family| {
        let some = family.samples.iter().filter(|it| !it.value.is_zero());
        some.map(|sample| family.text(sample, without))
    });
    parts.collect::<Vec<_>>().join(" ")
}

/// Reads a table for each of several sources, which labels of their own tell apart: the names of
/// these labels, and with each source their values. Without a source the families have no samples.
pub fn read_each<S: ?Sized>(
    table: &[Metric<S>],
    labels: &[&'static str],
    sources: &[(Vec<String>, impl Borrow<S>)],
) -> Vec<Family> {
    let families = table.iter().map(|metric| {
        let mut samples = Samples::default();
        for (values, source) in sources {
            debug_assert_eq!(values.len(), labels.len(), "{}", metric.name);
            samples.source.clone_from(values);
            (metric.read)(source.borrow(), &mut samples);
        }
        Family {
            name: metric.name,
            kind: metric.kind,
            help: metric.help,
            labels: [labels, metric.labels].concat(),
            samples: samples.found,
        }
    });
    families.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &[Metric<[u64]>] = &[
        Metric::counter("a_bytes_total", "Bytes.", &["way"], |it, out| {
            out.put(&["in"], it[0]);
            out.put(&["out"], it[1]);
        }),
        Metric::gauge("b", "B.", &[], |it, out| out.put(&[], it[1] as f64 / 2.0)),
    ];

    #[test]
    fn a_row_is_read_from_each_source_and_summed_over_a_label() {
        let sources: [&[u64]; 2] = [&[1, 2], &[10, 20]];
        let sources = sources.map(|source| (vec![source[0].to_string()], source));
        let families = read_each(TABLE, &["thread"], &sources);
        assert_eq!(families[0].labels, ["thread", "way"]);
        assert_eq!(families[0].samples[3].labels, ["10", "out"]);
        let [bytes, halves] = families.try_into().expect("two rows");
        assert_eq!((bytes.unit(), halves.unit()), (Some("bytes"), None));
        let sum = bytes.sum_without("thread");
        let found: Vec<_> = sum
            .samples
            .iter()
            .map(|it| (&*it.labels[0], &it.value))
            .collect();
        assert_eq!(
            found,
            [("in", &Value::Whole(11)), ("out", &Value::Whole(22))]
        );
        let told = line(&[sum.clone(), halves.clone()], &["thread"]);
        assert_eq!(
            told,
            "a_bytes_total{way=in}=11 a_bytes_total{way=out}=22 b=1 b=10"
        );
        assert_eq!(halves.clone().sum_without("way"), halves);
        assert_eq!(
            halves.sum_without("thread").samples[0].value,
            Value::Real(11.0)
        );
    }

    #[test]
    fn a_table_without_a_source_has_its_families() {
        let none: &[(Vec<String>, &[u64])] = &[];
        let families = read_each(TABLE, &["thread"], none);
        assert!(families.len() == 2 && families.iter().all(|it| it.samples.is_empty()));
    }
}
