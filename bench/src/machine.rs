//! On what the figures were measured.

use std::fs;
use std::time::Instant;

use serde::Serialize;

use crate::pace::cores;

/// The machine, and how this program was built.
#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    /// As the kernel names it.
    pub cpu: String,
    /// Cores this process may use.
    pub cores: usize,
    /// Memory of the machine.
    pub memory_mib: u64,
    /// Kernel release.
    pub kernel: String,
    /// Whether a hypervisor runs it: wake-ups cost more then.
    pub virtual_machine: bool,
    /// How this program was built: figures of a debug build mean little.
    pub build: &'static str,
    /// Processes ready to run beside this one when the run began (one minute's average).
    pub load: f64,
}

impl Machine {
    /// Asks the kernel. What cannot be found is called unknown.
    pub(crate) fn describe() -> Self {
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        let cpuinfo = read("/proc/cpuinfo");
        Self {
            cpu: value(&cpuinfo, "model name")
                .unwrap_or("unknown processor")
                .to_owned(),
            cores: cores(),
            memory_mib: memory_mib(&read("/proc/meminfo")),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            virtual_machine: value(&cpuinfo, "flags")
                .is_some_and(|flags| flags.split(' ').any(|flag| flag == "hypervisor")),
            build: if cfg!(debug_assertions) {
                "debug"
            } else {
                "release"
            },
            load: first_number(&read("/proc/loadavg")),
        }
    }

    /// One paragraph for the head of a report.
    pub(crate) fn words(&self) -> String {
        let sort = if self.virtual_machine {
            "virtual machine"
        } else {
            "bare metal"
        };
        let cores = match self.cores {
            1 => "1 core".to_owned(),
            cores => format!("{cores} cores"),
        };
        format!(
            "{}, {cores}, {} MiB, {sort}, Linux {}; {} build; load {:.1} at the start",
            self.cpu, self.memory_mib, self.kernel, self.build, self.load
        )
    }
}

/// CPU time of the machine and of this process and its children, at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Occupation {
    busy_ticks: u64,
    own_ticks: u64,
    at: Instant,
}

impl Occupation {
    /// `None` where `/proc` cannot be read.
    pub(crate) fn now() -> Option<Self> {
        Some(Self {
            busy_ticks: busy_ticks(&fs::read_to_string("/proc/stat").ok()?)?,
            own_ticks: own_ticks(&fs::read_to_string("/proc/self/stat").ok()?)?,
            at: Instant::now(),
        })
    }

    /// Share of one core that other processes used since then, in percent.
    pub(crate) fn others_percent(self) -> Option<f64> {
        let now = Self::now()?;
        let busy = now.busy_ticks.saturating_sub(self.busy_ticks);
        let others = busy.saturating_sub(now.own_ticks.saturating_sub(self.own_ticks));
        let ticks = rustix::param::clock_ticks_per_second() as f64;
        let seconds = now.at.duration_since(self.at).as_secs_f64();
        Some(others as f64 / ticks / seconds.max(1e-9) * 100.0)
    }
}

/// All but idle and waiting; stolen time too, for it was not this machine's.
fn busy_ticks(stat: &str) -> Option<u64> {
    let fields: Vec<u64> = stat
        .lines()
        .next()?
        .strip_prefix("cpu ")?
        .split_ascii_whitespace()
        .map_while(|field| field.parse().ok())
        .collect();
    let [user, nice, system, _idle, _waiting, irq, softirq, steal, ..] = fields[..] else {
        return None;
    };
    Some(user + nice + system + irq + softirq + steal)
}

/// User and system time, children that ended included.
fn own_ticks(stat: &str) -> Option<u64> {
    // The name stands in brackets and may hold anything; field 3 follows it.
    let fields: Vec<&str> = stat[stat.rfind(')')? + 1..]
        .split_ascii_whitespace()
        .collect();
    let own = fields.get(11..15)?.iter().map(|field| field.parse::<u64>());
    own.sum::<Result<u64, _>>().ok()
}

/// `name<tab>: value`, the first one of that name.
fn value<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then(|| value.trim())
    })
}

fn memory_mib(meminfo: &str) -> u64 {
    let kib = value(meminfo, "MemTotal").and_then(|text| text.split(' ').next()?.parse().ok());
    kib.unwrap_or(0_u64) / 1024
}

fn first_number(text: &str) -> f64 {
    let word = text.split(' ').next().unwrap_or_default();
    word.parse().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_found_by_their_whole_name() {
        let text = "model\t\t: 17\nmodel name\t: Some CPU @ 2 GHz\n";
        assert_eq!(value(text, "model name"), Some("Some CPU @ 2 GHz"));
        assert_eq!(value(text, "flags"), None);
        assert_eq!(memory_mib("MemTotal:       2048 kB\n"), 2);
    }

    #[test]
    fn time_of_others_is_told_from_ones_own() {
        let stat = "cpu  10 1 20 900 5 2 3 4 0 0\ncpu0 1 1 1 1 1 1 1 1 0 0\n";
        assert_eq!(busy_ticks(stat), Some(40));
        let own = "7 (a) b) R 1 7 7 0 -1 4 1 0 0 0 11 22 3 4 20 0 1 0 5 6 7";
        assert_eq!(own_ticks(own), Some(40));
        assert!(
            Occupation::now()
                .and_then(Occupation::others_percent)
                .is_some()
        );
    }

    #[test]
    fn the_machine_is_named_in_the_words() {
        let machine = Machine::describe();
        let words = machine.words();
        assert!(words.contains(&machine.kernel) && words.contains(&machine.cpu));
        assert!(!machine.kernel.is_empty());
    }
}
