//! A large file is stored by PUT: what does it cost the server?
//!
//! The file is taken away before the next run, so that every run makes its pages anew. What the
//! disk does later is not counted: no client waits for it.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use flatpath_bench_common::servers::Metric;

use crate::comparison::{Load, Row, Turn};
use crate::ground::Ground;

const WALL: Metric = Metric::median("wall ms");
pub(crate) const CPU: Metric = Metric::median("CPU ms");

/// How long the client waits for the reply.
const PATIENCE: Duration = Duration::from_secs(60);
/// Name of the stored file.
const PATH: &str = "/stored";

/// A file of this many MiB.
pub(crate) struct Put(pub(crate) u64);

impl Load for Put {
    fn start<'a>(&'a self, ground: &'a Ground, row: &'a Row) -> io::Result<Turn<'a>> {
        let server = row.start(ground)?;
        let stored = ground.documents(row.needs.documents).join(&PATH[1..]);
        let words = (0..1_u32 << 18).map(|word| word.wrapping_mul(0x9e37_79b1));
        let content: Vec<u8> = words.flat_map(u32::to_le_bytes).collect();
        Ok(Box::new(move || {
            let (wall, used) = server.watch(|| {
                let begun = Instant::now();
                put(server.address, &content, self.0)?;
                Ok(begun.elapsed())
            })?;
            let length = fs::metadata(&stored)?.len();
            fs::remove_file(&stored)?;
            if length != self.0 << 20 {
                return Err(io::Error::other(format!("{length} bytes were stored")));
            }
            let run = vec![
                (WALL, wall.as_secs_f64() * 1e3),
                (CPU, used.server.as_secs_f64() * 1e3),
            ];
            server.shown(&used, run)
        }))
    }
}

fn put(server: SocketAddr, content: &[u8], mib: u64) -> io::Result<()> {
    let mut socket = TcpStream::connect(server)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    socket.set_write_timeout(Some(PATIENCE))?;
    let length = mib << 20;
    let head = format!(
        "PUT {PATH} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\
         Connection: close\r\n\r\n"
    );
    socket.write_all(head.as_bytes())?;
    for _ in 0..mib {
        socket.write_all(content)?;
    }
    socket.shutdown(Shutdown::Write)?;
    let mut reply = Vec::new();
    socket.read_to_end(&mut reply)?;
    if reply.starts_with(b"HTTP/1.1 201 ") || reply.starts_with(b"HTTP/1.1 204 ") {
        return Ok(());
    }
    let line = reply.split(|byte| *byte == b'\r').next().unwrap_or(&[]);
    let line = String::from_utf8_lossy(line).into_owned();
    Err(io::Error::other(format!("not stored: {line}")))
}
