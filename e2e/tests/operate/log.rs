//! The log: a standard error that no process reads stops neither clients nor signals.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use flatpath_consumer::Consumer;
use flatpath_testkit::ingest::launch;
use flatpath_testkit::{Deadline, Driver, Launch, Server, Site, each_driver, until};
use rustix::process::Signal;

each_driver!(
    bad_producers_that_fill_the_log_stop_no_other_client,
    signals_are_handled_while_the_log_is_full,
    a_second_signal_forces_while_the_log_is_full,
    bad_producers_are_told_of_in_a_few_lines,
    a_flood_of_one_message_is_told_in_a_few_lines,
);

/// Asks for so many reports that a pipe of one page is full.
fn fill_log(server: &Server) {
    for _ in 0..100 {
        server.process().signal(Signal::USR1);
        // A report that is asked for during another one adds nothing.
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn await_hello(server: &Server) {
    assert_eq!(server.client().get("/hello").text(), "hello");
}

fn serve(driver: Driver, site: &Site) -> Server {
    Launch::serve(driver)
        .directory(site.path())
        .with(["--drain-timeout", "3600"])
        .leaving_log_unread()
        .start()
}

/// Sends the beginning of messages that are longer than allowed: each is worth a line in the log.
fn cut_off_producers(server: &Server, count: usize) {
    for _ in 0..count {
        let mut producer = TcpStream::connect(server.address("ingest")).expect("connect");
        let deadline = Some(Deadline::default().left());
        producer.set_read_timeout(deadline).expect("an option");
        producer
            .write_all(&[0xf0, 0, 0, 0, b'x'])
            .expect("the length is taken");
        let end = producer.read(&mut [0]);
        let is_late = matches!(&end, Err(error) if error.kind() == ErrorKind::WouldBlock);
        assert!(!is_late, "the producer is not cut off");
    }
}

fn bad_producers_that_fill_the_log_stop_no_other_client(driver: Driver) {
    const PRODUCERS: usize = 512;
    let site = Site::new().with("hello", "hello");
    let directory = tempfile::tempdir().expect("a directory");
    let mut server = launch(driver, directory.path())
        .with(["--http", "127.0.0.1:0"])
        .directory(site.path())
        .leaving_log_unread()
        .start();
    fill_log(&server);
    cut_off_producers(&server, PRODUCERS);
    await_hello(&server);
    server.terminate();
    assert_eq!(server.exit_status().code(), Some(0));
}

fn signals_are_handled_while_the_log_is_full(driver: Driver) {
    let site = Site::new().with("hello", "hello");
    let mut server = serve(driver, &site);
    fill_log(&server);
    await_hello(&server);
    server.terminate();
    assert_eq!(server.exit_status().code(), Some(0));
}

fn a_second_signal_forces_while_the_log_is_full(driver: Driver) {
    let site = Site::new().with("large", vec![b'l'; 64 << 20]);
    let mut server = serve(driver, &site);
    let address = server.address("http");
    fill_log(&server);
    let mut client = server.client();
    client.request("GET", "/large", &[]);
    until("the download to begin", || {
        (!client.is_quiet()).then_some(())
    });
    server.terminate();
    until("new connections to be refused", || {
        TcpStream::connect(address).err()
    });
    server.force();
    assert!(server.exit_status().code().is_some(), "it ends by itself");
}

/// What one client can cause is logged seldom: at the first, the second, the fourth...
fn bad_producers_are_told_of_in_a_few_lines(driver: Driver) {
    const PRODUCERS: usize = 64;
    let directory = tempfile::tempdir().expect("a directory");
    let server = launch(driver, directory.path()).start();
    cut_off_producers(&server, PRODUCERS);
    server.await_log("(64 until now)");
    let log = server.log();
    assert_eq!(log.matches("producer cut off").count(), 7, "{log}");
}

fn a_flood_of_one_message_is_told_in_a_few_lines(driver: Driver) {
    const CONSUMERS: usize = 200;
    let directory = tempfile::tempdir().expect("a directory");
    let server = launch(driver, directory.path()).start();
    for _ in 0..CONSUMERS {
        let socket = directory.path().join("ingest");
        drop(Consumer::attach(socket).expect("attached"));
    }
    // With the next line that passes, or on its own.
    server.await_log(" more l");
    let log = server.log();
    let lines = log.matches("is attached").count();
    assert!(lines < CONSUMERS / 2, "{lines} lines:\n{log}");
}
