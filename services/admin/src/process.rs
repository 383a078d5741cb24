//! The kernel's numbers for this process, under the names that all programs use for them.

use std::sync::OnceLock;
use std::time::Duration;

use rustix::time::ClockId;

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
    Metric::gauge("process_start_time_seconds",
        "When the process was started, since 1970.", &[],
        |it, out| out.put(&[], it.started_at)),
    Metric::gauge("process_open_fds",
        "Descriptors that the process has open.", &[],
        |it, out| out.put(&[], it.descriptors)),
    Metric::gauge("process_max_fds",
        "Descriptors that it may have open.", &[],
        |it, out| out.put(&[], it.descriptors_max)),
    Metric::gauge("process_threads",
        "Threads of the process.", &[],
        |it, out| {
            out.put(&[], it.threads);
        }),
];

/// A reading of `/proc/self`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Process {
    pub(crate) cpu: Duration,
    pub(crate) threads: u64,
    pub(crate) virtual_bytes: u64,
    pub(crate) resident_bytes: u64,
    /// After the boot of the machine.
    pub(crate) started_after: Duration,
    /// Since 1970.
    pub(crate) started_at: Duration,
    pub(crate) descriptors: u64,
    pub(crate) descriptors_max: u64,
}

impl Process {
    /// Nothing where there is no `/proc`.
    pub(crate) fn read() -> Option<Process> {
        let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
        let ticks = rustix::param::clock_ticks_per_second().max(1);
        let process = parse(&stat, ticks, rustix::param::page_size() as u64)?;
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
        Some(Process {
            started_at: started_at(process.started_after),
            descriptors: descriptors(),
            descriptors_max: limit.current.unwrap_or(u64::MAX),
            ..process
        })
    }
}

/// When the process was started, which is so long after the machine was. Asked once: the kernel's
/// time of the boot (`btime`) follows the steps of the clock, and a start does not move.
fn started_at(after_boot: Duration) -> Duration {
    static STARTED: OnceLock<Duration> = OnceLock::new();
    *STARTED.get_or_init(|| {
        let now = |clock| {
            let now = rustix::time::clock_gettime(clock);
            let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
            Duration::new(seconds, u32::try_from(now.tv_nsec).unwrap_or(0))
        };
        let booted = now(ClockId::Realtime).saturating_sub(now(ClockId::Boottime));
        booted + after_boot
    })
}

/// Descriptors that are open, without that of the directory that is read.
fn descriptors() -> u64 {
    let listed = std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
    (listed as u64).saturating_sub(1)
}

/// The fields that proc(5) numbers 14, 15, 20, 22, 23 and 24. The second one, the name, is in
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
        started_after: Duration::from_millis(field(22)? * 1_000 / ticks),
        ..Process::default()
    })
}

#[cfg(test)]
mod tests {
    use std::time::{SystemTime, UNIX_EPOCH};

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
            started_after: Duration::from_millis(50),
            ..Process::default()
        };
        assert_eq!(parse(stat, 100, 4096), Some(expected));
        assert_eq!(parse("7 (short) S 1", 100, 4096), None);
    }

    #[test]
    fn this_process_has_a_thread_and_memory() {
        let process = Process::read().expect("Linux has /proc");
        assert!(process.threads >= 1 && process.resident_bytes > 0);
        assert!(process.descriptors >= 3 && process.descriptors_max > process.descriptors);
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let age = now.expect("after 1970").checked_sub(process.started_at);
        assert!(
            age.is_some_and(|age| age < Duration::from_secs(3600)),
            "{process:?}"
        );
        let again = Process::read().expect("as before");
        assert_eq!(again.started_at, process.started_at);
    }
}
