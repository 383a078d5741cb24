//! Options of TCP sockets that std and rustix do not have (tcp(7)).

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// Makes the kernel hold a new connection of a listening socket back until its first bytes are
/// there (`TCP_DEFER_ACCEPT`), or for about a second: the kernel rounds up to the first
/// retransmission of its SYN-ACK.
///
/// # Errors
/// The error of setsockopt(2); the listener works as before.
pub fn defer_accept(listener: impl AsFd) -> io::Result<()> {
    set_option(listener, (libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT), 1)
}

/// Bounds what the kernel takes of a connection's output before it sends it
/// (`TCP_NOTSENT_LOWAT`), in bytes. Without, a peer that does not read makes it take 4 MiB
/// (`net.ipv4.tcp_wmem`). What is on its way to the peer does not count, so a fast one is as fast.
/// Connections inherit it from their listener.
///
/// # Errors
/// The error of setsockopt(2), as for a socket that is not TCP's.
pub fn set_unsent_max(socket: impl AsFd, bytes: u32) -> io::Result<()> {
    let option = (libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT);
    set_option(socket, option, bytes.cast_signed())
}

/// Whether the kernel paces what a connection sends: it has a timer send a part of what is queued
/// each time (`bbr`, net/ipv4/tcp_bbr.c). False for sockets that are not TCP's.
pub fn is_paced(socket: impl AsFd) -> bool {
    let control = rustix::net::sockopt::tcp_congestion(socket);
    control.is_ok_and(|name| name.starts_with("bbr"))
}

/// Sets an option of a level that is an int.
pub(crate) fn set_option(
    socket: impl AsFd,
    (level, option): (libc::c_int, libc::c_int),
    value: libc::c_int,
) -> io::Result<()> {
    // SAFETY: the descriptor is open, and the kernel reads one int that lives until it returns.
    let outcome = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            level,
            option,
            (&raw const value).cast(),
            size_of_val(&value) as libc::socklen_t,
        )
    };
    match outcome {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Connections that wait in a listening socket to be accepted (`tcpi_unacked`, net/ipv4/tcp.c,
/// `tcp_get_info`). `None` for sockets that are not TCP's.
pub fn queued(listener: impl AsFd) -> Option<u32> {
    info(listener).map(|(info, _)| info.tcpi_unacked)
}

/// How far the peer's TCP is with what was sent to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// Bytes that it has acknowledged since the connection began (`tcpi_bytes_acked`).
    pub acked_bytes: u64,
    /// Nothing waits for its acknowledgement, and it answers the probes of a closed window (RFC
    /// 9293 section 3.8.6.1): `tcpi_unacked` is none, and `tcpi_probes` at most the one under way.
    pub is_answered: bool,
}

/// The kernel's information on the peer of a connected socket. `None` for sockets that are not
/// TCP's, and before Linux 4.1.
pub fn delivery(socket: impl AsFd) -> Option<Delivery> {
    let (info, length) = info(socket)?;
    // Older kernels return a shorter structure, without the field.
    let end = std::mem::offset_of!(libc::tcp_info, tcpi_bytes_acked) + size_of::<u64>();
    (length >= end).then_some(Delivery {
        acked_bytes: info.tcpi_bytes_acked,
        is_answered: info.tcpi_unacked == 0 && info.tcpi_probes <= 1,
    })
}

/// The kernel's information on a TCP socket, and its length in bytes.
fn info(socket: impl AsFd) -> Option<(libc::tcp_info, usize)> {
    // SAFETY: every field of the structure is a number, for which 0 is a value.
    let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
    let mut length = size_of::<libc::tcp_info>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes to a structure that has as many.
    let outcome = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            (&raw mut info).cast(),
            &raw mut length,
        )
    };
    (outcome == 0).then_some((info, length as usize))
}
