//! Files that are not small, read again and again by clients that drop what they read, and
//! downloads that no client reads.
//!
//! A client is a thread with a connection that is kept. Of each reply it checks status and length,
//! and the first and the last bytes of the body against the file; once for each server, before it
//! is measured, the whole body. What is between is dropped by the kernel (`MSG_TRUNC`), so the
//! clients cost next to nothing; over TLS they have to decrypt it. HTTP/2 is driven by h2load,
//! which reads 16 KiB at a time: there the lengths are checked.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::FileExt;
use std::thread;
use std::time::{Duration, Instant};

use flatpath_bench_common::h2load::{self, Amount, Class, H2load};
use flatpath_bench_common::http;
use flatpath_bench_common::servers::{CPU, LOST, Metric, PEAK_MIB, SERVED};
use flatpath_bench_common::source::Source;
use flatpath_bench_common::tools::{self, Tool};
use flatpath_bench_common::wrk::Scheme;
use rustix::fs::{Advice, fadvise};
use rustix::net::{RecvFlags, SocketFlags, recv};
use rustls::{ClientConnection, StreamOwned};

use super::tls::Client;
use crate::comparison::{Load, Row, Turn};
use crate::ground::Ground;
use crate::server::{Server, Service};

/// Bodies of whole replies.
pub(crate) const MIB_PER_SECOND: Metric = Metric::median("MiB/s");
/// Memory of the process that a download adds.
pub(crate) const MEMORY: Metric = Metric::median("B/download");
/// Of the bodies, what the server's processes had read from a disk.
const FROM_DISK: Metric = Metric::median("from disk %");
const DESCRIPTORS: Metric = Metric::median("descriptors/download");

/// Compared at the begin and at the end of each body.
const COMPARED: u64 = 1024;
const BUFFER_BYTES: usize = 256 << 10;
/// Of a client that does not read: what it has not read is the server's.
const UNREAD_WINDOW: usize = 4096;
/// How long a server gets until nothing moves any more.
const SETTLE: Duration = Duration::from_secs(1);
/// What h2load asks for in each second of the pace.
const HTTP2_BYTES: u64 = 1 << 30;
/// By how much all of it is shorter where it has to show alone that it works.
const QUICKER: u32 = 5;

/// How the clients ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Over {
    Http1,
    Http2,
}

/// One file, asked for by some clients at a time. With TLS where the row has it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Large {
    pub(crate) bytes: u64,
    /// Where and how many bytes, where not all are asked for.
    pub(crate) part: Option<(u64, u64)>,
    pub(crate) clients: u32,
    pub(crate) over: Over,
    /// The file is dropped from the page cache before each request, of one client.
    pub(crate) cold: bool,
}

/// Downloads of a file of this length, by so many clients that read nothing.
pub(crate) struct Unread {
    pub(crate) bytes: u64,
    pub(crate) clients: u32,
}

/// What clients got.
#[derive(Clone, Copy, Default)]
struct Done {
    /// Whole ones.
    replies: u64,
    /// From requests to the ends of their replies, of the client that took longest.
    time: Duration,
}

/// A connection whose bytes may be dropped.
trait Peer: Read + Write + Send {
    /// Takes bytes that nobody looks at, at most the length of the buffer.
    fn drop_some(&mut self, buffer: &mut [u8]) -> io::Result<usize>;
}

impl Peer for TcpStream {
    fn drop_some(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        Ok(recv(&*self, buffer, RecvFlags::TRUNC)?.1)
    }
}

impl Peer for StreamOwned<ClientConnection, TcpStream> {
    fn drop_some(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.read(buffer)
    }
}

/// What is asked for, and what has to come.
struct Asked {
    file: File,
    request: Vec<u8>,
    status: u16,
    /// Where in the file the body begins, and its length.
    from: u64,
    length: u64,
}

impl Asked {
    fn of(ground: &Ground, bytes: u64, part: Option<(u64, u64)>) -> io::Result<Self> {
        let (range, status) = match part {
            None => (String::new(), 200),
            Some((from, length)) => (
                format!("Range: bytes={from}-{}\r\n", from + length - 1),
                206,
            ),
        };
        let request = format!("GET /{bytes} HTTP/1.1\r\nHost: localhost\r\n{range}\r\n");
        let (from, length) = part.unwrap_or((0, bytes));
        Ok(Self {
            file: File::open(ground.large(bytes)?)?,
            request: request.into_bytes(),
            status,
            from,
            length,
        })
    }

    /// Asks once. `compared` bytes at the begin and at the end of the body have to be the file's.
    ///
    /// # Errors
    /// `InvalidData` for another reply; what the socket reports.
    fn fetch(&self, peer: &mut dyn Peer, buffer: &mut [u8], compared: u64) -> io::Result<()> {
        peer.write_all(&self.request)?;
        let mut filled = 0;
        let head = loop {
            filled += some(peer.read(&mut buffer[filled..])?)?;
            if let Some(head) = http::head(&buffer[..filled])? {
                break head;
            }
        };
        if (head.status, head.body_bytes) != (self.status, self.length) {
            return Err(invalid(&format!("another reply than expected: {head:?}")));
        }
        let mut position = (filled - head.bytes) as u64;
        self.compare(0, &buffer[head.bytes..filled])?;
        let last = self.length.saturating_sub(compared);
        while position < self.length {
            if position < compared || position >= last {
                let left = self.length - position;
                let most = left.min(buffer.len() as u64) as usize;
                let count = some(peer.read(&mut buffer[..most])?)?;
                self.compare(position, &buffer[..count])?;
                position += count as u64;
            } else {
                let most = (last - position).min(buffer.len() as u64) as usize;
                position += some(peer.drop_some(&mut buffer[..most])?)? as u64;
            }
        }
        match position == self.length {
            true => Ok(()),
            false => Err(invalid("more came than the head says")),
        }
    }

    /// Whether this is what the file has there.
    fn compare(&self, position: u64, received: &[u8]) -> io::Result<()> {
        let mut expected = vec![0; received.len()];
        self.file
            .read_exact_at(&mut expected, self.from + position)?;
        match expected == received {
            true => Ok(()),
            false => Err(invalid(&format!(
                "other bytes than the file's at {position}"
            ))),
        }
    }
}

impl Large {
    /// Each client asks until the time is over, and waits for its last reply.
    fn drive(
        &self,
        asked: &Asked,
        peers: &mut [Box<dyn Peer>],
        time: Duration,
    ) -> io::Result<Done> {
        let end = Instant::now() + time;
        let client = |peer: &mut Box<dyn Peer>| -> io::Result<Done> {
            let mut buffer = vec![0; BUFFER_BYTES];
            let mut done = Done::default();
            while Instant::now() < end || done.replies == 0 {
                if self.cold {
                    fadvise(&asked.file, 0, None, Advice::DontNeed)?;
                }
                let begun = Instant::now();
                asked.fetch(&mut **peer, &mut buffer, COMPARED)?;
                done.time += begun.elapsed();
                done.replies += 1;
            }
            Ok(done)
        };
        thread::scope(|scope| {
            let clients = peers.iter_mut().map(|peer| scope.spawn(|| client(peer)));
            let clients: Vec<_> = clients.collect();
            let panicked = |_| Err(io::Error::other("a client panicked"));
            clients
                .into_iter()
                .try_fold(Done::default(), |all, client| {
                    let done = client.join().unwrap_or_else(panicked)?;
                    Ok(Done {
                        replies: all.replies + done.replies,
                        time: all.time.max(done.time),
                    })
                })
        })
    }

    /// The same by HTTP/2.
    fn drive_http2(&self, h2load: &H2load, server: &Server, time: Duration) -> io::Result<Done> {
        let requests = time.as_secs_f64() * HTTP2_BYTES as f64 / self.bytes as f64;
        let load = h2load::Load {
            wanted: Class::Success,
            scheme: Scheme::Https,
            address: server.address,
            path: format!("/{}", self.bytes),
            connections: self.clients,
            streams: 1,
            amount: Amount::Requests((requests as u64).max(self.clients.into())),
            cores: Vec::new(),
        };
        let begun = Instant::now();
        let counted = h2load.run(&load)?;
        let time = begun.elapsed();
        match (
            counted.errors,
            counted.requests * self.bytes == counted.body_bytes,
        ) {
            (0, true) => Ok(Done {
                replies: counted.requests,
                time,
            }),
            _ => Err(invalid(&format!(
                "other replies than expected: {counted:?}"
            ))),
        }
    }
}

impl Load for Large {
    fn start<'a>(&'a self, ground: &'a Ground, row: &'a Row) -> io::Result<Turn<'a>> {
        let asked = Asked::of(ground, self.bytes, self.part)?;
        let server = row.start(ground)?;
        let address = server.address;
        let is_secured = row.needs.service == Service::Https;
        let client = is_secured.then(|| Client::new(&ground.issued, &[]));
        let client = client.transpose()?;
        let connect = move || -> io::Result<Box<dyn Peer>> {
            let socket = http::connect(address)?;
            Ok(match &client {
                None => Box::new(socket),
                Some(client) => Box::new(client.secure(socket)?),
            })
        };
        asked.fetch(&mut *connect()?, &mut vec![0; BUFFER_BYTES], u64::MAX)?;
        let h2load = match self.over {
            Over::Http1 => None,
            Over::Http2 => Some(H2load::prepare()?),
        };
        Ok(Box::new(move || {
            // In each run anew: servers close connections that wait for their next turn.
            let clients = 0..self.clients;
            let mut peers = clients.map(|_| connect()).collect::<io::Result<Vec<_>>>()?;
            // Hands are shaken, and caches filled.
            self.drive(&asked, &mut peers, Duration::ZERO)?;
            let time = in_time(ground, ground.time());
            let read = server.read_bytes()?;
            let (Done { replies, time }, used) = server.watch(|| match &h2load {
                None => self.drive(&asked, &mut peers, time),
                Some(h2load) => self.drive_http2(h2load, &server, time),
            })?;
            let bytes = (replies * asked.length) as f64;
            let mut run = vec![
                (CPU, used.server_micros_over(replies)),
                (
                    MIB_PER_SECOND,
                    bytes / f64::from(1 << 20) / time.as_secs_f64(),
                ),
            ];
            if self.cold {
                let read = server.read_bytes()?.saturating_sub(read);
                if read == 0 {
                    return Err(invalid("nothing came from a disk: TMPDIR has to be on one"));
                }
                run.push((FROM_DISK, read as f64 / bytes * 100.0));
            }
            server.shown(&used, run)
        }))
    }

    fn tools(&self) -> &'static [Tool] {
        match self.over {
            Over::Http1 => &[],
            Over::Http2 => &[tools::H2LOAD],
        }
    }
}

impl Load for Unread {
    fn start<'a>(&'a self, ground: &'a Ground, row: &'a Row) -> io::Result<Turn<'a>> {
        let asked = Asked::of(ground, self.bytes, None)?;
        Ok(Box::new(move || {
            let server = row.start(ground)?;
            let mut socket = http::connect(server.address)?;
            asked.fetch(&mut socket, &mut vec![0; BUFFER_BYTES], u64::MAX)?;
            thread::sleep(in_time(ground, SETTLE));
            let before = (server.memory()?, server.descriptors()?);
            let mut source = Source::fresh().receiving(Some(UNREAD_WINDOW));
            let mut crowd = Vec::new();
            for _ in 0..self.clients {
                let socket = source.dial(server.address, SocketFlags::empty())?;
                let mut socket = http::patient(TcpStream::from(socket))?;
                socket.write_all(&asked.request)?;
                crowd.push(socket);
            }
            let begun = |socket: &&TcpStream| {
                let mut line = [0; 12];
                let count = socket.peek(&mut line);
                count.is_ok_and(|_| &line == b"HTTP/1.1 200")
            };
            let served = crowd.iter().filter(begun).count() as f64;
            thread::sleep(in_time(ground, SETTLE));
            let after = (server.memory()?, server.descriptors()?);
            let each = served.max(1.0);
            let kib = after.0.anonymous_kib.saturating_sub(before.0.anonymous_kib);
            let descriptors = after.1.saturating_sub(before.1);
            Ok(vec![
                (SERVED, served),
                (LOST, f64::from(self.clients) - served),
                (MEMORY, (kib * 1024) as f64 / each),
                (DESCRIPTORS, descriptors as f64 / each),
                (PEAK_MIB, after.0.peak_kib as f64 / 1024.0),
            ])
        }))
    }
}

/// How long something takes at this pace.
fn in_time(ground: &Ground, full: Duration) -> Duration {
    match ground.pace.is_quick {
        true => full / QUICKER,
        false => full,
    }
}

/// A count of bytes that is not the end.
fn some(count: usize) -> io::Result<usize> {
    match count {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        count => Ok(count),
    }
}

fn invalid(message: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Cursor;

    const LENGTH: usize = 10_000;

    /// A server's words.
    struct Script(Cursor<Vec<u8>>);

    impl Read for Script {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            self.0.read(buffer)
        }
    }

    impl Write for Script {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Peer for Script {
        fn drop_some(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            self.read(buffer)
        }
    }

    fn content() -> Vec<u8> {
        (0..LENGTH).map(|number| (number / 7) as u8).collect()
    }

    /// Whether a reply is taken for that part of the file, of which so many bytes are compared.
    fn takes(from: u64, compared: u64, head: &str, body: &[u8]) -> bool {
        let mut file = tempfile::tempfile().expect("a file");
        file.write_all(&content()).expect("written");
        let asked = Asked {
            file,
            request: Vec::new(),
            status: 200,
            from,
            length: LENGTH as u64 - from,
        };
        let reply = [head.as_bytes(), b"\r\n\r\n", body].concat();
        let mut peer = Script(Cursor::new(reply));
        asked.fetch(&mut peer, &mut [0; 512], compared).is_ok()
    }

    #[test]
    fn a_wrong_reply_is_found() {
        let good = "HTTP/1.1 200 OK\r\nContent-Length: 10000";
        let all = u64::MAX;
        assert!(takes(0, 100, good, &content()) && takes(0, all, good, &content()));
        let other = good.replace("200 OK", "206 Partial Content");
        assert!(!takes(0, 100, &other, &content()));
        let longer = good.replace("10000", "10001");
        assert!(!takes(0, 100, &longer, &[&content()[..], b"x"].concat()));
        assert!(!takes(0, 100, good, &content()[..LENGTH - 1]));
        for wrong in [0, LENGTH - 1, 5_000] {
            let mut body = content();
            body[wrong] ^= 1;
            // What is in the middle is looked at once for each server.
            assert_eq!(takes(0, 100, good, &body), wrong == 5_000, "{wrong}");
            assert!(!takes(0, all, good, &body), "{wrong}");
        }
    }

    #[test]
    fn a_part_of_a_file_is_the_part_that_was_asked_for() {
        let head = "HTTP/1.1 200 OK\r\nContent-Length: 9000";
        assert!(takes(1000, 100, head, &content()[1000..]));
        assert!(!takes(1000, 100, head, &content()[..9000]));
    }
}
