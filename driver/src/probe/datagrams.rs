//! A trial with datagrams over the loopback interface.

use std::io;
use std::mem::ManuallyDrop;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::AsRawFd;

use flatpath_sys::udp::{CONTROL_BYTES, NAME_BYTES};
use io_uring::types::RecvMsgOut;
use io_uring::{cqueue, opcode, types};
use rustix::io::Errno;

use super::trial::{Bench, expect, result};
use crate::region::RegionConfig;

/// The only buffer group of a trial.
const GROUP: u16 = 0;

/// One operation brings two datagrams, each with its sender in a page of the kernel's choice.
///
/// Where the loopback interface is down, datagrams come by no way, so the answer does not matter.
pub(crate) fn multishot_datagrams() -> io::Result<()> {
    let server = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    let client = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    let mut bench = Bench::new()?;
    let config = RegionConfig {
        pages: 4,
        page_bytes: 256,
        reserve_pages: 0,
        ..RegionConfig::default()
    };
    let mut buffers = bench.buffers(GROUP, &config)?;
    // SAFETY: all-zero is a message header that points to nothing.
    let mut header: Box<libc::msghdr> = Box::new(unsafe { std::mem::zeroed() });
    header.msg_namelen = NAME_BYTES as _;
    header.msg_controllen = CONTROL_BYTES as _;
    // Freed once the operation was seen to end, or never.
    let header = ManuallyDrop::new(header);
    let socket = types::Fd(server.as_raw_fd());
    let entry = opcode::RecvMsgMulti::new(socket, &raw const **header, GROUP).build();
    // SAFETY: the pages and the header outlive the operation.
    unsafe { bench.push(&entry.user_data(1)) }?;
    bench.submit()?;
    for bytes in [b"one", b"two"] {
        client.send_to(bytes, server.local_addr()?)?;
        let entry = bench.next()?;
        let length = result(&entry)?;
        let buffer = cqueue::buffer_select(entry.flags()).ok_or(Errno::OPNOTSUPP)?;
        let piece = buffers.take(buffer, length);
        let parsed = RecvMsgOut::parse(buffers.region().bytes_of(&piece), &header);
        let message = parsed.map_err(|()| Errno::OPNOTSUPP)?;
        let is_whole = message.payload_data() == bytes && !message.name_data().is_empty();
        expect(is_whole && cqueue::more(entry.flags()))?;
        buffers.recycle(piece);
    }
    bench.cancel(1)?;
    drop(ManuallyDrop::into_inner(header));
    drop(ManuallyDrop::into_inner(buffers));
    Ok(())
}
