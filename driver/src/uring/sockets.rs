//! Which sockets are open, and which send each of them carries, or which connect.
//!
//! Indexed by descriptor, a small number, as the kernel gives out the lowest free one. Four bytes
//! per number ever used.
//!
//! Invariants
//! - K1: a socket is open from its accept (or adoption) to its close, as the caller sees it; the
//!   kernel closes later, when the entry is submitted. It cannot give the number out again before.
//! - K2: of a close behind a send (`send`, P3) the caller hears with the send. The kernel has done
//!   it by then, and may have given the number out again. A connection that an operation of the
//!   ring brings is heard of after that send, in the order of completions; a descriptor that comes
//!   by a call of this thread may come before it, so it gets a number that is closed here, too
//!   ([`SocketTable::has`], `Uring::adopt`).

use std::os::fd::RawFd;

use super::entry::fd_of;
use crate::socket::Socket;

const CLOSED: u32 = u32::MAX;
const IDLE: u32 = u32::MAX - 1;
/// The first state of a socket that is being connected; the rest is the index of its connect. Those
/// below are indices of sends.
const CONNECTS: u32 = 1 << 31;

#[derive(Default)]
pub(super) struct SocketTable {
    descriptors: Vec<u32>,
    open: u32,
}

impl SocketTable {
    fn state(&mut self, socket: Socket) -> &mut u32 {
        let index = fd_of(socket).0 as usize;
        if index >= self.descriptors.len() {
            self.descriptors.resize(index + 1, CLOSED);
        }
        &mut self.descriptors[index]
    }

    pub(super) fn open(&mut self, socket: Socket) {
        let state = self.state(socket);
        debug_assert_eq!(*state, CLOSED, "K1: {socket:?} is open already");
        *state = IDLE;
        self.open += 1;
    }

    /// Panics when a send is outstanding or the socket is not open: after that, its number may be
    /// that of another file.
    pub(super) fn close(&mut self, socket: Socket) {
        let state = self.state(socket);
        assert_ne!(*state, CLOSED, "C4: {socket:?} is closed already");
        assert_eq!(
            *state, IDLE,
            "C3: {socket:?} is closed during a send or a connect"
        );
        *state = CLOSED;
        self.open -= 1;
    }

    pub(super) fn start_send(&mut self, socket: Socket, index: u32) {
        let state = self.state(socket);
        assert_ne!(*state, CLOSED, "C4: a send on {socket:?}, which is closed");
        assert_eq!(*state, IDLE, "C2: a second send on {socket:?}");
        *state = index;
    }

    pub(super) fn end_send(&mut self, socket: Socket) {
        let state = self.state(socket);
        debug_assert!(*state < CONNECTS, "no send was outstanding on {socket:?}");
        *state = IDLE;
    }

    pub(super) fn start_connect(&mut self, socket: Socket, index: u32) {
        self.start_send(socket, CONNECTS + index);
    }

    pub(super) fn end_connect(&mut self, socket: Socket) {
        *self.state(socket) = IDLE;
    }

    /// The connect outstanding on a socket.
    pub(super) fn connecting(&mut self, socket: Socket) -> Option<u32> {
        let state = *self.state(socket);
        (CONNECTS..IDLE).contains(&state).then(|| state - CONNECTS)
    }

    /// The send outstanding on a socket.
    pub(super) fn sending(&mut self, socket: Socket) -> Option<u32> {
        Some(*self.state(socket)).filter(|index| *index < CONNECTS)
    }

    /// Whether the number is one of an open socket.
    pub(super) fn has(&self, descriptor: RawFd) -> bool {
        let index = usize::try_from(descriptor).unwrap_or(usize::MAX);
        let state = self.descriptors.get(index);
        state.is_some_and(|state| *state != CLOSED)
    }

    pub(super) fn is_open(&mut self, socket: Socket) -> bool {
        *self.state(socket) != CLOSED
    }

    pub(super) fn count(&self) -> u32 {
        self.open
    }

    /// Descriptors that are open; they are closed in this table afterwards.
    pub(super) fn take_descriptors(&mut self) -> Vec<RawFd> {
        let states = std::mem::take(&mut self.descriptors);
        let open = states
            .iter()
            .enumerate()
            .filter(|(_, state)| **state != CLOSED);
        open.map(|(descriptor, _)| descriptor as RawFd).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::socket::Handle;

    fn socket(descriptor: RawFd) -> Socket {
        Socket::new(Handle::Descriptor(descriptor))
    }

    #[test]
    fn a_send_is_found_by_its_socket() {
        let mut table = SocketTable::default();
        table.open(socket(3));
        assert_eq!(table.sending(socket(3)), None);
        table.start_send(socket(3), 12);
        assert_eq!(table.sending(socket(3)), Some(12));
        table.end_send(socket(3));
        assert_eq!(table.sending(socket(3)), None);
    }

    #[test]
    fn a_connect_is_found_by_its_socket_and_is_no_send() {
        let mut table = SocketTable::default();
        table.open(socket(3));
        assert_eq!(table.connecting(socket(3)), None);
        table.start_connect(socket(3), 0);
        assert_eq!(table.connecting(socket(3)), Some(0));
        assert_eq!(table.sending(socket(3)), None);
        table.end_connect(socket(3));
        assert_eq!(table.connecting(socket(3)), None);
        table.start_send(socket(3), 12);
        assert_eq!(table.connecting(socket(3)), None);
    }

    #[test]
    #[should_panic(expected = "during a send")]
    fn closing_during_a_connect_is_found_out() {
        let mut table = SocketTable::default();
        table.open(socket(3));
        table.start_connect(socket(3), 7);
        table.close(socket(3));
    }

    #[test]
    #[should_panic(expected = "closed already")]
    fn closing_twice_is_found_out() {
        let mut table = SocketTable::default();
        table.open(socket(3));
        table.close(socket(3));
        table.close(socket(3));
    }

    #[test]
    #[should_panic(expected = "during a send")]
    fn closing_during_a_send_is_found_out() {
        let mut table = SocketTable::default();
        table.open(socket(3));
        table.start_send(socket(3), 0);
        table.close(socket(3));
    }
}
