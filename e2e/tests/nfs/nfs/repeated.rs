//! A repeated call gets the first one's reply; one that only looks like it is executed.

use flatpath_testkit::nfs::{Call, Connection, Words, lookup, mkdir, remove, write};
use flatpath_testkit::{Client, Driver, Server, Site, each_driver};

use crate::nfs::serve;

each_driver!(
    a_call_repeated_on_its_connection_or_after_a_reset_is_executed_once,
    a_program_that_starts_with_the_same_number_is_not_told_of_another_ones_success,
    two_programs_with_the_same_calls_at_once_both_change_the_file,
    calls_are_counted_by_procedure_and_status,
);

/// A number as a program takes that does not draw one.
const FIRST: u32 = 4711;

/// The status of a call with a number of the test's.
fn status(client: &mut Connection, call: &Call) -> u32 {
    client.send(&call.record(FIRST));
    let reply = client.reply();
    assert_eq!(reply.xid, FIRST);
    reply.status()
}

fn connect(server: &Server) -> Connection {
    Connection::open(server.address("nfs"))
}

fn a_call_repeated_on_its_connection_or_after_a_reset_is_executed_once(driver: Driver) {
    let (site, state) = (Site::new(), Site::new());
    let server = serve(driver, &site, &state, &[]);
    let mut client = connect(&server);
    let root = client.root();
    for name in ["a", "b"] {
        client.create(&root, name);
        let remove = remove(&root, name);
        assert_eq!(status(&mut client, &remove), 0);
        assert_eq!(status(&mut client, &remove), 0, "the same reply");
        client.reset();
        client = connect(&server);
        assert_eq!(status(&mut client, &remove), 0, "the same reply");
    }
}

fn a_program_that_starts_with_the_same_number_is_not_told_of_another_ones_success(driver: Driver) {
    let (site, state) = (Site::new(), Site::new());
    let server = serve(driver, &site, &state, &[]);
    let root = connect(&server).root();
    let mkdir = mkdir(&root, "lock");
    for _ in 0..3 {
        // Closed once it has its reply, as by a program that ends.
        let made = status(&mut connect(&server), &mkdir);
        assert_eq!(made, 0);
        assert!(site.at("lock").is_dir());
        std::fs::remove_dir(site.at("lock")).expect("it was made");
    }
}

fn two_programs_with_the_same_calls_at_once_both_change_the_file(driver: Driver) {
    let (site, state) = (Site::new(), Site::new());
    let server = serve(driver, &site, &state, &[]);
    let (mut one, mut other, mut third) = (connect(&server), connect(&server), connect(&server));
    let root = one.root();
    let file = one.create(&root, "file");
    let write_a = write(&file, 0, b"AAA", 2);
    assert_eq!(status(&mut one, &write_a), 0);
    assert_eq!(third.status(&write(&file, 0, b"BBB", 2)), 0);
    assert_eq!(status(&mut one, &write_a), 0, "repeated: not executed");
    assert_eq!(std::fs::read(site.at("file")).expect("there"), b"BBB");
    assert_eq!(status(&mut other, &write_a), 0);
    assert_eq!(std::fs::read(site.at("file")).expect("there"), b"AAA");
}

fn calls_are_counted_by_procedure_and_status(driver: Driver) {
    let (site, state) = (Site::new(), Site::new());
    let server = serve(driver, &site, &state, &["--admin", "127.0.0.1:0"]);
    let mut client = connect(&server);
    let root = client.root();
    client.create(&root, "a");
    let remove = remove(&root, "a");
    assert_eq!(status(&mut client, &remove), 0);
    assert_eq!(status(&mut client, &remove), 0, "the same reply");
    assert_eq!(client.status(&lookup(&root, "a")), 2, "no such name");
    client.send(&Call::nfs(99, Words::default()).record(1));
    client.message().expect("there is no such procedure");
    let metrics = Client::connect(server.address("admin")).get("/metrics");
    let listener = format!("{{listener=\"nfs\",address=\"{}\"", server.address("nfs"));
    for (name, labels, count) in [
        ("calls_total", ",procedure=\"remove\",status=\"ok\"", 2),
        ("calls_total", ",procedure=\"create\",status=\"ok\"", 1),
        ("calls_total", ",procedure=\"lookup\",status=\"noent\"", 1),
        ("calls_total", ",procedure=\"lookup\",status=\"ok\"", 0),
        ("calls_total", ",procedure=\"mount\",status=\"ok\"", 1),
        ("calls_repeated_total", "", 1),
        ("calls_refused_total", "", 1),
    ] {
        let sample = format!("flatpath_nfs_{name}{listener}{labels}}} {count}");
        let mut lines = metrics.text().lines();
        assert!(lines.any(|line| line == sample), "{sample}");
    }
}
