//! `--access-log`: a line for each reply and for each connection of other protocols, whatever
//! clients send and whatever becomes of the file.

use std::fs;
use std::path::Path;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use flatpath_testkit::{
    Client, Driver, Launch, Over, Server, Site, each_driver, until, until_true,
};
use regex::Regex;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::Signal;
use serde_json::Value;

each_driver!(
    every_reply_has_its_line,
    lines_of_both_formats_hold_what_clients_send,
    refused_requests_have_what_came_of_them_and_are_counted_by_reason,
    pipelined_replies_of_workers_have_their_lines_in_order,
    a_reply_that_is_broken_off_is_marked,
    connections_of_other_protocols_have_a_line,
    no_line_is_lost_when_the_file_is_renamed,
    a_log_that_cannot_be_written_stops_nothing,
    lines_for_standard_output_follow_ready,
    a_log_that_is_not_read_blocks_nothing_and_lines_are_counted,
    two_servers_append_whole_lines_to_one_file,
    connections_that_are_relayed_have_a_line,
);

pub(crate) fn launch(driver: Driver, site: &Site, log: &Path) -> Launch {
    let launch = Launch::serve(driver).directory(site.path());
    launch.with(["--access-log".as_ref(), log.as_os_str()])
}

/// The lines of a server that ends now.
pub(crate) fn lines_at_end(mut server: Server, log: &Path) -> Vec<String> {
    server.terminate();
    assert_eq!(server.exit_status().code(), Some(0));
    lines(log)
}

fn lines(log: &Path) -> Vec<String> {
    let text = fs::read_to_string(log).expect("the log is there");
    assert!(
        text.is_empty() || text.ends_with('\n'),
        "whole lines: {text:?}"
    );
    text.lines().map(str::to_owned).collect()
}

/// Of a combined line, everything behind the time.
pub(crate) fn behind_time(line: &str) -> &str {
    let (before, rest) = line.split_once("] ").expect("a time");
    assert!(before.starts_with("127.0.0.1 - - ["), "{line}");
    assert!(before.ends_with(" +0000"), "{line}");
    rest
}

fn every_reply_has_its_line(driver: Driver) {
    let site = Site::new()
        .with("small", "12345")
        .with("big", vec![7; 3_000_000]);
    let directory = tempfile::tempdir().expect("a directory");
    let log = directory.path().join("access");
    let server = launch(driver, &site, &log).with(["--writable"]).start();
    let mut client = server.client();
    let agent = [("User-Agent", "test/1"), ("Referer", "http://a/b")];
    assert_eq!(client.ask("/small", &agent).text(), "12345");
    assert_eq!(client.get("/missing").status, 404);
    assert_eq!(client.get("/big").body.len(), 3_000_000);
    client.send(b"HEAD /small HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_eq!(client.reply_to_head().status, 200);
    client.send(b"PUT /new HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nhello");
    assert_eq!(client.reply().status, 201);
    let mut old = server.client();
    old.send(b"GET /small HTTP/1.0\r\n\r\n");
    assert_eq!(old.reply().text(), "12345");
    let mut bad = server.client();
    bad.send(b"nonsense\r\n\r\n");
    assert_eq!(bad.reply().status, 400);
    drop(bad);
    let lines = lines_at_end(server, &log);
    let rest: Vec<_> = lines.iter().map(|line| behind_time(line)).collect();
    let missing_bytes = rest[1].split(' ').nth(4).expect("bytes");
    assert!(missing_bytes.parse::<u64>().expect("a number") > 0);
    let created = rest[4]
        .strip_prefix("\"PUT /new HTTP/1.1\" 201 ")
        .expect("it is 201");
    assert!(created.ends_with(" \"-\" \"-\""));
    assert_eq!(
        rest[0],
        "\"GET /small HTTP/1.1\" 200 5 \"http://a/b\" \"test/1\""
    );
    assert!(rest[1].starts_with("\"GET /missing HTTP/1.1\" 404 "));
    assert_eq!(rest[2], "\"GET /big HTTP/1.1\" 200 3000000 \"-\" \"-\"");
    assert_eq!(rest[3], "\"HEAD /small HTTP/1.1\" 200 0 \"-\" \"-\"");
    assert_eq!(rest[5], "\"GET /small HTTP/1.0\" 200 5 \"-\" \"-\"");
    assert!(rest[6].starts_with("\"nonsense\" 400 "), "{}", rest[6]);
    assert_eq!(rest.len(), 7);
}

/// What programs that read the combined format look for: the request, the status, the bytes, and
/// what is quoted after them.
fn fields(line: &str) -> [String; 5] {
    static LINE: LazyLock<Regex> = LazyLock::new(|| {
        let line = concat!(
            r#"^([^ ]+) ([^ ]+) ([^ ]+) "#,
            r#"\[([0-9]{2}/[A-Z][a-z]{2}/[0-9]{4}(?::[0-9]{2}){3} [-+][0-9]{4})\] "#,
            r#""([^"]*)" ([0-9]{3}) ([0-9]+) "([^"]*)" "([^"]*)"(?: "[a-z_]+")?$"#
        );
        Regex::new(line).expect("a regular expression")
    });
    let found = LINE.captures(line);
    let found = found.unwrap_or_else(|| panic!("no combined line: {line}"));
    [5, 6, 7, 8, 9].map(|field| found[field].to_owned())
}

fn lines_of_both_formats_hold_what_clients_send(driver: Driver) {
    const TARGET: &str = "/a'b%22%0a?<\\>\"";
    for format in ["combined", "json"] {
        let site = Site::new();
        let directory = tempfile::tempdir().expect("a directory");
        let log = directory.path().join("access");
        let launch = launch(driver, &site, &log);
        let server = launch.with(["--access-log-format", format]).start();
        let mut client = server.client();
        client.send(b"GET /a'b%22%0a HTTP/1.1\r\nHost: localhost\r\nReferer: \" 200 1 \"\r\n");
        client.send(b"User-Agent: \xff\"\\\t] \xc3\xa4\r\n\r\n");
        client.reply();
        // It is refused, and its line has it all the same.
        client.send(format!("GET {TARGET} HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes());
        assert_eq!(client.reply().status, 400);
        // What was refused lingers for as long as its client is there.
        drop(client);
        let lines = lines_at_end(server, &log);
        assert_eq!(lines.len(), 2, "{lines:?}");
        if format == "combined" {
            let [request, status, _, referer, agent] = fields(&lines[0]);
            assert_eq!(request, "GET /a'b%22%0a HTTP/1.1");
            assert_eq!(status, "404");
            assert_eq!(referer, r"\x22 200 1 \x22");
            assert_eq!(agent, r"\xFF\x22\x5C\x09] \xC3\xA4");
            let [request, status, ..] = fields(&lines[1]);
            assert_eq!(request, r"GET /a'b%22%0a?<\x5C>\x22 HTTP/1.1");
            assert_eq!(status, "400");
            assert!(lines[1].ends_with(" \"target\""), "{}", lines[1]);
        } else {
            let lines = json(&lines);
            assert_eq!(lines[0]["target"], "/a'b%22%0a");
            assert_eq!(lines[0]["referer"], "\" 200 1 \"");
            assert_eq!(lines[0]["user_agent"], "\u{fffd}\"\\\t] ä");
            assert_eq!(lines[0]["listener"], "http");
            assert_eq!(lines[0]["peer"], "127.0.0.1");
            assert_eq!(lines[0]["aborted"], false);
            assert!(lines[0]["seconds"].as_f64().is_some_and(|it| it >= 0.0));
            assert_eq!(lines[1]["target"], TARGET);
            assert_eq!(
                (&lines[1]["status"], &lines[1]["reason"]),
                (&400.into(), &"target".into())
            );
        }
    }
}

/// What is sent, its status, what its line has in the place of the request line, and why.
const REFUSED: &[(&str, u16, &str, &str)] = &[
    ("nonsense\r\n\r\n", 400, "nonsense", "request_line"),
    (
        "\u{16}\u{3}\u{1}hello",
        400,
        r"\x16\x03\x01hello",
        "request_line",
    ),
    (
        "GET /a b HTTP/1.1\r\n\r\n",
        400,
        "GET /a b HTTP/1.1",
        "request_line",
    ),
    ("GET /a HTTP/3.0\r\n\r\n", 505, "GET /a HTTP/3.0", "version"),
    (
        "\r\nGET /a HTTP/1.1\r\n\r\n",
        400,
        "GET /a HTTP/1.1",
        "host_missing",
    ),
    (
        "GET /a HTTP/1.1\r\nHost: h\r\n x\r\n\r\n",
        400,
        "GET /a HTTP/1.1",
        "folded_header",
    ),
    (
        "GET /a HTTP/1.1\nHost: h\n\n",
        400,
        "GET /a HTTP/1.1",
        "bare_line_feed",
    ),
    (
        "GET /../a HTTP/1.1\r\nHost: localhost\r\n\r\n",
        400,
        "GET /../a HTTP/1.1",
        "dot_segments",
    ),
    (
        "GET /a HTTP/1.1\r\nHost: elsewhere\r\n\r\n",
        421,
        "GET /a HTTP/1.1",
        "host_foreign",
    ),
    (
        "CONNECT h:1 HTTP/1.1\r\nHost: h\r\n\r\n",
        501,
        "CONNECT h:1 HTTP/1.1",
        "tunnel",
    ),
    (
        "PUT /a HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n\
         5\r\nhello\r\nz\r\n",
        400,
        "PUT /a HTTP/1.1",
        "chunk_size",
    ),
];

fn refused_requests_have_what_came_of_them_and_are_counted_by_reason(driver: Driver) {
    let (site, directory) = (Site::new(), tempfile::tempdir().expect("a directory"));
    let log = directory.path().join("access");
    let launch = launch(driver, &site, &log).with(["--writable", "--admin", "127.0.0.1:0"]);
    let server = launch.with(["--head-timeout", "1s"]).start();
    let refused = |sent: &[u8], status: u16| {
        let mut client = server.client();
        client.send(sent);
        assert_eq!(client.reply().status, status, "{sent:?}");
    };
    for (sent, status, ..) in REFUSED {
        refused(sent.as_bytes(), *status);
    }
    let long = format!("GET /{}", "x".repeat(20_000));
    refused(long.as_bytes(), 414);
    refused(b"GET /late HTTP/1.1\r\nHost: lo", 408);
    let metrics = Client::connect(server.address("admin")).get("/metrics");
    let count = |reason: &str| {
        let mut lines = metrics.text().lines();
        let reason = format!("reason=\"{reason}\"");
        let line = lines.find(|line| {
            line.starts_with("flatpath_requests_refused_total{listener=\"http\"")
                && line.contains(&reason)
        });
        line.and_then(|line| line.rsplit(' ').next()?.parse::<u64>().ok())
    };
    for (_, _, _, reason) in REFUSED {
        let expected = REFUSED.iter().filter(|(.., other)| other == reason).count();
        assert_eq!(count(reason), Some(expected as u64), "{reason}");
    }
    assert_eq!(
        [count("target_too_long"), count("head_timeout")],
        [Some(1); 2]
    );
    assert_eq!(count("chunk_end"), Some(0), "each reason is there");
    let lines = lines_at_end(server, &log);
    let of_client = lines.iter().map(|line| behind_time(line));
    let lines: Vec<&str> = of_client
        .filter(|line| !line.contains("/metrics"))
        .collect();
    let shown = &long[..1024];
    let others = [
        (shown, 414, "target_too_long"),
        ("GET /late HTTP/1.1", 408, "head_timeout"),
    ];
    let all = REFUSED
        .iter()
        .map(|(_, status, line, reason)| (*line, *status, *reason));
    let all: Vec<_> = all.chain(others).collect();
    assert_eq!(lines.len(), all.len(), "{lines:#?}");
    for (logged, (line, status, reason)) in lines.iter().zip(all) {
        assert!(
            logged.starts_with(&format!("\"{line}\" {status} ")),
            "{logged}"
        );
        assert!(
            logged.ends_with(&format!("\"-\" \"-\" \"{reason}\"")),
            "{logged}"
        );
    }
}

fn pipelined_replies_of_workers_have_their_lines_in_order(driver: Driver) {
    const COUNT: usize = 40;
    let mut site = Site::new();
    for number in 0..COUNT {
        site = site.with(&format!("f{number}"), vec![7; 70_000 + number]);
    }
    let directory = tempfile::tempdir().expect("a directory");
    let log = directory.path().join("access");
    let server = launch(driver, &site, &log).start();
    let mut client = server.client();
    let requests =
        (0..COUNT).map(|number| format!("GET /f{number} HTTP/1.1\r\nHost: localhost\r\n\r\n"));
    client.send(requests.collect::<String>().as_bytes());
    for number in 0..COUNT {
        assert_eq!(client.reply().body.len(), 70_000 + number);
    }
    let lines = lines_at_end(server, &log);
    let rest: Vec<_> = lines
        .iter()
        .map(|line| behind_time(line).to_owned())
        .collect();
    let owed = |number| {
        format!(
            "\"GET /f{number} HTTP/1.1\" 200 {} \"-\" \"-\"",
            70_000 + number
        )
    };
    assert_eq!(rest, (0..COUNT).map(owed).collect::<Vec<_>>());
}

/// The bytes are those that the kernel took, and not those that were queued.
fn a_reply_that_is_broken_off_is_marked(driver: Driver) {
    const BYTES: u64 = 64 << 20;
    let site = Site::new().with("big", vec![7; BYTES as usize]);
    let directory = tempfile::tempdir().expect("a directory");
    let log = directory.path().join("access");
    let launch = launch(driver, &site, &log);
    let server = launch.with(["--access-log-format", "json"]).start();
    let mut client = Client::connect_with_window(server.address("http"), 4096);
    client.request("GET", "/big", &[]);
    client.exactly(1000);
    client.reset();
    until("the line", || (!lines(&log).is_empty()).then_some(()));
    let lines = json(&lines_at_end(server, &log));
    assert_eq!(lines[0]["aborted"], true);
    assert_eq!(lines[0]["status"], 200);
    let bytes = lines[0]["bytes"].as_u64().expect("a number");
    assert!((1..BYTES).contains(&bytes), "{bytes}");
    assert_eq!(lines.len(), 1);
}

fn json(lines: &[String]) -> Vec<Value> {
    let lines = lines.iter();
    let lines = lines.map(|line| serde_json::from_str(line).expect("JSON"));
    lines.collect()
}

fn connections_of_other_protocols_have_a_line(driver: Driver) {
    let site = Site::new();
    let directory = tempfile::tempdir().expect("a directory");
    let log = directory.path().join("access");
    let server = launch(driver, &site, &log).echo().start();
    let mut echo = server.echo_client();
    echo.send(b"12345");
    assert_eq!(echo.exactly(5), b"12345");
    drop(echo);
    until("the line", || (lines(&log).len() == 1).then_some(()));
    let lines = lines_at_end(server, &log);
    assert_eq!(
        behind_time(&lines[0]),
        "\"connection echo\" 200 5 \"-\" \"-\""
    );
}

fn no_line_is_lost_when_the_file_is_renamed(driver: Driver) {
    const ROUNDS: usize = 5;
    const EACH: usize = 400;
    let site = Site::new().with("small", "12345");
    let directory = tempfile::tempdir().expect("a directory");
    let log = directory.path().join("access");
    let server = launch(driver, &site, &log).start();
    let mut client = server.client();
    for round in 0..ROUNDS {
        for number in 0..EACH {
            client.get(&format!("/small?{round}-{number}"));
            if number == EACH / 2 {
                fs::rename(&log, directory.path().join(format!("access.{round}")))
                    .expect("renamed");
                server.process().signal(Signal::HUP);
            }
        }
        until("a new file", || log.exists().then_some(()));
    }
    assert_eq!(client.get("/small").status, 200, "the server goes on");
    let mut all = Vec::new();
    let last = lines_at_end(server, &log);
    for round in 0..ROUNDS {
        all.extend(lines(&directory.path().join(format!("access.{round}"))));
    }
    all.extend(last);
    let asked = (0..ROUNDS).flat_map(|round| (0..EACH).map(move |number| (round, number)));
    let asked = asked.map(|(round, number)| format!("\"GET /small?{round}-{number} HTTP/1.1\" "));
    for (line, owed) in all.iter().zip(asked) {
        assert!(
            behind_time(line).starts_with(&owed),
            "{line} instead of {owed}"
        );
    }
    assert_eq!(all.len(), ROUNDS * EACH + 1);
}

fn a_log_that_cannot_be_written_stops_nothing(driver: Driver) {
    let site = Site::new().with("small", "12345");
    let launch = launch(driver, &site, Path::new("/dev/full"));
    let mut server = launch.start();
    let mut client = server.client();
    for _ in 0..1000 {
        assert_eq!(client.get("/small").text(), "12345");
    }
    server.await_log("access log: cannot be written");
    assert_eq!(client.get("/small").text(), "12345");
    server.terminate();
    assert_eq!(server.exit_status().code(), Some(0));
    let log = server.log();
    assert_eq!(log.matches("cannot be written").count(), 1, "{log}");
    assert!(log.contains("access log: 1001 lines dropped"), "{log}");
}

fn lines_for_standard_output_follow_ready(driver: Driver) {
    let site = Site::new().with("small", "12345");
    // Only the lines of listeners and `ready` may come before: else this does not start.
    let mut server = launch(driver, &site, Path::new("-")).start();
    assert_eq!(server.client().get("/small").text(), "12345");
    server.terminate();
    assert_eq!(server.exit_status().code(), Some(0));
}

/// A pipe that nothing reads is a disk that has stopped.
fn a_log_that_is_not_read_blocks_nothing_and_lines_are_counted(driver: Driver) {
    // More than the pipe, the slot of the writer and the network thread take.
    const REQUESTS: usize = 400;
    let site = Site::new().with("small", "12345");
    let directory = tempfile::tempdir().expect("a directory");
    let pipe = directory.path().join("access");
    mknodat(CWD, &pipe, FileType::Fifo, Mode::RWXU, 0).expect("a pipe");
    let launch = launch(driver, &site, &pipe);
    let mut server = launch.with(["--admin", "127.0.0.1:0"]).start();
    let (mut client, agent) = (server.client(), "a".repeat(12_000));
    for _ in 0..REQUESTS {
        let reply = client.ask("/small", &[("User-Agent", &agent)]);
        assert_eq!(reply.text(), "12345");
    }
    let dropped = until("lines to be dropped", || {
        let metrics = Client::connect(server.address("admin")).get("/metrics");
        let count = metrics.text().lines().find_map(|line| {
            let count = line.strip_prefix("flatpath_access_log_dropped_lines_total ");
            count.map(|count| count.parse::<f64>().expect("a number"))
        });
        count.filter(|count| *count > 0.0)
    });
    assert!(dropped < REQUESTS as f64, "{dropped}: there is some room");
    assert_eq!(client.get("/small").text(), "12345");
    server.terminate();
    assert_eq!(server.exit_status().code(), Some(0));
    assert!(server.log().contains("flush timed out"), "{}", server.log());
}

fn two_servers_append_whole_lines_to_one_file(driver: Driver) {
    let site = Site::new().with("small", "12345");
    let directory = tempfile::tempdir().expect("a directory");
    let (log, path) = (
        directory.path().join("access"),
        directory.path().join("next"),
    );
    let start = || {
        let launch = launch(driver, &site, &log).with(["--drain-idle-timeout", "60"]);
        launch
            .with(["--handover".as_ref(), path.as_os_str()])
            .start()
    };
    let mut first = start();
    let (address, is_over) = (first.address("http"), Over::default());
    let asked = AtomicUsize::new(0);
    let ask = || {
        let mut client = Client::connect(address);
        while !is_over.is_set() {
            let number = asked.fetch_add(1, Ordering::Relaxed);
            let reply = client.get(&format!("/small?{number}"));
            assert_eq!(reply.text(), "12345");
            if reply.says_close() {
                client = Client::connect(address);
            }
        }
    };
    let ask_more = || {
        let before = asked.load(Ordering::Relaxed);
        until_true("requests", || asked.load(Ordering::Relaxed) > before + 500);
    };
    let second = std::thread::scope(|scope| {
        let _ends = is_over.at_end();
        let clients = [scope.spawn(ask), scope.spawn(ask)];
        ask_more();
        let second = start();
        assert_eq!(first.exit_status().code(), Some(0), "{}", first.log());
        ask_more();
        is_over.set();
        for client in clients {
            client.join().expect("no request was lost");
        }
        second
    });
    let mut requests: Vec<_> = lines_at_end(second, &log)
        .iter()
        .map(|line| fields(line)[0].clone())
        .collect();
    let mut owed: Vec<_> = (0..asked.load(Ordering::Relaxed))
        .map(|number| format!("GET /small?{number} HTTP/1.1"))
        .collect();
    requests.sort();
    owed.sort();
    assert_eq!(requests, owed);
}

fn connections_that_are_relayed_have_a_line(driver: Driver) {
    const BYTES: u64 = 300_000;
    let site = Site::new();
    let directory = tempfile::tempdir().expect("a directory");
    let log = directory.path().join("access");
    let launch = launch(driver, &site, &log).with(["--access-log-format", "json"]);
    let server = launch.with(["--relay", "127.0.0.1:0"]).start();
    let greeting = |side: &str| format!("please relay {} for side {side}\n", "a".repeat(64));
    let (one, other) = (greeting("0000000000000001"), greeting("0000000000000002"));
    let mut from = Client::connect(server.address("relay"));
    let mut to = Client::connect(server.address("relay"));
    from.send(one.as_bytes());
    to.send(other.as_bytes());
    assert_eq!(
        (from.exactly(3), to.exactly(3)),
        (b"ok\n".to_vec(), b"ok\n".to_vec())
    );
    from.send(vec![7; BYTES as usize]);
    assert_eq!(to.exactly(BYTES as usize).len() as u64, BYTES);
    drop((from, to));
    until("the lines", || (lines(&log).len() == 2).then_some(()));
    let greeting_bytes = one.len() as u64;
    let mut seen: Vec<_> = json(&lines_at_end(server, &log))
        .iter()
        .map(|line| (line["received"].as_u64(), line["sent"].as_u64()))
        .collect();
    seen.sort();
    let sender = (Some(greeting_bytes + BYTES), Some(3));
    assert_eq!(seen, [(Some(greeting_bytes), Some(3 + BYTES)), sender]);
}
