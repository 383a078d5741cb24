//! Connect: one entry for TCP, which waits for the peer as any operation waits; a Unix socket is
//! connected in the call (`remote.rs`).
//!
//! The kernel starts the handshake, waits until the socket can be written to, and asks for the
//! outcome (io_uring/net.c, `io_connect`). The socket blocks: of one that does not, the kernel
//! would complete the entry with EAGAIN instead of waiting.
//!
//! Invariants
//! - UC1: an entry of the table holds the address from `start_connect` to the completion, at a
//!   place that does not move. The kernel copies it when the entry is submitted
//!   (`io_connect_prep`).
//! - UC2: nothing else is under way on the socket meanwhile (C9): its state says so.
//!
//! Cost: one entry in the queue; after warm-up no allocation.

use std::os::fd::BorrowedFd;

use io_uring::opcode;
use rustix::io::ioctl_fionbio;
use rustix::net::{SocketAddrAny, SocketFlags};

use super::Uring;
use super::entry::fd_of;
use super::origin::Origin;
use super::table::Connect;
use crate::completion::{Completion, Errno, Outcome};
use crate::remote::Remote;
use crate::socket::Socket;

impl Uring {
    pub(super) fn make_socket(&mut self, remote: &Remote) -> Result<Socket, Errno> {
        self.counters.system_calls += 2;
        let flags = match remote {
            Remote::Tcp(_) => SocketFlags::empty(),
            Remote::Unix(_) => SocketFlags::NONBLOCK,
        };
        let socket = remote.socket(flags)?;
        self.adopt(socket)
    }

    pub(super) fn start_connect(&mut self, socket: Socket, remote: &Remote, user_data: u64) {
        assert!(
            self.sockets.is_open(socket),
            "C4: a connect of {socket:?}, which is closed"
        );
        let Remote::Tcp(address) = remote else {
            let outcome = match self.connect_unix(socket, remote) {
                Ok(()) => Outcome::Connected,
                Err(errno) => Outcome::Failed(errno),
            };
            return self.unasked.push(Completion::last(user_data, outcome));
        };
        self.outstanding += 1;
        let index = self.connects.insert(Connect {
            user_data,
            socket,
            address: SocketAddrAny::from(*address),
        });
        self.sockets.start_connect(socket, index as u32);
        let address = &self.connects[index].address;
        let (start, length) = (address.as_ptr().cast(), address.addr_len());
        let entry = opcode::Connect::new(fd_of(socket), start, length).build();
        let index = index as u32;
        let entry = entry.user_data(Origin::Connect { index }.pack());
        // SAFETY: UC1: the address stays where it is until the completion.
        unsafe { self.ring.push(entry, None) };
    }

    /// Two system calls: the connect, and one that makes the socket block.
    fn connect_unix(&mut self, socket: Socket, remote: &Remote) -> Result<(), Errno> {
        self.counters.system_calls += 2;
        // SAFETY: the table says that the descriptor is open and ours, and so it is until the
        // caller closes the socket (C4), not during this call (C7).
        let socket = unsafe { BorrowedFd::borrow_raw(fd_of(socket).0) };
        match remote.connect(socket)? {
            true => ioctl_fionbio(socket, false),
            // Unix sockets do not say so: unix(7).
            false => Err(Errno::INPROGRESS),
        }
    }

    pub(super) fn connected(&mut self, index: u32, result: i32, completions: &mut Vec<Completion>) {
        self.outstanding -= 1;
        // A connect completes once (UC1).
        let Connect {
            user_data, socket, ..
        } = self.connects.remove(index as usize);
        self.sockets.end_connect(socket);
        let outcome = match result {
            0.. => Outcome::Connected,
            _ => Outcome::Failed(Errno::from_raw_os_error(-result)),
        };
        completions.push(Completion::last(user_data, outcome));
    }

    /// The index of the connect that is meant; `None` when its final completion is out already.
    pub(super) fn meant_connect(&mut self, socket: Socket, user_data: u64) -> Option<u32> {
        let index = self.sockets.connecting(socket)?;
        let is_meant = self.connects[index as usize].user_data == user_data;
        is_meant.then_some(index)
    }
}
