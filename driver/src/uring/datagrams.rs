//! Datagrams: the kernel picks a page for each, and writes what it knows of it before its bytes.
//!
//! One operation (multishot recvmsg) receives until it is cancelled. Where the kernel has only the
//! other kind, each operation brings one datagram, and the next follows; a caller sees no
//! difference.
//!
//! Invariants
//! - DG1: an entry of the table holds the socket open, and the header that the kernel reads and
//!   writes where it is, from `start_receive_datagrams` to the final completion.
//! - DG2: the kernel ends a multishot operation at an empty datagram, at what is reported to the
//!   socket, and when the completion queue overflows. It is armed again: for the caller, only a
//!   cancel, a lack of pages and a broken socket are ends.
//!
//! Cost: one entry in the queue for all datagrams, or, without multishot, for each.

use std::os::fd::AsRawFd;
use std::sync::{Arc, OnceLock};

use flatpath_sys::udp::{CONTROL_BYTES, Envelope, NAME_BYTES};
use io_uring::squeue::Flags;
use io_uring::types::RecvMsgOut;
use io_uring::{cqueue, opcode, squeue, types};

use super::Uring;
use super::origin::Origin;
use crate::completion::{Completion, Datagram, Errno, Outcome};
use crate::datagram::{DATAGRAM_HEAD_BYTES, DatagramSocket, is_report, needs_page, room_in_page};
use crate::operations::{Operations, UnderWay};
use crate::probe::datagrams::multishot_datagrams;
use crate::refusal::Refusal;

/// A receive of datagrams under way.
type DatagramReceive = UnderWay<Arc<DatagramSocket>, ReceiveState>;

pub(super) struct ReceiveState {
    region_id: u16,
    cancelled: bool,
    is_multishot: bool,
    message: Box<Message>,
}

/// What the kernel reads, and without multishot writes. On the heap, so that it stays where it is
/// (DG1).
struct Message {
    header: libc::msghdr,
    vector: libc::iovec,
    name: [u8; NAME_BYTES],
    control: [u8; CONTROL_BYTES],
}

/// Receives of datagrams under way, by index.
pub(super) type DatagramTable = Operations<DatagramReceive>;

/// Whether one operation receives many datagrams here: tried once in a process, for the first.
fn one_receives_many() -> bool {
    static TRIED: OnceLock<bool> = OnceLock::new();
    *TRIED.get_or_init(|| {
        let tried = multishot_datagrams();
        if let Err(error) = &tried {
            let refusal = Refusal::of_error("receiving many datagrams with one operation", error);
            log::info!("each datagram takes an operation: {refusal}");
        }
        tried.is_ok()
    })
}

impl Message {
    fn new() -> Box<Message> {
        Box::new(Message {
            // SAFETY: all-zero is a message header that points to nothing.
            header: unsafe { std::mem::zeroed() },
            vector: libc::iovec {
                iov_base: std::ptr::null_mut(),
                iov_len: 0,
            },
            name: [0; NAME_BYTES],
            control: [0; CONTROL_BYTES],
        })
    }

    /// Of a multishot operation only the two lengths count.
    fn prepare(&mut self, is_multishot: bool, bytes_max: usize) {
        self.header.msg_namelen = NAME_BYTES as _;
        self.header.msg_controllen = CONTROL_BYTES as _;
        if !is_multishot {
            self.vector.iov_len = bytes_max;
            self.header.msg_name = self.name.as_mut_ptr().cast();
            self.header.msg_control = self.control.as_mut_ptr().cast();
            self.header.msg_iov = &raw mut self.vector;
            self.header.msg_iovlen = 1;
            self.header.msg_flags = 0;
        }
    }

    fn entry(&mut self, socket: types::Fd, is_multishot: bool, group: u16) -> squeue::Entry {
        let header = &raw mut self.header;
        match is_multishot {
            true => opcode::RecvMsgMulti::new(socket, header.cast_const(), group).build(),
            false => opcode::RecvMsg::new(socket, header)
                .buf_group(group)
                .build()
                .flags(Flags::BUFFER_SELECT),
        }
    }

    /// What the kernel has said of the only datagram of an operation.
    fn envelope(&self) -> Option<Envelope> {
        Envelope::of(&self.header, &self.name, &self.control)
    }
}

impl Uring {
    pub(super) fn start_receive_datagrams(
        &mut self,
        socket: Arc<DatagramSocket>,
        user_data: u64,
        region_id: u16,
    ) {
        room_in_page(self.buffers[usize::from(region_id)].region().page_bytes());
        assert!(
            !self.datagrams.has_on(&socket),
            "C2: a second receive on {socket:?}"
        );
        self.outstanding += 1;
        let index = self.datagrams.insert(DatagramReceive {
            user_data,
            on: socket,
            state: ReceiveState {
                region_id,
                cancelled: false,
                is_multishot: !self.single_datagrams && one_receives_many(),
                message: Message::new(),
            },
        });
        self.arm_datagrams(index as u32);
    }

    fn arm_datagrams(&mut self, index: u32) {
        // DG1: an armed receive is in the table.
        let UnderWay { on, state, .. } = &mut self.datagrams[index as usize];
        let buffers = &self.buffers[usize::from(state.region_id)];
        let bytes_max = room_in_page(buffers.region().page_bytes());
        let descriptor = types::Fd(on.raw().as_raw_fd());
        let (message, is_multishot) = (&mut state.message, state.is_multishot);
        message.prepare(is_multishot, bytes_max);
        let entry = message.entry(descriptor, is_multishot, buffers.whole_group());
        let entry = entry.user_data(Origin::Datagrams { index }.pack());
        // SAFETY: DG1: the message stays where it is until the operation has ended.
        unsafe { self.ring.push(entry, None) };
    }

    /// Marks a receive as cancelled; its index.
    pub(super) fn cancel_datagrams(
        &mut self,
        socket: &Arc<DatagramSocket>,
        user_data: u64,
    ) -> Option<u32> {
        let index = self.datagrams.meant(socket, user_data)?;
        self.datagrams[index].state.cancelled = true;
        Some(index as u32)
    }

    /// An operation has brought a datagram, or an error.
    pub(super) fn datagram_received(
        &mut self,
        index: u32,
        entry: &cqueue::Entry,
        completions: &mut Vec<Completion>,
    ) {
        let armed = cqueue::more(entry.flags());
        let outcome = self.outcome_of(index, entry);
        // DG1: a receive that completes is in the table.
        let receive = &self.datagrams[index as usize];
        let (user_data, cancelled) = (receive.user_data, receive.state.cancelled || self.stopping);
        if armed {
            completions.extend(outcome.map(|outcome| Completion::new(user_data, true, outcome)));
            return;
        }
        let is_end = match &outcome {
            Some(Outcome::Failed(errno)) => !is_report(*errno),
            _ => false,
        };
        if !is_end && !cancelled {
            // What ends the operation is no end for the caller (DG2).
            completions.extend(outcome.map(|outcome| Completion::new(user_data, true, outcome)));
            return self.arm_datagrams(index);
        }
        self.outstanding -= 1;
        self.datagrams.remove(index as usize);
        let outcome = outcome.unwrap_or(Outcome::Failed(Errno::CANCELED));
        self.counters.count_stall(&outcome);
        completions.push(Completion::last(user_data, outcome));
    }

    /// `None`: it was interrupted, or brought what is no datagram of the internet.
    fn outcome_of(&mut self, index: u32, entry: &cqueue::Entry) -> Option<Outcome> {
        let buffer = cqueue::buffer_select(entry.flags());
        let bytes = match u32::try_from(entry.result()) {
            Ok(bytes) => bytes,
            Err(_) => {
                if let Some(buffer) = buffer {
                    self.ring_of(buffer).take_nothing(buffer);
                }
                let errno = Errno::from_raw_os_error(-entry.result());
                return (errno != Errno::INTR).then_some(Outcome::Failed(errno));
            }
        };
        let Some(buffer) = buffer else {
            // An empty one needs no page.
            let envelope = self.datagrams[index as usize].state.message.envelope()?;
            let piece = None;
            return Some(Outcome::Datagram(Box::new(Datagram { piece, envelope })));
        };
        let mut piece = self.ring_of(buffer).take(buffer, bytes);
        let receive = &self.datagrams[index as usize].state;
        let message = &receive.message;
        let (envelope, from) = match receive.is_multishot {
            true => {
                let region = self.buffers[usize::from(piece.region_id)].region();
                let parsed = RecvMsgOut::parse(region.bytes_of(&piece), &message.header).ok();
                let envelope = parsed.and_then(|message| {
                    let flags = message.flags() as i32;
                    Envelope::decode(message.name_data(), message.control_data(), flags)
                });
                (envelope, DATAGRAM_HEAD_BYTES as u32)
            }
            false => (message.envelope(), 0),
        };
        piece.offset += from;
        piece.bytes = piece.bytes.saturating_sub(from);
        let piece = match needs_page(envelope.as_ref(), piece.bytes as usize) {
            true => Some(piece),
            false => {
                self.buffers[usize::from(piece.region_id)].recycle(piece);
                None
            }
        };
        let datagram = envelope.map(|envelope| Box::new(Datagram { piece, envelope }));
        datagram.map(Outcome::Datagram)
    }
}
