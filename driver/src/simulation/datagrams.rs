//! Datagrams of the simulated network: any sender, any order, some lost and some twice.
//!
//! A datagram takes its own time, so those of one sender may overtake each other. Which are lost or
//! come twice is not among the [`Fault`](super::Fault)s: networks do so without any fault, and a
//! test says how often.

use std::sync::Arc;

use super::Simulation;
use super::faults::Fault;
use super::inbox::Inbox;
use super::network::Network;
use super::operations::Kind;
use super::world::World;
use crate::buffers::Buffers;
use crate::completion::{Datagram, Errno, Outcome};
use crate::datagram::{DATAGRAM_HEAD_BYTES, DatagramSocket, Envelope, SentDatagram, room_in_page};
use crate::driver::{Driver, OperationMode};

/// Datagrams that wait in a socket; it has no room for more, and counts those.
const WAITING_MAX: usize = 1024;

impl Network {
    /// A socket to receive datagrams from.
    pub fn bind_datagrams(&self) -> DatagramSocket {
        let mut world = self.world();
        let inbox = Inbox::default();
        let sent = Arc::clone(&inbox.sent);
        world.inboxes.push(inbox);
        DatagramSocket::simulated((world.inboxes.len() - 1) as u32, sent)
    }

    /// Sends a datagram to a socket. The envelope names the sender, which may be forged.
    pub fn send_datagram(&self, to: &DatagramSocket, envelope: Envelope, bytes: &[u8]) {
        let mut world = self.world();
        let (lost, twice) = (world.datagrams_lost, world.datagrams_twice);
        let count = match (world.random.chance(lost), world.random.chance(twice)) {
            (true, _) => 0,
            (false, twice) => 1 + usize::from(twice),
        };
        for _ in 0..count {
            let arrival_ns = world.arrival_ns();
            let inbox = &mut world.inboxes[to.number() as usize];
            if inbox.waiting.len() < WAITING_MAX {
                inbox.waiting.push((arrival_ns, envelope, bytes.to_vec()));
            } else {
                inbox.lost = inbox.lost.wrapping_add(1);
            }
        }
    }

    /// Takes what was sent on a socket, oldest first.
    pub fn sent_datagrams(&self, on: &DatagramSocket) -> Vec<SentDatagram> {
        let world = self.world();
        let mut sent = world.inboxes[on.number() as usize].sent.lock();
        sent.drain(..).collect()
    }

    /// Reports an error to a socket, as for a reply that did not reach its receiver.
    pub fn report_to_datagrams(&self, to: &DatagramSocket, errno: Errno) {
        let mut world = self.world();
        world.inboxes[to.number() as usize].reports.push_back(errno);
    }

    /// Sets how many of 1,000 datagrams are lost, and how many arrive twice, from now on.
    pub fn set_datagram_faults(&self, lost: u16, twice: u16) {
        let mut world = self.world();
        (world.datagrams_lost, world.datagrams_twice) = (lost, twice);
    }
}

impl Simulation {
    pub(super) fn start_receive_datagrams(
        &mut self,
        socket: Arc<DatagramSocket>,
        user_data: u64,
        region_id: u16,
    ) {
        room_in_page(self.region(region_id).page_bytes());
        // Not `Multishot`, as above.
        let kind = Kind::ReceiveDatagrams { socket, region_id };
        self.start(user_data, kind, OperationMode::Single);
    }
}

impl World {
    pub(super) fn progress_datagrams(
        &mut self,
        number: u64,
        socket: u32,
        buffers: &mut Buffers,
    ) -> bool {
        let now_ns = self.now_ns;
        // A cancel may find one that has just come.
        let more = !self.operations.at(number).cancelled;
        let inbox = &mut self.inboxes[socket as usize];
        if let Some(errno) = inbox.reports.pop_front() {
            self.complete(number, more, Outcome::Failed(errno));
            return true;
        }
        if !inbox.has_arrived(now_ns) {
            return false;
        }
        if self.strikes(Fault::NoBuffer) {
            return self.fail(number, Errno::NOBUFS);
        }
        let Some(page) = buffers.take() else {
            return self.fail(number, Errno::NOBUFS);
        };
        let Some((mut envelope, bytes)) = self.inboxes[socket as usize].take(now_ns) else {
            unreachable!("one has arrived")
        };
        let space = buffers.space(page);
        let room = space.len() - DATAGRAM_HEAD_BYTES;
        let count = bytes.len().min(room);
        space[..count].copy_from_slice(&bytes[..count]);
        envelope.is_cut |= bytes.len() > room;
        let piece = match count {
            0 => {
                buffers.unused(page);
                None
            }
            _ => Some(buffers.filled(page, count)),
        };
        let datagram = Box::new(Datagram { piece, envelope });
        self.complete(number, more, Outcome::Datagram(datagram));
        true
    }
}
