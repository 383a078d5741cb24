//! The command line itself: exit codes, what is printed where, the doctor.

use std::iter;
use std::net::TcpListener;
use std::process::Command;

use expect_test::expect_file;
use flatpath_consumer::Consumer;
use flatpath_testkit::skipped::cannot_run;
use flatpath_testkit::{Child, Client, Driver, Launch, Site, binary, patience, tools};
use regex::Regex;

/// A port of this machine that is free.
const ANY: &str = "127.0.0.1:0";

/// How a command ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// Runs `flatpath` to its end.
pub(crate) fn flatpath(arguments: &[&str]) -> Ended {
    run(Command::new(binary::flatpath()).args(arguments))
}

/// Runs a prepared command to its end.
pub(crate) fn run(command: &mut Command) -> Ended {
    let output = tools::run(command, patience());
    let text = |bytes| String::from_utf8(bytes).expect("text");
    Ended {
        code: output.status.code(),
        stdout: text(output.stdout),
        stderr: text(output.stderr),
    }
}

/// `flatpath serve` in a directory, without a listener.
pub(crate) fn serve(site: &Site, arguments: &[&str]) -> Launch {
    let launch = Launch::new(binary::flatpath().to_path_buf());
    launch.within(site.path()).with(["serve"]).with(arguments)
}

/// What commands print and how they end, for a snapshot: `UPDATE_EXPECT=1` writes it anew.
pub(crate) struct Transcript<'a> {
    site: &'a Site,
    text: String,
}

impl<'a> Transcript<'a> {
    /// Of commands in the directory of `site`.
    pub(crate) fn within(site: &'a Site) -> Self {
        let text = String::new();
        Self { site, text }
    }

    pub(crate) fn run(&mut self, arguments: &[&str]) {
        self.run_with(&[], arguments);
    }

    /// The same with variables of the environment.
    pub(crate) fn run_with(&mut self, variables: &[(&str, &str)], arguments: &[&str]) {
        let mut command = Command::new(binary::flatpath());
        let command = command.args(arguments).envs(variables.iter().copied());
        let command = command.env("COLUMNS", "100").env("RUST_LOG", "error");
        let ended = run(command.current_dir(self.site.path()));
        let words = variables
            .iter()
            .map(|(name, value)| format!("{name}={value}"));
        let words = words.chain(iter::once("flatpath".to_owned()));
        let words = words.chain(arguments.iter().map(|it| match it.contains(' ') {
            true => format!("'{it}'"),
            false => (*it).to_owned(),
        }));
        let words: Vec<_> = words.collect();
        let Ended {
            code,
            stdout,
            stderr,
        } = ended;
        let code = code.map_or("killed".to_owned(), |code| format!("exit {code}"));
        self.text += &format!("$ {}\n{stdout}{stderr}{code}\n\n", words.join(" "));
    }

    /// A listing of another file that the next commands read.
    pub(crate) fn write(&mut self, name: &str, text: &str) {
        self.site.write(name, text);
        self.text += &format!("$ cat {name}\n{text}\n");
    }

    /// All of it, with a name for each text that differs from run to run.
    pub(crate) fn text(self, differing: &[(&str, &str)]) -> String {
        plain(&self.text, differing)
    }
}

/// The same text wherever and whenever it is written: without times, ports and counts of
/// processors, and with a name for each of the other texts that differ.
fn plain(text: &str, differing: &[(&str, &str)]) -> String {
    const CHANGING: [(&str, &str); 3] = [
        (
            r"[0-9]{4}(?:-[0-9]{2}){2}T[0-9]{2}(?::[0-9]{2}){2}Z",
            "TIME",
        ),
        (r"(127\.0\.0\.1:|port )[0-9]{4,}", "${1}PORT"),
        (r"processors: [0-9]+", "processors: N"),
    ];
    let text = text.to_owned();
    let replace = |text: String, (from, to): &(&str, &str)| text.replace(from, to);
    let text = differing.iter().fold(text, replace);
    CHANGING.iter().fold(text, |text, (changing, name)| {
        let changing = Regex::new(changing).expect("an expression");
        changing.replace_all(&text, *name).into_owned()
    })
}

/// A directory with a few files.
pub(crate) fn site() -> Site {
    let site = Site::new().with("hello.txt", "hello\n");
    site.with("sub/page.html", "<p>page")
        .with(".hidden", "hidden")
}

#[test]
fn wrong_use_of_flags_ends_with_code_2_and_names_the_flag() {
    let site = site();
    let mut transcript = Transcript::within(&site);
    for arguments in [
        &["--no-such-flag"][..],
        &["--all-squash"],
        &["--echo", ANY],
        &["--resp", ANY],
        &["--nfs", ANY, "--nfs-allow", "10.0.0.0/33"],
        &["--http", "8080x"],
        &["--http", "not an address"],
        &["--workers", "4..2"],
        &["--network-threads", "0"],
        &[
            "--memory",
            "1K",
            "--network-threads",
            "1",
            "--max-connections",
            "9",
        ],
        &["--max-connections", "many"],
        &["--driver", "kqueue"],
        &["--accept", "many"],
        &["--idle-timeout", "0"],
        &["another"],
    ] {
        transcript.run(&[&["serve", "."], arguments].concat());
    }
    let many = ("FLATPATH_MAX_CONNECTIONS", "many");
    transcript.run_with(&[many], &["serve", "."]);
    for variable in [("FLATPATH_WRITABLE", "1Q"), ("FLATPATH_MEMORY", "1Q")] {
        transcript.run_with(&[variable], &["serve", "."]);
        // Not where the command line is wrong.
        let flag = variable.0["FLATPATH_".len()..].to_lowercase();
        transcript.run_with(&[variable], &["serve", ".", &format!("--{flag}=2Q")]);
    }
    for dir in ["missing", "hello.txt", "/proc/version"] {
        transcript.run(&["serve", dir, "--http", ANY]);
    }
    transcript.run(&["sreve"]);
    transcript.run(&["--log", "flatpath=loud", "doctor"]);
    transcript.run(&["--log", "inof", "doctor"]);
    transcript.run(&[]);
    expect_file!["command/wrong_use.txt"].assert_eq(&transcript.text(&[]));
}

#[test]
fn what_likely_is_a_mistake_is_warned_of() {
    let mut command = Command::new(binary::flatpath());
    command.args(["serve", "/no/such/directory", "--memory", "900T"]);
    let ended = run(command.env("FLATPATH_WRITEABLE", "true"));
    for part in [
        "FLATPATH_WRITEABLE has no effect: did you mean FLATPATH_WRITABLE?",
        "--memory 900T is more than the ",
    ] {
        assert!(ended.stderr.contains(part), "{}", ended.stderr);
    }
}

#[test]
fn what_cannot_be_served_is_a_failure_that_says_why() {
    let site = site();
    let mut transcript = Transcript::within(&site);
    let taken = TcpListener::bind(ANY).expect("bind");
    let taken = taken.local_addr().expect("address").to_string();
    transcript.run(&["serve", "--http", &taken, "."]);
    transcript.run(&["serve", "--http", "192.0.2.1:0", "."]);
    // Nor does a second server join the first.
    let two = ["--network-threads", "2", "--http"];
    let first = serve(&site, &two).with([ANY]).start();
    let shared = first.address("http").to_string();
    transcript.run(&["serve", ".", two[0], two[1], two[2], &shared]);
    expect_file!["command/failures.txt"].assert_eq(&transcript.text(&[]));
    assert_eq!(first.client().get("/hello.txt").text(), "hello\n");
}

#[test]
fn too_few_descriptors_are_a_failure_that_says_how_many_are_needed() {
    let site = site();
    for count in [8, 20] {
        let script = format!("ulimit -n {count}; exec \"$0\" serve --http 0 \"$1\"");
        let mut command = Command::new("sh");
        command.args(["-c", &script]).arg(binary::flatpath());
        let ended = run(command.arg(site.path()));
        assert!(matches!(ended.code, Some(1 | 2)), "{ended:?}");
        let words = format!("may open {count} descriptors, and needs 24 at least");
        assert!(ended.stderr.contains(&words), "{ended:?}");
    }
}

#[test]
fn a_registration_without_rpcbind_fails_and_says_why() {
    if std::net::TcpStream::connect("127.0.0.1:111").is_ok() {
        return cannot_run("this machine has an rpcbind, which is not ours to change");
    }
    let (site, state) = (site(), Site::new());
    let dir = site.path().to_str().expect("utf-8");
    let state = state.path().to_str().expect("utf-8");
    let nfs = ["--nfs", ANY, "--nfs-state", state];
    let ended = flatpath(&[&["serve", dir], &nfs[..], &["--nfs-register"]].concat());
    assert_eq!(ended.code, Some(1), "{ended:?}");
    for part in ["--nfs-register", "no rpcbind answers at 127.0.0.1:111"] {
        assert!(ended.stderr.contains(part), "{ended:?}");
    }
    assert!(!ended.stdout.contains("ready"), "{ended:?}");
}

#[test]
fn help_and_version_go_to_standard_output() {
    let site = site();
    let mut transcript = Transcript::within(&site);
    for arguments in [
        &["--help"][..],
        &["serve", "-h"],
        &["serve", "--help"],
        &["check", "--help"],
        &["doctor", "--help"],
        &["top", "--help"],
    ] {
        transcript.run(arguments);
    }
    let text = transcript.text(&[]);
    assert!(!text.contains("exit 1") && !text.contains("exit 2"));
    expect_file!["command/help.txt"].assert_eq(&text);
    let version = flatpath(&["--version"]).stdout;
    let expected = concat!("flatpath ", env!("CARGO_PKG_VERSION"));
    assert!(version.starts_with(expected), "{version}");
    for (other, arguments) in [
        (&["help"][..], &["--help"][..]),
        (&["help", "serve"], &["serve", "--help"]),
        (&["version"], &["--version"]),
    ] {
        assert_eq!(flatpath(other).stdout, flatpath(arguments).stdout);
    }
}

#[test]
fn the_doctor_names_the_kernel_the_driver_and_the_reason() {
    let ended = flatpath(&["doctor"]);
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").expect("a kernel");
    let has_uring = Driver::Uring.is_here();
    let expected = if has_uring { "uring" } else { "epoll" };
    for part in [
        "machine\n",
        "features of io_uring\n",
        "flatpath serve will use\n",
        "driver ",
        kernel.trim(),
        expected,
    ] {
        assert!(ended.stdout.contains(part), "{part} in {}", ended.stdout);
    }

    let ended = flatpath(&["doctor", "--json"]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let report: serde_json::Value =
        serde_json::from_str(&ended.stdout).expect("one JSON document and nothing else");
    assert!(report.to_string().contains(kernel.trim()), "{report}");
    assert_eq!(report["verdict"]["driver"], expected);
    let first = &report["probe"]["findings"][0];
    assert_eq!(first["feature"], "io_uring");
    assert_eq!(first["refusal"].is_null(), has_uring, "{first}");
    for number in [
        &report["limits"]["descriptors"]["now"],
        &report["verdict"]["connections_max"],
    ] {
        assert!(number.as_u64().is_some_and(|number| number > 0), "{report}");
    }
}

#[test]
fn the_doctors_exit_code_tells_what_the_machine_does_not_offer() {
    let site = site();
    site.write("few.toml", "driver = \"epoll\"\nmax-connections = 10\n");
    site.write(
        "many.toml",
        "[[listener]]\nprotocol = \"echo\"\naddress = 1\nmax-connections = 900000000\n",
    );
    site.write("wrong.toml", "max-connection = 10\n");
    let at = |name: &str| site.at(name).display().to_string();
    let (few, many, wrong) = (at("few.toml"), at("many.toml"), at("wrong.toml"));
    let hello = at("hello.txt");
    for (arguments, code, words) in [
        (&["--config", &few][..], 0, ""),
        (
            &["--driver", "epoll"],
            0,
            "driver                    epoll: ",
        ),
        (
            &["--max-connections", "900000000"],
            3,
            "max-connections 900000000 is asked for",
        ),
        (
            &["--config", &many],
            3,
            "max-connections 900000000 is asked for",
        ),
        (
            &["--config", &few, "--memory", "900T"],
            3,
            "memory 900T is asked for",
        ),
        (&["--memory", "1M"], 3, "--memory"),
        (&["--tls-cert", &hello, "--tls-key", &hello], 3, "hello.txt"),
        (&["--tls-client-ca", &hello], 3, "hello.txt"),
        (&["--tls-cert", &hello], 2, ""),
        (&["--config", &wrong], 2, ""),
        (&["--driver", "kqueue"], 2, ""),
    ] {
        let ended = flatpath(&[&["doctor"], arguments].concat());
        assert_eq!(ended.code, Some(code), "{arguments:?}: {ended:?}");
        let has_part = ended.stdout.contains("\nmismatches\n");
        assert_eq!(has_part, code == 3, "{arguments:?}: {ended:?}");
        assert!(ended.stdout.contains(words), "{arguments:?}: {ended:?}");
        if code != 2 {
            let ended = flatpath(&[&["doctor", "--json"], arguments].concat());
            assert_eq!(ended.code, Some(code), "{arguments:?}");
            let report: serde_json::Value = serde_json::from_str(&ended.stdout).expect("JSON");
            let mismatches = report["mismatches"].as_array().expect("a list");
            assert_eq!(mismatches.is_empty(), code == 0, "{arguments:?}: {report}");
        }
    }
}

#[test]
fn listeners_and_what_clients_may_change_are_announced() {
    let (site, state) = (site(), Site::new());
    let small = [
        "--network-threads",
        "1",
        "--workers",
        "2..4",
        "--memory",
        "64M",
    ];
    let all = ["--http", ANY, "--nfs", ANY, "--echo", ANY, "--nfs-state"];
    let launch = serve(&site, &all).with([state.path()]).with(small);
    let launch = launch.with(["--driver", "epoll", "--max-connections", "100"]);
    let mut text = String::new();
    for launch in [launch.clone(), launch.with(["--writable"])] {
        let mut child = Child::start(&mut launch.command()).expect("it starts");
        while !text.ends_with("ready\n") {
            text += &child.line(patience()).expect("a line");
            text += "\n";
        }
        text += &child.stop(patience()).expect("its log");
    }
    let state = state.path().display().to_string();
    expect_file!["command/start.txt"].assert_eq(&plain(&text, &[(&state, "STATE")]));
}

#[test]
fn every_listener_is_announced_in_order_and_works() {
    let site = site();
    let server = serve(&site, &["--http", ANY, "--echo", ANY, "--http", ANY, "sub"]).start();
    let names: Vec<_> = server.listeners().iter().map(|(name, _)| &**name).collect();
    assert_eq!(names, ["http", "http", "echo"]);
    for (_, address) in &server.listeners()[..2] {
        let mut client = Client::connect(*address);
        assert_eq!(client.get("/page.html").text(), "<p>page");
    }
    let mut echo = server.echo_client();
    echo.send("hello");
    assert_eq!(echo.exactly(5), b"hello");
}

#[test]
fn a_port_alone_is_one_of_this_machine_and_levels_are_chosen() {
    let site = site();
    let server = serve(&site, &["--log", "off", "-p", "0"]).start();
    assert!(server.address("http").ip().is_loopback());
    assert_eq!(server.end(), "");
}

#[test]
fn echo_alone_needs_no_directory() {
    let server = serve(&Site::new(), &["--echo", ANY]).start();
    assert_eq!(server.listeners().len(), 1);
    assert_eq!(server.listeners()[0].0, "echo");
}

#[test]
fn the_log_says_which_driver_is_used_and_why_and_what_is_too_much() {
    let processors = std::thread::available_parallelism().expect("known").get();
    let threads = (processors + 1).to_string();
    let site = site();
    let launch = Launch::serve(Driver::Epoll).with(["--network-threads", &threads]);
    let log = launch.directory(site.path()).start().end();
    assert!(log.contains("driver epoll: "), "{log}");
    let too_much = format!("{threads} network threads on {processors} processors");
    assert!(log.contains(&too_much), "{log}");
}

#[test]
fn a_signal_right_after_ready_is_handled() {
    let site = site();
    for _ in 0..20 {
        Launch::serve(Driver::Epoll)
            .directory(site.path())
            .start()
            .end();
    }
}

#[test]
fn a_listener_on_every_address_family_is_announced() {
    let site = Site::new().with("file", "contents");
    let server = Launch::new(binary::flatpath().to_path_buf())
        .with(["serve", "--http", "[::1]:0"])
        .directory(site.path());
    let has_ipv6 = TcpListener::bind("[::1]:0").is_ok();
    if !has_ipv6 {
        return cannot_run("this machine has no IPv6");
    }
    let server = server.start();
    assert!(server.address("http").is_ipv6());
    assert_eq!(server.client().get("/file").text(), "contents");
}

#[test]
fn several_network_threads_serve_on_one_address() {
    let site = Site::new().with("file", "contents");
    for driver in [Driver::Uring, Driver::Epoll] {
        if !driver.is_here() {
            continue;
        }
        let server = Launch::serve(driver)
            .with(["--network-threads", "3"])
            .directory(site.path())
            .start();
        let clients: Vec<_> = (0..60).map(|_| server.client()).collect();
        for mut client in clients {
            assert_eq!(client.get("/file").text(), "contents");
        }
    }
}

#[test]
fn auto_counts_the_processors_that_may_be_used_and_serves_every_kind_of_listener() {
    let site = Site::new().with("file", "contents");
    let run = Site::new();
    let first = first_processor();
    let affinities = [
        (vec!["nice", "-n", "0"], None),
        (
            vec!["taskset", "-c", &first],
            Some("network threads: 1; processors: 1"),
        ),
    ];
    for driver in [Driver::Uring, Driver::Epoll] {
        for (launcher, chosen) in &affinities {
            if !driver.is_here() {
                continue;
            }
            let unix = format!("unix:{}", run.at("http").display());
            let mut launch = Launch::serve(driver)
                .with([
                    "--network-threads",
                    "auto",
                    "--relay",
                    "127.0.0.1:0",
                    "--http",
                    &unix,
                ])
                .with(["--ingest", "127.0.0.1:0", "--ingest-socket"])
                .with([run.at("ingest")])
                .directory(site.path());
            let (program, arguments) = launcher.split_first().expect("a program");
            let Some(program) = tools::find(program) else {
                continue;
            };
            launch = launch.started_by(program, arguments);
            let server = launch.start();
            let log = server.log();
            assert!(log.contains(chosen.unwrap_or("network threads: ")), "{log}");
            assert_eq!(server.client().get("/file").text(), "contents");
            assert!(
                Consumer::attach(run.at("ingest")).is_ok(),
                "{}",
                server.log()
            );
        }
    }
}

/// The first of those that this process may use.
fn first_processor() -> String {
    let status = std::fs::read_to_string("/proc/self/status").expect("readable");
    let list = status
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    let digits = |it: char| it.is_ascii_digit();
    let list = list.expect("Linux has it").trim_start();
    list.chars().take_while(|it| digits(*it)).collect()
}
