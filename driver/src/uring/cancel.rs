//! Cancel: by the 64 bits the operation was submitted with, which the kernel finds by a hash.
//!
//! The cancelled operation completes by itself, with ECANCELED or with what it had come to. The
//! kernel does not find an operation that it is about to try again, because what it waited for was
//! there at once (`IO_APOLL_READY`). A receive or a connect has something to say then. A send may
//! fill the socket once more and wait, with nothing to say for as long as the peer reads nothing.
//! So the cancel of a send is repeated until the send is over.

use super::Uring;
use super::entry::cancel_entry;
use super::origin::Origin;
use crate::driver::Operation;

impl Uring {
    pub(super) fn start_cancel(&mut self, operation: Operation<'_>, user_data: u64) {
        let origin = match operation {
            Operation::Accept(_) => match self.cancel_shared_accept(user_data) {
                Some(index) => Origin::SharedAccept { index },
                None => Origin::Accept { user_data },
            },
            Operation::Receive(_) => Origin::Receive { user_data },
            Operation::Connect(socket) => {
                let Some(index) = self.meant_connect(socket, user_data) else {
                    return;
                };
                Origin::Connect { index }
            }
            Operation::PollEventfd(event) => {
                let Some(index) = self.cancel_poll(event, user_data) else {
                    return;
                };
                Origin::PollEventfd { index }
            }
            Operation::ReceiveDatagrams(from) => {
                let Some(index) = self.cancel_datagrams(from, user_data) else {
                    return;
                };
                Origin::Datagrams { index }
            }
            Operation::Send(socket) => {
                let Some(index) = self.sockets.sending(socket) else {
                    return;
                };
                let send = self.sends.at(index);
                if send.user_data != user_data {
                    return;
                }
                // A short send that is under way must not be continued.
                send.cancelled = true;
                Origin::Send { index }
            }
        };
        self.ring.push_plain(cancel_entry(origin));
    }

    /// The kernel did not find the send, or has it on a thread of its own.
    pub(super) fn cancel_send_again(&mut self, index: u32) {
        if self.sends.at(index).cancelled && !self.stopping {
            let origin = Origin::Send { index };
            self.ring.push_plain(cancel_entry(origin));
        }
    }
}
