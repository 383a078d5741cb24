//! Trials of the ring itself: its flags, its waits, its overflow.

use std::io;
use std::os::fd::AsRawFd;

use io_uring::types::{SubmitArgs, Timespec};
use io_uring::{EnterFlags, IoUring, cqueue, opcode, types};
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;

use super::trial::{Bench, expect, result};
use crate::uring::setup::{TaskRun, limited, set_up_as};

/// The flags of a way to run task work, and an operation with them.
pub(super) fn task_run(task_run: TaskRun) -> io::Result<()> {
    let mut bench = Bench::of(set_up_as(task_run, 4, 8)?);
    // SAFETY: it points to nothing.
    unsafe { bench.push(&opcode::Nop::new().build()) }?;
    result(&bench.next()?).map(drop)
}

/// A ring that refuses what the driver does not use.
pub(super) fn limited_operations() -> io::Result<()> {
    let mut bench = Bench::of(limited(&IoUring::builder(), 4)?);
    // SAFETY: it points to nothing.
    unsafe { bench.push(&opcode::Nop::new().build()) }?;
    result(&bench.next()?)?;
    // SAFETY: it points to nothing, and there is no such descriptor.
    unsafe { bench.push(&opcode::Fsync::new(types::Fd(-1)).build()) }?;
    let refused = result(&bench.next()?).map_err(|error| Errno::from_io_error(&error));
    expect(refused == Err(Some(Errno::ACCESS)))
}

/// EXT_ARG: the time-out ends the wait, and nothing else does.
pub(super) fn timed_wait() -> io::Result<()> {
    let bench = Bench::new()?;
    let timeout = Timespec::new().nsec(1_000);
    let arguments = SubmitArgs::new().timespec(&timeout);
    match bench.ring().submitter().submit_with_args(1, &arguments) {
        Ok(_) => Err(Errno::OPNOTSUPP.into()),
        Err(error) if Errno::from_io_error(&error) == Some(Errno::TIME) => Ok(()),
        Err(error) => Err(error),
    }
}

/// NO_IOWAIT.
pub(super) fn quiet_wait() -> io::Result<()> {
    let mut bench = Bench::new()?;
    // SAFETY: it points to nothing.
    unsafe { bench.push(&opcode::Nop::new().build()) }?;
    let flags = (EnterFlags::GETEVENTS | EnterFlags::NO_IOWAIT).bits();
    // SAFETY: no argument, and the entry is sound.
    let entered = unsafe { bench.ring().submitter().enter::<u64>(1, 1, flags, None) };
    entered?;
    result(&bench.next()?).map(drop)
}

/// NODROP: more completions than the queue holds, and all of them come.
pub(super) fn overflow_is_kept() -> io::Result<()> {
    let ring = IoUring::builder().setup_cqsize(2).build(2)?;
    let mut bench = Bench::of(ring);
    for round in 0..8 {
        // SAFETY: it points to nothing.
        unsafe { bench.push(&opcode::Nop::new().build().user_data(round)) }?;
        bench.submit()?;
    }
    for round in 0..8 {
        expect(bench.next()?.user_data() == round)?;
    }
    Ok(())
}

/// A multishot poll fires for every write to an eventfd that is never read.
pub(super) fn staying_poll() -> io::Result<()> {
    let eventfd = eventfd(0, EventfdFlags::CLOEXEC)?;
    let mut bench = Bench::new()?;
    let fd = types::Fd(eventfd.as_raw_fd());
    let poll = opcode::PollAdd::new(fd, libc::POLLIN as u32)
        .multi(true)
        .build()
        .user_data(1);
    // SAFETY: it points to nothing.
    unsafe { bench.push(&poll) }?;
    bench.submit()?;
    for _ in 0..2 {
        rustix::io::write(&eventfd, &1_u64.to_ne_bytes())?;
        let entry = bench.next()?;
        result(&entry)?;
        expect(cqueue::more(entry.flags()))?;
    }
    bench.cancel(1)
}
