//! One server after the other, interleaved: start it, attach consumers, let the producers send, and
//! read what it cost.
//!
//! Every child is started through `setpriv --pdeathsig`, so the kernel ends it when the harness
//! dies in whatever way, and ended when its [`Child`] is dropped.

use std::io::{BufRead, BufReader, Lines};
use std::path::Path;
use std::process::{ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::clients::{Produced, Received, payload, sum_of};
use crate::report::{Figures, HEAD, Row, Verdict};
use crate::{Amount, Compare, Failure};

/// How long a server may take to end by itself.
const PATIENCE: Duration = Duration::from_secs(10);

/// A process and what it says.
struct Child {
    child: std::process::Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Child {
    fn start(program: &Path, arguments: &[String]) -> Result<Child, Failure> {
        let mut child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "--"])
            .arg(program)
            .args(arguments)
            .env("RUST_LOG", "warn")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|cause| format!("setpriv (util-linux): {cause}"))?;
        let output = child.stdout.take().ok_or("no standard output")?;
        Ok(Child {
            child,
            lines: BufReader::new(output).lines(),
        })
    }

    fn line(&mut self) -> Result<String, Failure> {
        Ok(self.lines.next().ok_or("a process ended too soon")??)
    }

    /// Processor time so far, of all threads, in seconds.
    fn cpu_seconds(&self) -> Result<f64, Failure> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id()))?;
        // The name in parentheses may hold anything; the fields after it are numbered from 3.
        let fields: Vec<&str> = stat.rsplit(") ").next().unwrap_or("").split(' ').collect();
        let ticks = |field: usize| fields.get(field - 3).and_then(|f| f.parse::<f64>().ok());
        let (user, system) = ticks(14).zip(ticks(15)).ok_or("an odd /proc/PID/stat")?;
        Ok((user + system) / rustix::param::clock_ticks_per_second() as f64)
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let deadline = Instant::now() + PATIENCE;
        let _ = Command::new("kill")
            .arg(self.child.id().to_string())
            .status();
        while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A server to be measured: its name, program and arguments.
struct Contender {
    name: String,
    program: std::path::PathBuf,
    arguments: Vec<String>,
}

fn contenders(compare: &Compare, socket: &str) -> Result<Vec<Contender>, Failure> {
    let own = std::env::current_exe()?;
    let mut all = Vec::new();
    for driver in &compare.drivers {
        let fixed = [
            "serve",
            "--ingest",
            "127.0.0.1:0",
            "--ingest-socket",
            socket,
            "--driver",
        ];
        let mut arguments: Vec<String> = fixed.map(str::to_owned).into();
        arguments.push(driver.clone());
        arguments.push(format!("--ingest-consumers={}", compare.amount.flows));
        arguments.extend(compare.serve.iter().cloned());
        let program = compare.server_binary.clone();
        all.push(Contender {
            name: format!("flatpath {driver}"),
            program,
            arguments,
        });
    }
    for (name, more) in [
        ("tokio copying", &["--threads=1"][..]),
        ("tokio copying, 2 threads", &["--threads=2"]),
        ("tokio straight", &["--threads=1", "--straight"]),
    ] {
        let mut arguments = vec!["tokio".to_owned(), format!("--socket={socket}")];
        arguments.extend(amount(compare.amount));
        arguments.extend(more.iter().map(|&more| more.to_owned()));
        all.push(Contender {
            name: name.into(),
            program: own.clone(),
            arguments,
        });
    }
    Ok(all)
}

fn amount(amount: Amount) -> [String; 3] {
    [
        format!("--flows={}", amount.flows),
        format!("--message-bytes={}", amount.message_bytes),
        format!("--messages={}", amount.messages),
    ]
}

/// Everything, as JSON.
#[derive(Serialize)]
struct Report {
    amount: Amount,
    rows: Vec<Row>,
    verdicts: Vec<Verdict>,
}

/// Runs all and prints the table.
pub(crate) fn run(compare: &Compare) -> Result<(), Failure> {
    let directory = tempfile::tempdir()?;
    let socket = directory.path().join("ingest");
    let socket = socket.to_str().ok_or("a path that is not text")?;
    let contenders = contenders(compare, socket)?;
    let mut runs: Vec<Vec<Figures>> = contenders.iter().map(|_| Vec::new()).collect();
    for _ in 0..compare.runs {
        for (contender, runs) in contenders.iter().zip(&mut runs) {
            runs.push(measure(compare.amount, contender, socket)?);
            // The tokio server does not remove it.
            let _ = std::fs::remove_file(socket);
        }
    }
    let rows: Vec<Row> = contenders
        .iter()
        .zip(runs)
        .map(|(contender, runs)| Row::new(&contender.name, runs))
        .collect();
    println!("{HEAD}");
    for row in &rows {
        println!("{}", row.line());
    }
    let (ours, peers) = rows.split_at(compare.drivers.len());
    let pairs = ours
        .iter()
        .flat_map(|ours| peers.iter().map(move |peer| (ours, peer)));
    let verdicts: Vec<Verdict> = pairs.map(|(ours, peer)| Verdict::new(ours, peer)).collect();
    for verdict in &verdicts {
        println!("{}", verdict.line());
    }
    if let Some(path) = &compare.json {
        let report = Report {
            amount: compare.amount,
            rows,
            verdicts,
        };
        std::fs::write(path, serde_json::to_string_pretty(&report)?)?;
    }
    Ok(())
}

/// One run of one server.
fn measure(amounts: Amount, contender: &Contender, socket: &str) -> Result<Figures, Failure> {
    let own = std::env::current_exe()?;
    let mut server = Child::start(&contender.program, &contender.arguments)?;
    let mut address = None;
    loop {
        let line = server.line()?;
        if line == "ready" {
            break;
        }
        address = line
            .strip_prefix("listening ingest ")
            .map(str::to_owned)
            .or(address);
    }
    let address = address.ok_or("the server does not say where it listens")?;
    let mut arguments = vec!["consume".to_owned(), format!("--socket={socket}")];
    arguments.extend(amount(amounts));
    let mut consumers = Vec::new();
    while consumers.len() < amounts.flows as usize {
        // The tokio server makes its socket after it says that it is ready.
        let mut consumer = Child::start(&own, &arguments)?;
        match consumer.line() {
            Ok(_attached) => consumers.push(consumer),
            Err(_) => std::thread::sleep(Duration::from_millis(10)),
        }
    }
    let before = server.cpu_seconds()?;
    let started = Instant::now();
    let mut arguments = vec!["produce".to_owned(), format!("--address={address}")];
    arguments.extend(amount(amounts));
    let mut producers = Child::start(&own, &arguments)?;
    let produced: Produced = serde_json::from_str(&producers.line()?)?;
    let expected = sum_of(&payload(amounts)).wrapping_mul(u64::from(amounts.messages));
    let mut total = Received::default();
    for consumer in &mut consumers {
        let received: Received = serde_json::from_str(&consumer.line()?)?;
        if received.sum != expected {
            return Err(format!("{}: the payload has changed", contender.name).into());
        }
        total.bytes += received.bytes;
        total.fragments += received.fragments;
        total.cpu_seconds += received.cpu_seconds;
    }
    // Of both: without the start of the producers' process, and until all was added up.
    let seconds = started.elapsed().as_secs_f64().max(produced.seconds);
    let server_seconds = server.cpu_seconds()? - before;
    let gibibytes = total.bytes as f64 / f64::from(1 << 30);
    Ok(Figures {
        gibibytes_per_second: gibibytes / seconds,
        server_seconds_per_gibibyte: server_seconds / gibibytes,
        both_seconds_per_gibibyte: (server_seconds + total.cpu_seconds) / gibibytes,
        fragment_bytes: total.bytes as f64 / total.fragments as f64,
    })
}
