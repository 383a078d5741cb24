//! A process seen from outside: memory, processor time, descriptors, threads, limits, signals.

use std::path::PathBuf;
use std::time::Duration;

use rustix::process::{Pid, Resource, Rlimit, Signal};

/// Another process by its number.
#[derive(Clone, Copy, Debug)]
pub struct Process(u32);

impl Process {
    /// The process with this number.
    #[must_use]
    pub fn new(number: u32) -> Self {
        Self(number)
    }

    /// This process.
    #[must_use]
    pub fn own() -> Self {
        Self(std::process::id())
    }

    /// Memory that only this process has (its heap and stacks, not files or shared pages), in
    /// bytes.
    ///
    /// # Panics
    /// The process is gone.
    #[must_use]
    pub fn memory_bytes(self) -> u64 {
        self.status_kibibytes("RssAnon:") * 1024
    }

    /// The most memory that it ever had at once, the program's own pages included, in bytes.
    ///
    /// # Panics
    /// The process is gone.
    #[must_use]
    pub fn peak_bytes(self) -> u64 {
        self.status_kibibytes("VmHWM:") * 1024
    }

    /// The thread numbers of a server's workers, in order.
    ///
    /// # Panics
    /// The process is gone.
    #[must_use]
    pub fn workers(self) -> Vec<u32> {
        self.threads("flatpath-worker")
    }

    /// The numbers of the threads of that name, in order.
    ///
    /// # Panics
    /// The process is gone.
    #[must_use]
    pub fn threads(self, wanted: &str) -> Vec<u32> {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.0));
        let mut threads: Vec<u32> = tasks
            .expect("the process is there")
            .flatten()
            .filter(|task| {
                // One that ends meanwhile has no name any more.
                let name = std::fs::read_to_string(task.path().join("comm"));
                name.is_ok_and(|name| name.trim_end() == wanted)
            })
            .filter_map(|task| task.file_name().to_str()?.parse().ok())
            .collect();
        threads.sort_unstable();
        threads
    }

    /// What its descriptors refer to, by the names that the kernel has for it.
    ///
    /// # Panics
    /// The process is gone.
    #[must_use]
    pub fn open_files(self) -> Vec<PathBuf> {
        let directory = std::fs::read_dir(format!("/proc/{}/fd", self.0));
        directory
            .expect("the process is there")
            .filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok())
            .collect()
    }

    /// Open descriptors.
    ///
    /// # Panics
    /// The process is gone.
    #[must_use]
    pub fn descriptors(self) -> usize {
        let directory = std::fs::read_dir(format!("/proc/{}/fd", self.0));
        directory.expect("the process is there").count()
    }

    /// Processor time used so far, by all threads.
    ///
    /// # Panics
    /// The process is gone.
    #[must_use]
    pub fn processor_time(self) -> Duration {
        let stat = self.read("stat");
        // The name in parentheses may hold anything; the fields after it are numbered from 3.
        let fields: Vec<&str> = stat.rsplit(") ").next().unwrap_or("").split(' ').collect();
        let ticks = |field: usize| -> u64 {
            fields
                .get(field - 3)
                .and_then(|digits| digits.parse().ok())
                .expect("a number of ticks")
        };
        const USER: usize = 14;
        const SYSTEM: usize = 15;
        let per_second = rustix::param::clock_ticks_per_second();
        Duration::from_millis((ticks(USER) + ticks(SYSTEM)) * 1000 / per_second)
    }

    /// Sends a signal.
    ///
    /// # Panics
    /// The process is gone.
    pub fn signal(self, signal: Signal) {
        rustix::process::kill_process(self.pid(), signal).expect("the process is there");
    }

    /// Changes its limit on descriptors while it runs.
    ///
    /// # Panics
    /// The process is gone, or the limit is above the hard one.
    pub fn limit_descriptors(self, descriptors: u64) {
        let new = Rlimit {
            current: Some(descriptors),
            maximum: hard_descriptor_limit(),
        };
        rustix::process::prlimit(Some(self.pid()), Resource::Nofile, new)
            .expect("the limit can be lowered");
    }

    fn pid(self) -> Pid {
        i32::try_from(self.0)
            .ok()
            .and_then(Pid::from_raw)
            .expect("a process number")
    }

    fn status_kibibytes(self, field: &str) -> u64 {
        let status = self.read("status");
        let line = status.lines().find_map(|line| line.strip_prefix(field));
        let digits = line.and_then(|line| line.split_whitespace().next());
        digits
            .and_then(|digits| digits.parse().ok())
            .expect("the kernel states it")
    }

    fn read(self, file: &str) -> String {
        std::fs::read_to_string(format!("/proc/{}/{file}", self.0)).expect("the process is there")
    }
}

fn hard_descriptor_limit() -> Option<u64> {
    rustix::process::getrlimit(Resource::Nofile).maximum
}

/// Lets this process open as many descriptors as its hard limit allows; returns that number.
///
/// # Panics
/// The kernel refuses what it allows.
#[must_use]
pub fn raise_descriptor_limit() -> u64 {
    let maximum = hard_descriptor_limit();
    rustix::process::setrlimit(
        Resource::Nofile,
        Rlimit {
            current: maximum,
            maximum,
        },
    )
    .expect("the hard limit is allowed");
    maximum.unwrap_or(u64::MAX)
}
