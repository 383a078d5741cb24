//! Entries for the submission queue, as several files need them: built, not submitted.
//!
//! None of these points to memory of the caller's, so each may be pushed whenever its socket is
//! open.

use io_uring::squeue::Flags;
use io_uring::{opcode, squeue, types};

use super::origin::{Origin, Own};
use crate::driver::OperationMode;
use crate::socket::{Handle, Socket};

/// How an entry names its socket.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Target {
    Descriptor(types::Fd),
    Slot(types::Fixed),
}

impl Target {
    pub(super) fn of(socket: Socket) -> Target {
        match socket.handle() {
            Handle::Descriptor(descriptor) => Target::Descriptor(types::Fd(descriptor)),
            Handle::Slot(slot) => Target::Slot(types::Fixed(slot)),
            Handle::Simulated(_) => unreachable!("a simulated socket on a real driver"),
        }
    }
}

/// The entry that accepts from `listener`.
pub(crate) fn accept_entry(
    listener: types::Fd,
    mode: OperationMode,
    direct: bool,
) -> squeue::Entry {
    // Descriptors in a direct table do not survive an exec anyway, and the kernel refuses the flag.
    let flags = if direct { 0 } else { libc::SOCK_CLOEXEC };
    match mode {
        OperationMode::Multishot => opcode::AcceptMulti::new(listener)
            .allocate_file_index(direct)
            .flags(flags)
            .build(),
        OperationMode::Single => {
            let place = direct.then(types::DestinationSlot::auto_target);
            opcode::Accept::new(listener, std::ptr::null_mut(), std::ptr::null_mut())
                .flags(flags)
                .file_index(place)
                .build()
        }
    }
}

/// The entry that receives from `target` into a buffer of the group.
pub(crate) fn receive_entry(target: Target, mode: OperationMode, group: u16) -> squeue::Entry {
    match (mode, target) {
        (OperationMode::Multishot, Target::Descriptor(fd)) => {
            opcode::RecvMulti::new(fd, group).build()
        }
        (OperationMode::Multishot, Target::Slot(slot)) => {
            opcode::RecvMulti::new(slot, group).build()
        }
        (OperationMode::Single, target) => {
            let none = std::ptr::null_mut();
            let entry = match target {
                Target::Descriptor(fd) => opcode::Recv::new(fd, none, 0).buf_group(group).build(),
                Target::Slot(slot) => opcode::Recv::new(slot, none, 0).buf_group(group).build(),
            };
            entry.flags(Flags::BUFFER_SELECT)
        }
    }
}

/// What SO_LINGER is set to for a close with RST. The kernel reads it when the entry is submitted.
static LINGER_NOT: libc::linger = libc::linger {
    l_onoff: 1,
    l_linger: 0,
};

/// The entry that closes `target`, silently if it succeeds.
pub(crate) fn close_entry(target: Target) -> squeue::Entry {
    let entry = match target {
        Target::Descriptor(fd) => opcode::Close::new(fd).build(),
        Target::Slot(slot) => opcode::Close::new(slot).build(),
    };
    entry
        .flags(Flags::SKIP_SUCCESS)
        .user_data(Origin::Own(Own::Close).pack())
}

/// The entry that turns the linked close into a reset. The close runs even if this entry fails.
pub(super) fn linger_entry(slot: types::Fixed) -> squeue::Entry {
    let option = (&raw const LINGER_NOT).cast();
    let bytes = size_of::<libc::linger>() as u32;
    let level = libc::SOL_SOCKET as u32;
    opcode::SetSockOpt::new(slot, level, libc::SO_LINGER as u32, option, bytes)
        .build()
        .flags(Flags::IO_HARDLINK | Flags::SKIP_SUCCESS)
        .user_data(Origin::Own(Own::Linger).pack())
}
