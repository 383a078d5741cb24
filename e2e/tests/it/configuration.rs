//! Where the settings of `flatpath serve` come from: file, environment, command line.

use std::process::Command;

use flatpath_testkit::{Client, Driver, binary, each_driver};

use crate::command::{assert_wrong_use, flatpath, run, serve, site};

each_driver!(tables_of_the_file_are_listeners_with_settings_and_limits_of_their_own);

#[test]
fn a_configuration_file_says_the_same_and_the_command_line_wins() {
    let site = site();
    let config = "dir = \"sub\"\nhttp = \"127.0.0.1:0\"\necho = \"127.0.0.1:0\"\nhidden = true\n\
        driver = \"epoll\"\nworkers = \"1..3\"\nmax-connections = 100\nnetwork-threads = 2\n";
    site.write("flatpath.toml", config);
    let server = serve(&site, &["--config", "flatpath.toml"]).start();
    assert_eq!(server.client().get("/page.html").text(), "<p>page");
    assert!(server.log().contains("driver epoll: "), "{}", server.log());
    let mut echo = server.echo_client();
    echo.send("x");
    assert_eq!(echo.exactly(1), b"x");
    let more = ["--config", "flatpath.toml", "--hidden=false", "."];
    let server = serve(&site, &more).start();
    assert_eq!(server.client().get("/hello.txt").text(), "hello\n");
    assert_eq!(server.client().get("/.hidden").status, 404);
}

fn tables_of_the_file_are_listeners_with_settings_and_limits_of_their_own(driver: Driver) {
    let site = site().with("sub/.dotted", "dotted");
    let config = "dir = \".\"\nhttp = \"127.0.0.1:0\"\n\
        [[listener]]\nprotocol = \"http\"\naddress = [0, 0]\ndir = \"sub\"\nhidden = true\n\
        idle-timeout = 0.2\n\
        [[listener]]\nprotocol = \"http\"\naddress = 0\nwritable = true\nmax-connections = 1\n\
        [[listener]]\nprotocol = \"echo\"\naddress = 0\n\
        [[listener]]\nprotocol = \"relay\"\naddress = 0\n\
        [[listener]]\nprotocol = \"relay\"\naddress = 0\n";
    site.write("flatpath.toml", config);
    let arguments = ["--config", "flatpath.toml", "--driver", driver.name()];
    let server = serve(&site, &arguments).start();
    let names: Vec<_> = server.listeners().iter().map(|(name, _)| &**name).collect();
    let all = ["http", "http", "http", "http", "echo", "relay", "relay"];
    assert_eq!(names, all);
    let client = |number: usize| Client::connect(server.listeners()[number].1);
    assert_eq!(client(0).get("/hello.txt").text(), "hello\n");
    assert_eq!(client(0).get("/sub/.dotted").status, 404);
    for number in [1, 2] {
        assert_eq!(client(number).get("/.dotted").text(), "dotted");
    }
    // Idle for too long here, and not there.
    let mut patient = client(0);
    patient.get("/hello.txt");
    let mut hasty = client(1);
    hasty.get("/.dotted");
    hasty.expect_closed();
    assert_eq!(patient.get("/hello.txt").status, 200);
    // The one place of the listener goes to the newcomer.
    let mut first = client(3);
    assert_eq!(first.get("/hello.txt").status, 200);
    let mut second = client(3);
    second.send("PUT /new HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\nnew");
    assert_eq!(second.reply().status, 201);
    first.expect_closed();
    assert_eq!(client(0).get("/new").text(), "new");
    server.end();
}

#[test]
fn a_configuration_that_is_wrong_is_refused_by_line() {
    let site = site();
    let file = site.at("config.toml");
    let file = file.to_str().expect("utf-8");
    for (text, parts) in [
        (
            "max-conections = 10\n",
            &["config.toml:1:1: ", "max-conections", "--max-connections"][..],
        ),
        ("# a comment\nno-such-name = 1\n", &["config.toml:2:1: "]),
        ("driver = \"kqueue\"\n", &["config.toml:1:1: ", "kqueue"]),
        ("workers = 7.5\n", &["config.toml:1:"]),
        ("= =\n", &["config.toml:1:1: "]),
        (
            "log = \"inof\"\n",
            &["config.toml:1:1: ", "inof", "mean info?"],
        ),
    ] {
        site.write("config.toml", text);
        assert_wrong_use(&["serve", "--config", file], parts);
        assert_wrong_use(&["check", file], parts);
    }
    let missing = site.at("missing");
    assert_wrong_use(
        &["serve", "--config", missing.to_str().expect("utf-8")],
        &["configuration ", "No such file"],
    );
}

#[test]
fn check_prints_what_a_file_comes_to_or_where_it_is_wrong() {
    let site = site();
    let path = site.at("flatpath.toml");
    let file = path.to_str().expect("utf-8");
    let dir = site.path();
    let listener = "[[listener]]\nprotocol = \"http\"\naddress = 80\n";
    let whole = format!("dir = {dir:?}\nmemory = \"64M\"\n{listener}hidden = true\n");
    site.write("flatpath.toml", whole);
    let ended = flatpath(&["check", file]);
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
        site.write("flatpath.toml", text);
        assert_wrong_use(&["check", file], parts);
    }
    assert_wrong_use(&["check"], &["FILE"]);
    assert_wrong_use(&["check", "none.toml"], &["none.toml", "No such file"]);
}

#[test]
fn the_environment_stands_between_the_file_and_the_command_line() {
    let site = site();
    let config = "http = \"127.0.0.1:1\"\ndir = \"none\"\nhidden = true\nmemory = \"64M\"\n";
    site.write("flatpath.toml", config);
    let mut launch = serve(&site, &["--config", "flatpath.toml", "."]);
    for (name, value) in [
        ("FLATPATH_HTTP", "127.0.0.1:0,127.0.0.1:0"),
        ("FLATPATH_DIR", "none"),
        ("FLATPATH_HIDDEN", "false"),
        ("FLATPATH_WORKERS", ""),
        ("FLATPATH_LOG", "off"),
    ] {
        launch = launch.variable(name, value);
    }
    let server = launch.start();
    assert_eq!(server.listeners().len(), 2);
    let mut client = Client::connect(server.listeners()[0].1);
    assert_eq!(client.get("/hello.txt").text(), "hello\n");
    assert_eq!(client.get("/.hidden").status, 404);
    drop(client);
    assert_eq!(server.end(), "");
    let mut command = Command::new(binary::flatpath());
    command.arg("serve").env("FLATPATH_MAX_CONNECTIONS", "many");
    let ended = run(&mut command);
    assert_eq!(ended.code, Some(2), "{ended:?}");
    for part in ["many", "--max-connections", "at least 1"] {
        assert!(ended.stderr.contains(part), "{ended:?}");
    }
}
