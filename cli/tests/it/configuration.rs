//! Where the settings of `flatpath serve` come from: file, environment, command line.

use std::fs;
use std::io::Read;
use std::process::Command;

use crate::support::{Client, DRIVERS, Served, assert_wrong_use, get, run, run_command, site};
use rustix::process::Signal;

#[test]
fn a_configuration_file_says_the_same_and_the_command_line_wins() {
    let folder = site();
    let config = "dir = \"sub\"\nhttp = \"127.0.0.1:0\"\nhidden = true\nnetwork-threads = 2\n";
    fs::write(folder.path().join("flatpath.toml"), config).expect("write");
    let served = Served::start(folder.path(), &["--config", "flatpath.toml"]);
    assert_eq!(get(served.address(), "/page.html").text(), "<p>page");
    drop(served);
    let more = ["--config", "flatpath.toml", "--hidden=false", "."];
    let served = Served::start(folder.path(), &more);
    assert_eq!(get(served.address(), "/hello.txt").text(), "hello\n");
    assert_eq!(get(served.address(), "/.hidden").status, 404);
}

#[test]
fn tables_of_the_file_are_listeners_with_settings_and_limits_of_their_own() {
    let folder = site();
    fs::write(folder.path().join("sub/.dotted"), "dotted").expect("write");
    let config = "dir = \".\"\nhttp = \"127.0.0.1:0\"\n\
        [[listener]]\nprotocol = \"http\"\naddress = [0, 0]\ndir = \"sub\"\nhidden = true\n\
        idle-timeout = 0.2\n\
        [[listener]]\nprotocol = \"http\"\naddress = 0\nwritable = true\nmax-connections = 1\n\
        [[listener]]\nprotocol = \"echo\"\naddress = 0\n\
        [[listener]]\nprotocol = \"relay\"\naddress = 0\n\
        [[listener]]\nprotocol = \"relay\"\naddress = 0\n";
    fs::write(folder.path().join("flatpath.toml"), config).expect("write");
    for driver in DRIVERS {
        let served = Served::start(
            folder.path(),
            &["--config", "flatpath.toml", "--driver", driver],
        );
        let names: Vec<_> = served.listening.iter().map(|(name, _)| &**name).collect();
        let all = ["http", "http", "http", "http", "echo", "relay", "relay"];
        assert_eq!(names, all);
        let address = |number: usize| served.listening[number].1;
        assert_eq!(get(address(0), "/hello.txt").text(), "hello\n");
        assert_eq!(get(address(0), "/sub/.dotted").status, 404);
        for number in [1, 2] {
            assert_eq!(get(address(number), "/.dotted").text(), "dotted");
        }
        // Idle for too long here, and not there.
        let mut patient = Client::connect(address(0));
        patient.get("/hello.txt", "");
        let mut hasty = Client::connect(address(1));
        hasty.get("/.dotted", "");
        let mut rest = Vec::new();
        hasty.stream.read_to_end(&mut rest).expect("a clean end");
        assert_eq!(patient.get("/hello.txt", "").status, 200);
        // The one place of the listener goes to the newcomer.
        let mut first = Client::connect(address(3));
        assert_eq!(first.get("/hello.txt", "").status, 200);
        let mut second = Client::connect(address(3));
        second.send("PUT /new HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\nnew");
        assert_eq!(
            second.head().0,
            if driver == DRIVERS[0] { 201 } else { 204 }
        );
        first.stream.read_to_end(&mut rest).expect("closed for it");
        assert_eq!(get(address(0), "/new").text(), "new");
        served.signal(Signal::TERM);
        let (code, log) = served.end();
        assert_eq!(code, Some(0), "{log}");
    }
}

#[test]
fn check_prints_what_a_file_comes_to_or_where_it_is_wrong() {
    let folder = site();
    let path = folder.path().join("flatpath.toml");
    let file = path.to_str().expect("utf-8");
    let dir = folder.path().to_str().expect("utf-8");
    let listener = "[[listener]]\nprotocol = \"http\"\naddress = 80\n";
    fs::write(
        &path,
        format!("dir = {dir:?}\nmemory = \"64M\"\n{listener}hidden = true\n"),
    )
    .expect("write");
    let ended = run(&["check", file]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    for part in [
        "memory = \"64M\"\n",
        "# idle-timeout: not set; default: 75s; SIGHUP reloads it\n",
        "hidden = true\n",
    ] {
        assert!(ended.stdout.contains(part), "{part} in {ended:?}");
    }
    for (text, parts) in [
        ("dir = \"none\"", &["cannot serve directory none"][..]),
        ("dir = ", &["flatpath.toml:1:"]),
        ("memory = \"1M\"", &["too little"]),
        ("ingest = 1", &["--ingest-socket"]),
        ("http = 80\necho = 80", &["127.0.0.1:80", "two listeners"]),
        (
            &format!("http = 80\n{listener}"),
            &["127.0.0.1:80", "two listeners"],
        ),
        (
            &format!("{listener}hiden = 1"),
            &["flatpath.toml:4:1: ", "--hidden"],
        ),
        (
            &format!("{listener}dir = \"none\""),
            &["cannot serve directory none"],
        ),
    ] {
        fs::write(&path, text).expect("write");
        assert_wrong_use(&["check", file], parts);
    }
    assert_wrong_use(&["check"], &["FILE"]);
    assert_wrong_use(&["check", "none.toml"], &["none.toml", "No such file"]);
}

#[test]
fn the_environment_stands_between_the_file_and_the_command_line() {
    let folder = site();
    let config = "http = \"127.0.0.1:1\"\ndir = \"none\"\nhidden = true\nmemory = \"64M\"\n";
    fs::write(folder.path().join("flatpath.toml"), config).expect("write");
    let served = Served::start_with(
        folder.path(),
        &["--config", "flatpath.toml", "."],
        &[
            ("FLATPATH_HTTP", "127.0.0.1:0,127.0.0.1:0"),
            ("FLATPATH_DIR", "none"),
            ("FLATPATH_HIDDEN", "false"),
            ("FLATPATH_WORKERS", ""),
            ("FLATPATH_LOG", "off"),
        ],
    );
    assert_eq!(served.listening.len(), 2);
    assert_eq!(get(served.address(), "/hello.txt").text(), "hello\n");
    assert_eq!(get(served.address(), "/.hidden").status, 404);
    served.signal(Signal::TERM);
    let (code, log) = served.end();
    assert_eq!((code, log.as_str()), (Some(0), ""));
    let mut command = Command::new(env!("CARGO_BIN_EXE_flatpath"));
    command.arg("serve").env("FLATPATH_MAX_CONNECTIONS", "many");
    let ended = run_command(&mut command);
    assert_eq!(ended.code, Some(2), "{ended:?}");
    for part in ["many", "--max-connections", "at least 1"] {
        assert!(ended.stderr.contains(part), "{ended:?}");
    }
}
