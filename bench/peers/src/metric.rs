//! What is measured, and how the figures of several runs become one.

use std::collections::BTreeMap;

use serde::Serialize;

/// Above this share of a core, other processes may have disturbed a figure.
const OTHERS_PERCENT_MAX: f64 = 5.0;

/// One measured quantity. The order here is the order of the table's columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Metric {
    /// Replies per second, counted by the load generator.
    RequestsPerSecond,
    /// Server CPU time over the loaded interval, divided by the replies counted.
    ServerMicrosPerRequest,
    /// User-space instructions of the server, divided by the requests.
    InstructionsPerRequest,
    /// System calls of the server, divided by the requests.
    SystemCallsPerRequest,
    /// Median latency.
    P50Micros,
    /// 99th percentile of latency.
    P99Micros,
    /// 99th percentile of the quick requests while some of the others sleep.
    QuickP99Micros,
    /// The same server and load without sleepers, as many requests as it can serve.
    QuickP99AloneMicros,
    /// The same server without sleepers, at the request rate it had with them.
    QuickP99PacedMicros,
    /// 99th percentile of the sleeping requests.
    SleeperP99Micros,
    /// Failed connections, reads, writes, time-outs and replies that are not 2xx or 3xx.
    Errors,
    /// Connections the whole machine accepted meanwhile.
    Accepted,
    /// How many of the connections were being answered at any time.
    Answered,
    /// Head and body of one reply.
    ReplyBytes,
    /// Clients that got everything they waited for.
    Served,
    /// Clients that did not.
    Lost,
    /// From the first connection attempt to the last reply.
    WallMillis,
    /// Server CPU time of a whole run.
    ServerMillis,
    /// The same, per connection.
    ServerMicrosPerConnection,
    /// System calls of the server per connection, from a run of its own.
    SystemCallsPerConnection,
    /// Connections the kernel dropped because the listen queue was full.
    ListenOverflows,
    /// User-space memory an idle connection adds.
    IdleBytesPerConnection,
    /// All memory of the process over the connections: what was set aside at start as well.
    AllBytesPerConnection,
    /// What a connection added at the moment of highest use.
    PeakBytesPerConnection,
    /// Most memory the server ever had resident.
    PeakMib,
    /// Share of one core the load generator used: near 100 it is the limit, not the server.
    GeneratorPercent,
    /// Share of one core that other processes used meanwhile: noise.
    OthersPercent,
}

/// How several runs become one figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fold {
    Median,
    Sum,
    Maximum,
}

impl Metric {
    /// The heading of its column.
    pub(crate) fn heading(self) -> &'static str {
        match self {
            Self::RequestsPerSecond => "req/s",
            Self::ServerMicrosPerRequest => "CPU us/req",
            Self::InstructionsPerRequest => "instr/req",
            Self::SystemCallsPerRequest => "syscalls/req",
            Self::P50Micros => "p50 us",
            Self::P99Micros => "p99 us",
            Self::QuickP99Micros => "quick p99 us",
            Self::QuickP99AloneMicros => "alone",
            Self::QuickP99PacedMicros => "alone, paced",
            Self::SleeperP99Micros => "sleeper p99",
            Self::Errors => "errors",
            Self::Accepted => "accepted",
            Self::Answered => "answered",
            Self::ReplyBytes => "reply B",
            Self::Served => "served",
            Self::Lost => "lost",
            Self::WallMillis => "wall ms",
            Self::ServerMillis => "CPU ms",
            Self::ServerMicrosPerConnection => "CPU us/conn",
            Self::SystemCallsPerConnection => "syscalls/conn",
            Self::ListenOverflows => "overflows",
            Self::IdleBytesPerConnection => "idle B/conn",
            Self::AllBytesPerConnection => "all B/conn",
            Self::PeakBytesPerConnection => "peak B/conn",
            Self::PeakMib => "peak MiB",
            Self::GeneratorPercent => "generator %",
            Self::OthersPercent => "others %",
        }
    }

    /// Digits after the point in the table.
    pub(crate) fn decimals(self) -> usize {
        match self {
            Self::ServerMicrosPerRequest
            | Self::ServerMicrosPerConnection
            | Self::SystemCallsPerRequest
            | Self::SystemCallsPerConnection => 2,
            Self::PeakMib | Self::WallMillis => 1,
            _ => 0,
        }
    }

    /// Whether it has a column; the others speak up in notes, and are in the JSON.
    pub(crate) fn has_column(self) -> bool {
        !matches!(self, Self::Accepted | Self::Answered)
    }

    fn fold(self) -> Fold {
        match self {
            Self::Errors | Self::Served | Self::Lost | Self::ListenOverflows => Fold::Sum,
            Self::PeakMib | Self::PeakBytesPerConnection => Fold::Maximum,
            _ => Fold::Median,
        }
    }
}

/// The figures of one run, or what became of several.
pub(crate) type Figures = BTreeMap<Metric, f64>;

/// Folds the runs of one server. A figure that some run lacks is folded over the others.
pub(crate) fn fold(runs: &[Figures]) -> Figures {
    let mut columns: BTreeMap<Metric, Vec<f64>> = BTreeMap::new();
    for (metric, value) in runs.iter().flatten() {
        columns.entry(*metric).or_default().push(*value);
    }
    columns
        .into_iter()
        .map(|(metric, values)| (metric, fold_one(metric, values)))
        .collect()
}

fn fold_one(metric: Metric, values: Vec<f64>) -> f64 {
    match metric.fold() {
        Fold::Median => median(values),
        Fold::Sum => values.iter().sum(),
        Fold::Maximum => values.into_iter().fold(0.0, f64::max),
    }
}

/// The middle value, or the mean of the two middle ones. Zero for none.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match (values.len() % 2, values.get(middle)) {
        (_, None) => 0.0,
        (1, Some(value)) => *value,
        (_, Some(value)) => f64::midpoint(values[middle - 1], *value),
    }
}

/// Whether other processes used so much CPU that the figures may be wrong.
pub(crate) fn is_disturbed(figures: &Figures) -> bool {
    figures
        .get(&Metric::OthersPercent)
        .is_some_and(|percent| *percent > OTHERS_PERCENT_MAX)
}

/// How far the runs lie apart, in percent of their median: the noise of a figure.
pub(crate) fn spread_percent(runs: &[Figures], metric: Metric) -> Option<f64> {
    let values: Vec<f64> = runs
        .iter()
        .filter_map(|run| run.get(&metric).copied())
        .collect();
    let least = values.iter().copied().reduce(f64::min)?;
    let most = values.iter().copied().reduce(f64::max)?;
    let middle = median(values);
    (middle > 0.0).then(|| (most - least) / middle * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(metric: Metric, value: f64) -> Figures {
        Figures::from([(metric, value)])
    }

    #[test]
    fn the_median_ignores_one_disturbed_run() {
        assert_eq!(median(vec![3.5, 90.0, 3.6]).to_bits(), 3.6_f64.to_bits());
        assert_eq!(median(vec![4.0, 2.0]).to_bits(), 3.0_f64.to_bits());
        assert_eq!(median(Vec::new()).to_bits(), 0.0_f64.to_bits());
    }

    #[test]
    fn errors_of_all_runs_are_added_up() {
        let runs = [
            run(Metric::Errors, 0.0),
            run(Metric::Errors, 2.0),
            run(Metric::Errors, 1.0),
        ];
        assert_eq!(fold(&runs), run(Metric::Errors, 3.0));
    }

    #[test]
    fn the_highest_peak_is_the_peak() {
        let runs = [run(Metric::PeakMib, 9.0), run(Metric::PeakMib, 4.0)];
        assert_eq!(fold(&runs), run(Metric::PeakMib, 9.0));
    }

    #[test]
    fn spread_is_the_range_over_the_median() {
        let metric = Metric::ServerMicrosPerRequest;
        let runs = [run(metric, 4.0), run(metric, 5.0), run(metric, 6.0)];
        let spread = spread_percent(&runs, metric).expect("three runs");
        assert!((spread - 40.0).abs() < 1e-9);
        assert_eq!(spread_percent(&[], metric), None);
    }
}
