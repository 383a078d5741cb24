//! Close, abort, shutdown_write and cancel.

use std::sync::Arc;

use super::Simulation;
use super::operations::{Kind, Running};
use super::world::World;
use crate::driver::Operation;
use crate::socket::Socket;

impl Simulation {
    pub(super) fn start_end(&mut self, socket: Socket, is_abort: bool) {
        let number = socket.number();
        // A duplicate of the descriptor would keep the connection open.
        let is_lent = self.is_lent(number);
        let mut world = self.network.world();
        if is_lent {
            world.broken_promise(&format!("C8: socket {number} ends while it is lent"));
        }
        world.end_socket(number, is_abort);
    }

    pub(super) fn start_shutdown_write(&mut self, socket: Socket) {
        let socket = socket.number();
        let mut world = self.network.world();
        let sends = |kind: &Kind| matches!(kind, Kind::Send { socket: on, .. } if *on == socket);
        if world.operations.has(|running| sends(&running.kind)) {
            world.broken_promise(&format!("C3: socket {socket} is finished during a send"));
        }
        let arrival_ns = world.arrival_ns();
        let connection = world.connection_of(socket, "shutdown_write");
        connection.server_finished = true;
        connection.to_client.end(arrival_ns);
    }

    pub(super) fn start_cancel(&mut self, operation: Operation<'_>, user_data: u64) {
        let mut world = self.network.world();
        let meant = |kind: &Kind| match (&operation, kind) {
            (Operation::Accept(from), Kind::Accept { listener }) => from.number() == *listener,
            (Operation::Connect(of), Kind::Connect { socket }) => of.number() == *socket,
            (Operation::Receive(of), Kind::Receive { socket, .. }) => of.number() == *socket,
            (Operation::PollEventfd(of), Kind::PollEventfd { event }) => Arc::ptr_eq(of, event),
            (Operation::ReceiveDatagrams(of), Kind::ReceiveDatagrams { socket, .. }) => {
                of.number() == socket.number()
            }
            (Operation::Send(of), Kind::Send { socket, .. }) => of.number() == *socket,
            _ => false,
        };
        let fits = |running: &Running| running.user_data == user_data && meant(&running.kind);
        if let Some(running) = world.operations.find_mut(fits) {
            running.cancelled = true;
        }
    }
}

impl World {
    /// The driver's caller closes a socket, in order or with a reset.
    pub(super) fn end_socket(&mut self, socket: u32, reset: bool) {
        let uses = |running: &Running| running.kind.socket() == Some(socket);
        if self.operations.has(uses) {
            self.broken_promise(&format!(
                "C3: socket {socket} is closed during an operation"
            ));
        }
        self.close_socket(socket, reset);
    }

    /// The server's side closes in order, or with a reset.
    pub(super) fn close_socket(&mut self, socket: u32, reset: bool) {
        let arrival_ns = self.arrival_ns();
        let now_ns = self.now_ns;
        let connection = self.connection_of(socket, "close");
        // Like a kernel: bytes that were received and not read turn the close into a reset.
        let unread = connection.to_server.readable(now_ns) > 0;
        connection.server_closed = true;
        if reset || unread {
            connection.broken = true;
        }
        connection.to_client.end(arrival_ns);
        connection.to_server.clear();
        self.sockets.remove(&socket);
    }
}
