//! Attaching: connect, say hello, take the welcome with its descriptors.
//!
//! The low end of this crate, on which other consumers can be built.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use flatpath_messages::handshake::{
    DESCRIPTORS_BESIDE, DESCRIPTORS_MAX, FAREWELL, MOVED, Misunderstanding, REGIONS_MAX,
    WELCOME_BYTES, Welcome, hello,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, IoSliceMut};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, SocketAddrUnix,
    SocketFlags, SocketType, connect, recv, recvmsg, send, socket_with,
};

use crate::error::Error;

/// How long the server may take to answer.
const ANSWER_SECONDS_MAX: i64 = 10;

/// What a consumer shares with the server.
#[derive(Debug)]
pub struct Attached {
    /// What the server said.
    pub welcome: Welcome,
    /// Keeps the attachment; its end is the end.
    pub socket: OwnedFd,
    /// The memory that is received to.
    pub regions: Vec<OwnedFd>,
    /// Where fragments are described.
    pub descriptor_ring: OwnedFd,
    /// Where tokens are returned.
    pub return_ring: OwnedFd,
    /// Read end: how many descriptors are new.
    pub descriptor_doorbell: OwnedFd,
    /// Write end: how many returns are new.
    pub return_doorbell: OwnedFd,
}

/// Attaches to the server that listens at `path`, for the messages of the one producer that names
/// the same token; 0 names none.
///
/// # Errors
/// No server listens there, or it refuses, also because another consumer has this token.
pub fn attach(path: impl AsRef<Path>, token: u64) -> Result<Attached, Error> {
    let during = |what| move |errno| Error::System(what, errno);
    let socket = socket_with(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )
    .map_err(during("making a socket"))?;
    let address = SocketAddrUnix::new(path.as_ref()).map_err(during("naming the socket"))?;
    connect(&socket, &address).map_err(during("connecting"))?;
    send(&socket, &hello(token), SendFlags::NOSIGNAL).map_err(during("saying hello"))?;
    await_answer(&socket)?;
    let (packet, descriptors) = take_answer(&socket).map_err(during("reading the welcome"))?;
    let welcome = Welcome::read(&packet)?;
    let malformed = Error::Handshake(Misunderstanding::Malformed);
    if descriptors.len() != welcome.regions.len() + DESCRIPTORS_BESIDE {
        return Err(malformed);
    }
    let mut descriptors = descriptors.into_iter();
    let regions = descriptors.by_ref().take(welcome.regions.len()).collect();
    let mut one = || descriptors.next().ok_or(malformed);
    Ok(Attached {
        regions,
        descriptor_ring: one()?,
        return_ring: one()?,
        descriptor_doorbell: one()?,
        return_doorbell: one()?,
        welcome,
        socket,
    })
}

/// What a server has said since it has welcomed a consumer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Word {
    /// Nothing new.
    None,
    /// Another server attaches at the same path.
    Moved,
    /// It ends, in order or not.
    Last(Result<(), Error>),
}

/// The next word of the server, without waiting for it.
pub(crate) fn next_word(socket: &OwnedFd) -> Word {
    let mut packet = [0; FAREWELL.len() + 1];
    match recv(socket, &mut packet, RecvFlags::DONTWAIT) {
        Ok((count, _)) if packet[..count] == FAREWELL => Word::Last(Ok(())),
        Ok((count, _)) if packet[..count] == MOVED => Word::Moved,
        Err(Errno::AGAIN | Errno::INTR) => Word::None,
        _ => Word::Last(Err(Error::Lost)),
    }
}

/// Waits until the server has said something.
pub(crate) fn await_answer(socket: &OwnedFd) -> Result<(), Error> {
    let timeout = Timespec {
        tv_sec: ANSWER_SECONDS_MAX,
        tv_nsec: 0,
    };
    loop {
        let mut waited = [PollFd::new(socket, PollFlags::IN)];
        match poll(&mut waited, Some(&timeout)) {
            Ok(0) => return Err(Error::TimedOut),
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(Error::System("waiting for the welcome", errno)),
        }
    }
}

fn take_answer(socket: impl AsFd) -> Result<(Vec<u8>, Vec<OwnedFd>), Errno> {
    let mut packet = vec![0; WELCOME_BYTES + 8 * REGIONS_MAX + 1];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut slices = [IoSliceMut::new(&mut packet)];
    let received = recvmsg(socket, &mut slices, &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let mut descriptors = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = message {
            descriptors.extend(received);
        }
    }
    packet.truncate(received.bytes);
    Ok((packet, descriptors))
}
