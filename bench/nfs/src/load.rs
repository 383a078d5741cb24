//! One run of load: connections with a fixed number of calls outstanding each, and the server's
//! CPU.
//!
//! Every connection is one thread that sends the next call when a reply comes: closed loop, so the
//! figure is what the server does, not what it queues. The server's CPU time is read from `/proc`
//! around the measured interval.
//!
//! Invariants
//! - L1: no two calls of a run have the same number, so that no server answers one from its memory
//!   of repeated calls.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use clap::ValueEnum;
use hdrhistogram::Histogram;
use serde::Serialize;

use crate::Failure;
use crate::connection::{Connection, Mount};

/// Load before anything is measured.
const WARM_UP: Duration = Duration::from_millis(500);

/// What every call does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize)]
pub(crate) enum Workload {
    /// 4 KiB from a random place.
    RandomRead,
    /// 4 KiB to a random place, unstable.
    RandomWrite,
    /// 1 MiB, one behind the other.
    SequentialRead,
    /// 1 MiB, one behind the other, unstable.
    SequentialWrite,
}

impl Workload {
    pub(crate) const ALL: [Workload; 4] = [
        Workload::RandomRead,
        Workload::RandomWrite,
        Workload::SequentialRead,
        Workload::SequentialWrite,
    ];

    pub(crate) fn bytes(self) -> u32 {
        match self {
            Workload::RandomRead | Workload::RandomWrite => 4 << 10,
            Workload::SequentialRead | Workload::SequentialWrite => 1 << 20,
        }
    }

    pub(crate) fn writes(self) -> bool {
        matches!(self, Workload::RandomWrite | Workload::SequentialWrite)
    }

    pub(crate) fn is_random(self) -> bool {
        matches!(self, Workload::RandomRead | Workload::RandomWrite)
    }
}

/// How much of it.
#[derive(Clone, Copy, Debug, Serialize, clap::Args)]
pub(crate) struct Amount {
    /// Connections
    #[arg(long, default_value_t = 4)]
    pub(crate) connections: u32,
    /// Calls outstanding on each connection
    #[arg(long, default_value_t = 16)]
    pub(crate) outstanding: u32,
    /// Bytes of the file of each connection
    #[arg(long, default_value_t = 64 << 20)]
    pub(crate) file_bytes: u64,
    /// Seconds measured in each run, after half a second of warm-up
    #[arg(long, default_value_t = 5.0)]
    pub(crate) seconds: f64,
}

/// What one run measured.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Figures {
    pub(crate) operations_per_second: f64,
    pub(crate) mebibytes_per_second: f64,
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    pub(crate) p999_us: f64,
    pub(crate) cpu_us_per_operation: Option<f64>,
    /// The load generator's own: what the servers do not have, as they share the cores with it.
    pub(crate) client_us_per_operation: Option<f64>,
    /// Mean cost of putting a call on the queue, wake-ups included; warm-up included.
    pub(crate) dispatch_ns: Option<f64>,
}

/// User and system time of a process.
fn processor_time(process: u32) -> Option<Duration> {
    let text = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name in parentheses may hold anything; the fields behind it are numbers.
    let mut fields = text.rsplit_once(')')?.1.split_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    let ticks = rustix::param::clock_ticks_per_second();
    Some(Duration::from_secs_f64(
        (user + system) as f64 / ticks as f64,
    ))
}

/// Where the next call goes.
struct Places {
    workload: Workload,
    places: u64,
    state: u64,
}

impl Places {
    fn next(&mut self) -> u64 {
        let place = if self.workload.is_random() {
            self.state = self
                .state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (self.state >> 33) % self.places
        } else {
            self.state = self.state.wrapping_add(1);
            self.state % self.places
        };
        place * u64::from(self.workload.bytes())
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

fn prepare(
    mount: &Mount,
    workload: Workload,
    amount: &Amount,
    number: u32,
) -> Result<Client, Failure> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH)?;
    // Ten million numbers a connection before they meet the next one's.
    let first = (since.as_micros() as u32).wrapping_add(number.wrapping_mul(10_000_000));
    let mut connection = Connection::open(mount, first, workload.bytes())?;
    let file = connection.prepare(&format!("bench-{number}"), amount.file_bytes)?;
    let places = (amount.file_bytes / u64::from(workload.bytes())).max(1);
    let state = u64::from(number) * 0x9e37_79b9 + 1;
    Ok(Client {
        first: connection.number(),
        connection,
        file,
        places: Places {
            workload,
            places,
            state,
        },
    })
}

/// Drives one connection until `end`; latencies in nanoseconds of the calls between the two.
fn drive(
    client: Client,
    outstanding: u32,
    measured_from: Instant,
    end: Instant,
) -> Result<Histogram<u64>, Failure> {
    let Client {
        mut connection,
        file,
        mut places,
        first,
    } = client;
    let workload = places.workload;
    let mut nanoseconds = histogram()?;
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
            nanoseconds.saturating_record(u64::try_from(taken)?);
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

fn histogram() -> Result<Histogram<u64>, Failure> {
    Ok(Histogram::new_with_bounds(100, 60_000_000_000, 3)?)
}

/// One run against a server; `process` is whose CPU time counts.
pub(crate) fn run(
    mount: &Mount,
    workload: Workload,
    amount: &Amount,
    process: Option<u32>,
) -> Result<Figures, Failure> {
    let clients: Result<Vec<Client>, Failure> = (0..amount.connections)
        .map(|number| prepare(mount, workload, amount, number))
        .collect();
    let measured_from = Instant::now() + WARM_UP;
    let end = measured_from + Duration::from_secs_f64(amount.seconds);
    let outstanding = amount.outstanding;
    let threads: Vec<_> = clients?
        .into_iter()
        .map(|client| std::thread::spawn(move || drive(client, outstanding, measured_from, end)))
        .collect();
    let cpu = || {
        let own = processor_time(std::process::id());
        (process.and_then(processor_time), own)
    };
    std::thread::sleep(measured_from.saturating_duration_since(Instant::now()));
    let before = cpu();
    std::thread::sleep(end.saturating_duration_since(Instant::now()));
    let after = cpu();
    let mut all = histogram()?;
    for thread in threads {
        let measured = thread.join();
        all.add(measured.map_err(|_| "a connection's thread panicked")??)?;
    }
    let per_second = all.len() as f64 / amount.seconds;
    let microseconds = |share: f64| all.value_at_quantile(share) as f64 / 1e3;
    let per_operation = |before: Option<Duration>, after: Option<Duration>| {
        let spent = before.zip(after).map(|(from, to)| to.saturating_sub(from));
        spent.map(|spent| spent.as_secs_f64() * 1e6 / all.len().max(1) as f64)
    };
    Ok(Figures {
        operations_per_second: per_second,
        mebibytes_per_second: per_second * f64::from(workload.bytes()) / f64::from(1 << 20),
        p50_us: microseconds(0.5),
        p99_us: microseconds(0.99),
        p999_us: microseconds(0.999),
        cpu_us_per_operation: per_operation(before.0, after.0),
        client_us_per_operation: per_operation(before.1, after.1),
        dispatch_ns: None,
    })
}
