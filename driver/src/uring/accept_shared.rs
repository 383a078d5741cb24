//! Accept from a listener that is shared with a [`Predecessor`](crate::Predecessor): a poll, and
//! the calls that take what has come.
//!
//! An accept of the ring waits exclusively (`poll_exclusive` in the kernel's `io_uring/opdef.c`),
//! after the predecessor's. If that hangs, its ring takes each wake-up, and the connections wait
//! until it ends. A poll without EPOLLEXCLUSIVE is woken in any case. It is armed again after each
//! turn, and then looks at the backlog, so nothing is missed. Once the predecessor is gone, the
//! accept ends with ECANCELED, and the caller's next one is that of `accept`.
//!
//! Invariants
//! - SA1: an entry of the table holds the listener open from `start_shared_accept` to the final
//!   completion, and has one poll under way.
//!
//! Cost: for each connection a poll and up to two calls of accept4(2).

use std::os::fd::AsRawFd;

use rustix::net::{SocketFlags, accept_with};

use super::Uring;
use super::entry::poll_entry;
use super::origin::Origin;
use super::table::SharedAccept;
use crate::completion::{Completion, Errno, Outcome};
use crate::driver::OperationMode;
use crate::socket::{ACCEPTS_PER_TURN_MAX, SharedListener, Socket};

impl Uring {
    pub(super) fn start_shared_accept(
        &mut self,
        listener: SharedListener,
        user_data: u64,
        mode: OperationMode,
    ) {
        let index = self.shared_accepts.insert(SharedAccept {
            user_data,
            mode,
            listener,
            cancelled: false,
        });
        self.poll_shared_listener(index as u32);
    }

    /// Marks one as cancelled; its index. `None`: the accept is none of these.
    pub(super) fn cancel_shared_accept(&mut self, user_data: u64) -> Option<u32> {
        let meant = |accept: &SharedAccept| accept.user_data == user_data;
        let index = self.shared_accepts.find(meant)?;
        self.shared_accepts[index].cancelled = true;
        Some(index as u32)
    }

    fn poll_shared_listener(&mut self, index: u32) {
        // SA1: it is in the table.
        let listener = &self.shared_accepts[index as usize].listener;
        let descriptor = listener.descriptor.as_raw_fd();
        let entry = poll_entry(descriptor, libc::POLLIN, OperationMode::Single);
        let origin = Origin::SharedAccept { index };
        self.ring.push_plain(entry.of(origin));
    }

    /// The poll has completed: takes what has come, and polls again unless the accept ends.
    pub(super) fn shared_accept_fired(
        &mut self,
        index: u32,
        result: i32,
        completions: &mut Vec<Completion>,
    ) {
        // SA1: it is in the table.
        let accept = &self.shared_accepts[index as usize];
        let (user_data, mode) = (accept.user_data, accept.mode);
        let (mut end, mut taken) = (None, 0);
        if result < 0 {
            end = Some(Outcome::Failed(Errno::from_raw_os_error(-result)));
        }
        while end.is_none() && taken < ACCEPTS_PER_TURN_MAX {
            match self.take_from_shared(index) {
                Ok(socket) if mode == OperationMode::Single => {
                    end = Some(Outcome::Accepted(socket));
                }
                Ok(socket) => {
                    let outcome = Outcome::Accepted(socket);
                    completions.push(Completion::new(user_data, true, outcome));
                    taken += 1;
                }
                Err(Errno::AGAIN) => break,
                Err(errno) => end = Some(Outcome::Failed(errno)),
            }
        }
        let accept = &self.shared_accepts[index as usize];
        if accept.cancelled || self.stopping || accept.listener.predecessor.is_gone() {
            end = end.or(Some(Outcome::Failed(Errno::CANCELED)));
        }
        let Some(outcome) = end else {
            return self.poll_shared_listener(index);
        };
        self.outstanding -= 1;
        self.shared_accepts.remove(index as usize);
        completions.push(Completion::last(user_data, outcome));
    }

    /// A connection that has come to it.
    fn take_from_shared(&mut self, index: u32) -> Result<Socket, Errno> {
        loop {
            let listener = &self.shared_accepts[index as usize].listener;
            self.counters.system_calls += 1;
            match accept_with(&*listener.descriptor, SocketFlags::CLOEXEC) {
                Ok(socket) => return Ok(self.open(socket)),
                // The connection is gone already: on to the next one.
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(errno) => return Err(errno),
            }
        }
    }
}
