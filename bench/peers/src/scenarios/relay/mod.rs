//! The relay and others: the Python transit relay, socat, haproxy, and a server without matches.
//!
//! | scenario | what is measured                                        | others                 |
//! |----------|---------------------------------------------------------|------------------------|
//! | stream   | CPU time of the relay per GiB of one large stream       | Python, socat, haproxy |
//! | match    | CPU time from the handshakes of a pair to its `ok`      | Python                 |
//! |          | the same with two accepts and two ends                  | Python                 |
//! | rate     | the same while the relay is always busy                 | Python, a bare server  |
//! | wait     | memory of the relay for each client that waits          | Python                 |
//!
//! Every run starts each relay afresh. The CPU time is that of all threads of the relay's process,
//! in nanoseconds, so it holds the kernel's work for it but not softirqs of the clients.

mod load;

use std::fmt::Display;
use std::fs;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::time::Duration;

use flatpath_bench_common::report::{BenchReport, Wanted};
use flatpath_bench_common::servers::Metric;
use flatpath_bench_common::tools::{HAPROXY, SOCAT};
use flatpath_testkit::child::{self, free_address};
use flatpath_testkit::process::raise_descriptor_limit;

use self::load::Span;
pub(super) use self::load::join;
use crate::instructions::this_program;
use crate::kind::Kind;
use crate::options::Scenario;
use crate::server::Server;
use crate::session::Session;

pub(super) const STREAM: [Kind; 5] = [
    Kind::FlatpathUring,
    Kind::FlatpathEpoll,
    Kind::Python,
    Kind::Socat,
    Kind::Haproxy,
];
pub(super) const MATCH: [Kind; 3] = [Kind::FlatpathUring, Kind::FlatpathEpoll, Kind::Python];
pub(super) const RATE: [Kind; 4] = [
    Kind::FlatpathUring,
    Kind::FlatpathEpoll,
    Kind::Python,
    Kind::Bare,
];

/// Length of the stream, in GiB.
const STREAM_GIB: usize = 2;
const PAIRS: usize = 2000;
const PAIRS_QUICK: usize = 200;
/// How much more where the relay is to be busy.
const BUSY_TIMES: usize = 5;
/// Clients that wait, as far as the descriptor limit allows.
const WAITING: u64 = 100_000;
const WAITING_QUICK: u64 = 1000;
/// Descriptors for all else.
const SPARE_DESCRIPTORS: u64 = 500;
/// What a connection waits for at most.
const PATIENCE: Duration = Duration::from_secs(60);

const SECONDS: Metric = Metric::median("CPU s/GiB");
const MICROS: Metric = Metric::median("CPU us/pair");
const BYTES: Metric = Metric::median("B/client");

/// A relay that accepts.
struct Relay {
    server: Server,
    /// Where socat and haproxy connect to; the others join two clients.
    target: Option<TcpListener>,
}

/// Runs a scenario: one table, or two for the pairs.
pub(super) fn run(session: &Session, scenario: Scenario) -> io::Result<Vec<BenchReport>> {
    let pairs = session.options.sized(PAIRS, PAIRS_QUICK);
    let compare =
        |about: String, kinds: &[Kind], metric, wanted: Wishes<'_>, measure: Measure<'_>| {
            let turn = |kind, (): &mut ()| {
                let figure = measure(&Relay::start(session, kind)?)?;
                Ok(vec![(metric, figure)])
            };
            let table = session.interleave(scenario, &about, kinds, |_| Ok(()), turn)?;
            let table = table.with_ratio(metric, Kind::FlatpathUring);
            let mut report = BenchReport::of_servers("relay", about, table);
            for ours in [Kind::FlatpathUring, Kind::FlatpathEpoll] {
                for (other, wanted) in wanted {
                    let other = other.as_ref().map(|kind| (kind as &dyn Display, metric));
                    report.target_of((ours, metric), other, *wanted);
                }
            }
            Ok::<_, io::Error>(report)
        };
    let tenth: Wishes<'_> = &[(Some(Kind::Python), Wanted::AtMost(0.1))];
    let report = match scenario {
        Scenario::RelayStream => {
            let about = format!("one stream of {STREAM_GIB} GiB");
            let wanted = [
                (Some(Kind::Python), Wanted::AtMost(0.6)),
                (Some(Kind::Socat), Wanted::AtMost(1.0)),
                (Some(Kind::Haproxy), Wanted::AtMost(1.0)),
            ];
            let stream = |relay: &Relay| load::stream(relay, STREAM_GIB);
            compare(about, &STREAM, SECONDS, &wanted, &stream)?
        }
        Scenario::RelayRate => {
            let pairs = pairs * BUSY_TIMES;
            let about = format!("{pairs} pairs come and go, the relay always busy");
            let rate = |relay: &Relay| load::rate(relay, pairs);
            compare(about, &RATE, MICROS, tenth, &rate)?
        }
        Scenario::RelayWait => {
            let limit = raise_descriptor_limit()?.saturating_sub(SPARE_DESCRIPTORS);
            let count = session.options.sized(WAITING, WAITING_QUICK).min(limit);
            let about = format!("{count} clients wait");
            let wanted = [(None, Wanted::AtMost(1024.0))];
            let wait = |relay: &Relay| load::wait(relay, count as usize);
            compare(about, &MATCH, BYTES, &wanted, &wait)?
        }
        _ => {
            let about = format!("{pairs} pairs, from the handshakes to their ok");
            let matches = |relay: &Relay| load::matches(relay, pairs, Span::Match);
            let matched = compare(about, &MATCH, MICROS, tenth, &matches)?;
            let about = format!("{pairs} pairs, with two accepts and two ends");
            let visits = |relay: &Relay| load::matches(relay, pairs, Span::Visit);
            return Ok(vec![matched, compare(about, &MATCH, MICROS, &[], &visits)?]);
        }
    };
    Ok(vec![report])
}

/// A figure of a relay.
type Measure<'a> = &'a dyn Fn(&Relay) -> io::Result<f64>;
/// What ours is divided by, and its bound.
type Wishes<'a> = &'a [(Option<Kind>, Wanted)];

impl Relay {
    fn start(session: &Session, kind: Kind) -> io::Result<Self> {
        let home = tempfile::tempdir()?;
        let address = free_address()?;
        let target = match kind {
            Kind::Socat | Kind::Haproxy => Some(TcpListener::bind("127.0.0.1:0")?),
            _ => None,
        };
        let to = target.as_ref().map(TcpListener::local_addr).transpose()?;
        let to = to.unwrap_or(address);
        let port = address.port();
        let mut command = match kind {
            Kind::Python => {
                let directory = session.options.python.clone().unwrap_or_default();
                let mut command = child::command(directory.join("twist"), &[]);
                command.args(["--log-level=error", "transitrelay"]);
                command.arg(format!(
                    "--port=tcp:{port}:interface=127.0.0.1:backlog=4096"
                ));
                command
            }
            Kind::Bare => {
                let mut command = child::command(this_program(), &[]);
                command.args(["serve", "bare", "--address", &address.to_string()]);
                command
            }
            Kind::Socat => {
                let mut command = child::command(SOCAT.find()?, &[]);
                command.arg(format!("TCP-LISTEN:{port},bind=127.0.0.1,reuseaddr"));
                command.arg(format!("TCP:{to}"));
                command
            }
            Kind::Haproxy => {
                let file = home.path().join("haproxy.cfg");
                fs::write(&file, haproxy(address, to))?;
                let mut command = child::command(HAPROXY.find()?, &[]);
                command.args(["-db", "-f"]).arg(file);
                command
            }
            _ => flatpath(session, kind, address),
        };
        command.current_dir(home.path());
        let server = Server::at(&mut command, address, home)?;
        Ok(Self { server, target })
    }

    fn process(&self) -> u32 {
        self.server.group()
    }
}

fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    Ok(stream)
}

fn flatpath(session: &Session, kind: Kind, address: SocketAddr) -> Command {
    let mut command = child::command(&session.flatpath, &[]);
    command.args(["serve", "--relay", &address.to_string()]);
    command.args(["--relay-waiting", "1000000"]);
    command.args(["--driver", kind.driver().unwrap_or("auto")]);
    command.args(&session.options.serve);
    command
}

fn haproxy(from: SocketAddr, to: SocketAddr) -> String {
    format!(
        "global\n  nbthread 1\n  maxconn 1000\n\
         defaults\n  mode tcp\n  timeout connect 10s\n  timeout client 60s\n  timeout server 60s\n\
         listen relay\n  bind {from}\n  server target {to}\n"
    )
}
