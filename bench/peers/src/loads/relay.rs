//! Clients of a relay: one large stream, many pairs, many that wait.
//!
//! Every run starts the relay afresh. The CPU time is that of all threads of the relay's process,
//! in nanoseconds, so it holds the kernel's work for it but not softirqs of the clients.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use flatpath_bench_common::servers::Metric;
use flatpath_bench_common::source::Source;
use rustix::net::SocketFlags;

use crate::comparison::{Load, Row, Turn};
use crate::ground::Ground;
use crate::server::Server;

pub(crate) const SECONDS: Metric = Metric::median("CPU s/GiB");
pub(crate) const MICROS: Metric = Metric::median("CPU us/pair");
pub(crate) const BYTES: Metric = Metric::median("B/client");

/// What a connection waits for at most.
const PATIENCE: Duration = Duration::from_secs(60);
/// Pairs that are under way at once.
const BATCH: usize = 100;

/// Threads that bring pairs at once, where the relay is to be busy.
const CROWDS: usize = 4;

/// Until the relay has done all that it was given.
const SETTLING: Duration = Duration::from_millis(100);

/// What the clients do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Relayed {
    /// One stream of this many GiB.
    Stream(usize),
    /// This many pairs, while the relay is always busy.
    Busy(usize),
    /// This many wait for their partners.
    Wait(usize),
}

impl Load for Relayed {
    fn start<'a>(&'a self, ground: &'a Ground, row: &'a Row) -> io::Result<Turn<'a>> {
        Ok(Box::new(move || {
            let relay = row.start(ground)?;
            let figure = match *self {
                Self::Stream(gib) => (SECONDS, stream(&relay, gib)?),
                Self::Busy(pairs) => (MICROS, rate(&relay, pairs)?),
                Self::Wait(count) => (BYTES, wait(&relay, count)?),
            };
            Ok(vec![figure])
        }))
    }
}

fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    Ok(stream)
}

fn please(number: usize) -> String {
    format!("please relay {number:064x}\n")
}

fn hear_ok(stream: &mut TcpStream) -> io::Result<()> {
    let mut words = [0; 3];
    stream.read_exact(&mut words)?;
    if &words == b"ok\n" {
        Ok(())
    } else {
        Err(io::Error::other("no ok"))
    }
}

/// Joins two clients of a relay, which name the token of this number.
///
/// # Errors
/// What a socket reports, or an answer that is no `ok`.
pub(crate) fn join(pair: &mut [TcpStream; 2], number: usize) -> io::Result<()> {
    for client in &mut *pair {
        client.write_all(please(number).as_bytes())?;
    }
    pair.iter_mut().try_for_each(hear_ok)
}

/// Two ends that are joined by the relay.
fn pair(relay: &Server) -> io::Result<(TcpStream, TcpStream)> {
    let one = connect(relay.address)?;
    if let Some(target) = &relay.target {
        return Ok((one, target.accept()?.0));
    }
    let mut pair = [one, connect(relay.address)?];
    join(&mut pair, 1)?;
    Ok(pair.into())
}

/// Processor seconds per GiB of one stream.
fn stream(relay: &Server, gib: usize) -> io::Result<f64> {
    let (mut from, mut to) = pair(relay)?;
    let bytes = gib << 30;
    let before = relay.threads()?;
    let writer = thread::spawn(move || -> io::Result<TcpStream> {
        let chunk = vec![7; 1 << 20];
        for _ in 0..bytes / chunk.len() {
            from.write_all(&chunk)?;
        }
        Ok(from)
    });
    let mut space = vec![0; 1 << 20];
    let mut left = bytes;
    while left > 0 {
        let read = to.read(&mut space)?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        left -= read;
    }
    let spent = relay.threads()?.since(&before);
    let ended = writer
        .join()
        .map_err(|_| io::Error::other("the writer panicked"))?;
    drop(ended?);
    Ok(spent.as_secs_f64() / gib as f64)
}

/// Processor microseconds per pair while the relay is busy: several threads let pairs come, match
/// and go without a pause, so it does not sleep between two of them.
fn rate(relay: &Server, pairs: usize) -> io::Result<f64> {
    let before = relay.threads()?;
    let (next, address) = (AtomicUsize::new(0), relay.address);
    thread::scope(|scope| {
        let crowds: Vec<_> = (0..CROWDS)
            .map(|_| scope.spawn(|| crowd(address, &next, pairs)))
            .collect();
        crowds.into_iter().try_for_each(|crowd| {
            crowd
                .join()
                .map_err(|_| io::Error::other("a client panicked"))?
        })
    })?;
    thread::sleep(SETTLING);
    let spent = relay.threads()?.since(&before);
    let done = pairs.div_ceil(BATCH) * BATCH;
    Ok(spent.as_secs_f64() * 1e6 / done as f64)
}

fn crowd(address: SocketAddr, next: &AtomicUsize, pairs: usize) -> io::Result<()> {
    loop {
        let first = next.fetch_add(BATCH, Ordering::Relaxed);
        if first >= pairs {
            return Ok(());
        }
        let mut streams = Vec::with_capacity(2 * BATCH);
        for number in 0..2 * BATCH {
            let mut stream = connect(address)?;
            stream.write_all(please(1 + first + number / 2).as_bytes())?;
            streams.push(stream);
        }
        for stream in &mut streams {
            hear_ok(stream)?;
        }
    }
}

/// Bytes of memory per client that waits.
fn wait(relay: &Server, count: usize) -> io::Result<f64> {
    let mut source = Source::fresh();
    // What the first few clients cost once is no part of it.
    let warm = waiting(relay, &mut source, 0, 100)?;
    thread::sleep(Duration::from_millis(500));
    let before = relay.memory()?.anonymous_kib * 1024;
    let crowd = waiting(relay, &mut source, 100, count)?;
    thread::sleep(Duration::from_secs(2));
    let after = relay.memory()?.anonymous_kib * 1024;
    drop((warm, crowd));
    Ok(after.saturating_sub(before) as f64 / count as f64)
}

fn waiting(
    relay: &Server,
    source: &mut Source,
    first: usize,
    count: usize,
) -> io::Result<Vec<TcpStream>> {
    let mut streams = Vec::with_capacity(count);
    for number in first..first + count {
        let socket = source.dial(relay.address, SocketFlags::empty())?;
        let mut stream = TcpStream::from(socket);
        stream.write_all(please(number + 1).as_bytes())?;
        streams.push(stream);
    }
    Ok(streams)
}
