//! Whether several receives can share a page on this kernel, as `uring::sharing` rests on it.
//!
//! Kernels have had it wrong in several ways: a page reported as used up at the end of a stream, or
//! after an error, when the kernel went on with it; more taken off it than was received. So each of
//! these is done, bytes are received after it, and every byte is compared.

use std::io;
use std::mem::ManuallyDrop;
use std::net::TcpStream;

use io_uring::cqueue;
use rustix::io::Errno;

use super::trial::{Bench, expect, finish, pair, result, target, write};
use crate::completion::Piece;
use crate::driver::OperationMode;
use crate::region::{RegionConfig, SmallReceives};
use crate::uring::buffers::BufferRing;
use crate::uring::entry::receive_entry;

const PAGE_BYTES: u32 = 64;
/// The only region of a trial. Not the common one, of which no pages are shared.
const GROUP: u16 = 1;
/// Marks the receive that is cancelled.
const CANCELLED: u64 = 7;

/// A ring, its pages, and the pieces that are out, with what is in them.
struct Stage {
    bench: Bench,
    buffers: ManuallyDrop<BufferRing>,
    out: Vec<(Piece, Vec<u8>)>,
}

impl Stage {
    fn new() -> io::Result<Stage> {
        let bench = Bench::new()?;
        let config = RegionConfig {
            pages: 64,
            page_bytes: PAGE_BYTES,
            reserve_pages: 16,
            small_receives: SmallReceives::SharePages,
            ..RegionConfig::default()
        };
        let buffers = bench.buffers(GROUP, &config)?;
        Ok(Stage {
            bench,
            buffers,
            out: vec![],
        })
    }

    fn start(&mut self, stream: &TcpStream) -> io::Result<()> {
        let group = self.buffers.shared_group();
        let entry = receive_entry(target(stream), OperationMode::Single, group)
            .entry()
            .user_data(CANCELLED);
        // SAFETY: the pages outlive the operation: they go when it was seen to end, or never.
        unsafe { self.bench.push(&entry) }
    }

    /// Receives `bytes`, sent before, `from` the beginning of a page.
    fn receive(&mut self, stream: &TcpStream, bytes: &[u8], from: u32) -> io::Result<()> {
        self.start(stream)?;
        let entry = self.bench.next()?;
        let count = result(&entry)?;
        let number = cqueue::buffer_select(entry.flags()).ok_or(Errno::OPNOTSUPP)?;
        expect(count as usize == bytes.len() && self.buffers.has(number))?;
        // The driver does not need it, but a kernel that reports it wrongly is not to be trusted.
        let is_full = from + count == PAGE_BYTES;
        expect(cqueue::buffer_more(entry.flags()) != is_full)?;
        let piece = self.buffers.take(number, count);
        expect(piece.offset == from)?;
        self.out.push((piece, bytes.to_vec()));
        self.compare()
    }

    /// Everything that was received is where it was, and unchanged.
    fn compare(&self) -> io::Result<()> {
        let same =
            |(piece, bytes): &(Piece, Vec<u8>)| self.buffers.region().bytes_of(piece) == bytes;
        expect(self.out.iter().all(same))
    }

    /// A receive that brings nothing.
    fn receive_nothing(&mut self, stream: &TcpStream) -> io::Result<()> {
        self.start(stream)?;
        let entry = self.bench.next()?;
        expect(entry.result() <= 0)?;
        if let Some(number) = cqueue::buffer_select(entry.flags()) {
            self.buffers.take_nothing(number);
        }
        Ok(())
    }
}

/// A stream of bytes that differ from place to place.
fn pattern(from: usize, count: usize) -> Vec<u8> {
    (from..from + count)
        .map(|at| (at * 7 % 251) as u8)
        .collect()
}

/// Receives of several connections lie one after the other in a page, whatever happens between.
pub(crate) fn receives_share_pages() -> io::Result<()> {
    let mut stage = Stage::new()?;
    let (client, server) = pair()?;
    let (mut at, mut from) = (0, 0);
    let mut receive = |stage: &mut Stage, count: u32| {
        let bytes = pattern(at, count as usize);
        write(&client, &bytes)?;
        stage.receive(&server, &bytes, from)?;
        at += count as usize;
        from = (from + count) % PAGE_BYTES;
        Ok::<(), io::Error>(())
    };
    receive(&mut stage, 10)?;
    // The end of a stream.
    let (other_client, other) = pair()?;
    write(&other_client, b"")?;
    finish(&other_client)?;
    stage.receive_nothing(&other)?;
    receive(&mut stage, 9)?;
    // A broken connection.
    let (other_client, other) = pair()?;
    break_off(other_client)?;
    stage.receive_nothing(&other)?;
    receive(&mut stage, 8)?;
    // A receive that waits, and is cancelled.
    let (_other_client, other) = pair()?;
    stage.start(&other)?;
    stage.bench.submit()?;
    stage.bench.cancel(CANCELLED)?;
    // To the last byte of the page; a whole page; past a page.
    for count in [37, PAGE_BYTES, 60, 4, 63] {
        receive(&mut stage, count)?;
    }
    // More than is left of a page: what is left is filled.
    let bytes = pattern(5, 50);
    write(&client, &bytes)?;
    stage.receive(&server, &bytes[..1], PAGE_BYTES - 1)?;
    stage.receive(&server, &bytes[1..], 0)?;
    let Stage {
        bench,
        mut buffers,
        out,
    } = stage;
    for (piece, _) in out {
        buffers.recycle(piece);
    }
    expect(buffers.in_use() == 0)?;
    drop(bench);
    drop(ManuallyDrop::into_inner(buffers));
    Ok(())
}

/// Closes a connection so that its peer gets a reset.
fn break_off(stream: TcpStream) -> io::Result<()> {
    let at_once = Some(std::time::Duration::ZERO);
    rustix::net::sockopt::set_socket_linger(&stream, at_once)?;
    drop(stream);
    Ok(())
}
