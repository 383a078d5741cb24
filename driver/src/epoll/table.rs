//! What the driver knows of each descriptor: its operations, and whether trying them is worth a
//! call.
//!
//! Indexed by descriptor number. Readiness is edge-triggered: a flag is set by an event and cleared
//! by what a call returned, so a connection is registered at most once, and only if it ever had to
//! wait.
//!
//! Invariants
//! - T1: an entry with `socket` is open; the entry is wiped when it is closed.
//! - T2: a descriptor stands in the work list at most once per direction (`receive_queued`,
//!   `send_queued`).
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

/// What epoll watches on a descriptor.
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
    /// Index of the send under way.
    pub(super) send: Option<usize>,
    pub(super) interest: Interest,
    pub(super) readable: bool,
    pub(super) writable: bool,
    /// The peer finished or the connection broke: a short read does not mean "drained" any more.
    pub(super) ending: bool,
    pub(super) receive_queued: bool,
    pub(super) send_queued: bool,
}

impl Entry {
    /// An open socket; both directions are worth trying.
    pub(super) fn open(socket: OwnedFd) -> Entry {
        Entry {
            socket: Some(socket),
            readable: true,
            writable: true,
            ..Entry::default()
        }
    }
}
