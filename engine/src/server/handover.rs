//! Hands the listening sockets of running servers to another process, which serves from then on.
//!
//! The process that serves waits at a path ([`Handover`]). A new one connects there
//! ([`Takeover::begin`]), is sent every listening socket that is open, binds what is missing, and
//! starts its servers. Once nothing is left that could fail it says so ([`Handover::start`]). Only
//! then the old servers drain: accepts are cancelled, what they still bring is served, and the
//! sockets are closed here while they live on there. So every connection is in one of the two
//! processes or waits in a socket that one of them accepts from.
//!
//! | who ends early       | what follows                                                          |
//! |----------------------|-----------------------------------------------------------------------|
//! | the new one, unready | the old one serves as if nothing had been                             |
//! | the old one          | the new one has what it was sent by then, and binds the rest          |
//! | the old one, told to | the same: a server that drains hands over what it still has; at its   |
//! | stop                 | end it waits a second for one that is not ready, and leaves its files |
//! | the new one, ready   | as the end of any server: the old one has handed over                 |
//!
//! | who hangs            | what follows                                                          |
//! |----------------------|-----------------------------------------------------------------------|
//! | the new one, unready | its sockets are polled without exclusion, so it takes no wake-up of   |
//! |                      | the old one's; it is refused after five minutes, or for a later one   |
//! | the old one          | the new one serves ([`Predecessor`]),                                 |
//! |                      | and takes the rest when the old one has ended                         |
//! | one before the old   | the same, whether the old one has ended or not                        |
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
//! | old  | `path DEVICE INODE`              | the socket at the path itself, with the descriptor;|
//! |      |                                  | then `N DEVICE INODE` for the file of each Unix    |
//! |      |                                  | socket, by its place among the sockets from 0:     |
//! |      |                                  | another process may have put its own there         |
//! | old  | `end CONNECTIONS`                | that was all; the connections that it may have     |
//! | new  | `ready`                          | its servers accept, and nothing can fail any more  |
//! | old  | `draining`                       | the old ones are about to drain; again, with its   |
//! |      |                                  | descriptor, for each conversation that the old one |
//! |      |                                  | waits in for the end of a server before it         |
//! | old  | `released`                       | the last of their sockets is closed                |
//! | old  | `refused WHY`                    | no handover                                        |
//!
//! Nothing that the new process does before it is ready can be noticed by a client: further sockets
//! of an address (for more network threads) listen, and files of Unix sockets are its own to
//! remove, once the old one has handed over. One that may open too few descriptors for the
//! connections that the old one serves does not start.
//!
//! The file at the path may be removed by others: the process that waits makes it again within a
//! second, and a new one that finds none when it is ready makes its own (`place`).
//!
//! The descriptors are the same sockets, so nothing of them changes when the number of network
//! threads does. Several processes may connect at a time; sixteen of them may be silent.
//! Sockets are offered to one of them, and a later one that asks for them takes its place. So a
//! process that hangs delays no other.

mod peer;
mod place;
mod predecessor;
mod waits;

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use flatpath_driver::Predecessor;
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt};

use crate::server::running::Handle;
use crate::server::sockets::{
    Before, ListenAddress, Origin, PassedSocket, PassedSockets, SocketKind, listening_as_any,
    usable,
};

use peer::Peer;
use place::{PassedPlace, Place};
use predecessor::Releasing;
use waits::Waits;

const HELLO: &str = "flatpath-handover 1";

/// How long the other side may take for a line that it has nothing to wait for.
const LINE_MAX: Duration = Duration::from_secs(10);

/// How long [`Handover::start`] waits for the end of accepts in the server before. That one usually
/// takes milliseconds; if it hangs, this one serves.
const RELEASE_MAX: Duration = Duration::from_secs(1);

/// Processes that may be connected and silent; a further one takes the place of the first.
const SILENT_MAX: usize = 16;

/// How long a new process may take to start.
const START_MAX: Duration = Duration::from_secs(300);

/// How often the old one looks whether its sockets are closed: at first, and at the most.
const LOOK_AGAIN: Duration = Duration::from_millis(1);
const LOOK_AGAIN_MAX: Duration = Duration::from_millis(64);

/// The new process's side until its servers run; see the module.
pub struct Takeover {
    peer: Peer,
    sockets: PassedSockets,
    place: Option<PassedPlace>,
}

flatpath_structures::opaque_debug! {
    impl[] Takeover as "Takeover";
}

impl Takeover {
    /// Asks the process that waits at the path for its sockets; `None` where no process does.
    ///
    /// # Errors
    /// The directory can be written to by another user; the other side is of another user, speaks
    /// another version, or does not answer.
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
            place: None,
        };
        // Where it has ended meanwhile, the next line says so.
        let _ = takeover.peer.tell(HELLO, None);
        let mut connections_max = None;
        while takeover.next(&mut connections_max)? {}
        takeover.sockets.come_from(Before {
            acceptor: Predecessor::new(),
            connections_max,
        });
        Ok(Some(takeover))
    }

    /// Takes one line; false after the last one.
    fn next(&mut self, connections_max: &mut Option<usize>) -> io::Result<bool> {
        let silent = |cause: io::Error| match cause.kind() {
            io::ErrorKind::TimedOut => io::Error::new(
                io::ErrorKind::TimedOut,
                "the server that waits there does not answer: does it hang?",
            ),
            _ => cause,
        };
        let Some((line, socket)) = self.peer.hear(LINE_MAX).map_err(silent)? else {
            log::warn!("the server that was to hand over has ended");
            return Ok(false);
        };
        let (word, rest) = line.split_once(' ').unwrap_or((&line, ""));
        match (word, socket) {
            ("socket", Some(socket)) => self.add(rest, socket)?,
            ("path", Some(listener)) => {
                let (place, files) = PassedPlace::new(listener, rest);
                self.place = Some(place);
                for (number, identity) in files {
                    self.sockets.made_by_server(number, identity);
                }
            }
            ("socket" | "path", None) => {
                let cause = "a socket did not come with its line: has this process a descriptor \
                             left for it?";
                return Err(io::Error::other(cause));
            }
            ("end", _) => {
                *connections_max = rest.parse().ok();
                return Ok(false);
            }
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
}

/// A thread that waits for the next process. Dropped, it waits no more, and removes the path unless
/// it has handed over. See the module.
#[derive(Debug)]
pub struct Handover {
    stop: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl Handover {
    /// Waits at the path (made for its owner alone). `handed_over` is called when the servers are
    /// about to drain because another process accepts in their place.
    ///
    /// With a `takeover` the server before this one hears first that the servers here accept, so
    /// that it drains; all that can fail has been done by then. This waits until it accepts no
    /// more, a second at most: one that hangs then is waited for by the thread. What no listener
    /// has taken, of `passed` as well, is closed then, with a warning.
    ///
    /// # Errors
    /// The directory can be written to by another user, the path cannot be bound, or no thread can
    /// be started: the server before this one serves on. It does so, too, if this one took too long
    /// to start, or another process has taken its place.
    pub fn start(
        path: &Path,
        takeover: Option<Takeover>,
        passed: &PassedSockets,
        servers: Vec<Handle>,
        handed_over: impl FnOnce() + Send + 'static,
    ) -> io::Result<Handover> {
        let (peer, place) = match takeover {
            Some(takeover) => {
                passed.extend(&takeover.sockets);
                (Some(takeover.peer), takeover.place)
            }
            None => (None, None),
        };
        let place = Place::ready(path, place)?;
        let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC)?);
        let (reports, released) = channel();
        let waits = Waits {
            place,
            servers,
            stop: Arc::clone(&stop),
            before: peer.map(|peer| Releasing::new(peer, passed.clone(), reports)),
        };
        let thread = std::thread::Builder::new()
            .name("flatpath-handover".into())
            .spawn(move || waits.run(handed_over))?;
        let handover = Handover {
            stop,
            thread: Some(thread),
        };
        match released.recv_timeout(RELEASE_MAX) {
            Ok(result) => result.map(|()| handover),
            Err(RecvTimeoutError::Timeout) => {
                log::warn!("the server before this one hangs: this one serves beside it");
                Ok(handover)
            }
            // There was none.
            Err(RecvTimeoutError::Disconnected) => Ok(handover),
        }
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

#[cfg(test)]
mod tests;
