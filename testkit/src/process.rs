//! A process seen from outside: memory, processor time, descriptors, threads, limits, signals.

use std::path::PathBuf;
use std::time::Duration;

use rustix::process::{Pid, Resource, Rlimit, Signal};

/// Another process by its number.
#[derive(Clone, Copy, Debug)]
pub struct Process(u32);

impl Process {
    /// The process with this number.
    pub fn new(number: u32) -> Self {
        Self(number)
    }

    /// This process.
    pub fn own() -> Self {
        Self(std::process::id())
    }

    /// Its number.
    pub fn number(self) -> u32 {
        self.0
    }

    /// Memory that only this process has (its heap and stacks, not files or shared pages), in
    /// bytes.
    pub fn memory_bytes(self) -> u64 {
        self.status().rssanon.expect("the kernel states it") * 1024
    }

    /// The most memory that it ever had at once, the program's own pages included, in bytes.
    pub fn peak_bytes(self) -> u64 {
        self.status().vmhwm.expect("the kernel states it") * 1024
    }

    /// The thread numbers of a server's workers, in order.
    pub fn workers(self) -> Vec<u32> {
        self.threads("flatpath-worker")
    }

    /// The numbers of the threads of that name, in order.
    pub fn threads(self, wanted: &str) -> Vec<u32> {
        let tasks = self.look().tasks().expect("the process is there").flatten();
        let named = tasks.filter(|task| {
            // One that ends meanwhile has no name any more.
            task.stat().is_ok_and(|stat| stat.comm == wanted)
        });
        let mut threads: Vec<u32> = named.map(|task| task.tid.cast_unsigned()).collect();
        threads.sort_unstable();
        threads
    }

    /// How often its threads of that name have slept so far: once more than they were woken.
    pub fn sleeps(self, threads: &str) -> u64 {
        let sleeps = self.threads(threads).into_iter().filter_map(|thread| {
            let task = self.look().task_from_tid(thread.cast_signed());
            task.ok()?.status().ok()?.voluntary_ctxt_switches
        });
        sleeps.sum()
    }

    /// The names of all threads, in order; the kernel keeps 15 bytes of each.
    pub fn thread_names(self) -> Vec<String> {
        let tasks = self.look().tasks().expect("the process is there").flatten();
        // One that ends meanwhile has no name any more.
        let mut names: Vec<_> = tasks.filter_map(|it| Some(it.stat().ok()?.comm)).collect();
        names.sort_unstable();
        names
    }

    /// What its descriptors refer to, by the names that the kernel has for it.
    pub fn open_files(self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(format!("/proc/{}/fd", self.0));
        let entries = entries.expect("the process is there").flatten();
        entries
            .filter_map(|entry| std::fs::read_link(entry.path()).ok())
            .collect()
    }

    /// Open descriptors.
    pub fn descriptors(self) -> usize {
        self.look().fd_count().expect("the process is there")
    }

    /// How many descriptors the kernel's table of them has room for.
    pub fn descriptor_table(self) -> u64 {
        self.status().fdsize.into()
    }

    /// Processor time used so far, by all threads.
    pub fn processor_time(self) -> Duration {
        let stat = self.look().stat().expect("the process is there");
        Duration::from_millis((stat.utime + stat.stime) * 1000 / procfs::ticks_per_second())
    }

    /// Sends a signal.
    pub fn signal(self, signal: Signal) {
        rustix::process::kill_process(self.pid(), signal).expect("the process is there");
    }

    /// Changes its limit on descriptors while it runs.
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

    fn look(self) -> procfs::process::Process {
        procfs::process::Process::new(self.0.cast_signed()).expect("the process is there")
    }

    fn status(self) -> procfs::process::Status {
        self.look().status().expect("the process is there")
    }
}

fn hard_descriptor_limit() -> Option<u64> {
    rustix::process::getrlimit(Resource::Nofile).maximum
}

/// Lets this process, and those it starts, open as many descriptors as the hard limit allows;
/// returns that number.
///
/// # Errors
/// What `setrlimit` reports.
pub fn raise_descriptor_limit() -> std::io::Result<u64> {
    let maximum = hard_descriptor_limit();
    let raised = Rlimit {
        current: maximum,
        maximum,
    };
    rustix::process::setrlimit(Resource::Nofile, raised)?;
    Ok(maximum.unwrap_or(u64::MAX))
}
