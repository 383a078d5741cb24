//! `flatpath serve` as its users meet it: files, signals, exit codes, messages.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::Command;
use std::time::Duration;

use crate::support::{
    Client, DEADLINE, DRIVERS, Served, assert_wrong_use, get, run, run_command, site,
};
use rustix::process::Signal;
use tempfile::TempDir;

/// Bytes that repeat at no power of two.
fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at % 251) as u8).collect()
}

fn serve(folder: &TempDir, driver: &str, more: &[&str]) -> Served {
    let arguments = [&["--http", "127.0.0.1:0", "--driver", driver], more].concat();
    Served::start(folder.path(), &arguments)
}

#[test]
fn a_directory_is_served_until_a_signal_comes() {
    for (driver, signal) in DRIVERS.into_iter().zip([Signal::TERM, Signal::INT]) {
        let folder = site();
        let served = serve(&folder, driver, &["."]);
        assert_eq!(served.listening.len(), 1);
        assert_eq!(served.listening[0].0, "http");
        let address = served.address();
        let mut client = Client::connect(address);
        for _ in 0..3 {
            let reply = client.get("/hello.txt", "");
            assert_eq!((reply.status, reply.text()), (200, "hello\n"));
            assert!(reply.field("Date").is_some());
        }
        assert_eq!(client.get("/sub", "").field("Location"), Some("/sub/"));
        assert!(client.get("/sub/", "").text().contains("./page.html"));
        assert_eq!(client.get("/none", "").status, 404);
        assert_eq!(client.get("/.hidden", "").status, 404);
        assert_eq!(client.get("/../secret", "").status, 400);
        served.signal(signal);
        let (code, log) = served.end();
        assert_eq!(code, Some(0), "{log}");
    }
}

#[test]
fn large_files_ranges_and_conditions_work_over_real_sockets() {
    for driver in DRIVERS {
        let folder = site();
        let content = pattern(9_000_001);
        fs::write(folder.path().join("large.bin"), &content).expect("write");
        let served = serve(&folder, driver, &[]);
        std::thread::sleep(Duration::from_millis(40));
        let mut client = Client::connect(served.address());
        let whole = client.get("/large.bin", "");
        assert!(
            whole.body == content,
            "{} bytes of {}",
            whole.body.len(),
            content.len()
        );
        let part = client.get("/large.bin", "Range: bytes=4000000-8999999\r\n");
        assert_eq!(part.status, 206);
        assert!(part.body == content[4_000_000..9_000_000]);
        let tag = whole.field("ETag").expect("a tag");
        let again = client.get("/large.bin", &format!("If-None-Match: {tag}\r\n"));
        assert_eq!((again.status, again.body.len()), (304, 0));
        let several = client.get("/large.bin", "Range: bytes=0-9,100-109\r\n");
        assert_eq!(several.status, 206);
        assert!(
            several
                .field("Content-Type")
                .is_some_and(|media| media.starts_with("multipart/"))
        );
        let hello = client.get("/hello.txt", "");
        assert_eq!(hello.text(), "hello\n", "the connection is still in step");
    }
}

#[test]
fn a_file_that_shrinks_in_mid_transfer_ends_the_connection() {
    for driver in DRIVERS {
        let folder = site();
        let path = folder.path().join("large.bin");
        let length = 64 << 20;
        fs::File::create(&path)
            .expect("create")
            .set_len(length)
            .expect("grow");
        let served = serve(&folder, driver, &[]);
        let mut client = Client::connect(served.address());
        client.ask("/large.bin", "");
        let (status, _, promised) = client.head();
        assert_eq!((status, promised as u64), (200, length));
        fs::File::options()
            .write(true)
            .open(&path)
            .expect("open")
            .set_len(1_000)
            .expect("shrink");
        let mut body = Vec::new();
        // A reset is as good an end as a close: both say that something is missing.
        let _ = client.stream.read_to_end(&mut body);
        assert!((body.len() as u64) < length, "bytes were made up");
        assert!(body.iter().all(|byte| *byte == 0));
        assert_eq!(get(served.address(), "/hello.txt").text(), "hello\n");
    }
}

#[test]
fn what_clients_may_change_is_announced() {
    let (folder, state) = (site(), tempfile::tempdir().expect("tempdir"));
    let state = state.path().to_str().expect("utf-8");
    let any = "127.0.0.1:0";
    let all = [
        "--http",
        any,
        "--nfs",
        any,
        "--nfs-state",
        state,
        "--echo",
        any,
    ];
    let reads = Served::start(folder.path(), &all);
    assert_eq!((reads.listening.len(), reads.writable.len()), (3, 0));
    let writes = Served::start(folder.path(), &[&all[..], &["--writable"]].concat());
    assert_eq!(writes.writable, ["http", "nfs"]);
}

#[test]
fn every_listener_is_announced_in_order_and_works() {
    let folder = site();
    let any = "127.0.0.1:0";
    let served = Served::start(
        folder.path(),
        &["--http", any, "--echo", any, "--http", "[::1]:0", "sub"],
    );
    let names: Vec<_> = served
        .listening
        .iter()
        .map(|(name, _)| name.as_str())
        .collect();
    assert_eq!(names, ["http", "http", "echo"]);
    assert_eq!(get(served.listening[0].1, "/page.html").text(), "<p>page");
    assert_eq!(get(served.listening[1].1, "/page.html").text(), "<p>page");
    let mut echo = Client::connect(served.listening[2].1);
    echo.send("hello");
    let mut received = [0; 5];
    echo.stream.read_exact(&mut received).expect("read");
    assert_eq!(&received, b"hello");
}

#[test]
fn a_port_alone_is_one_of_this_machine_and_levels_are_chosen() {
    let folder = site();
    let served = Served::start(folder.path(), &["--log", "off", "-p", "0"]);
    assert!(served.address().ip().is_loopback());
    served.signal(Signal::TERM);
    let (code, log) = served.end();
    assert_eq!((code, log.as_str()), (Some(0), ""));
}

#[test]
fn echo_alone_needs_no_directory() {
    let folder = site();
    let served = Served::start(folder.path(), &["--echo", "127.0.0.1:0"]);
    assert_eq!(served.listening.len(), 1);
    assert_eq!(served.listening[0].0, "echo");
}

#[test]
fn hidden_files_are_served_when_asked_for() {
    let folder = site();
    let served = serve(&folder, "auto", &["--hidden"]);
    assert_eq!(get(served.address(), "/.hidden").text(), "hidden");
}

#[test]
fn the_log_says_which_driver_is_used_and_why_and_what_is_too_much() {
    let folder = site();
    let processors = std::thread::available_parallelism().expect("known").get();
    let threads = (processors + 1).to_string();
    let served = serve(&folder, "epoll", &["--network-threads", &threads]);
    served.signal(Signal::TERM);
    let (code, log) = served.end();
    assert_eq!(code, Some(0));
    assert!(log.contains("driver epoll: "), "{log}");
    let too_much = format!("{threads} network threads on {processors} processors");
    assert!(log.contains(&too_much), "{log}");
}

#[test]
fn a_drain_finishes_what_is_in_flight() {
    for driver in DRIVERS {
        let folder = site();
        let content = pattern(32 << 20);
        fs::write(folder.path().join("large.bin"), &content).expect("write");
        let mut served = serve(&folder, driver, &[]);
        let address = served.address();
        let mut idle = Client::connect(address);
        idle.get("/hello.txt", "");
        let mut busy = Client::connect(address);
        busy.ask("/large.bin", "");
        let (_, _, length) = busy.head();
        served.signal(Signal::TERM);
        // The kept connection without a request is closed at once.
        let mut rest = Vec::new();
        idle.stream.read_to_end(&mut rest).expect("a clean end");
        assert!(rest.is_empty());
        assert!(served.is_running(), "it waits for the download");
        let mut body = vec![0; length];
        busy.stream.read_exact(&mut body).expect("the whole body");
        assert!(body == content);
        busy.stream.read_to_end(&mut rest).expect("a clean end");
        assert_eq!(served.end().0, Some(0));
    }
}

/// A download that its client does not read.
fn stuck(folder: &TempDir, served: &Served) -> Client {
    let path = folder.path().join("endless.bin");
    fs::File::create(path)
        .expect("create")
        .set_len(1 << 30)
        .expect("grow");
    let mut client = Client::connect(served.address());
    client.ask("/endless.bin", "");
    client.head();
    client
}

#[test]
fn a_second_signal_forces() {
    for driver in DRIVERS {
        let folder = site();
        let mut served = serve(
            &folder,
            driver,
            &["--write-timeout", "3600", "--drain-timeout", "3600"],
        );
        let _client = stuck(&folder, &served);
        served.signal(Signal::TERM);
        // Accepting has stopped when no client can connect any more.
        let deadline = std::time::Instant::now() + DEADLINE;
        while std::net::TcpStream::connect(served.address()).is_ok() {
            assert!(std::time::Instant::now() < deadline, "it still accepts");
            std::thread::sleep(Duration::from_millis(10));
        }
        assert!(served.is_running(), "it waits for the download");
        served.signal(Signal::INT);
        let (code, log) = served.end();
        assert!(code.is_some(), "ended by itself: {log}");
    }
}

#[test]
fn a_drain_ends_at_its_deadline() {
    let folder = site();
    let served = serve(
        &folder,
        "auto",
        &["--write-timeout", "3600", "--drain-timeout", "0.2"],
    );
    let _client = stuck(&folder, &served);
    served.signal(Signal::TERM);
    let (code, log) = served.end();
    assert!(code.is_some(), "ended by itself: {log}");
}

#[test]
fn a_signal_right_after_ready_is_handled() {
    let folder = site();
    for _ in 0..20 {
        let served = serve(&folder, "epoll", &[]);
        served.signal(Signal::TERM);
        let (code, log) = served.end();
        assert_eq!(code, Some(0), "{log}");
    }
}

#[test]
fn a_head_that_does_not_end_is_cut_off() {
    let folder = site();
    let served = serve(&folder, "auto", &["--head-timeout", "0.2"]);
    let mut client = Client::connect(served.address());
    client
        .stream
        .get_mut()
        .write_all(b"GET / HTTP/1.1\r\nHost:")
        .expect("write");
    let mut rest = Vec::new();
    client.stream.read_to_end(&mut rest).expect("an end");
}

#[test]
fn a_taken_port_is_a_failure_that_names_it() {
    let folder = site();
    let taken = TcpListener::bind("127.0.0.1:0").expect("bind");
    let address = taken.local_addr().expect("address").to_string();
    let ended = run(&[
        "serve",
        "--http",
        &address,
        folder.path().to_str().expect("utf-8"),
    ]);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(1), ""));
    for part in [address.as_str(), "taken", "--http"] {
        assert!(ended.stderr.contains(part), "{part} in {}", ended.stderr);
    }
}

#[test]
fn too_few_descriptors_are_a_failure_that_says_how_many_are_needed() {
    let folder = site();
    for count in [8, 20] {
        let script = format!("ulimit -n {count}; exec \"$0\" serve --http 0 \"$1\"");
        let mut command = Command::new("sh");
        command.args(["-c", &script, env!("CARGO_BIN_EXE_flatpath")]);
        let ended = run_command(command.arg(folder.path()));
        assert!(matches!(ended.code, Some(1 | 2)), "{ended:?}");
        let words = format!("may open {count} descriptors, and needs 24 at least");
        assert!(ended.stderr.contains(&words), "{ended:?}");
    }
}

#[test]
fn a_second_server_with_several_threads_does_not_join_the_first() {
    let folder = site();
    let served = serve(&folder, "auto", &["--network-threads", "2"]);
    let address = served.address().to_string();
    let dir = folder.path().to_str().expect("utf-8");
    let ended = run(&["serve", "--network-threads", "2", "--http", &address, dir]);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(1), ""));
    assert!(ended.stderr.contains("taken"), "{}", ended.stderr);
    assert_eq!(get(served.address(), "/hello.txt").text(), "hello\n");
}

#[test]
fn a_registration_without_rpcbind_fails_and_says_why() {
    if std::net::TcpStream::connect("127.0.0.1:111").is_ok() {
        eprintln!("not run: this machine has an rpcbind, which is not ours to change");
        return;
    }
    let folder = site();
    let state = tempfile::tempdir().expect("tempdir");
    let dir = folder.path().to_str().expect("utf-8");
    let state = state.path().to_str().expect("utf-8");
    let nfs = ["--nfs", "127.0.0.1:0", "--nfs-state", state];
    let ended = run(&[&["serve", dir], &nfs[..], &["--nfs-register"]].concat());
    assert_eq!(ended.code, Some(1), "{ended:?}");
    for part in ["--nfs-register", "no rpcbind answers at 127.0.0.1:111"] {
        assert!(ended.stderr.contains(part), "{ended:?}");
    }
    assert!(!ended.stdout.contains("ready"), "{ended:?}");
}

#[test]
fn wrong_use_of_flags_ends_with_code_2_and_names_the_flag() {
    let folder = site();
    let dir = folder.path().to_str().expect("utf-8");
    let any = "127.0.0.1:0";
    for (arguments, parts) in [
        (&["--echo", any][..], &["--echo", "--http"][..]),
        (&["--resp", any], &["--resp"]),
        (
            &["--nfs", any, "--nfs-allow", "10.0.0.0/33"],
            &["--nfs-allow", "10.0.0.0/8"],
        ),
        (&["--http", "8080x"], &["--http", "HOST:PORT"]),
        (&["--workers", "4..2"], &["--workers", "MAX at least MIN"]),
        (
            &["--network-threads", "0"],
            &["--network-threads", "at least 1"],
        ),
        (
            &["--memory", "1K", "--http", any],
            &["--memory", "at least"],
        ),
        (&["--driver", "kqueue"], &["--driver", "auto, uring, epoll"]),
        (&["--accept", "many"], &["--accept", "multishot, single"]),
        (&["--idle-timeout", "0"], &["--idle-timeout", "seconds"]),
        (&["another"], &["unexpected argument"]),
    ] {
        assert_wrong_use(&[&["serve", dir], arguments].concat(), parts);
    }
    for (name, parts) in [
        (
            "FLATPATH_WRITABLE",
            ["true, false", "variable FLATPATH_WRITABLE"],
        ),
        ("FLATPATH_MEMORY", ["256M", "variable FLATPATH_MEMORY"]),
    ] {
        let run = |arguments: &[&str]| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_flatpath"));
            let ended = run_command(command.args(arguments).env(name, "1Q"));
            assert_eq!(ended.code, Some(2), "{}", ended.stderr);
            ended.stderr
        };
        let errors = run(&["serve", dir]);
        assert!(parts.iter().all(|it| errors.contains(it)), "{errors}");
        // Not where the command line is wrong.
        let flag = format!("--{}=2Q", name["FLATPATH_".len()..].to_lowercase());
        let errors = run(&["serve", dir, &flag]);
        assert!(errors.contains("2Q") && !errors.contains(name), "{errors}");
    }
    assert_wrong_use(&["sreve"], &["sreve"]);
    assert_wrong_use(&["--log", "flatpath=loud", "doctor"], &["--log", "debug"]);
    assert_wrong_use(&["--log", "inof", "doctor"], &["--log", "mean info?"]);
    assert_wrong_use(&[], &["Usage"]);
}

#[test]
fn what_likely_is_a_mistake_is_warned_of() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flatpath"));
    command.args(["serve", "/no/such/directory", "--memory", "900T"]);
    let ended = run_command(command.env("FLATPATH_WRITEABLE", "true"));
    for part in [
        "FLATPATH_WRITEABLE has no effect: did you mean FLATPATH_WRITABLE?",
        "--memory 900T is more than the ",
    ] {
        assert!(ended.stderr.contains(part), "{}", ended.stderr);
    }
}

#[test]
fn a_wrong_directory_or_configuration_ends_with_code_2() {
    let folder = site();
    let dir = folder.path().to_str().expect("utf-8");
    let file = format!("{dir}/hello.txt");
    let missing = format!("{dir}/missing");
    let config = format!("{dir}/config.toml");
    fs::write(&config, "max-conections = 10\n").expect("write");
    let any = ["--http", "127.0.0.1:0"];
    let with = |dir: &str, parts: &[&str]| {
        assert_wrong_use(&["serve", dir, any[0], any[1]], parts);
    };
    with(&missing, &["cannot serve", "missing", "No such file"]);
    with(&file, &["cannot serve", "hello.txt", "directory"]);
    assert_wrong_use(
        &["serve", "--config", &config],
        &["config.toml:1:1: ", "max-conections", "--max-connections"],
    );
    fs::write(&config, "log = \"inof\"\n").expect("write");
    for command in [&["check", &config][..], &["serve", "--config", &config]] {
        assert_wrong_use(command, &["config.toml:1:1: ", "inof", "mean info?"]);
    }
    assert_wrong_use(
        &["serve", "--config", &missing],
        &["configuration ", "No such file"],
    );
}

#[test]
fn help_and_version_are_fine() {
    for arguments in [
        &["--help"][..],
        &["help"],
        &["help", "serve"],
        &["--version"],
        &["version"],
        &["serve", "--help"],
    ] {
        let ended = run(arguments);
        assert_eq!(ended.code, Some(0));
        assert!(
            ended.stdout.contains("flatpath") || ended.stdout.contains("Usage"),
            "{ended:?}"
        );
    }
    let help = run(&["serve", "--help"]).stdout;
    assert!(help.contains("--nfs ") && help.contains("--nfs-state"));
    assert!(help.contains("--relay ") && help.contains("--relay-waiting"));
    assert!(help.contains("--ingest ") && help.contains("--ingest-socket"));
    assert!(!help.contains("--resp"), "--resp is not offered yet");
}
