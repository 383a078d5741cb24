//! Scheduling class of the calling thread.

use std::io;

/// Puts the calling thread into `SCHED_BATCH`: when it is woken it waits for its turn instead of
/// interrupting the thread that runs. Needs no privilege. One system call. Source: sched(7).
///
/// # Errors
/// What `sched_setscheduler` says, EPERM in some sandboxes.
pub fn schedule_as_batch() -> io::Result<()> {
    // SAFETY: every field is a number, for which 0 is a value. Some libraries have more of them.
    let parameter: libc::sched_param = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is to a live `sched_param`, which the call only reads; pid 0 is this
    // thread.
    let result = unsafe { libc::sched_setscheduler(0, libc::SCHED_BATCH, &raw const parameter) };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
