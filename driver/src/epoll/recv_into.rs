//! recv_into: one read in the turn it was started, if the socket may have something.

use std::ops::RangeInclusive;
use std::os::fd::{AsFd, RawFd};

use flatpath_structures::pool::Buffer;
use rustix::net::{RecvFlags, recv};

use super::table::Receive;
use super::{Epoll, Work};
use crate::completion::{Completion, Errno, Outcome};
use crate::driver::OperationMode;
use crate::pipe::{Piped, Pipes};
use crate::socket::{Mode, Socket};

impl Epoll {
    pub(super) fn start_recv_into(&mut self, socket: Socket, user_data: u64, buffer: Buffer) {
        self.counters.submissions += 1;
        let descriptor = super::descriptor_of(socket);
        assert!(buffer.room() > 0, "a recv_into of a full buffer");
        let entry = self.entry_of(descriptor);
        assert!(
            entry.socket.is_some(),
            "C4: a recv_into from {socket:?}, which is closed"
        );
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
        if !entry.receive_queued {
            entry.receive_queued = true;
            self.work.push_back(Work::Receive(descriptor));
        }
    }

    /// What events say of the socket stays as it is: the next receive finds out by itself that
    /// nothing is left.
    pub(super) fn splice_now(
        &mut self,
        socket: Socket,
        pipes: &Pipes,
        bytes: RangeInclusive<usize>,
    ) -> Option<Piped> {
        let entry = self.entry_of(super::descriptor_of(socket));
        debug_assert!(entry.receive.is_none(), "C2: a splice beside a receive");
        let spliced = pipes.splice_from(entry.socket.as_ref()?.as_fd(), Mode::NonBlocking, bytes);
        self.counters.system_calls += 1 + u64::from(spliced.is_some());
        spliced
    }

    pub(super) fn run_recv_into(
        &mut self,
        descriptor: RawFd,
        buffer: Buffer,
        completions: &mut Vec<Completion>,
    ) {
        // A buffer without its receive was left by a close.
        let Some(Receive { user_data, .. }) = self.entry_of(descriptor).receive.take() else {
            return;
        };
        let outcome = self.recv_now(descriptor, buffer);
        completions.push(Completion::last(user_data, outcome));
    }

    fn recv_now(&mut self, descriptor: RawFd, mut buffer: Buffer) -> Outcome {
        let entry = &mut self.entries[descriptor as usize];
        if !entry.readable {
            return Outcome::ReceivedInto(buffer);
        }
        let Some(socket) = &entry.socket else {
            unreachable!("T1: a recv_into from a closed socket")
        };
        self.counters.system_calls += 1;
        let room = buffer.room();
        let received =
            recv(socket, buffer.spare_mut(), RecvFlags::DONTWAIT).map(|(bytes, _)| bytes);
        match received {
            Ok(0) => Outcome::EndOfStream,
            Ok(bytes) => {
                if bytes < room && !entry.ending {
                    entry.readable = false;
                }
                buffer.advance(bytes);
                Outcome::ReceivedInto(buffer)
            }
            Err(Errno::AGAIN) => {
                entry.readable = false;
                Outcome::ReceivedInto(buffer)
            }
            Err(Errno::INTR) => Outcome::ReceivedInto(buffer),
            Err(errno) => Outcome::Failed(errno),
        }
    }
}
