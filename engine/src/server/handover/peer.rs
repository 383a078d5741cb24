//! The other side of a conversation of a handover: who it may be, its lines, and how long they may
//! take.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, sockopt,
};

/// Longest line.
const LINE_BYTES_MAX: usize = 4_096;

/// How long a process that is offered sockets may take to get ready when this one ends, and any to
/// take a line.
pub(super) const SILENCE_MAX: Duration = Duration::from_secs(1);

/// The other side of a conversation.
pub(super) struct Peer(pub(super) OwnedFd);

impl Peer {
    /// Bounds how long a line may take to be sent.
    pub(super) fn of(connection: OwnedFd) -> io::Result<Peer> {
        sockopt::set_socket_timeout(&connection, sockopt::Timeout::Send, Some(SILENCE_MAX))?;
        Ok(Peer(connection))
    }

    /// Whether the other side may hand over to this process, and this one to it.
    pub(super) fn check(&self) -> io::Result<()> {
        let theirs = sockopt::socket_peercred(&self.0)?.uid.as_raw();
        let own = flatpath_sys::process::user();
        match may_hand_over(theirs, own) {
            true => Ok(()),
            false => Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                format!("user {theirs} is on the other side, which must be user {own} or root"),
            )),
        }
    }

    /// Sends a line, with a descriptor if there is one.
    pub(super) fn tell(&self, line: &str, socket: Option<BorrowedFd<'_>>) -> io::Result<()> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let sockets: Vec<BorrowedFd<'_>> = socket.into_iter().collect();
        if !sockets.is_empty() {
            ancillary.push(SendAncillaryMessage::ScmRights(&sockets));
        }
        let bytes = [io::IoSlice::new(line.as_bytes())];
        rustix::net::sendmsg(&self.0, &bytes, &mut ancillary, SendFlags::NOSIGNAL)?;
        Ok(())
    }

    /// The next line, with its descriptor; `None` when the other side has ended.
    pub(super) fn hear(&self, patience: Duration) -> io::Result<Option<(String, Option<OwnedFd>)>> {
        if !await_readable(self.0.as_fd(), None, Some(patience))? {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.next_line()
    }

    /// The same where it has come already.
    pub(super) fn next_line(&self) -> io::Result<Option<(String, Option<OwnedFd>)>> {
        self.receive()
            .or_else(|errno| match errno {
                // It has ended before it had read all. What it had sent is still there.
                Errno::CONNRESET => self.receive(),
                errno => Err(errno),
            })
            .or_else(|errno| match errno {
                Errno::CONNRESET | Errno::PIPE => Ok(None),
                errno => Err(errno.into()),
            })
    }

    fn receive(&self) -> Result<Option<(String, Option<OwnedFd>)>, Errno> {
        let mut bytes = [0; LINE_BYTES_MAX];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let count = rustix::net::recvmsg(
            &self.0,
            &mut [io::IoSliceMut::new(&mut bytes)],
            &mut ancillary,
            RecvFlags::CMSG_CLOEXEC,
        )?
        .bytes;
        let mut sockets = ancillary.drain().filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(sockets) => Some(sockets),
            _ => None,
        });
        let socket = sockets.next().and_then(|mut sockets| sockets.next());
        let line = String::from_utf8_lossy(&bytes[..count]).into_owned();
        Ok((count > 0).then_some((line, socket)))
    }

    /// Ends the conversation with a reason.
    pub(super) fn refuse(self, why: &str) {
        log::warn!("no handover: {why}: serving on");
        let _ = self.tell(&format!("refused {why}"), None);
    }
}

/// Whether sockets may pass between a process of user `theirs` and one of user `own`, in either
/// direction. What root may do is root's to decide, also when it is the other side; that this side
/// is root gives another user no right.
fn may_hand_over(theirs: u32, own: u32) -> bool {
    theirs == own || theirs == 0
}

/// Waits until something can be read; false when the time is over or the thread is to stop.
pub(super) fn await_readable(
    socket: BorrowedFd<'_>,
    stop: Option<BorrowedFd<'_>>,
    patience: Option<Duration>,
) -> io::Result<bool> {
    let limit = patience.map(|patience| Instant::now() + patience);
    loop {
        let mut waited = vec![PollFd::from_borrowed_fd(socket, PollFlags::IN)];
        waited.extend(stop.map(|stop| PollFd::from_borrowed_fd(stop, PollFlags::IN)));
        let left = limit.map(|limit| limit.saturating_duration_since(Instant::now()));
        let left = left.and_then(|left| Timespec::try_from(left).ok());
        match poll(&mut waited, left.as_ref()) {
            Ok(0) => return Ok(false),
            Ok(_) => {
                let is_stopped = waited.get(1).is_some_and(|stop| !stop.revents().is_empty());
                return Ok(!is_stopped);
            }
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_pass_between_processes_of_one_user_and_from_and_to_root() {
        let (root, own, other) = (0, 1_000, 65_534);
        for (theirs, here, may) in [
            (own, own, true),
            (root, root, true),
            (root, own, true),
            // That this process is root's gives another user no right.
            (other, root, false),
            (own, root, false),
            (other, own, false),
        ] {
            assert_eq!(may_hand_over(theirs, here), may, "{theirs} to {here}");
        }
    }
}
