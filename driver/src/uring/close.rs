//! Close, abort and shutdown of the writing side: the ends of a connection.
//!
//! A close is an entry like any other, so closing many connections costs no call of its own. A
//! shutdown (FIN) is one call: as an entry it would go through a kernel thread.

use std::os::fd::BorrowedFd;

use super::Uring;
use super::entry::{close_entry, fd_of};
use crate::socket::{Socket, end_writing, reset_at_close};

impl Uring {
    pub(super) fn start_close(&mut self, socket: Socket) {
        self.sockets.close(socket);
        self.ring.push_plain(close_entry(fd_of(socket)));
    }

    pub(super) fn start_abort(&mut self, socket: Socket) {
        assert!(
            self.sockets.is_open(socket),
            "C4: {socket:?} is aborted after its close"
        );
        // SAFETY: the table says that the descriptor is open and ours; the entry that closes it is
        // pushed afterwards.
        let borrowed = unsafe { BorrowedFd::borrow_raw(fd_of(socket).0) };
        self.counters.system_calls += 1;
        reset_at_close(borrowed);
        self.start_close(socket);
    }

    pub(super) fn start_shutdown_write(&mut self, socket: Socket) {
        assert!(
            self.sockets.is_open(socket),
            "C4: {socket:?} is finished after its close"
        );
        debug_assert!(
            self.sockets.sending(socket).is_none(),
            "C3: finished during a send"
        );
        // SAFETY: the table says that the descriptor is open and ours.
        let borrowed = unsafe { BorrowedFd::borrow_raw(fd_of(socket).0) };
        self.counters.system_calls += 1;
        end_writing(borrowed);
    }
}
