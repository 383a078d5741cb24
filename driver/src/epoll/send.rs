//! Send: write in the turn it was started; what the socket does not take waits for an event.

use std::os::fd::{AsFd, RawFd};

use super::table::{Interest, Send};
use super::{Epoll, Work};
use crate::completion::{Completion, Errno, Outcome};
use crate::driver::AfterSend;
use crate::pipe::write_front;
use crate::segment::SendList;
use crate::socket::{Mode, Socket};

/// Writes to one connection in one turn, so that the others get theirs.
const WRITES_PER_TURN_MAX: usize = 16;

impl Epoll {
    pub(super) fn start_send(
        &mut self,
        socket: Socket,
        user_data: u64,
        list: SendList,
        after: AfterSend,
    ) {
        self.counters.submissions += 1;
        let descriptor = super::descriptor_of(socket);
        let index = self.sends.insert(Send {
            user_data,
            list,
            after,
        });
        let entry = self.entry_of(descriptor);
        assert!(
            entry.socket.is_some(),
            "C4: a send on {socket:?}, which is closed"
        );
        assert!(entry.send.is_none(), "C2: a second send on {socket:?}");
        entry.send = Some(index);
        // A write that found no room has registered for an event; this one may wait for it, too.
        self.queue_send(descriptor);
    }

    pub(super) fn queue_send(&mut self, descriptor: RawFd) {
        let entry = self.entry_of(descriptor);
        if entry.send.is_some() && entry.writable && !entry.send_queued {
            entry.send_queued = true;
            self.work.push_back(Work::Send(descriptor));
        }
    }

    pub(super) fn run_send(&mut self, descriptor: RawFd, completions: &mut Vec<Completion>) {
        self.entry_of(descriptor).send_queued = false;
        for _ in 0..WRITES_PER_TURN_MAX {
            // Cancelled, or complete.
            let Some(index) = self.entry_of(descriptor).send else {
                return;
            };
            match self.write(descriptor, index) {
                Ok(bytes) => self.wrote(descriptor, index, bytes, completions),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    self.entry_of(descriptor).writable = false;
                    if let Err(errno) = self.register_interest(descriptor, Interest::Both) {
                        self.end_send(descriptor, index, Outcome::Failed(errno), completions);
                    }
                    return;
                }
                Err(errno) => self.end_send(descriptor, index, Outcome::Failed(errno), completions),
            }
        }
        self.queue_send(descriptor);
    }

    /// One system call with all that is left of the list, up to the first pipe.
    fn write(&mut self, descriptor: RawFd, index: usize) -> Result<usize, Errno> {
        let Send { list, after, .. } = &self.sends[index];
        let entry = &self.entries[descriptor as usize];
        let Some(socket) = &entry.socket else {
            unreachable!("T1: a send on a closed socket")
        };
        if list.is_empty() {
            return Ok(0);
        }
        self.counters.system_calls += 1;
        let closes = *after == AfterSend::Close;
        write_front(socket.as_fd(), list, Mode::NonBlocking, closes)
    }

    fn wrote(
        &mut self,
        descriptor: RawFd,
        index: usize,
        bytes: usize,
        completions: &mut Vec<Completion>,
    ) {
        let send = &mut self.sends[index];
        let (user_data, closed) = (send.user_data, send.after == AfterSend::Close);
        send.list.advance(bytes);
        if send.list.is_empty() {
            self.end_send(
                descriptor,
                index,
                Outcome::Sent { bytes, closed },
                completions,
            );
            if closed {
                self.close_descriptor(descriptor);
            }
        } else {
            self.counters.short_sends += 1;
            let outcome = Outcome::Sent {
                bytes,
                closed: false,
            };
            completions.push(Completion::more(user_data, outcome));
        }
    }

    pub(super) fn end_send(
        &mut self,
        descriptor: RawFd,
        index: usize,
        outcome: Outcome,
        completions: &mut Vec<Completion>,
    ) {
        let user_data = self.sends.remove(index).user_data;
        self.entry_of(descriptor).send = None;
        completions.push(Completion::last(user_data, outcome));
    }
}
