//! The command line itself: exit codes, what is printed where, the configuration file, the doctor.

use std::process::{Command, Output};
use std::time::Duration;

use flatpath_consumer::Consumer;
use flatpath_testkit::skipped::cannot_run;
use flatpath_testkit::{Driver, Launch, Site, binary, tools};

fn flatpath(arguments: &[&str]) -> Output {
    let mut command = Command::new(binary::flatpath());
    command.args(arguments);
    tools::run(&mut command, Duration::from_secs(60))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn wrong_use_is_exit_code_two_and_says_what_is_wrong() {
    for arguments in [
        &["serve", "--no-such-flag"][..],
        &["serve", "--driver", "kqueue", "."],
        &["serve", "--accept", "sometimes", "."],
        &["serve", "--workers", "9..1", "."],
        &["serve", "--http", "not an address", "."],
        &["serve", ".", "--max-connections", "many"],
        &["serve", "--http", "127.0.0.1:0", "/no/such/directory"],
        &["serve", "--http", "127.0.0.1:0", "/proc/version"],
        &["no-such-command"],
        &[],
    ] {
        let output = flatpath(arguments);
        let errors = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {errors}");
        assert!(!errors.trim().is_empty(), "{arguments:?}: says nothing");
        assert!(
            output.stdout.is_empty(),
            "{arguments:?}: standard output is for results"
        );
    }
}

#[test]
fn what_cannot_be_served_is_exit_code_one() {
    let site = Site::new();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let taken = taken
        .local_addr()
        .map(|address| (address.to_string(), taken))
        .expect("an address");
    let directory = site.path().to_str().expect("text");
    for arguments in [
        &["serve", "--http", &taken.0, directory][..],
        &["serve", "--http", "192.0.2.1:0", directory],
    ] {
        let output = flatpath(arguments);
        let errors = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {errors}");
        assert!(!errors.trim().is_empty(), "{arguments:?}: says nothing");
        assert!(!text(&output.stdout).contains("ready"), "{arguments:?}");
    }
}

#[test]
fn help_and_version_go_to_standard_output() {
    for (arguments, words) in [
        (&["--help"][..], "serve"),
        (&["serve", "--help"], "--driver"),
        (&["doctor", "--help"], "--json"),
        (&["--version"], "flatpath"),
    ] {
        let output = flatpath(arguments);
        assert_eq!(output.status.code(), Some(0), "{arguments:?}");
        assert!(
            text(&output.stdout).contains(words),
            "{arguments:?}: {}",
            text(&output.stdout)
        );
    }
}

#[test]
fn the_doctor_names_the_kernel_the_driver_and_the_reason() {
    let output = flatpath(&["doctor"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let report = text(&output.stdout);
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").expect("a kernel");
    assert!(
        report.contains(kernel.trim()),
        "the kernel's version: {report}"
    );
    let expected = if Driver::Uring.is_here() {
        "uring"
    } else {
        "epoll"
    };
    assert!(
        report.contains(expected),
        "the driver that will be used: {report}"
    );

    let output = flatpath(&["doctor", "--json"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let json: serde_json::Value =
        serde_json::from_slice(&output.stdout).expect("one JSON document and nothing else");
    assert!(
        json.as_object().is_some_and(|report| report.len() >= 3),
        "{json}"
    );
    assert!(json.to_string().contains(kernel.trim()), "{json}");
}

#[test]
fn a_configuration_file_has_the_same_names_and_the_command_line_wins() {
    let site = Site::new()
        .with("public/file", "contents")
        .with("other/file", "other");
    let configuration = format!(
        "dir = {:?}\nhttp = \"127.0.0.1:0\"\necho = \"127.0.0.1:0\"\ndriver = \"epoll\"\n\
         workers = \"1..3\"\nmax-connections = 100\n",
        site.at("public")
    );
    site.write("flatpath.toml", configuration);
    let file = site.at("flatpath.toml");
    let launch = || {
        Launch::new(binary::flatpath().to_path_buf())
            .with(["serve", "--config"])
            .with([file.as_os_str()])
    };
    let server = launch().start();
    assert_eq!(server.client().get("/file").text(), "contents");
    assert!(server.log().contains("epoll"), "{}", server.log());
    let mut echo = server.echo_client();
    echo.send(b"x");
    assert_eq!(echo.exactly(1), b"x");
    let other = launch().directory(&site.at("other")).start();
    assert_eq!(other.client().get("/file").text(), "other");
}

#[test]
fn a_configuration_with_an_unknown_name_or_value_is_refused_by_line() {
    let site = Site::new();
    for wrong in [
        "no-such-name = 1\n",
        "driver = \"kqueue\"\n",
        "workers = 7.5\n",
        "= =\n",
    ] {
        site.write("flatpath.toml", format!("# a comment\n{wrong}"));
        let file = site.at("flatpath.toml");
        let directory = site.path().to_str().expect("text");
        let output = flatpath(&["serve", "--config", file.to_str().expect("text"), directory]);
        let errors = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{wrong:?}: {errors}");
        assert!(errors.contains("flatpath.toml"), "{wrong:?}: {errors}");
    }
}

#[test]
fn a_listener_on_every_address_family_is_announced() {
    let site = Site::new().with("file", "contents");
    let server = Launch::new(binary::flatpath().to_path_buf())
        .with(["serve", "--http", "[::1]:0"])
        .directory(site.path());
    let has_ipv6 = std::net::TcpListener::bind("[::1]:0").is_ok();
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
