//! Close, reset and finish: the ends of a connection.
//!
//! A close is an entry like any other, so closing many connections costs no call of its own. A
//! finish (FIN) of an ordinary descriptor is one call: as an entry it would go through a kernel
//! thread.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use io_uring::squeue::Flags;
use io_uring::{opcode, types};
use rustix::net::{Shutdown, shutdown, sockopt};

use super::Uring;
use super::entry::{Target, close_entry, linger_entry};
use super::origin::{Origin, Own};
use crate::socket::Socket;

impl Uring {
    pub(super) fn start_close(&mut self, socket: Socket) {
        self.sockets.close(socket);
        // SAFETY: a close points to nothing.
        unsafe { self.ring.push(close_entry(Target::of(socket)), None) };
    }

    pub(super) fn start_reset(&mut self, socket: Socket) {
        self.sockets.close(socket);
        let target = Target::of(socket);
        let close = close_entry(target);
        match target {
            Target::Descriptor(types::Fd(descriptor)) => {
                // SAFETY: the table says that the descriptor is open and ours; the entry that
                // closes it is pushed afterwards.
                let borrowed = unsafe { BorrowedFd::borrow_raw(descriptor) };
                self.counters.system_calls += 1;
                // Fails only on what is no socket; then there is nothing to reset.
                let _ = sockopt::set_socket_linger(borrowed, Some(Duration::ZERO));
                // SAFETY: a close points to nothing.
                unsafe { self.ring.push(close, None) };
            }
            Target::Slot(slot) => {
                // SAFETY: the option is a static.
                unsafe { self.ring.push(linger_entry(slot), Some(close)) };
            }
        }
    }

    pub(super) fn start_finish(&mut self, socket: Socket) {
        debug_assert!(
            self.sockets.is_open(socket),
            "C4: {socket:?} is finished after its close"
        );
        debug_assert!(
            self.sockets.sending(socket).is_none(),
            "C3: finished during a send"
        );
        match Target::of(socket) {
            Target::Descriptor(types::Fd(descriptor)) => {
                // SAFETY: the table says that the descriptor is open and ours.
                let borrowed = unsafe { BorrowedFd::borrow_raw(descriptor) };
                self.counters.system_calls += 1;
                // ENOTCONN: the peer was faster, and the next receive says so.
                let _ = shutdown(borrowed, Shutdown::Write);
            }
            Target::Slot(slot) => {
                let entry = opcode::Shutdown::new(slot, libc::SHUT_WR).build();
                let entry = entry.user_data(Origin::Own(Own::Finish).pack());
                // SAFETY: a shutdown points to nothing.
                unsafe { self.ring.push(entry.flags(Flags::SKIP_SUCCESS), None) };
            }
        }
    }
}
