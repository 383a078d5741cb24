//! One connection of the load generator: mounting, filling a file, calls and replies.
//!
//! A reply is checked for its status and its length and then thrown away; the bytes are the tests'
//! concern. Long data costs the client next to nothing, so that the server is what is measured:
//! what is written comes from a memory file by `sendfile`, and what is read is dropped in the
//! kernel (MSG_TRUNC).

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};

use flatpath_rpc::xdr::{Reader, Writer, padding};
use rustix::fs::{MemfdFlags, memfd_create, sendfile};
use rustix::net::{RecvFlags, SendFlags, recv, send};

use crate::Failure;

const NFS: u32 = 100_003;
const MOUNT: u32 = 100_005;
const MESSAGE_BYTES_MAX: usize = (1 << 20) + 4096;
/// What is looked at of a reply: head, attributes, lengths.
const HEAD_BYTES: usize = 256;
/// From this length on data is not copied by the client.
const LONG_BYTES_MIN: u32 = 64 << 10;

/// Where the server is.
#[derive(Clone, Debug)]
pub(crate) struct Mount {
    pub(crate) nfs: SocketAddr,
    pub(crate) mount: SocketAddr,
    pub(crate) path: String,
}

/// See the module.
pub(crate) struct Connection {
    stream: TcpStream,
    input: BufReader<TcpStream>,
    root: Vec<u8>,
    out: Vec<u8>,
    /// Room for the longest reply, and how much of it the last one filled.
    reply: Vec<u8>,
    filled: usize,
    /// Bytes of the last reply, looked at or not.
    length: usize,
    /// What long writes write.
    data: File,
    number: u32,
}

/// What is written; the server does not look at it.
static DATA: [u8; 1 << 20] = [0x5a; 1 << 20];

fn connect(
    address: SocketAddr,
    buffered: usize,
) -> Result<(TcpStream, BufReader<TcpStream>), Failure> {
    let stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    let input = BufReader::with_capacity(buffered, stream.try_clone()?);
    Ok((stream, input))
}

impl Connection {
    /// Mounts the export and connects to NFS. Calls are numbered from `number` on, and move `bytes`
    /// of data each.
    pub(crate) fn open(mount: &Mount, number: u32, bytes: u32) -> Result<Connection, Failure> {
        // Of long replies no more is taken in than is looked at; of short ones many at once.
        let buffered = if bytes < LONG_BYTES_MIN {
            256 << 10
        } else {
            HEAD_BYTES
        };
        let mut data = File::from(memfd_create("flatpath-bench-nfs", MemfdFlags::CLOEXEC)?);
        data.write_all(&DATA)?;
        let (stream, input) = connect(mount.mount, buffered)?;
        let (out, reply) = (vec![0; MESSAGE_BYTES_MAX], vec![0; MESSAGE_BYTES_MAX]);
        let mut first = Connection {
            stream,
            input,
            root: Vec::new(),
            out,
            reply,
            filled: 0,
            length: 0,
            data,
            number,
        };
        let path = mount.path.clone();
        first.call(0, MOUNT, 1, |writer| writer.opaque(path.as_bytes()))?;
        first.wait()?;
        let mut reader = first.results()?;
        status(&mut reader)?;
        let root = reader.opaque(64)?.to_vec();
        let (stream, input) = connect(mount.nfs, buffered)?;
        Ok(Connection {
            stream,
            input,
            root,
            ..first
        })
    }

    /// A number for a call, not used before.
    pub(crate) fn number(&mut self) -> u32 {
        self.number = self.number.wrapping_add(1);
        self.number
    }

    fn call(
        &mut self,
        xid: u32,
        program: u32,
        procedure: u32,
        arguments: impl FnOnce(&mut Writer<'_>),
    ) -> Result<(), Failure> {
        let written = self.encode(xid, program, procedure, 0, arguments)?;
        self.stream.write_all(&self.out[..written])?;
        Ok(())
    }

    /// A call in `out`, `behind` more bytes of which follow from elsewhere; its length in `out`.
    fn encode(
        &mut self,
        xid: u32,
        program: u32,
        procedure: u32,
        behind: usize,
        arguments: impl FnOnce(&mut Writer<'_>),
    ) -> Result<usize, Failure> {
        let mut writer = Writer::new(&mut self.out);
        for word in [0, xid, 0, 2, program, 3, procedure] {
            writer.u32(word);
        }
        // AUTH_SYS: stamp, machine, user 0, group 0, no more groups; no verifier.
        for word in [1, 20, 0, 0, 0, 0, 0, 0, 0] {
            writer.u32(word);
        }
        arguments(&mut writer);
        if writer.overflowed() {
            return Err("a call longer than its bound".into());
        }
        let written = writer.written();
        let length = u32::try_from(written - 4 + behind)? | (1 << 31);
        self.out[..4].copy_from_slice(&length.to_be_bytes());
        Ok(written)
    }

    /// Sends what `encode` wrote and, behind it, `bytes` of data without copying them.
    fn send_with_data(&mut self, written: usize, bytes: usize) -> Result<(), Failure> {
        let mut head = &self.out[..written];
        while !head.is_empty() {
            head = &head[send(&self.stream, head, SendFlags::MORE)?..];
        }
        let mut at = 0;
        while (at as usize) < bytes {
            let left = bytes - at as usize;
            if sendfile(&self.stream, &self.data, Some(&mut at), left)? == 0 {
                return Err("the data to write is too short".into());
            }
        }
        Ok(())
    }

    /// The next reply, of one or more fragments; its number. Only its head is kept.
    fn wait(&mut self) -> Result<u32, Failure> {
        self.filled = 0;
        self.length = 0;
        loop {
            let mut marker = [0; 4];
            self.input.read_exact(&mut marker)?;
            let marker = u32::from_be_bytes(marker);
            let length = (marker & 0x7fff_ffff) as usize;
            self.length += length;
            if self.length > MESSAGE_BYTES_MAX {
                return Err("a reply longer than its bound".into());
            }
            let end = HEAD_BYTES.min(self.filled + length);
            let kept = end - self.filled;
            self.input.read_exact(&mut self.reply[self.filled..end])?;
            self.filled = end;
            self.drop_input(length - kept)?;
            if marker >> 31 == 1 {
                return Ok(Reader::new(&self.reply[..end]).u32()?);
            }
        }
    }

    /// Drops `bytes` of what comes, in the kernel unless they are here already.
    fn drop_input(&mut self, bytes: usize) -> Result<(), Failure> {
        let buffered = self.input.buffer().len().min(bytes);
        self.input.consume(buffered);
        let mut left = bytes - buffered;
        if left > 0 && left < LONG_BYTES_MIN as usize {
            let place = &mut self.reply[HEAD_BYTES..HEAD_BYTES + left];
            self.input.read_exact(place)?;
            return Ok(());
        }
        while left > 0 {
            let place = &mut self.reply[HEAD_BYTES..HEAD_BYTES + left];
            let (_, dropped) = recv(&self.stream, place, RecvFlags::TRUNC | RecvFlags::WAITALL)?;
            if dropped == 0 {
                return Err("the server ended the connection".into());
            }
            left -= dropped.min(left);
        }
        Ok(())
    }

    /// The results behind an accepted head.
    fn results(&self) -> Result<Reader<'_>, Failure> {
        let mut reader = Reader::new(&self.reply[..self.filled]);
        let _xid = reader.u32()?;
        if (reader.u32()?, reader.u32()?) != (1, 0) {
            return Err("a call was denied".into());
        }
        let _flavor = reader.u32()?;
        reader.opaque(400)?;
        match reader.u32()? {
            0 => Ok(reader),
            refused => Err(format!("a call was not accepted: {refused}").into()),
        }
    }

    /// Makes a file and fills it, in 1 MiB writes; its handle.
    pub(crate) fn prepare(&mut self, name: &str, bytes: u64) -> Result<Vec<u8>, Failure> {
        let root = self.root.clone();
        let number = self.number();
        self.call(number, NFS, 8, |writer| {
            writer.opaque(&root);
            writer.opaque(name.as_bytes());
            // Unchecked; mode 666, nothing else.
            for word in [0, 1, 0o666, 0, 0, 0, 0, 0] {
                writer.u32(word);
            }
        })?;
        self.wait()?;
        let mut reader = self.results()?;
        status(&mut reader)?;
        if !reader.boolean()? {
            return Err("the server gave no handle for a new file".into());
        }
        let file = reader.opaque(64)?.to_vec();
        for offset in (0..bytes).step_by(1 << 20) {
            let number = self.number();
            self.send(number, true, &file, offset, 1 << 20)?;
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
    ) -> Result<(), Failure> {
        if writes && bytes >= LONG_BYTES_MIN {
            let behind = bytes as usize;
            debug_assert_eq!(padding(behind), 0, "the workloads have whole words");
            let written = self.encode(xid, NFS, 7, behind, |writer| {
                writer.opaque(file);
                writer.u64(offset);
                writer.u32(bytes);
                writer.u32(0);
                writer.u32(bytes);
            })?;
            return self.send_with_data(written, behind);
        }
        self.call(xid, NFS, if writes { 7 } else { 6 }, |writer| {
            writer.opaque(file);
            writer.u64(offset);
            writer.u32(bytes);
            if writes {
                writer.u32(0);
                writer.opaque(&DATA[..bytes as usize]);
            }
        })
    }

    /// Takes a reply; its number. It must be a success, and of READ with all the data.
    pub(crate) fn receive(&mut self, writes: bool, bytes: u32) -> Result<u32, Failure> {
        let xid = self.wait()?;
        let mut reader = self.results()?;
        status(&mut reader)?;
        if !writes {
            if reader.boolean()? {
                reader.fixed::<84>()?;
            }
            let count = reader.u32()?;
            if count != bytes || self.length < bytes as usize {
                return Err(format!("{count} bytes came and {bytes} were asked for").into());
            }
        }
        Ok(xid)
    }
}

fn status(reader: &mut Reader<'_>) -> Result<(), Failure> {
    match reader.u32()? {
        0 => Ok(()),
        status => Err(format!("the server says {status}").into()),
    }
}
