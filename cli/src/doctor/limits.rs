//! Limits of this process, and settings of this machine.

use std::fmt;
use std::fs;

use rustix::process::{Resource, getrlimit};

/// Limits of this process and settings of this machine; absent where they cannot be read.
#[derive(Debug)]
pub(super) struct MachineLimits {
    pub(super) descriptors: Bounds,
    pub(super) locked_memory_bytes: Bounds,
    /// `kernel.io_uring_disabled`: 0 allows every process, 1 a group, 2 none.
    pub(super) io_uring_disabled: Option<u64>,
    /// `kernel.io_uring_group`: the group that may nevertheless, when it is 1.
    pub(super) io_uring_group: Option<i64>,
    /// `net.core.somaxconn`: connections that may wait to be accepted.
    pub(super) backlog_max: Option<u64>,
    /// `net.ipv4.ip_local_port_range`: for connections that this machine opens.
    pub(super) local_ports: Option<(u64, u64)>,
}

/// A resource limit; absent means there is none.
#[derive(Debug)]
pub(super) struct Bounds {
    pub(super) now: Option<u64>,
    /// The value to which the process may raise it itself.
    pub(super) at_most: Option<u64>,
}

impl MachineLimits {
    pub(super) fn read() -> Self {
        let number = |name: &str| numbers(name)?.first().copied();
        Self {
            descriptors: Bounds::of(Resource::Nofile),
            locked_memory_bytes: Bounds::of(Resource::Memlock),
            io_uring_disabled: number("kernel/io_uring_disabled").and_then(|n| n.try_into().ok()),
            io_uring_group: number("kernel/io_uring_group"),
            backlog_max: number("net/core/somaxconn").and_then(|n| n.try_into().ok()),
            local_ports: numbers("net/ipv4/ip_local_port_range").and_then(|range| {
                Some((
                    u64::try_from(*range.first()?).ok()?,
                    u64::try_from(*range.get(1)?).ok()?,
                ))
            }),
        }
    }
}

impl Bounds {
    fn of(resource: Resource) -> Self {
        let limit = getrlimit(resource);
        Self {
            now: limit.current,
            at_most: limit.maximum,
        }
    }
}

/// The numbers in a file below `/proc/sys`.
fn numbers(name: &str) -> Option<Vec<i64>> {
    let text = fs::read_to_string(format!("/proc/sys/{name}")).ok()?;
    text.split_whitespace()
        .map(|word| word.parse().ok())
        .collect()
}

impl Bounds {
    /// How to have more.
    pub(super) fn cure(&self) -> String {
        match (self.now, self.at_most) {
            (Some(now), Some(most)) if most <= now => {
                "raise LimitNOFILE= or the limit of the login".into()
            }
            (_, Some(most)) => format!("run ulimit -n {most} before, or set LimitNOFILE="),
            (_, None) => "run ulimit -n 1048576 before, or set LimitNOFILE=".into(),
        }
    }
}

impl fmt::Display for Bounds {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = |bound: Option<u64>| bound.map_or("unlimited".into(), |n| n.to_string());
        write!(
            formatter,
            "{} (may be raised to {})",
            words(self.now),
            words(self.at_most)
        )
    }
}
