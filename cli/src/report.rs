//! The report of a running server on SIGUSR1: all metrics that are not 0, as
//! lines in the log, one for each listener, for each network thread and for the rest.
//!
//! By the housekeeper: some metrics are under locks that other threads hold for moments, and the
//! thread that handles signals waits for none. Signals that come before a report are one report.

use std::io;

use flatpath::Handle;
use flatpath::housekeeper::{Cause, Next, Task};
use flatpath::metrics::Family;
use flatpath_admin::Admin;

use crate::logging::REPORT;

/// A function that asks for a report, from any thread, without waiting.
///
/// # Errors
/// The housekeeper cannot be started.
pub(crate) fn start(admin: Admin) -> io::Result<impl FnMut(&Handle) + Send + 'static> {
    let task = Task::begin("report", move |cause| {
        if cause == Cause::Woken {
            for line in lines(admin.metrics()) {
                log::info!(target: REPORT, "{line}");
            }
        }
        Next::WhenWoken
    })?;
    Ok(move |_: &Handle| {
        task.wake();
    })
}

/// Labels that are not told with each number, but at the beginning of a line.
const SUBJECT: [&str; 3] = ["listener", "address", "thread"];

/// `metrics of http 127.0.0.1:8080: flatpath_connections=1 ...`
fn lines(families: Vec<Family>) -> Vec<String> {
    let mut lines: Vec<(String, Vec<String>)> = Vec::new();
    for family in families {
        let family = family.by_listener();
        for sample in &family.samples {
            let labels = family.labels.iter().zip(&sample.labels);
            let labels = labels.filter(|(name, _)| SUBJECT.contains(name));
            let labels: Vec<_> = labels.map(|(_, value)| value.as_str()).collect();
            let subject = match *labels {
                [] => "server".to_owned(),
                [thread] => format!("network thread {thread}"),
                [..] => labels.join(" "),
            };
            let at = lines.iter().position(|(other, _)| *other == subject);
            let at = at.unwrap_or_else(|| {
                lines.push((subject, Vec::new()));
                lines.len() - 1
            });
            if !sample.value.is_zero() {
                lines[at].1.push(family.text(sample, &SUBJECT));
            }
        }
    }
    let lines = lines.into_iter();
    let lines = lines.map(|(subject, told)| match told.is_empty() {
        true => format!("metrics of {subject}: all are 0"),
        false => format!("metrics of {subject}: {}", told.join(" ")),
    });
    lines.collect()
}

#[cfg(test)]
mod tests {
    use flatpath::metrics::{Metric, read, read_each};

    use super::*;

    const LISTENER: &[Metric<u64>] = &[Metric::counter("a_total", "A.", &["cause"], |it, out| {
        out.put(&["x"], *it);
        out.put(&["y"], 0_u64);
    })];

    const SERVER: &[Metric<u64>] = &[Metric::gauge("b", "B.", &[], |it, out| out.put(&[], *it))];

    #[test]
    fn a_line_has_what_one_subject_counted() {
        let labels = |labels: &[&str]| labels.iter().map(|it| (*it).to_owned()).collect();
        let http = |thread, count: u64| (labels(&["http", ":80", thread]), count);
        let all = [http("0", 1), http("1", 2)];
        let echo: [(Vec<String>, u64); 1] = [(labels(&["echo", ":7"]), 0)];
        let families = [
            read_each(LISTENER, &["listener", "address", "thread"], &all),
            read_each(LISTENER, &["listener", "address"], &echo),
            read_each(LISTENER, &["thread"], &[(labels(&["0"]), 4)]),
            read(SERVER, &5),
        ];
        let expected = [
            "metrics of http :80: a_total{cause=x}=3",
            "metrics of echo :7: all are 0",
            "metrics of network thread 0: a_total{cause=x}=4",
            "metrics of server: b=5",
        ];
        assert_eq!(lines(families.concat()), expected);
    }

    #[test]
    fn every_metric_is_in_a_line_and_nothing_else() {
        let mut families = Admin::new().metrics();
        for family in &mut families {
            let labels = family.labels.iter().map(|name| format!("{name}0"));
            let (labels, value) = (labels.collect(), 7_u64.into());
            family.samples = vec![flatpath::metrics::Sample { labels, value }];
        }
        let told = lines(families.clone()).join(" ");
        let told = told.split(' ').filter_map(|part| part.split_once('='));
        let mut told: Vec<_> = told
            .map(|(name, _)| name.split_once('{').map_or(name, |(name, _)| name))
            .collect();
        let mut names: Vec<_> = families.iter().map(|it| it.name).collect();
        told.sort_unstable();
        names.sort_unstable();
        assert_eq!(told, names);
    }
}
