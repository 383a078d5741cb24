//! Send: what the client's side has room for, or less.
//!
//! Faults: fewer bytes than there is room for, a file that cannot be read, the connection is lost.

use flatpath_sys::tcp::Delivery;

use super::Simulation;
use super::faults::Fault;
use super::operations::{Kind, Running};
use super::world::World;
use crate::completion::{Errno, Outcome};
use crate::driver::{AfterSend, OperationMode};
use crate::file_range::failed;
use crate::segment::{Segment, SendList};
use crate::socket::Socket;

/// Bytes of a file that one call moves at most.
const FILE_CALL_BYTES: usize = 64 * 1024;

impl Simulation {
    pub(super) fn start_send(
        &mut self,
        socket: Socket,
        user_data: u64,
        list: &mut SendList,
        after: AfterSend,
    ) {
        let mut list = std::mem::take(list);
        list.empty_pipes()
            .expect("what was put in a pipe comes out");
        let socket = socket.number();
        let mut world = self.network.world();
        if world.connection_of(socket, "send").server_finished {
            world.broken_promise(&format!("C3: a send on socket {socket}, which is finished"));
        }
        drop(world);
        let kind = Kind::Send {
            socket,
            list,
            after,
        };
        self.start(user_data, kind, OperationMode::Single);
    }

    pub(super) fn delivery_of(&self, socket: Socket) -> Option<Delivery> {
        let mut world = self.network.world();
        // Half of what the way to a client takes is its receive buffer, half the send buffer here.
        let (now_ns, buffer_bytes) = (world.now_ns, world.window_bytes.div_ceil(2));
        let connection = world.connection_of(socket.number(), "delivery");
        Some(Delivery {
            acked_bytes: connection.to_client.acked(now_ns, buffer_bytes),
            is_answered: !connection.vanished,
        })
    }
}

impl World {
    pub(super) fn progress_send(&mut self, number: u64, socket: u32) -> bool {
        let (window_bytes, now_ns) = (self.window_bytes, self.now_ns);
        let arrival_ns = self.arrival_ns();
        let connection = self.connection_of(socket, "send");
        let broken = connection.is_broken(now_ns);
        let unread = connection.to_client.unread();
        connection.is_full &= unread > window_bytes / 3 * 2;
        let room = match connection.is_full {
            true => 0,
            false => window_bytes.saturating_sub(unread),
        };
        if broken {
            return self.fail(number, Errno::PIPE);
        }
        let losses = [
            (Fault::SendPipe, Errno::PIPE),
            (Fault::SendReset, Errno::CONNRESET),
        ];
        if let Some(errno) = self.loses_connection(socket, losses) {
            return self.fail(number, errno);
        }
        let (left, is_file) = match &self.operations.at(number).kind {
            Kind::Send { list, .. } => {
                let is_file = matches!(list.front(), Some(Segment::File(_)));
                (list.bytes(), is_file)
            }
            Kind::Accept { .. }
            | Kind::Connect { .. }
            | Kind::Receive { .. }
            | Kind::PollEventfd { .. }
            | Kind::ReceiveDatagrams { .. } => {
                unreachable!("send")
            }
        };
        let mut bytes = room.min(left);
        if bytes == 0 && left > 0 {
            return false;
        }
        if bytes > 1 && self.strikes(Fault::ShortSend) {
            bytes = 1 + self.random.below(bytes);
        }
        let fails = is_file && self.strikes(Fault::FileError);
        match self.first_bytes(number, bytes, fails) {
            Ok(taken) => self.carry_out_send(number, socket, &taken, arrival_ns),
            Err(errno) => return self.fail(number, errno),
        }
        true
    }

    /// What a call takes from the front of a send: a copy of what is in memory, or what is read of
    /// a file, up to `count` bytes.
    fn first_bytes(&mut self, number: u64, count: usize, fails: bool) -> Result<Vec<u8>, Errno> {
        let Kind::Send { list, .. } = &self.operations.at(number).kind else {
            unreachable!("send")
        };
        let Some(Segment::File(range)) = list.front() else {
            return Ok(first_bytes(list.slices(), count));
        };
        let range = range.clone();
        let mut bytes = vec![0; count.min(FILE_CALL_BYTES)];
        let read = match fails {
            true => Err(Errno::IO.into()),
            false => range.clone().read(&mut bytes),
        };
        bytes.truncate(read.map_err(|cause| failed(&range, &cause))?);
        Ok(bytes)
    }

    fn carry_out_send(&mut self, number: u64, socket: u32, taken: &[u8], arrival_ns: u64) {
        let Kind::Send { list, after, .. } = &mut self.operations.at(number).kind else {
            unreachable!("send")
        };
        let bytes = taken.len();
        list.advance(bytes);
        let (over, after) = (list.is_empty(), *after);
        let full_bytes = if self.drains_first {
            self.window_bytes
        } else {
            usize::MAX
        };
        let connection = self.connection_of(socket, "send");
        if connection.deserted {
            // Sent into the void; the answer to it is a reset, and the next send fails.
            connection.reset_ns.get_or_insert(arrival_ns);
        } else {
            connection.to_client.write(taken, arrival_ns);
            connection.is_full = connection.to_client.unread() >= full_bytes;
        }
        let closed = over && after == AfterSend::Close;
        if closed {
            let is_receive = |kind: &Kind| matches!(kind, Kind::Receive { .. });
            let receives =
                |other: &Running| other.kind.socket() == Some(socket) && is_receive(&other.kind);
            if self.operations.has(receives) {
                self.broken_promise(&format!("C3: socket {socket} is closed during a receive"));
            }
            self.close_socket(socket, false);
        }
        self.complete(number, !over, Outcome::Sent { bytes, closed });
    }
}

/// A copy of the first `count` bytes of `slices`, as far as they go.
fn first_bytes<'a>(slices: impl Iterator<Item = &'a [u8]>, count: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(count);
    for slice in slices {
        let wanted = slice.len().min(count - bytes.len());
        bytes.extend_from_slice(&slice[..wanted]);
    }
    bytes
}
