//! Opens the sockets of all listeners, and shares them out among the network threads.
//!
//! | a listener has          | its sockets                                                        |
//! |-------------------------|--------------------------------------------------------------------|
//! | an internet address     | one for each thread that accepts, by SO_REUSEPORT                  |
//! | a path                  | one: a Unix socket has no SO_REUSEPORT                             |
//! | sockets that were given | those                                                              |
//! | sockets of a server     | those, and for an internet address more until each thread has one, |
//! |                         | which listen once that server has handed over                      |
//!
//! Sockets that a service accepts from itself ([`ServiceSocket`](crate::ServiceSocket))
//! are handed over with its listener's.
//!
//! With fewer sockets than threads, only one thread for each socket accepts: several io_urings that
//! accept from one socket do not share its load (one got all connections that came in sequence).
//! With more, a thread takes several: whatever waits in any of them is served.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use flatpath_driver::Listener;
use rustix::net::SocketType;

use crate::error::Error;
use crate::server::binding::{Sharing, bind, bind_patiently, bind_unix, let_join};
use crate::server::options::Spread;
use crate::server::settings::{Asked, Endpoint};
use crate::server::socket_watch;
use crate::server::sockets::{
    Before, Later, ListenAddress, Listening, OpenSocket, PassedSockets, SocketFile, SocketKind,
    listening,
};

/// The sockets of a server.
pub(crate) struct Sockets {
    /// Each listener.
    pub(crate) listening: Vec<Listening>,
    /// For each thread, the sockets of each listener that it accepts from.
    pub(crate) per_thread: Vec<Vec<Vec<Listener>>>,
    /// All of them, to hand over.
    pub(crate) open: Vec<OpenSocket>,
    pub(crate) files: Vec<Arc<SocketFile>>,
}

/// What one listener has got.
struct Opened {
    sockets: Vec<Arc<OwnedFd>>,
    asked: ListenAddress,
    address: ListenAddress,
    file: Option<Arc<SocketFile>>,
    /// The server that may accept from the same sockets.
    before: Option<Before>,
}

/// Opens the sockets of all endpoints.
pub(crate) fn open_all(
    endpoints: &mut [Endpoint],
    passed: &PassedSockets,
    (server, threads): (&str, usize),
    defer_accept: bool,
) -> Result<Sockets, Error> {
    let mut all = Sockets {
        listening: Vec::new(),
        per_thread: (0..threads).map(|_| Vec::new()).collect(),
        open: Vec::new(),
        files: Vec::new(),
    };
    let alone = first_alone(endpoints);
    for ((number, endpoint), first) in (0u16..).zip(endpoints).zip(alone) {
        let asked = std::mem::replace(&mut endpoint.asked, Err(Error::NoListener))?;
        let wanted = match endpoint.spread {
            Spread::OneThread => 1,
            Spread::EveryThread => threads,
        };
        let opened = open(asked, (server, endpoint.name), passed, wanted)?;
        if opened.sockets.len() < wanted {
            log::warn!(
                "{} {}: {} of {wanted} network threads accept: it has no more sockets",
                endpoint.name,
                opened.address,
                opened.sockets.len(),
            );
        }
        all.listening.push(Listening {
            name: endpoint.name,
            address: opened.address,
        });
        all.files.extend(opened.file);
        for service in &endpoint.service_sockets {
            all.files.push(Arc::clone(service.file()));
            all.open.push(service.open_socket(number));
        }
        let own = share_out(opened.sockets, first, wanted, threads);
        for (of_all, own) in all.per_thread.iter_mut().zip(own) {
            let own = own.into_iter().map(|socket| {
                all.open.push(OpenSocket {
                    listener: number,
                    protocol: endpoint.name,
                    asked: opened.asked.clone(),
                    kind: SocketKind::Connections,
                    socket: Arc::downgrade(&socket),
                });
                let listener = match &opened.before {
                    Some(before) => Listener::new(socket).taken_over_from(before.acceptor.clone()),
                    None => Listener::new(socket),
                };
                if defer_accept
                    && endpoint.defer_accept
                    && let Err(cause) = listener.defer_accept()
                {
                    log::debug!("accept does not wait for first bytes: {cause}");
                }
                listener
            });
            of_all.push(own.collect());
        }
    }
    Ok(all)
}

/// The number by which the threads of each listener are chosen: its own, or that of the first one
/// of its protocol where each is on one thread, so that connections of any two can be spliced.
fn first_alone(endpoints: &[Endpoint]) -> Vec<usize> {
    let is_alone = |endpoint: &Endpoint| endpoint.spread == Spread::OneThread;
    let same = |one: &Endpoint, other: &Endpoint| {
        is_alone(one) && is_alone(other) && one.name == other.name
    };
    let first = |(number, endpoint)| {
        let mut before = endpoints.iter().take(number);
        before.position(|it| same(it, endpoint)).unwrap_or(number)
    };
    endpoints.iter().enumerate().map(first).collect()
}

/// Which thread accepts from which sockets. Listeners of few sockets begin with different threads:
/// that with this number.
fn share_out(
    sockets: Vec<Arc<OwnedFd>>,
    number: usize,
    wanted: usize,
    threads: usize,
) -> Vec<Vec<Arc<OwnedFd>>> {
    let mut shares: Vec<Vec<Arc<OwnedFd>>> = (0..threads).map(|_| Vec::new()).collect();
    let first = match wanted.min(sockets.len()) < threads {
        true => number,
        false => 0,
    };
    for (socket, place) in sockets.into_iter().zip((0..wanted).cycle()) {
        shares[(first + place) % threads].push(socket);
    }
    shares
}

fn open(
    asked: Asked,
    (server, protocol): (&str, &'static str),
    passed: &PassedSockets,
    wanted: usize,
) -> Result<Opened, Error> {
    let asked = match asked {
        Asked::Given(sockets) => return given(protocol, sockets),
        Asked::At(asked) => asked,
    };
    let (sockets, is_servers) = passed.take((server, protocol), (&asked, SocketKind::Connections));
    let mut sockets: Vec<_> = sockets.into_iter().map(Arc::new).collect();
    let Some(first) = sockets.first() else {
        return bind_at(asked, wanted, passed);
    };
    let refused = |cause| Error::Bind {
        address: asked.clone(),
        cause,
    };
    let address = ListenAddress::of(first).map_err(refused)?;
    for socket in &sockets {
        let _ = crate::server::binding::tune(socket);
    }
    if let (true, ListenAddress::Internet(at)) = (is_servers, &address) {
        if sockets.len() < wanted {
            let_join(&sockets).map_err(refused)?;
        }
        while sockets.len() < wanted {
            let socket = bind(*at, Sharing::JoinsLater).map_err(refused)?.0;
            let socket = Arc::new(socket);
            passed.postpone(Later::Listen(Arc::downgrade(&socket)));
            sockets.push(socket);
        }
    }
    let file = match &address {
        ListenAddress::Unix(path) if is_servers => SocketFile::of_another(path, passed).ok(),
        _ => None,
    };
    if let Some(file) = &file {
        socket_watch::begin(file);
    }
    Ok(Opened {
        sockets,
        asked,
        address,
        file,
        before: passed.before(),
    })
}

/// Sockets that the program has opened itself.
fn given(protocol: &'static str, sockets: Vec<OwnedFd>) -> Result<Opened, Error> {
    let refused = |cause| Error::Address {
        address: format!("a socket for {protocol}"),
        cause,
    };
    let addresses: Result<Vec<_>, _> = sockets.iter().map(listening).collect();
    let address = addresses.map_err(refused)?.into_iter().next();
    let Some(address) = address else {
        return Err(refused(std::io::Error::other("there is none")));
    };
    Ok(Opened {
        sockets: sockets.into_iter().map(Arc::new).collect(),
        asked: address.clone(),
        address,
        file: None,
        before: None,
    })
}

/// Binds an address.
fn bind_at(asked: ListenAddress, wanted: usize, passed: &PassedSockets) -> Result<Opened, Error> {
    let refused = |cause| Error::Bind {
        address: asked.clone(),
        cause,
    };
    match &asked {
        ListenAddress::Internet(at) => {
            let (mut sockets, mut at) = (Vec::new(), *at);
            for place in 0..wanted {
                let sharing = match place {
                    _ if wanted == 1 => Sharing::Alone,
                    0 => Sharing::First,
                    _ => Sharing::Joins,
                };
                let bound = bind_patiently(|| bind(at, sharing), std::thread::sleep);
                let (socket, bound) = bound.map_err(refused)?;
                // With port 0 the first socket picks, the others share.
                at = bound;
                sockets.push(Arc::new(socket));
            }
            let address = ListenAddress::Internet(at);
            Ok(Opened {
                sockets,
                address,
                asked,
                file: None,
                before: None,
            })
        }
        ListenAddress::Unix(path) => {
            let (socket, file) = bind_unix(path, SocketType::STREAM, 0o660).map_err(refused)?;
            let file = Arc::new(file);
            socket_watch::begin(&file);
            Ok(Opened {
                sockets: vec![Arc::new(socket)],
                address: asked.clone(),
                asked,
                file: Some(file),

                before: None,
            })
        }
        ListenAddress::Passed(name) if passed.has_named(name) => {
            let cause = "the socket that was passed under this name is one of datagrams";
            Err(refused(std::io::Error::other(cause)))
        }
        ListenAddress::Passed(name) => Err(passed.not_passed(name)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shares(sockets: usize, number: usize, wanted: usize, threads: usize) -> Vec<usize> {
        let open =
            || OwnedFd::from(std::net::TcpListener::bind("127.0.0.1:0").expect("a free port"));
        let sockets = (0..sockets).map(|_| Arc::new(open())).collect();
        let shares = share_out(sockets, number, wanted, threads);
        shares.iter().map(Vec::len).collect()
    }

    #[test]
    fn each_socket_goes_to_one_thread_and_as_many_threads_as_can_be_have_one() {
        assert_eq!(shares(3, 1, 3, 3), [1, 1, 1]);
        assert_eq!(shares(5, 0, 3, 3), [2, 2, 1]);
        assert_eq!(shares(1, 0, 3, 3), [1, 0, 0]);
        assert_eq!(shares(1, 4, 3, 3), [0, 1, 0]);
        assert_eq!(shares(2, 1, 1, 2), [0, 2], "one thread takes all");
        assert_eq!(shares(1, 1, 1, 2), [0, 1]);
    }
}
