//! recv_into: receive what is there into the caller's buffer, and complete at once if nothing is.
//!
//! MSG_DONTWAIT makes the kernel answer EAGAIN instead of waiting with the buffer in hand.
//!
//! Invariants
//! - I1: an entry of the table holds its buffer from `start_recv_into` to the completion; a
//!   buffer's memory does not move when the buffer does, and nothing else reads or writes it
//!   meanwhile.
//!
//! Cost: one entry in the queue; after warm-up no allocation.

use std::ops::RangeInclusive;
use std::os::fd::BorrowedFd;

use flatpath_structures::pool::Buffer;
use io_uring::opcode;

use super::Uring;
use super::entry::fd_of;
use super::origin::Origin;
use super::table::RecvInto;
use crate::completion::{Completion, Errno, Outcome};
use crate::lent::Lent;
use crate::pipe::{Piped, Pipes};
use crate::socket::{Mode, Socket};

impl Uring {
    pub(super) fn start_recv_into(&mut self, socket: Socket, user_data: u64, mut buffer: Buffer) {
        assert!(
            self.sockets.is_open(socket),
            "C4: a recv_into from {socket:?}, which is closed"
        );
        assert!(buffer.room() > 0, "a recv_into of a full buffer");
        self.outstanding += 1;
        let spare = buffer.overwrite_mut();
        let (start, length) = (spare.as_mut_ptr(), spare.len() as u32);
        let entry = opcode::Recv::new(fd_of(socket), start, length)
            .flags(libc::MSG_DONTWAIT)
            .build();
        let index = self.recv_intos.insert(RecvInto { user_data, buffer }) as u32;
        let entry = entry.user_data(Origin::RecvInto { index }.pack());
        // SAFETY: I1: the memory stays, and stays ours, until the completion.
        unsafe { self.ring.push(entry, None) };
    }

    pub(super) fn splice_now(
        &mut self,
        socket: Socket,
        pipes: &Pipes,
        bytes: RangeInclusive<usize>,
    ) -> Option<Piped> {
        assert!(
            self.sockets.is_open(socket),
            "C4: a splice from {socket:?}, which is closed"
        );
        // SAFETY: the descriptor is open and ours until the caller closes the socket (C4), not
        // during this call (C7).
        let socket = unsafe { BorrowedFd::borrow_raw(fd_of(socket).0) };
        self.counters.system_calls += 1;
        let spliced = pipes.splice_from(socket, Mode::Blocking, bytes);
        self.counters.system_calls += 3 * u64::from(spliced.is_some());
        spliced
    }

    pub(super) fn lend_now(&mut self, socket: Socket) -> Option<Lent> {
        let lent = socket.lend()?;
        self.counters.system_calls += 1;
        Some(lent)
    }

    pub(super) fn received_into(
        &mut self,
        index: u32,
        result: i32,
        completions: &mut Vec<Completion>,
    ) {
        self.outstanding -= 1;
        // A recv_into completes once (I1).
        let RecvInto { user_data, buffer } = self.recv_intos.remove(index as usize);
        let read = usize::try_from(result).map_err(|_| Errno::from_raw_os_error(-result));
        let outcome = Outcome::of_recv_into(buffer, read);
        completions.push(Completion::last(user_data, outcome));
    }
}
