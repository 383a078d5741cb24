//! The server's half of an attachment for the tokio server: one buffer of slots per consumer, each
//! slot a message.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use flatpath_messages::handshake::{HELLO_BYTES, Welcome, read_hello};
use flatpath_messages::layout::{DESCRIPTOR_WORDS, Descriptor, RETURN_WORDS, Return, announcement};
use flatpath_sys::shared_memory::{SharedBuffer, SharedWords};
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix,
    SocketFlags, SocketType, accept_with, bind, listen, recv, sendmsg, socket_with,
};
use rustix::pipe::{PipeFlags, pipe_with};

use super::copying::Failure;

const ENTRIES: u32 = 64;

/// One consumer, attached.
pub(crate) struct Share {
    pub(crate) buffer: SharedBuffer,
    descriptors: SharedWords,
    returns: SharedWords,
    written: u64,
    read: u64,
    bell: OwnedFd,
    pub(crate) free: VecDeque<u32>,
    slot_bytes: u32,
    _socket: OwnedFd,
}

/// Waits for `count` consumers at `path`. Their shares, and the read ends of their return bells.
pub(crate) fn attach(
    path: &Path,
    count: u32,
    slots: u32,
    slot_bytes: u32,
) -> Result<Vec<(Share, OwnedFd)>, Failure> {
    let kind = SocketType::SEQPACKET;
    let listener = socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)?;
    bind(&listener, &SocketAddrUnix::new(path)?)?;
    listen(&listener, 16)?;
    (0..count)
        .map(|number| welcome(&listener, number, slots, slot_bytes))
        .collect()
}

fn welcome(
    listener: &OwnedFd,
    number: u32,
    slots: u32,
    slot_bytes: u32,
) -> Result<(Share, OwnedFd), Failure> {
    let socket = accept_with(listener, SocketFlags::CLOEXEC)?;
    let mut packet = [0; HELLO_BYTES];
    recv(&socket, &mut packet, RecvFlags::empty())?;
    read_hello(&packet)?;
    let bytes = slots as usize * slot_bytes as usize;
    let (buffer, buffer_file) = SharedBuffer::to_write("slots", bytes)?;
    let words = ENTRIES as usize * DESCRIPTOR_WORDS;
    let (descriptors, descriptor_file) = SharedWords::to_write("descriptors", words)?;
    let words = ENTRIES as usize * RETURN_WORDS;
    let (returns, return_file) = SharedWords::to_read("returns", words)?;
    let flags = PipeFlags::CLOEXEC | PipeFlags::NONBLOCK;
    let (their_bell, bell) = pipe_with(flags)?;
    let (return_doorbell, their_return_bell) = pipe_with(flags)?;
    let welcome = Welcome {
        entries: ENTRIES,
        message_bytes_max: slot_bytes,
        consumer: number,
        page_bytes: slot_bytes,
        regions: vec![bytes as u64],
    };
    let files = [
        &buffer_file,
        &descriptor_file,
        &return_file,
        &their_bell,
        &their_return_bell,
    ];
    let files = files.map(AsFd::as_fd);
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(5))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(&files));
    let packet = welcome.packet();
    sendmsg(
        &socket,
        &[IoSlice::new(&packet)],
        &mut control,
        SendFlags::NOSIGNAL,
    )?;
    let share = Share {
        buffer,
        descriptors,
        returns,
        written: 0,
        read: 0,
        bell,
        free: (0..slots).collect(),
        slot_bytes,
        _socket: socket,
    };
    Ok((share, return_doorbell))
}

impl Share {
    /// The bytes of a slot.
    pub(crate) fn slot(&mut self, slot: u32) -> &mut [u8] {
        let bytes = self.slot_bytes as usize;
        let start = slot as usize * bytes;
        &mut self.buffer.bytes_mut()[start..start + bytes]
    }

    /// Hands a slot to the consumer.
    pub(crate) fn deliver(&mut self, slot: u32, producer: u32) {
        let descriptor = Descriptor {
            token: u64::from(slot),
            offset: u64::from(slot) * u64::from(self.slot_bytes),
            length: self.slot_bytes,
            region: 0,
            first: true,
            last: true,
            message_bytes: self.slot_bytes,
            producer,
        };
        let place = (self.written % u64::from(ENTRIES)) as usize * DESCRIPTOR_WORDS;
        for (word, value) in descriptor.words().into_iter().enumerate() {
            self.descriptors.store(place + word, value);
        }
        self.written += 1;
        let bytes: Vec<u8> = announcement(1).collect();
        // A consumer that is gone has all it wanted.
        let _ = rustix::io::write(&self.bell, &bytes);
    }

    /// Slots that came back.
    pub(crate) fn take_returns(&mut self, told: u64) {
        for _ in 0..told {
            let place = (self.read % u64::from(ENTRIES)) as usize * RETURN_WORDS;
            let words = std::array::from_fn(|word| self.returns.load(place + word));
            self.read += 1;
            if let Some(given) = Return::of(words)
                && let Ok(slot) = u32::try_from(given.token)
            {
                self.free.push_back(slot);
            }
        }
    }
}
