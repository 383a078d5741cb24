//! The kernel's numbers for this process, under the names that all programs use for them.

use std::time::Duration;

use crate::flatpath::metrics::Metric;

#[rustfmt::skip]
pub(crate) const METRICS: &[Metric<Process>] = &[
    Metric::counter("process_cpu_seconds_total",
        "Processor time of the process, user and system.", &[],
        |it, out| out.put(&[], it.cpu)),
    Metric::gauge("process_resident_memory_bytes",
        "Memory of the process that is in RAM.", &[],
        |it, out| out.put(&[], it.resident_bytes)),
    Metric::gauge("process_virtual_memory_bytes",
        "Address space of the process.", &[],
        |it, out| out.put(&[], it.virtual_bytes)),
    Metric::gauge("process_threads",
        "Threads of the process.", &[],
        |it, out| {
            out.put(&[], it.threads);
        }),
];

/// A reading of `/proc/self/stat`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Process {
    pub(crate) cpu: Duration,
    pub(crate) threads: u64,
    pub(crate) virtual_bytes: u64,
    pub(crate) resident_bytes: u64,
}

impl Process {
    /// Nothing where there is no `/proc`.
    pub(crate) fn read() -> Option<Process> {
        let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
        let ticks = rustix::param::clock_ticks_per_second().max(1);
        parse(&stat, ticks, rustix::param::page_size() as u64)
    }
}

/// The fields that proc(5) numbers 14, 15, 20, 23 and 24. The second one, the name, is in
/// parentheses and may have any character in it.
fn parse(stat: &str, ticks: u64, page_bytes: u64) -> Option<Process> {
    let (_, fields) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = fields.split_ascii_whitespace().collect();
    let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
    let cpu_ticks = field(14)? + field(15)?;
    Some(Process {
        cpu: Duration::from_millis(cpu_ticks * 1_000 / ticks),
        threads: field(20)?,
        virtual_bytes: field(23)?,
        resident_bytes: field(24)? * page_bytes,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fields_are_found_after_any_name() {
        let stat = "7 (a) b (c)) S 1 7 7 0 -1 4194560 100 0 0 0 250 50 0 0 20 0 12 0 5 1000000 300 \
                    184467 1 1";
        let expected = Process {
            cpu: Duration::from_secs(3),
            threads: 12,
            virtual_bytes: 1_000_000,
            resident_bytes: 300 * 4096,
        };
        assert_eq!(parse(stat, 100, 4096), Some(expected));
        assert_eq!(parse("7 (short) S 1", 100, 4096), None);
    }

    #[test]
    fn this_process_has_a_thread_and_memory() {
        let process = Process::read().expect("Linux has /proc");
        assert!(process.threads >= 1 && process.resident_bytes > 0);
    }
}
