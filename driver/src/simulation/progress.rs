//! How operations complete: the simulated kernel at work, and most of the faults.

use std::ops::RangeInclusive;
use std::sync::Arc;

use super::faults::Fault;
use super::operations::{Kind, Received, Running};
use super::world::World;
use crate::buffers::Buffers;
use crate::completion::{Errno, Outcome};
use crate::driver::{AfterSend, OperationMode};
use crate::eventfd::Eventfd;
use crate::file_range::failed;
use crate::segment::Segment;
use crate::socket::{Handle, Socket};

/// Completions of one operation per turn at most.
const COMPLETIONS_PER_TURN_MAX: usize = 8;

/// Bytes of a file that one call moves at most.
const FILE_CALL_BYTES: usize = 64 * 1024;

impl World {
    /// Completes every operation that can complete now.
    pub(super) fn progress(&mut self, buffers: &mut [Buffers]) {
        let live = self.operations.live(&mut self.random);
        for number in live {
            if self.operations.at(number).cancelled {
                if self.chance(Fault::CancelRace) {
                    self.progress_one(number, buffers);
                }
                if !self.operations.at(number).over {
                    self.complete(number, false, Outcome::Failed(Errno::CANCELED));
                } else {
                    self.injected.strike(Fault::CancelRace);
                }
            } else {
                self.progress_one(number, buffers);
            }
        }
    }

    fn progress_one(&mut self, number: u64, buffers: &mut [Buffers]) {
        for _ in 0..COMPLETIONS_PER_TURN_MAX {
            let running = self.operations.at(number);
            if running.over {
                return;
            }
            let progressed = match running.kind {
                Kind::Accept { listener } => self.progress_accept(number, listener),
                Kind::Receive { socket, ref into } => {
                    let region_id = match into {
                        Received::Region(region_id) => Some(*region_id),
                        Received::Buffer(_) => None,
                    };
                    let pages = region_id.map(|region_id| &mut buffers[usize::from(region_id)]);
                    self.progress_receive(number, socket, pages)
                }
                Kind::Send { socket, .. } => self.progress_send(number, socket),
                Kind::ReceiveDatagrams {
                    ref socket,
                    region_id,
                } => {
                    let socket = socket.number();
                    self.progress_datagrams(number, socket, &mut buffers[usize::from(region_id)])
                }
                Kind::PollEventfd { ref event } => {
                    let event = Arc::clone(event);
                    self.progress_poll(number, &event)
                }
            };
            if !progressed {
                return;
            }
        }
    }

    /// Puts a completion on its way, late if chance will have it.
    pub(super) fn complete(&mut self, number: u64, more: bool, outcome: Outcome) {
        let late_ns = match self.strikes(Fault::Late) {
            true => self.random.up_to(self.faults.late_ns_max),
            false => 0,
        };
        let due_ns = self.now_ns + late_ns;
        self.operations.complete(number, due_ns, more, outcome);
    }

    pub(super) fn fail(&mut self, number: u64, errno: Errno) -> bool {
        self.complete(number, false, Outcome::Failed(errno));
        true
    }

    /// Whether an operation continues after this completion.
    fn continues(&mut self, number: u64) -> bool {
        self.operations.at(number).mode == OperationMode::Multishot
            && !self.strikes(Fault::EarlyEnd)
    }

    fn progress_accept(&mut self, number: u64, listener: u32) -> bool {
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
    fn enter(&mut self, connection: u32) -> u32 {
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

    /// Receives into one of the pages, or without them into the operation's own buffer.
    fn progress_receive(&mut self, number: u64, socket: u32, pages: Option<&mut Buffers>) -> bool {
        let now_ns = self.now_ns;
        let connection = self.connection_of(socket, "receive");
        let readable = connection.to_server.readable(now_ns);
        let over = connection.to_server.is_over(now_ns);
        let broken = connection.broken
            || connection
                .reset_ns
                .is_some_and(|reset_ns| reset_ns <= now_ns);
        if readable == 0 && broken {
            return self.fail(number, Errno::CONNRESET);
        }
        if readable == 0 && !over {
            return match pages {
                Some(pages) => self.arm_without_buffers(number, pages),
                None => self.receive_into_buffer(number, socket, 0),
            };
        }
        let losses = [
            (Fault::ReceiveReset, Errno::CONNRESET),
            (Fault::ReceiveTimeOut, Errno::TIMEDOUT),
        ];
        if let Some(errno) = self.loses_connection(socket, losses) {
            return self.fail(number, errno);
        }
        if readable == 0 {
            self.complete(number, false, Outcome::EndOfStream);
            return true;
        }
        let Some(pages) = pages else {
            return self.receive_into_buffer(number, socket, readable);
        };
        if self.strikes(Fault::NoBuffer) {
            return self.fail(number, Errno::NOBUFS);
        }
        let Some(page) = pages.take() else {
            return self.fail(number, Errno::NOBUFS);
        };
        let bytes = self.read(socket, pages.space(page));
        let more = self.continues(number);
        self.complete(number, more, Outcome::Received(pages.filled(page, bytes)));
        true
    }

    /// Completes a recv_into with what is there.
    fn receive_into_buffer(&mut self, number: u64, socket: u32, readable: usize) -> bool {
        let Kind::Receive {
            into: Received::Buffer(into),
            ..
        } = &mut self.operations.at(number).kind
        else {
            unreachable!("a recv_into")
        };
        let Some(mut buffer) = into.take() else {
            unreachable!("a recv_into completes once")
        };
        if readable > 0 {
            let bytes = self.read(socket, buffer.overwrite_mut());
            buffer.advance(bytes);
        }
        self.complete(number, false, Outcome::ReceivedInto(buffer));
        true
    }

    /// Reads what is there, or less if chance will have it.
    fn read(&mut self, socket: u32, space: &mut [u8]) -> usize {
        let (now_ns, short) = (self.now_ns, self.strikes(Fault::ShortReceive));
        let stream = &mut self.connection_of(socket, "receive").to_server;
        let mut most = space.len().min(stream.readable(now_ns));
        if short {
            most = 1 + self.random.below(most);
        }
        let stream = &mut self.connection_of(socket, "receive").to_server;
        stream.read(now_ns, &mut space[..most])
    }

    /// Takes what is there at once, no less than the one bound and no more than the other, or less
    /// than that if chance will have it.
    pub(super) fn read_spliced(
        &mut self,
        socket: u32,
        bounds: RangeInclusive<usize>,
    ) -> Option<Vec<u8>> {
        let now_ns = self.now_ns;
        let connection = self.connection_of(socket, "splice_from");
        let there = connection.to_server.readable(now_ns);
        if there < *bounds.start() {
            return None;
        }
        let mut bytes = vec![0; there.min(*bounds.end())];
        let count = self.read(socket, &mut bytes);
        bytes.truncate(count);
        (!bytes.is_empty()).then_some(bytes)
    }

    /// Breaks a connection with the first of these faults that strikes.
    fn loses_connection(&mut self, socket: u32, losses: [(Fault, Errno); 2]) -> Option<Errno> {
        let struck = losses.into_iter().find(|(loss, _)| self.strikes(*loss));
        struck.map(|(_, errno)| {
            self.break_connection(socket);
            errno
        })
    }

    /// Some kernels fail a multishot receive at once when no buffer is free, others when bytes
    /// come: here chance decides.
    fn arm_without_buffers(&mut self, number: u64, buffers: &mut Buffers) -> bool {
        let many = self.operations.at(number).mode == OperationMode::Multishot;
        if many && buffers.is_empty() && self.random.chance(500) {
            return self.fail(number, Errno::NOBUFS);
        }
        false
    }

    /// Takes a count, now or later: a kernel may notice two writes at once, or one by one.
    fn progress_poll(&mut self, number: u64, event: &Eventfd) -> bool {
        if let Some(left) = self.watches_refused.checked_sub(1) {
            self.watches_refused = left;
            return self.fail(number, Errno::NOMEM);
        }
        if !event.is_raised() || self.chance(Fault::Late) {
            return false;
        }
        let Ok(Some(signalled)) = event.signalled() else {
            return false;
        };
        self.complete(number, true, signalled);
        true
    }

    fn progress_send(&mut self, number: u64, socket: u32) -> bool {
        let (window_bytes, now_ns) = (self.window_bytes, self.now_ns);
        let arrival_ns = self.arrival_ns();
        let connection = self.connection_of(socket, "send");
        let broken = connection.broken
            || connection
                .reset_ns
                .is_some_and(|reset_ns| reset_ns <= now_ns);
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
