//! One run of load: connections with a fixed number of calls outstanding each.
//!
//! Every connection is one thread that sends the next call when a reply comes: closed loop, so the
//! figure is what the server does, not what it queues.
//!
//! Invariants
//! - L1: no two calls of a run have the same number, so that no server answers one from its cache
//!   of repeated calls.

use std::io;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use clap::ValueEnum;
use flatpath_bench_common::servers::{Metric, P50, P99, Run};
use hdrhistogram::Histogram;

use super::nfs::Connection;
use crate::candidates::observed::Dispatches;
use crate::comparison::{Load, Row, Turn};
use crate::ground::Ground;
use crate::server::Server;

/// Load before anything is measured.
const WARM_UP: Duration = Duration::from_millis(500);
/// Connections of a run.
pub(crate) const CONNECTIONS: u32 = 4;
/// Calls outstanding on each.
pub(crate) const OUTSTANDING: u32 = 16;
/// Bytes of the file of each connection.
const FILE_BYTES: u64 = 64 << 20;
const SEED: u64 = 1;

/// Calls that were answered.
pub(crate) const OPERATIONS: Metric = Metric::median("ops/s");
const MIB: Metric = Metric::median("MiB/s");
const P999: Metric = Metric::median("p99.9 us");
/// CPU time of the server by call.
pub(crate) const CPU: Metric = Metric::median("CPU us/op");
/// The load generator's own: what the server does not have, as they share the cores.
const CLIENT: Metric = Metric::median("client us/op");
const CORES: Metric = Metric::median("client cores");
/// Mean cost of putting a call on the queue, wake-ups included.
pub(crate) const DISPATCH: Metric = Metric::median("dispatch ns");

/// What every call does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Workload {
    /// 4 KiB from a random place
    RandomRead,
    /// 4 KiB from a random place, one call at a time on one connection
    Alone,
    /// The same beside busy loops, one for each core
    AloneBusy,
    /// As `alone`, 16 KiB; only if named
    #[value(name = "alone-16k")]
    Alone16K,
    /// As `alone`, 32 KiB; only if named
    #[value(name = "alone-32k")]
    Alone32K,
    /// As `alone`, 64 KiB; only if named
    #[value(name = "alone-64k")]
    Alone64K,
    /// As `alone`, 128 KiB; only if named
    #[value(name = "alone-128k")]
    Alone128K,
    /// 4 KiB to a random place, unstable
    RandomWrite,
    /// 64 KiB to a random place, unstable; only if named
    #[value(name = "random-write-64k")]
    RandomWrite64K,
    /// 1 MiB, one after the other
    SequentialRead,
    /// 1 MiB, one after the other, unstable
    SequentialWrite,
    /// READDIRPLUS of 150,000 entries in pages of 32 KiB (nfs alone)
    List,
    /// The same in pages of 8 KiB (nfs alone)
    ListShort,
}

impl Workload {
    /// Data of a call, or of a page of a listing.
    pub(crate) fn bytes(self) -> u32 {
        match self {
            Workload::RandomRead
            | Workload::Alone
            | Workload::AloneBusy
            | Workload::RandomWrite => 4 << 10,
            Workload::Alone16K => 16 << 10,
            Workload::Alone32K | Workload::List => 32 << 10,
            Workload::Alone64K | Workload::RandomWrite64K => 64 << 10,
            Workload::Alone128K => 128 << 10,
            Workload::SequentialRead | Workload::SequentialWrite => 1 << 20,
            Workload::ListShort => 8 << 10,
        }
    }

    /// It moves data of files.
    pub(crate) fn is_data(self) -> bool {
        !matches!(self, Workload::List | Workload::ListShort)
    }

    pub(crate) fn writes(self) -> bool {
        self.is_random_write() || self == Workload::SequentialWrite
    }

    fn is_random_write(self) -> bool {
        matches!(self, Workload::RandomWrite | Workload::RandomWrite64K)
    }

    pub(crate) fn is_random(self) -> bool {
        self.is_alone() || self.is_random_write() || self == Workload::RandomRead
    }

    /// Another size of a workload that is always measured.
    pub(crate) fn is_other_size(self) -> bool {
        matches!(
            self,
            Workload::Alone16K
                | Workload::Alone32K
                | Workload::Alone64K
                | Workload::Alone128K
                | Workload::RandomWrite64K
        )
    }

    /// One call at a time.
    pub(crate) fn is_alone(self) -> bool {
        matches!(
            self,
            Workload::Alone
                | Workload::AloneBusy
                | Workload::Alone16K
                | Workload::Alone32K
                | Workload::Alone64K
                | Workload::Alone128K
        )
    }

    /// Connections of a run, and calls outstanding on each.
    pub(crate) fn depth(self) -> (u32, u32) {
        if self.is_alone() {
            (1, 1)
        } else {
            (CONNECTIONS, OUTSTANDING)
        }
    }
}

/// Where the next call goes.
struct Places {
    workload: Workload,
    places: u64,
    last: u64,
    random: fastrand::Rng,
}

impl Places {
    fn next(&mut self) -> u64 {
        self.last = if self.workload.is_random() {
            self.random.u64(..self.places)
        } else {
            (self.last + 1) % self.places
        };
        self.last * u64::from(self.workload.bytes())
    }
}

/// A mounted connection with its file.
struct Client {
    connection: Connection,
    file: Vec<u8>,
    places: Places,
    /// The number of the first call (L1).
    first: u32,
}

fn prepare(server: &Server, workload: Workload, number: u32) -> io::Result<Client> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let since = since.map_err(io::Error::other)?;
    // Ten million numbers a connection before they meet the next one's; a thousand to prepare.
    let first = (since.as_micros() as u32).wrapping_add(number.wrapping_mul(10_000_000));
    let mut connection = Connection::open(server, workload.bytes())?;
    let file = connection.prepare(&format!("bench-{number}"), FILE_BYTES, first)?;
    Ok(Client {
        first: first.wrapping_add(1000),
        connection,
        file,
        places: Places {
            workload,
            places: (FILE_BYTES / u64::from(workload.bytes())).max(1),
            last: 0,
            random: fastrand::Rng::with_seed(SEED + u64::from(number)),
        },
    })
}

/// Drives one connection until `end`; latencies in nanoseconds of the calls between the two.
fn drive(client: Client, measured_from: Instant, end: Instant) -> io::Result<Histogram<u64>> {
    let Client {
        mut connection,
        file,
        mut places,
        first,
    } = client;
    let workload = places.workload;
    let mut nanoseconds = histogram()?;
    let (_, outstanding) = workload.depth();
    let mut sent = vec![measured_from; outstanding as usize];
    for slot in 0..outstanding {
        sent[slot as usize] = Instant::now();
        let offset = places.next();
        let number = first.wrapping_add(slot);
        connection.send(number, workload.writes(), &file, offset, workload.bytes())?;
    }
    let mut open = outstanding;
    while open > 0 {
        let number = connection.receive(workload.writes(), workload.bytes())?;
        let now = Instant::now();
        let slot = number.wrapping_sub(first) % outstanding;
        let began = &mut sent[slot as usize];
        if now >= measured_from && now < end {
            let taken = now.duration_since(*began).as_nanos();
            nanoseconds.saturating_record(u64::try_from(taken).unwrap_or(u64::MAX));
        }
        if now < end {
            *began = now;
            let (offset, number) = (places.next(), number.wrapping_add(outstanding));
            connection.send(number, workload.writes(), &file, offset, workload.bytes())?;
        } else {
            open -= 1;
        }
    }
    Ok(nanoseconds)
}

fn histogram() -> io::Result<Histogram<u64>> {
    Histogram::new_with_bounds(100, 60_000_000_000, 3).map_err(io::Error::other)
}

/// The calls of a workload.
pub(crate) struct Calls(pub(crate) Workload);

/// The same against ours with this many workers, whose dispatch is observed.
pub(crate) struct Observed(pub(crate) Workload);

impl Load for Calls {
    fn start<'a>(&'a self, ground: &'a Ground, row: &'a Row) -> io::Result<Turn<'a>> {
        let server = row.start(ground)?;
        Ok(Box::new(move || run(&server, self.0, ground.pace.seconds)))
    }
}

impl Load for Observed {
    fn start<'a>(&'a self, ground: &'a Ground, row: &'a Row) -> io::Result<Turn<'a>> {
        let mut server = Server::observed(ground, row.needs.workers.unwrap_or(1))?;
        Ok(Box::new(move || {
            let before = Dispatches::ask(&mut server.process)?;
            let mut figures = run(&server, self.0, ground.pace.seconds)?;
            let after = Dispatches::ask(&mut server.process)?;
            figures.push((DISPATCH, after.mean_since(before)));
            Ok(figures)
        }))
    }
}

/// One run.
fn run(server: &Server, workload: Workload, seconds: u32) -> io::Result<Run> {
    let clients = (0..workload.depth().0).map(|number| prepare(server, workload, number));
    let clients = clients.collect::<io::Result<Vec<Client>>>()?;
    let measured_from = Instant::now() + WARM_UP;
    let end = measured_from + Duration::from_secs(seconds.into());
    let drive = |client| std::thread::spawn(move || drive(client, measured_from, end));
    let threads: Vec<_> = clients.into_iter().map(drive).collect();
    std::thread::sleep(measured_from.saturating_duration_since(Instant::now()));
    let until_end = || {
        std::thread::sleep(end.saturating_duration_since(Instant::now()));
        Ok(())
    };
    let ((), used) = server.watch(until_end)?;
    let mut all = histogram()?;
    for thread in threads {
        let measured = thread.join();
        let measured =
            measured.map_err(|_| io::Error::other("a connection's thread panicked"))??;
        all.add(measured).map_err(io::Error::other)?;
    }
    let per_second = all.len() as f64 / f64::from(seconds);
    let micros = |share: f64| all.value_at_quantile(share) as f64 / 1e3;
    let client = used.generator.as_secs_f64() * 1e6 / all.len().max(1) as f64;
    let mebibytes = f64::from(workload.bytes()) / f64::from(1 << 20);
    Ok(vec![
        (OPERATIONS, per_second),
        (MIB, per_second * mebibytes),
        (P50, micros(0.5)),
        (P99, micros(0.99)),
        (P999, micros(0.999)),
        (CPU, used.server_micros_over(all.len())),
        (CLIENT, client),
        (CORES, client * per_second / 1e6),
    ])
}
