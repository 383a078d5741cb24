//! Entries for the submission queue, as several files need them: built, not submitted.
//!
//! None of these points to memory of the caller's, so each may be pushed whenever its socket is
//! open.

use io_uring::squeue::Flags;
use io_uring::{opcode, squeue, types};

use super::origin::{Origin, Own};
use crate::driver::OperationMode;
use crate::socket::{Handle, Socket};

/// The descriptor of a socket, as entries name it.
pub(super) fn fd_of(socket: Socket) -> types::Fd {
    match socket.handle() {
        Handle::Descriptor(descriptor) => types::Fd(descriptor),
        Handle::Simulated(_) => unreachable!("a simulated socket on a real driver"),
    }
}

/// The entry that accepts from `listener`.
pub(crate) fn accept_entry(listener: types::Fd, mode: OperationMode) -> squeue::Entry {
    match mode {
        OperationMode::Multishot => opcode::AcceptMulti::new(listener)
            .flags(libc::SOCK_CLOEXEC)
            .build(),
        OperationMode::Single => {
            opcode::Accept::new(listener, std::ptr::null_mut(), std::ptr::null_mut())
                .flags(libc::SOCK_CLOEXEC)
                .build()
        }
    }
}

/// The entry that receives from `fd` into a buffer of the group.
pub(crate) fn receive_entry(fd: types::Fd, mode: OperationMode, group: u16) -> squeue::Entry {
    match mode {
        OperationMode::Multishot => opcode::RecvMulti::new(fd, group).build(),
        OperationMode::Single => opcode::Recv::new(fd, std::ptr::null_mut(), 0)
            .buf_group(group)
            .build()
            .flags(Flags::BUFFER_SELECT),
    }
}

/// The entry that closes `fd`, silently if it succeeds.
pub(crate) fn close_entry(fd: types::Fd) -> squeue::Entry {
    opcode::Close::new(fd)
        .build()
        .flags(Flags::SKIP_SUCCESS)
        .user_data(Origin::Own(Own::Close).pack())
}
