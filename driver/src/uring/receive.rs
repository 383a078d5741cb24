//! Receive: the kernel picks a buffer when bytes are there, so a waiting connection holds none.
//!
//! ENOBUFS means that no buffer was free, and is passed on as such: never as an end of stream.
//! Whether a receive without data fails with it at once differs between kernels and between single
//! and multishot receives.

use io_uring::cqueue;

use super::Uring;
use super::buffers::BufferRing;
use super::entry::{fd_of, receive_entry};
use super::origin::Origin;
use crate::completion::{Completion, Errno, Outcome};
use crate::driver::OperationMode;
use crate::socket::Socket;

impl Uring {
    pub(super) fn start_receive(
        &mut self,
        socket: Socket,
        user_data: u64,
        mode: OperationMode,
        region_id: u16,
    ) {
        let group = self.buffers[usize::from(region_id)].whole_group();
        // What comes as fast as it is taken would have every page before this thread learns of it.
        let mode = match self.single_receives {
            true => OperationMode::Single,
            false => mode,
        };
        self.start_receive_from(socket, user_data, mode, group);
    }

    pub(super) fn start_receive_sharing(&mut self, socket: Socket, user_data: u64, region_id: u16) {
        let group = self.buffers[usize::from(region_id)].shared_group();
        self.start_receive_from(socket, user_data, OperationMode::Single, group);
    }

    /// `group` is the kernel's number.
    fn start_receive_from(
        &mut self,
        socket: Socket,
        user_data: u64,
        mode: OperationMode,
        group: u16,
    ) {
        assert!(
            self.sockets.is_open(socket),
            "C4: a receive on {socket:?}, which is closed"
        );
        self.outstanding += 1;
        let entry = receive_entry(fd_of(socket), mode, group);
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
        if matches!(outcome, Outcome::Failed(Errno::NOBUFS)) {
            self.counters.stalls += 1;
        }
        completions.push(Completion::new(user_data, more, outcome));
    }
}
