//! Making a ring: the best set of flags the kernel takes, and what it must offer besides.
//!
//! Flags are tried, best set first; a kernel refuses a set it does not know as a whole. Features
//! that have no flag are looked up where the kernel reports them at set-up. Features that have
//! neither (multishot accept and receive) are tried by `probe`, which runs the operations.
//!
//! A ring is limited to the operations that the driver uses before it takes its first entry
//! (IORING_REGISTER_RESTRICTIONS, Linux 5.10): an attacker that writes into its queues can open no
//! file and start no program with it. Nothing can lift that. Where the kernel refuses it, the ring
//! works without.

use std::io;

use io_uring::register::Restriction;
use io_uring::squeue::Flags;
use io_uring::{Builder, IoUring, opcode};
use rustix::io::Errno;

use crate::refusal::Refusal;

/// When completions are worked out in the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
#[non_exhaustive]
pub enum TaskRun {
    /// Only when this thread waits (SINGLE_ISSUER and DEFER_TASKRUN, Linux 6.1).
    Deferred,
    /// At any transition to the kernel, without an interrupt (COOP_TASKRUN, Linux 5.19).
    Cooperative,
    /// At once, with an interrupt of this thread: about twice the cost per request.
    Interrupting,
}

impl TaskRun {
    const BEST_FIRST: [TaskRun; 3] = [
        TaskRun::Deferred,
        TaskRun::Cooperative,
        TaskRun::Interrupting,
    ];

    fn apply(self, builder: &mut Builder) {
        match self {
            TaskRun::Deferred => {
                builder
                    .setup_single_issuer()
                    .setup_defer_taskrun()
                    .setup_taskrun_flag();
                builder.setup_submit_all();
            }
            TaskRun::Cooperative => {
                builder
                    .setup_coop_taskrun()
                    .setup_taskrun_flag()
                    .setup_submit_all();
            }
            TaskRun::Interrupting => {}
        }
    }
}

/// Sets up a ring with the best flags the kernel takes.
pub(crate) fn set_up(
    submission_entries: u32,
    completion_entries: u32,
) -> Result<(IoUring, TaskRun), Refusal> {
    let mut refused = None;
    for task_run in TaskRun::BEST_FIRST {
        match set_up_as(task_run, submission_entries, completion_entries) {
            Ok(ring) => return Ok((ring, task_run)),
            Err(error) => {
                let unknown = error.raw_os_error() == Some(libc::EINVAL);
                refused = Some(error);
                if !unknown {
                    break;
                }
            }
        }
    }
    let error = refused.unwrap_or_else(|| Errno::INVAL.into());
    Err(Refusal::of_error("setting up an io_uring", &error))
}

/// Sets up a ring with exactly these flags.
pub(crate) fn set_up_as(
    task_run: TaskRun,
    submission_entries: u32,
    completion_entries: u32,
) -> io::Result<IoUring> {
    let mut builder = IoUring::builder();
    builder
        .dontfork()
        .setup_clamp()
        .setup_cqsize(completion_entries);
    task_run.apply(&mut builder);
    // The kernel refuses a completion queue smaller than the submission queue.
    let entries = submission_entries.min(completion_entries);
    limited(&builder, entries).or_else(|_| builder.build(entries))
}

/// The operations that the driver submits, and an operation without effect with which `probe` tries
/// rings.
const OPERATIONS: [u8; 10] = [
    opcode::Accept::CODE,
    opcode::AsyncCancel::CODE,
    opcode::Close::CODE,
    opcode::Connect::CODE,
    opcode::Nop::CODE,
    opcode::PollAdd::CODE,
    opcode::Recv::CODE,
    opcode::RecvMsg::CODE,
    opcode::Send::CODE,
    opcode::SendMsg::CODE,
];
/// IORING_REGISTER_PBUF_RING and its end: include/uapi/linux/io_uring.h.
const REGISTRATIONS: [u8; 2] = [22, 23];

/// Sets up a ring that takes these operations and no others.
pub(crate) fn limited(builder: &Builder, entries: u32) -> io::Result<IoUring> {
    let ring = builder.clone().setup_r_disabled().build(entries)?;
    let flags = Flags::IO_LINK | Flags::BUFFER_SELECT | Flags::SKIP_SUCCESS;
    let operations = OPERATIONS.map(Restriction::sqe_op).into_iter();
    let registrations = REGISTRATIONS.map(Restriction::register_op);
    let mut allowed: Vec<Restriction> = operations.chain(registrations).collect();
    allowed.push(Restriction::sqe_flags_allowed(flags.bits()));
    ring.submitter().register_restrictions(&mut allowed)?;
    ring.submitter().register_enable_rings()?;
    Ok(ring)
}

/// Refuses kernels whose rings lack what the driver cannot do without.
pub(crate) fn require(ring: &IoUring) -> Result<(), Refusal> {
    let offered = ring.params();
    let required = [
        ("keeping overflown completions", offered.is_feature_nodrop()),
        (
            "operations on sockets without threads",
            offered.is_feature_fast_poll(),
        ),
        ("waiting with a time-out", offered.is_feature_ext_arg()),
        (
            "hiding completions of closes",
            offered.is_feature_skip_cqe_on_success(),
        ),
        (
            "linking a close after a send",
            offered.is_feature_linked_file(),
        ),
    ];
    for (step, offered) in required {
        if !offered {
            return Err(Refusal::of(step, Errno::INVAL));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::given;

    /// Not a file can be opened with the ring of a driver.
    #[test]
    fn a_ring_refuses_what_the_driver_does_not_use() {
        // Kernels that lack more than the buffer rings (5.10) refuse the restriction as well.
        let ring = set_up(4, 8).and_then(|(ring, _)| require(&ring).map(|()| ring));
        let Some(mut ring) = given(ring) else {
            return;
        };
        let open = opcode::OpenAt::new(io_uring::types::Fd(libc::AT_FDCWD), c"/".as_ptr());
        // SAFETY: the path is a constant.
        unsafe { ring.submission().push(&open.build()) }.expect("room");
        ring.submit_and_wait(1).expect("it completes");
        let completed = ring.completion().next().expect("it has completed");
        assert_eq!(completed.result(), -libc::EACCES);
    }
}
