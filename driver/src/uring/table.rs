//! Operations under way that the kernel knows by an index, and what each needs until its end.
//!
//! Here is what they hold; what is done with it is in the operations' own files, and so are the
//! invariants: I1 in `recv_into`, P1 to P3 in `send`, W1 and W2 in `poll_eventfd`, SA1 in
//! `accept_shared`, UC1 and UC2 in `connect`.

use std::sync::Arc;

use flatpath_structures::pool::Buffer;
use io_uring::squeue::Flags;
use io_uring::{opcode, squeue, types};
use rustix::net::SocketAddrAny;

use super::entry::{close_entry, fd_of};
use crate::completion::Errno;
use crate::driver::{AfterSend, OperationMode};
use crate::eventfd::Eventfd;
use crate::operations::{Operations, UnderWay};
use crate::segment::{SEGMENTS_MAX, SendList};
use crate::socket::{SharedListener, Socket};

/// Longest list that is sent without a sign of progress, in bytes: slower than this within the
/// shortest sensible write deadline is as good as dead.
const WHOLE_BYTES_MAX: usize = 64 * 1024;

/// Longest run of bytes in one entry: its length has 32 bits and its result 31.
const ENTRY_BYTES_MAX: usize = 1 << 30;

/// One recv_into under way.
pub(super) struct RecvInto {
    pub(super) user_data: u64,
    pub(super) buffer: Buffer,
}

/// One poll of an eventfd under way.
pub(super) type EventfdPoll = UnderWay<Arc<Eventfd>, PollState>;

#[derive(Default)]
pub(super) struct PollState {
    pub(super) cancelled: bool,
    /// It cannot be read: the poll is being ended, and then this is reported.
    pub(super) failed: Option<Errno>,
}

/// One accept under way on a listener that is shared with a predecessor.
pub(super) struct SharedAccept {
    pub(super) user_data: u64,
    pub(super) mode: OperationMode,
    pub(super) listener: SharedListener,
    pub(super) cancelled: bool,
}

/// One connect under way.
pub(super) struct Connect {
    pub(super) user_data: u64,
    pub(super) socket: Socket,
    pub(super) address: SocketAddrAny,
}

/// Connects under way, by index.
pub(super) type ConnectTable = Operations<Connect>;

/// Accepts on listeners that are shared with a predecessor under way, by index.
pub(super) type SharedAcceptTable = Operations<SharedAccept>;

/// Receives into buffers of the caller under way, by index.
pub(super) type RecvIntoTable = Operations<RecvInto>;

/// Polls of eventfds under way, by index.
pub(super) type PollTable = Operations<EventfdPoll>;

/// One send under way.
pub(super) struct Send {
    pub(super) user_data: u64,
    /// It is under way, and must not be continued.
    pub(super) cancelled: bool,
    pub(super) socket: Socket,
    pub(super) list: SendList,
    pub(super) after: AfterSend,
    /// The close is linked after the submission under way.
    pub(super) linked: bool,
    /// The operation is a poll for room, not a send.
    pub(super) polls: bool,
    /// The entry under way has this number and completes in silence (P4).
    pub(super) silent: Option<u64>,
    header: libc::msghdr,
    vectors: [libc::iovec; SEGMENTS_MAX],
}

/// Sends under way, by index; entries are recycled, newest first.
#[derive(Default)]
pub(super) struct SendTable {
    #[expect(clippy::vec_box, reason = "P1: the kernel holds addresses of entries")]
    sends: Vec<Box<Send>>,
    free: Vec<u32>,
}

impl SendTable {
    pub(super) fn at(&mut self, index: u32) -> &mut Send {
        &mut self.sends[index as usize]
    }

    pub(super) fn insert(
        &mut self,
        socket: Socket,
        user_data: u64,
        list: &mut SendList,
        after: AfterSend,
    ) -> u32 {
        if let Some(index) = self.free.pop() {
            let send = self.at(index);
            send.socket = socket;
            send.user_data = user_data;
            send.list.take_from(list);
            send.after = after;
            send.cancelled = false;
            send.linked = false;
            send.polls = false;
            send.silent = None;
            return index;
        }
        let none = libc::iovec {
            iov_base: std::ptr::null_mut(),
            iov_len: 0,
        };
        // SAFETY: all-zero is a message header that points to nothing.
        let header = unsafe { std::mem::zeroed() };
        let vectors = [none; SEGMENTS_MAX];
        let (cancelled, linked, polls) = (false, false, false);
        self.sends.push(Box::new(Send {
            user_data,
            cancelled,
            socket,
            list: std::mem::take(list),
            after,
            linked,
            polls,
            silent: None,
            header,
            vectors,
        }));
        (self.sends.len() - 1) as u32
    }

    pub(super) fn remove(&mut self, index: u32) {
        let send = self.at(index);
        send.list.clear();
        send.silent = None;
        send.cancelled = false;
        self.free.push(index);
    }
}

impl Send {
    /// Whether the whole list may go out in one entry that completes in silence.
    pub(super) fn may_be_silent(&self) -> bool {
        self.after == AfterSend::Rest && self.list.bytes() <= WHOLE_BYTES_MAX
    }

    /// The entry for what is left of the list.
    pub(super) fn entry(&mut self, options: u16) -> (squeue::Entry, Option<squeue::Entry>) {
        let whole = self.list.bytes() <= WHOLE_BYTES_MAX;
        let mut flags = libc::MSG_NOSIGNAL | if whole { libc::MSG_WAITALL } else { 0 };
        if self.after == AfterSend::Close {
            // The close follows, in one segment with the FIN (P3).
            flags |= libc::MSG_MORE;
        }
        let is_silent = self.silent.is_some();
        if is_silent {
            // What completes in silence never waits (P4).
            flags |= libc::MSG_DONTWAIT;
        }
        let fd = fd_of(self.socket);
        let entry = if self.list.segments() == 1 {
            self.plain_entry(fd, flags, options)
        } else {
            self.vectored_entry(fd, flags, options)
        };
        let entry = match is_silent {
            true => entry.flags(Flags::SKIP_SUCCESS),
            false => entry,
        };
        self.linked = whole && self.after == AfterSend::Close;
        if self.linked {
            (entry.flags(Flags::IO_LINK), Some(close_entry(fd).entry()))
        } else {
            (entry, None)
        }
    }

    fn plain_entry(&self, fd: types::Fd, flags: i32, options: u16) -> squeue::Entry {
        let bytes = self.list.slices().next().unwrap_or_default();
        let (start, length) = (bytes.as_ptr(), bytes.len().min(ENTRY_BYTES_MAX) as u32);
        opcode::Send::new(fd, start, length)
            .flags(flags)
            .ioprio(options)
            .build()
    }

    fn vectored_entry(&mut self, fd: types::Fd, flags: i32, options: u16) -> squeue::Entry {
        let mut count = 0;
        for (vector, bytes) in self.vectors.iter_mut().zip(self.list.slices()) {
            vector.iov_base = bytes.as_ptr().cast_mut().cast();
            vector.iov_len = bytes.len();
            count += 1;
        }
        self.header.msg_iov = self.vectors.as_mut_ptr();
        self.header.msg_iovlen = count;
        let header = &raw const self.header;
        opcode::SendMsg::new(fd, header)
            .flags(flags as u32)
            .ioprio(options)
            .build()
    }
}
