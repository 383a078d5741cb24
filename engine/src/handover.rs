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
//! | the old one          | the new one has what it was sent by then, and binds the rest; the     |
//! |                      | same where the old one is told to stop meanwhile                      |
//! | the new one, ready   | as the end of any server: the old one has handed over                 |
//!
//! The two must be of the same user, or one of them root's. A conversation is packets of a Unix
//! socket (`SOCK_SEQPACKET`), one line of text each:
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
//! threads does. One conversation is held at a time; whoever connects meanwhile waits, if need be
//! for the successor.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, sockopt,
};

use crate::binding::bind_unix;
use crate::lifecycle::ServerState;
use crate::running::Handle;
use crate::sockets::{
    ListenAddress, Origin, PassedSocket, PassedSockets, SocketFile, listening_as_any,
};

const HELLO: &str = "flatpath-handover 1";

/// Longest line.
const LINE_BYTES_MAX: usize = 4_096;

/// How long the other side may take for a line that it has nothing to wait for.
const LINE_MAX: Duration = Duration::from_secs(10);

/// How long a new process may take to start.
const START_MAX: Duration = Duration::from_secs(300);

/// How often the old one looks whether its sockets are closed.
const LOOK_AGAIN: Duration = Duration::from_millis(1);

/// A conversation, and what ends it early.
struct Peer<'a> {
    connection: OwnedFd,
    stop: Option<BorrowedFd<'a>>,
}

impl Peer<'_> {
    /// Sends a line, with a descriptor if there is one.
    fn tell(&self, line: &str, socket: Option<BorrowedFd<'_>>) -> io::Result<()> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let sockets: Vec<BorrowedFd<'_>> = socket.into_iter().collect();
        if !sockets.is_empty() {
            ancillary.push(SendAncillaryMessage::ScmRights(&sockets));
        }
        let bytes = [io::IoSlice::new(line.as_bytes())];
        rustix::net::sendmsg(
            &self.connection,
            &bytes,
            &mut ancillary,
            SendFlags::NOSIGNAL,
        )?;
        Ok(())
    }

    /// The next line, with its descriptor; `None` when the other side has ended.
    fn hear(&self, patience: Duration) -> io::Result<Option<(String, Option<OwnedFd>)>> {
        if !await_readable(self.connection.as_fd(), self.stop, Some(patience))? {
            return Err(io::ErrorKind::TimedOut.into());
        }
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
            &self.connection,
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

    /// Whether the other side may hand over to this one, or the other way round.
    fn check(&self) -> io::Result<()> {
        let theirs = sockopt::socket_peercred(&self.connection)?.uid;
        let own = rustix::process::geteuid();
        match theirs == own || theirs.is_root() || own.is_root() {
            true => Ok(()),
            false => Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                format!("user {} is on the other side", theirs.as_raw()),
            )),
        }
    }
}

/// Waits until something can be read; false when the time is over or the thread is to stop.
fn await_readable(
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

/// The new process's side; see the module.
pub struct Takeover {
    peer: Peer<'static>,
    sockets: PassedSockets,
    path: Option<OwnedFd>,
}

impl Takeover {
    /// Asks the process that waits at the path for its sockets; `None` where no process does.
    ///
    /// # Errors
    /// The other side is of another user, speaks another version, is ending, or does not answer.
    pub fn begin(path: &Path) -> io::Result<Option<Takeover>> {
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
        let peer = Peer {
            connection,
            stop: None,
        };
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
        let address = listening_as_any(&socket)?;
        let asked = words.next().unwrap_or_default();
        let internet = || asked.parse().ok().map(ListenAddress::Internet);
        let asked = ListenAddress::from_prefix(asked).or_else(internet);
        self.sockets.add(PassedSocket {
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
    /// The path cannot be bound, or no thread can be started.
    pub fn start(
        path: &Path,
        waiting: Waiting,
        servers: Vec<Handle>,
        handed_over: impl FnOnce() + Send + 'static,
    ) -> io::Result<Handover> {
        let (listener, file) = match waiting.0 {
            Some(listener) => (listener, SocketFile::at(path)?),
            None => bind_unix(path, SocketType::SEQPACKET, 0o600)?,
        };

        let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC)?);
        let waits = Waits {
            path: path.to_owned(),
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
    path: PathBuf,
    listener: OwnedFd,
    file: SocketFile,
    servers: Vec<Handle>,
    stop: Arc<OwnedFd>,
}

impl Waits {
    fn run(self, handed_over: impl FnOnce()) {
        let stop = Arc::clone(&self.stop);
        let stop = stop.as_fd();
        while let Ok(true) = await_readable(self.listener.as_fd(), Some(stop), None) {
            let accepted = rustix::net::accept_with(&self.listener, SocketFlags::CLOEXEC);
            let Ok(connection) = accepted else {
                // It has gone already, or there is no descriptor for it.
                std::thread::sleep(LOOK_AGAIN);
                continue;
            };
            let peer = Peer {
                connection,
                stop: Some(stop),
            };
            match self.offer(&peer) {
                Ok(true) => return self.hand_over(&peer, handed_over),
                // This one ends by itself: the new one has its sockets, and serves without it.
                _ if matches!(await_readable(stop, None, Some(Duration::ZERO)), Ok(true)) => return,
                Ok(false) => log::warn!("the process that was to take over has ended: serving on"),
                Err(cause) => {
                    let path = self.path.display();
                    log::warn!("no handover at {path}: {cause}: serving on");
                    let _ = peer.tell(&format!("refused {cause}"), None);
                }
            }
            self.files().for_each(SocketFile::own);
        }
    }

    /// The files of all Unix sockets.
    fn files(&self) -> impl Iterator<Item = &SocketFile> {
        let servers = self.servers.iter();
        let files = servers.flat_map(|server| &server.0.socket_files);
        files.map(|file| &**file).chain([&self.file])
    }

    /// Offers the sockets. True: the new process is ready.
    fn offer(&self, peer: &Peer<'_>) -> io::Result<bool> {
        peer.check()?;
        let Some((hello, _)) = peer.hear(LINE_MAX)? else {
            return Ok(false);
        };
        if hello != HELLO {
            let why = format!("the versions differ: {HELLO:?} here, {hello:?} there");
            return Err(io::Error::other(why));
        }
        let mut servers = self.servers.iter();
        if servers.any(|server| server.state() > ServerState::Running) {
            return Err(io::Error::other("the server ends already"));
        }
        log::info!("another process takes over");
        // From now on this one may end and the other serve.
        self.files().for_each(SocketFile::keep);
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
        peer.tell("end", None)?;
        match peer.hear(START_MAX)? {
            None => Ok(false),
            Some((line, _)) if line == "ready" => Ok(true),
            Some((line, _)) => Err(io::Error::other(format!("it said {line:?}"))),
        }
    }

    /// The new process accepts: this one drains.
    fn hand_over(self, peer: &Peer<'_>, handed_over: impl FnOnce()) {
        // From now on the new process may have gone; the way back is closed.
        let _ = peer.tell("draining", None);
        drop(self.listener);
        handed_over();
        for server in &self.servers {
            server.drain_now();
        }
        log::info!("handed over: draining");
        let is_closed = |server: &Handle| {
            let mut sockets = server.0.open_sockets.iter();
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
