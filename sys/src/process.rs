//! What the kernel knows of this process and its threads, and does for them: the user, limits,
//! numbers of threads, and its fence (getuid(2), getrlimit(2), gettid(2), membarrier(2)).
//!
//! rustix has these calls, too, in features that would compile several hundred other functions
//! with them: a twentieth of what a small program takes to build.

use std::io;

/// A limit of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Limit {
    /// Open descriptors (RLIMIT_NOFILE).
    Descriptors,
    /// Bytes of memory that is locked (RLIMIT_MEMLOCK).
    LockedMemory,
}

/// The soft limit; `None`: there is none.
///
/// Cost: one system call.
pub fn limit(limit: Limit) -> Option<u64> {
    let resource = match limit {
        Limit::Descriptors => libc::RLIMIT_NOFILE,
        Limit::LockedMemory => libc::RLIMIT_MEMLOCK,
    };
    let mut found = libc::rlimit {
        rlim_cur: libc::RLIM_INFINITY,
        rlim_max: libc::RLIM_INFINITY,
    };
    // SAFETY: the kernel writes one structure of this type.
    let outcome = unsafe { libc::getrlimit(resource, &raw mut found) };
    debug_assert_eq!(outcome, 0, "the arguments are valid");
    (found.rlim_cur != libc::RLIM_INFINITY).then_some(found.rlim_cur)
}

/// The user in whose name the process acts (its effective user ID); 0 is root.
///
/// Cost: one system call.
pub fn user() -> u32 {
    // SAFETY: it has no arguments and cannot fail.
    unsafe { libc::geteuid() }
}

/// The number of the calling thread, as in `/proc/self/task`.
///
/// Cost: one system call.
pub fn thread_number() -> u32 {
    // SAFETY: it has no arguments and cannot fail.
    unsafe { libc::gettid() }.unsigned_abs()
}

/// Lets this process call [`fence_other_threads`]
/// (`MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED`).
///
/// # Errors
/// The kernel has no such fence (Linux before 4.14), or a filter of system calls refuses it.
///
/// Cost: some milliseconds, if the process has threads already.
pub fn register_fence() -> io::Result<()> {
    membarrier(libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED)
}

/// Has each thread of this process that runs now pass a fence (`MEMBARRIER_CMD_PRIVATE_EXPEDITED`).
///
/// # Errors
/// The process is not registered ([`register_fence`]), or a filter of system calls refuses it.
///
/// Cost: one system call, which interrupts the processors of the other threads.
pub fn fence_other_threads() -> io::Result<()> {
    membarrier(libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED)
}

fn membarrier(command: libc::c_int) -> io::Result<()> {
    // SAFETY: it touches no memory of this process; there are no flags.
    match unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The value of a line of a text such as `/proc/self/status`.
    fn line_of(path: &str, name: &str) -> String {
        let text = std::fs::read_to_string(path).expect("the kernel has it");
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line.expect("such a line").trim().to_owned()
    }

    #[test]
    fn user_thread_and_limits_are_those_that_the_kernel_shows() {
        let users = line_of("/proc/thread-self/status", "Uid:");
        assert_eq!(users.split_whitespace().nth(1), Some(&*user().to_string()));
        let number = line_of("/proc/thread-self/status", "Pid:");
        assert_eq!(number, thread_number().to_string());
        for (name, which) in [
            ("Max open files", Limit::Descriptors),
            ("Max locked memory", Limit::LockedMemory),
        ] {
            let shown = line_of("/proc/self/limits", name);
            let expected = limit(which).map_or("unlimited".to_owned(), |it| it.to_string());
            assert_eq!(shown.split_whitespace().next(), Some(&*expected), "{name}");
        }
    }
}
