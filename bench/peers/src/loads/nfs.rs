//! One connection of the load generator: mounting, filling a file, calls and replies.
//!
//! A reply is checked for its status and its length and then thrown away: the tests check the
//! bytes. Long data costs the client next to nothing, so that the server is what is measured: what
//! is written comes from a memory file by `sendfile`, and what is read is dropped in the kernel
//! (MSG_TRUNC).

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;

use flatpath_testkit::nfs::{self, ATTRIBUTES, LAST_FRAGMENT};
use rustix::fs::{MemfdFlags, memfd_create, sendfile};
use rustix::net::{RecvFlags, SendFlags, recv, send};

use crate::server::Server;

const REPLY_BYTES_MAX: usize = (1 << 20) + 4096;
/// What is looked at of a reply: head, attributes, lengths.
const HEAD_BYTES: usize = 256;
/// From this length on data is not copied by the client.
const LONG_BYTES_MIN: u32 = 64 << 10;
/// Calls are those of root, which costs a server least.
const USER: u32 = 0;

/// The handle of the root of what the server exports.
///
/// # Errors
/// What the socket reports, or a refusal.
pub(super) fn root(server: &Server) -> io::Result<Vec<u8>> {
    let mut calls = nfs::Connection::try_open(server.mount)?.by(USER);
    calls.try_handle(&nfs::mount(&server.export))
}

/// See the module.
pub(crate) struct Connection {
    stream: TcpStream,
    input: BufReader<TcpStream>,
    root: Vec<u8>,
    /// Room for the longest reply, and how much of it the last one filled.
    reply: Vec<u8>,
    filled: usize,
    /// Bytes of the last reply, looked at or not.
    length: usize,
    /// What long writes write.
    data: File,
}

/// What is written; the server does not look at it.
static DATA: [u8; 1 << 20] = [0x5a; 1 << 20];

impl Connection {
    /// Mounts the export and connects to NFS. Calls will move `bytes` of data each.
    pub(crate) fn open(server: &Server, bytes: u32) -> io::Result<Connection> {
        let root = root(server)?;
        let mut data = File::from(memfd_create("flatpath-nfs-data", MemfdFlags::CLOEXEC)?);
        data.write_all(&DATA)?;
        let stream = TcpStream::connect(server.address)?;
        stream.set_nodelay(true)?;
        // Of long replies no more is taken in than is looked at; of short ones many at once.
        let is_short = bytes < LONG_BYTES_MIN;
        let buffered = if is_short { 256 << 10 } else { HEAD_BYTES };
        Ok(Connection {
            input: BufReader::with_capacity(buffered, stream.try_clone()?),
            stream,
            root,
            reply: vec![0; REPLY_BYTES_MAX],
            filled: 0,
            length: 0,
            data,
        })
    }

    /// Makes a file and fills it, in 1 MiB writes numbered from `first` on; its handle.
    pub(crate) fn prepare(&mut self, name: &str, bytes: u64, first: u32) -> io::Result<Vec<u8>> {
        let mut calls = nfs::Connection::of(self.stream.try_clone()?).by(USER);
        let file = calls.try_create(&self.root, name)?;
        for (number, offset) in (0..).zip((0..bytes).step_by(1 << 20)) {
            self.send(first.wrapping_add(number), true, &file, offset, 1 << 20)?;
            self.receive(true, 1 << 20)?;
        }
        Ok(file)
    }

    /// Sends a READ or an unstable WRITE.
    pub(crate) fn send(
        &mut self,
        xid: u32,
        writes: bool,
        file: &[u8],
        offset: u64,
        bytes: u32,
    ) -> io::Result<()> {
        match writes {
            false => {
                let read = nfs::read(file, offset, bytes);
                self.stream.write_all(&read.record_by(USER, xid))
            }
            true if bytes < LONG_BYTES_MIN => {
                let data = &DATA[..bytes as usize];
                let write = nfs::write(file, offset, data, 0);
                self.stream.write_all(&write.record_by(USER, xid))
            }
            true => {
                let write = nfs::write_before(file, offset, bytes, 0);
                self.send_with_data(&write.record_before(bytes as usize, USER, xid), bytes)
            }
        }
    }

    /// Sends `head` and then `bytes` of data without copying them.
    fn send_with_data(&mut self, mut head: &[u8], bytes: u32) -> io::Result<()> {
        while !head.is_empty() {
            head = &head[send(&self.stream, head, SendFlags::MORE)?..];
        }
        let mut at = 0;
        while at < u64::from(bytes) {
            let left = bytes as usize - at as usize;
            if sendfile(&self.stream, &self.data, Some(&mut at), left)? == 0 {
                return Err(io::Error::other("the data to write is too short"));
            }
        }
        Ok(())
    }

    /// Takes a reply; its number. It must be a success, and of READ with all the data.
    pub(crate) fn receive(&mut self, writes: bool, bytes: u32) -> io::Result<u32> {
        self.wait()?;
        let reply = &self.reply[..self.filled];
        let results = nfs::good(nfs::accepted(reply)?)?;
        if !writes {
            let skipped = match results.first_chunk::<4>() {
                Some([0, 0, 0, 0]) => 4,
                _ => 4 + ATTRIBUTES,
            };
            let count = results.get(skipped..).and_then(<[u8]>::first_chunk::<4>);
            let count = count.map_or(0, |count| u32::from_be_bytes(*count));
            if count != bytes || self.length < bytes as usize {
                let what = format!("{count} bytes came and {bytes} were asked for");
                return Err(io::Error::other(what));
            }
        }
        let xid = reply.first_chunk::<4>().copied().unwrap_or_default();
        Ok(u32::from_be_bytes(xid))
    }

    /// The next reply, of one or more fragments. Only its head is kept.
    fn wait(&mut self) -> io::Result<()> {
        self.filled = 0;
        self.length = 0;
        loop {
            let mut mark = [0; 4];
            self.input.read_exact(&mut mark)?;
            let mark = u32::from_be_bytes(mark);
            let length = (mark & !LAST_FRAGMENT) as usize;
            self.length += length;
            if self.length > REPLY_BYTES_MAX {
                return Err(io::Error::other("a reply longer than its bound"));
            }
            let end = HEAD_BYTES.min(self.filled + length);
            let kept = end - self.filled;
            self.input.read_exact(&mut self.reply[self.filled..end])?;
            self.filled = end;
            self.drop_input(length - kept)?;
            if mark & LAST_FRAGMENT != 0 {
                return Ok(());
            }
        }
    }

    /// Drops `bytes` of what comes, in the kernel unless they are here already.
    fn drop_input(&mut self, bytes: usize) -> io::Result<()> {
        let buffered = self.input.buffer().len().min(bytes);
        self.input.consume(buffered);
        let mut left = bytes - buffered;
        if left > 0 && left < LONG_BYTES_MIN as usize {
            let place = &mut self.reply[HEAD_BYTES..HEAD_BYTES + left];
            return self.input.read_exact(place);
        }
        while left > 0 {
            let place = &mut self.reply[HEAD_BYTES..HEAD_BYTES + left];
            let (_, dropped) = recv(&self.stream, place, RecvFlags::TRUNC | RecvFlags::WAITALL)?;
            if dropped == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            left -= dropped.min(left);
        }
        Ok(())
    }
}
