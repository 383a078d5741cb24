//! Receive: the kernel picks a buffer when bytes are there, so a waiting connection holds none.
//!
//! ENOBUFS means that no buffer was free, and is passed on as such: never as an end of stream.
//! Whether a receive without data fails with it at once differs between kernels and between single
//! and multishot receives.
//!
//! A receive of many pieces ends by itself after some, or the kernel pauses: [`ReceiveBound`].

use std::sync::OnceLock;

use io_uring::cqueue;

use super::buffers::BufferRing;
use super::entry::{Plain, fd_of, limited_receive_entry, receive_entry};
use super::origin::Origin;
use super::{PAUSING_RECEIVES, Uring};
use crate::completion::{Completion, Errno, Outcome};
use crate::driver::OperationMode;
use crate::probe::sockets::limited_receive;
use crate::socket::Socket;

/// What keeps a multishot receive from taking every page for one connection before this thread
/// learns of the first: its client may be as fast as the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReceiveBound {
    /// It ends once it has brought [`PAGES_MAX`] pages full of bytes, and is armed anew.
    Total,
    /// The kernel leaves what comes after 33 pieces to the next wait.
    Pause,
    /// Nothing does, so each receive brings one piece.
    Single,
}

/// The bytes that one receive brings, in pages. Pieces may be more: one that is not full was all
/// that was there.
const PAGES_MAX: u32 = 32;

impl ReceiveBound {
    /// The best that this kernel offers, tried at the first call.
    pub(super) fn best() -> ReceiveBound {
        static BEST: OnceLock<ReceiveBound> = OnceLock::new();
        *BEST.get_or_init(|| match () {
            () if limited_receive().is_ok() => ReceiveBound::Total,
            () if PAUSING_RECEIVES.works() => ReceiveBound::Pause,
            () => ReceiveBound::Single,
        })
    }
}

impl Uring {
    pub(super) fn start_receive(
        &mut self,
        socket: Socket,
        user_data: u64,
        mode: OperationMode,
        region_id: u16,
    ) {
        let buffers = &self.buffers[usize::from(region_id)];
        let (fd, group) = (fd_of(socket), buffers.whole_group());
        let entry = match (mode, self.receive_bound) {
            (OperationMode::Single, _) | (_, ReceiveBound::Single) => {
                receive_entry(fd, OperationMode::Single, group)
            }
            (OperationMode::Multishot, ReceiveBound::Pause) => receive_entry(fd, mode, group),
            (OperationMode::Multishot, ReceiveBound::Total) => {
                let bytes_max = PAGES_MAX.saturating_mul(buffers.region().page_bytes());
                limited_receive_entry(fd, group, bytes_max.min(i32::MAX as u32))
            }
        };
        self.push_receive(socket, user_data, entry);
    }

    pub(super) fn start_receive_sharing(&mut self, socket: Socket, user_data: u64, region_id: u16) {
        let group = self.buffers[usize::from(region_id)].shared_group();
        let entry = receive_entry(fd_of(socket), OperationMode::Single, group);
        self.push_receive(socket, user_data, entry);
    }

    fn push_receive(&mut self, socket: Socket, user_data: u64, entry: Plain) {
        assert!(
            self.sockets.is_open(socket),
            "C4: a receive on {socket:?}, which is closed"
        );
        self.outstanding += 1;
        self.ring
            .push_plain(entry.of(Origin::Receive { user_data }));
    }

    /// The buffer ring that a buffer number is of: numbers continue from one to the next.
    ///
    /// # Panics
    /// When it is of none.
    pub(super) fn ring_of(&mut self, buffer: u16) -> &mut BufferRing {
        let found = self.buffers.iter_mut().find(|ring| ring.has(buffer));
        found.expect("B1: the kernel names a buffer that it was given")
    }

    pub(super) fn received(
        &mut self,
        user_data: u64,
        entry: &cqueue::Entry,
        completions: &mut Vec<Completion>,
    ) {
        let more = cqueue::more(entry.flags());
        self.outstanding -= u32::from(!more);
        let buffer = cqueue::buffer_select(entry.flags());
        let result = entry.result();
        let outcome = match (u32::try_from(result), buffer) {
            (Ok(bytes @ 1..), Some(buffer)) => {
                let piece = self.ring_of(buffer).take(buffer, bytes);
                self.counters.shared_receives += u64::from(piece.offset > 0);
                Outcome::Received(piece)
            }
            (length, buffer) => {
                if let Some(buffer) = buffer {
                    // Some kernels name a buffer at the end of the stream or with an error.
                    self.ring_of(buffer).take_nothing(buffer);
                }
                match length {
                    Ok(0) => Outcome::EndOfStream,
                    Ok(_) => Outcome::Failed(Errno::IO),
                    Err(_) => Outcome::Failed(Errno::from_raw_os_error(-result)),
                }
            }
        };
        self.counters.count_stall(&outcome);
        completions.push(Completion::new(user_data, more, outcome));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::DriverConfig;
    use crate::testing::{given, not_on_this_kernel};
    use crate::uring::Uring;

    /// The probe's finding is that of both ways, so it does not show that one of them is refused.
    #[test]
    fn a_receive_ends_with_its_bytes_where_linux_is_new_enough() {
        if given(Uring::new(&DriverConfig::default())).is_none() {
            return;
        }
        if ReceiveBound::best() != ReceiveBound::Total {
            not_on_this_kernel("a receive that ends with a number of bytes", (6, 17));
        }
    }
}
