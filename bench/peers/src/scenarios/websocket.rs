//! WebSockets: the CPU time of an echoed message, and the memory of sockets that wait.
//!
//! The load is a closed loop: each of its threads sends a message over every one of its sockets,
//! then reads all answers and compares them.

use std::io::{self, Error, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use flatpath_bench_common::http;
use flatpath_bench_common::report::{BenchReport, Wanted};
use flatpath_bench_common::servers::{CPU, LOST, Metric, PEAK_MIB, RATE, Run, SERVED};
use flatpath_bench_common::source::Source;
use flatpath_bench_common::usage::{Reading, group_memory};
use rustix::net::SocketFlags;

use crate::kind::Kind;
use crate::options::Scenario;
use crate::server::Server;
use crate::session::{Pinning, Session, common};

pub(super) const KINDS: [Kind; 3] = [
    Kind::SocketsTungstenite,
    Kind::SocketsUring,
    Kind::SocketsEpoll,
];
const OURS: [Kind; 2] = [Kind::SocketsUring, Kind::SocketsEpoll];

const CONNECTIONS: usize = 50;
/// Threads of the load.
const THREADS: usize = 2;
/// Bytes of a message: a line of a chat, and a page of JSON. The header of the frame is extra.
const MESSAGES: [usize; 2] = [100, 4000];
/// What the issue asks for, beside tungstenite in the same run.
const CPU_MAX: f64 = 0.7;
/// The same for each idle socket.
const IDLE_BYTES_MAX: f64 = 1024.0;
/// User-space memory an idle socket adds.
const IDLE: Metric = Metric::median("idle B/conn");
/// How long a server gets to put buffers back after the last answer.
const SETTLE: Duration = Duration::from_millis(500);

pub(super) fn run(session: &Session) -> io::Result<Vec<BenchReport>> {
    let mut reports = Vec::new();
    for bytes in MESSAGES {
        reports.push(echoes(session, bytes)?);
    }
    reports.push(idle(session)?);
    Ok(reports)
}

fn echoes(session: &Session, bytes: usize) -> io::Result<BenchReport> {
    let name = format!("WebSocket echo of {bytes} bytes, {CONNECTIONS} connections, one core");
    let setup = session.setup(Pinning::ServerOnOneCore, None, CONNECTIONS as u32);
    let start = |kind| {
        let server = Server::start(kind, &setup)?;
        load(server.address, bytes, Duration::from_millis(300))?;
        Ok(server)
    };
    let time = Duration::from_secs(session.options.seconds().into());
    let turn = |_, server: &mut Server| {
        let before = Reading::take(Some(server.group()))?;
        let messages = load(server.address, bytes, time)?;
        let used = before.used()?;
        let mut run = vec![
            (RATE, messages as f64 / time.as_secs_f64()),
            (CPU, used.server_micros_over(messages)),
        ];
        run.extend(common(server, &used)?);
        Ok(run)
    };
    let table = session.interleave(Scenario::Websocket, &name, &KINDS, start, turn)?;
    let table = table.with_ratio(CPU, Kind::SocketsTungstenite);
    let mut report = BenchReport::of_servers("websocket", name, table);
    let theirs = Kind::SocketsTungstenite;
    for ours in OURS {
        let wanted = Wanted::AtMost(CPU_MAX);
        report.target_of((ours, CPU), Some((&theirs, CPU)), wanted);
    }
    Ok(report)
}

fn idle(session: &Session) -> io::Result<BenchReport> {
    let clients = session.options.clients();
    let name = format!("{clients} idle WebSockets");
    let turn = |kind, (): &mut ()| measure_idle(session, kind, clients);
    let table = session.interleave(Scenario::Websocket, &name, &KINDS, |_| Ok(()), turn)?;
    let mut report = BenchReport::of_servers("websocket-idle", name, table);
    for ours in OURS {
        report.target_of((ours, IDLE), None, Wanted::AtMost(IDLE_BYTES_MAX));
    }
    Ok(report)
}

/// Each run starts its server anew: memory once given to an allocator does not come back.
fn measure_idle(session: &Session, kind: Kind, clients: u32) -> io::Result<Run> {
    // Near its limit a server closes what is idle, to have room for newcomers.
    let places = clients + clients / 8;
    let server = Server::start(kind, &session.setup(Pinning::Free, None, places))?;
    load(server.address, MESSAGES[0], Duration::from_millis(300))?;
    thread::sleep(SETTLE);
    let before = group_memory(server.group())?;
    let mut source = Source::fresh();
    let message = Echoed::new(MESSAGES[0]);
    let open = |source: &mut Source| {
        let socket = source.dial(server.address, SocketFlags::empty())?;
        let mut socket = http::patient(TcpStream::from(socket))?;
        shake_hands(&mut socket)?;
        Ok::<_, Error>(socket)
    };
    let mut crowd = Vec::new();
    for _ in 0..clients {
        let mut socket = open(&mut source)?;
        message.exchange(&mut socket)?;
        crowd.push(socket);
    }
    thread::sleep(SETTLE);
    let after = group_memory(server.group())?;
    let answers = crowd
        .iter_mut()
        .filter_map(|socket| message.exchange(socket).ok());
    let alive = answers.count() as f64;
    let idle_kib = after.anonymous_kib.saturating_sub(before.anonymous_kib);
    Ok(vec![
        (SERVED, alive),
        (LOST, f64::from(clients) - alive),
        (IDLE, (idle_kib * 1024) as f64 / f64::from(clients)),
        (PEAK_MIB, after.peak_kib as f64 / 1024.0),
    ])
}

/// A message as a client sends it, and its echo.
struct Echoed {
    sent: Vec<u8>,
    answer: Vec<u8>,
}

impl Echoed {
    fn new(bytes: usize) -> Self {
        const MASK: [u8; 4] = [0x37, 0xfa, 0x21, 0x3d];
        let text: Vec<u8> = (b'a'..=b'z').cycle().take(bytes).collect();
        let head = match u8::try_from(bytes) {
            Ok(short @ 0..126) => vec![0x81, short],
            _ => [&[0x81, 126][..], &(bytes as u16).to_be_bytes()].concat(),
        };
        let mut sent = head.clone();
        sent[1] |= 0x80;
        sent.extend(MASK);
        sent.extend(text.iter().zip(MASK.iter().cycle()).map(|(a, b)| a ^ b));
        Self {
            sent,
            answer: [head, text].concat(),
        }
    }

    fn receive(&self, socket: &mut TcpStream, buffer: &mut Vec<u8>) -> io::Result<()> {
        buffer.resize(self.answer.len(), 0);
        socket.read_exact(buffer)?;
        if *buffer == self.answer {
            return Ok(());
        }
        Err(Error::new(ErrorKind::InvalidData, "not what was sent"))
    }

    fn exchange(&self, socket: &mut TcpStream) -> io::Result<()> {
        socket.write_all(&self.sent)?;
        self.receive(socket, &mut Vec::new())
    }
}

fn shake_hands(socket: &mut TcpStream) -> io::Result<()> {
    socket.set_nodelay(true)?;
    socket.write_all(
        b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
          Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n",
    )?;
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        socket.read_exact(&mut byte)?;
        head.push(byte[0]);
    }
    if head.starts_with(b"HTTP/1.1 101 ") {
        return Ok(());
    }
    Err(Error::new(ErrorKind::InvalidData, "no handshake"))
}

/// How many messages come back within a time, over all connections.
fn load(address: SocketAddr, bytes: usize, time: Duration) -> io::Result<u64> {
    let message = Echoed::new(bytes);
    let turns = |_| {
        let mut sockets = Vec::new();
        for _ in 0..CONNECTIONS / THREADS {
            let mut socket = http::connect(address)?;
            shake_hands(&mut socket)?;
            sockets.push(socket);
        }
        let (end, mut count, mut buffer) = (Instant::now() + time, 0, Vec::new());
        while Instant::now() < end {
            for socket in &mut sockets {
                socket.write_all(&message.sent)?;
            }
            for socket in &mut sockets {
                message.receive(socket, &mut buffer)?;
                count += 1;
            }
        }
        Ok::<u64, Error>(count)
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|number| scope.spawn(move || turns(number)))
            .collect();
        let joined = threads.into_iter().map(thread::ScopedJoinHandle::join);
        joined
            .map(|count| count.map_err(|_| Error::other("a thread of the load has panicked"))?)
            .sum()
    })
}
