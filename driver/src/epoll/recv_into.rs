//! recv_into: one read in the turn it was started, if the socket may have something.

use std::ops::RangeInclusive;
use std::os::fd::{AsFd, RawFd};

use flatpath_structures::pool::Buffer;
use rustix::event::epoll;

use super::Epoll;
use super::table::{Interest, Receive};
use crate::completion::{Completion, Errno, Outcome};
use crate::driver::OperationMode;
use crate::lent::Lent;
use crate::pipe::{Piped, Pipes};
use crate::socket::{Mode, Socket};

impl Epoll {
    pub(super) fn start_recv_into(&mut self, socket: Socket, user_data: u64, buffer: Buffer) {
        self.counters.submissions += 1;
        let descriptor = socket.raw();
        assert!(buffer.room() > 0, "a recv_into of a full buffer");
        let entry = self.open_entry(socket);
        assert!(
            entry.receive.is_none(),
            "C2: a second receive on {socket:?}"
        );
        entry.receive = Some(Receive {
            user_data,
            mode: OperationMode::Single,
            region_id: 0,
        });
        entry.buffer = Some(buffer);
        self.list(descriptor);
    }

    /// What events say of the socket stays as it is: the next receive finds out by itself that
    /// nothing is left.
    pub(super) fn splice_now(
        &mut self,
        socket: Socket,
        pipes: &Pipes,
        bytes: RangeInclusive<usize>,
    ) -> Option<Piped> {
        let entry = self.entry_of(socket.raw());
        debug_assert!(entry.receive.is_none(), "C2: a splice beside a receive");
        let spliced = pipes.splice_from(entry.socket.as_ref()?.as_fd(), Mode::NonBlocking, bytes);
        self.counters.system_calls += 1 + u64::from(spliced.is_some());
        spliced
    }

    /// Events of a stream that is lent would wake this thread for nothing: the next receive looks
    /// by itself, and waits for events anew.
    pub(super) fn lend_now(&mut self, socket: Socket) -> Option<Lent> {
        let lent = socket.lend()?;
        self.counters.system_calls += 1;
        let entry = &mut self.entries[socket.raw() as usize];
        if entry.interest == Interest::Receiving {
            self.counters.system_calls += 1;
            if epoll::delete(&self.epoll, entry.socket()).is_ok() {
                entry.interest = Interest::Nothing;
                entry.readable = true;
            }
        }
        Some(lent)
    }

    /// Completes with what is there.
    pub(super) fn run_recv_into(&mut self, descriptor: RawFd, mut buffer: Buffer) -> Completion {
        let entry = &mut self.entries[descriptor as usize];
        let receive = entry.receive.take();
        let Receive { user_data, .. } = receive.expect("a buffer is that of a receive");
        let read = if entry.readable {
            self.counters.system_calls += 1;
            entry.read(buffer.overwrite_mut())
        } else {
            Err(Errno::AGAIN)
        };
        Completion::last(user_data, Outcome::of_recv_into(buffer, read))
    }
}
