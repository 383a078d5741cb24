//! Receive: read when a read is worth a call, into a buffer taken for that moment.
//!
//! A fresh socket is read at once: a request often arrives with its connection. A read that leaves
//! room in the buffer has drained the socket, so the next arrival makes an event, and no call is
//! spent on finding out. Only once the peer has finished, or the connection broke, is that not so.

use std::os::fd::RawFd;

use rustix::net::{RecvFlags, recv};

use super::table::{Interest, Receive};
use super::{Epoll, Work};
use crate::completion::{Completion, Errno, Outcome};
use crate::driver::OperationMode;
use crate::socket::Socket;

/// Buffers filled for one connection in one turn, so that the others get theirs.
const PIECES_PER_TURN_MAX: usize = 16;

/// What one read came to.
enum Read {
    Outcome(Outcome),
    Nothing,
}

impl Epoll {
    pub(super) fn start_receive(
        &mut self,
        socket: Socket,
        user_data: u64,
        mode: OperationMode,
        region_id: u16,
    ) {
        assert!(
            usize::from(region_id) < self.buffers.len(),
            "there is no region {region_id}"
        );
        self.counters.submissions += 1;
        let descriptor = super::descriptor_of(socket);
        let entry = self.entry_of(descriptor);
        assert!(
            entry.socket.is_some(),
            "C4: a receive on {socket:?}, which is closed"
        );
        assert!(
            entry.receive.is_none(),
            "C2: a second receive on {socket:?}"
        );
        entry.receive = Some(Receive {
            user_data,
            mode,
            region_id,
        });
        self.queue_receive(descriptor);
    }

    /// Puts a receive on the work list if there is something to do: read, or begin to watch.
    pub(super) fn queue_receive(&mut self, descriptor: RawFd) {
        let entry = self.entry_of(descriptor);
        let due = entry.readable || entry.interest == Interest::Nothing;
        if entry.receive.is_some() && due && !entry.receive_queued {
            entry.receive_queued = true;
            self.work.push_back(Work::Receive(descriptor));
        }
    }

    pub(super) fn run_receive(&mut self, descriptor: RawFd, completions: &mut Vec<Completion>) {
        self.entry_of(descriptor).receive_queued = false;
        if let Some(buffer) = self.entry_of(descriptor).buffer.take() {
            return self.run_recv_into(descriptor, buffer, completions);
        }
        for _ in 0..PIECES_PER_TURN_MAX {
            let entry = self.entry_of(descriptor);
            // Cancelled, or completed with one shot.
            let Some(Receive {
                user_data,
                mode,
                region_id,
            }) = entry.receive
            else {
                return;
            };
            if !entry.readable {
                if let Err(errno) = self.register_interest(descriptor, Interest::Receiving) {
                    self.entry_of(descriptor).receive = None;
                    let outcome = Outcome::Failed(errno);
                    completions.push(Completion::last(user_data, outcome));
                }
                return;
            }
            let Read::Outcome(outcome) = self.read(descriptor, region_id) else {
                continue;
            };
            let more = mode == OperationMode::Multishot && matches!(outcome, Outcome::Received(_));
            if !more {
                self.entry_of(descriptor).receive = None;
            }
            completions.push(Completion {
                user_data,
                more,
                outcome,
            });
        }
        self.queue_receive(descriptor);
    }

    fn read(&mut self, descriptor: RawFd, region_id: u16) -> Read {
        let buffers = &mut self.buffers[usize::from(region_id)];
        let Some(buffer) = buffers.take() else {
            self.counters.stalls += 1;
            return Read::Outcome(Outcome::Failed(Errno::NOBUFS));
        };
        self.counters.system_calls += 1;
        let space = buffers.space(buffer);
        let length = space.len();
        let entry = &mut self.entries[descriptor as usize];
        let Some(socket) = &entry.socket else {
            unreachable!("T1: a receive on a closed socket")
        };
        let received = recv(socket, space, RecvFlags::DONTWAIT).map(|(bytes, _)| bytes);
        match received {
            Ok(bytes @ 1..) => {
                if bytes < length && !entry.ending {
                    entry.readable = false;
                }
                Read::Outcome(Outcome::Received(buffers.filled(buffer, bytes)))
            }
            other => {
                buffers.unused(buffer);
                match other {
                    Ok(_) => Read::Outcome(Outcome::EndOfStream),
                    Err(Errno::INTR) => Read::Nothing,
                    Err(Errno::AGAIN) => {
                        entry.readable = false;
                        Read::Nothing
                    }
                    Err(errno) => Read::Outcome(Outcome::Failed(errno)),
                }
            }
        }
    }
}
