//! One of two servers that hand over ends, hangs, or is not able to serve: the other one does.

use std::os::fd::OwnedFd;

use flatpath_testkit::deadline::long_patience;
use flatpath_testkit::{
    Client, Driver, Frozen, Launch, Server, Site, binary, each_driver, until_true,
};
use rustix::net::{RecvFlags, SendFlags};

use crate::handover::{begin_as_new, launch};
use crate::rolling::own_address;

each_driver!(
    a_new_server_that_dies_changes_nothing,
    an_old_server_that_ends_meanwhile_leaves_everything_to_the_new_one,
    a_server_that_was_told_to_stop_leaves_its_ports_to_the_next,
    a_server_whose_socket_was_removed_hands_over_all_the_same,
    a_new_server_that_may_open_too_few_descriptors_takes_nothing_over,
    an_old_server_whose_network_thread_hangs_keeps_no_client_from_the_new_one,
);

const HELLO: &str = "flatpath-handover 1";

fn say(socket: &OwnedFd, line: &str) {
    rustix::net::send(socket, line.as_bytes(), SendFlags::NOSIGNAL).expect("sent");
}

/// The next line; empty where the other side has ended.
fn hear(socket: &OwnedFd) -> String {
    let mut bytes = [0; 4_096];
    let heard = rustix::net::recv(socket, &mut bytes, RecvFlags::empty());
    let (count, _) = heard.expect("a line, or the end");
    String::from_utf8_lossy(&bytes[..count]).into_owned()
}

fn expect_served(server: &Server) {
    let mut client = server.client().patient(long_patience());
    assert_eq!(client.get("/file").text(), "contents");
}

fn a_new_server_that_dies_changes_nothing(driver: Driver) {
    let site = Site::new().with("file", "contents");
    let run = Site::new();
    let path = run.at("next");
    let server = launch(driver, &site, &path).start();
    drop(begin_as_new(&path));
    for (hello, expected) in [
        (HELLO, "socket 0 flatpath http "),
        ("flatpath-handover 999", "refused the versions"),
        ("nonsense", "refused the versions"),
    ] {
        let socket = begin_as_new(&path);
        say(&socket, hello);
        let answer = hear(&socket);
        assert!(answer.starts_with(expected), "{answer}");
        drop(socket);
        expect_served(&server);
    }
    let next = launch(driver, &site, &path).start();
    server.ended_well();
    expect_served(&next);
}

/// What becomes of a process that has the sockets when the old one is told to stop.
#[derive(Clone, Copy, Debug, PartialEq)]
enum New {
    IsReady,
    Starts,
    HasEnded,
}

/// A new one that lives has the files then, ready or not.
fn an_old_server_that_ends_meanwhile_leaves_everything_to_the_new_one(driver: Driver) {
    for new in [New::IsReady, New::Starts, New::HasEnded] {
        let site = Site::new();
        let run = Site::new();
        let path = run.at("next");
        let at_path = format!("unix:{}", run.at("http").display());
        let old = launch(driver, &site, &path).with(["--http", &at_path]);
        let old = old.start();
        let socket = begin_as_new(&path);
        say(&socket, HELLO);
        while !hear(&socket).starts_with("end") {}
        if new == New::IsReady {
            say(&socket, "ready");
            assert_eq!(hear(&socket), "draining");
        }
        let socket = (new != New::HasEnded).then_some(socket);
        old.terminate();
        old.ended_well();
        if let Some(socket) = socket {
            let last = hear(&socket);
            assert!(!last.starts_with("refused"), "{new:?}: {last}");
        }
        let left = [run.at("http").exists(), path.exists()];
        assert_eq!(left, [new != New::HasEnded; 2], "{new:?}");
    }
}

/// The ports are free while it drains: the next one binds them, whatever it finds at the path.
fn a_server_that_was_told_to_stop_leaves_its_ports_to_the_next(driver: Driver) {
    const LARGE_BYTES: usize = 16 << 20;
    let site = Site::new().with("file", "contents");
    site.write("large", "x".repeat(LARGE_BYTES));
    let run = Site::new();
    let at = own_address().to_string();
    let start = || {
        let program = Launch::new(binary::flatpath().to_path_buf());
        let launch = program.with(["serve", "--driver", driver.name(), "--http", &at]);
        let launch = launch.with(["--drain-idle-timeout", "60", "--handover"]);
        let launch = launch.with([run.at("next")]);
        launch.directory(site.path()).start()
    };
    let old = start();
    let mut slow = Client::connect_with_window(old.address("http"), 4_096).patient(long_patience());
    assert_eq!(slow.get("/file").text(), "contents");
    slow.request("GET", "/large", &[]);
    old.terminate();
    old.await_log("draining");
    let next = start();
    expect_served(&next);
    // The old one answers meanwhile what it has begun to.
    let reply = slow.reply();
    assert_eq!((reply.status, reply.body.len()), (200, LARGE_BYTES));
    // It would wait for what the client may still ask, until its drain is over.
    drop(slow);
    old.ended_well();
    let last = start();
    next.ended_well();
    expect_served(&last);
}

fn a_server_whose_socket_was_removed_hands_over_all_the_same(driver: Driver) {
    let site = Site::new().with("file", "contents");
    let run = Site::new();
    let path = run.at("next");
    let old = launch(driver, &site, &path).start();
    std::fs::remove_file(&path).expect("removed");
    old.await_log("it is there again");
    let next = launch(driver, &site, &path).start();
    assert_eq!(next.address("http"), old.address("http"));
    old.ended_well();
    expect_served(&next);
}

/// It would take over and have no descriptor for the clients.
fn a_new_server_that_may_open_too_few_descriptors_takes_nothing_over(driver: Driver) {
    const FEW: u64 = 100;
    let site = Site::new().with("file", "contents");
    let run = Site::new();
    let path = run.at("next");
    let old = launch(driver, &site, &path).descriptors(400).start();
    let with_few = || launch(driver, &site, &path).descriptors(FEW);
    let refused = with_few().try_start().err().expect("refused").log;
    for words in ["may open 100 descriptors", "ulimit -n", "fewer connections"] {
        assert!(refused.contains(words), "{words}: {refused}");
    }
    old.await_log("has ended: serving on");
    expect_served(&old);
    // Whoever asks for that few has them.
    let next = with_few().with(["--max-connections", "20"]).start();
    old.ended_well();
    expect_served(&next);
    // As many as before are enough, though more are wished.
    let last = with_few().start();
    next.ended_well();
    expect_served(&last);
}

/// It hangs with its accept armed, when its sockets have changed hands.
fn an_old_server_whose_network_thread_hangs_keeps_no_client_from_the_new_one(driver: Driver) {
    let site = Site::new().with("file", "contents");
    let run = Site::new();
    let path = run.at("next");
    let one = |launch: Launch| launch.with(["--network-threads", "1"]).start();
    let old = one(launch(driver, &site, &path));
    expect_served(&old);
    let Some(frozen) = Frozen::thread(old.process(), "flatpath-net-0") else {
        return;
    };
    let next = one(launch(driver, &site, &path));
    assert_eq!(next.address("http"), old.address("http"));
    for _ in 0..20 {
        expect_served(&next);
    }
    // It comes to itself, drains, and is not missed.
    drop(frozen);
    old.ended_well();
    until_true("the new one to have what was the old one's", || {
        path.exists()
    });
    for _ in 0..20 {
        expect_served(&next);
    }
    let last = one(launch(driver, &site, &path));
    next.ended_well();
    expect_served(&last);
}
