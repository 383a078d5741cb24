//! Receive: read when a read is worth a call, into a buffer taken for that moment.
//!
//! A fresh socket is read at once: a request often arrives with its connection. A read that leaves
//! room in the buffer has drained the socket, so the next arrival makes an event, and no call is
//! spent on finding out. Only once the peer has finished, or the connection broke, is that not so.

use std::os::fd::RawFd;

use rustix::net::{RecvFlags, recv};

use super::Epoll;
use super::table::{Entry, Interest, Receive};
use crate::completion::{Completion, Errno, Outcome};
use crate::driver::OperationMode;
use crate::socket::Socket;

/// Buffers filled for one connection in one turn, so that the others get theirs.
const PIECES_PER_TURN_MAX: usize = 16;

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
        let descriptor = socket.raw();
        let entry = self.open_entry(socket);
        assert!(
            entry.receive.is_none(),
            "C2: a second receive on {socket:?}"
        );
        entry.receive = Some(Receive {
            user_data,
            mode,
            region_id,
        });
        self.list(descriptor);
    }

    /// Reads up to a bound, or waits for an event when nothing is there (T3).
    pub(super) fn run_receive(&mut self, descriptor: RawFd, completions: &mut Vec<Completion>) {
        if let Some(buffer) = self.entry_of(descriptor).buffer.take() {
            return completions.push(self.run_recv_into(descriptor, buffer));
        }
        for _ in 0..PIECES_PER_TURN_MAX {
            let entry = &mut self.entries[descriptor as usize];
            // Cancelled, or completed with one shot.
            let Some(receive) = entry.receive else {
                return;
            };
            if !entry.readable {
                if entry.interest == Interest::Nothing {
                    completions.extend(self.await_bytes(descriptor, receive));
                }
                return;
            }
            let buffers = &mut self.buffers[usize::from(receive.region_id)];
            let outcome = if let Some(buffer) = buffers.take() {
                self.counters.system_calls += 1;
                let read = entry.read(buffers.space(buffer));
                if let Ok(bytes @ 1..) = read {
                    Outcome::Received(buffers.filled(buffer, bytes))
                } else {
                    buffers.unused(buffer);
                    match read {
                        Ok(_) => Outcome::EndOfStream,
                        Err(Errno::AGAIN | Errno::INTR) => continue,
                        Err(errno) => Outcome::Failed(errno),
                    }
                }
            } else {
                let stalled = Outcome::Failed(Errno::NOBUFS);
                self.counters.count_stall(&stalled);
                stalled
            };
            let is_multishot = receive.mode == OperationMode::Multishot;
            let more = is_multishot && matches!(outcome, Outcome::Received(_));
            if !more {
                entry.receive = None;
            }
            completions.push(Completion::new(receive.user_data, more, outcome));
        }
    }

    fn await_bytes(&mut self, descriptor: RawFd, receive: Receive) -> Option<Completion> {
        let errno = self
            .register_interest(descriptor, Interest::Receiving)
            .err()?;
        self.entry_of(descriptor).receive = None;
        Some(Completion::last(receive.user_data, Outcome::Failed(errno)))
    }
}

impl Entry {
    /// One read, and what it tells about the socket.
    pub(super) fn read(&mut self, space: &mut [u8]) -> Result<usize, Errno> {
        let length = space.len();
        let read = recv(self.socket(), space, RecvFlags::DONTWAIT).map(|(bytes, _)| bytes);
        let is_drained = match read {
            Ok(bytes) => bytes > 0 && bytes < length && !self.ending,
            Err(errno) => errno == Errno::AGAIN,
        };
        self.readable &= !is_drained;
        read
    }
}
