//! Wake: a poll that stays armed on the waker's eventfd.
//!
//! The poll fires on every write, whatever the counter says, so the eventfd is never read. It ends
//! when the completion queue overflows; arming it again then fires once, for nothing.

use io_uring::{opcode, types};
use std::os::fd::AsRawFd;

use super::Uring;
use super::user_data::{Origin, Own};

impl Uring {
    pub(super) fn arm_wake(&mut self) {
        let Some(eventfd) = self.waker.eventfd() else {
            return;
        };
        let fd = types::Fd(eventfd.as_raw_fd());
        let entry = opcode::PollAdd::new(fd, libc::POLLIN as u32)
            .multi(true)
            .build();
        let entry = entry.user_data(Origin::Own(Own::Wake).pack());
        // SAFETY: a poll points to nothing; the waker keeps the eventfd open.
        unsafe { self.ring.push(entry, None) };
    }
}
