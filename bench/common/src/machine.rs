//! On what the figures were measured.

use flatpath_driver::idle::IdleSetting;
use procfs::{CpuInfo, Current, LoadAverage, Meminfo};
use serde::Serialize;

use crate::namespace;
use crate::profile::cores;

/// The machine, and how this program was built.
#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    pub cpu: String,
    /// Cores this process may use.
    pub cores: usize,
    pub memory_mib: u64,
    pub kernel: String,
    /// Whether a hypervisor runs it: wake-ups cost more then.
    pub virtual_machine: bool,
    /// What its idle processors do, on a virtual machine: it decides what a wake-up costs.
    pub idle: Option<String>,
    /// The profile that this program was built with, by the name of its directory: figures of a
    /// debug build mean little, and those that are published are of `dist`.
    pub build: String,
    /// Processes ready to run when the run began (one minute's average).
    pub load: f32,
    /// TCP congestion control of servers and clients: one that paces, paces loopback too.
    pub congestion: String,
    /// Programs and crates that are compared.
    pub versions: Vec<String>,
}

/// The name of the directory that cargo built this program in.
fn profile() -> String {
    let program = std::env::current_exe().unwrap_or_default();
    let names = program.ancestors().skip(1).filter_map(|it| it.file_name());
    let mut names = names.map(|it| it.to_string_lossy());
    let name = names.find(|name| name != "deps");
    name.unwrap_or_default().into_owned()
}

impl Machine {
    /// Asks the kernel. What cannot be found is called unknown.
    pub fn describe() -> Self {
        let cpu = CpuInfo::current().ok();
        let model = cpu.as_ref().and_then(|cpu| cpu.model_name(0));
        let flags = cpu.as_ref().and_then(|cpu| cpu.flags(0));
        let release = std::fs::read_to_string("/proc/sys/kernel/osrelease");
        Self {
            cpu: model.unwrap_or("unknown processor").to_owned(),
            cores: cores(),
            memory_mib: Meminfo::current().map_or(0, |memory| memory.mem_total >> 20),
            kernel: release.unwrap_or_default().trim().to_owned(),
            virtual_machine: flags.is_some_and(|flags| flags.contains(&"hypervisor")),
            idle: IdleSetting::of_this_machine().map(|setting| setting.to_string()),
            build: profile(),
            load: LoadAverage::current().map_or(0.0, |load| load.one),
            congestion: namespace::congestion_control().unwrap_or_default(),
            versions: Vec::new(),
        }
    }

    /// One paragraph for the head of a report.
    pub fn words(&self) -> String {
        let sort = match &self.idle {
            Some(idle) => format!("virtual machine ({idle})"),
            None if self.virtual_machine => "virtual machine".to_owned(),
            None => "bare metal".to_owned(),
        };
        let cores = match self.cores {
            1 => "1 core".to_owned(),
            cores => format!("{cores} cores"),
        };
        format!(
            "{}, {cores}, {} MiB, {sort}, Linux {}, {}; {} build; load {:.1} at the start",
            self.cpu, self.memory_mib, self.kernel, self.congestion, self.build, self.load
        ) + &self
            .versions
            .iter()
            .map(|version| format!("; {version}"))
            .collect::<String>()
    }
}

/// `NAME VERSION` of packages in the text of the Cargo.lock that a program was built from.
pub fn locked_versions(lock_file: &str, names: &[&str]) -> Vec<String> {
    let version = |name: &&str| {
        let heading = format!("name = \"{name}\"");
        let mut lines = lock_file.lines().skip_while(|line| *line != heading);
        let version = lines.nth(1)?.strip_prefix("version = ")?;
        Some(format!("{name} {}", version.trim_matches('"')))
    };
    names.iter().filter_map(version).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_those_of_whole_names() {
        let text =
            "name = \"hyper-util\"\nversion = \"0.1.0\"\nname = \"hyper\"\nversion = \"1.2.3\"";
        let versions = locked_versions(text, &["hyper", "absent"]);
        assert_eq!(versions, ["hyper 1.2.3"]);
    }

    #[test]
    fn the_machine_is_named_in_the_words() {
        let machine = Machine::describe();
        let words = machine.words();
        assert!(words.contains(&machine.kernel) && words.contains(&machine.cpu));
        assert!(!machine.kernel.is_empty());
        assert_eq!(words.contains("cpuidle"), machine.virtual_machine);
    }
}
