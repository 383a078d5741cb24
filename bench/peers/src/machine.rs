//! On what the figures were measured.

use std::fs;
use std::thread::available_parallelism;

use serde::Serialize;

use crate::tools::Tool;

/// The lock file this binary was built from: the versions are the real ones.
const LOCK_FILE: &str = include_str!("../../../Cargo.lock");
const PEER_CRATES: [&str; 3] = ["hyper", "tokio", "tiny_http"];

/// The machine and the versions of everything that was compared.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Machine {
    /// As the kernel names it.
    pub(crate) cpu: String,
    /// Cores this process may use.
    pub(crate) cores: usize,
    /// Memory of the machine.
    pub(crate) memory_mib: u64,
    /// Kernel release.
    pub(crate) kernel: String,
    /// Whether a hypervisor runs it: wake-ups cost more then.
    pub(crate) virtual_machine: bool,
    /// Programs and crates.
    pub(crate) versions: Vec<String>,
    /// How this binary was built.
    pub(crate) profile: &'static str,
}

impl Machine {
    /// Asks the kernel and the programs. What cannot be found is called unknown.
    pub(crate) fn describe() -> Self {
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        let cpuinfo = read("/proc/cpuinfo");
        let tools = [Tool::Nginx, Tool::Wrk]
            .iter()
            .filter_map(|tool| tool.version());
        let crates = PEER_CRATES
            .iter()
            .filter_map(|name| locked_version(LOCK_FILE, name));
        Self {
            cpu: value(&cpuinfo, "model name")
                .unwrap_or("unknown")
                .to_owned(),
            cores: available_parallelism().map_or(1, usize::from),
            memory_mib: memory_mib(&read("/proc/meminfo")),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            virtual_machine: value(&cpuinfo, "flags")
                .is_some_and(|flags| flags.split(' ').any(|flag| flag == "hypervisor")),
            versions: tools.chain(crates).collect(),
            profile: if cfg!(debug_assertions) {
                "debug"
            } else {
                "release"
            },
        }
    }

    /// One paragraph for the head of the report.
    pub(crate) fn words(&self) -> String {
        let sort = if self.virtual_machine {
            "virtual machine"
        } else {
            "bare metal"
        };
        format!(
            "{}, {} cores, {} MiB, {sort}, Linux {}\n{}; {} build",
            self.cpu,
            self.cores,
            self.memory_mib,
            self.kernel,
            self.versions.join(", "),
            self.profile
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

/// `NAME VERSION` of a package in the text of a Cargo.lock.
fn locked_version(lock_file: &str, name: &str) -> Option<String> {
    let heading = format!("name = \"{name}\"");
    let mut lines = lock_file.lines().skip_while(|line| *line != heading);
    let version = lines.nth(1)?.strip_prefix("version = ")?;
    Some(format!("{name} {}", version.trim_matches('"')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_peer_has_a_version() {
        for name in PEER_CRATES {
            let version = locked_version(LOCK_FILE, name).expect(name);
            assert!(
                version.starts_with(name) && version.contains('.'),
                "{version}"
            );
        }
        assert_eq!(locked_version(LOCK_FILE, "no-such-crate"), None);
    }

    #[test]
    fn a_longer_name_is_another_package() {
        let text =
            "name = \"hyper-util\"\nversion = \"0.1.0\"\nname = \"hyper\"\nversion = \"1.2.3\"";
        assert_eq!(
            locked_version(text, "hyper").as_deref(),
            Some("hyper 1.2.3")
        );
    }

    #[test]
    fn values_are_found_by_their_whole_name() {
        let text = "model\t\t: 17\nmodel name\t: Some CPU @ 2 GHz\n";
        assert_eq!(value(text, "model name"), Some("Some CPU @ 2 GHz"));
        assert_eq!(value(text, "model"), Some("17"));
        assert_eq!(value(text, "flags"), None);
        assert_eq!(memory_mib("MemTotal:       2048 kB\n"), 2);
    }
}
