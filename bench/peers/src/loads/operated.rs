//! A hot file of 1 KiB on kept connections, while the server is operated: with an access log,
//! metrics that are scraped each second, and a crowd that waits.
//!
//! Each run sends a fixed number of requests with a browser's `User-Agent`, so that lines are as
//! long as lines are. The server's CPU time is that of the whole process, the thread that writes
//! the log included. Lines that are missing in the log afterwards are `lost`, and so is a
//! connection of the crowd that gets no reply at the end.

use std::fs::File;
use std::io::{self, Read};
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use flatpath_bench_common::generator::warm_up;
use flatpath_bench_common::http;
use flatpath_bench_common::servers::{CPU, LOST, Metric, RATE, Run};

use super::idle;
use super::rounds::{Rounds, Way};
use crate::comparison::{Load, Row, Turn};
use crate::ground::{Ground, SMALL_PATH, small_body};
use crate::kind::Kind;
use crate::server::Server;

/// Scrapes that were answered.
const SCRAPES: Metric = Metric::sum("scrapes");

/// About what a core serves in a second.
const REQUESTS_PER_SECOND: u64 = 100_000;
const SCRAPE_EVERY: Duration = Duration::from_secs(1);
/// How long a server may take to write what it has logged.
const WRITTEN: Duration = Duration::from_secs(10);
/// Longer than a log is left in memory.
const SETTLE: Duration = Duration::from_millis(1500);
const USER_AGENT: &str = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) \
                          Chrome/131.0.0.0 Safari/537.36";

/// This many connections that ask, and beside one of the servers this many that wait.
pub(crate) struct Operated {
    pub(crate) connections: u32,
    pub(crate) crowd: u32,
}

impl Load for Operated {
    fn start<'a>(&'a self, ground: &'a Ground, row: &'a Row) -> io::Result<Turn<'a>> {
        let server = row.start(ground)?;
        http::check(server.address, SMALL_PATH, &small_body())?;
        warm_up(server.address, SMALL_PATH, SMALL_PATH)?;
        let requests = REQUESTS_PER_SECOND * u64::from(ground.pace.seconds);
        Ok(Box::new(move || self.measure(&server, row.kind, requests)))
    }
}

impl Operated {
    fn measure(&self, server: &Server, kind: Option<Kind>, wanted: u64) -> io::Result<Run> {
        let waits = kind == Some(Kind::FlatpathOperated);
        let mut crowd = idle::connect(server.address, if waits { self.crowd } else { 0 })?;
        let asked = http::request(SMALL_PATH);
        for socket in &mut crowd {
            http::ask(socket, &asked)?;
        }
        let logs = kind.is_some_and(Kind::logs);
        let log = logs.then(|| empty(server)).transpose()?;
        let scraper = server.admin.map(Scraper::start).transpose()?;
        let rounds = Rounds {
            address: server.address,
            request: request(),
            connections: self.connections,
            outstanding: 1,
            way: Way::Kept,
        };
        let (requests, used) = server.watch(|| rounds.run(wanted))?;
        let scrapes = scraper.map(Scraper::end).transpose()?;
        let lines = log.map(|log| lines(log, requests)).transpose()?;
        let mut lost = requests.saturating_sub(lines.unwrap_or(requests));
        let is_lost = |socket: &mut TcpStream| http::ask(socket, &asked).is_err();
        lost += crowd
            .iter_mut()
            .map(|it| u64::from(is_lost(it)))
            .sum::<u64>();
        let run = vec![
            (CPU, used.server_micros_over(requests)),
            (RATE, requests as f64 / used.wall.as_secs_f64()),
            (LOST, lost as f64),
            (SCRAPES, scrapes.unwrap_or(0) as f64),
        ];
        server.shown(&used, run)
    }
}

/// The server's log, without what is not of this run.
fn empty(server: &Server) -> io::Result<File> {
    let mut options = File::options();
    let log = options.append(true).read(true).open(server.access_log())?;
    thread::sleep(SETTLE);
    log.set_len(0)?;
    Ok(log)
}

fn request() -> Vec<u8> {
    let lines = [
        &format!("GET {SMALL_PATH} HTTP/1.1"),
        "Host: localhost",
        &format!("User-Agent: {USER_AGENT}"),
        "Accept: */*",
    ];
    (lines.join("\r\n") + "\r\n\r\n").into_bytes()
}

/// Lines in the log once there are as many as wanted, or for too long no more.
fn lines(mut log: File, wanted: u64) -> io::Result<u64> {
    let deadline = Instant::now() + WRITTEN;
    let (mut lines, mut part) = (0, vec![0; 1 << 20]);
    while lines < wanted && Instant::now() < deadline {
        match log.read(&mut part)? {
            0 => thread::sleep(Duration::from_millis(20)),
            bytes => lines += part[..bytes].iter().filter(|byte| **byte == b'\n').count() as u64,
        }
    }
    Ok(lines)
}

/// Asks for metrics until the run ends.
struct Scraper {
    thread: JoinHandle<io::Result<u64>>,
    end: Sender<()>,
}

impl Scraper {
    fn start(admin: SocketAddr) -> io::Result<Self> {
        let (end, ends) = channel();
        let thread = thread::Builder::new().spawn(move || scrape(admin, &ends))?;
        Ok(Self { thread, end })
    }

    /// How many scrapes were answered.
    fn end(self) -> io::Result<u64> {
        drop(self.end);
        let ended = self.thread.join();
        ended.unwrap_or_else(|_| Err(io::Error::other("the scraper panicked")))
    }
}

fn scrape(admin: SocketAddr, ends: &Receiver<()>) -> io::Result<u64> {
    let mut socket = http::connect(admin)?;
    let request = http::request("/metrics");
    let mut scrapes = 0;
    loop {
        http::ask(&mut socket, &request)?;
        scrapes += 1;
        if ends.recv_timeout(SCRAPE_EVERY) != Err(RecvTimeoutError::Timeout) {
            return Ok(scrapes);
        }
    }
}
