//! Medians over runs, ratios, and what was to be reached.

use serde::Serialize;

/// One run of one server.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Figures {
    /// From the first byte sent until the last message was added up.
    pub(crate) gibibytes_per_second: f64,
    /// The server's processor time.
    pub(crate) server_seconds_per_gibibyte: f64,
    /// The server's and the consumers'.
    pub(crate) both_seconds_per_gibibyte: f64,
    /// Bytes of a fragment, on average.
    pub(crate) fragment_bytes: f64,
}

/// The runs of one server, and the median of each figure.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) server: String,
    pub(crate) median: Figures,
    pub(crate) runs: Vec<Figures>,
}

/// The title of the table.
pub(crate) const HEAD: &str =
    "server                      GiB/s   server s/GiB   with consumers   fragment";

/// Ours may take this part of the peer's processor time.
pub(crate) const CPU_RATIO_MAX: f64 = 0.7;

/// The middle value; of two the higher.
fn median(runs: &[Figures], figure: impl Fn(&Figures) -> f64) -> f64 {
    let mut values: Vec<f64> = runs.iter().map(figure).collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

impl Row {
    pub(crate) fn new(server: &str, runs: Vec<Figures>) -> Row {
        let median = Figures {
            gibibytes_per_second: median(&runs, |run| run.gibibytes_per_second),
            server_seconds_per_gibibyte: median(&runs, |run| run.server_seconds_per_gibibyte),
            both_seconds_per_gibibyte: median(&runs, |run| run.both_seconds_per_gibibyte),
            fragment_bytes: median(&runs, |run| run.fragment_bytes),
        };
        Row {
            server: server.to_owned(),
            median,
            runs,
        }
    }

    /// As one line under [`HEAD`].
    pub(crate) fn line(&self) -> String {
        let of = &self.median;
        format!(
            "{:24} {:>8.2} {:>14.3} {:>16.3} {:>10.0}",
            self.server,
            of.gibibytes_per_second,
            of.server_seconds_per_gibibyte,
            of.both_seconds_per_gibibyte,
            of.fragment_bytes,
        )
    }
}

/// Ours against a peer.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Verdict {
    pub(crate) ours: String,
    pub(crate) peer: String,
    /// Processor time of the server, ours divided by the peer's.
    pub(crate) cpu_ratio: f64,
    /// The same with the consumers'.
    pub(crate) both_ratio: f64,
    /// Throughput, ours divided by the peer's.
    pub(crate) throughput_ratio: f64,
    pub(crate) met: bool,
}

impl Verdict {
    pub(crate) fn new(ours: &Row, peer: &Row) -> Verdict {
        let ratio = |figure: fn(&Figures) -> f64| figure(&ours.median) / figure(&peer.median);
        let cpu_ratio = ratio(|of| of.server_seconds_per_gibibyte);
        let throughput_ratio = ratio(|of| of.gibibytes_per_second);
        Verdict {
            ours: ours.server.clone(),
            peer: peer.server.clone(),
            cpu_ratio,
            both_ratio: ratio(|of| of.both_seconds_per_gibibyte),
            throughput_ratio,
            met: cpu_ratio <= CPU_RATIO_MAX && throughput_ratio >= 1.0,
        }
    }

    pub(crate) fn line(&self) -> String {
        format!(
            "{} / {}: CPU {:.2} (with consumers {:.2}), throughput {:.2}: {}",
            self.ours,
            self.peer,
            self.cpu_ratio,
            self.both_ratio,
            self.throughput_ratio,
            if self.met { "met" } else { "not met" },
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(server: &str, throughput: f64, cpu: f64) -> Row {
        let run = |factor: f64| Figures {
            gibibytes_per_second: throughput * factor,
            server_seconds_per_gibibyte: cpu * factor,
            both_seconds_per_gibibyte: cpu,
            fragment_bytes: 1.0,
        };
        Row::new(server, vec![run(3.0), run(1.0), run(0.5)])
    }

    #[test]
    fn the_verdict_needs_both_targets() {
        let peer = row("peer", 2.0, 1.0);
        assert!(Verdict::new(&row("ours", 2.0, 0.7), &peer).met);
        assert!(!Verdict::new(&row("ours", 1.9, 0.7), &peer).met);
        assert!(!Verdict::new(&row("ours", 2.0, 0.71), &peer).met);
    }
}
