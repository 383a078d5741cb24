//! The kernel's counts for the calling thread (getrusage(2), RUSAGE_THREAD).

/// How often the calling thread has slept: its voluntary context switches since it began, which is
/// when it waited for something. Being preempted is none.
///
/// Cost: one system call.
pub fn voluntary_switches() -> u64 {
    // SAFETY: every field of the structure is a number, for which 0 is a value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes one structure of this type.
    let outcome = unsafe { libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage) };
    debug_assert_eq!(outcome, 0, "the arguments are valid");
    u64::try_from(usage.ru_nvcsw).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_sleeps_is_counted_and_one_that_computes_is_not() {
        // In a thread of its own: nothing else of the test sleeps there.
        let counted = std::thread::spawn(|| {
            let first = voluntary_switches();
            let sum = (0..10_000_u64).map(std::hint::black_box).sum::<u64>();
            let computed = voluntary_switches();
            // One that is over before the thread has gone to sleep is no switch.
            let sleeping = (0..100).find_map(|_| {
                std::thread::sleep(std::time::Duration::from_millis(2));
                let switches = voluntary_switches() - computed;
                (switches > 0).then_some(switches)
            });
            (sum, computed - first, sleeping)
        });
        let (_, computing, sleeping) = counted.join().expect("it ended");
        assert_eq!(computing, 0);
        assert!(sleeping.is_some(), "no switch in a hundred sleeps");
    }
}
