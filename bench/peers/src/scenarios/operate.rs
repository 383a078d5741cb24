//! What it costs to operate a server: a hot file of 1 KiB on kept connections, with and without an
//! access log, metrics that are scraped each second, and a crowd that waits.
//!
//! Each run sends a fixed number of requests with a browser's `User-Agent`, so that lines are as
//! long as lines are. The server's CPU time is that of the whole process, the thread that writes
//! the log included. Lines that are missing in the log afterwards are `lost`, and so is a
//! connection of the crowd that gets no reply at the end.

use std::fs::File;
use std::io::{self, Read};
use std::net::TcpStream;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use flatpath_bench_common::generator::warm_up;
use flatpath_bench_common::http;
use flatpath_bench_common::report::{BenchReport, Wanted};
use flatpath_bench_common::servers::{CPU, LOST, Metric, RATE, Run};
use flatpath_bench_common::usage::Reading;

use super::idle;
use super::rounds::{Rounds, Way};
use crate::kind::Kind;
use crate::options::Scenario;
use crate::server::Server;
use crate::session::{Pinning, SMALL_PATH, Session, common, small_body};

pub(super) const KINDS: [Kind; 8] = [
    Kind::Nginx,
    Kind::NginxLog,
    Kind::NginxLogBuffered,
    Kind::Flatpath,
    Kind::FlatpathLog,
    Kind::FlatpathLogJson,
    Kind::FlatpathScraped,
    Kind::FlatpathOperated,
];

/// Scrapes that were answered.
const SCRAPES: Metric = Metric::sum("scrapes");

const CONNECTIONS: u32 = 50;
/// About what a core serves in a second.
const REQUESTS_PER_SECOND: u64 = 100_000;
/// What the issue allows.
const RATIO_MAX: f64 = 1.03;
const SCRAPE_EVERY: Duration = Duration::from_secs(1);
/// How long a server may take to write what it has logged.
const WRITTEN: Duration = Duration::from_secs(10);
/// Longer than a log is left in memory.
const SETTLE: Duration = Duration::from_millis(1500);
const USER_AGENT: &str = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) \
                          Chrome/131.0.0.0 Safari/537.36";

pub(super) fn run(session: &Session) -> io::Result<BenchReport> {
    let crowd = session.options.clients();
    let name =
        format!("a hot file, {CONNECTIONS} connections; flatpath-operated: and {crowd} that wait");
    // With fewer than a sixteenth of its places free, a server closes idle connections.
    let room = CONNECTIONS + crowd + crowd / 8;
    let setup = session.setup(Pinning::GeneratorOnOneCore, None, room);
    let start = |kind| {
        let server = Server::start(kind, &setup)?;
        http::check(server.address, SMALL_PATH, &small_body())?;
        warm_up(server.address, SMALL_PATH, SMALL_PATH)?;
        Ok(server)
    };
    let turn = |kind, server: &mut Server| measure(session, kind, server);
    let table = session.interleave(Scenario::Operate, &name, &KINDS, start, turn)?;
    let table = table
        .with_ratio(CPU, Kind::Nginx)
        .with_ratio(CPU, Kind::Flatpath);
    let mut report = BenchReport::of_servers("operate", name, table);
    let ours = |kind: &Kind| kind.is_flatpath_command() && *kind != Kind::Flatpath;
    for kind in KINDS.into_iter().filter(ours) {
        let bare = (&Kind::Flatpath as _, CPU);
        report.target_of((kind, CPU), Some(bare), Wanted::AtMost(RATIO_MAX));
    }
    Ok(report)
}

fn measure(session: &Session, kind: Kind, server: &Server) -> io::Result<Run> {
    let crowd = match kind {
        Kind::FlatpathOperated => session.options.clients(),
        _ => 0,
    };
    let mut crowd = idle::connect(server.address, crowd)?;
    let asked = http::request(SMALL_PATH);
    for socket in &mut crowd {
        http::ask(socket, &asked)?;
    }
    let log = kind.logs().then(|| {
        File::options()
            .append(true)
            .read(true)
            .open(server.access_log())
    });
    let log = log.transpose()?;
    if let Some(log) = &log {
        // Not of this run.
        thread::sleep(SETTLE);
        log.set_len(0)?;
    }
    let scraper = server.admin.map(Scraper::start).transpose()?;
    let rounds = Rounds {
        address: server.address,
        request: request(),
        connections: CONNECTIONS,
        outstanding: 1,
        way: Way::Kept,
    };
    let wanted = REQUESTS_PER_SECOND * u64::from(session.options.seconds());
    let before = Reading::take(Some(server.group()))?;
    let requests = rounds.run(wanted)?;
    let used = before.used()?;
    let scrapes = scraper.map(Scraper::end).transpose()?;
    let lines = log.map(|log| lines(log, requests)).transpose()?;
    let mut lost = requests.saturating_sub(lines.unwrap_or(requests));
    lost += ask_again(crowd, &asked);
    let mut run = vec![
        (CPU, used.server_micros_over(requests)),
        (RATE, requests as f64 / used.wall.as_secs_f64()),
        (LOST, lost as f64),
        (SCRAPES, scrapes.unwrap_or(0) as f64),
    ];
    run.extend(common(server, &used)?);
    Ok(run)
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

/// How many get no reply any more.
fn ask_again(crowd: Vec<TcpStream>, request: &[u8]) -> u64 {
    let is_lost = |socket: &mut TcpStream| http::ask(socket, request).is_err();
    let lost = crowd
        .into_iter()
        .filter_map(|mut socket| is_lost(&mut socket).then_some(()));
    lost.count() as u64
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

/// Asks for metrics until it is told to end.
struct Scraper {
    thread: JoinHandle<io::Result<u64>>,
    end: Sender<()>,
}

impl Scraper {
    fn start(admin: std::net::SocketAddr) -> io::Result<Self> {
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

fn scrape(admin: std::net::SocketAddr, ends: &Receiver<()>) -> io::Result<u64> {
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
