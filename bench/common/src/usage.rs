//! CPU time and memory of processes and of the machine, from `/proc`.
//!
//! A server is a *process group* (see `process.rs`): all its processes and threads, nothing else.
//!
//! | reading | resolution | what it holds |
//! |---|---|---|
//! | [`group_ticks`] | 10 ms | all processes and threads, those that have ended as well |
//! | [`thread_times`] | 1 ns | the living threads of one process |
//!
//! Both hold what the kernel does in the server's name: the network stack's work, io_uring's
//! workers. Cost: one walk over `/proc` per reading, before and after a run, never inside it.

use std::collections::BTreeMap;
use std::io;
use std::time::{Duration, Instant};

use procfs::process::{Process, Stat, all_processes};
use procfs::{CurrentSI, KernelStats, net};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// `VmHWM`: the most that was ever resident.
    pub peak_kib: u64,
    /// `RssAnon`: resident and not backed by a file.
    pub anonymous_kib: u64,
}

/// CPU time of a group or of the machine at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticks(pub u64);

impl Ticks {
    /// The time since an earlier reading.
    pub fn since(self, earlier: Self) -> Duration {
        let ticks = self.0.saturating_sub(earlier.0);
        Duration::from_nanos(ticks * 1_000_000_000 / procfs::ticks_per_second().max(1))
    }

    /// A process and its threads, those that have ended and the children that it has waited for
    /// included.
    fn of(stat: &Stat) -> Self {
        Self(stat.utime + stat.stime + (stat.cutime + stat.cstime).unsigned_abs())
    }

    /// Time that all CPUs together were not idle, steal included.
    fn of_machine() -> io::Result<Self> {
        let all = KernelStats::current().map_err(io::Error::other)?.total;
        let more = [all.irq, all.softirq, all.steal].into_iter().flatten();
        Ok(Self(all.user + all.nice + all.system + more.sum::<u64>()))
    }
}

/// The clocks at the begin of an interval.
#[derive(Clone, Copy, Debug)]
pub struct Reading {
    wall: Instant,
    server: Option<(u32, Ticks)>,
    generator: Ticks,
    machine: Ticks,
}

/// What an interval cost.
#[derive(Clone, Copy, Debug)]
pub struct Used {
    /// How long it was.
    pub wall: Duration,
    /// CPU time of the server.
    pub server: Duration,
    /// CPU time of this process, and of the children that it has waited for meanwhile.
    pub generator: Duration,
    /// CPU time of the whole machine.
    pub machine: Duration,
}

impl Reading {
    /// Reads all clocks; `group` is the server's, if it is a process of its own.
    pub fn take(group: Option<u32>) -> io::Result<Self> {
        let own = Process::myself().and_then(|own| own.stat());
        let server = group.map(|id| Ok::<_, io::Error>((id, group_ticks(id)?)));
        Ok(Self {
            generator: Ticks::of(&own.map_err(io::Error::other)?),
            machine: Ticks::of_machine()?,
            server: server.transpose()?,
            wall: Instant::now(),
        })
    }

    /// What was used since.
    pub fn used(&self) -> io::Result<Used> {
        let now = Self::take(self.server.map(|(id, _)| id))?;
        let server = now.server.zip(self.server);
        Ok(Used {
            wall: now.wall - self.wall,
            server: server.map_or(Duration::ZERO, |(now, then)| now.1.since(then.1)),
            generator: now.generator.since(self.generator),
            machine: now.machine.since(self.machine),
        })
    }
}

impl Used {
    /// CPU time of the server per piece of work, in microseconds.
    pub fn server_micros_over(&self, pieces: u64) -> f64 {
        self.server.as_secs_f64() * 1e6 / pieces.max(1) as f64
    }

    /// The share of one core that the load generator used: near 100 it is the limit.
    pub fn generator_percent(&self) -> f64 {
        self.percent(self.generator)
    }

    /// The share of one core that all but server and generator used: noise.
    pub fn others_percent(&self) -> f64 {
        let ours = self.server + self.generator;
        self.percent(self.machine.saturating_sub(ours))
    }

    fn percent(&self, time: Duration) -> f64 {
        time.as_secs_f64() / self.wall.as_secs_f64().max(1e-9) * 100.0
    }
}

/// CPU time of every process of the group so far.
///
/// # Errors
/// `NotFound` if no process of the group lives: a server that died must not look like an idle one.
pub fn group_ticks(group: u32) -> io::Result<Ticks> {
    let members = members(group)?;
    Ok(Ticks(
        members.iter().map(|(_, stat)| Ticks::of(stat).0).sum(),
    ))
}

/// CPU time of all children of this process that have ended and been waited for, and of theirs.
///
/// # Errors
/// `/proc` cannot be read.
pub fn ended_children() -> io::Result<Ticks> {
    let stat = Process::myself().and_then(|this| this.stat());
    let stat = stat.map_err(io::Error::other)?;
    Ok(Ticks((stat.cutime + stat.cstime).unsigned_abs()))
}

/// Memory of every process of the group, added up. Pages shared between them count once for each.
///
/// # Errors
/// `NotFound` if no process of the group lives.
pub fn group_memory(group: u32) -> io::Result<Memory> {
    let mut sum = Memory::default();
    // A process that has ended since the walk holds no memory.
    let members = members(group)?;
    for status in members.iter().flat_map(|(process, _)| process.status()) {
        sum.peak_kib += status.vmhwm.unwrap_or(0);
        sum.anonymous_kib += status.rssanon.unwrap_or(0);
    }
    Ok(sum)
}

/// Open descriptors of every process of the group, added up.
///
/// # Errors
/// As [`group_memory`].
pub fn group_descriptors(group: u32) -> io::Result<usize> {
    let members = members(group)?;
    Ok(members.iter().flat_map(|(it, _)| it.fd_count()).sum())
}

/// Bytes that every process of the group had read from disks, added up.
///
/// # Errors
/// As [`group_memory`].
pub fn group_read_bytes(group: u32) -> io::Result<u64> {
    let members = members(group)?;
    let each = members.iter().flat_map(|(process, _)| process.io());
    Ok(each.map(|io| io.read_bytes).sum())
}

/// The processes of a group. One may end at any moment of the walk.
fn members(group: u32) -> io::Result<Vec<(Process, Stat)>> {
    let all = all_processes().map_err(io::Error::other)?;
    let all = all.filter_map(|process| process.and_then(|it| Ok((it.stat()?, it))).ok());
    let members = all.filter(|(stat, _)| stat.pgrp.unsigned_abs() == group);
    let members: Vec<_> = members.map(|(stat, process)| (process, stat)).collect();
    if members.is_empty() {
        let message = format!("no process of group {group} is alive");
        return Err(io::Error::new(io::ErrorKind::NotFound, message));
    }
    Ok(members)
}

/// Nanoseconds of CPU time by thread, from `/proc/PID/task/TID/schedstat`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ThreadTimes(BTreeMap<i32, u64>);

impl ThreadTimes {
    /// How many threads there were.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// The time since an earlier reading, without that of threads that have ended since: idle ones.
    pub fn since(&self, earlier: &Self) -> Duration {
        let used = self.0.iter().map(|(thread, time)| {
            let before = earlier.0.get(thread).copied().unwrap_or(0);
            time.saturating_sub(before)
        });
        Duration::from_nanos(used.sum())
    }
}

/// CPU time of every thread of a server that is one process: finer than clock ticks.
pub fn thread_times(pid: u32) -> io::Result<ThreadTimes> {
    let process = Process::new(i32::try_from(pid).unwrap_or(-1));
    let tasks = process.and_then(|process| process.tasks());
    let tasks = tasks.map_err(io::Error::other)?.flatten();
    // A thread may end between the listing and this reading.
    let times = tasks.filter_map(|task| Some((task.tid, task.schedstat().ok()?.sum_exec_runtime)));
    Ok(ThreadTimes(times.collect()))
}

/// Connections the machine has accepted.
pub fn accepted() -> io::Result<u64> {
    Ok(net::snmp().map_err(io::Error::other)?.tcp_passive_opens)
}

/// Number of sockets in TIME_WAIT. Each of them slows down new connections a little.
pub fn time_wait() -> io::Result<u64> {
    let text = std::fs::read_to_string("/proc/net/sockstat")?;
    Ok(sockstat(&text, "TCP:", "tw").unwrap_or(0))
}

/// One line per protocol, of names and values in turn.
fn sockstat(text: &str, protocol: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(protocol))?;
    let mut words = line.split_ascii_whitespace();
    words.find(|word| *word == name)?;
    words.next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockstat_values_are_found_by_their_name() {
        let text = "sockets: used 50\nTCP: inuse 3 orphan 0 tw 42 alloc 4\nUDP: inuse 1 tw 9\n";
        assert_eq!(sockstat(text, "TCP:", "tw"), Some(42));
        assert_eq!(sockstat(text, "TCP:", "absent"), None);
        assert!(time_wait().is_ok());
    }

    #[test]
    fn this_process_can_read_about_itself() {
        let own = Process::myself()
            .and_then(|own| own.stat())
            .expect("own stat");
        let group = own.pgrp.unsigned_abs();
        let members = members(group).expect("own group");
        assert!(members.iter().any(|member| member.1.pid == own.pid));
        assert!(group_memory(group).expect("own memory").peak_kib > 0);
        assert!(group_descriptors(group).expect("own descriptors") > 2);
        assert!(Ticks::of_machine().expect("/proc/stat") > Ticks::default());
        let times = thread_times(std::process::id()).expect("own threads");
        assert!(times.since(&ThreadTimes::default()) > Duration::ZERO);
        assert!(accepted().is_ok());
    }

    #[test]
    fn a_group_without_processes_is_an_error_and_not_zero() {
        let absent = i32::MAX.unsigned_abs();
        let error = group_ticks(absent).expect_err("no such group");
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn what_neither_server_nor_generator_used_is_others() {
        let used = Used {
            wall: Duration::from_secs(2),
            server: Duration::from_millis(1000),
            generator: Duration::from_millis(1500),
            machine: Duration::from_millis(2700),
        };
        let near = |value: f64, expected: f64| (value - expected).abs() < 1e-9;
        assert!(near(used.generator_percent(), 75.0) && near(used.others_percent(), 10.0));
        assert!(near(used.server_micros_over(250_000), 4.0));
        let own = Reading::take(None).expect("/proc");
        assert_eq!(own.used().expect("/proc").server, Duration::ZERO);
    }

    #[test]
    fn ticks_become_time() {
        let one_second = procfs::ticks_per_second();
        assert_eq!(
            Ticks(one_second + 5).since(Ticks(5)),
            Duration::from_secs(1)
        );
        assert_eq!(Ticks(1).since(Ticks(5)), Duration::ZERO);
    }
}
