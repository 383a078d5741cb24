//! Trials on connections over the loopback interface, or over Unix sockets where it is down.

use std::io;
use std::io::Read;
use std::mem::ManuallyDrop;
use std::net::TcpStream;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd};
use std::time::Duration;

use io_uring::squeue::Flags;
use io_uring::{cqueue, opcode, types};
use rustix::io::Errno;

use super::trial::{
    Bench, PATIENCE_SECONDS, connect, expect, finish, listen, pair, result, target, write,
};
use crate::driver::OperationMode;
use crate::region::RegionConfig;
use crate::uring::entry::{accept_entry, close_entry, limited_receive_entry, receive_entry};
use crate::uring::setup;

/// The only buffer group of a trial.
const GROUP: u16 = 0;

/// One accept takes two connections and lives on.
pub(super) fn multishot_accept() -> io::Result<()> {
    let listener = listen()?;
    // As drivers have it.
    listener.set_nonblocking(true)?;
    let mut bench = Bench::new()?;
    let entry = accept_entry(types::Fd(listener.as_raw_fd()), OperationMode::Multishot)
        .entry()
        .user_data(1);
    // SAFETY: it points to nothing.
    unsafe { bench.push(&entry) }?;
    bench.submit()?;
    for _ in 0..2 {
        let _client = connect(&listener)?;
        let entry = bench.next()?;
        let descriptor = result(&entry)?;
        // SAFETY: just accepted, so this is its only owner.
        drop(unsafe { OwnedFd::from_raw_fd(descriptor as i32) });
        expect(cqueue::more(entry.flags()))?;
    }
    bench.cancel(1)
}

/// One receive brings two pieces in buffers of the kernel's choice, then the end.
pub(super) fn multishot_receive() -> io::Result<()> {
    let (client, server) = pair()?;
    let mut bench = Bench::new()?;
    let mut buffers = bench.buffers(
        GROUP,
        &RegionConfig {
            pages: 4,
            page_bytes: 64,
            reserve_pages: 0,
            ..RegionConfig::default()
        },
    )?;
    // SAFETY: the buffers outlive the operation: they go when it was seen to end, or never.
    unsafe {
        bench.push(&receive_entry(target(&server), OperationMode::Multishot, GROUP).entry())
    }?;
    bench.submit()?;
    for bytes in [b"one", b"two"] {
        write(&client, bytes)?;
        let entry = bench.next()?;
        let length = result(&entry)?;
        let buffer = cqueue::buffer_select(entry.flags()).ok_or(Errno::OPNOTSUPP)?;
        let piece = buffers.take(buffer, length);
        expect(buffers.region().bytes_of(&piece) == bytes && cqueue::more(entry.flags()))?;
        buffers.recycle(piece);
    }
    finish(&client)?;
    let entry = bench.next()?;
    expect(!cqueue::more(entry.flags()))?;
    drop(ManuallyDrop::into_inner(buffers));
    expect(result(&entry)? == 0)
}

/// One receive leaves a part of what has arrived, by one of two ways.
pub(super) fn bounded_receive() -> io::Result<()> {
    limited_receive().or_else(|_| pausing_receive())
}

/// One receive ends with the piece that reaches its number of bytes, and leaves the rest.
pub(crate) fn limited_receive() -> io::Result<()> {
    const PIECES: u32 = 4;
    const PAGE_BYTES: u32 = 64;
    let (client, server) = pair()?;
    let mut bench = Bench::new()?;
    let buffers = bench.buffers(
        GROUP,
        &RegionConfig {
            pages: 2 * PIECES,
            page_bytes: PAGE_BYTES,
            reserve_pages: 0,
            ..RegionConfig::default()
        },
    )?;
    write(&client, &[0; (2 * PIECES * PAGE_BYTES) as usize])?;
    let entry = limited_receive_entry(target(&server), GROUP, PIECES * PAGE_BYTES).entry();
    // SAFETY: the buffers outlive the operation: they go when it was seen to end, or never.
    unsafe { bench.push(&entry) }?;
    for number in 1..=PIECES {
        let entry = bench.next()?;
        let is_last = number == PIECES;
        expect(result(&entry)? == PAGE_BYTES && cqueue::more(entry.flags()) != is_last)?;
    }
    drop(ManuallyDrop::into_inner(buffers));
    expect(bench.arrived() == 0)
}

/// One receive leaves a part of what has arrived to the next wait, while there are buffers for all.
/// From Linux 7.2 on it does not: what it leaves is taken up twenty times in the same wait.
pub(crate) fn pausing_receive() -> io::Result<()> {
    const PIECES: u32 = 48;
    const PAGE_BYTES: u32 = 64;
    let (client, server) = pair()?;
    let ring = setup::set_up(8, 2 * PIECES);
    let (ring, _) = ring.map_err(|refusal| io::Error::from_raw_os_error(refusal.errno))?;
    let mut bench = Bench::of(ring);
    let buffers = bench.buffers(
        GROUP,
        &RegionConfig {
            pages: 64,
            page_bytes: PAGE_BYTES,
            reserve_pages: 0,
            ..RegionConfig::default()
        },
    )?;
    let entry = receive_entry(target(&server), OperationMode::Multishot, GROUP).entry();
    // SAFETY: the buffers outlive the operation: they go when it was seen to end, or never.
    unsafe { bench.push(&entry.user_data(1)) }?;
    bench.submit()?;
    write(&client, &[0; (PIECES * PAGE_BYTES) as usize])?;
    bench.next()?;
    let at_once = 1 + bench.arrived();
    bench.cancel(1)?;
    drop(ManuallyDrop::into_inner(buffers));
    expect(at_once < PIECES as usize)
}

/// The close follows the last byte, and completes silently when it succeeds.
pub(super) fn linked_close() -> io::Result<()> {
    let (mut client, server) = pair()?;
    client.set_read_timeout(Some(Duration::from_secs(PATIENCE_SECONDS)))?;
    let mut bench = Bench::new()?;
    let target = target(&server);
    // The ring closes it.
    let descriptor = server.into_raw_fd();
    let flags = libc::MSG_NOSIGNAL | libc::MSG_WAITALL;
    let send = opcode::Send::new(types::Fd(descriptor), b"last".as_ptr(), 4).flags(flags);
    let send = send.build().user_data(1).flags(Flags::IO_LINK);
    // SAFETY: the bytes are static.
    unsafe { bench.push(&send) }?;
    // SAFETY: it points to nothing.
    unsafe { bench.push(&close_entry(target).entry()) }?;
    let entry = bench.next()?;
    expect(entry.user_data() == 1 && result(&entry)? == 4)?;
    // Lets the linked close run where task work is deferred. SAFETY: it points to nothing.
    unsafe { bench.push(&opcode::Nop::new().build().user_data(2)) }?;
    expect(bench.next()?.user_data() == 2)?;
    let mut bytes = vec![];
    client.read_to_end(&mut bytes)?;
    expect(bytes == b"last")
}

/// The bytes of a silent send.
static BYTES: [u8; 16 * 1024] = [7; 16 * 1024];
/// Silent sends until the socket must be full.
const FILLING_MAX: usize = 4096;

/// A send that never waits has no completion when all went out; when not, it has one at once that
/// says how much did.
pub(crate) fn silent_send() -> io::Result<()> {
    let (mut client, server) = pair()?;
    rustix::net::sockopt::set_socket_send_buffer_size(&server, BYTES.len())?;
    client.set_read_timeout(Some(Duration::from_secs(PATIENCE_SECONDS)))?;
    let mut bench = Bench::new()?;
    let (mut sent, mut refused) = (0, 0);
    for _ in 0..FILLING_MAX {
        match send_silently(&mut bench, &server)? {
            None => sent += BYTES.len(),
            Some(part) => {
                refused += 1;
                sent += part;
            }
        }
        if refused == 2 {
            break;
        }
    }
    expect(refused == 2)?;
    finish(&server)?;
    let mut bytes = vec![];
    client.read_to_end(&mut bytes)?;
    expect(bytes.len() == sent)
}

/// The result of the completion, if there is one by the time the next operation completes.
fn send_silently(bench: &mut Bench, server: &TcpStream) -> io::Result<Option<usize>> {
    let flags = libc::MSG_NOSIGNAL | libc::MSG_WAITALL | libc::MSG_DONTWAIT;
    let send = opcode::Send::new(target(server), BYTES.as_ptr(), BYTES.len() as u32);
    let send = send.flags(flags).build();
    let send = send.user_data(1).flags(Flags::SKIP_SUCCESS);
    // SAFETY: the bytes are static.
    unsafe { bench.push(&send) }?;
    // SAFETY: it points to nothing.
    unsafe { bench.push(&opcode::Nop::new().build().user_data(2)) }?;
    let first = bench.next()?;
    if first.user_data() == 2 {
        return Ok(None);
    }
    expect(bench.next()?.user_data() == 2)?;
    match result(&first) {
        Ok(part) if part as usize != BYTES.len() => Ok(Some(part as usize)),
        Ok(_) => Err(Errno::OPNOTSUPP.into()),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(Some(0)),
        Err(error) => Err(error),
    }
}
