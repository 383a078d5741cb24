//! What else goes by a name, and gets another meaning while the server runs: files of sockets, log
//! files with their directories, the configuration.

use std::fs;
use std::os::unix::net::{UnixListener, UnixStream};

use flatpath_testkit::{Driver, Launch, Server, Site, each_driver, until_true};
use rustix::process::Signal;

each_driver!(
    a_socket_file_that_is_removed_or_anothers_is_told_and_left_alone,
    a_log_whose_directory_was_removed_is_begun_anew,
    a_log_that_no_site_has_any_more_is_closed,
    a_configuration_that_may_be_half_written_changes_nothing,
);

fn count(server: &Server, words: &str) -> usize {
    let log = server.log();
    log.lines().filter(|line| line.contains(words)).count()
}

/// Sends SIGHUP, and waits for one more of these words.
fn hang_up(server: &Server, words: &str) {
    let before = count(server, words);
    server.process().signal(Signal::HUP);
    until_true(words, || count(server, words) > before);
}

fn a_socket_file_that_is_removed_or_anothers_is_told_and_left_alone(driver: Driver) {
    let site = Site::new().with("x", "content");
    let run = Site::new();
    let path = run.at("socket");
    let mut server = Launch::serve(driver)
        .with([format!("--http=unix:{}", path.display())])
        .directory(site.path())
        .start();
    drop(UnixStream::connect(&path).expect("it listens"));
    fs::rename(&path, run.at("moved")).expect("renamed");
    server.await_log("was removed: no client can connect there");
    fs::rename(run.at("moved"), &path).expect("renamed");
    server.await_log("is this server's again");
    drop(UnixStream::connect(&path).expect("it listens"));
    fs::remove_file(&path).expect("removed");
    let _other = UnixListener::bind(&path).expect("free");
    server.await_log("another process has put its own file there");
    server.terminate();
    assert_eq!(server.exit_status().code(), Some(0));
    drop(UnixStream::connect(&path).expect("the other one still has it"));
}

/// Of the server and of a site, without a signal.
fn a_log_whose_directory_was_removed_is_begun_anew(driver: Driver) {
    let site = Site::new().with("x", "content");
    let run = Site::new();
    fs::create_dir(run.at("logs")).expect("made");
    let logs = ["server", "site"].map(|name| run.at("logs").join(name));
    run.write(
        "flatpath.toml",
        format!(
            "http = \"127.0.0.1:0\"\nhosts = \"*\"\ndir = {dir:?}\naccess-log = {server:?}\n\
             [[site]]\nnames = \"a.example\"\ndir = {dir:?}\naccess-log = {site:?}\n",
            dir = site.path(),
            server = logs[0],
            site = logs[1]
        ),
    );
    let server = Launch::configured(driver, run.path()).start();
    let ask = |target: &str| {
        for host in ["any.example", "a.example"] {
            assert_eq!(server.client().ask(target, &[("Host", host)]).status, 200);
        }
    };
    let has = |target: &str| {
        let has = |path| fs::read_to_string(path).is_ok_and(|text| text.contains(target));
        logs.iter().all(has)
    };
    ask("/x?one");
    until_true("lines", || has("/x?one"));
    fs::remove_dir_all(run.at("logs")).expect("removed");
    ask("/x?two");
    for log in &logs {
        server.await_log(&format!("{}: it was removed, and cannot be", log.display()));
    }
    fs::create_dir(run.at("logs")).expect("made");
    ask("/x?three");
    until_true("lines in new files", || has("/x?three"));
    until_true("a line of the log for each", || {
        count(&server, "it was removed, and is begun anew") == 2
    });
    server.end();
}

fn a_log_that_no_site_has_any_more_is_closed(driver: Driver) {
    let site = Site::new().with("x", "content");
    let run = Site::new();
    let [kept, left] = ["kept", "left"].map(|name| run.at(name));
    let write = |log: &str| {
        let text = format!(
            "http = \"127.0.0.1:0\"\nhosts = \"*\"\naccess-log = {kept:?}\n\
             [[site]]\nnames = \"a.example\"\ndir = {:?}\n{log}",
            site.path()
        );
        fs::write(run.at("new"), text).expect("written");
        fs::rename(run.at("new"), run.at("flatpath.toml")).expect("renamed");
    };
    let own = format!("access-log = {left:?}\n");
    write(&own);
    let server = Launch::configured(driver, run.path()).start();
    let ask = |target: &str| {
        let reply = server.client().ask(target, &[("Host", "a.example")]);
        assert_eq!(reply.status, 200);
    };
    let has = |path, target: &str| fs::read_to_string(path).is_ok_and(|it| it.contains(target));
    ask("/x?one");
    until_true("a line", || has(&left, "/x?one"));
    write("");
    hang_up(&server, "reloaded");
    hang_up(&server, "reloaded");
    let open = || server.process().open_files().contains(&left);
    until_true("it is closed", || !open());
    fs::remove_file(&left).expect("removed");
    hang_up(&server, "reloaded");
    ask("/x?two");
    until_true("a line in the other one", || has(&kept, "/x?two"));
    assert!(!left.exists(), "no site has it");
    write(&own);
    hang_up(&server, "reloaded");
    until_true("it is open again", open);
    ask("/x?three");
    until_true("a line again", || has(&left, "/x?three"));
    server.end();
}

fn a_configuration_that_may_be_half_written_changes_nothing(driver: Driver) {
    let site = Site::new().with("x", "content");
    let run = Site::new();
    let path = run.at("flatpath.toml");
    let whole = |deny: &str| {
        let dir = site.path();
        format!("http = \"127.0.0.1:0\"\ndir = {dir:?}\ndeny = \"{deny}\"\nslow = \"10s\"\n")
    };
    fs::write(&path, whole("127.0.0.0/8")).expect("written");
    let server = Launch::configured(driver, run.path()).start();
    let status = || server.client().get("/x").status;
    assert_eq!(status(), 403);
    let half = whole("127.0.0.0/8");
    for (length, words) in [(0, "it is empty"), (half.len() - 3, "half written")] {
        fs::write(&path, &half[..length]).expect("written");
        hang_up(&server, words);
        assert_eq!(status(), 403, "{words}");
    }
    // Whole, and under a new inode.
    fs::write(run.at("new"), whole("10.0.0.0/8")).expect("written");
    fs::rename(run.at("new"), &path).expect("renamed");
    hang_up(&server, "reloaded");
    assert_eq!(status(), 200);
    server.end();
}
