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
use std::fs;
use std::io;
use std::time::{Duration, Instant};

/// One process, from `/proc/PID/stat`. The kernel includes its threads, the ended ones too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ProcessStat {
    /// Its number.
    pid: u32,
    /// The process group it belongs to.
    group: u32,
    /// utime + stime, in clock ticks.
    own_ticks: u64,
    /// cutime + cstime: children that ended and were waited for, in clock ticks.
    reaped_ticks: u64,
}

/// Memory of one process, from `/proc/PID/status`, in KiB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessMemory {
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
        Duration::from_nanos(self.0.saturating_sub(earlier.0) * nanos_per_tick())
    }
}

fn nanos_per_tick() -> u64 {
    1_000_000_000 / rustix::param::clock_ticks_per_second().max(1)
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
    ///
    /// # Errors
    /// If the server is gone.
    pub fn take(group: Option<u32>) -> io::Result<Self> {
        let own = own_stat()?;
        let server = group.map(|id| Ok::<_, io::Error>((id, group_ticks(id)?)));
        Ok(Self {
            generator: Ticks(own.own_ticks + own.reaped_ticks),
            machine: machine_ticks()?,
            server: server.transpose()?,
            wall: Instant::now(),
        })
    }

    /// What was used since.
    ///
    /// # Errors
    /// If the server is gone.
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
    let members = group_members(group)?;
    Ok(Ticks(
        members
            .iter()
            .map(|stat| stat.own_ticks + stat.reaped_ticks)
            .sum(),
    ))
}

/// Nanoseconds of CPU time by thread, from `/proc/PID/task/TID/schedstat`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ThreadTimes(BTreeMap<String, u64>);

impl ThreadTimes {
    /// Only those of threads that `threads` has.
    #[must_use]
    pub fn only(mut self, threads: &Self) -> Self {
        self.0.retain(|thread, _| threads.0.contains_key(thread));
        self
    }

    /// Only those of threads that `threads` does not have.
    #[must_use]
    pub fn without(mut self, threads: &Self) -> Self {
        self.0.retain(|thread, _| !threads.0.contains_key(thread));
        self
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
///
/// # Errors
/// If the process is gone.
pub fn thread_times(pid: u32) -> io::Result<ThreadTimes> {
    let mut times = ThreadTimes::default();
    for entry in fs::read_dir(format!("/proc/{pid}/task"))? {
        let entry = entry?;
        // A thread may end between the listing and this reading.
        let Ok(text) = fs::read_to_string(entry.path().join("schedstat")) else {
            continue;
        };
        let time = text.split(' ').next().and_then(|time| time.parse().ok());
        let thread = entry.file_name().to_string_lossy().into_owned();
        times.0.extend(time.map(|time| (thread, time)));
    }
    Ok(times)
}

/// Memory of every process of the group, added up. Pages shared between them count once for each.
///
/// # Errors
/// `NotFound` if no process of the group lives.
pub fn group_memory(group: u32) -> io::Result<ProcessMemory> {
    let mut sum = ProcessMemory::default();
    for member in group_members(group)? {
        // A process may end between the walk and this reading: it then holds no memory.
        let Ok(text) = fs::read_to_string(format!("/proc/{}/status", member.pid)) else {
            continue;
        };
        let memory = parse_status(&text);
        sum.peak_kib += memory.peak_kib;
        sum.anonymous_kib += memory.anonymous_kib;
    }
    Ok(sum)
}

fn group_members(group: u32) -> io::Result<Vec<ProcessStat>> {
    let mut members = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let entry = entry?;
        if !entry
            .file_name()
            .to_string_lossy()
            .bytes()
            .all(|byte| byte.is_ascii_digit())
        {
            continue;
        }
        let Ok(text) = fs::read_to_string(entry.path().join("stat")) else {
            continue;
        };
        members.extend(parse_stat(&text).filter(|stat| stat.group == group));
    }
    if members.is_empty() {
        let message = format!("no process of group {group} is alive");
        return Err(io::Error::new(io::ErrorKind::NotFound, message));
    }
    Ok(members)
}

fn own_stat() -> io::Result<ProcessStat> {
    let text = fs::read_to_string("/proc/self/stat")?;
    parse_stat(&text).ok_or_else(|| io::Error::other("/proc/self/stat has an unknown form"))
}

/// Time that all CPUs together were not idle, steal included.
fn machine_ticks() -> io::Result<Ticks> {
    let text = fs::read_to_string("/proc/stat")?;
    parse_machine(&text).ok_or_else(|| io::Error::other("/proc/stat has an unknown form"))
}

/// Connections the kernel dropped because a listen queue was full (`TcpExt: ListenOverflows`).
///
/// # Errors
/// If `/proc/net/netstat` cannot be read.
pub fn listen_overflows() -> io::Result<u64> {
    let text = fs::read_to_string("/proc/net/netstat")?;
    Ok(parse_netstat(&text, "TcpExt:", "ListenOverflows").unwrap_or(0))
}

/// Connections the machine has accepted (`Tcp: PassiveOpens`).
///
/// # Errors
/// If `/proc/net/snmp` cannot be read.
pub fn accepted() -> io::Result<u64> {
    let text = fs::read_to_string("/proc/net/snmp")?;
    Ok(parse_netstat(&text, "Tcp:", "PassiveOpens").unwrap_or(0))
}

/// The second field is the name in brackets and may itself hold spaces and brackets.
fn parse_stat(text: &str) -> Option<ProcessStat> {
    let pid = text.split(' ').next()?.parse().ok()?;
    let after_name = text.get(text.rfind(')')? + 1..)?;
    let fields: Vec<&str> = after_name.split_ascii_whitespace().collect();
    // proc(5) numbers from one and `state` is field 3, which is index 0 here.
    let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
    Some(ProcessStat {
        pid,
        group: u32::try_from(field(5)?).ok()?,
        own_ticks: field(14)? + field(15)?,
        reaped_ticks: field(16)? + field(17)?,
    })
}

fn parse_status(text: &str) -> ProcessMemory {
    let value = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim_end_matches("kB").trim().parse::<u64>().ok()
    };
    ProcessMemory {
        peak_kib: value("VmHWM:").unwrap_or(0),
        anonymous_kib: value("RssAnon:").unwrap_or(0),
    }
}

/// `cpu user nice system idle iowait irq softirq steal guest guest_nice`; guest is part of user.
fn parse_machine(text: &str) -> Option<Ticks> {
    let line = text.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let fields: Vec<u64> = line
        .split_ascii_whitespace()
        .map_while(|n| n.parse().ok())
        .collect();
    let [user, nice, system, _idle, _iowait, irq, softirq, steal, ..] = fields[..] else {
        return None;
    };
    Some(Ticks(user + nice + system + irq + softirq + steal))
}

/// Two lines per protocol: the names, then the values.
fn parse_netstat(text: &str, protocol: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix(protocol));
    let position = lines
        .next()?
        .split_ascii_whitespace()
        .position(|field| field == name)?;
    lines
        .next()?
        .split_ascii_whitespace()
        .nth(position)?
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_spaces_and_brackets_does_not_shift_the_fields() {
        let line = "4711 (a) b (c) S 1 4700 4700 0 -1 4194560 9 8 7 6 100 23 5 2 20 0 3 0 77 1 2";
        let stat = parse_stat(line).expect("a stat line");
        let expected = ProcessStat {
            pid: 4711,
            group: 4700,
            own_ticks: 123,
            reaped_ticks: 7,
        };
        assert_eq!(stat, expected);
    }

    #[test]
    fn a_truncated_stat_line_is_refused() {
        assert_eq!(parse_stat("4711 (name) S 1 4700"), None);
        assert_eq!(parse_stat(""), None);
    }

    #[test]
    fn memory_is_read_from_its_named_lines() {
        let text =
            "Name:\tnginx\nVmHWM:\t    5120 kB\nVmRSS:\t    4096 kB\nRssAnon:\t    1024 kB\n";
        assert_eq!(
            parse_status(text),
            ProcessMemory {
                peak_kib: 5120,
                anonymous_kib: 1024
            }
        );
    }

    #[test]
    fn a_process_without_memory_lines_holds_none() {
        assert_eq!(parse_status("Name:\tkthreadd\n"), ProcessMemory::default());
    }

    #[test]
    fn idle_and_iowait_are_not_busy_time() {
        let text = "cpu  10 1 20 5000 300 2 3 4 9 0\ncpu0 1 1 1 1 1 1 1 1 0 0\n";
        assert_eq!(parse_machine(text), Some(Ticks(40)));
        assert_eq!(parse_machine("cpu  10 1 20\n"), None);
    }

    #[test]
    fn netstat_values_are_found_by_their_name() {
        let text = "TcpExt: SyncookiesSent ListenOverflows ListenDrops\nTcpExt: 1 22 333\n\
                    IpExt: ListenOverflows\nIpExt: 9\n";
        assert_eq!(parse_netstat(text, "TcpExt:", "ListenOverflows"), Some(22));
        assert_eq!(parse_netstat(text, "TcpExt:", "Absent"), None);
    }

    #[test]
    fn this_process_can_read_about_itself() {
        let own = own_stat().expect("own stat");
        assert_eq!(own.pid, std::process::id());
        let members = group_members(own.group).expect("own group");
        assert!(members.iter().any(|member| member.pid == own.pid));
        assert!(group_memory(own.group).expect("own memory").peak_kib > 0);
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
        let one_second = rustix::param::clock_ticks_per_second();
        assert_eq!(
            Ticks(one_second + 5).since(Ticks(5)),
            Duration::from_secs(1)
        );
        assert_eq!(Ticks(1).since(Ticks(5)), Duration::ZERO);
    }
}
