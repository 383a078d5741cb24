//! The time slice that a thread asks the scheduler for.
//!
//! A thread that asks for a shorter slice than another gets no more of the processor, but its turn
//! comes sooner: a woken one may interrupt a thread with a longer slice, and what runs beside it is
//! left alone for that shorter time only. Source: `check_preempt_wakeup_fair` and
//! `set_protect_slice` in kernel/sched/fair.c, `__setparam_fair` in kernel/sched/syscalls.c.
//!
//! Linux takes such a wish since 6.12, from any thread and without a privilege. Older kernels
//! refuse the call or ignore the number, so what came of it is read back.

use std::io;
use std::mem::zeroed;

use rustix::thread::Pid;

/// All of it that ordinary threads have (`SCHED_ATTR_SIZE_VER0`).
const ATTRIBUTES_BYTES: u32 = 48;
const _: () = assert!(size_of::<libc::sched_attr>() == ATTRIBUTES_BYTES as usize);

/// Asks for slices of this length for the calling thread, and for threads that it starts; the
/// kernel allows 0.1 ms to 100 ms. Policy and niceness stay as they are. Three system calls.
///
/// # Errors
/// `Unsupported` where the kernel knows no such wish, or the thread is not scheduled by time slices
/// of this kind (real-time, idle); else what the system calls say, EPERM in some sandboxes.
pub fn ask_for_slice(slice_ns: u64) -> io::Result<()> {
    let mut attributes = attributes_of(None)?;
    let policy = attributes.sched_policy.cast_signed();
    if policy != libc::SCHED_OTHER && policy != libc::SCHED_BATCH {
        return Err(unsupported("the thread has another scheduling policy"));
    }
    attributes.sched_runtime = slice_ns;
    // Whatever else the kernel reports was not asked for.
    attributes.sched_flags &= libc::SCHED_FLAG_RESET_ON_FORK as u64;
    // SAFETY: the pointer is to live attributes of the size that they name, which the call only
    // reads; 0 is the calling thread.
    let result = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    if slice_of(None)? != slice_ns {
        return Err(unsupported("the kernel takes no wish for a slice"));
    }
    Ok(())
}

/// The time slice of a thread of any process, or of the calling one, in nanoseconds: what it asked
/// for, or the kernel's own. 0 where the kernel does not tell, and for other policies.
///
/// # Errors
/// When there is no such thread.
pub fn slice_of(thread: Option<Pid>) -> io::Result<u64> {
    attributes_of(thread).map(|attributes| attributes.sched_runtime)
}

fn attributes_of(thread: Option<Pid>) -> io::Result<libc::sched_attr> {
    // SAFETY: every field is a number, for which 0 is a value.
    let mut attributes: libc::sched_attr = unsafe { zeroed() };
    attributes.size = ATTRIBUTES_BYTES;
    let pointer = &raw mut attributes;
    let thread = Pid::as_raw(thread);
    // SAFETY: the pointer is to live attributes of that size, and the kernel writes no more.
    let result = unsafe {
        libc::syscall(
            libc::SYS_sched_getattr,
            thread,
            pointer,
            ATTRIBUTES_BYTES,
            0,
        )
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(attributes)
}

fn unsupported(words: &str) -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, words)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The slice of the thread that is at work here.
    fn own_slice() -> u64 {
        slice_of(None).expect("this thread lives")
    }

    #[test]
    fn a_thread_gets_the_slice_it_asks_for_and_hands_it_on() {
        const SLICE_NS: u64 = 700_000;
        let asking = std::thread::spawn(|| {
            ask_for_slice(SLICE_NS)?;
            let started = std::thread::spawn(own_slice);
            io::Result::Ok((own_slice(), started.join().expect("no panic")))
        });
        match asking.join().expect("no panic") {
            Ok(slices) => assert_eq!(slices, (SLICE_NS, SLICE_NS)),
            Err(error) => eprintln!("not run: {error}"),
        }
        assert_ne!(own_slice(), SLICE_NS, "another thread has not asked");
    }

    #[test]
    fn a_length_that_the_kernel_does_not_allow_is_no_success() {
        let asking = std::thread::spawn(|| ask_for_slice(1));
        asking.join().expect("no panic").expect_err("1 ns");
    }

    #[test]
    fn a_thread_that_does_not_exist_has_no_slice() {
        slice_of(Pid::from_raw(i32::MAX)).expect_err("above the limit of numbers");
    }
}
