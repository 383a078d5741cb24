//! Bytes in by reference: what a stream has brought, in a pipe, for a protocol that puts it in a
//! file.
//!
//! A protocol asks for it ([`Io::receive_piped`](crate::Io::receive_piped)) while it takes a long
//! body. Where the next receive would be armed, the kernel says how much is there. If that is
//! enough, its packets are moved to a pipe, and the protocol gets the pipe; otherwise the receive
//! is armed as ever. So a client that brings little at a time holds no pipe, and costs one system
//! call for each receive that its protocol has so announced.
//!
//! - Order: only what would be received next comes so. While anything is in the inbox, input is
//!   stalled, or a receive is outstanding, there is none.
//! - Records of TLS are not moved: they have to be opened here.
//! - A pipe is in use for as long as its bytes need to be written, and there are few
//!   ([`SPLICE_PIPES_MAX`](crate::limits::SPLICE_PIPES_MAX)), which splices use as well. Without
//!   one the bytes are received.
//! - The pages in it are the kernel's, as those in the socket were.
//! - With the pipe the stream itself is lent ([`Lent`](flatpath_driver::Lent)): a worker that has
//!   written what lay in the pipe fills it again, and is back when less has come. The stream is
//!   taken back when the connection does anything but wait for that job ([`Stall::Body`]), so
//!   nothing is received here before, and an end does not wait for a worker.
//!
//! Cost: up to seven system calls for as much as the protocol wants, and two for each time that the
//! worker fills the pipe again.

use std::ops::RangeInclusive;

use flatpath_driver::Driver;

use crate::network::waits::Wait;
use crate::protocol;
#[cfg(doc)]
use crate::protocol::phase::Stall;

use super::thread::Event;

/// Descriptors that are counted for a pipe: its ends, and the stream that is lent with it.
pub(super) const PIPE_DESCRIPTORS: usize = 3;

impl<D: Driver> Event<'_, D> {
    /// Brings the protocol what there is in a pipe, if it wants it so, in place of a receive.
    pub(super) fn receive_piped(&mut self) {
        if let Some((least, most)) = self.connection.wants_piped() {
            self.splice_to_protocol(least as usize..=most as usize);
        }
    }

    fn splice_to_protocol(&mut self, bounds: RangeInclusive<usize>) {
        let (socket, thread) = (self.connection.socket(), &mut *self.thread);
        let spliced = thread.driver.splice_from(socket, &thread.pipes, bounds);
        let Some(mut piped) = spliced else {
            return;
        };
        let bytes = piped.len() as u64;
        if let Some(lent) = thread.driver.lend(socket) {
            piped.lend(lent.clone());
            self.connection.lend(lent);
        }
        self.connection.receive_piped(None);
        self.call(|_, mut io| io.count_piped(bytes));
        self.report(protocol::Event::Piped(piped));
        self.connection.take_back();
        let connection = &*self.connection;
        if connection.is_becoming() || !connection.is_sent() {
            // Output and successors have had their turn in this event.
            self.wait(Wait::Again);
        }
    }
}
