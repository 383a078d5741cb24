//! Connect: what the servers of the simulated network answer to connections that are opened.
//!
//! A test makes an [`Upstream`] for each remote, says how it answers, and takes the far ends of the
//! connections: each is a [`Client`], with the roles turned round. At a remote without one no
//! process listens.
//!
//! Faults: no descriptor is free, the peer refuses or does not answer in time.

use std::collections::VecDeque;

use super::Simulation;
use super::faults::{Fault, nanoseconds};
use super::network::{Client, Network};
use super::operations::Kind;
use super::servers::{Answer, Opening, Server};
use super::world::{Connection, World};
use crate::completion::{Errno, Outcome};
use crate::driver::OperationMode;
use crate::remote::Remote;
use crate::socket::{Handle, Socket};

/// A server of the simulated network, as a test drives it: see [`Network::upstream`].
#[derive(Clone)]
pub struct Upstream {
    network: Network,
    number: usize,
}

flatpath_structures::opaque_debug! {
    impl[] Upstream as "Upstream";
}

impl Network {
    /// A server that listens at `remote`, and answers so.
    ///
    /// # Panics
    /// When there is one already.
    pub fn upstream(&self, remote: impl Into<Remote>, answer: Answer) -> Upstream {
        let remote = remote.into();
        let mut world = self.world();
        let is_new = world.servers.iter().all(|server| server.remote != remote);
        assert!(is_new, "a server listens at {remote} already");
        world.servers.push(Server {
            remote,
            answer,
            waiting: VecDeque::new(),
        });
        let number = world.servers.len() - 1;
        drop(world);
        Upstream {
            network: self.clone(),
            number,
        }
    }
}

impl Upstream {
    /// Answers so from now on.
    pub fn answers(&self, answer: Answer) {
        self.network.world().servers[self.number].answer = answer;
    }

    /// The far end of the oldest connection that was opened and not taken; `None` while there is
    /// none. A connection that is not taken waits as in a backlog.
    pub fn accept(&self) -> Option<Client> {
        let number = self.network.world().servers[self.number]
            .waiting
            .pop_front()?;
        Some(Client::of(self.network.clone(), number))
    }
}

impl Simulation {
    pub(super) fn make_socket(&mut self, remote: &Remote) -> Result<Socket, Errno> {
        let mut world = self.network.world();
        if world.sockets.len() >= world.sockets_max || world.strikes(Fault::NoDescriptor) {
            return Err(Errno::MFILE);
        }
        if world.strikes(Fault::NoFile) {
            return Err(Errno::NFILE);
        }
        let number = world.connections.len() as u32;
        world.connections.push(Connection {
            peer: match remote {
                Remote::Tcp(address) => Some(*address),
                Remote::Unix(_) => None,
            },
            opening: Some(Opening {
                remote: remote.clone(),
                answered_ns: None,
                answer: Answer::Refuses,
            }),
            ..Connection::default()
        });
        let socket = world.enter(number);
        Ok(Socket::new(Handle::Simulated(socket)))
    }

    pub(super) fn start_connect(&mut self, socket: Socket, remote: &Remote, user_data: u64) {
        let socket = socket.number();
        self.start(user_data, Kind::Connect { socket }, OperationMode::Single);
        let mut world = self.network.world();
        let mut answered_ns = world.arrival_ns();
        let mut servers = world.servers.iter();
        let server = servers.find(|server| server.remote == *remote);
        let answer = server.map_or(Answer::Refuses, |server| server.answer);
        if let Answer::AcceptsAfter(time) = answer {
            answered_ns += nanoseconds(time);
        }
        let is_asked = match &mut world.connection_of(socket, "connect").opening {
            Some(opening) if opening.remote == *remote && opening.answered_ns.is_none() => {
                opening.answer = answer;
                opening.answered_ns = Some(answered_ns).filter(|_| answer != Answer::IsSilent);
                true
            }
            _ => false,
        };
        if !is_asked {
            world.broken_promise(&format!("C2 or C9: socket {socket} to {remote}"));
        }
    }
}

impl World {
    pub(super) fn progress_connect(&mut self, number: u64, socket: u32) -> bool {
        let now_ns = self.now_ns;
        let opening = &self.connection_of(socket, "connect").opening;
        let answer = match opening {
            Some(opening) if opening.answered_ns.is_some_and(|at| at <= now_ns) => opening.answer,
            _ => return false,
        };
        if answer == Answer::Refuses || self.strikes(Fault::ConnectRefused) {
            return self.fail(number, Errno::CONNREFUSED);
        }
        if self.strikes(Fault::ConnectTimeOut) {
            return self.fail(number, Errno::TIMEDOUT);
        }
        let connection = self.sockets[&socket];
        let opened = &mut self.connections[connection as usize];
        let opening = opened.opening.take();
        opened.vanished = answer == Answer::Vanishes;
        opened.deserted = answer == Answer::ResetsAtFirstByte;
        let mut servers = self.servers.iter_mut();
        let server = servers.find(|server| {
            opening
                .as_ref()
                .is_some_and(|it| it.remote == server.remote)
        });
        if let Some(server) = server {
            server.waiting.push_back(connection);
        }
        self.complete(number, false, Outcome::Connected);
        true
    }
}
