//! Hands the listening sockets of running servers to another process, which serves from then on.
//!
//! The process that serves waits at a path ([`Handover`]). A new one connects there
//! ([`Takeover::begin`]), is sent every listening socket, starts its servers with them, and says so
//! ([`Takeover::finish`]). Only then the old servers drain: accepts are cancelled, what they still
//! bring is served, and the sockets are closed here while they live on there. So every connection
//! is in one of the two processes or waits in a socket that one of them accepts from.
//!
//! | who ends early       | what follows                                                          |
//! |----------------------|-----------------------------------------------------------------------|
//! | the new one, unready | the old one serves as if nothing had been                             |
//! | the old one          | the new one has what it was sent by then, and binds the rest          |
//! | the old one, told to | the new one has a second to get ready, and all is handed over; else   |
//! | stop meanwhile       | it is refused, and the old one removes its files                      |
//! | the new one, ready   | as the end of any server: the old one has handed over                 |
//!
//! Each side accepts the other only if it is of the same user, or root's: who sends a socket
//! decides what clients talk to, and who receives one reads what they send. The path's directory
//! must be one that no other user can write to ([`crate::trusted`]).
//!
//! A conversation is packets of a Unix socket (`SOCK_SEQPACKET`), one line of text each:
//!
//! | from | line                             | meaning                                            |
//! |------|----------------------------------|----------------------------------------------------|
//! | new  | `flatpath-handover 1`            | the version; another one is refused                |
//! | old  | `socket N SERVER PROTOCOL ASKED` | a socket, with the descriptor                      |
//! | old  | `path`                           | the socket at the path itself, with the descriptor |
//! | old  | `end`                            | that was all                                       |
//! | new  | `ready`                          | its servers accept                                 |
//! | old  | `draining`                       | the old ones are about to drain                    |
//! | old  | `released`                       | the last of their sockets is closed                |
//! | old  | `refused WHY`                    | no handover                                        |
//!
//! Nothing that the new process does before it is ready can be noticed by a client: further sockets
//! of an address (for more network threads) listen, and files of Unix sockets are its own to
//! remove, once the old one has handed over ([`Takeover::finish`]).
//!
//! The descriptors are the same sockets, so nothing of them changes when the number of network
//! threads does. Several processes may connect at a time. One that says nothing for a second is
//! disconnected; sockets are offered to one of them, and a later one that asks for them takes its
//! place. So a process that hangs delays the next by a second at most.

mod peer;

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt};

use crate::binding::bind_unix;
use crate::lifecycle::ServerState;
use crate::running::Handle;
use crate::sockets::{
    ListenAddress, Origin, PassedSocket, PassedSockets, SocketFile, SocketKind, listening_as_any,
    usable,
};

use peer::{Peer, SILENCE_MAX, await_readable};

const HELLO: &str = "flatpath-handover 1";

/// How long the other side may take for a line that it has nothing to wait for.
const LINE_MAX: Duration = Duration::from_secs(10);

/// Processes that may be connected and silent; a further one takes the place of the first.
const SILENT_MAX: usize = 16;

/// How long a new process may take to start.
const START_MAX: Duration = Duration::from_secs(300);

/// How often the old one looks whether its sockets are closed.
const LOOK_AGAIN: Duration = Duration::from_millis(1);

/// The new process's side; see the module.
pub struct Takeover {
    peer: Peer,
    sockets: PassedSockets,
    path: Option<OwnedFd>,
}

flatpath_structures::opaque_debug! {
    impl[] Takeover as "Takeover";
}

impl Takeover {
    /// Asks the process that waits at the path for its sockets; `None` where no process does.
    ///
    /// # Errors
    /// The directory can be written to by another user; the other side is of another user, speaks
    /// another version, is ending, or does not answer.
    pub fn begin(path: &Path) -> io::Result<Option<Takeover>> {
        crate::trusted::check_directory_of(path)?;
        let connection = rustix::net::socket_with(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )?;
        match rustix::net::connect(&connection, &SocketAddrUnix::new(path)?) {
            Err(Errno::NOENT | Errno::CONNREFUSED) => return Ok(None),
            connected => connected?,
        }
        let peer = Peer::of(connection)?;
        peer.check()?;
        let mut takeover = Takeover {
            peer,
            sockets: PassedSockets::default(),
            path: None,
        };
        // Where it has ended meanwhile, the next line says so.
        let _ = takeover.peer.tell(HELLO, None);
        while takeover.next()? {}
        Ok(Some(takeover))
    }

    /// Takes one line; false after the last one.
    fn next(&mut self) -> io::Result<bool> {
        let Some((line, socket)) = self.peer.hear(LINE_MAX)? else {
            log::warn!("the server that was to hand over has ended");
            return Ok(false);
        };
        let (word, rest) = line.split_once(' ').unwrap_or((&line, ""));
        match (word, socket) {
            ("socket", Some(socket)) => self.add(rest, socket)?,
            ("path", Some(socket)) => self.path = Some(socket),
            ("end", _) => return Ok(false),
            ("refused", _) => return Err(io::Error::other(rest.to_owned())),
            _ => return Err(io::Error::other(format!("it said {line:?}"))),
        }
        Ok(true)
    }

    fn add(&self, what: &str, socket: OwnedFd) -> io::Result<()> {
        let mut words = what.splitn(4, ' ');
        let (number, server, protocol) = (words.next(), words.next(), words.next());
        let listener = number.and_then(|number| number.parse().ok());
        let (Some(listener), Some(server), Some(protocol)) = (listener, server, protocol) else {
            return Err(io::Error::other(format!("it sent a socket {what:?}")));
        };
        let (kind, address) = match sockopt::socket_type(&socket)? {
            SocketType::DGRAM => usable(&socket)?,
            _ => (SocketKind::Connections, listening_as_any(&socket)?),
        };
        let asked = words.next().unwrap_or_default();
        let internet = || asked.parse().ok().map(ListenAddress::Internet);
        let asked = ListenAddress::from_prefix(asked).or_else(internet);
        self.sockets.add(PassedSocket {
            kind,
            origin: Origin::Server {
                listener,
                server: server.to_owned(),
                protocol: protocol.to_owned(),
                asked: asked.unwrap_or_else(|| address.clone()),
            },
            address,
            socket,
        });
        Ok(())
    }

    /// What it was sent: for [`Server::passed_sockets`](crate::Server::passed_sockets).
    pub fn sockets(&self) -> &PassedSockets {
        &self.sockets
    }

    /// Says that the servers here accept, so that the old ones drain, and waits until they accept
    /// no more. What no listener has taken, of `passed` as well, is closed then, with a warning.
    /// Returns what the next handover waits with, for [`Handover::start`].
    ///
    /// # Errors
    /// The old process does not drain: it has waited too long, and serves on.
    pub fn finish(self, passed: &PassedSockets) -> io::Result<Waiting> {
        let _ = self.peer.tell("ready", None);
        loop {
            match self.peer.hear(LINE_MAX) {
                Ok(Some((line, _))) if line == "draining" => {}
                Ok(Some((line, _))) if line != "released" => return Err(io::Error::other(line)),
                // Or the old process has ended, and its sockets are closed.
                Ok(_) => break,
                // It may still read that this one is ready, and rely on it.
                Err(cause) => {
                    log::warn!("the server before this one does not answer: {cause}");
                    break;
                }
            }
        }
        passed.extend(&self.sockets);
        passed.taken_over()?;
        for (socket, queued) in passed.close_left() {
            log::warn!("no longer served: {socket}; {queued} connections were waiting there");
        }
        Ok(Waiting(self.path))
    }
}

/// The socket at the path, if a process has left one.
#[derive(Debug, Default)]
pub struct Waiting(Option<OwnedFd>);

/// The old process's side: a thread that waits for a new one. Dropped, it waits no more, and
/// removes the path unless it has handed over. See the module.
#[derive(Debug)]
pub struct Handover {
    stop: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl Handover {
    /// Begins to wait at the path (made for its owner alone). `handed_over` is called when the
    /// servers are about to drain because another process accepts in their place.
    ///
    /// # Errors
    /// The directory can be written to by another user, the path cannot be bound, or no thread can
    /// be started.
    pub fn start(
        path: &Path,
        waiting: Waiting,
        servers: Vec<Handle>,
        handed_over: impl FnOnce() + Send + 'static,
    ) -> io::Result<Handover> {
        crate::trusted::check_directory_of(path)?;
        let (listener, file) = match waiting.0 {
            Some(listener) => (listener, SocketFile::at(path)?),
            None => bind_unix(path, SocketType::SEQPACKET, 0o600)?,
        };
        // A process that connects and goes before it is accepted stops nothing. The flag is the
        // socket's, so it comes with one that was handed over too.
        rustix::io::ioctl_fionbio(&listener, true)?;
        let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC)?);
        let waits = Waits {
            listener,
            file,
            servers,
            stop: Arc::clone(&stop),
        };
        let thread = std::thread::Builder::new()
            .name("flatpath-handover".into())
            .spawn(move || waits.run(handed_over))?;
        Ok(Handover {
            stop,
            thread: Some(thread),
        })
    }
}

impl Drop for Handover {
    fn drop(&mut self) {
        let _ = rustix::io::write(&*self.stop, &1_u64.to_ne_bytes());
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            log::error!("the thread that hands over panicked; this is a bug");
        }
    }
}

struct Waits {
    listener: OwnedFd,
    file: SocketFile,
    servers: Vec<Handle>,
    stop: Arc<OwnedFd>,
}

/// A connection, and until when its next line may come.
struct Awaited {
    peer: Peer,
    until: Instant,
}

impl Awaited {
    fn new(peer: Peer, patience: Duration) -> Awaited {
        let until = Instant::now() + patience;
        Awaited { peer, until }
    }
}

/// What a process has said that was offered the sockets.
enum Said {
    /// Its servers accept.
    Ready(Peer),
    /// That it does not take over; the conversation has ended.
    Other,
}

/// Which of those that were waited for can be read.
struct Readable {
    is_stopped: bool,
    has_newcomer: bool,
    silent: Vec<bool>,
    successor: bool,
}

impl Waits {
    fn run(self, handed_over: impl FnOnce()) {
        let mut silent: Vec<Awaited> = Vec::new();
        let mut successor: Option<Awaited> = None;
        while let Ok(readable) = self.wait(&silent, successor.as_ref()) {
            if readable.is_stopped {
                return self.end(successor, handed_over);
            }
            if let Some(said) = self.hear(&mut successor, readable.successor) {
                match said {
                    Said::Ready(peer) => return self.hand_over(&peer, handed_over),
                    Said::Other => self.files().for_each(SocketFile::own),
                }
            }
            let now = Instant::now();
            let mut is_readable = readable.silent.into_iter();
            let heard =
                silent.extract_if(.., |it| is_readable.next() == Some(true) || it.until <= now);
            for Awaited { peer, .. } in heard.collect::<Vec<_>>() {
                if let Some(next) = self.greet(peer, &mut successor) {
                    successor = Some(next);
                }
            }
            if readable.has_newcomer {
                self.accept(&mut silent);
            }
        }
    }

    /// Sleeps until something can be read, or somebody's time is over.
    fn wait(&self, silent: &[Awaited], successor: Option<&Awaited>) -> io::Result<Readable> {
        let awaited = || silent.iter().chain(successor);
        let sockets = [self.stop.as_fd(), self.listener.as_fd()];
        let sockets = sockets
            .into_iter()
            .chain(awaited().map(|it| it.peer.0.as_fd()));
        let mut waited: Vec<_> = sockets
            .map(|socket| PollFd::from_borrowed_fd(socket, PollFlags::IN))
            .collect();
        let until = awaited().map(|it| it.until).min();
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
            has_newcomer: next(),
            silent: silent.iter().map(|_| next()).collect(),
            successor: successor.is_some() && next(),
        })
    }

    /// Lets a process in that connects, unless it is another user's.
    fn accept(&self, silent: &mut Vec<Awaited>) {
        let accepted = rustix::net::accept_with(&self.listener, SocketFlags::CLOEXEC);
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
        silent.push(Awaited::new(peer, SILENCE_MAX));
    }

    /// What the process says that is offered the sockets, if it has said something or its time is
    /// over.
    fn hear(&self, successor: &mut Option<Awaited>, is_readable: bool) -> Option<Said> {
        let is_over = |it: &mut Awaited| it.until <= Instant::now();
        let Awaited { peer, .. } = successor.take_if(|it| is_readable || is_over(it))?;
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

    /// Offers the sockets to a process that says what it should, in place of one that they were
    /// offered to before.
    fn greet(&self, peer: Peer, before: &mut Option<Awaited>) -> Option<Awaited> {
        // Its time is over, or it has said something.
        let hello = match peer.hear(Duration::ZERO) {
            Ok(Some((hello, _))) => hello,
            Ok(None) => return None,
            Err(cause) => {
                peer.refuse(&cause.to_string());
                return None;
            }
        };
        let mut servers = self.servers.iter();
        if hello != HELLO {
            peer.refuse(&format!(
                "the versions differ: {HELLO:?} here, {hello:?} there"
            ));
            return None;
        }
        if servers.any(|server| server.state() > ServerState::Running) {
            peer.refuse("the server ends already");
            return None;
        }
        if let Some(before) = before.take() {
            before.peer.refuse("another process takes over");
        }
        log::info!("another process takes over");
        // From now on this one may end and the other serve.
        self.files().for_each(SocketFile::keep);
        if let Err(cause) = self.offer(&peer) {
            peer.refuse(&cause.to_string());
            self.files().for_each(SocketFile::own);
            return None;
        }
        Some(Awaited::new(peer, START_MAX))
    }

    /// This process ends. One that has the sockets gets a moment to say that it is ready.
    fn end(self, successor: Option<Awaited>, handed_over: impl FnOnce()) {
        let Some(Awaited { peer, .. }) = successor else {
            return;
        };
        match peer.hear(SILENCE_MAX) {
            Ok(Some((line, _))) if line == "ready" => self.hand_over(&peer, handed_over),
            _ => {
                peer.refuse("the server ends, and this one was not ready");
                self.files().for_each(SocketFile::own);
            }
        }
    }

    /// The files of all Unix sockets.
    fn files(&self) -> impl Iterator<Item = &SocketFile> {
        let servers = self.servers.iter();
        let files = servers.flat_map(|server| &server.0.socket_files);
        files.map(|file| &**file).chain([&self.file])
    }

    /// Sends all sockets.
    fn offer(&self, peer: &Peer) -> io::Result<()> {
        for (number, server) in (0_u32..).zip(&self.servers) {
            for open in &server.0.open_sockets {
                let Some(socket) = open.socket.upgrade() else {
                    continue;
                };
                let listener = number << 16 | u32::from(open.listener);
                let (name, protocol, asked) = (server.0.name, open.protocol, &open.asked);
                let line = format!("socket {listener} {name} {protocol} {asked}");
                peer.tell(&line, Some(socket.as_fd()))?;
            }
        }
        peer.tell("path", Some(self.listener.as_fd()))?;
        peer.tell("end", None)
    }

    /// The new process accepts: this one drains.
    fn hand_over(self, peer: &Peer, handed_over: impl FnOnce()) {
        // From now on the new process may have gone; the way back is closed.
        let _ = peer.tell("draining", None);
        drop(self.listener);
        handed_over();
        for server in &self.servers {
            server.drain_now();
        }
        log::info!("handed over: draining");
        let is_closed = |server: &Handle| {
            // Datagrams may come to both: each is answered by one.
            let sockets = server.0.open_sockets.iter();
            let mut sockets = sockets.filter(|open| open.kind == SocketKind::Connections);
            sockets.all(|open| open.socket.strong_count() == 0)
        };
        // A network thread that hangs does not close its own; the end of the process does.
        while !self.servers.iter().all(is_closed) {
            if !matches!(
                await_readable(self.stop.as_fd(), None, Some(LOOK_AGAIN)),
                Ok(false)
            ) {
                return;
            }
        }
        let _ = peer.tell("released", None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_has_gone_before_it_is_accepted_blocks_nothing() {
        let place = tempfile::tempdir().expect("a directory");
        let path = place.path().join("next");
        let (listener, _file) = bind_unix(&path, SocketType::SEQPACKET, 0o600).expect("free");
        let twin = listener.try_clone().expect("the same socket");
        let waiting = Waiting(Some(listener));
        let handover = Handover::start(&path, waiting, Vec::new(), || ()).expect("it waits");
        // As the thread would find it: nothing waits any more.
        let accepted = rustix::net::accept_with(&twin, SocketFlags::CLOEXEC);
        assert_eq!(accepted.map(drop), Err(Errno::WOULDBLOCK));
        drop(handover);
    }
}
