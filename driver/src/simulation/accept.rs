//! Accept: connections of a client wait in a listener's backlog until they arrive.
//!
//! Faults: no descriptor is free, the connection is lost before it is accepted, an accept of many
//! ends early.

use super::Simulation;
use super::faults::Fault;
use super::operations::Kind;
use super::world::World;
use crate::completion::{Errno, Outcome};
use crate::driver::OperationMode;
use crate::socket::{Handle, Listener, Socket};

impl Simulation {
    pub(super) fn start_accept(
        &mut self,
        listener: &Listener,
        user_data: u64,
        mode: OperationMode,
    ) {
        self.counters.accepts_armed += 1;
        let listener = listener.number();
        self.start(user_data, Kind::Accept { listener }, mode);
    }

    pub(super) fn accept_now(&mut self, listener: &Listener) -> Option<Socket> {
        let socket = self.network.world().accept_waiting(listener.number())?;
        Some(Socket::new(Handle::Simulated(socket)))
    }
}

impl World {
    pub(super) fn progress_accept(&mut self, number: u64, listener: u32) -> bool {
        let waiting = &self.listeners[listener as usize].waiting;
        let Some((arrival_ns, connection)) = waiting.front().copied() else {
            return false;
        };
        if arrival_ns > self.now_ns {
            return false;
        }
        if self.sockets.len() >= self.sockets_max || self.strikes(Fault::NoDescriptor) {
            return self.fail(number, Errno::MFILE);
        }
        if self.strikes(Fault::NoFile) {
            return self.fail(number, Errno::NFILE);
        }
        self.listeners[listener as usize].waiting.pop_front();
        if self.strikes(Fault::Aborted) {
            let lost = &mut self.connections[connection as usize];
            lost.broken = true;
            lost.server_closed = true;
            return self.fail(number, Errno::CONNABORTED);
        }
        let socket = self.enter(connection);
        let more = self.continues(number);
        let socket = Socket::new(Handle::Simulated(socket));
        self.complete(number, more, Outcome::Accepted(socket));
        true
    }

    /// Gives a connection its socket.
    pub(super) fn enter(&mut self, connection: u32) -> u32 {
        let socket = self.sockets_made;
        self.sockets_made += 1;
        self.sockets.insert(socket, connection);
        socket
    }

    /// The socket of a connection that has come, if there is room for it.
    pub(super) fn accept_waiting(&mut self, listener: u32) -> Option<u32> {
        let waiting = &mut self.listeners[listener as usize].waiting;
        let (arrival_ns, connection) = waiting.front().copied()?;
        if arrival_ns > self.now_ns || self.sockets.len() >= self.sockets_max {
            return None;
        }
        waiting.pop_front();
        Some(self.enter(connection))
    }
}
