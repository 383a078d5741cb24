//! Opens the sockets of listeners for datagrams.
//!
//! A listener has one socket, or those that were passed for it, and one network thread receives
//! from all of them: what a service answers takes microseconds, and a second thread would have to
//! share the sockets' datagrams out. Listeners begin with different threads.
//!
//! No other socket may bind the address, so none is bound with SO_REUSEADDR or SO_REUSEPORT: for
//! datagrams either would let another process take them.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use flatpath_driver::DatagramSocket;

use crate::error::Error;
use crate::network::DatagramSetup;
use crate::server::binding::{bind_datagrams, bind_patiently};
use crate::server::settings::DatagramEndpoint;
use crate::server::sockets::{ListenAddress, Listening, OpenSocket, PassedSockets, SocketKind};

/// The sockets for datagrams of a server.
pub(crate) struct DatagramSockets {
    /// Each listener.
    pub(crate) listening: Vec<Listening>,
    /// What each thread receives from.
    pub(crate) per_thread: Vec<Vec<DatagramSetup>>,
    /// All of them, to hand over.
    pub(crate) open: Vec<OpenSocket>,
}

/// Opens the sockets of all endpoints. Their listeners' numbers begin with `first`.
pub(crate) fn open_datagrams(
    endpoints: Vec<DatagramEndpoint>,
    first: usize,
    passed: &PassedSockets,
    (server, threads): (&str, usize),
) -> Result<DatagramSockets, Error> {
    let mut all = DatagramSockets {
        listening: Vec::new(),
        per_thread: (0..threads).map(|_| Vec::new()).collect(),
        open: Vec::new(),
    };
    for (place, endpoint) in endpoints.into_iter().enumerate() {
        let number = u16::try_from(first + place).expect("listeners are few");
        let (asked, name) = (endpoint.asked?, endpoint.service.name());
        let refused = |cause| Error::Bind {
            address: asked.clone(),
            cause,
        };
        let sockets = open(&asked, (server, name), passed)?;
        for socket in sockets {
            let socket = Arc::new(socket);
            let address = ListenAddress::of(&*socket).map_err(refused)?;
            let port = address.internet().map_or(0, |address| address.port());
            let known = all.listening.len() > place;
            if !known {
                all.listening.push(Listening { name, address });
            }
            all.open.push(OpenSocket {
                listener: number,
                protocol: name,
                asked: asked.clone(),
                kind: SocketKind::Datagrams,
                socket: Arc::downgrade(&socket),
            });
            all.per_thread[place % threads].push(DatagramSetup {
                socket: Arc::new(DatagramSocket::new(socket).map_err(refused)?),
                service: Arc::clone(&endpoint.service),
                number,
                port,
            });
        }
    }
    Ok(all)
}

/// The sockets of one listener; never none.
fn open(
    asked: &ListenAddress,
    server: (&str, &str),
    passed: &PassedSockets,
) -> Result<Vec<OwnedFd>, Error> {
    let refused = |cause| Error::Bind {
        address: asked.clone(),
        cause,
    };
    let (sockets, _) = passed.take(server, (asked, SocketKind::Datagrams));
    if !sockets.is_empty() {
        return Ok(sockets);
    }
    match asked {
        ListenAddress::Internet(at) => {
            let bound = bind_patiently(|| bind_datagrams(*at), std::thread::sleep);
            Ok(vec![bound.map_err(refused)?])
        }
        ListenAddress::Unix(_) => {
            let cause = "datagrams are received at an internet address, not at a path";
            Err(refused(std::io::Error::other(cause)))
        }
        ListenAddress::Passed(name) if passed.has_named(name) => {
            let cause = "the socket that was passed under this name is not one of datagrams";
            Err(refused(std::io::Error::other(cause)))
        }
        ListenAddress::Passed(name) => Err(passed.not_passed(name)),
    }
}
