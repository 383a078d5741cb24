//! Datagrams with their addresses (udp(7)): where each came from, which of this host's addresses it
//! came to, and from which one the reply leaves.
//!
//! A socket that is bound to all addresses of a host answers from the one that routing prefers,
//! unless it is told; a client that asked another one ignores that. So the kernel is asked to say
//! what a datagram came to (`IP_PKTINFO`, ip(7); `IPV6_RECVPKTINFO`, RFC 3542, 6.1), and is told
//! the same with the reply.
//!
//! Cost: [`Batch::receive`] and [`send`] are one system call each, and neither ever waits.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;

use crate::tcp::set_option;

/// Room for a sender's address, in bytes: 28 are used, and what follows lies at a multiple of 8.
pub const NAME_BYTES: usize = 32;

/// Room for what the kernel says beside the bytes: the destination (40 bytes for IPv6), and what
/// was lost (24).
pub const CONTROL_BYTES: usize = 64;

/// Datagrams that one [`Batch`] receives at most.
pub const BATCH_MAX: usize = 16;

/// What is known of a datagram beside its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(
    clippy::exhaustive_structs,
    reason = "tests and simulations make some, too"
)]
pub struct Envelope {
    /// Where it says that it comes from. IPv4 as such an address of IPv6, where the socket is one
    /// of IPv6.
    pub from: SocketAddr,
    /// The address of this host that it came to; `None` if the kernel did not say. For a datagram
    /// to a group of hosts, one that a reply may leave from, if any.
    pub to: Option<IpAddr>,
    /// It was sent to a group of hosts: broadcast or multicast.
    pub is_to_group: bool,
    /// It was longer than the room for it, and its end is lost.
    pub is_cut: bool,
    /// Datagrams that the socket had no room for so far, modulo 2^32 (`SO_RXQ_OVFL`, socket(7)).
    pub lost: u32,
}

impl Envelope {
    /// Reads what recvmsg(2) has put beside the bytes. `None` for a sender without an internet
    /// address.
    pub fn decode(name: &[u8], control: &[u8], flags: i32) -> Option<Envelope> {
        let mut envelope = Envelope {
            from: decode_address(name)?,
            to: None,
            is_to_group: false,
            is_cut: flags & libc::MSG_TRUNC != 0,
            lost: 0,
        };
        let mut rest = control;
        while let Some(((kind, data), after)) = next_control(rest) {
            envelope.note(kind, data);
            rest = after;
        }
        Some(envelope)
    }

    /// The same of a header that recvmsg(2) has filled, with the memory that it points to.
    #[allow(
        clippy::unnecessary_cast,
        reason = "the length has another type with musl"
    )]
    pub fn of(header: &libc::msghdr, name: &[u8], control: &[u8]) -> Option<Envelope> {
        let name = name.get(..header.msg_namelen as usize).unwrap_or(name);
        let control = control
            .get(..header.msg_controllen as usize)
            .unwrap_or(control);
        Envelope::decode(name, control, header.msg_flags)
    }

    fn note(&mut self, kind: (i32, i32), data: &[u8]) {
        match kind {
            (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
                // ip(7): the interface's number, the local address, the one in the header.
                let [local, header] = [4, 8].map(|at| data.get(at..at + 4)?.try_into().ok());
                let [local, header] = [local, header].map(|it: Option<[u8; 4]>| it);
                self.to = local.map(|local| Ipv4Addr::from(local).into());
                self.is_to_group = local != header;
            }
            (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                let address: Option<[u8; 16]> = data.get(..16).and_then(|it| it.try_into().ok());
                let address = address.map(Ipv6Addr::from);
                self.is_to_group = address.is_some_and(|it| it.to_canonical().is_multicast());
                self.to = address.filter(|_| !self.is_to_group).map(IpAddr::from);
            }
            (libc::SOL_SOCKET, libc::SO_RXQ_OVFL) => {
                let count = data.get(..4).and_then(|it| it.try_into().ok());
                self.lost = count.map_or(self.lost, u32::from_ne_bytes);
            }
            _ => {}
        }
    }
}

/// A message of control data: its level and type, and its data.
type Control<'a> = ((i32, i32), &'a [u8]);

/// The first message of control data, and what follows it.
fn next_control(control: &[u8]) -> Option<(Control<'_>, &[u8])> {
    let head_bytes = size_of::<libc::cmsghdr>();
    let head = control.get(..head_bytes)?;
    // SAFETY: there are as many bytes, and any bytes are a header: it has numbers only.
    let head = unsafe { head.as_ptr().cast::<libc::cmsghdr>().read_unaligned() };
    let length = head.cmsg_len as usize;
    let data = control.get(head_bytes..length)?;
    let next = length.next_multiple_of(size_of::<usize>());
    let rest = control.get(next..).unwrap_or_default();
    Some((((head.cmsg_level, head.cmsg_type), data), rest))
}

/// A socket address as the kernel has it (`sockaddr_in`, `sockaddr_in6`).
fn decode_address(name: &[u8]) -> Option<SocketAddr> {
    let word = |at: usize| Some(u16::from_ne_bytes(name.get(at..at + 2)?.try_into().ok()?));
    let long = |at: usize| Some(u32::from_ne_bytes(name.get(at..at + 4)?.try_into().ok()?));
    let port = u16::from_be(word(2)?);
    match i32::from(word(0)?) {
        libc::AF_INET => {
            let address: [u8; 4] = name.get(4..8)?.try_into().ok()?;
            Some(SocketAddrV4::new(address.into(), port).into())
        }
        libc::AF_INET6 => {
            let address: [u8; 16] = name.get(8..24)?.try_into().ok()?;
            let (flow, scope) = (u32::from_be(long(4)?), long(24)?);
            Some(SocketAddrV6::new(address.into(), port, flow, scope).into())
        }
        _ => None,
    }
}

/// The same the other way, and its length.
fn encode_address(address: SocketAddr) -> ([u8; NAME_BYTES], usize) {
    let mut name = [0; NAME_BYTES];
    name[2..4].copy_from_slice(&address.port().to_be_bytes());
    let (family, length) = match address {
        SocketAddr::V4(address) => {
            name[4..8].copy_from_slice(&address.ip().octets());
            (libc::AF_INET, size_of::<libc::sockaddr_in>())
        }
        SocketAddr::V6(address) => {
            name[4..8].copy_from_slice(&address.flowinfo().to_be_bytes());
            name[8..24].copy_from_slice(&address.ip().octets());
            name[24..28].copy_from_slice(&address.scope_id().to_ne_bytes());
            (libc::AF_INET6, size_of::<libc::sockaddr_in6>())
        }
    };
    name[..2].copy_from_slice(&(family as u16).to_ne_bytes());
    (name, length)
}

/// Control data that has a reply leave from an address, and its length. The interface is left to
/// routing: one that is named would bind the reply to the way that the request came by.
fn encode_source(from: IpAddr) -> ([u8; CONTROL_BYTES], usize) {
    let mut data = [0; 20];
    let (level, kind, length) = match from {
        IpAddr::V4(from) => {
            data[4..8].copy_from_slice(&from.octets());
            let length = size_of::<libc::in_pktinfo>();
            (libc::IPPROTO_IP, libc::IP_PKTINFO, length)
        }
        IpAddr::V6(from) => {
            data[..16].copy_from_slice(&from.octets());
            let length = size_of::<libc::in6_pktinfo>();
            (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, length)
        }
    };
    let head_bytes = size_of::<libc::cmsghdr>();
    // SAFETY: a header of zeros is one.
    let mut head: libc::cmsghdr = unsafe { std::mem::zeroed() };
    head.cmsg_len = (head_bytes + length) as _;
    (head.cmsg_level, head.cmsg_type) = (level, kind);
    let mut control = [0; CONTROL_BYTES];
    // SAFETY: there is room for a header, and for the data after it.
    unsafe {
        control
            .as_mut_ptr()
            .cast::<libc::cmsghdr>()
            .write_unaligned(head);
    };
    control[head_bytes..head_bytes + length].copy_from_slice(&data[..length]);
    (
        control,
        (head_bytes + length).next_multiple_of(size_of::<usize>()),
    )
}

/// What waits in a socket at most, as the kernel counts it with its own parts, in bytes: some 2,700
/// short datagrams.
const RECEIVE_BYTES: i32 = 1 << 20;

/// Has the kernel say, with each datagram, which address it came to, and how many were lost, and
/// keep more of them than is usual (`SO_RCVBUF`, socket(7): it takes twice the value, and of that
/// no more than `net.core.rmem_max` allows, unless the process has `CAP_NET_ADMIN`).
///
/// # Errors
/// That of setsockopt(2). What was lost is not told by kernels that do not count it.
pub fn prepare(socket: BorrowedFd<'_>, is_ipv6: bool) -> io::Result<()> {
    match is_ipv6 {
        true => set_option(socket, (libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO), 1)?,
        false => set_option(socket, (libc::IPPROTO_IP, libc::IP_PKTINFO), 1)?,
    }
    let _ = set_option(socket, (libc::SOL_SOCKET, libc::SO_RXQ_OVFL), 1);
    // Not less than it has.
    if rustix::net::sockopt::socket_recv_buffer_size(socket)? < 2 * RECEIVE_BYTES as usize {
        let option = |name| set_option(socket, (libc::SOL_SOCKET, name), RECEIVE_BYTES);
        let _ = option(libc::SO_RCVBUFFORCE).or_else(|_| option(libc::SO_RCVBUF));
    }
    Ok(())
}

/// Sends a datagram, without waiting; `from` is the address of this host that it leaves from.
///
/// # Errors
/// That of sendmsg(2): the datagram is lost then, and no part of it was sent.
pub fn send(
    socket: BorrowedFd<'_>,
    bytes: &[u8],
    to: SocketAddr,
    from: Option<IpAddr>,
) -> io::Result<()> {
    let (mut name, name_bytes) = encode_address(to);
    let mut source = from.map(encode_source);
    let mut vector = libc::iovec {
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: bytes.len(),
    };
    // SAFETY: all-zero is a message header that points to nothing.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    header.msg_name = name.as_mut_ptr().cast();
    header.msg_namelen = name_bytes as _;
    header.msg_iov = &raw mut vector;
    header.msg_iovlen = 1;
    if let Some((control, control_bytes)) = &mut source {
        header.msg_control = control.as_mut_ptr().cast();
        header.msg_controllen = *control_bytes as _;
    }
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: all that the header points to lives during the call, which writes to none of it.
    match unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const header, flags) } {
        0.. => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Memory for the addresses of several datagrams that are received with one call.
pub struct Batch {
    headers: [libc::mmsghdr; BATCH_MAX],
    vectors: [libc::iovec; BATCH_MAX],
    names: [[u8; NAME_BYTES]; BATCH_MAX],
    controls: [[u8; CONTROL_BYTES]; BATCH_MAX],
}

impl std::fmt::Debug for Batch {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Batch").finish_non_exhaustive()
    }
}

impl Default for Batch {
    fn default() -> Batch {
        Batch::new()
    }
}

impl Batch {
    /// An empty one.
    pub fn new() -> Batch {
        Batch {
            // SAFETY: all-zero are message headers that point to nothing.
            headers: unsafe { std::mem::zeroed() },
            // SAFETY: as above.
            vectors: unsafe { std::mem::zeroed() },
            names: [[0; NAME_BYTES]; BATCH_MAX],
            controls: [[0; CONTROL_BYTES]; BATCH_MAX],
        }
    }

    /// Receives what is there, a datagram into each of the `spaces` of `bytes` bytes, as many as a
    /// batch has; how many came. Never waits.
    ///
    /// # Errors
    /// `WouldBlock` if none is there; what was reported to the socket, as by ICMP.
    ///
    /// # Safety
    /// Each space has so many bytes, and no other use during the call.
    pub unsafe fn receive(
        &mut self,
        socket: BorrowedFd<'_>,
        spaces: &[NonNull<u8>],
        bytes: usize,
    ) -> io::Result<usize> {
        let count = spaces.len().min(BATCH_MAX);
        for (index, space) in spaces.iter().take(count).enumerate() {
            self.vectors[index] = libc::iovec {
                iov_base: space.as_ptr().cast(),
                iov_len: bytes,
            };
            let header = &mut self.headers[index].msg_hdr;
            header.msg_name = self.names[index].as_mut_ptr().cast();
            header.msg_namelen = NAME_BYTES as _;
            header.msg_iov = &raw mut self.vectors[index];
            header.msg_iovlen = 1;
            header.msg_control = self.controls[index].as_mut_ptr().cast();
            header.msg_controllen = CONTROL_BYTES as _;
            header.msg_flags = 0;
        }
        // SAFETY: each header points to memory of this batch, and to a space that is the caller's
        // to lend.
        let received = unsafe {
            libc::recvmmsg(
                socket.as_raw_fd(),
                self.headers.as_mut_ptr(),
                count as _,
                libc::MSG_DONTWAIT as _,
                std::ptr::null_mut(),
            )
        };
        usize::try_from(received).map_err(|_| io::Error::last_os_error())
    }

    /// One of those that came with the last call: how many bytes there are, and what is known of
    /// it. `None` as for [`Envelope::decode`].
    pub fn received(&self, index: usize) -> (usize, Option<Envelope>) {
        let libc::mmsghdr { msg_hdr, msg_len } = &self.headers[index];
        let envelope = Envelope::of(msg_hdr, &self.names[index], &self.controls[index]);
        (*msg_len as usize, envelope)
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn an_address_survives_the_way_to_the_kernel_and_back() {
        for text in [
            "192.0.2.7:111",
            "[2001:db8::7]:65535",
            "[::ffff:192.0.2.7]:1",
        ] {
            let address: SocketAddr = text.parse().expect("an address");
            let (name, length) = encode_address(address);
            assert_eq!(decode_address(&name[..length]), Some(address));
            assert_eq!(decode_address(&name[..length.min(7)]), None, "cut off");
        }
        let local = SocketAddrV6::new("fe80::1".parse().expect("one"), 7, 0x12345, 3);
        let (name, length) = encode_address(local.into());
        assert_eq!(decode_address(&name[..length]), Some(local.into()));
        assert_eq!(decode_address(&[0; NAME_BYTES]), None, "no family");
    }

    /// Control data of one message.
    fn control(level: i32, kind: i32, data: &[u8]) -> Vec<u8> {
        let (mut bytes, _) = encode_source(Ipv4Addr::UNSPECIFIED.into());
        let head_bytes = size_of::<libc::cmsghdr>();
        // SAFETY: as in the function that has made it.
        let mut head = unsafe { bytes.as_ptr().cast::<libc::cmsghdr>().read_unaligned() };
        head.cmsg_len = (head_bytes + data.len()) as _;
        (head.cmsg_level, head.cmsg_type) = (level, kind);
        // SAFETY: as above.
        unsafe {
            bytes
                .as_mut_ptr()
                .cast::<libc::cmsghdr>()
                .write_unaligned(head);
        };
        let mut bytes = bytes[..head_bytes].to_vec();
        bytes.extend(data);
        bytes.resize(bytes.len().next_multiple_of(size_of::<usize>()), 0);
        bytes
    }

    #[test]
    fn what_the_kernel_says_beside_the_bytes_is_read_in_any_order_and_never_beyond_its_end() {
        let (name, length) = encode_address("192.0.2.7:9".parse().expect("an address"));
        let name = &name[..length];
        let sent_to = |local: [u8; 4], header: [u8; 4]| {
            let data = [[2, 0, 0, 0], local, header].concat();
            control(libc::IPPROTO_IP, libc::IP_PKTINFO, &data)
        };
        let lost = control(libc::SOL_SOCKET, libc::SO_RXQ_OVFL, &7_u32.to_ne_bytes());
        let to_us = sent_to([10, 0, 0, 1], [10, 0, 0, 1]);
        for both in [[&to_us[..], &lost].concat(), [&lost[..], &to_us].concat()] {
            let envelope = Envelope::decode(name, &both, 0).expect("an address");
            assert_eq!(envelope.to, Some([10, 0, 0, 1].into()));
            assert_eq!((envelope.is_to_group, envelope.lost), (false, 7));
            assert!(!envelope.is_cut);
            for end in 0..both.len() {
                assert!(Envelope::decode(name, &both[..end], 0).is_some());
            }
        }
        let broadcast = sent_to([10, 0, 0, 1], [10, 0, 0, 255]);
        let envelope = Envelope::decode(name, &broadcast, libc::MSG_TRUNC).expect("an address");
        assert!(envelope.is_to_group && envelope.is_cut);
        let group = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0x202);
        for (to, is_to_group) in [(group, true), (Ipv6Addr::LOCALHOST, false)] {
            let data = [&to.octets()[..], &[1, 0, 0, 0]].concat();
            let bytes = control(libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, &data);
            let envelope = Envelope::decode(name, &bytes, 0).expect("an address");
            assert_eq!(envelope.is_to_group, is_to_group);
            assert_eq!(envelope.to, (!is_to_group).then_some(to.into()));
        }
        let endless = control(libc::SOL_SOCKET, libc::SO_RXQ_OVFL, &[]);
        let mut endless = endless;
        endless[..size_of::<usize>()].fill(0);
        assert!(Envelope::decode(name, &endless, 0).is_some(), "no length");
    }

    #[test]
    fn what_another_datagram_has_left_behind_the_kernels_lengths_is_not_read() {
        let (name, name_bytes) = encode_address("192.0.2.7:9".parse().expect("an address"));
        let (control, control_bytes) = encode_source([10, 0, 0, 1].into());
        // SAFETY: all-zero is a message header that points to nothing.
        let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
        let mut read = |name_bytes: usize, control_bytes: usize| {
            header.msg_namelen = name_bytes as _;
            header.msg_controllen = control_bytes as _;
            Envelope::of(&header, &name, &control)
        };
        let whole = read(name_bytes, control_bytes).expect("an address");
        assert_eq!(whole.to, Some([10, 0, 0, 1].into()));
        let alone = read(name_bytes, 0).expect("an address");
        assert_eq!((alone.from, alone.to), (whole.from, None));
        assert_eq!(read(0, control_bytes), None, "no sender");
        // Longer than the room: the kernel says so of what it has cut.
        assert_eq!(read(2 * NAME_BYTES, 2 * CONTROL_BYTES), Some(whole));
    }

    #[test]
    fn a_reply_leaves_from_the_address_that_was_asked() {
        let server = UdpSocket::bind("0.0.0.0:0").expect("a free port");
        prepare(server.as_fd(), false).expect("Linux has it");
        let port = server.local_addr().expect("bound").port();
        let client = UdpSocket::bind("127.0.0.1:0").expect("a free port");
        let patience = std::time::Duration::from_secs(30);
        client.set_read_timeout(Some(patience)).expect("a socket");
        let mut batch = Batch::new();
        let mut page = [0_u8; 16];
        let mut receive = |batch: &mut Batch| {
            let spaces = [NonNull::from(&mut page).cast()];
            // SAFETY: the page has so many bytes, and is used after the call only.
            unsafe { batch.receive(server.as_fd(), &spaces, 16) }
        };
        let none = receive(&mut batch).expect_err("nothing was sent");
        assert_eq!(none.kind(), io::ErrorKind::WouldBlock);
        for asked in [Ipv4Addr::new(127, 0, 0, 1), Ipv4Addr::new(127, 0, 0, 2)] {
            client.send_to(b"who?", (asked, port)).expect("sent");
            // Over the loopback interface it is often there when the call returns; a processor that
            // has much to do leaves it to a thread of the kernel.
            let mut arrival = libc::pollfd {
                fd: server.as_raw_fd(),
                events: libc::POLLIN,
                revents: 0,
            };
            // SAFETY: it is one, and its descriptor is open.
            let arrived = unsafe { libc::poll(&raw mut arrival, 1, 30_000) };
            assert_eq!(arrived, 1, "it does not arrive");
            assert_eq!(receive(&mut batch).expect("it was sent"), 1);
            let (bytes, envelope) = batch.received(0);
            let envelope = envelope.expect("an address");
            assert_eq!((bytes, envelope.to), (4, Some(asked.into())));
            let to = client.local_addr().expect("bound");
            assert_eq!(envelope.from, to);
            send(server.as_fd(), b"I", to, envelope.to).expect("room");
            let mut answer = [0; 4];
            let (bytes, from) = client.recv_from(&mut answer).expect("a reply");
            assert_eq!((bytes, from), (1, (asked, port).into()));
        }
    }
}
