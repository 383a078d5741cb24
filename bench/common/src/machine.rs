//! On what the figures were measured.

use std::fs;

use serde::Serialize;

use crate::namespace;
use crate::profile::cores;

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
    /// Processes ready to run when the run began (one minute's average).
    pub load: f64,
    /// TCP congestion control of servers and clients: one that paces, paces loopback too.
    pub congestion: String,
}

impl Machine {
    /// Asks the kernel. What cannot be found is called unknown.
    pub fn describe() -> Self {
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
            congestion: namespace::congestion_control().unwrap_or_default(),
        }
    }

    /// One paragraph for the head of a report.
    pub fn words(&self) -> String {
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
            "{}, {cores}, {} MiB, {sort}, Linux {}, {}; {} build; load {:.1} at the start",
            self.cpu, self.memory_mib, self.kernel, self.congestion, self.build, self.load
        )
    }
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
    fn the_machine_is_named_in_the_words() {
        let machine = Machine::describe();
        let words = machine.words();
        assert!(words.contains(&machine.kernel) && words.contains(&machine.cpu));
        assert!(!machine.kernel.is_empty());
    }
}
