//! Why the kernel refused something, in words, and what helps against it.
//!
//! The same error number means different things at different steps: ENOMEM from setting up a ring
//! is the locked-memory limit.

use std::fmt;

use flatpath_sys::process::{Limit, limit};
use rustix::io::Errno;

/// Why something is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
#[non_exhaustive]
pub enum Cause {
    /// The kernel was built without it, or a filter pretends so (ENOSYS).
    Absent,
    /// A setting, a container's filter or a security module forbids it (EPERM, EACCES).
    Forbidden,
    /// The kernel has io_uring, but not this feature (EINVAL).
    Unsupported,
    /// The machine or sandbox offers the call but not what it does (EOPNOTSUPP).
    Inoperative,
    /// Memory that may be locked is used up (ENOMEM): a resource, not a missing feature.
    Memory,
    /// Descriptors are used up (EMFILE, ENFILE): a resource, not a missing feature.
    Descriptors,
    /// The configuration asks for what no kernel gives.
    Configuration,
    /// This program was built without it.
    NotBuilt,
    /// Something else; the error number tells.
    Other,
}

impl Cause {
    fn of(errno: Errno) -> Cause {
        match errno {
            Errno::NOSYS => Cause::Absent,
            Errno::PERM | Errno::ACCESS => Cause::Forbidden,
            Errno::INVAL | Errno::BADF => Cause::Unsupported,
            Errno::OPNOTSUPP => Cause::Inoperative,
            Errno::NOMEM | Errno::AGAIN => Cause::Memory,
            Errno::MFILE | Errno::NFILE => Cause::Descriptors,
            _ => Cause::Other,
        }
    }

    fn meaning(self) -> &'static str {
        match self {
            Cause::Absent => "the kernel does not have it, or a filter hides it",
            Cause::Forbidden => "it is forbidden here",
            Cause::Unsupported => "this kernel does not have the feature",
            Cause::Inoperative => "this machine or sandbox offers the call but not what it does",
            Cause::Memory => "the memory that may be locked is used up",
            Cause::Descriptors => "the descriptor limit is reached",
            Cause::Configuration => "the configuration is not possible",
            Cause::NotBuilt => "this program was built without it",
            Cause::Other => "the kernel gave an unusual reason",
        }
    }

    /// The remedy. Looks at the machine if the number alone is not enough.
    fn cure(self) -> String {
        if let Some(cure) = Surroundings::look().cure(self) {
            return cure.to_owned();
        }
        let limit = limit(match self {
            Cause::Descriptors => Limit::Descriptors,
            _ => Limit::LockedMemory,
        });
        let words = match self {
            Cause::Absent => "run a kernel built with CONFIG_IO_URING, or use epoll",
            Cause::Forbidden => {
                "a security module of the kernel (SELinux, AppArmor) forbids io_uring: allow it \
                 there, or use epoll"
            }
            Cause::Unsupported => "run a newer Linux, or use epoll",
            Cause::Inoperative => "ask the operator of the sandbox, or use epoll",
            Cause::Memory => {
                "raise the locked-memory limit (ulimit -l, LimitMEMLOCK=), or use smaller rings \
                 and fewer receive buffers"
            }
            Cause::Descriptors => "raise the descriptor limit (ulimit -n, LimitNOFILE=)",
            Cause::Configuration => "correct the configuration",
            Cause::NotBuilt => "build it with the feature of that name",
            Cause::Other => "use epoll, and report the error number",
        };
        match (self.is_resource(), limit) {
            (true, Some(limit)) => format!("{words}; the limit is {limit} now"),
            _ => words.to_owned(),
        }
    }

    /// True when the feature is there and something ran out: worth a warning, not a mere note.
    pub fn is_resource(self) -> bool {
        matches!(self, Cause::Memory | Cause::Descriptors)
    }
}

/// The causes that refuse system calls, as far as this process can see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Surroundings {
    /// A kernel in user space answers instead of Linux.
    gvisor: bool,
    /// `kernel.io_uring_disabled`.
    switch: Option<u8>,
    /// A seccomp filter decides about this process's calls.
    filter: bool,
}

impl Surroundings {
    fn look() -> Surroundings {
        let names = rustix::system::uname();
        let read = |path| std::fs::read_to_string(path).unwrap_or_default();
        Surroundings {
            // It always says this (pkg/sentry/syscalls/linux/linux64.go of gVisor).
            gvisor: names.release().to_bytes() == b"4.4.0"
                && names.version().to_bytes() == b"#1 SMP Sun Jan 10 15:06:54 PST 2016",
            switch: read("/proc/sys/kernel/io_uring_disabled")
                .trim()
                .parse()
                .ok(),
            filter: is_filtered(&read("/proc/self/status")),
        }
    }

    /// The remedy against `cause` here, if it is one of these.
    fn cure(self, cause: Cause) -> Option<&'static str> {
        let refused = matches!(cause, Cause::Absent | Cause::Forbidden);
        match self.switch {
            _ if self.gvisor && (refused || cause == Cause::Inoperative) => {
                Some("this is gVisor: start its runsc with --iouring, or use epoll")
            }
            Some(1) if cause == Cause::Forbidden => Some(
                "set sysctl kernel.io_uring_disabled=0, or run with the group that sysctl \
                 kernel.io_uring_group names",
            ),
            Some(2) if cause == Cause::Forbidden => Some("set sysctl kernel.io_uring_disabled=0"),
            _ if self.filter && refused => Some(
                "a seccomp filter is at work: allow io_uring_setup, io_uring_enter and \
                 io_uring_register in the profile of the container or the service",
            ),
            _ => None,
        }
    }
}

/// Whether `/proc/PID/status` tells of a filter (proc_pid_status(5): mode 2).
fn is_filtered(status: &str) -> bool {
    let mut modes = status
        .lines()
        .filter_map(|line| line.strip_prefix("Seccomp:"));
    modes.next().is_some_and(|mode| mode.trim() == "2")
}

/// A step that failed, why, and what helps.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Refusal {
    /// The step that was tried.
    pub step: &'static str,
    /// The kernel's error number; zero when it was no system call that failed.
    pub errno: i32,
    /// The meaning of the number at this step.
    pub cause: Cause,
    /// The remedy.
    pub cure: String,
}

impl Refusal {
    /// The meaning of the kernel's answer to `step`.
    pub(crate) fn of(step: &'static str, errno: Errno) -> Refusal {
        let cause = Cause::of(errno);
        Refusal {
            step,
            errno: errno.raw_os_error(),
            cause,
            cure: cause.cure(),
        }
    }

    /// From an error of the standard library.
    pub(crate) fn of_error(step: &'static str, error: &std::io::Error) -> Refusal {
        let number = error.raw_os_error().unwrap_or(libc::EIO);
        Refusal::of(step, Errno::from_raw_os_error(number))
    }

    /// The same of a feature that this version of Linux brought, on this kernel. What an older one
    /// answers to a feature that it does not know depends on the feature: EINVAL, ECANCELED for the
    /// second of two linked operations, another result than the right one.
    pub(crate) fn of_feature(self, since: &str, running: Option<(u32, u32)>) -> Refusal {
        let is_told = self.cause == Cause::Unsupported
            || matches!(self.cause, Cause::Other | Cause::Inoperative);
        let is_older = match (running, version(since)) {
            (Some(running), Some(since)) => running < since,
            _ => false,
        };
        let cure = match () {
            () if !is_told || Surroundings::look().gvisor => return self,
            () if is_older => format!("run Linux {since} or newer"),
            () if self.cause == Cause::Unsupported => {
                format!("Linux has it from {since}: this kernel was changed, or a sandbox answers")
            }
            () => return self,
        };
        let cause = Cause::Unsupported;
        Refusal {
            cause,
            cure,
            ..self
        }
    }

    /// A configuration that cannot be.
    pub(crate) fn configuration(step: &'static str, cure: String) -> Refusal {
        Refusal {
            step,
            errno: 0,
            cause: Cause::Configuration,
            cure,
        }
    }
}

#[cfg(any(test, not(all(feature = "epoll", feature = "uring"))))]
impl Refusal {
    /// A driver that this program was built without.
    pub(crate) fn not_built(driver: &'static str) -> Refusal {
        Refusal {
            step: driver,
            errno: 0,
            cause: Cause::NotBuilt,
            cure: Cause::NotBuilt.cure(),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "{} was refused: {}",
            self.step,
            self.cause.meaning()
        )?;
        if self.errno != 0 {
            write!(
                formatter,
                " ({})",
                std::io::Error::from_raw_os_error(self.errno)
            )?;
        }
        write!(formatter, "; {}", self.cure)
    }
}

impl std::error::Error for Refusal {}

/// The first two numbers of a text such as `6.12` or `5.10.0-28-amd64`.
pub(crate) fn version(text: &str) -> Option<(u32, u32)> {
    let mut numbers = text.split(['.', '-']).map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resources_are_told_from_missing_features() {
        for errno in [Errno::NOMEM, Errno::MFILE, Errno::NFILE] {
            assert!(
                Refusal::of("a ring", errno).cause.is_resource(),
                "{errno:?}"
            );
        }
        for errno in [Errno::NOSYS, Errno::PERM, Errno::OPNOTSUPP, Errno::INVAL] {
            assert!(
                !Refusal::of("a ring", errno).cause.is_resource(),
                "{errno:?}"
            );
        }
    }

    #[test]
    fn the_cure_is_for_what_refuses_here() {
        let none = Surroundings {
            gvisor: false,
            switch: Some(0),
            filter: false,
        };
        let filter = Surroundings {
            filter: true,
            ..none
        };
        let switch = Surroundings {
            switch: Some(2),
            ..filter
        };
        let gvisor = Surroundings {
            gvisor: true,
            ..filter
        };
        let cases = [
            (filter, Cause::Absent, "seccomp"),
            (filter, Cause::Forbidden, "seccomp"),
            (switch, Cause::Forbidden, "io_uring_disabled=0"),
            // The switch answers EPERM: another error is another's.
            (switch, Cause::Absent, "seccomp"),
            (gvisor, Cause::Absent, "gVisor"),
            (gvisor, Cause::Inoperative, "gVisor"),
        ];
        for (surroundings, cause, word) in cases {
            let cure = surroundings.cure(cause).expect("one of them refuses");
            assert!(cure.contains(word), "{surroundings:?} {cause:?}: {cure}");
        }
        for cause in [Cause::Absent, Cause::Forbidden, Cause::Memory] {
            assert_eq!(none.cure(cause), None);
        }
        assert_eq!(gvisor.cure(Cause::Memory), None);
        assert!(is_filtered("Name:\tx\nSeccomp:\t2\n"));
        assert!(!is_filtered("Name:\tx\nSeccomp:\t0\nSeccomp_filters:\t0\n"));
    }

    #[test]
    fn the_sentence_about_a_feature_is_made_from_the_version_that_brought_it() {
        let refused = |errno, since, running| {
            let refusal = Refusal::of("a feature", errno).of_feature(since, running);
            (refusal.cause, refusal.cure)
        };
        let newer = |since: &str| {
            let cure = format!("run Linux {since} or newer");
            (Cause::Unsupported, cure)
        };
        // On 6.1 features of 6.12 and 6.15; on 5.10 a chain that was broken, and a wrong result.
        let (old, older) = (Some((6, 1)), Some((5, 10)));
        assert_eq!(refused(Errno::INVAL, "6.12", old), newer("6.12"));
        assert_eq!(refused(Errno::INVAL, "6.15", old), newer("6.15"));
        assert_eq!(refused(Errno::CANCELED, "5.17", older), newer("5.17"));
        assert_eq!(refused(Errno::OPNOTSUPP, "5.11", older), newer("5.11"));
        // Where the version has it, something else is wrong.
        let (cause, cure) = refused(Errno::INVAL, "6.1", old);
        assert!(
            cause == Cause::Unsupported && cure.contains("from 6.1"),
            "{cure}"
        );
        assert_eq!(refused(Errno::CANCELED, "6.0", old).0, Cause::Other);
        assert_eq!(refused(Errno::NOMEM, "6.12", old).0, Cause::Memory);
        assert_eq!(refused(Errno::PERM, "6.12", old).0, Cause::Forbidden);
    }

    #[test]
    fn the_words_name_step_cause_number_and_cure() {
        let words = Refusal::of("setting up a ring", Errno::PERM).to_string();
        for part in ["setting up a ring", "forbidden", "os error 1", "io_uring"] {
            assert!(words.contains(part), "{words:?} lacks {part:?}");
        }
    }
}
