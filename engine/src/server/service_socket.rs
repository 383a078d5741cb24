//! A listening Unix socket that a service accepts from itself, beside its listener.
//!
//! The engine opens it as it does those of listeners: it takes the one that another process has
//! passed, or makes the file, which replaces one that a killed server has left. A protocol that
//! names it ([`ListenerOptions::service_sockets`](crate::ListenerOptions)) has it handed over
//! with the listener's sockets; the service closes it then, and the file stays. At the end of the
//! server the file is removed.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, Weak};

use rustix::fs::OFlags;
use rustix::net::SocketType;

use crate::server::binding::bind_unix;
use crate::server::socket_watch;
use crate::server::sockets::{ListenAddress, OpenSocket, PassedSockets, SocketFile, SocketKind};

/// What the engine knows of the socket; see the module. Clones are the same one.
#[derive(Clone, Debug)]
pub struct ServiceSocket {
    name: &'static str,
    at: ListenAddress,
    socket: Weak<OwnedFd>,
    file: Arc<SocketFile>,
}

impl ServiceSocket {
    /// Listens at `path`, with packets that keep their bounds (SOCK_SEQPACKET) and for this user
    /// alone (0600), or takes the socket that was passed for that. It does not block. It is open as
    /// long as the first of the two is kept; the name, one word, is what a successor knows it by.
    ///
    /// # Errors
    /// The path cannot be bound.
    pub fn packets_at(
        path: &Path,
        name: &'static str,
        passed: &PassedSockets,
    ) -> io::Result<(Arc<OwnedFd>, ServiceSocket)> {
        let at = ListenAddress::Unix(path.to_owned());
        let taken = passed.take_for_service(name, &at);
        let (socket, file) = match taken {
            Some(socket) => (socket, SocketFile::of_another(path, passed)?),
            None => {
                let (socket, file) = bind_unix(path, SocketType::SEQPACKET, 0o600)?;
                (socket, Arc::new(file))
            }
        };
        let flags = rustix::fs::fcntl_getfl(&socket)?;
        rustix::fs::fcntl_setfl(&socket, flags | OFlags::NONBLOCK)?;
        socket_watch::begin(&file);
        let socket = Arc::new(socket);
        let known = ServiceSocket {
            name,
            at,
            socket: Arc::downgrade(&socket),
            file,
        };
        Ok((socket, known))
    }

    pub(crate) fn file(&self) -> &Arc<SocketFile> {
        &self.file
    }

    /// To hand it over with a listener's.
    pub(crate) fn open_socket(&self, listener: u16) -> OpenSocket {
        OpenSocket {
            listener,
            protocol: self.name,
            asked: self.at.clone(),
            kind: SocketKind::Connections,
            socket: Weak::clone(&self.socket),
        }
    }
}
