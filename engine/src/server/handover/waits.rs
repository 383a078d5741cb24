//! The thread at the path of a handover: it hears the server before this one out, and then waits
//! for the one after it.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::SocketFlags;

use crate::server::running::Handle;
use crate::server::sockets::{SocketFile, SocketKind};

use super::peer::{Peer, SILENCE_MAX, await_readable};
use super::place::{PassedPlace, Place};
use super::predecessor::{Progress, Refused, Releasing};
use super::{HELLO, LOOK_AGAIN, LOOK_AGAIN_MAX, SILENT_MAX, START_MAX};

pub(super) struct Waits {
    pub(super) place: Place,
    pub(super) servers: Vec<Handle>,
    pub(super) stop: Arc<OwnedFd>,
    /// The server before this one, until it has handed over.
    pub(super) before: Option<Releasing>,
}

/// A process that is offered the sockets, and until when it may get ready.
struct Successor {
    peer: Peer,
    until: Instant,
}

/// What a process has said that was offered the sockets.
enum Said {
    /// Its servers accept.
    Ready(Peer),
    /// That it does not take over; the conversation has ended.
    Other,
}

/// What is answered to the first line of a process.
enum Answer {
    /// It is sent the sockets that are open here, of a server that drains those that are left.
    Offer,
    Refuse(String),
    /// It has gone.
    Nothing,
}

/// Which of those that were waited for can be read.
struct Readable {
    is_stopped: bool,
    has_newcomer: bool,
    before: bool,
    successor: bool,
    silent: Vec<bool>,
}

impl Waits {
    pub(super) fn run(mut self, handed_over: impl FnOnce()) {
        if let Some(before) = &self.before {
            before.tell_ready();
        }
        let mut silent: Vec<Peer> = Vec::new();
        let mut successor: Option<Successor> = None;
        while let Ok(readable) = self.wait(&silent, successor.as_ref()) {
            if readable.is_stopped {
                return self.end(successor, handed_over);
            }
            if readable.before {
                match self.hear_before(successor.is_some()) {
                    None => {}
                    Some(Refused::InTime) => return,
                    // The servers here run already. Two would serve, and the other one was first.
                    Some(Refused::Late) => return self.servers.iter().for_each(Handle::drain_now),
                }
            }
            if let Some(said) = self.hear(&mut successor, readable.successor) {
                match said {
                    Said::Ready(peer) => return self.hand_over(&peer, handed_over),
                    Said::Other => self.files().for_each(SocketFile::own),
                }
            }
            let mut is_readable = readable.silent.into_iter();
            let heard = silent.extract_if(.., |_| is_readable.next() == Some(true));
            for peer in heard.collect::<Vec<_>>() {
                if let Some(next) = self.greet(peer, &mut successor) {
                    successor = Some(next);
                }
            }
            if readable.has_newcomer {
                self.accept(&mut silent);
            } else if self.looks(successor.as_ref()) {
                self.place.look();
            }
        }
    }

    /// Whether the path is this process's to answer at.
    fn has_path(&self) -> bool {
        let now = Instant::now();
        let before = self.before.as_ref();
        before.is_none_or(|before| before.has_left_path(now))
    }

    /// Whether it looks after the path's file: not while that may become another's.
    fn looks(&self, successor: Option<&Successor>) -> bool {
        successor.is_none() && self.has_path()
    }

    /// Sleeps until something can be read, a time is over, or the path is to be looked at.
    fn wait(&self, silent: &[Peer], successor: Option<&Successor>) -> io::Result<Readable> {
        let listener = self.has_path().then(|| self.place.listener.as_fd());
        let before = self.before.as_ref().map(|it| it.peer().0.as_fd());
        let sockets = [Some(self.stop.as_fd()), listener, before];
        let sockets = sockets.into_iter().flatten();
        let sockets = sockets.chain(successor.map(|it| it.peer.0.as_fd()));
        let sockets = sockets.chain(silent.iter().map(|peer| peer.0.as_fd()));
        let mut waited: Vec<_> = sockets
            .map(|socket| PollFd::from_borrowed_fd(socket, PollFlags::IN))
            .collect();
        let look = self.looks(successor).then_some(self.place.look_at);
        let hangs = self.before.as_ref().filter(|_| listener.is_none());
        let times = [
            look,
            successor.map(|it| it.until),
            hangs.map(|before| before.hangs_at),
        ];
        let until = times.into_iter().flatten().min();
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        let left = left.and_then(|left| Timespec::try_from(left).ok());
        match poll(&mut waited, left.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        let mut readable = waited.iter().map(|it| !it.revents().is_empty());
        let mut next = || readable.next().unwrap_or(false);
        Ok(Readable {
            is_stopped: next(),
            has_newcomer: listener.is_some() && next(),
            before: before.is_some() && next(),
            successor: successor.is_some() && next(),
            silent: silent.iter().map(|_| next()).collect(),
        })
    }

    /// Takes what the server before this one says; its refusal, if that is what it was. Its files
    /// are this one's when it is gone, unless they are another process's already.
    fn hear_before(&mut self, are_offered: bool) -> Option<Refused> {
        match self.before.as_mut()?.hear() {
            Progress::Holds => return None,
            Progress::Refused(refused) => return Some(refused),
            Progress::Released => self.before = None,
        }
        self.place.file.own();
        if are_offered {
            self.files().for_each(SocketFile::keep);
        }
        None
    }

    /// Lets a process in that connects, unless it is another user's.
    fn accept(&self, silent: &mut Vec<Peer>) {
        let accepted = rustix::net::accept_with(&self.place.listener, SocketFlags::CLOEXEC);
        let Ok(peer) = accepted.map_err(io::Error::from).and_then(Peer::of) else {
            // It has gone already, or there is no descriptor for it.
            return std::thread::sleep(LOOK_AGAIN);
        };
        if let Err(cause) = peer.check() {
            return peer.refuse(&cause.to_string());
        }
        if silent.len() == SILENT_MAX {
            silent.remove(0);
        }
        silent.push(peer);
    }

    /// What the process says that is offered the sockets, if it has said something or its time is
    /// over.
    fn hear(&self, successor: &mut Option<Successor>, is_readable: bool) -> Option<Said> {
        let is_over = |it: &mut Successor| it.until <= Instant::now();
        let Successor { peer, .. } = successor.take_if(|it| is_readable || is_over(it))?;
        if !is_readable {
            peer.refuse("it took too long to start");
            return Some(Said::Other);
        }
        match peer.next_line() {
            Ok(Some((line, _))) if line == "ready" => return Some(Said::Ready(peer)),
            Ok(Some((line, _))) => peer.refuse(&format!("it said {line:?}")),
            Ok(None) => log::warn!("the process that was to take over has ended: serving on"),
            Err(cause) => peer.refuse(&cause.to_string()),
        }
        Some(Said::Other)
    }

    /// Decides what a process gets that has said something.
    fn answer(peer: &Peer) -> Answer {
        match peer.hear(Duration::ZERO) {
            Ok(Some((hello, _))) if hello == HELLO => Answer::Offer,
            Ok(Some((hello, _))) => Answer::Refuse(format!(
                "the versions differ: {HELLO:?} here, {hello:?} there"
            )),
            Ok(None) => Answer::Nothing,
            Err(cause) => Answer::Refuse(cause.to_string()),
        }
    }

    /// Offers the sockets to a process that says what it should, in place of one that they were
    /// offered to before.
    fn greet(&self, peer: Peer, earlier: &mut Option<Successor>) -> Option<Successor> {
        match Waits::answer(&peer) {
            Answer::Nothing => return None,
            Answer::Refuse(why) => {
                peer.refuse(&why);
                return None;
            }
            Answer::Offer => {}
        }
        if let Some(earlier) = earlier.take() {
            earlier.peer.refuse("another process takes over");
        }
        log::info!("another process takes over");
        // From now on this one may end and the other serve.
        self.files().for_each(SocketFile::keep);
        if let Err(cause) = self.offer(&peer) {
            peer.refuse(&cause.to_string());
            self.files().for_each(SocketFile::own);
            return None;
        }
        let until = Instant::now() + START_MAX;
        Some(Successor { peer, until })
    }

    /// This process ends. One that has the sockets gets a moment to say that it is ready. One that
    /// is slower serves all the same: it has what was open, binds the rest, and finds the files.
    fn end(self, successor: Option<Successor>, handed_over: impl FnOnce()) {
        let Some(Successor { peer, .. }) = successor else {
            return;
        };
        match peer.hear(SILENCE_MAX) {
            Ok(Some((line, _))) if line == "ready" => self.hand_over(&peer, handed_over),
            Err(cause) if cause.kind() == io::ErrorKind::TimedOut => {
                log::warn!("ending before the process is ready that takes over");
            }
            _ => self.files().for_each(SocketFile::own),
        }
    }

    /// The files of all Unix sockets.
    fn files(&self) -> impl Iterator<Item = &SocketFile> {
        let servers = self.servers.iter();
        let files = servers.flat_map(|server| &server.0.socket_files);
        files.map(|file| &**file).chain([&self.place.file])
    }

    /// Sends all sockets that are open.
    fn offer(&self, peer: &Peer) -> io::Result<()> {
        let (mut files, mut count) = (Vec::new(), 0);
        for (number, server) in (0_u32..).zip(&self.servers) {
            for open in &server.0.open_sockets {
                let Some(socket) = open.socket.upgrade() else {
                    continue;
                };
                let listener = number << 16 | u32::from(open.listener);
                let (name, protocol, asked) = (server.0.name, open.protocol, &open.asked);
                let line = format!("socket {listener} {name} {protocol} {asked}");
                peer.tell(&line, Some(socket.as_fd()))?;
                let is_its = |file: &&Arc<SocketFile>| asked.is_at(file.path());
                let file = server.0.socket_files.iter().find(is_its);
                files.extend(file.map(|file| (count, file.identity())));
                count += 1;
            }
        }
        let path = format!("path {}", PassedPlace::words(&self.place, files));
        peer.tell(&path, Some(self.place.listener.as_fd()))?;
        let connections = self.servers.iter().map(|server| server.0.connections_max);
        peer.tell(&format!("end {}", connections.max().unwrap_or(0)), None)
    }

    /// The new process accepts: this one drains.
    fn hand_over(self, peer: &Peer, handed_over: impl FnOnce()) {
        let (servers, mut before) = (self.servers, self.before);
        // From now on the new process may have gone; the way back is closed.
        let _ = peer.tell("draining", None);
        for waited in before.iter().flat_map(Releasing::peers) {
            let _ = peer.tell("draining", Some(waited.0.as_fd()));
        }
        drop(self.place);
        handed_over();
        for server in &servers {
            server.drain_now();
        }
        log::info!("handed over: draining");
        // A network thread that hangs does not close its own, nor does a server before this one
        // that hangs; the end of the process does.
        let mut pause = LOOK_AGAIN;
        while !servers.iter().all(is_closed) || before.as_mut().is_some_and(Releasing::holds) {
            if !matches!(
                await_readable(self.stop.as_fd(), None, Some(pause)),
                Ok(false)
            ) {
                return;
            }
            pause = LOOK_AGAIN_MAX.min(pause * 2);
        }
        let _ = peer.tell("released", None);
    }
}

/// Whether a server accepts no more.
fn is_closed(server: &Handle) -> bool {
    // Datagrams may come to both: each is answered by one.
    let sockets = server.0.open_sockets.iter();
    let mut sockets = sockets.filter(|open| open.kind == SocketKind::Connections);
    sockets.all(|open| open.socket.strong_count() == 0)
}
