//! Send: the whole list with one entry when it is short, in parts with visible progress when it is
//! long, and the close after the last byte.
//!
//! A list of at most 64 KiB (`WHOLE_BYTES_MAX`) is sent with MSG_WAITALL: the kernel waits for room
//! and completes once. A close can be linked after it, because a short send breaks the link. A
//! longer list is sent without: each completion then says how far a slow peer has come, and the
//! rest is submitted again, after a poll, because the socket was just found full.
//!
//! A list with a pipe or a file in it is written by this thread, with calls that do not block: as
//! an entry a splice would go through a kernel thread, which a slow peer then holds, and
//! `sendfile` is none. Between the calls a poll waits for room.
//!
//! Invariants
//! - P1: an entry of the table is live from `start_send` to its final completion; what the kernel
//!   may read (bytes, vectors, header) is in it or owned by it, and it never moves: entries are
//!   boxed.
//! - P2: at most one submission per entry is under way.
//! - P3: a list with a close after it is sent with MSG_MORE: the last bytes leave with the close,
//!   in one segment with the FIN. The kernel runs the linked close within the same call.
//! - P4: the entry of a short list with [`AfterSend::Rest`] never waits (MSG_DONTWAIT) and
//!   completes in silence (IOSQE_CQE_SKIP_SUCCESS): it ends when it is submitted, and if it did not
//!   send all, its completion is in the queue by then. So one that was submitted and has none went
//!   through.
//!
//! Cost: after warm-up no allocation; one entry in the queue per send, two with a close.

use std::os::fd::BorrowedFd;

use io_uring::cqueue;

use super::Uring;
use super::entry::{fd_of, poll_entry};
use super::origin::Origin;
use crate::completion::{Completion, Errno, Outcome};
use crate::driver::{AfterSend, OperationMode, send_nothing};
use crate::segment::SendList;
use crate::socket::{Mode, Socket};

/// Calls for one list with a pipe or a file before the others get their turn.
const CALLS_MAX: usize = 16;

/// IORING_RECVSEND_POLL_FIRST of the kernel's header: wait for room before the first attempt.
const POLL_FIRST: u16 = 1;

impl Uring {
    pub(super) fn start_send(
        &mut self,
        socket: Socket,
        user_data: u64,
        list: &mut SendList,
        after: AfterSend,
    ) {
        if list.is_empty() {
            let outcome = send_nothing(self, socket, after);
            return self.unasked.push(Completion::last(user_data, outcome));
        }
        let is_called = list.needs_calls();
        let index = self.sends.insert(socket, user_data, list, after);
        self.sockets.start_send(socket, index);
        self.outstanding += 1;
        if is_called {
            // Completions come out of a wait only.
            let mut unasked = std::mem::take(&mut self.unasked);
            self.continue_writing(index, &mut unasked);
            self.unasked = unasked;
        } else {
            self.submit_send(index, 0);
        }
    }

    /// Writes what the socket takes of a list with pipes or files; a poll waits for room for the
    /// rest. What lies after the last of them is sent like any list.
    fn continue_writing(&mut self, index: u32, completions: &mut Vec<Completion>) {
        let send = self.sends.at(index);
        // SAFETY: the table says that the descriptor is open and ours during a send (C3).
        let socket = unsafe { BorrowedFd::borrow_raw(fd_of(send.socket).0) };
        let closes = send.after == AfterSend::Close;
        let mut written = 0;
        let mut failed = None;
        for _ in 0..CALLS_MAX {
            if !send.list.needs_calls() {
                break;
            }
            self.counters.system_calls += 1;
            match send.list.write_front(socket, Mode::Blocking, closes) {
                Ok(bytes) => {
                    send.list.advance(bytes);
                    written += bytes;
                }
                Err(Errno::INTR) => {}
                Err(errno) => {
                    failed = Some(errno).filter(|errno| *errno != Errno::AGAIN);
                    break;
                }
            }
        }
        let (user_data, some_left) = (send.user_data, send.list.needs_calls());
        if send.list.is_empty() {
            self.end_complete_send(index, written, completions);
            return;
        }
        if written > 0 {
            self.counters.short_sends += 1;
            let outcome = Outcome::Sent {
                bytes: written,
                closed: false,
            };
            completions.push(Completion::new(user_data, true, outcome));
        }
        if let Some(errno) = failed {
            self.end_send(index, Outcome::Failed(errno), completions);
        } else if some_left {
            self.poll_for_room(index);
        } else {
            self.submit_send(index, 0);
        }
    }

    fn poll_for_room(&mut self, index: u32) {
        let send = self.sends.at(index);
        send.polls = true;
        let descriptor = fd_of(send.socket).0;
        let entry = poll_entry(descriptor, libc::POLLOUT, OperationMode::Single);
        self.ring.push_plain(entry.of(Origin::Send { index }));
    }

    /// There is room, or the connection broke, which the next call reports; or the poll was
    /// cancelled.
    fn polled(&mut self, index: u32, result: i32, completions: &mut Vec<Completion>) {
        let send = self.sends.at(index);
        send.polls = false;
        if send.cancelled || self.stopping {
            self.end_send(index, Outcome::Failed(Errno::CANCELED), completions);
        } else if result < 0 {
            let errno = Errno::from_raw_os_error(-result);
            self.end_send(index, Outcome::Failed(errno), completions);
        } else {
            self.continue_writing(index, completions);
        }
    }

    fn submit_send(&mut self, index: u32, options: u16) {
        let send = self.sends.at(index);
        let is_silent = self.silence && options == 0 && send.may_be_silent();
        send.silent = is_silent.then(|| self.ring.pushed());
        self.silent
            .extend(send.silent.map(|number| (number, index)));
        let (entry, linked) = send.entry(options);
        let entry = entry.user_data(Origin::Send { index }.pack());
        // SAFETY: P1: what the entry points to stays until the final completion removes it.
        unsafe { self.ring.push(entry, linked) };
    }

    /// Ends the sends that were submitted and had nothing to say in what was reaped (P4): before
    /// the caller hears what came after them, such as the next request.
    pub(super) fn end_silent(
        &mut self,
        reaped: &[cqueue::Entry],
        completions: &mut Vec<Completion>,
    ) {
        if self.silent.is_empty() || self.ring.is_overflown() {
            return;
        }
        for entry in reaped {
            if let Origin::Send { index } = Origin::unpack(entry.user_data()) {
                self.sends.at(index).silent = None;
            }
        }
        let mut silent = std::mem::take(&mut self.silent);
        silent.retain(|&(number, index)| {
            if number >= self.ring.submissions {
                return true;
            }
            let send = self.sends.at(index);
            if send.silent == Some(number) {
                let bytes = send.list.bytes();
                self.end_complete_send(index, bytes, completions);
            }
            false
        });
        self.silent = silent;
    }

    pub(super) fn sent(&mut self, index: u32, result: i32, completions: &mut Vec<Completion>) {
        let send = self.sends.at(index);
        if send.polls {
            self.polled(index, result, completions);
            return;
        }
        let user_data = send.user_data;
        let Ok(bytes) = usize::try_from(result) else {
            let errno = Errno::from_raw_os_error(-result);
            if matches!(errno, Errno::AGAIN | Errno::INTR) && !send.cancelled && !self.stopping {
                self.submit_send(index, POLL_FIRST);
            } else {
                self.end_send(index, Outcome::Failed(errno), completions);
            }
            return;
        };
        send.list.advance(bytes);
        if send.list.is_empty() {
            self.end_complete_send(index, bytes, completions);
            return;
        }
        self.counters.short_sends += 1;
        if bytes > 0 {
            let outcome = Outcome::Sent {
                bytes,
                closed: false,
            };
            completions.push(Completion::new(user_data, true, outcome));
        }
        if self.sends.at(index).cancelled || self.stopping {
            self.end_send(index, Outcome::Failed(Errno::CANCELED), completions);
        } else if bytes == 0 {
            // Not known to happen; another attempt would spin.
            self.end_send(index, Outcome::Failed(Errno::IO), completions);
        } else {
            self.submit_send(index, POLL_FIRST);
        }
    }

    fn end_complete_send(&mut self, index: u32, bytes: usize, completions: &mut Vec<Completion>) {
        let send = self.sends.at(index);
        let (socket, closed, linked) = (send.socket, send.after == AfterSend::Close, send.linked);
        self.end_send(index, Outcome::Sent { bytes, closed }, completions);
        if closed && linked {
            // The kernel continues with the linked close; the number is free from now on (K1).
            self.sockets.close(socket);
        } else if closed {
            self.start_close(socket);
        }
    }

    fn end_send(&mut self, index: u32, outcome: Outcome, completions: &mut Vec<Completion>) {
        let send = self.sends.at(index);
        let (socket, user_data) = (send.socket, send.user_data);
        self.sends.remove(index);
        self.sockets.end_send(socket);
        self.outstanding -= 1;
        completions.push(Completion::last(user_data, outcome));
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use bytes::Bytes;

    use super::super::ring::Block;
    use super::*;
    use crate::config::DriverConfig;
    use crate::driver::Driver;
    use crate::testing::{given, not_on_this_kernel};

    #[test]
    fn a_silent_send_has_not_ended_before_the_kernel_has_taken_it() {
        let Some(mut uring) = given(Uring::new(&DriverConfig::default())) else {
            return;
        };
        if !uring.silence {
            not_on_this_kernel("sends that complete in silence", (5, 17));
            return;
        }
        // Nothing of before is left to submit.
        uring.ring.turn(Block::No).expect("the ring works");
        let (ours, _theirs) = UnixStream::pair().expect("a pair");
        let socket = uring.register(ours.into()).expect("a socket");
        let mut list = SendList::new();
        list.push(Bytes::from_static(b"reply").into())
            .expect("room");
        uring.send(socket, 5, &mut list, AfterSend::Rest);
        let mut completions = vec![];
        uring.end_silent(&[], &mut completions);
        assert!(completions.is_empty(), "{completions:?}");
        uring.ring.turn(Block::No).expect("the ring works");
        uring.end_silent(&[], &mut completions);
        assert!(
            matches!(
                completions[..],
                [Completion {
                    user_data: 5,
                    outcome: Outcome::Sent { bytes: 5, .. },
                    ..
                }]
            ),
            "{completions:?}"
        );
    }
}
