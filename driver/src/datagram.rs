//! Datagram sockets (udp(7)): a handle that a driver receives from and any thread sends on, and
//! what is received.
//!
//! A datagram that is received lies in a page of a region, after [`DATAGRAM_HEAD_BYTES`] that the
//! kernel may write beside it. One is sent as a whole and at once, or dropped: nothing waits, so
//! sending needs no driver and no user_data.
//!
//! | may run beside  | the receive of a driver | send                 |
//! |-----------------|-------------------------|----------------------|
//! | the receive     | no (C2)                 | yes                  |
//! | send            | yes                     | yes, from any thread |

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use flatpath_structures::lock::Lock;
pub use flatpath_sys::udp::Envelope;
use flatpath_sys::udp::{CONTROL_BYTES, NAME_BYTES, prepare, send};

use crate::completion::Errno;
use crate::socket::{Mode, set_mode};

/// Bytes of a page before a datagram: the kernel's lengths and flags (`io_uring_recvmsg_out`), the
/// sender's address, and what it says beside the bytes. A page has room for a datagram that is as
/// much shorter, on every driver.
pub const DATAGRAM_HEAD_BYTES: usize = 16 + NAME_BYTES + CONTROL_BYTES;

/// The longest datagram that a page of this length holds, in bytes.
///
/// # Panics
/// There is no room for one.
pub(crate) fn room_in_page(page_bytes: u32) -> usize {
    let page_bytes = page_bytes as usize;
    assert!(
        page_bytes > DATAGRAM_HEAD_BYTES,
        "a page has no room for a datagram"
    );
    page_bytes - DATAGRAM_HEAD_BYTES
}

/// Whether the page that a datagram was received into goes to the caller. One that comes from no
/// internet address is dropped, and one without bytes needs none.
pub(crate) fn needs_page(envelope: Option<&Envelope>, bytes: usize) -> bool {
    envelope.is_some() && bytes > 0
}

/// Datagrams that a simulated socket holds until a test takes them; more are refused.
pub(crate) const SIMULATED_SENT_MAX: usize = 100_000;

/// A socket of datagrams. Shared by the driver that receives from it and those who send on it,
/// each with an [`Arc`]; closed when the last one is gone.
#[derive(Debug)]
pub struct DatagramSocket(Source);

#[derive(Debug)]
enum Source {
    Descriptor(Arc<OwnedFd>),
    #[cfg_attr(
        not(feature = "simulation"),
        expect(dead_code, reason = "made by it alone")
    )]
    Simulated {
        number: u32,
        sent: Arc<Lock<VecDeque<SentDatagram>>>,
    },
}

/// A datagram that was sent on a simulated socket.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SentDatagram {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Where it went.
    pub to: SocketAddr,
    /// The address that it left from, if the caller had a wish.
    pub from: Option<IpAddr>,
}

impl DatagramSocket {
    /// A bound socket of datagrams. Makes it a blocking one, as a driver waits for it in the
    /// kernel, has the kernel say what each datagram came to, and keep more of them than is usual:
    /// seven system calls at most. All belong to the socket, and suit every driver that receives
    /// from it, in this process or another one.
    ///
    /// # Errors
    /// It has no internet address, or those of fcntl(2) and setsockopt(2).
    pub fn new(descriptor: impl Into<Arc<OwnedFd>>) -> io::Result<DatagramSocket> {
        let descriptor = descriptor.into();
        let address = SocketAddr::try_from(rustix::net::getsockname(&*descriptor)?)?;
        prepare(descriptor.as_fd(), address.is_ipv6())?;
        set_mode(&descriptor, Mode::Blocking)?;
        Ok(DatagramSocket(Source::Descriptor(descriptor)))
    }

    /// One of a simulation.
    #[cfg(feature = "simulation")]
    pub(crate) fn simulated(
        number: u32,
        sent: Arc<Lock<VecDeque<SentDatagram>>>,
    ) -> DatagramSocket {
        DatagramSocket(Source::Simulated { number, sent })
    }

    /// The descriptor; `None` in the simulation.
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        match &self.0 {
            Source::Descriptor(descriptor) => Some(descriptor.as_fd()),
            Source::Simulated { .. } => None,
        }
    }

    /// The descriptor, for a driver that is none of a simulation.
    pub(crate) fn raw(&self) -> BorrowedFd<'_> {
        self.descriptor()
            .expect("a simulated socket on a real driver")
    }

    /// The number of a simulated socket.
    #[cfg(feature = "simulation")]
    pub(crate) fn number(&self) -> u32 {
        match &self.0 {
            Source::Descriptor(_) => unreachable!("a real socket in a simulation"),
            Source::Simulated { number, .. } => *number,
        }
    }

    /// Sends a datagram now, without waiting: as a whole, or not at all. `from` is the address of
    /// this host that it leaves from, as an [`Envelope`] has it; `None`: as routing chooses. One
    /// system call.
    ///
    /// # Errors
    /// The datagram is lost: AGAIN and NOBUFS where the socket or the interface is full, MSGSIZE
    /// if it is too long, ACCESS for a broadcast address, PERM by a filter of packets; or what was
    /// reported of one before it, such as CONNREFUSED.
    pub fn send(&self, bytes: &[u8], to: SocketAddr, from: Option<IpAddr>) -> Result<(), Errno> {
        match &self.0 {
            Source::Descriptor(descriptor) => send(descriptor.as_fd(), bytes, to, from)
                .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO)),
            Source::Simulated { sent, .. } => {
                let mut sent = sent.lock();
                if sent.len() >= SIMULATED_SENT_MAX {
                    return Err(Errno::NOBUFS);
                }
                let bytes = bytes.to_vec();
                sent.push_back(SentDatagram { bytes, to, from });
                Ok(())
            }
        }
    }
}

/// Whether an error was reported to the socket for a datagram that it has sent, or for the network
/// (ICMP, RFC 1122, 4.1.3.3): the kernel tells it once, and the socket is as good as before.
pub(crate) fn is_report(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::CONNREFUSED
            | Errno::HOSTUNREACH
            | Errno::HOSTDOWN
            | Errno::NETUNREACH
            | Errno::NETDOWN
            | Errno::NONET
            | Errno::PROTO
            | Errno::NOPROTOOPT
            | Errno::OPNOTSUPP
            | Errno::ACCESS
            | Errno::PERM
            | Errno::MSGSIZE
            | Errno::CONNRESET
            | Errno::TIMEDOUT
    )
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::*;

    #[test]
    fn a_reply_that_does_not_fit_is_lost_at_once_and_says_why() {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a free port");
        let to = socket.local_addr().expect("bound");
        let socket = DatagramSocket::new(OwnedFd::from(socket)).expect("a socket of datagrams");
        let long = vec![0; 70_000];
        assert_eq!(socket.send(&long, to, None), Err(Errno::MSGSIZE));
        assert_eq!(socket.send(b"short", to, None), Ok(()));
        let nowhere = "127.0.0.1:0".parse().expect("an address");
        assert!(socket.send(b"nobody", nowhere, None).is_err());
    }

    #[test]
    fn what_is_reported_for_another_datagram_does_not_end_a_socket() {
        assert!(is_report(Errno::CONNREFUSED) && is_report(Errno::HOSTUNREACH));
        assert!(!is_report(Errno::NOBUFS) && !is_report(Errno::BADF));
        assert!(!is_report(Errno::CANCELED) && !is_report(Errno::INVAL));
    }
}
