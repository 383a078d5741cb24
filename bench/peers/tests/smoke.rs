//! The harness itself, with tiny inputs: it measures, and it leaves no process behind.
//!
//! No figure is judged here. A test that needs wrk or another program passes without it, and fails
//! where CI=true.

#![forbid(unsafe_code)]

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use flatpath_testkit::tools;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

const HARNESS: &str = env!("CARGO_BIN_EXE_flatpath-peers");
/// Only a harness that hangs takes so long, whatever else this machine does.
const LIMIT: Duration = Duration::from_secs(120);

/// A child that does not outlive its test.
struct Guarded(Child);

impl Guarded {
    fn start(command: &mut Command) -> Self {
        Self(
            command
                .stdin(Stdio::null())
                .spawn()
                .expect("the harness starts"),
        )
    }

    fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.0.id()).ok().and_then(Pid::from_raw);
        kill_process(pid.expect("a process number"), signal).expect("signalled");
    }

    fn end(&mut self) -> ExitStatus {
        let deadline = Instant::now() + LIMIT;
        loop {
            if let Some(status) = self.0.try_wait().expect("waited") {
                return status;
            }
            assert!(Instant::now() < deadline, "the harness did not end");
            thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Measures and returns the JSON.
fn measured(arguments: &[&str]) -> Value {
    let directory = tempfile::tempdir().expect("temporary directory");
    let file = directory.path().join("report.json");
    let mut command = Command::new(HARNESS);
    command
        .args(arguments)
        .arg("--json")
        .arg(&file)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut harness = Guarded::start(&mut command);
    let status = harness.end();
    let mut text = String::new();
    harness
        .0
        .stdout
        .take()
        .expect("piped")
        .read_to_string(&mut text)
        .expect("text");
    harness
        .0
        .stderr
        .take()
        .expect("piped")
        .read_to_string(&mut text)
        .expect("text");
    assert!(status.success(), "{status}: {text}");
    assert!(text.contains("quick run"), "{text}");
    let json = fs::read_to_string(&file).expect("the report was written");
    serde_json::from_str(&json).expect("the report is JSON")
}

/// The figure of a row in the first table of a bench.
fn figure(bench: &Value, row: usize, name: &str) -> f64 {
    let table = &bench["tables"][0];
    assert!(table["rows"][row]["failure"].is_null(), "{bench}");
    let columns = table["columns"].as_array().expect("columns");
    let column = columns.iter().position(|column| column["name"] == name);
    let column = column.unwrap_or_else(|| panic!("{name} in {bench}"));
    let value = &table["rows"][row]["figures"][column]["value"];
    value
        .as_f64()
        .unwrap_or_else(|| panic!("{name} in {bench}"))
}

fn benches(report: &Value) -> &[Value] {
    report["benches"].as_array().expect("benches")
}

fn rows(bench: &Value) -> usize {
    bench["tables"][0]["rows"].as_array().map_or(0, Vec::len)
}

#[test]
fn hyper_is_measured_by_wrk() {
    if tools::find("wrk").is_none() {
        return;
    }
    let report = measured(&["--quick", "--only", "hello", "--servers", "hyper"]);
    assert_eq!(benches(&report).len(), 4);
    for bench in benches(&report) {
        assert_eq!(figure(bench, 0, "errors"), 0.0, "{bench}");
        for name in ["req/s", "CPU us/req", "p99 us", "peak MiB"] {
            assert!(figure(bench, 0, name) > 0.0, "{name} in {bench}");
        }
    }
}

#[test]
fn items_are_read_and_inserted_by_all() {
    if tools::find("wrk").is_none() {
        return;
    }
    let servers = "rest-epoll,rest-axum";
    let report = measured(&["--quick", "--only", "rest", "--servers", servers]);
    // Each with the threads of both libraries' defaults, and with few.
    assert_eq!(benches(&report).len(), 4, "{report}");
    for bench in benches(&report) {
        assert_eq!(rows(bench), 2, "{report}");
        for row in 0..2 {
            assert_eq!(figure(bench, row, "errors"), 0.0, "{bench}");
            assert!(figure(bench, row, "CPU us/req") > 0.0, "{bench}");
        }
        let bytes = [0, 1].map(|row| figure(bench, row, "reply B"));
        assert!(
            (bytes[0] - bytes[1]).abs() < 64.0,
            "not the same work: {bench}"
        );
        assert_eq!(
            bench["targets"].as_array().map(Vec::len),
            Some(2),
            "{bench}"
        );
    }
}

#[test]
fn the_application_and_its_twin_are_measured() {
    if tools::find("wrk").is_none() {
        return;
    }
    let servers = "app-epoll,app-axum";
    let report = measured(&["--quick", "--only", "app", "--servers", servers]);
    // Four requests and the events, with the threads of both libraries' defaults.
    assert_eq!(benches(&report).len(), 5, "{report}");
    for (index, bench) in benches(&report).iter().enumerate() {
        let names = match index {
            4 => ["events/s", "CPU us/event", "heard p99 us"],
            _ => ["req/s", "CPU us/req", "p99 us"],
        };
        assert_eq!(rows(bench), 2, "{bench}");
        for row in 0..2 {
            assert_eq!(figure(bench, row, "errors"), 0.0, "{bench}");
            for name in names {
                assert!(figure(bench, row, name) > 0.0, "{name} in {bench}");
            }
        }
        let targets = bench["targets"].as_array().map(Vec::len);
        assert_eq!(targets, Some(3), "{bench}");
    }
}

#[test]
fn listeners_hear_every_event() {
    let arguments = [
        "--quick",
        "--only",
        "sse",
        "--servers",
        "sse-axum,sse-uring",
    ];
    let arguments = [&arguments[..], &["--clients", "50"]].concat();
    let report = measured(&arguments);
    let bench = &benches(&report)[0];
    for server in 0..2 {
        assert_eq!(figure(bench, server, "errors"), 0.0, "{bench}");
        assert_eq!(figure(bench, server, "lost"), 0.0, "{bench}");
        // Of five events in a quarter of a second at least one was heard by all.
        let heard = figure(bench, server, "events/s");
        assert!(heard > 50.0 / 0.25 - 10.0, "{bench}");
        for name in ["alone p99 us", "beside p99 us", "control p99 us"] {
            assert!(figure(bench, server, name) > 0.0, "{name} in {bench}");
        }
    }
}

#[test]
fn every_table_over_tls_is_measured() {
    if tools::find("wrk").is_none() {
        return;
    }
    let arguments = ["--quick", "--only", "https", "--servers", "https-hyper"];
    let report = measured(&[&arguments[..], &["--clients", "50"]].concat());
    let [small, _, large, handshakes, idle, storm] = benches(&report) else {
        panic!("{report}");
    };
    for bench in [small, large, handshakes] {
        assert_eq!(figure(bench, 0, "errors"), 0.0, "{bench}");
        assert!(figure(bench, 0, "CPU us/req") > 0.0, "{bench}");
    }
    assert!(figure(large, 0, "reply B") > 1e6, "{large}");
    assert_eq!(figure(idle, 0, "served"), 50.0, "{idle}");
    for name in ["unshaken", "errors"] {
        assert_eq!(figure(storm, 0, name), 0.0, "{name} in {storm}");
    }
    for name in ["alone p99 us", "beside p99 us", "handshakes/s"] {
        assert!(figure(storm, 0, name) > 0.0, "{name} in {storm}");
    }
}

#[test]
fn every_table_of_http2_is_measured() {
    if tools::find("h2load").is_none() {
        return;
    }
    let arguments = ["--quick", "--only", "http2", "--servers", "https-hyper"];
    let report = measured(&[&arguments[..], &["--clients", "50"]].concat());
    // Without TLS there is no hyper.
    let [alone, together, idle, ..] = benches(&report) else {
        panic!("{report}");
    };
    for bench in [alone, together] {
        assert_eq!(figure(bench, 0, "errors"), 0.0, "{bench}");
        for name in ["CPU us/req", "p99 us"] {
            assert!(figure(bench, 0, name) > 0.0, "{bench}");
        }
        assert!(figure(bench, 0, "reply B") > 1024.0, "{bench}");
    }
    assert_eq!(figure(idle, 0, "served"), 50.0, "{idle}");
}

#[test]
fn every_table_of_large_files_is_measured() {
    let peers = ["nginx", "lighttpd", "h2o", "h2load"];
    if peers.iter().any(|peer| tools::find(peer).is_none()) {
        return;
    }
    let servers = "nginx-large,lighttpd,h2o,flatpath-uring,flatpath-epoll";
    let report = measured(&["--quick", "--only", "large", "--servers", servers]);
    let [whole @ .., stored, unread] = benches(&report) else {
        panic!("{report}");
    };
    // Whole and in part, over TLS, by HTTP/2, by one client, and from the disk.
    assert_eq!(whole.len(), 7, "{report}");
    for bench in whole {
        assert_eq!(rows(bench), 5, "{bench}");
        for row in 0..5 {
            assert!(figure(bench, row, "MiB/s") > 0.0, "{bench}");
        }
    }
    for row in 0..3 {
        assert!(figure(stored, row, "wall ms") > 0.0, "{stored}");
    }
    for row in 0..5 {
        assert_eq!(figure(unread, row, "served"), 50.0, "{unread}");
        // The connection itself.
        assert!(
            figure(unread, row, "descriptors/download") >= 1.0,
            "{unread}"
        );
    }
}

#[test]
fn latencies_while_busy_loops_run_are_measured() {
    if tools::find("wrk").is_none() {
        return;
    }
    let report = measured(&["--quick", "--only", "busy", "--servers", "pooled-epoll"]);
    let benches = benches(&report);
    assert_eq!(
        benches.len(),
        1,
        "no server of the other case was asked for"
    );
    assert_eq!(figure(&benches[0], 0, "errors"), 0.0, "{report}");
    for name in ["p50 us", "p99 us", "CPU us/req"] {
        assert!(figure(&benches[0], 0, name) > 0.0, "{name} in {report}");
    }
}

#[test]
fn what_operating_costs_is_measured() {
    let servers = "flatpath,flatpath-log,flatpath-log-json,flatpath-scraped,flatpath-operated";
    let arguments = ["--quick", "--only", "operate", "--servers", servers];
    let report = measured(&[&arguments[..], &["--clients", "50"]].concat());
    let bench = &benches(&report)[0];
    assert_eq!(rows(bench), 5, "{bench}");
    for row in 0..5 {
        assert!(figure(bench, row, "CPU us/req") > 0.0, "{bench}");
        assert_eq!(figure(bench, row, "lost"), 0.0, "{bench}");
        let scrapes = figure(bench, row, "scrapes");
        assert_eq!(scrapes > 0.0, row >= 3, "{bench}");
    }
    let targets = bench["targets"].as_array().map(Vec::len);
    assert_eq!(targets, Some(4), "{bench}");
}

#[test]
fn sleepers_are_told_apart_from_the_others() {
    let servers = "hyper-routed,hyper-blocking";
    let report = measured(&["--quick", "--only", "sleepers", "--servers", servers]);
    let bench = &benches(&report)[0];
    assert_eq!(rows(bench), 2);
    for row in 0..2 {
        assert_eq!(figure(bench, row, "errors"), 0.0, "{bench}");
        let sleeper = figure(bench, row, "sleeper p99");
        assert!(
            sleeper >= 10_000.0,
            "a sleeper cannot be quicker than its sleep: {bench}"
        );
    }
}

#[test]
fn a_small_crowd_is_served_and_its_memory_measured() {
    let arguments = ["--quick", "--only", "idle", "--servers", "hyper"];
    let report = measured(&[&arguments[..], &["--clients", "50", "--runs", "2"]].concat());
    let [idle] = benches(&report) else {
        panic!("{report}");
    };
    assert_eq!(figure(idle, 0, "served"), 100.0, "{report}");
    assert_eq!(figure(idle, 0, "lost"), 0.0, "{report}");
}

#[test]
fn two_builds_are_compared_with_each_other() {
    let builds = ["--before", "unused", "--before-peers", HARNESS];
    for now in ["flatpath-inline", "sockets-pooled"] {
        let servers = format!("library-before,{now}");
        let servers = ["--servers", &servers];
        let report = measured(&[&["--quick", "--only", "builds"], &builds[..], &servers].concat());
        let bench = benches(&report).iter().find(|bench| rows(bench) == 2);
        let bench = bench.expect("a comparison of both");
        for row in 0..2 {
            assert!(figure(bench, row, "CPU us/req") > 0.0, "{bench}");
        }
        let reached = bench["targets"][0]["reached"].as_f64();
        assert!(reached.is_some_and(|ratio| ratio > 0.0), "{bench}");
    }
}

/// The other scenarios, with the candidates that need nothing installed.
#[test]
fn ingest_relay_and_nfs_are_measured() {
    let report = measured(&[
        "--quick",
        "--only",
        "ingest,relay-rate,nfs-sweep",
        "--servers",
        "tokio-copying,bare",
        "--workers",
        "2,4",
        "--workload",
        "random-read",
    ]);
    let [sweep, ingest, relay] = benches(&report) else {
        panic!("{report}");
    };
    for row in 0..2 {
        assert!(figure(sweep, row, "ops/s") > 0.0, "{report}");
        assert!(figure(sweep, row, "dispatch ns") > 0.0, "{report}");
    }
    assert!(figure(ingest, 0, "GiB/s") > 0.0, "{report}");
    assert!(figure(relay, 0, "CPU us/pair") > 0.0, "{report}");
}

#[test]
fn comparing_builds_needs_the_other_one() {
    let output = Command::new(HARNESS)
        .args(["--only", "builds"])
        .output()
        .expect("the harness starts");
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.contains("name it with --before"), "{text}");
}

#[test]
fn a_missing_tool_is_named_with_its_package() {
    let output = Command::new(HARNESS)
        .args(["--only", "hello", "--servers", "hyper"])
        .env("PATH", "/nowhere")
        .output()
        .expect("the harness starts");
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(
        text.contains("not installed: wrk; on Debian: apt install wrk"),
        "{text}"
    );
}

#[test]
fn a_given_command_must_exist() {
    let arguments = ["--only", "sleepers", "--server-binary", "/no/such/flatpath"];
    let output = Command::new(HARNESS).args(arguments).output();
    let output = output.expect("the harness starts");
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(
        text.contains("--server-binary /no/such/flatpath:"),
        "{text}"
    );
}

#[test]
fn wrong_use_has_its_own_exit_status() {
    let output = Command::new(HARNESS)
        .args(["--only", "nothing"])
        .output()
        .expect("starts");
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn every_http_server_of_this_binary_answers_alike() {
    for kind in [
        "flatpath-inline",
        "flatpath-pooled",
        "flatpath-routed",
        "hyper",
        "hyper-blocking",
        "hyper-routed",
        "tiny-http",
    ] {
        let (_server, address) = serve(kind);
        for path in ["/hello", "/sleep"] {
            let mut socket = TcpStream::connect(address).expect("connected");
            socket.set_read_timeout(Some(LIMIT)).expect("set");
            let request =
                format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
            socket.write_all(request.as_bytes()).expect("sent");
            let mut reply = String::new();
            socket
                .read_to_string(&mut reply)
                .expect("answered and closed");
            assert!(reply.starts_with("HTTP/1.1 200 OK\r\n"), "{kind}: {reply}");
            assert!(reply.ends_with("\r\n\r\nHello, World!"), "{kind}: {reply}");
        }
    }
}

fn serve(kind: &str) -> (Guarded, SocketAddr) {
    let mut command = Command::new(HARNESS);
    command.args(["serve", kind]).stdout(Stdio::piped());
    let mut server = Guarded::start(&mut command);
    let mut lines = BufReader::new(server.0.stdout.take().expect("piped")).lines();
    let line = lines.next().expect("a line").expect("text");
    assert_eq!(lines.next().expect("a line").expect("text"), "ready");
    let address = line.rsplit(' ').next().expect("an address");
    (server, address.parse().expect("an address"))
}

#[test]
fn sigterm_ends_the_harness_and_everything_it_started() {
    let place = tempfile::tempdir().expect("temporary directory");
    let Some((mut harness, started)) = busy_harness(place.path()) else {
        return;
    };
    harness.signal(Signal::TERM);
    assert_eq!(harness.end().code(), Some(130));
    assert_gone(&started);
    let left = fs::read_dir(place.path()).expect("listed").count();
    assert_eq!(left, 0, "temporary directories are left behind");
}

#[test]
fn a_killed_harness_leaves_no_process_behind() {
    let place = tempfile::tempdir().expect("temporary directory");
    let Some((mut harness, started)) = busy_harness(place.path()) else {
        return;
    };
    harness.signal(Signal::KILL);
    assert!(!harness.end().success());
    assert_gone(&started);
}

/// A harness with a server and a load generator, both long at work; and their process numbers.
fn busy_harness(temporary: &Path) -> Option<(Guarded, BTreeSet<u32>)> {
    tools::find("wrk")?;
    let mut command = Command::new(HARNESS);
    command.args(["--only", "hello", "--servers", "hyper", "--seconds", "600"]);
    command
        .env("TMPDIR", temporary)
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let harness = Guarded::start(&mut command);
    let deadline = Instant::now() + LIMIT;
    loop {
        let started = children(harness.0.id());
        let working = |name| started.iter().any(|pid| command_name(*pid) == name);
        // Each has become its program: the launcher's work is done.
        if working("wrk") && started.len() == 2 {
            return Some((harness, started));
        }
        assert!(Instant::now() < deadline, "the load did not begin");
        thread::sleep(Duration::from_millis(20));
    }
}

fn children(pid: u32) -> BTreeSet<u32> {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return BTreeSet::new();
    };
    let lists = tasks
        .flatten()
        .map(|task| fs::read_to_string(task.path().join("children")));
    let numbers = |list: String| {
        list.split_ascii_whitespace()
            .filter_map(|pid| pid.parse().ok())
            .collect::<Vec<u32>>()
    };
    lists.flatten().flat_map(numbers).collect()
}

fn command_name(pid: u32) -> String {
    fs::read_to_string(format!("/proc/{pid}/comm"))
        .unwrap_or_default()
        .trim()
        .to_owned()
}

fn assert_gone(started: &BTreeSet<u32>) {
    let deadline = Instant::now() + LIMIT;
    for pid in started {
        // A zombie is gone too: whoever inherited it has yet to notice.
        while Path::new(&format!("/proc/{pid}/exe")).read_link().is_ok() {
            assert!(
                Instant::now() < deadline,
                "{} {pid} is left behind",
                command_name(*pid)
            );
            thread::sleep(Duration::from_millis(20));
        }
    }
}
