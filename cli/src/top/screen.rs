//! The figures as text: a screen of lines, or one line.
//!
//! Rates are between two answers of the same server, by its own clock; with one answer alone,
//! since its start. A member that an answer does not have, of another version, is shown as `?`.

use std::fmt::Write;

use serde_json::Value;

use super::words::{amount, bytes, printable, time};

/// Turns above this are one column of the chart.
const CHART_SECONDS_MAX: f64 = 1.1;

/// What the lines for a file or a pipe have.
pub(super) const COLUMNS: [&str; 12] = [
    "conns", "accept/s", "req/s", "recv/s", "sent/s", "queued", "oldest", "running", "workers",
    "p99turn", "cpu", "state",
];

/// One answer, and the one before if there was one.
pub(super) struct Pair<'a> {
    before: Option<&'a Value>,
    now: &'a Value,
}

/// Whether two answers are of one server, which did not begin anew between them.
pub(super) fn is_same_server(before: &Value, now: &Value) -> bool {
    let uptime = |status: &Value| status["uptime_seconds"].as_f64();
    before["pid"] == now["pid"] && uptime(before) <= uptime(now)
}

/// A line of the right width, each part under its heading.
pub(super) fn line(parts: &[String]) -> String {
    let parts: Vec<_> = parts.iter().map(|part| format!("{part:>8}")).collect();
    parts.join(" ") + "\n"
}

/// All figures.
pub(super) fn text(pair: &Pair<'_>) -> String {
    let parts = [
        pair.head(),
        pair.listeners(),
        pair.threads(),
        pair.notes(),
        pair.memory(),
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

fn number(value: &Value, pointer: &str) -> Option<f64> {
    value.pointer(pointer)?.as_f64()
}

/// The sum of an object's numbers.
fn total(value: &Value, pointer: &str) -> Option<f64> {
    let members = value.pointer(pointer)?.as_object()?;
    members.values().map(Value::as_f64).sum()
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

fn list<'a>(value: &'a Value, name: &str) -> &'a [Value] {
    value[name].as_array().map_or(&[], Vec::as_slice)
}

/// The members that are not 0: `idle 3 head 1`.
fn listed(value: &Value) -> String {
    let members = value.as_object().into_iter().flatten();
    let some = members.filter_map(|(name, count)| {
        let count = count.as_f64().filter(|count| *count > 0.0)?;
        Some(format!("{} {}", printable(name), amount(count)))
    });
    some.collect::<Vec<_>>().join(" ")
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
    pub(super) fn new(before: Option<&'a Value>, now: &'a Value) -> Pair<'a> {
        Pair { before, now }
    }

    /// How fast a count grows that both answers have.
    fn rate(&self, count: impl Fn(&Value) -> Option<f64>) -> Option<f64> {
        let (now, until) = (count(self.now)?, number(self.now, "/uptime_seconds")?);
        let since = self
            .before
            .and_then(|before| Some((count(before)?, number(before, "/uptime_seconds")?)));
        let (before, since) = since.unwrap_or((0.0, 0.0));
        Some(if until > since {
            (now - before).max(0.0) / (until - since)
        } else {
            0.0
        })
    }

    /// The same of one listener.
    fn of_listener(&self, listener: &Value, count: impl Fn(&Value) -> Option<f64>) -> Option<f64> {
        self.rate(|status| {
            let mut all = list(status, "listeners").iter();
            let same = |other: &&Value| {
                ["listener", "address"]
                    .iter()
                    .all(|name| other[*name] == listener[*name])
            };
            count(all.find(same)?)
        })
    }

    /// The sum over all listeners.
    fn sum(status: &Value, count: impl Fn(&Value) -> Option<f64>) -> Option<f64> {
        list(status, "listeners").iter().map(count).sum()
    }

    fn rates(&self, count: impl Fn(&Value) -> Option<f64>) -> Option<f64> {
        self.rate(|status| Self::sum(status, &count))
    }

    fn longest(&self, pointer: &str) -> Option<f64> {
        let ages = list(self.now, "listeners")
            .iter()
            .map(|one| number(one, pointer));
        ages.sum::<Option<f64>>()?;
        let ages = list(self.now, "listeners")
            .iter()
            .filter_map(|one| number(one, pointer));
        Some(ages.fold(0.0, f64::max))
    }

    fn state(&self) -> String {
        match self.now["state"].as_str() {
            Some("running") => "ready".into(),
            _ => word(&self.now["state"]),
        }
    }

    /// What [`COLUMNS`] name.
    pub(super) fn summary(&self) -> [String; 12] {
        let now = |pointer: &'static str| Self::sum(self.now, |one| number(one, pointer));
        let rates = |pointer: &'static str| self.rates(|one| number(one, pointer));
        let counts = list(self.now, "network_threads").iter();
        let counts = counts.map(|thread| self.turns(thread));
        let all = counts.fold(Vec::new(), |mut sum: Vec<f64>, counts| {
            sum.resize(counts.len(), 0.0);
            sum.iter_mut()
                .zip(counts)
                .for_each(|(sum, count)| *sum += count);
            sum
        });
        [
            shown(now("/connections"), amount),
            shown(rates("/accepted"), amount),
            shown(self.rates(|one| total(one, "/requests")), amount),
            shown(rates("/received_bytes"), bytes),
            shown(rates("/sent_bytes"), bytes),
            shown(now("/jobs/queued"), amount),
            shown(self.longest("/oldest_queued_seconds"), time),
            shown(now("/jobs/running"), amount),
            shown(number(self.now, "/workers/busy"), amount),
            self.quantile(&all, 0.99),
            self.cpu(),
            self.state(),
        ]
    }

    fn cpu(&self) -> String {
        if self.now["process"].is_null() {
            return "-".into();
        }
        shown(
            self.rate(|status| number(status, "/process/cpu_seconds")),
            percent,
        )
    }

    fn head(&self) -> String {
        let now = |pointer: &str| number(self.now, pointer);
        let sum = |pointer: &'static str| Self::sum(self.now, |one| number(one, pointer));
        let rates = |pointer: &'static str| self.rates(|one| number(one, pointer));
        let since = match self.before {
            Some(_) => "",
            None => "   (rates: since the start)",
        };
        let resident = match self.now["process"].is_null() {
            true => "-".into(),
            false => shown(now("/process/resident_bytes"), bytes),
        };
        format!(
            "flatpath {}  {}  up {}  process {}{since}\n\
             connections {}  requests {}/s  received {}/s  sent {}/s  cpu {}  memory {resident}\n\
             workers {} busy {} idle of {}  descriptors {} connections {} files {} caches of {}\n",
            word(&self.now["version"]),
            self.state(),
            shown(now("/uptime_seconds"), time),
            shown(now("/pid"), |pid| format!("{pid}")),
            shown(sum("/connections"), amount),
            shown(self.rates(|one| total(one, "/requests")), amount),
            shown(rates("/received_bytes"), bytes),
            shown(rates("/sent_bytes"), bytes),
            self.cpu(),
            shown(now("/workers/busy"), amount),
            shown(now("/workers/idle"), amount),
            shown(now("/workers/max"), amount),
            shown(now("/descriptors/connections"), amount),
            shown(now("/descriptors/files"), amount),
            shown(now("/descriptors/caches"), amount),
            shown(now("/descriptors/max"), amount),
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
        let rows = list(self.now, "listeners").iter().map(|one| {
            let rate = |pointer: &str| self.of_listener(one, |it| number(it, pointer));
            let jobs = ["/jobs/queued", "/jobs/held_back", "/jobs/parked"];
            let waiting = jobs.iter().map(|pointer| number(one, pointer)).sum();
            vec![
                name(one),
                shown(number(one, "/connections"), amount),
                shown(rate("/accepted"), amount),
                shown(self.of_listener(one, |it| total(it, "/requests")), amount),
                shown(rate("/received_bytes"), bytes),
                shown(rate("/sent_bytes"), bytes),
                shown(total(one, "/refused"), amount),
                shown(total(one, "/expired"), amount),
                shown(total(one, "/stalls"), amount),
                shown(waiting, amount),
                shown(number(one, "/oldest_queued_seconds"), time),
                shown(number(one, "/jobs/running"), amount),
                shown(number(one, "/longest_running_seconds"), time),
                listed(&one["requests"]),
            ]
        });
        table(&headings, rows.collect())
    }

    /// The turns of a network thread between the two answers, by bucket.
    fn turns(&self, thread: &Value) -> Vec<f64> {
        let counts = |thread: &Value| -> Vec<f64> {
            let counts = list(thread, "turn_counts").iter();
            counts.filter_map(Value::as_f64).collect()
        };
        let mut found = counts(thread);
        let before = self.before.map(|before| list(before, "network_threads"));
        let before = before.into_iter().flatten();
        for other in before.filter(|other| other["thread"] == thread["thread"]) {
            let gone = counts(other);
            found
                .iter_mut()
                .zip(gone)
                .for_each(|(count, gone)| *count -= gone);
        }
        found
    }

    /// How long those turns took at most of which a share was shorter: the bound of a bucket.
    fn quantile(&self, counts: &[f64], share: f64) -> String {
        let bounds = list(self.now, "turn_bounds_seconds");
        let rank = share * counts.iter().sum::<f64>();
        let mut below = 0.0;
        for (count, bound) in counts.iter().zip(bounds) {
            below += count;
            if *count > 0.0 && below >= rank {
                return match bound.as_f64() {
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
        let bounds = list(self.now, "turn_bounds_seconds")
            .iter()
            .map(Value::as_f64);
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
        let rows = list(self.now, "network_threads").iter().map(|thread| {
            let of_thread = |pointer: &str| {
                self.rate(|status| {
                    let mut all = list(status, "network_threads").iter();
                    number(
                        all.find(|other| other["thread"] == thread["thread"])?,
                        pointer,
                    )
                })
            };
            let counts = self.turns(thread);
            vec![
                format!(
                    "{} {}",
                    shown(number(thread, "/thread"), amount),
                    word(&thread["driver"])
                ),
                shown(of_thread("/turns"), amount),
                shown(of_thread("/busy_seconds"), percent),
                self.quantile(&counts, 0.5),
                self.quantile(&counts, 0.99),
                shown(number(thread, "/turn_age_seconds"), time),
                self.chart(&counts),
            ]
        });
        table(&headings, rows.collect())
    }

    /// What is not as it should be, and why counts are not 0.
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
                shown(number(handler, "/thread"), |it| format!("{it}")),
                shown(number(handler, "/seconds"), time),
            );
        }
        for one in list(self.now, "listeners") {
            for why in ["refused", "expired", "stalls"] {
                let counts = listed(&one[why]);
                if !counts.is_empty() {
                    let _ = writeln!(text, "{}: {why}: {counts}", name(one));
                }
            }
            for count in [
                "stalls_refused",
                "accept_pauses",
                "ended_for_memory",
                "handler_panics",
            ] {
                let count = (count, one[count].as_f64().unwrap_or(0.0));
                if count.1 > 0.0 {
                    let _ = writeln!(text, "{}: {}: {}", name(one), count.0, amount(count.1));
                }
            }
        }
        text
    }

    fn memory(&self) -> String {
        let sum = |list: &[Value], member: &str| -> Option<f64> {
            list.iter().map(|one| one[member].as_f64()).sum()
        };
        let classes = self.now["buffers"]["classes"].as_array();
        let classes = classes.map_or(&[][..], Vec::as_slice);
        let regions = list(self.now, "receive_memory");
        let (free, retained) = (sum(regions, "free_bytes"), sum(regions, "retained_bytes"));
        format!(
            "buffers {} in use {} idle of {}, {} refused  receive memory {} retained {} free\n",
            shown(sum(classes, "in_use_bytes"), bytes),
            shown(sum(classes, "idle_bytes"), bytes),
            shown(number(self.now, "/buffers/budget_bytes"), bytes),
            shown(number(self.now, "/buffers/refused"), amount),
            shown(retained, bytes),
            shown(free, bytes),
        )
    }

    /// What services count for themselves, but for zeros.
    fn more(&self) -> String {
        let mut text = String::new();
        for family in list(self.now, "more") {
            for sample in list(family, "samples") {
                let value = sample["value"].as_f64();
                if value == Some(0.0) {
                    continue;
                }
                let labels = sample["labels"].as_object().into_iter().flatten();
                let labels =
                    labels.map(|(name, value)| format!("{}={}", printable(name), word(value)));
                let labels = labels.collect::<Vec<_>>().join(" ");
                let name = word(&family["name"]);
                let _ = writeln!(text, "{name}  {labels}  {}", shown(value, amount));
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn status(uptime: f64, count: u64) -> Value {
        json!({
            "version": "1", "pid": 7, "state": "running", "uptime_seconds": uptime,
            "process": null,
            "turn_bounds_seconds": [0.001, 0.002, 4.0, null],
            "listeners": [{
                "listener": "http", "address": "unix:/a\u{1b}[2J", "connections": 3,
                "requests": { "2xx": count, "5xx": 0 }, "refused": { "room": 0, "address": 2 },
                "sent_bytes": 1024 * count,
            }],
            "network_threads": [
                { "thread": 0, "driver": "epoll", "turn_counts": [count, 9, 1, 0] },
            ],
            "slow_handlers": [{
                "listener": "http", "address": "x", "inline": true, "thread": 0, "seconds": 2.0,
            }],
        })
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
        let turns = pair.turns(&now["network_threads"][0]);
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
        assert!(text.contains("http unix:/a?[2J"), "{text}");
        assert!(
            text.contains("up 1s") && text.contains("workers ? busy"),
            "{text}"
        );
        assert!(text.contains("refused: address 2"), "{text}");
        assert!(text.contains("SLOW HANDLER of http x, inline on network thread 0: for 2s"));
    }
}
