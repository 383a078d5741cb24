//! A large file is stored by PUT: what does it cost the server?
//!
//! All servers store on the same file system, and the file is taken away before the next run, so
//! that every run makes its pages anew. What the disk does later is not counted: no client
//! waits for it.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use flatpath_bench_common::report::{BenchReport, Wanted};
use flatpath_bench_common::servers::Metric;
use flatpath_bench_common::usage::Reading;

use crate::kind::Kind;
use crate::options::Scenario;
use crate::server::Server;
use crate::session::{Pinning, Session, common};

const WALL: Metric = Metric::median("wall ms");
const CPU: Metric = Metric::median("CPU ms");

pub(super) const KINDS: [Kind; 3] = [Kind::NginxDav, Kind::NginxDavTuned, Kind::FlatpathPut];

/// Length of the file, in MiB.
const FILE_MIB: u64 = 1024;
/// The same with `--quick`.
const FILE_MIB_QUICK: u64 = 32;
/// Most that the target allows of nginx's CPU time.
const RATIO_MAX: f64 = 0.8;
/// How long the client waits for the reply.
const PATIENCE: Duration = Duration::from_secs(60);
/// Name of the stored file.
const PATH: &str = "/stored";

pub(super) fn run(session: &Session) -> io::Result<BenchReport> {
    let mib = session.options.sized(FILE_MIB, FILE_MIB_QUICK);
    let name = format!("PUT of {mib} MiB");
    let setup = session.setup(Pinning::Free, None, 1);
    let stored = setup.documents.join(&PATH[1..]);
    let content: Vec<u8> = (0..1_u32 << 18)
        .flat_map(|word| word.wrapping_mul(0x9e37_79b1).to_le_bytes())
        .collect();
    let start = |kind| Server::start(kind, &setup);
    let turn = |_, server: &mut Server| {
        let before = Reading::take(Some(server.group()))?;
        let begun = Instant::now();
        put(server.address, &content, mib)?;
        let wall = begun.elapsed();
        let used = before.used()?;
        let length = fs::metadata(&stored)?.len();
        fs::remove_file(&stored)?;
        if length != mib << 20 {
            return Err(io::Error::other(format!("{length} bytes were stored")));
        }
        let mut run = vec![
            (WALL, wall.as_secs_f64() * 1e3),
            (CPU, used.server.as_secs_f64() * 1e3),
        ];
        run.extend(common(server, &used)?);
        Ok(run)
    };
    let table = session.interleave(Scenario::Put, &name, &KINDS, start, turn)?;
    let table = table.with_ratio(CPU, Kind::NginxDav);
    let mut report = BenchReport::of_servers("put", name, table);
    let note = "nginx: as Debian ships it, a body buffer of 16 KiB; tuned: one of 1 MiB";
    report.notes.push(note.into());
    let theirs = (&Kind::NginxDav as _, CPU);
    report.target_of(
        (Kind::FlatpathPut, CPU),
        Some(theirs),
        Wanted::AtMost(RATIO_MAX),
    );
    Ok(report)
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
