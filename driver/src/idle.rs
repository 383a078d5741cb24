//! The behaviour of idle processors of a virtual machine, which decides the cost of waking a
//! thread.
//!
//! A processor that has halted is left to the hypervisor. To wake it takes an interrupt from
//! another processor, which on many hosts is a call of the hypervisor on both sides: some ten
//! microseconds for the thread that wakes, and as much again until the other one runs. A
//! processor that polls for a while before it halts sees the wake-up in its memory instead. The
//! kernel polls with the `haltpoll` driver and governor of cpuidle, for up to
//! `guest_halt_poll_ns` (drivers/cpuidle/governors/haltpoll.c; 200,000 unless set).
//!
//! Only virtual machines are of interest: elsewhere a halt is an instruction. The flag
//! `hypervisor` of x86 says which machine is one; other architectures count as none.
//!
//! Cost: four files are read. Not for a hot path.

use std::fmt::{self, Display};
use std::fs;

/// The file with the longest poll of an idle processor, in ns: 0 halts at once.
pub const HALT_POLL: &str = "/sys/module/haltpoll/parameters/guest_halt_poll_ns";
/// The name of cpuidle's driver and governor that poll.
const POLLING: &str = "haltpoll";

/// How idle processors of this virtual machine are set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdleSetting {
    /// The driver of cpuidle: `haltpoll`, `intel_idle`, or `none`.
    pub driver: String,
    /// The governor of cpuidle: `haltpoll`, `menu`, `teo`; `none` where cpuidle is absent.
    pub governor: String,
    /// `guest_halt_poll_ns`: how long an idle processor polls at most before it halts, in ns.
    /// Absent where the kernel has no such governor.
    pub halt_poll_ns: Option<u64>,
}

impl IdleSetting {
    /// Reads `/sys` and `/proc/cpuinfo`. `None`: this is no virtual machine, as far as is known.
    pub fn of_this_machine() -> Option<Self> {
        let processors = fs::read_to_string("/proc/cpuinfo").ok()?;
        Self::read(&processors, "")
    }

    /// From the text of `/proc/cpuinfo`, and the files below `root`.
    fn read(processors: &str, root: &str) -> Option<Self> {
        let mut flags = processors.lines().filter(|line| line.starts_with("flags"));
        let is_guest = flags.next()?.split(' ').any(|flag| flag == "hypervisor");
        let text = |name: &str| {
            let text = fs::read_to_string(format!("{root}{name}")).ok()?;
            Some(text.trim().to_owned())
        };
        let named = |name: &str| {
            let text = text(&format!("/sys/devices/system/cpu/cpuidle/{name}"));
            text.unwrap_or_else(|| "none".into())
        };
        is_guest.then(|| Self {
            driver: named("current_driver"),
            governor: named("current_governor_ro"),
            halt_poll_ns: text(HALT_POLL).and_then(|text| text.parse().ok()),
        })
    }

    /// Whether an idle processor halts without polling first: each wake-up then goes through the
    /// hypervisor. False for drivers that know states of the hardware, such as `intel_idle`.
    pub fn halts_at_once(&self) -> bool {
        match self.driver.as_str() {
            POLLING => !self.polls(),
            driver => driver == "none",
        }
    }

    /// The command with which idle processors poll for up to `halt_poll_ns`, and what keeps it.
    pub fn cure(&self, halt_poll_ns: u64) -> String {
        if self.driver != POLLING {
            return "load the module cpuidle_haltpoll, with force=1 (modprobe cpuidle_haltpoll \
                    force=1, and `options cpuidle_haltpoll force=1` in /etc/modprobe.d)"
                .into();
        }
        if self.governor != POLLING {
            return format!("write {POLLING} to /sys/devices/system/cpu/cpuidle/current_governor");
        }
        format!(
            "write {halt_poll_ns} to {HALT_POLL}, and boot with \
             haltpoll.guest_halt_poll_ns={halt_poll_ns}"
        )
    }

    fn polls(&self) -> bool {
        self.governor == POLLING && self.halt_poll_ns.is_some_and(|limit| limit > 0)
    }
}

impl Display for IdleSetting {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "cpuidle {}/{}", self.driver, self.governor)?;
        match self.halt_poll_ns {
            Some(limit) => write!(formatter, ", guest_halt_poll_ns {limit}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GUEST: &str = "processor\t: 0\nflags\t\t: fpu vme hypervisor lahf_lm\n";

    fn setting(driver: &str, governor: &str, halt_poll_ns: Option<u64>) -> IdleSetting {
        IdleSetting {
            driver: driver.into(),
            governor: governor.into(),
            halt_poll_ns,
        }
    }

    #[test]
    fn a_guest_is_read_and_other_machines_are_not() {
        let directory = tempfile::tempdir().expect("a directory");
        let root = directory.path().to_str().expect("a name");
        let write = |name: &str, text: &str| {
            let path = std::path::PathBuf::from(format!("{root}{name}"));
            fs::create_dir_all(path.parent().expect("a parent")).expect("made");
            fs::write(path, text).expect("written");
        };
        let read = || IdleSetting::read(GUEST, root).expect("a guest");
        assert_eq!(read(), setting("none", "none", None));
        write(
            "/sys/devices/system/cpu/cpuidle/current_driver",
            "haltpoll\n",
        );
        write(
            "/sys/devices/system/cpu/cpuidle/current_governor_ro",
            "menu\n",
        );
        write(HALT_POLL, "200000\n");
        let expected = setting("haltpoll", "menu", Some(200_000));
        assert_eq!(read(), expected);
        let words = expected.to_string();
        assert_eq!(words, "cpuidle haltpoll/menu, guest_halt_poll_ns 200000");
        for other in ["flags\t\t: fpu vme lahf_lm\n", "Features\t: fp asimd\n", ""] {
            assert_eq!(IdleSetting::read(other, root), None, "{other}");
        }
    }

    #[test]
    fn who_halts_at_once_is_told_what_to_change() {
        for (at_once, part) in [
            (setting("none", "menu", Some(200_000)), "cpuidle_haltpoll"),
            (setting("haltpoll", "menu", Some(200_000)), "governor"),
            (setting("haltpoll", "haltpoll", Some(0)), "=1000"),
            (setting("haltpoll", "haltpoll", None), "=1000"),
        ] {
            assert!(at_once.halts_at_once(), "{at_once}");
            assert!(at_once.cure(1000).contains(part), "{at_once}");
        }
        for polls in [
            setting("haltpoll", "haltpoll", Some(50_000)),
            setting("intel_idle", "menu", Some(0)),
        ] {
            assert!(!polls.halts_at_once(), "{polls}");
        }
    }
}
