//! A large file is stored by PUT: what does it cost the server?
//!
//! All servers store on the same file system, and the file is taken away before the next run, so
//! that every run makes its pages anew. What the disk does later is not counted: nobody waits for
//! it.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use crate::bench::{Bench, Pinning, Reading};
use crate::metric::{Figures, Metric};
use crate::options::Scenario;
use crate::report::{Case, Ratio};
use crate::server::{Kind, Server};
use crate::target::{Bound, Figure, Target};

pub(super) const KINDS: [Kind; 3] = [Kind::NginxDav, Kind::NginxDavTuned, Kind::FlatpathPut];

/// Length of the file, in MiB.
const FILE_MIB: u64 = 1024;
/// The same where only the harness is tried.
const FILE_MIB_QUICK: u64 = 32;
/// Most that the target allows of nginx's CPU time.
const RATIO_MAX: f64 = 0.8;
/// How long the client waits for the reply.
const PATIENCE: Duration = Duration::from_secs(60);
/// Name of the stored file.
const PATH: &str = "/stored";

/// Runs the scenario.
///
/// # Errors
/// Only if the harness was told to stop.
pub(super) fn run(bench: &Bench) -> io::Result<Case> {
    let mib = if bench.options.quick {
        FILE_MIB_QUICK
    } else {
        FILE_MIB
    };
    let name = format!("PUT of {mib} MiB");
    let setup = bench.setup(Pinning::Free, None, 1);
    let stored = setup.documents.join(&PATH[1..]);
    let content: Vec<u8> = (0..1_u32 << 18)
        .flat_map(|word| word.wrapping_mul(0x9e37_79b1).to_le_bytes())
        .collect();
    let start = |kind| Server::start(kind, &setup);
    let measure = |server: &Server| {
        let before = Reading::take(server)?;
        let begun = Instant::now();
        put(server, &content, mib)?;
        let wall = begun.elapsed();
        let used = before.until_now(server)?;
        let length = fs::metadata(&stored)?.len();
        fs::remove_file(&stored)?;
        if length != mib << 20 {
            return Err(io::Error::other(format!("{length} bytes were stored")));
        }
        let mut figures: Figures = used.figures();
        figures.insert(Metric::WallMillis, wall.as_secs_f64() * 1e3);
        figures.insert(Metric::ServerMillis, used.server_millis());
        Ok(figures)
    };
    let rows = bench.interleave(Scenario::Put, &name, &KINDS, start, measure)?;
    let ratios = vec![Ratio {
        metric: Metric::ServerMillis,
        to: Kind::NginxDav,
    }];
    let notes =
        vec!["nginx: as Debian ships it, a body buffer of 16 KiB; tuned: one of 1 MiB".to_owned()];
    Ok(Case::new(name, rows, ratios, &targets(), notes))
}

fn put(server: &Server, content: &[u8], mib: u64) -> io::Result<()> {
    let mut socket = TcpStream::connect(server.address())?;
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

fn targets() -> [Target; 1] {
    [Target {
        subject: Figure(Kind::FlatpathPut, Metric::ServerMillis),
        reference: Some(Figure(Kind::NginxDav, Metric::ServerMillis)),
        bound: Bound::AtMost(RATIO_MAX),
    }]
}
