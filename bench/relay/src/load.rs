//! The clients: one large stream, many pairs, many that wait.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use flatpath_bench_common::source::Source;
use rustix::net::SocketFlags;

use crate::Failure;
use crate::process::{cpu_ns, memory_bytes};
use crate::servers::Server;

/// Pairs that are under way at once.
const BATCH: usize = 100;

/// Threads that bring pairs at once, where the relay is to be busy.
const CROWDS: usize = 4;

/// Until the relay has done all that it was given.
const SETTLING: Duration = Duration::from_millis(100);

fn please(number: usize) -> String {
    format!("please relay {number:064x}\n")
}

fn hear_ok(stream: &mut TcpStream) -> Result<(), Failure> {
    let mut words = [0; 3];
    stream.read_exact(&mut words)?;
    if &words == b"ok\n" {
        Ok(())
    } else {
        Err("no ok".into())
    }
}

/// Two ends that are joined by the relay.
fn pair(server: &Server) -> Result<(TcpStream, TcpStream), Failure> {
    let mut one = server.connect()?;
    if let Some(target) = &server.target {
        return Ok((one, target.accept()?.0));
    }
    let mut other = server.connect()?;
    one.write_all(please(1).as_bytes())?;
    other.write_all(please(1).as_bytes())?;
    hear_ok(&mut one)?;
    hear_ok(&mut other)?;
    Ok((one, other))
}

/// Processor seconds per GiB of one stream.
pub(crate) fn stream(server: &Server, gib: usize) -> Result<f64, Failure> {
    let (mut from, mut to) = pair(server)?;
    let bytes = gib << 30;
    let before = cpu_ns(server.process());
    let writer = thread::spawn(move || -> Result<TcpStream, Failure> {
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
            return Err("the stream ended early".into());
        }
        left -= read;
    }
    let spent = cpu_ns(server.process()) - before;
    let ended = writer.join().map_err(|_| "the writer panicked")?;
    drop(ended?);
    Ok(spent as f64 / 1e9 / gib as f64)
}

/// What belongs to a match.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Span {
    /// From the handshakes of clients that are connected to their `ok`.
    Match,
    /// The connecting before and the leaving after it, too.
    Visit,
}

/// Processor microseconds per pair.
pub(crate) fn matches(server: &Server, pairs: usize, span: Span) -> Result<f64, Failure> {
    let (mut done, mut spent) = (0, 0);
    while done < pairs {
        let mut before = cpu_ns(server.process());
        let mut streams = Vec::with_capacity(2 * BATCH);
        for _ in 0..2 * BATCH {
            streams.push(server.connect()?);
        }
        if span == Span::Match {
            thread::sleep(SETTLING);
            before = cpu_ns(server.process());
        }
        for (number, stream) in streams.iter_mut().enumerate() {
            stream.write_all(please(1 + done + number / 2).as_bytes())?;
        }
        for stream in &mut streams {
            hear_ok(stream)?;
        }
        if span == Span::Visit {
            drop(streams);
            thread::sleep(SETTLING);
            spent += cpu_ns(server.process()) - before;
        } else {
            thread::sleep(SETTLING);
            spent += cpu_ns(server.process()) - before;
            drop(streams);
        }
        done += BATCH;
    }
    Ok(spent as f64 / 1e3 / done as f64)
}

/// Processor microseconds per pair while the relay is busy: several threads let pairs come, match
/// and go without a pause, so it does not sleep between two of them.
pub(crate) fn rate(server: &Server, pairs: usize) -> Result<f64, Failure> {
    let before = cpu_ns(server.process());
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        let crowds: Vec<_> = (0..CROWDS)
            .map(|_| scope.spawn(|| crowd(server, &next, pairs)))
            .collect();
        crowds
            .into_iter()
            .try_for_each(|crowd| crowd.join().map_err(|_| "a client panicked")?)
    })?;
    thread::sleep(SETTLING);
    let spent = cpu_ns(server.process()) - before;
    let done = pairs.div_ceil(BATCH) * BATCH;
    Ok(spent as f64 / 1e3 / done as f64)
}

fn crowd(server: &Server, next: &AtomicUsize, pairs: usize) -> Result<(), Failure> {
    loop {
        let first = next.fetch_add(BATCH, Ordering::Relaxed);
        if first >= pairs {
            return Ok(());
        }
        let mut streams = Vec::with_capacity(2 * BATCH);
        for number in 0..2 * BATCH {
            let mut stream = server.connect()?;
            stream.write_all(please(1 + first + number / 2).as_bytes())?;
            streams.push(stream);
        }
        for stream in &mut streams {
            hear_ok(stream)?;
        }
    }
}

/// Bytes of memory per client that waits.
pub(crate) fn wait(server: &Server, count: usize) -> Result<f64, Failure> {
    let mut source = Source::fresh();
    // What the first few clients cost once is no part of it.
    let warm = waiting(server, &mut source, 0, 100)?;
    thread::sleep(Duration::from_millis(500));
    let before = memory_bytes(server.process());
    let crowd = waiting(server, &mut source, 100, count)?;
    thread::sleep(Duration::from_secs(2));
    let after = memory_bytes(server.process());
    drop((warm, crowd));
    Ok(after.saturating_sub(before) as f64 / count as f64)
}

fn waiting(
    server: &Server,
    source: &mut Source,
    first: usize,
    count: usize,
) -> Result<Vec<TcpStream>, Failure> {
    let mut streams = Vec::with_capacity(count);
    for number in first..first + count {
        let socket = source.dial(server.address, SocketFlags::empty())?;
        let mut stream = TcpStream::from(socket);
        stream.write_all(please(number + 1).as_bytes())?;
        streams.push(stream);
    }
    Ok(streams)
}
