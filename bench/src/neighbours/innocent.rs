//! The clients that are measured: each asks at a calm rate, one request at a time.
//!
//! A wait is the time from the first byte that is sent (or the call of `connect`) to the last byte
//! of the answer. A wait that ends in an error, or takes longer than [`GIVE_UP`], is an error and
//! still counts as a wait. A wait that began beside the trouble counts there, however late it ends.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant, SystemTime};

use flatpath_bench_common::http;
use flatpath_bench_common::measure::histogram;
use flatpath_testkit::nfs::{self, Connection};
use hdrhistogram::Histogram;

use super::LONGEST_MS;
use super::server::{Arena, FILE_PATH};

/// When a client gives up.
const GIVE_UP: Duration = http::PATIENCE;
/// Between an answer and the next request.
const PAUSE: Duration = Duration::from_millis(2);
const PAUSE_AFTER_ERROR: Duration = Duration::from_millis(20);
/// What the client of files stores.
const STORED: &[u8] = b"abc";
/// What the echo client sends.
const ECHO: [u8; 128] = [b'e'; 128];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Part {
    WarmUp = 0,
    Alone = 1,
    Beside = 2,
    Over = 3,
}

/// Tells the clients which part of the run it is.
#[derive(Debug, Default)]
pub(super) struct Clock(AtomicU8);

impl Clock {
    pub(super) fn enter(&self, part: Part) {
        // ORDER: Relaxed: only the number matters.
        self.0.store(part as u8, Ordering::Relaxed);
    }

    fn part(&self) -> Part {
        match self.0.load(Ordering::Relaxed) {
            0 => Part::WarmUp,
            1 => Part::Alone,
            2 => Part::Beside,
            _ => Part::Over,
        }
    }
}

/// What clients waited without the trouble, and with it.
#[derive(Debug, Default)]
pub(super) struct Waits {
    pub(super) alone: Latencies,
    pub(super) beside: Latencies,
}

impl Waits {
    pub(super) fn add(&mut self, other: &Self) {
        self.alone.add(&other.alone);
        self.beside.add(&other.beside);
    }
}

/// Waits of one part of the run.
#[derive(Clone, Debug)]
pub(super) struct Latencies {
    micros: Histogram<u64>,
    pub(super) errors: u64,
}

impl Default for Latencies {
    fn default() -> Self {
        Self {
            micros: histogram(),
            errors: 0,
        }
    }
}

impl Latencies {
    fn note(&mut self, wait: Duration, is_error: bool) {
        let micros = u64::try_from(wait.as_micros()).unwrap_or(u64::MAX);
        self.micros.saturating_record(micros.max(1));
        self.errors += u64::from(is_error);
    }

    fn add(&mut self, other: &Self) {
        self.micros += &other.micros;
        self.errors += other.errors;
    }

    pub(super) fn count(&self) -> u64 {
        self.micros.len()
    }

    pub(super) fn percentile_ms(&self, percentile: f64) -> f64 {
        self.micros.value_at_percentile(percentile) as f64 / 1e3
    }

    pub(super) fn longest_ms(&self) -> f64 {
        self.micros.max() as f64 / 1e3
    }
}

/// Clients whose waits are shown together; see [`Kind::column`].
pub(super) const CLIENTS: [&str; 5] = ["kept", "new", "pooled", "file", "other"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A hot file, on one connection.
    Kept,
    /// A hot file, with a connection for each request.
    New,
    /// An answer that a worker gives, on one connection.
    Pooled,
    /// A PUT of three bytes and a GET of a file that is streamed, on one connection.
    File,
    /// GETATTR over NFS, on one connection.
    Nfs,
    /// 128 bytes there and back, on one connection.
    Echo,
    /// Two clients that meet at the relay, for each round.
    Relay,
}

impl Kind {
    /// Those whose service the server has.
    pub(super) fn all(arena: &Arena) -> Vec<Self> {
        let mut all = vec![Self::Kept, Self::New, Self::Pooled];
        all.extend(arena.has_files.then_some(Self::File));
        let others = [
            ("nfs", Self::Nfs),
            ("echo", Self::Echo),
            ("relay", Self::Relay),
        ];
        let served = others.into_iter().filter(|it| arena.service(it.0).is_ok());
        all.extend(served.map(|(_, kind)| kind));
        all
    }

    /// Its index in [`CLIENTS`].
    pub(super) fn column(self) -> usize {
        match self {
            Self::Kept => 0,
            Self::New => 1,
            Self::Pooled => 2,
            Self::File => 3,
            Self::Nfs | Self::Echo | Self::Relay => 4,
        }
    }
}

/// What a client keeps between its requests.
#[derive(Default)]
struct Hold {
    stream: Option<TcpStream>,
    /// A connection to NFS, and the root of what is exported there.
    nfs: Option<(Connection, Vec<u8>)>,
    number: u32,
}

/// Asks until the run is over. What it waited alone, and beside the trouble.
pub(super) fn talk(kind: Kind, arena: &Arena, clock: &Clock) -> Waits {
    let mut waits = Waits::default();
    let mut hold = Hold::default();
    loop {
        let part = clock.part();
        if part == Part::Over {
            return waits;
        }
        let begin = Instant::now();
        let outcome = ask(kind, arena, &mut hold);
        let wait = begin.elapsed();
        let is_error = outcome.is_err() || wait > GIVE_UP;
        let is_long = wait.as_secs_f64() * 1e3 > LONGEST_MS;
        if (is_error || is_long) && std::env::var_os("NEIGHBOURS_TRACE").is_some() {
            let now = humantime::format_rfc3339_millis(SystemTime::now());
            let error = outcome.err().map(|error| error.to_string());
            let error = error.unwrap_or_default();
            eprintln!("[{now}] {kind:?} {part:?} {wait:?} {error}");
        }
        match (part, clock.part()) {
            (Part::Beside, _) | (_, Part::Beside | Part::Over) => waits.beside.note(wait, is_error),
            (Part::Alone, _) => waits.alone.note(wait, is_error),
            _ => {}
        }
        if is_error {
            hold = Hold::default();
            std::thread::sleep(PAUSE_AFTER_ERROR);
        } else {
            std::thread::sleep(PAUSE);
        }
    }
}

fn ask(kind: Kind, arena: &Arena, hold: &mut Hold) -> io::Result<()> {
    match kind {
        Kind::Kept => {
            let stream = kept(hold, arena.http)?;
            get(stream, arena.hot_path, "keep-alive")
        }
        Kind::New => get(&mut dial(arena.http)?, arena.hot_path, "close"),
        Kind::Pooled => {
            let stream = kept(hold, arena.http)?;
            get(stream, arena.pooled_path, "keep-alive")
        }
        Kind::File => file(kept(hold, arena.http)?),
        Kind::Nfs => nfs(hold, arena.service("nfs")?),
        Kind::Echo => echo(kept(hold, arena.service("echo")?)?),
        Kind::Relay => relay(hold, arena.service("relay")?),
    }
}

fn dial(to: SocketAddr) -> io::Result<TcpStream> {
    let stream = http::connect(to)?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

fn kept(hold: &mut Hold, to: SocketAddr) -> io::Result<&mut TcpStream> {
    let stream = match hold.stream.take() {
        Some(stream) => stream,
        None => dial(to)?,
    };
    Ok(hold.stream.insert(stream))
}

fn get(stream: &mut TcpStream, path: &str, connection: &str) -> io::Result<()> {
    let request =
        format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: {connection}\r\n\r\n");
    ask_http(stream, request.as_bytes())
}

/// A request and the whole of its answer. Whatever the status is, it must not be a refusal.
fn ask_http(stream: &mut TcpStream, request: &[u8]) -> io::Result<()> {
    match http::exchange(stream, request)?.1.status {
        200 | 201 | 204 | 404 => Ok(()),
        status => Err(io::Error::other(format!("status {status}"))),
    }
}

/// Stores a small file, then reads one that is too large for the caches.
fn file(stream: &mut TcpStream) -> io::Result<()> {
    let length = STORED.len();
    let head =
        format!("PUT /innocent HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n");
    ask_http(stream, &[head.as_bytes(), STORED].concat())?;
    get(stream, FILE_PATH, "keep-alive")
}

fn nfs(hold: &mut Hold, to: SocketAddr) -> io::Result<()> {
    let (connection, root) = match &mut hold.nfs {
        Some(kept) => kept,
        none => {
            let mut connection = Connection::of(dial(to)?).by(0);
            let root = connection.try_handle(&nfs::mount("/"))?;
            none.insert((connection, root))
        }
    };
    let reply = connection.try_call(&nfs::getattr(root))?;
    nfs::good(&reply.results).map(drop)
}

fn echo(stream: &mut TcpStream) -> io::Result<()> {
    stream.write_all(&ECHO)?;
    let mut back = [0; ECHO.len()];
    stream.read_exact(&mut back)
}

/// Both sides connect, are told `ok`, and pass a byte each way.
fn relay(hold: &mut Hold, to: SocketAddr) -> io::Result<()> {
    hold.number = hold.number.wrapping_add(1);
    let process = std::process::id();
    let number = hold.number;
    let token = format!("{process:032x}{number:032x}");
    let mut ends = [dial(to)?, dial(to)?];
    for (end, side) in ends
        .iter_mut()
        .zip(["aaaaaaaaaaaaaaaa", "bbbbbbbbbbbbbbbb"])
    {
        end.write_all(format!("please relay {token} for side {side}\n").as_bytes())?;
    }
    let mut word = [0; 3];
    for end in &mut ends {
        end.read_exact(&mut word)?;
        if &word != b"ok\n" {
            return Err(io::Error::other("the relay did not say ok"));
        }
    }
    let [one, other] = &mut ends;
    one.write_all(b"1")?;
    other.read_exact(&mut word[..1])?;
    other.write_all(b"2")?;
    one.read_exact(&mut word[..1])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_of_several_clients_are_added_up() {
        let (mut one, mut other) = (Latencies::default(), Latencies::default());
        one.note(Duration::from_millis(2), false);
        other.note(Duration::from_millis(40), true);
        one.add(&other);
        assert_eq!(one.errors, 1);
        assert!(
            (one.longest_ms() - 40.0).abs() < 0.1,
            "{}",
            one.longest_ms()
        );
    }
}
