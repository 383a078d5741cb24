//! Datagrams (UDP): a service answers each by one datagram, or not at all.
//!
//! [`Server::listen_datagrams`](crate::Server::listen_datagrams) gives an address to a
//! [`DatagramService`]. Its [`receive`](DatagramService::receive) is called on a network thread,
//! and must not block; what may block it leaves to a worker ([`Next::Work`]). There is no session:
//! what belongs together, the service knows by what the datagrams say.
//!
//! ```no_run
//! use flatpath::Server;
//! use flatpath::datagrams::{Datagram, DatagramService, Next, Reply};
//!
//! /// Echo (RFC 862).
//! struct Echo;
//!
//! impl DatagramService for Echo {
//!     fn name(&self) -> &'static str {
//!         "echo"
//!     }
//!
//!     fn receive(&self, datagram: &Datagram<'_>, reply: &mut Reply<'_>) -> Next {
//!         // As long as the request, so there is room for it.
//!         let _ = reply.write(datagram.bytes());
//!         Next::Answer
//!     }
//! }
//!
//! # fn main() -> Result<(), flatpath::Error> {
//! Server::new().listen_datagrams("127.0.0.1:7007", Echo).run()
//! # }
//! ```
//!
//! Who sends a datagram may write any address into it, so a reply may go to one that has asked for
//! nothing. Therefore
//!
//! - a reply is no longer than [`AMPLIFICATION_MAX`] times its request, unless its receiver has
//!   proved that it receives what is sent to its address: it has a TCP connection to this server
//!   at that moment. [`Datagram::room`] tells a service how long its reply may be; a longer one is
//!   not sent.
//! - No reply goes to port 0, to a broadcast or multicast address, to the socket that sends it,
//!   or to a sender whose request came to a group of hosts: what is received so is dropped.
//!
//! A flood takes neither memory nor workers from connections: the pages that datagrams are
//! received into are their own, a turn handles a bounded number of them, and with workers are
//! [`AT_WORK_MAX`] of each network thread at most, and half as many of one address, less what
//! others have ([`address_limit`](crate::address_limit)). What is beyond a bound is dropped, as
//! the network might have done, and counted by its reason (`flatpath_datagrams_dropped_total`).
//! Nothing is queued: where the socket takes no more, a reply is dropped as well. For a second
//! after a socket had no room for what came, an address is answered no more than its share of
//! 25,600 datagrams in a second, so that a flood of one takes no others' answers: `datagram_share`.
//!
//! A reply leaves from the address that its request came to. All datagrams of a listener are
//! handled by one network thread; those of several listeners are spread over the threads. A drain
//! receives until the thread's last connection is gone, and answers what is at work. Datagrams are
//! not counted as requests, and have no line in the access log.
//!
//! Cost: on io_uring no system call to receive one, on epoll one for several; one to send a reply.
//! A datagram takes no memory but its page, and one for a worker is copied.

pub(crate) mod listen;
pub(crate) mod share;

use std::any::Any;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use flatpath_driver::Envelope;
use flatpath_structures::pool::Buffer;

use crate::admission::address_limit::Cells;
use crate::protocol::connection_handle::ConnectionId;
use crate::workers::scope::WorkerScope;
use crate::workers::{Rank, Reservation, Task};

pub use crate::limits::{
    AMPLIFICATION_MAX, DATAGRAM_BYTES_MAX, DATAGRAMS_AT_WORK_MAX as AT_WORK_MAX,
};

/// Answers datagrams. See the module.
///
/// A panic in a method costs its datagram alone.
pub trait DatagramService: Send + Sync + 'static {
    /// A short name for logs and metrics, and for a server that takes over: one word.
    fn name(&self) -> &'static str;

    /// A datagram has come. Called on the network thread; it takes microseconds, and never blocks.
    fn receive(&self, datagram: &Datagram<'_>, reply: &mut Reply<'_>) -> Next;

    /// The same on a worker, which may block, for a datagram that [`receive`](Self::receive) has
    /// left to it; what was written to the reply before is gone. Without this method it is not
    /// answered.
    ///
    /// Where a limit has the job come back later ([`flatpath::blocking::Entry::Parked`]), what was
    /// written is dropped, and the same datagram comes again.
    ///
    /// [`flatpath::blocking::Entry::Parked`]: crate::workers::blocking::Entry::Parked
    fn work(&self, datagram: &Datagram<'_>, reply: &mut Reply<'_>, scope: &mut WorkerScope<'_>) {
        let _ = (datagram, reply, scope);
    }
}

/// What becomes of a datagram after [`DatagramService::receive`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
// Exhaustive: it is answered here or there.
pub enum Next {
    /// The reply is sent; an empty one is not.
    Answer,
    /// A worker calls [`DatagramService::work`].
    Work,
}

/// A datagram that was received, as a whole.
#[derive(Clone, Copy)]
pub struct Datagram<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) peer: SocketAddr,
    pub(crate) local: Option<IpAddr>,
    pub(crate) has_answered: bool,
}

impl<'a> Datagram<'a> {
    /// One from a sender that has proved nothing; the engine makes them, and tests of a service.
    pub fn new(bytes: &'a [u8], peer: SocketAddr) -> Datagram<'a> {
        Datagram {
            bytes,
            peer,
            local: None,
            has_answered: false,
        }
    }

    /// The same from a sender that has a connection here.
    pub fn answered(self) -> Datagram<'a> {
        Datagram {
            has_answered: true,
            ..self
        }
    }

    /// Its bytes, at most [`DATAGRAM_BYTES_MAX`]; it may be empty.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Where it says that it comes from, with an IPv4 address as such. It proves nothing.
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// The address of this host that it came to, if the kernel tells.
    pub fn local(&self) -> Option<IpAddr> {
        self.local
    }

    /// Whether its sender has a TCP connection to this server, so that its address is its own, or
    /// that of a host beside it.
    pub fn has_answered(&self) -> bool {
        self.has_answered
    }

    /// How long a reply may be, in bytes. A service whose reply would be longer may have a shorter
    /// one that says so.
    pub fn room(&self) -> usize {
        room_for(self.bytes.len(), self.has_answered)
    }
}

/// The longest reply to a request of this length.
pub(crate) fn room_for(request_bytes: usize, has_answered: bool) -> usize {
    match has_answered {
        true => DATAGRAM_BYTES_MAX,
        false => (request_bytes * AMPLIFICATION_MAX).min(DATAGRAM_BYTES_MAX),
    }
}

impl fmt::Debug for Datagram<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Datagram")
            .field("bytes", &self.bytes.len())
            .field("peer", &self.peer)
            .field("local", &self.local)
            .field("has_answered", &self.has_answered)
            .finish()
    }
}

/// The reply to a datagram, as a service writes it.
pub struct Reply<'a> {
    /// As long as the reply may be.
    space: &'a mut [u8],
    bytes: usize,
    is_too_long: bool,
}

/// The reply would be longer than it may be: see [`Datagram::room`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLong;

flatpath_structures::impl_error! {
    TooLong {
        Self => "the reply is longer than one to this datagram may be",
    }
}

impl<'a> Reply<'a> {
    /// An empty one, as long as `space` at most; the engine makes them, and tests of a service.
    pub fn new(space: &'a mut [u8]) -> Reply<'a> {
        Reply {
            space,
            bytes: 0,
            is_too_long: false,
        }
    }

    /// Appends to the reply.
    ///
    /// # Errors
    /// There is no room for all of it. Then nothing is appended, and the reply is not sent unless
    /// [`Reply::clear`] follows.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), TooLong> {
        let end = self.bytes + bytes.len();
        let Some(space) = self.space.get_mut(self.bytes..end) else {
            self.is_too_long = true;
            return Err(TooLong);
        };
        space.copy_from_slice(bytes);
        self.bytes = end;
        Ok(())
    }

    /// Forgets what was written, for another reply or none.
    pub fn clear(&mut self) {
        (self.bytes, self.is_too_long) = (0, false);
    }

    /// What was written.
    pub fn bytes(&self) -> &[u8] {
        &self.space[..self.bytes]
    }

    /// Whether there was no room for something, so that nothing is sent.
    pub fn is_too_long(&self) -> bool {
        self.is_too_long
    }

    /// How much more can be written, in bytes.
    pub fn room(&self) -> usize {
        self.space.len() - self.bytes
    }

    /// What is to be sent, if anything is.
    pub(crate) fn outcome(&self) -> Answer {
        match (self.is_too_long, self.bytes) {
            (true, _) => Answer::TooLong,
            (false, 0) => Answer::Nothing,
            (false, bytes) => Answer::Bytes(bytes),
        }
    }
}

impl fmt::Debug for Reply<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Reply")
            .field("bytes", &self.bytes)
            .field("room", &self.room())
            .finish()
    }
}

/// What a service has come to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Answer {
    /// It is not answered.
    #[default]
    Nothing,
    /// The first bytes of the reply's space are sent; their number.
    Bytes(usize),
    /// It was longer than it may be.
    TooLong,
}

/// A datagram on its way to a worker and back.
pub(crate) struct DatagramJob {
    service: Arc<dyn DatagramService>,
    home: ConnectionId,
    /// The number of its socket on its network thread.
    source: usize,
    request: Buffer,
    /// For the reply, of which `room` bytes may be used.
    space: Buffer,
    room: usize,
    peer: SocketAddr,
    local: Option<IpAddr>,
    has_answered: bool,
    envelope: Envelope,
    /// Where its address is counted.
    cells: Cells,
    /// After others where its address has half of the workers for datagrams.
    rank: Rank,
    answer: Answer,
    has_panicked: bool,
    _reservation: Option<Reservation>,
}

impl DatagramJob {
    /// For a service, of a datagram that came to a socket with a number: `request` has its bytes,
    /// and `space` has room for the reply.
    pub(crate) fn new(
        (service, home): (Arc<dyn DatagramService>, ConnectionId),
        (source, envelope): (usize, Envelope),
        datagram: &Datagram<'_>,
        (request, space): (Buffer, Buffer),
    ) -> DatagramJob {
        DatagramJob {
            service,
            home,
            source,
            request,
            space,
            room: datagram.room(),
            peer: datagram.peer,
            local: datagram.local,
            has_answered: datagram.has_answered,
            envelope,
            cells: Cells::UNKNOWN,
            rank: Rank::Next,
            answer: Answer::Nothing,
            has_panicked: false,
            _reservation: None,
        }
    }

    /// With its place among the jobs, counted for its address.
    pub(crate) fn dispatched_by(
        mut self,
        (cells, rank): (Cells, Rank),
        reservation: Reservation,
    ) -> DatagramJob {
        (self.cells, self.rank) = (cells, rank);
        self._reservation = Some(reservation);
        self
    }

    /// Where its address is counted.
    pub(crate) fn cells(&self) -> Cells {
        self.cells
    }

    /// Its network thread's number for its listener.
    pub(crate) fn listener(&self) -> u16 {
        self.home.listener
    }

    /// The number of its socket there.
    pub(crate) fn source(&self) -> usize {
        self.source
    }

    pub(crate) fn peer(&self) -> SocketAddr {
        self.peer
    }

    pub(crate) fn envelope(&self) -> Envelope {
        self.envelope
    }

    /// What its service has come to; `None`: it has panicked.
    pub(crate) fn outcome(&self) -> Option<&Answer> {
        (!self.has_panicked).then_some(&self.answer)
    }

    /// Whether its reply is no longer than one may be to a sender that has answered by now, or has
    /// not.
    pub(crate) fn fits(&self, has_answered: bool) -> bool {
        self.reply().len() <= room_for(self.request.filled().len(), has_answered)
    }

    pub(crate) fn reply(&self) -> &[u8] {
        self.space.filled()
    }
}

impl Task for DatagramJob {
    fn run(&mut self, scope: &mut WorkerScope<'_>) {
        let datagram = Datagram {
            bytes: self.request.filled(),
            peer: self.peer,
            local: self.local,
            has_answered: self.has_answered,
        };
        let mut reply = Reply::new(self.space.spare_up_to(self.room));
        self.service.work(&datagram, &mut reply, scope);
        if scope.is_parked() {
            return;
        }
        self.answer = reply.outcome();
        let bytes = reply.bytes().len();
        self.space.advance(bytes);
    }

    fn panicked(&mut self) {
        self.has_panicked = true;
    }

    fn connection(&self) -> ConnectionId {
        self.home
    }

    fn rank(&self) -> Rank {
        self.rank
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any + Send> {
        self
    }
}

/// Whether a reply to a datagram may go where it says that it comes from; `port` is that of the
/// socket it came to.
pub(crate) fn is_answerable(envelope: &Envelope, port: u16) -> bool {
    let (from, to) = (envelope.from.ip().to_canonical(), envelope.to);
    let is_own = envelope.from.port() == port && to.is_some_and(|to| to.to_canonical() == from);
    let is_broadcast = from == IpAddr::V4(Ipv4Addr::BROADCAST);
    let is_host = !from.is_unspecified() && !from.is_multicast() && !is_broadcast;
    is_host && envelope.from.port() != 0 && !is_own && !envelope.is_to_group
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_to_a_stranger_is_three_times_its_request_and_never_above_the_bound() {
        assert_eq!(room_for(0, false), 0);
        assert_eq!(room_for(40, false), 120);
        assert_eq!(room_for(DATAGRAM_BYTES_MAX, false), DATAGRAM_BYTES_MAX);
        for request in [0, 40, DATAGRAM_BYTES_MAX] {
            assert_eq!(room_for(request, true), DATAGRAM_BYTES_MAX);
        }
    }

    #[test]
    fn no_reply_goes_to_groups_to_port_0_or_to_the_socket_itself() {
        let envelope = |from: &str, to: &str| Envelope {
            from: from.parse().expect("an address"),
            to: Some(to.parse().expect("an address")),
            is_to_group: false,
            is_cut: false,
            lost: 0,
        };
        let here = "192.0.2.1";
        for (from, to) in [
            ("192.0.2.9:111", here),
            ("192.0.2.1:112", here),
            ("[2001:db8::9]:111", "2001:db8::1"),
            ("[::ffff:192.0.2.9]:5", "::ffff:192.0.2.1"),
        ] {
            assert!(is_answerable(&envelope(from, to), 111), "{from}");
        }
        for (from, to) in [
            ("192.0.2.9:0", here),
            ("0.0.0.0:5", here),
            ("224.0.0.1:5", here),
            ("255.255.255.255:5", here),
            ("192.0.2.1:111", here),
            ("[::ffff:192.0.2.1]:111", here),
            ("[::ffff:224.0.0.1]:5", here),
            ("[ff02::1]:5", "2001:db8::1"),
            ("[::]:5", "2001:db8::1"),
        ] {
            assert!(!is_answerable(&envelope(from, to), 111), "{from}");
        }
        let mut to_all = envelope("192.0.2.9:5", here);
        to_all.is_to_group = true;
        assert!(!is_answerable(&to_all, 111));
    }

    #[test]
    fn a_reply_that_is_too_long_is_not_sent_and_a_shorter_one_instead_is() {
        let mut space = [0; 8];
        let mut reply = Reply::new(&mut space);
        assert_eq!(reply.outcome(), Answer::Nothing);
        reply.write(b"12345").expect("room");
        assert_eq!((reply.room(), reply.outcome()), (3, Answer::Bytes(5)));
        assert_eq!(reply.write(b"6789"), Err(TooLong));
        assert_eq!(reply.bytes(), b"12345", "nothing was appended");
        reply.write(b"678").expect("room for that");
        assert_eq!(reply.outcome(), Answer::TooLong, "a part of a reply");
        assert!(reply.is_too_long());
        reply.clear();
        assert_eq!((reply.room(), reply.outcome()), (8, Answer::Nothing));
        assert!(!reply.is_too_long());
        reply.write(b"full").expect("room");
        assert_eq!(reply.outcome(), Answer::Bytes(4));
    }
}
