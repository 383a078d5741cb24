//! The driver's state of each descriptor: its operations, and whether trying them is worth a
//! call.
//!
//! Indexed by descriptor number. Readiness is edge-triggered: a flag is set by an event and cleared
//! by what a call returned, so a connection is registered at most once, and only if it ever had to
//! wait.
//!
//! Invariants
//! - T1: an entry with `socket` is open; the entry is wiped when it is closed.
//! - T2: a descriptor is in the work list at most once (`listed`), and if it is due.
//! - T3: a clear readiness flag means that an event will set it: the direction is registered.

use std::os::fd::OwnedFd;

use flatpath_structures::pool::Buffer;

use crate::driver::{AfterSend, OperationMode};
use crate::segment::SendList;

/// A receive under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Receive {
    pub(super) user_data: u64,
    pub(super) mode: OperationMode,
    pub(super) region_id: u16,
}

/// A send under way.
pub(super) struct Send {
    pub(super) user_data: u64,
    pub(super) list: SendList,
    pub(super) after: AfterSend,
}

impl Send {
    pub(super) fn new() -> Send {
        Send {
            user_data: 0,
            list: SendList::new(),
            after: AfterSend::KeepOpen,
        }
    }
}

/// The events that epoll watches on a descriptor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Interest {
    #[default]
    Nothing,
    Receiving,
    Both,
}

#[derive(Default)]
pub(super) struct Entry {
    pub(super) socket: Option<OwnedFd>,
    pub(super) receive: Option<Receive>,
    /// The buffer of a recv_into under way; `receive` is set, too.
    pub(super) buffer: Option<Buffer>,
    pub(super) send: Option<Box<Send>>,
    pub(super) interest: Interest,
    pub(super) readable: bool,
    pub(super) writable: bool,
    /// The peer finished or the connection broke: a short read does not mean "drained" any more.
    pub(super) ending: bool,
    pub(super) listed: bool,
}

/// The same where other parts of the entry are borrowed.
pub(super) fn socket_of(socket: &Option<OwnedFd>) -> &OwnedFd {
    let socket = socket.as_ref();
    socket.expect("T1: an operation on a closed socket")
}

impl Entry {
    /// Makes it the entry of a socket that is open now, or of none; the work list does not change.
    pub(super) fn reset(&mut self, socket: Option<OwnedFd>) {
        // Both directions of a new socket are worth trying.
        let is_open = socket.is_some();
        *self = Entry {
            socket,
            readable: is_open,
            writable: is_open,
            listed: self.listed,
            ..Entry::default()
        };
    }

    /// The socket of an operation, which is open (C3).
    pub(super) fn socket(&self) -> &OwnedFd {
        socket_of(&self.socket)
    }

    /// Whether a call is worth it: to read, to write, or to begin waiting for an event.
    pub(super) fn is_due(&self) -> bool {
        let receives = self.readable || self.interest == Interest::Nothing || self.buffer.is_some();
        self.receive.is_some() && receives || self.send.is_some() && self.writable
    }
}
