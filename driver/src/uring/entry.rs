//! Entries for the submission queue that point to no memory: built, not submitted.

use std::os::fd::RawFd;
use std::ptr::null_mut;

use io_uring::squeue::Flags;
use io_uring::{opcode, squeue, types};

use super::origin::{Origin, Own};
use crate::driver::OperationMode;
use crate::socket::Socket;

/// An entry that may be pushed whenever its descriptor is open. One that receives names a group of
/// buffers, whose memory lives as long as the ring (B2).
pub(crate) struct Plain(squeue::Entry);

impl Plain {
    pub(crate) fn entry(self) -> squeue::Entry {
        self.0
    }

    /// The same, marked with whose completion it makes.
    pub(super) fn of(self, origin: Origin) -> Plain {
        Plain(self.0.user_data(origin.pack()))
    }
}

/// The descriptor of a socket, as entries name it.
pub(super) fn fd_of(socket: Socket) -> types::Fd {
    types::Fd(socket.raw())
}

/// Accepts from `listener`.
pub(crate) fn accept_entry(listener: types::Fd, mode: OperationMode) -> Plain {
    Plain(match mode {
        OperationMode::Multishot => opcode::AcceptMulti::new(listener)
            .flags(libc::SOCK_CLOEXEC)
            .build(),
        OperationMode::Single => opcode::Accept::new(listener, null_mut(), null_mut())
            .flags(libc::SOCK_CLOEXEC)
            .build(),
    })
}

/// Receives from `fd` into a buffer of the group.
pub(crate) fn receive_entry(fd: types::Fd, mode: OperationMode, group: u16) -> Plain {
    Plain(match mode {
        OperationMode::Multishot => opcode::RecvMulti::new(fd, group).build(),
        OperationMode::Single => opcode::Recv::new(fd, null_mut(), 0)
            .buf_group(group)
            .build()
            .flags(Flags::BUFFER_SELECT),
    })
}

/// Receives from `fd` into buffers of the group, and ends once it has brought `bytes_max` bytes or
/// more: the kernel fills the buffer that reaches them. It takes a larger one than `i32::MAX` for
/// less than zero.
///
/// The crate that makes entries has no name for this field of a receive (`optlen` since Linux
/// 6.17); before, the kernel refuses a receive in which it is not zero.
pub(crate) fn limited_receive_entry(fd: types::Fd, group: u16, bytes_max: u32) -> Plain {
    /// Where `struct io_uring_sqe` has `optlen`, in `linux/io_uring.h`.
    const OPTLEN: usize = 44;
    const { assert!(size_of::<squeue::Entry>() == 64 && align_of::<squeue::Entry>() >= 4) };
    let mut entry = opcode::RecvMulti::new(fd, group).build();
    let place = (&raw mut entry).cast::<u32>().wrapping_byte_add(OPTLEN);
    // SAFETY: an entry is `struct io_uring_sqe`, of which these four bytes are a number.
    unsafe { place.write(bytes_max) };
    Plain(entry)
}

/// Closes `fd`, silently if it succeeds.
pub(crate) fn close_entry(fd: types::Fd) -> Plain {
    let entry = opcode::Close::new(fd).build().flags(Flags::SKIP_SUCCESS);
    Plain(entry).of(Origin::Own(Own::Close))
}

/// Completes once the descriptor is ready for one of `events`, or each time.
pub(super) fn poll_entry(descriptor: RawFd, events: i16, mode: OperationMode) -> Plain {
    let poll = opcode::PollAdd::new(types::Fd(descriptor), events as u32);
    Plain(poll.multi(mode == OperationMode::Multishot).build())
}

/// Cancels an operation, silently if it is found.
pub(super) fn cancel_entry(origin: Origin) -> Plain {
    let entry = opcode::AsyncCancel::new(origin.pack()).build();
    let own = match origin {
        Origin::Send { index } => Origin::CancelSend { index },
        _ => Origin::Own(Own::Cancel),
    };
    Plain(entry.flags(Flags::SKIP_SUCCESS)).of(own)
}

/// Cancels every operation.
pub(super) fn cancel_all_entry() -> Plain {
    let every = types::CancelBuilder::any().all();
    Plain(opcode::AsyncCancel2::new(every).build()).of(Origin::Own(Own::Cancel))
}
