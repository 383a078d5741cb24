//! Where the settings of `flatpath serve` come from: file, environment, command line.

use expect_test::expect_file;
use flatpath::NetworkThreads;
use flatpath_testkit::{Client, Driver, each_driver};

use crate::command::{Transcript, serve, site};

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
    let mut transcript = Transcript::within(&site);
    for text in [
        "max-conections = 10",
        "# a comment\nno-such-name = 1",
        "driver = \"kqueue\"",
        "workers = 7.5",
        "= =",
        "log = \"inof\"",
    ] {
        transcript.write("config.toml", text);
        transcript.run(&["serve", "--config", "config.toml"]);
        transcript.run(&["check", "config.toml"]);
    }
    transcript.run(&["serve", "--config", "missing"]);
    expect_file!["configuration/wrong.txt"].assert_eq(&transcript.text(&[]));
}

#[test]
fn check_prints_what_a_file_comes_to_or_where_it_is_wrong() {
    let site = site();
    let listener = "[[listener]]\nprotocol = \"http\"\naddress = 80\n";
    let whole = format!("dir = \".\"\nmemory = \"64M\"\n{listener}hidden = true\n");
    let mut transcript = Transcript::within(&site);
    for text in [
        &*whole,
        "dir = \"none\"",
        "dir = ",
        "memory = \"1M\"\nnetwork-threads = 1\nmax-connections = 9",
        "ingest = 1",
        "http = 80\necho = 80",
        &format!("http = 80\n{listener}"),
        &format!("{listener}hiden = 1"),
        &format!("{listener}dir = \"none\""),
    ] {
        transcript.write("flatpath.toml", text);
        transcript.run(&["check", "flatpath.toml"]);
    }
    transcript.run(&["check"]);
    transcript.run(&["check", "none.toml"]);
    let here = format!("; {} here\n", NetworkThreads::Auto.count());
    expect_file!["configuration/check.txt"].assert_eq(&transcript.text(&[(&here, "; N here\n")]));
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
}
