//! WebSockets: echoed messages, and sockets that were used once and wait.
//!
//! The load is a closed loop: each of its threads sends a message over every one of its sockets,
//! then reads all answers and compares them.

use std::io::{self, Error, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use flatpath_bench_common::http;
use flatpath_bench_common::servers::{CPU, RATE};

use super::idle;
use crate::comparison::{Load, Row, Turn};
use crate::ground::Ground;

/// Threads of the load.
const THREADS: usize = 2;
/// Sockets of the load.
pub(crate) const CONNECTIONS: usize = 50;
const WARM_UP: Duration = Duration::from_millis(300);

/// Messages of this many bytes, which come back.
pub(crate) struct Echoes(pub(crate) usize);

/// This many sockets that wait, after an echo of this many bytes.
pub(crate) struct Idle(pub(crate) u32, pub(crate) usize);

impl Load for Echoes {
    fn start<'a>(&'a self, ground: &'a Ground, row: &'a Row) -> io::Result<Turn<'a>> {
        let server = row.start(ground)?;
        load(server.address, self.0, WARM_UP)?;
        Ok(Box::new(move || {
            let time = ground.time();
            let (messages, used) = server.watch(|| load(server.address, self.0, time))?;
            let run = vec![
                (RATE, messages as f64 / time.as_secs_f64()),
                (CPU, used.server_micros_over(messages)),
            ];
            server.shown(&used, run)
        }))
    }
}

impl Load for Idle {
    fn start<'a>(&'a self, ground: &'a Ground, row: &'a Row) -> io::Result<Turn<'a>> {
        Ok(Box::new(move || {
            let (server, message) = (row.start(ground)?, Echoed::new(self.1));
            load(server.address, self.1, WARM_UP)?;
            let connect = || {
                let mut crowd = idle::connect(server.address, self.0)?;
                crowd.iter_mut().try_for_each(shake_hands)?;
                Ok(crowd)
            };
            idle::of_crowd(&server, connect, |socket| message.exchange(socket))
        }))
    }
}

/// A message as a client sends it, and its echo.
pub(super) struct Echoed {
    pub(super) sent: Vec<u8>,
    answer: Vec<u8>,
}

impl Echoed {
    pub(super) fn new(bytes: usize) -> Self {
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

pub(super) fn shake_hands(socket: &mut TcpStream) -> io::Result<()> {
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
