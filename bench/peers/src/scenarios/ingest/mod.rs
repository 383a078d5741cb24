//! Large messages from producers to consumers in other processes: ours, and tokio servers that copy
//! the payload into the consumer's shared memory or read straight into it.
//!
//! Each run has a fresh server, a consumer process for each producer, and one process of producers.

pub(crate) mod clients;

use std::io;
use std::thread;
use std::time::{Duration, Instant};

use flatpath_bench_common::report::{BenchReport, Wanted};
use flatpath_bench_common::servers::{Metric, Run};
use flatpath_bench_common::usage::Reading;
use flatpath_testkit::child::{self, Child};

use self::clients::{Produced, Received, result, sum};
use crate::instructions::this_program;
use crate::kind::Kind;
use crate::options::Scenario;
use crate::server::Server;
use crate::session::Session;

const OURS: [Kind; 2] = [Kind::FlatpathUring, Kind::FlatpathEpoll];
const OTHERS: [Kind; 3] = [
    Kind::TokioCopying,
    Kind::TokioCopyingTwo,
    Kind::TokioStraight,
];
pub(super) const KINDS: [Kind; 5] = [
    Kind::FlatpathUring,
    Kind::FlatpathEpoll,
    Kind::TokioCopying,
    Kind::TokioCopyingTwo,
    Kind::TokioStraight,
];

/// Producers, and consumers.
pub(crate) const FLOWS: u32 = 4;
/// Bytes of a message.
pub(crate) const MESSAGE_BYTES: u32 = 1 << 20;
/// Messages of each producer.
const MESSAGES: u32 = 1024;
const MESSAGES_QUICK: u32 = 64;
/// Pages for large messages, unless `--serve` says otherwise.
const LARGE_PAGES: [&str; 2] = ["--ingest-page=1M", "--ingest-memory=1G"];
/// Ours may take this part of the others' processor time.
const CPU_RATIO_MAX: f64 = 0.7;
/// How long a consumer may take to attach.
const ATTACH_MAX: Duration = Duration::from_secs(10);

/// From the first byte sent until the last message was added up.
const RATE: Metric = Metric::median("GiB/s");
/// The server's CPU time.
const CPU: Metric = Metric::median("server s/GiB");
/// The server's and the consumers'.
const BOTH: Metric = Metric::median("with consumers");
/// Bytes of a fragment, on average.
const FRAGMENT: Metric = Metric::median("fragment B");

pub(super) fn run(session: &Session) -> io::Result<BenchReport> {
    let messages = session.options.sized(MESSAGES, MESSAGES_QUICK);
    let name = format!("{FLOWS} x {messages} messages of {MESSAGE_BYTES} bytes");
    let turn = |kind, (): &mut ()| measure(session, kind, messages);
    let table = session.interleave(Scenario::Ingest, &name, &KINDS, |_| Ok(()), turn)?;
    let mut table = table.with_ratio(CPU, OTHERS[0]);
    for metric in [BOTH, RATE] {
        table = table.with_ratio(metric, OTHERS[0]);
    }
    let mut report = BenchReport::of_servers("ingest", name, table);
    for ours in OURS {
        for other in OTHERS {
            report.target_of(
                (ours, CPU),
                Some((&other, CPU)),
                Wanted::AtMost(CPU_RATIO_MAX),
            );
            report.target_of((ours, RATE), Some((&other, RATE)), Wanted::AtLeast(1.0));
        }
    }
    Ok(report)
}

fn server(session: &Session, kind: Kind, socket: &str) -> io::Result<Server> {
    let directory = tempfile::tempdir()?;
    let Some(driver) = kind.driver() else {
        let mut command = child::command(this_program(), &[]);
        command.args(["serve", &kind.to_string(), "--socket", socket]);
        return Server::announced(&mut command, directory);
    };
    let mut command = child::command(&session.flatpath, &[]);
    command.args([
        "serve",
        "--ingest",
        "127.0.0.1:0",
        "--ingest-socket",
        socket,
    ]);
    command.args(["--driver", driver, &format!("--ingest-consumers={FLOWS}")]);
    match &session.options.serve[..] {
        [] => command.args(LARGE_PAGES),
        more => command.args(more),
    };
    Server::announced(command.env("RUST_LOG", "warn"), directory)
}

fn client(role: &str, place: String, messages: u32) -> io::Result<Child> {
    let mut command = child::command(this_program(), &[]);
    command.args([role, &place, &format!("--messages={messages}")]);
    Child::start(&mut command)
}

/// One run of one server.
fn measure(session: &Session, kind: Kind, messages: u32) -> io::Result<Run> {
    let directory = tempfile::tempdir()?;
    let socket = directory.path().join("ingest").display().to_string();
    let server = server(session, kind, &socket)?;
    let mut consumers = Vec::new();
    while consumers.len() < FLOWS as usize {
        // The tokio server makes its socket after it says that it is ready.
        let mut consumer = client("consume", format!("--socket={socket}"), messages)?;
        match consumer.line(ATTACH_MAX) {
            Ok(_attached) => consumers.push(consumer),
            Err(_) => thread::sleep(Duration::from_millis(10)),
        }
    }
    let before = Reading::take(Some(server.group()))?;
    let started = Instant::now();
    let mut producers = client("produce", format!("--address={}", server.address), messages)?;
    let produced: Produced = result(&mut producers)?;
    let expected = sum().wrapping_mul(u64::from(messages));
    let mut total = Received::default();
    for consumer in &mut consumers {
        let received: Received = result(consumer)?;
        if received.sum != expected {
            return Err(io::Error::other("the payload has changed"));
        }
        total.bytes += received.bytes;
        total.fragments += received.fragments;
        total.cpu_seconds += received.cpu_seconds;
    }
    // Of both: without the start of the producers' process, and until all was added up.
    let seconds = started.elapsed().as_secs_f64().max(produced.seconds);
    let server_seconds = before.used()?.server.as_secs_f64();
    let gibibytes = total.bytes as f64 / f64::from(1 << 30);
    Ok(vec![
        (RATE, gibibytes / seconds),
        (CPU, server_seconds / gibibytes),
        (BOTH, (server_seconds + total.cpu_seconds) / gibibytes),
        (FRAGMENT, total.bytes as f64 / total.fragments as f64),
    ])
}
