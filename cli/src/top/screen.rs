//! The figures as text: a screen of lines, or one line.
//!
//! Rates are between two answers of the same server, by its own clock; with one answer alone,
//! since its start. A metric that an answer does not have, of another version, is shown as `?`.
//! Metrics that have no place of their own follow at the end, but for zeros; so each is shown.

use std::fmt::Write;
use std::time::{Duration, UNIX_EPOCH};

use serde_json::Value;

use super::pair::{Labels, Pair, label, list, uptime};
use super::words::{amount, bytes, printable, time};

/// Turns above this are one column of the chart.
const CHART_SECONDS_MAX: f64 = 1.1;

/// The columns of the lines for a file or a pipe.
pub(super) const COLUMNS: [&str; 12] = [
    "conns", "accept/s", "req/s", "recv/s", "sent/s", "queued", "oldest", "running", "workers",
    "p99turn", "cpu", "state",
];

/// A line of the right width, each part under its heading.
pub(super) fn line(parts: &[String]) -> String {
    let parts: Vec<_> = parts.iter().map(|part| format!("{part:>8}")).collect();
    parts.join(" ") + "\n"
}

/// All metrics.
pub(super) fn text(pair: &Pair<'_>) -> String {
    let parts = [
        pair.head(),
        pair.listeners(),
        pair.threads(),
        pair.notes(),
        pair.memory(),
        // The last one: it has what the others do not.
        pair.more(),
    ];
    let parts: Vec<String> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    parts.join("\n")
}

/// A number, `?` if there is none.
fn shown(number: Option<f64>, words: fn(f64) -> String) -> String {
    number.map_or_else(|| "?".into(), words)
}

fn percent(part: f64) -> String {
    format!("{:.1}%", 100.0 * part)
}

fn word(value: &Value) -> String {
    value.as_str().map_or_else(|| "?".into(), printable)
}

/// `http 127.0.0.1:8080`.
fn name(listener: &Value) -> String {
    format!(
        "{} {}",
        word(&listener["listener"]),
        word(&listener["address"])
    )
}

/// Lines with columns as wide as they need to be; the first is to the left, and so is the last.
fn table(headings: &[&str], rows: Vec<Vec<String>>) -> String {
    let heading = headings
        .iter()
        .map(|heading| (*heading).to_owned())
        .collect();
    let rows: Vec<Vec<String>> = std::iter::once(heading).chain(rows).collect();
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..headings.len()).map(width).collect();
    let mut text = String::new();
    for row in &rows {
        for (column, cell) in row.iter().enumerate() {
            let width = widths[column];
            let _ = match column {
                0 => write!(text, "{cell:width$}"),
                last if last + 1 == headings.len() => write!(text, "  {cell}"),
                _ => write!(text, "  {cell:>width$}"),
            };
        }
        text.truncate(text.trim_end().len());
        text.push('\n');
    }
    text
}

impl<'a> Pair<'a> {
    /// Those that are not 0, by a label: `idle 3 head 1`.
    fn listed(&self, name: &'static str, by: &str, labels: Labels<'_>) -> Option<String> {
        let samples = self.samples(self.now, name, labels)?;
        let some = samples.iter().filter_map(|sample| {
            let count = sample["value"].as_f64().filter(|count| *count > 0.0)?;
            Some(format!(
                "{} {}",
                printable(label(sample, by)),
                amount(count)
            ))
        });
        Some(some.collect::<Vec<_>>().join(" "))
    }

    fn state(&self) -> String {
        match self.now["state"].as_str() {
            Some("running") => "ready".into(),
            _ => word(&self.now["state"]),
        }
    }

    /// The values of [`COLUMNS`].
    pub(super) fn summary(&self) -> [String; 12] {
        let mut turns: Vec<f64> = Vec::new();
        for (thread, _) in self.network_threads() {
            let counts = self.turns(thread);
            turns.resize(counts.len(), 0.0);
            turns
                .iter_mut()
                .zip(counts)
                .for_each(|(sum, count)| *sum += count);
        }
        [
            shown(self.now("flatpath_connections", &[]), amount),
            shown(
                self.rate("flatpath_connections_accepted_total", &[]),
                amount,
            ),
            shown(self.rate("flatpath_requests_total", &[]), amount),
            shown(self.rate("flatpath_received_bytes_total", &[]), bytes),
            shown(self.rate("flatpath_sent_bytes_total", &[]), bytes),
            shown(self.now("flatpath_jobs", &[("state", "queued")]), amount),
            shown(self.longest("flatpath_oldest_queued_seconds"), time),
            shown(self.now("flatpath_jobs", &[("state", "running")]), amount),
            shown(self.now("flatpath_workers", &[("state", "busy")]), amount),
            self.quantile(&turns, 0.99),
            self.cpu(),
            self.state(),
        ]
    }

    /// The process's numbers, `-` where there is no `/proc`.
    fn of_process(&self, name: &'static str, words: impl Fn(&Self) -> String) -> String {
        match self.samples(self.now, name, &[]) {
            Some(samples) if samples.is_empty() => "-".into(),
            _ => words(self),
        }
    }

    fn cpu(&self) -> String {
        const NAME: &str = "process_cpu_seconds_total";
        self.of_process(NAME, |it| shown(it.rate(NAME, &[]), percent))
    }

    fn resident(&self) -> String {
        const NAME: &str = "process_resident_memory_bytes";
        self.of_process(NAME, |it| shown(it.now(NAME, &[]), bytes))
    }

    /// When the server was started, as a date; nothing before.
    fn started(&self) -> String {
        let start = self.now("flatpath_start_time_seconds", &[]);
        let start = start.filter(|start| *start > 0.0);
        let start = start.and_then(|start| Duration::try_from_secs_f64(start).ok());
        let start = start.and_then(|start| UNIX_EPOCH.checked_add(start));
        start.map_or_else(String::new, |start| {
            format!(" since {}", humantime::format_rfc3339_seconds(start))
        })
    }

    fn head(&self) -> String {
        let rates = match self.before {
            Some(_) => "",
            None => "   (rates: since the start)",
        };
        let info = self.samples(self.now, "flatpath_build_info", &[]);
        let version = info.and_then(|samples| Some(label(samples.first()?, "version")));
        let workers = |state| self.now("flatpath_workers", &[("state", state)]);
        let descriptors = |purpose| self.now("flatpath_descriptors", &[("purpose", purpose)]);
        format!(
            "flatpath {}  {}  up {}{}  process {}{rates}\n\
             connections {}  requests {}/s  received {}/s  sent {}/s  cpu {}  memory {}\n\
             workers {} busy {} idle of {}  descriptors {} connections {} files {} caches of {}\n",
            printable(version.unwrap_or("?")),
            self.state(),
            shown(uptime(self.now), time),
            self.started(),
            shown(self.now["pid"].as_f64(), |pid| format!("{pid}")),
            shown(self.now("flatpath_connections", &[]), amount),
            shown(self.rate("flatpath_requests_total", &[]), amount),
            shown(self.rate("flatpath_received_bytes_total", &[]), bytes),
            shown(self.rate("flatpath_sent_bytes_total", &[]), bytes),
            self.cpu(),
            self.resident(),
            shown(workers("busy"), amount),
            shown(workers("idle"), amount),
            shown(self.now("flatpath_workers_max", &[]), amount),
            shown(descriptors("connections"), amount),
            shown(descriptors("files"), amount),
            shown(descriptors("caches"), amount),
            shown(self.now("flatpath_descriptors_max", &[]), amount),
        )
    }

    fn listeners(&self) -> String {
        let headings = [
            "LISTENER",
            "OPEN",
            "ACCEPT/S",
            "REQ/S",
            "RECV/S",
            "SENT/S",
            "REFUSED",
            "EXPIRED",
            "STALLS",
            "QUEUED",
            "OLDEST",
            "RUNNING",
            "LONGEST",
            "BY STATUS",
        ];
        let rows = self.all_listeners().map(|(listener, address)| {
            let own = [("listener", listener), ("address", address)];
            let now = |name| self.now(name, &own);
            let rate = |name| self.rate(name, &own);
            let jobs = |state| self.now("flatpath_jobs", &[own[0], own[1], ("state", state)]);
            let waiting = ["queued", "held_back", "parked"].map(jobs);
            let by_status = self.listed("flatpath_requests_total", "class", &own);
            vec![
                format!("{} {}", printable(listener), printable(address)),
                shown(now("flatpath_connections"), amount),
                shown(rate("flatpath_connections_accepted_total"), amount),
                shown(rate("flatpath_requests_total"), amount),
                shown(rate("flatpath_received_bytes_total"), bytes),
                shown(rate("flatpath_sent_bytes_total"), bytes),
                shown(now("flatpath_connections_refused_total"), amount),
                shown(now("flatpath_connections_expired_total"), amount),
                shown(now("flatpath_stalls_total"), amount),
                shown(waiting.into_iter().sum(), amount),
                shown(now("flatpath_oldest_queued_seconds"), time),
                shown(jobs("running"), amount),
                shown(now("flatpath_longest_running_seconds"), time),
                by_status.unwrap_or_else(|| "?".into()),
            ]
        });
        table(&headings, rows.collect())
    }

    /// How long those turns took at most of which a share was shorter: the bound of a bucket.
    fn quantile(&self, counts: &[f64], share: f64) -> String {
        // The last bucket has no bound.
        let bounds = self.bounds().iter().map(Some).chain([None]);
        let rank = share * counts.iter().sum::<f64>();
        let mut below = 0.0;
        for (count, bound) in counts.iter().zip(bounds) {
            below += count;
            if *count > 0.0 && below >= rank {
                return match bound.and_then(Value::as_f64) {
                    Some(bound) => format!("<{}", time(bound)),
                    None => "long".into(),
                };
            }
        }
        "-".into()
    }

    /// One character for each bucket, the darker the more turns.
    fn chart(&self, counts: &[f64]) -> String {
        const SHADES: &[u8] = b" .:-=+*#%@";
        let bounds = self.bounds().iter().map(Value::as_f64);
        let is_short = |bound: &Option<f64>| bound.is_some_and(|it| it < CHART_SECONDS_MAX);
        let short = bounds.take_while(is_short).count().min(counts.len());
        let (short, long) = counts.split_at(short);
        let columns = short.iter().copied().chain([long.iter().sum()]);
        let most = columns.clone().fold(1.0, f64::max);
        let shades = columns.map(|count: f64| {
            let shade = (count / most * (SHADES.len() - 1) as f64).ceil() as usize;
            char::from(SHADES[shade.min(SHADES.len() - 1)])
        });
        format!("|{}|", shades.collect::<String>())
    }

    fn threads(&self) -> String {
        let headings = [
            "NETWORK THREAD",
            "TURNS/S",
            "BUSY",
            "P50",
            "P99",
            "THIS TURN",
            "1us ...TURNS... 1s",
        ];
        let rows = self.network_threads().map(|(thread, driver)| {
            let own = [("thread", thread)];
            let busy = self.growth(|status| self.turns_in(status, thread)?["sum"].as_f64());
            let counts = self.turns(thread);
            vec![
                format!("{} {}", printable(thread), printable(driver)),
                shown(self.rate("flatpath_turn_seconds", &own), amount),
                shown(busy, percent),
                self.quantile(&counts, 0.5),
                self.quantile(&counts, 0.99),
                shown(self.now("flatpath_turn_age_seconds", &own), time),
                self.chart(&counts),
            ]
        });
        table(&headings, rows.collect())
    }

    /// Faults, and the causes of counts that are not 0.
    fn notes(&self) -> String {
        let mut text = String::new();
        for handler in list(self.now, "slow_handlers") {
            let place = match handler["inline"].as_bool() {
                Some(true) => "inline on network thread",
                _ => "in worker",
            };
            let _ = writeln!(
                text,
                "SLOW HANDLER of {}, {place} {}: for {}",
                name(handler),
                shown(handler["thread"].as_f64(), |it| format!("{it}")),
                shown(handler["seconds"].as_f64(), time),
            );
        }
        for (listener, address) in self.all_listeners() {
            let own = [("listener", listener), ("address", address)];
            let mut note = |name: &str, told: &str| {
                let (listener, address) = (printable(listener), printable(address));
                let _ = writeln!(text, "{listener} {address}: {name}: {told}");
            };
            for (name, by) in [
                ("flatpath_connections_refused_total", "reason"),
                ("flatpath_connections_expired_total", "phase"),
                ("flatpath_stalls_total", "cause"),
            ] {
                let counts = self.listed(name, by, &own).unwrap_or_default();
                if !counts.is_empty() {
                    note(name, &counts);
                }
            }
            for name in [
                "flatpath_stalls_refused_total",
                "flatpath_accept_pauses_total",
                "flatpath_connections_ended_for_memory_total",
                "flatpath_handler_panics_total",
            ] {
                let count = self.now(name, &own).unwrap_or(0.0);
                if count > 0.0 {
                    note(name, &amount(count));
                }
            }
        }
        text
    }

    fn memory(&self) -> String {
        let buffers = |state| self.now("flatpath_buffer_bytes", &[("state", state)]);
        let received = |state| self.now("flatpath_receive_bytes", &[("state", state)]);
        format!(
            "buffers {} in use {} idle {} charged of {}, {} refused  \
             receive memory {} retained {} free\n",
            shown(buffers("in_use"), bytes),
            shown(buffers("idle"), bytes),
            shown(self.now("flatpath_charged_bytes", &[]), bytes),
            shown(self.now("flatpath_buffer_budget_bytes", &[]), bytes),
            shown(self.now("flatpath_buffers_refused_total", &[]), amount),
            shown(received("retained"), bytes),
            shown(received("free"), bytes),
        )
    }

    /// All metrics that were not asked for by name, but for zeros.
    fn more(&self) -> String {
        let mut text = String::new();
        let used = self.used.borrow();
        let metrics = self.now["metrics"].as_object().into_iter().flatten();
        for (name, metric) in metrics.filter(|(name, _)| !used.contains(name.as_str())) {
            let words = match metric["unit"].as_str() {
                Some("bytes") => bytes,
                Some("seconds") => time,
                _ => amount,
            };
            for sample in list(metric, "samples") {
                let value = sample["value"].as_f64();
                if value == Some(0.0) {
                    continue;
                }
                let labels = sample["labels"].as_object().into_iter().flatten();
                let labels =
                    labels.map(|(name, value)| format!("{}={}", printable(name), word(value)));
                let labels = labels.collect::<Vec<_>>().join(" ");
                let _ = writeln!(
                    text,
                    "{}  {labels}  {}",
                    printable(name),
                    shown(value, words)
                );
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect_file;
    use flatpath::metrics::{Metric, read};
    use flatpath::sockets::ListenAddress;
    use flatpath_admin::Admin;
    use serde_json::json;

    use super::*;
    use crate::top::feed;
    use crate::top::pair::is_same_server;

    fn status(uptime: f64, count: u64) -> Value {
        let own = json!({ "listener": "http", "address": "unix:/a\u{1b}[2J" });
        let of = |name: &str, value: &str, count: u64| {
            let mut labels = own.clone();
            labels[name] = value.into();
            json!({ "labels": labels, "value": count })
        };
        let one = |value: u64| json!({ "samples": [{ "labels": own, "value": value }] });
        json!({
            "pid": 7, "state": "running", "uptime_seconds": uptime,
            "metrics": {
                "flatpath_connections": one(3),
                "flatpath_sent_bytes_total": one(1024 * count),
                "flatpath_requests_total": {
                    "samples": [of("class", "2xx", count), of("class", "5xx", 0)],
                },
                "flatpath_connections_refused_total": {
                    "samples": [of("reason", "room", 0), of("reason", "address", 2)],
                },
                "flatpath_network_thread_info": {
                    "samples": [{ "labels": { "thread": "0", "driver": "epoll" }, "value": 1 }],
                },
                "flatpath_turn_seconds": {
                    "bounds": [0.001, 0.002, 4.0],
                    "samples": [{
                        "labels": { "thread": "0" }, "value": count + 10, "sum": 1.0,
                        "counts": [count, 9, 1, 0],
                    }],
                },
            },
            "slow_handlers": [{
                "listener": "http", "address": "x", "inline": true, "thread": 0, "seconds": 2.0,
            }],
        })
    }

    const DUMMY: &[Metric<()>] = &[Metric::counter(
        "dummy_logins_total",
        "Logins.",
        &["by"],
        |(), out| out.put(&["key"], 3_u64),
    )];

    /// The answer of a server that has a service with its own metric.
    fn answer() -> Value {
        let admin = Admin::new();
        admin.source(|| read(DUMMY, &()));
        let beside = admin.serve("127.0.0.1:0").expect("started");
        let address = ListenAddress::Internet(beside.addresses()[0].address);
        feed::ask(&address).expect("an answer")
    }

    #[test]
    fn a_metric_without_a_place_of_its_own_is_shown_at_the_end() {
        let text = text(&Pair::new(None, &answer()));
        assert!(text.contains("\ndummy_logins_total  by=key  3\n"), "{text}");
    }

    #[test]
    fn every_metric_is_shown_and_none_that_there_is_not() {
        let mut now = answer();
        for (name, metric) in now["metrics"].as_object_mut().expect("they are there") {
            let labels =
                json!({ "listener": "l", "address": "a", "thread": "0", "state": "queued" });
            metric["samples"] = json!([{ "labels": labels, "value": 7 }]);
            assert!(!metric["help"].as_str().expect("text").is_empty(), "{name}");
        }
        let pair = Pair::new(None, &now);
        let text = text(&pair);
        let used = pair.used.borrow();
        for (name, _) in now["metrics"].as_object().expect("they are there") {
            assert!(
                used.contains(name.as_str()) || text.contains(&format!("\n{name}  ")),
                "{name}"
            );
        }
        let unknown = used
            .iter()
            .find(|name| now["metrics"].get(**name).is_none());
        assert_eq!(unknown, None);
    }

    #[test]
    fn rates_are_between_two_answers_or_since_the_start() {
        let (before, now) = (status(10.0, 100), status(12.0, 300));
        let [_, _, requests, _, sent, ..] = Pair::new(Some(&before), &now).summary();
        assert_eq!((requests.as_str(), sent.as_str()), ("100", "100K"));
        let [_, _, requests, ..] = Pair::new(None, &now).summary();
        assert_eq!(requests, "25");
        assert!(is_same_server(&before, &now) && !is_same_server(&now, &before));
        // The same moment again is no time for a rate.
        let [_, _, requests, ..] = Pair::new(Some(&now), &now).summary();
        assert_eq!(requests, "0");
    }

    #[test]
    fn quantiles_are_of_the_turns_between() {
        let (before, now) = (status(10.0, 100), status(12.0, 101));
        let pair = Pair::new(Some(&before), &now);
        let turns = pair.turns("0");
        assert_eq!(turns, [1.0, 0.0, 0.0, 0.0]);
        assert_eq!(pair.quantile(&turns, 0.99), "<1ms");
        assert_eq!(pair.quantile(&[0.0, 98.0, 1.0, 1.0], 0.5), "<2ms");
        assert_eq!(pair.quantile(&[0.0, 98.0, 1.0, 1.0], 1.0), "long");
        assert_eq!(pair.quantile(&[0.0; 4], 0.5), "-");
        assert_eq!(pair.chart(&[9.0, 0.0, 1.0, 1.0]), "|@ :|");
    }

    #[test]
    fn what_is_shown_moves_no_cursor_and_hides_no_gap() {
        let text = text(&Pair::new(None, &status(1.0, 5)));
        assert!(!text.contains('\u{1b}'), "{text}");
        expect_file!["screen.txt"].assert_eq(&text);
    }
}
