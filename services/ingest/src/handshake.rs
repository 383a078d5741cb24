//! Making what is shared with one consumer, and sending it.
//!
//! The socket never blocks: a consumer that does not read its welcome does not get it.

use std::io::{IoSlice, Result};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use flatpath_driver::Region;
use flatpath_messages::handshake::{
    DESCRIPTORS_MAX, FAREWELL, HELLO_BYTES, MOVED, Misunderstanding, Status, Welcome, read_hello,
    refusal,
};
use flatpath_messages::layout::{DESCRIPTOR_WORDS, RETURN_WORDS};
use flatpath_sys::shared_memory::SharedWords;
use rustix::io::Errno;
use rustix::net::{
    RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, recv, send, sendmsg,
};
use rustix::pipe::{PipeFlags, pipe_with};

use crate::consumer::{Consumer, Parts};
use crate::shared::Shared;

/// Ends of pipes that the server keeps of a consumer: of either doorbell one.
const DOORBELLS: usize = 2;

/// Every packet is sent so.
const AT_ONCE: SendFlags = SendFlags::DONTWAIT.union(SendFlags::NOSIGNAL);

/// The beginning of a new connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hello {
    /// With a token, or 0.
    Said(u64),
    NotYet,
    /// To be refused with this status, if there is one for it, and closed.
    Wrong(Option<Status>),
}

pub(crate) fn hello(socket: impl AsFd) -> Hello {
    let mut packet = [0; HELLO_BYTES + 1];
    match recv(socket, &mut packet, RecvFlags::DONTWAIT) {
        Ok((count, _)) => match read_hello(&packet[..count]) {
            Ok(token) => Hello::Said(token),
            Err(Misunderstanding::Version(_)) => Hello::Wrong(Some(Status::WrongVersion)),
            Err(_) => Hello::Wrong(None),
        },
        Err(Errno::AGAIN | Errno::INTR) => Hello::NotYet,
        Err(_) => Hello::Wrong(None),
    }
}

/// Refuses a client. It may have left already.
pub(crate) fn refuse(socket: impl AsFd, status: Status) {
    let _ = send(socket, &refusal(status), AT_ONCE);
}

/// Tells a consumer, which may have left already, that another process serves at the same path.
pub(crate) fn name_successor(socket: impl AsFd) {
    let _ = send(socket, &MOVED, AT_ONCE);
}

/// Tells a consumer, which may have left already, that the server stops in order.
pub(crate) fn bid_farewell(socket: impl AsFd) {
    let _ = send(socket, &FAREWELL, AT_ONCE);
}

/// A consumer that was welcomed.
pub(crate) fn welcome(
    shared: &Shared,
    regions: &[Region],
    (number, token): (u32, u64),
    socket: impl AsFd,
) -> Result<Arc<Consumer>> {
    let entries = shared.plan.window;
    let words = entries as usize * DESCRIPTOR_WORDS;
    let (descriptors, descriptor_ring) = SharedWords::to_write("flatpath-descriptors", words)?;
    let words = entries as usize * RETURN_WORDS;
    let (returns, return_ring) = SharedWords::to_read("flatpath-returns", words)?;
    let hold = shared.hold_descriptors(DOORBELLS).ok_or(Errno::MFILE)?;
    let flags = PipeFlags::CLOEXEC | PipeFlags::NONBLOCK;
    let (their_descriptor_doorbell, doorbell) = pipe_with(flags)?;
    let (return_doorbell, their_return_doorbell) = pipe_with(flags)?;
    let packet = Welcome {
        entries,
        message_bytes_max: shared.plan.message_bytes_max,
        consumer: number,
        page_bytes: shared.plan.region.page_bytes,
        regions: regions.iter().map(|region| region.bytes() as u64).collect(),
    };
    let parts = Parts {
        descriptors,
        returns,
        doorbell,
        return_doorbell,
        statistics: Arc::clone(&shared.statistics),
        wakeup: Arc::clone(&shared.wakeup),
        hold,
    };
    let consumer =
        Consumer::new((number, token), entries, regions, parts).ok_or(Errno::SHUTDOWN)?;
    let mut files: Vec<BorrowedFd<'_>> = Vec::with_capacity(DESCRIPTORS_MAX);
    for region in regions {
        files.push(region.descriptor().ok_or(Errno::BADF)?);
    }
    files.extend([descriptor_ring.as_fd(), return_ring.as_fd()]);
    files.extend([
        their_descriptor_doorbell.as_fd(),
        their_return_doorbell.as_fd(),
    ]);
    send_welcome(socket, &packet.packet(), &files)?;
    Ok(Arc::new(consumer))
}

fn send_welcome(socket: impl AsFd, packet: &[u8], files: &[BorrowedFd<'_>]) -> Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(files)) {
        return Err(Errno::MSGSIZE.into());
    }
    sendmsg(socket, &[IoSlice::new(packet)], &mut control, AT_ONCE)?;
    Ok(())
}
