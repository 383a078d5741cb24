//! The driver's state of each descriptor: its operations, and whether trying them is worth a
//! call. All that the operations share: an operation knows the table, and the table knows none.
//!
//! Indexed by descriptor number. Readiness is edge-triggered: a flag is set by an event and cleared
//! by what a call returned, so a connection is registered at most once, and only if it ever had to
//! wait.
//!
//! Invariants
//! - T1: an entry with `socket` is open; the entry is wiped when it is closed.
//! - T2: a descriptor is in the work list at most once (`listed`), and if it is due.
//! - T3: a clear readiness flag means that an event will set it: the direction is registered.

use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;

use flatpath_structures::pool::Buffer;
use rustix::event::epoll::{self, EventData, EventFlags};

use super::{Epoll, Work};
use crate::completion::Errno;
use crate::datagram::DatagramSocket;
use crate::driver::{AfterSend, OperationMode};
use crate::operations::UnderWay;
use crate::segment::SendList;
use crate::socket::{Handle, Predecessor, Socket};

/// A receive of datagrams under way.
pub(super) type DatagramReceive = UnderWay<Arc<DatagramSocket>, DatagramState>;

pub(super) struct DatagramState {
    pub(super) region_id: u16,
    /// It is in the work list.
    pub(super) queued: bool,
}

/// An accept under way.
pub(super) type Accepting = UnderWay<RawFd, AcceptState>;

pub(super) struct AcceptState {
    pub(super) mode: OperationMode,
    /// Where it began while one could accept from the same socket.
    pub(super) predecessor: Option<Predecessor>,
    pub(super) watched: bool,
    /// It is in the work list.
    pub(super) queued: bool,
}

impl Accepting {
    /// Whether it began beside a predecessor that is gone now: the next one need not.
    pub(super) fn outlives_its_predecessor(&self) -> bool {
        let predecessor = self.state.predecessor.as_ref();
        predecessor.is_some_and(Predecessor::is_gone)
    }

    /// The listener, which the caller keeps open until the final completion is handed out.
    pub(super) fn listener(&self) -> BorrowedFd<'_> {
        // SAFETY: the accept is under way, so the listener is open.
        unsafe { BorrowedFd::borrow_raw(self.on) }
    }
}

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

impl Epoll {
    /// Enters an accepted or registered socket into the table.
    pub(super) fn open(&mut self, socket: OwnedFd) -> Socket {
        let descriptor = socket.as_raw_fd();
        let entries = self.entries.len().max(descriptor as usize + 1);
        // A power of two, so that its size does not depend on the order in which numbers come.
        let room = entries.next_power_of_two() - self.entries.len();
        self.entries.reserve_exact(room);
        self.entries.resize_with(entries, Entry::default);
        let entry = self.entry_of(descriptor);
        debug_assert!(
            entry.socket.is_none(),
            "T1: descriptor {descriptor} is open already"
        );
        entry.reset(Some(socket));
        self.counters.sockets += 1;
        Socket::new(Handle::Descriptor(descriptor))
    }

    pub(super) fn entry_of(&mut self, descriptor: RawFd) -> &mut Entry {
        &mut self.entries[descriptor as usize]
    }

    /// The entry of a socket that an operation is started on.
    pub(super) fn open_entry(&mut self, socket: Socket) -> &mut Entry {
        let entry = self.entry_of(socket.raw());
        assert!(entry.socket.is_some(), "C4: {socket:?} is closed");
        entry
    }

    /// Lists a socket if one of its operations is worth trying (T2).
    pub(super) fn list(&mut self, descriptor: RawFd) {
        let entry = self.entry_of(descriptor);
        if entry.is_due() && !std::mem::replace(&mut entry.listed, true) {
            self.work.push_back(Work::Socket(descriptor));
        }
    }

    /// Makes sure that events of a direction come (T3). The kernel reports what is ready already.
    pub(super) fn register_interest(
        &mut self,
        descriptor: RawFd,
        wanted: Interest,
    ) -> Result<(), Errno> {
        let entry = &mut self.entries[descriptor as usize];
        let socket = entry.socket();
        if entry.interest == wanted {
            return Ok(());
        }
        let mut flags = EventFlags::IN | EventFlags::RDHUP | EventFlags::ET;
        if wanted == Interest::Both {
            flags |= EventFlags::OUT;
        }
        let data = EventData::new_u64(descriptor as u64);
        self.counters.system_calls += 1;
        if entry.interest == Interest::Nothing {
            epoll::add(&self.epoll, socket, data, flags)?;
        } else {
            epoll::modify(&self.epoll, socket, data, flags)?;
        }
        entry.interest = wanted;
        Ok(())
    }

    /// Closes the socket and wipes its entry (T1). Work that is still listed for the number finds
    /// nothing, or finds the next owner's operation ready to try, which is harmless.
    pub(super) fn close_descriptor(&mut self, descriptor: RawFd) {
        let entry = self.entry_of(descriptor);
        debug_assert!(
            entry.receive.is_none(),
            "C3: closed after a send during a receive"
        );
        entry.reset(None);
        self.counters.system_calls += 1;
        self.counters.sockets -= 1;
    }
}
