//! Receive, recv_into and splice_from: bytes that have arrived, or fewer.
//!
//! Faults: fewer bytes than there are, no page is free, the connection is lost.

use std::ops::RangeInclusive;
use std::os::fd::BorrowedFd;

use flatpath_structures::pool::Buffer;

use super::Simulation;
use super::faults::Fault;
use super::network::Network;
use super::operations::{Kind, Received};
use super::world::World;
use crate::buffers::Buffers;
use crate::completion::{Errno, Outcome};
use crate::driver::OperationMode;
use crate::lent::{Lent, Stream};
use crate::pipe::{Piped, Pipes};
use crate::socket::Socket;

impl Simulation {
    pub(super) fn start_receive(
        &mut self,
        socket: Socket,
        user_data: u64,
        mode: OperationMode,
        region_id: u16,
    ) {
        let (socket, into) = (socket.number(), Received::Region(region_id));
        self.start(user_data, Kind::Receive { socket, into }, mode);
    }

    pub(super) fn start_recv_into(&mut self, socket: Socket, user_data: u64, buffer: Buffer) {
        assert!(buffer.room() > 0, "a recv_into of a full buffer");
        let (socket, into) = (socket.number(), Received::Buffer(Some(buffer)));
        let kind = Kind::Receive { socket, into };
        self.start(user_data, kind, OperationMode::Single);
    }

    pub(super) fn splice_now(
        &mut self,
        socket: Socket,
        pipes: &Pipes,
        bytes: RangeInclusive<usize>,
    ) -> Option<Piped> {
        pipes.fill(|| self.network.world().read_spliced(socket.number(), bytes))
    }

    pub(super) fn lend_now(&mut self, socket: Socket) -> Option<Lent> {
        let lent = Lent::new(LentStream(self.network.clone(), socket.number()));
        self.lent.retain(|(_, lent)| lent.is_out());
        self.lent.push((socket.number(), lent.clone()));
        Some(lent)
    }

    pub(super) fn is_lent(&self, socket: u32) -> bool {
        let mut lent = self.lent.iter().filter(|(of, _)| *of == socket);
        lent.any(|(_, lent)| lent.is_out())
    }
}

/// A stream that is lent.
struct LentStream(Network, u32);

impl Stream for LentStream {
    fn splice_into(&self, pipe: BorrowedFd<'_>, bytes: RangeInclusive<usize>) -> usize {
        let read = self.0.world().read_spliced(self.1, bytes);
        read.map_or(0, |read| rustix::io::write(pipe, &read).unwrap_or(0))
    }
}

impl World {
    /// Receives into one of the pages, or without them into the operation's own buffer.
    pub(super) fn progress_receive(
        &mut self,
        number: u64,
        socket: u32,
        pages: Option<&mut Buffers>,
    ) -> bool {
        let now_ns = self.now_ns;
        let connection = self.connection_of(socket, "receive");
        let readable = connection.to_server.readable(now_ns);
        let over = connection.to_server.is_over(now_ns);
        let broken = connection.is_broken(now_ns);
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

    /// Some kernels fail a multishot receive at once when no buffer is free, others when bytes
    /// come: here chance decides.
    fn arm_without_buffers(&mut self, number: u64, buffers: &mut Buffers) -> bool {
        let many = self.operations.at(number).mode == OperationMode::Multishot;
        if many && buffers.is_empty() && self.random.chance(500) {
            return self.fail(number, Errno::NOBUFS);
        }
        false
    }
}
