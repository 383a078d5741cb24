//! Where a server listens, and listening sockets that another process made for it.
//!
//! A service manager passes sockets that outlive the server (sd_listen_fds(3)); a server that hands
//! over passes its own ([`handover`](crate::handover)). Both come here as [`PassedSockets`], and a
//! listener takes those that are meant for it instead of binding its address:
//!
//! | from            | a listener takes them                                                  |
//! |-----------------|------------------------------------------------------------------------|
//! | service manager | by their name (`fd:NAME`), or by their address                         |
//! | another process | of a server of the same name, that speaks the same protocol where it    |
//! |                 | was told to listen, or does; of several the first                       |
//!
//! Another process that has a passed socket keeps the connections that wait in it. So no option of
//! the socket is changed except that it does not block, sends at once, and waits for first bytes.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use flatpath_driver::Predecessor;
use flatpath_structures::lock::{Guard, Lock};
use rustix::net::{SocketType, sockopt};

use crate::error::Error;
use crate::housekeeper::Task;
use crate::limits::BACKLOG;

/// Where to listen, or where a listener listens.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ListenAddress {
    /// TCP. As a wish, port 0 is any free one.
    Internet(SocketAddr),
    /// A stream socket at this path (unix(7)).
    Unix(PathBuf),
    /// Sockets that were passed to this process under this name.
    Passed(String),
}

impl ListenAddress {
    /// Reads `unix:PATH` and `fd:NAME`; `None` for anything else, which may be an internet address.
    pub fn from_prefix(text: &str) -> Option<ListenAddress> {
        let unix = text.strip_prefix("unix:").filter(|path| !path.is_empty());
        let passed = || text.strip_prefix("fd:").filter(|name| !name.is_empty());
        match unix {
            Some(path) => Some(ListenAddress::Unix(path.into())),
            None => passed().map(|name| ListenAddress::Passed(name.into())),
        }
    }

    /// The internet address, if it is one.
    pub fn internet(&self) -> Option<SocketAddr> {
        match self {
            ListenAddress::Internet(address) => Some(*address),
            ListenAddress::Unix(_) | ListenAddress::Passed(_) => None,
        }
    }

    /// Whether it is a Unix socket's at this path.
    pub(crate) fn is_at(&self, path: &Path) -> bool {
        matches!(self, ListenAddress::Unix(own) if own == path)
    }

    /// Where a socket listens. One without a name is `unix:`.
    pub(crate) fn of(socket: impl AsFd) -> io::Result<ListenAddress> {
        let address = rustix::net::getsockname(socket)?;
        if let Ok(internet) = SocketAddr::try_from(address.clone()) {
            return Ok(ListenAddress::Internet(internet));
        }
        let unix = rustix::net::SocketAddrUnix::try_from(address)?;
        let path = unix.path_bytes().unwrap_or_default();
        let path: &std::ffi::OsStr = std::os::unix::ffi::OsStrExt::from_bytes(path);
        Ok(ListenAddress::Unix(path.into()))
    }
}

impl From<SocketAddr> for ListenAddress {
    fn from(address: SocketAddr) -> ListenAddress {
        ListenAddress::Internet(address)
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ListenAddress::Internet(address) => address.fmt(formatter),
            ListenAddress::Unix(path) => write!(formatter, "unix:{}", path.display()),
            ListenAddress::Passed(name) => write!(formatter, "fd:{name}"),
        }
    }
}

/// A listener of a running server.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Listening {
    /// The protocol's name.
    pub name: &'static str,
    /// The address, with the real port.
    pub address: ListenAddress,
}

/// Sockets that were passed to this process and wait for listeners. Clones are the same sockets.
#[derive(Clone, Debug, Default)]
pub struct PassedSockets {
    sockets: Arc<Lock<Vec<PassedSocket>>>,
    /// What is to be done once the server before this one has handed over.
    later: Arc<Lock<Vec<Later>>>,
    /// The server that passed some of them, until it has handed over.
    before: Arc<Lock<Option<Before>>>,
    /// The files of Unix sockets that a server passed, by their paths, as it has made them.
    files: Arc<Lock<HashMap<PathBuf, FileIdentity>>>,
}

/// The server that hands over.
#[derive(Clone, Debug)]
pub(crate) struct Before {
    /// Whether it may accept from the sockets.
    pub(crate) acceptor: Predecessor,
    /// The connections that it may have.
    pub(crate) connections_max: Option<usize>,
}

/// What a server that takes over does when the one before it accepts no more.
#[derive(Debug)]
pub(crate) enum Later {
    /// Listens on a socket that shares the address of those that it was passed: connections that
    /// came to it before would be lost with this process.
    Listen(Weak<OwnedFd>),
    /// Removes the file at the end.
    Own(Arc<SocketFile>),
}

/// What a socket carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SocketKind {
    /// Connections, of which each has a socket of its own.
    Connections,
    Datagrams,
}

/// One of them.
#[derive(Debug)]
pub(crate) struct PassedSocket {
    pub(crate) kind: SocketKind,
    pub(crate) origin: Origin,
    pub(crate) address: ListenAddress,
    pub(crate) socket: OwnedFd,
}

/// Who passed a socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A service manager, under a name.
    Manager { name: String },
    /// A process that hands over: the number of its listener, the name of its server's threads,
    /// what it speaks and where it was told to listen.
    Server {
        listener: u32,
        server: String,
        protocol: String,
        asked: ListenAddress,
    },
}

impl PassedSockets {
    /// The sockets that a service manager has passed (`LISTEN_FDS`, sd_listen_fds(3)); none where
    /// it has passed none. Only the first call of a process finds them.
    ///
    /// # Errors
    /// One of them is not open, or is neither a listening stream socket nor one of datagrams with
    /// an internet address.
    pub fn from_manager() -> io::Result<PassedSockets> {
        let sockets = PassedSockets::default();
        for (name, socket) in flatpath_sys::passed::take()? {
            let (kind, address) = usable(&socket).map_err(|cause| {
                let cause = format!("the passed socket {name:?} cannot be used: {cause}");
                io::Error::new(io::ErrorKind::InvalidInput, cause)
            })?;
            sockets.add(PassedSocket {
                kind,
                origin: Origin::Manager { name },
                address,
                socket,
            });
        }
        Ok(sockets)
    }

    fn list(&self) -> Guard<'_, Vec<PassedSocket>> {
        // Nothing under the lock panics half way.
        self.sockets.lock()
    }

    pub(crate) fn add(&self, socket: PassedSocket) {
        self.list().push(socket);
    }

    /// The file of the Unix socket that a server passed as the one with this number, from 0: what
    /// is at its path by now may be another process's.
    pub(crate) fn made_by_server(&self, number: u32, identity: FileIdentity) {
        let list = self.list();
        let named = usize::try_from(number).ok().and_then(|it| list.get(it));
        if let Some(ListenAddress::Unix(path)) = named.map(|one| &one.address) {
            self.files.lock().insert(path.clone(), identity);
        }
    }

    /// The file of a Unix socket that a server passed: as that server has said, or the one that is
    /// at its path now.
    fn file_at(&self, path: &Path) -> io::Result<SocketFile> {
        let known = self.files.lock().get(path).copied();
        known.map_or_else(
            || SocketFile::at(path),
            |it| Ok(SocketFile::known(path, it)),
        )
    }

    fn postponed(&self) -> Guard<'_, Vec<Later>> {
        self.later.lock()
    }

    pub(crate) fn postpone(&self, later: Later) {
        self.postponed().push(later);
    }

    /// Another server serves until this one does.
    pub(crate) fn come_from(&self, before: Before) {
        *self.before.lock() = Some(before);
    }

    /// The server before this one, until it has handed over.
    pub(crate) fn before(&self) -> Option<Before> {
        self.before.lock().clone()
    }

    /// The server before this one accepts no more. This one serves whatever follows from that: a
    /// socket that cannot listen now leaves its address to the others, with a line in the log.
    pub(crate) fn taken_over(&self) {
        if let Some(before) = self.before.lock().take() {
            before.acceptor.leave();
        }
        for later in std::mem::take(&mut *self.postponed()) {
            match later {
                Later::Own(file) => file.own(),
                Later::Listen(socket) => {
                    // Without one its network thread has ended already.
                    if let Some(socket) = socket.upgrade()
                        && let Err(cause) = rustix::net::listen(&*socket, BACKLOG)
                    {
                        log::error!("a network thread accepts nothing: {cause}");
                    }
                }
            }
        }
    }

    /// Takes those of another collection.
    pub fn extend(&self, others: &PassedSockets) {
        if Arc::ptr_eq(&self.sockets, &others.sockets) {
            return;
        }
        let sockets = std::mem::take(&mut *others.list());
        self.list().extend(sockets);
        let postponed = std::mem::take(&mut *others.postponed());
        self.postponed().extend(postponed);
        let files = std::mem::take(&mut *others.files.lock());
        self.files.lock().extend(files);
        if let Some(before) = others.before() {
            self.come_from(before);
        }
    }

    /// Where the sockets listen that a listener takes which is to listen at `fd:NAME`.
    pub fn addresses(&self, asked: &ListenAddress) -> Vec<ListenAddress> {
        let is_asked = |one: &&PassedSocket| match &one.origin {
            Origin::Manager { name } => *asked == ListenAddress::Passed(name.clone()),
            Origin::Server { asked: before, .. } => before == asked,
        };
        let list = self.list();
        let found = list.iter().filter(is_asked);
        let found = found.filter(|one| one.kind == SocketKind::Connections);
        found.map(|one| one.address.clone()).collect()
    }

    /// Whether a socket of any kind was passed under this name and is left.
    pub(crate) fn has_named(&self, name: &str) -> bool {
        let is_named = |one: &PassedSocket| match &one.origin {
            Origin::Manager { name: its } => its == name,
            Origin::Server { .. } => false,
        };
        self.list().iter().any(is_named)
    }

    /// The error of a listener whose socket was not passed.
    pub(crate) fn not_passed(&self, name: &str) -> Error {
        let foreign = flatpath_sys::passed::foreign();
        let instead = foreign.map(|process| {
            let own = std::process::id();
            format!(
                "LISTEN_PID={process} says that sockets were passed to that process, and this is \
                 {own}: a shell or another program that starts this one has to exec it"
            )
        });
        let left = || {
            let left = self.left().join(", ");
            (!left.is_empty()).then(|| format!("there are {left}"))
        };
        Error::NotPassed {
            name: name.to_owned(),
            instead: instead.or_else(left),
        }
    }

    /// What a service manager has passed and no listener has taken, in words: for an error.
    pub fn left(&self) -> Vec<String> {
        let list = self.list();
        let left = list.iter().filter(|one| !one.is_servers());
        left.map(PassedSocket::in_words).collect()
    }

    /// Closes what a server has handed over and no listener has taken, and removes the file of a
    /// Unix socket, which no process would accept at. Returns each in words, with the connections
    /// that waited in it and are reset.
    pub(crate) fn close_left(&self) -> Vec<(String, u32)> {
        let mut list = self.list();
        let left: Vec<_> = list.extract_if(.., |one| one.is_servers()).collect();
        let queued = |one: &PassedSocket| flatpath_sys::tcp::queued(&one.socket).unwrap_or(0);
        let closed = left.iter().map(|one| {
            if let ListenAddress::Unix(path) = &one.address {
                drop(self.file_at(path));
            }
            (one.in_words(), queued(one))
        });
        closed.collect()
    }

    /// Takes the socket that a server has passed for a service, known by its name.
    pub(crate) fn take_for_service(&self, name: &str, at: &ListenAddress) -> Option<OwnedFd> {
        let mut list = self.list();
        let is_meant = |one: &PassedSocket| match &one.origin {
            Origin::Server { protocol, .. } => protocol == name && one.address == *at,
            Origin::Manager { .. } => false,
        };
        let found = list.iter().position(is_meant)?;
        Some(list.swap_remove(found).socket)
    }

    /// Takes the sockets that are meant for a listener; `true` with those that a server passed.
    pub(crate) fn take(
        &self,
        (server, protocol): (&str, &str),
        (asked, kind): (&ListenAddress, SocketKind),
    ) -> (Vec<OwnedFd>, bool) {
        let mut list = self.list();
        let Some(first) = list
            .iter()
            .find(|one| one.kind == kind && one.is_for((server, protocol), asked))
        else {
            return (Vec::new(), false);
        };
        let first = (first.origin.clone(), first.address.clone());
        let is_same = |one: &PassedSocket| match (&one.origin, &first.0) {
            (
                Origin::Server { listener, .. },
                Origin::Server {
                    listener: other, ..
                },
            ) => listener == other,
            (Origin::Manager { name }, Origin::Manager { .. }) => match asked {
                ListenAddress::Passed(asked) => name == asked,
                _ => one.address == first.1,
            },
            _ => false,
        };
        let taken = list
            .extract_if(.., |one| one.kind == kind && is_same(one))
            .map(|one| one.socket);
        (taken.collect(), matches!(first.0, Origin::Server { .. }))
    }
}

impl PassedSocket {
    fn is_for(&self, (server, protocol): (&str, &str), wanted: &ListenAddress) -> bool {
        match &self.origin {
            Origin::Manager { name } => match wanted {
                ListenAddress::Passed(wanted) => name == wanted,
                _ => self.address == *wanted,
            },
            Origin::Server {
                server: other,
                protocol: spoken,
                asked,
                ..
            } => {
                let is_same = other == server && spoken == protocol;
                is_same && (asked == wanted || self.address == *wanted)
            }
        }
    }

    fn is_servers(&self) -> bool {
        matches!(self.origin, Origin::Server { .. })
    }

    fn in_words(&self) -> String {
        let address = &self.address;
        let kind = match self.kind {
            SocketKind::Connections => "",
            SocketKind::Datagrams => "udp:",
        };
        match &self.origin {
            Origin::Manager { name } => format!("fd:{name} ({kind}{address})"),
            Origin::Server { protocol, .. } => format!("{protocol} {kind}{address}"),
        }
    }
}

/// Where a passed socket listens.
///
/// # Errors
/// It does not, or is no stream socket.
pub(crate) fn listening(socket: &OwnedFd) -> io::Result<ListenAddress> {
    if sockopt::socket_type(socket)? != SocketType::STREAM {
        return Err(io::Error::other("it is not a listening stream socket"));
    }
    listening_as_any(socket)
}

/// What a socket carries that was passed, and where.
///
/// # Errors
/// It can be used for neither.
pub(crate) fn usable(socket: &OwnedFd) -> io::Result<(SocketKind, ListenAddress)> {
    if sockopt::socket_type(socket)? != SocketType::DGRAM {
        return Ok((SocketKind::Connections, listening(socket)?));
    }
    match ListenAddress::of(socket) {
        Ok(address @ ListenAddress::Internet(_)) => Ok((SocketKind::Datagrams, address)),
        _ => Err(io::Error::other(
            "it is a socket of datagrams without an internet address",
        )),
    }
}

/// The same for a socket that need not be one of streams.
pub(crate) fn listening_as_any(socket: &OwnedFd) -> io::Result<ListenAddress> {
    if !sockopt::socket_acceptconn(socket)? {
        return Err(io::Error::other("it is not a listening socket"));
    }
    ListenAddress::of(socket)
}

/// A listener's socket for as long as it is open, to hand over.
#[derive(Clone, Debug)]
pub(crate) struct OpenSocket {
    /// The listener's number in its server.
    pub(crate) listener: u16,
    pub(crate) protocol: &'static str,
    pub(crate) asked: ListenAddress,
    pub(crate) kind: SocketKind,
    pub(crate) socket: Weak<OwnedFd>,
}

/// Device and inode of a file.
pub(crate) type FileIdentity = (u64, u64);

/// The file of a Unix socket that this server has made or taken over: removed when this is dropped,
/// if it is still the same file. One that another server still accepts at stays, until that server
/// has handed over ([`SocketFile::own`]).
#[derive(Debug)]
pub(crate) struct SocketFile {
    path: PathBuf,
    identity: FileIdentity,
    /// It was removed, or is not to be.
    is_done: AtomicBool,
    /// It looks after the file.
    watch: OnceLock<Task>,
}

impl SocketFile {
    /// The file that is there now.
    pub(crate) fn at(path: &Path) -> io::Result<SocketFile> {
        Ok(SocketFile::known(path, identity_at(path)?))
    }

    /// This file, whatever is there now.
    fn known(path: &Path, identity: FileIdentity) -> SocketFile {
        SocketFile {
            path: path.to_owned(),
            identity,
            is_done: AtomicBool::new(false),
            watch: OnceLock::new(),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether this is the file that it was made for.
    pub(crate) fn is_same(&self, stat: &rustix::fs::Stat) -> bool {
        (stat.st_dev, stat.st_ino) == self.identity
    }

    /// Whether it was removed, or is another server's.
    pub(crate) fn is_done(&self) -> bool {
        // ORDER: Relaxed: it decides who removes the file, and publishes nothing.
        self.is_done.load(Ordering::Relaxed)
    }

    pub(crate) fn is_watched_by(&self, task: Task) {
        let _ = self.watch.set(task);
    }

    pub(crate) fn identity(&self) -> FileIdentity {
        self.identity
    }

    /// Whether this file is at the path now.
    pub(crate) fn is_there(&self) -> bool {
        identity_at(&self.path).is_ok_and(|there| there == self.identity)
    }

    /// The same for a file whose server has not handed over yet.
    pub(crate) fn of_another(path: &Path, passed: &PassedSockets) -> io::Result<Arc<SocketFile>> {
        let file = Arc::new(passed.file_at(path)?);
        file.keep();
        passed.postpone(Later::Own(Arc::clone(&file)));
        Ok(file)
    }

    /// The server that had it before has handed over.
    pub(crate) fn own(&self) {
        // ORDER: Relaxed: it decides who removes the file, and publishes nothing.
        self.is_done.store(false, Ordering::Relaxed);
    }

    /// Another server has it now.
    pub(crate) fn keep(&self) {
        // ORDER: Relaxed: it decides who removes the file, and publishes nothing.
        self.is_done.store(true, Ordering::Relaxed);
    }

    /// Removes it, if it is still the same file. Once.
    pub(crate) fn remove(&self) {
        // ORDER: Relaxed: it decides who removes it, and publishes nothing.
        if self.is_done.swap(true, Ordering::Relaxed) {
            return;
        }
        if self.is_there()
            && let Err(cause) = std::fs::remove_file(&self.path)
        {
            log::warn!("{} cannot be removed: {cause}", self.path.display());
        }
    }
}

/// Of the file that is there now.
fn identity_at(path: &Path) -> io::Result<FileIdentity> {
    let stat = rustix::fs::lstat(path)?;
    Ok((stat.st_dev, stat.st_ino))
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        self.remove();
    }
}

#[cfg(test)]
mod tests;
