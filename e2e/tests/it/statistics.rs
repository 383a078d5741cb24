//! What a running server tells of its memory when it is asked (SIGUSR1), and what is true of it.

use std::collections::HashMap;
use std::io::Write;
use std::net::TcpStream;
use std::time::Duration;

use flatpath_consumer::{Consumer, Message};
use flatpath_testkit::ingest::{launch, message, told};
use flatpath_testkit::{Driver, Launch, Server, Site, each_driver, until};

each_driver!(
    pages_are_told_by_who_has_them,
    stalls_are_told_and_pages_of_the_dead_are_back,
    pages_of_an_upload_are_told,
);

fn next(consumer: &mut Consumer) -> Message {
    consumer
        .receive_timeout(Duration::from_secs(20))
        .expect("attached")
        .expect("a message")
}

/// What is told, once it is as `settled` wants it: what was sent may be on its way.
fn told_when(
    server: &Server,
    title: &str,
    what: &str,
    settled: impl Fn(&HashMap<String, u64>) -> bool,
) -> HashMap<String, u64> {
    until(what, || {
        let figures = told(server, title);
        let sum = figures["pages_in_ring"] + figures["pages_with_handlers"];
        assert!(sum <= figures["pages"], "{figures:?}");
        settled(&figures).then_some(figures)
    })
}

fn pages_are_told_by_who_has_them(driver: Driver) {
    let directory = tempfile::tempdir().expect("a directory");
    let server = launch(driver, directory.path()).start();
    let mut consumer = Consumer::attach(directory.path().join("ingest")).expect("attached");
    let figures = told(&server, "ingest: ");
    assert_eq!(figures["pages_in_ring"], figures["pages"]);

    let mut producer = TcpStream::connect(server.address("ingest")).expect("connect");
    let mut kept = Vec::new();
    for seed in 0..5 {
        // One at a time, each longer than a page can hold beside another.
        producer.write_all(&message(seed, 40_000)).expect("sent");
        kept.push(next(&mut consumer));
    }
    let whole = message(9, 300_000);
    let (begun, rest) = whole.split_at(200_000);
    producer.write_all(begun).expect("sent");
    let figures = told_when(&server, "ingest: ", "a message to begin", |figures| {
        figures["pages_with_handlers"] > 0
    });
    let fragments = kept.iter().map(|one| one.fragments().len() as u64).sum();
    assert_eq!(figures["held"], fragments);
    let with_consumers = figures["pages_with_consumers"];
    assert!((1..=fragments).contains(&with_consumers), "{figures:?}");
    assert_eq!(
        figures["pages_in_ring"] + figures["pages_with_handlers"] + with_consumers,
        figures["pages"]
    );

    producer.write_all(rest).expect("sent");
    kept.push(next(&mut consumer));
    kept.clear();
    consumer.flush();
    told_when(&server, "ingest: ", "all pages to come back", |figures| {
        figures["pages_in_ring"] == figures["pages"]
    });
}

fn stalls_are_told_and_pages_of_the_dead_are_back(driver: Driver) {
    let directory = tempfile::tempdir().expect("a directory");
    let server = launch(driver, directory.path()).start();
    let mut producer = TcpStream::connect(server.address("ingest")).expect("connect");
    producer.write_all(&message(1, 1000)).expect("sent");
    told_when(
        &server,
        "ingest: ",
        "a producer to wait for a consumer",
        |figures| figures["stalls"] == 1 && figures["producers"] == 1,
    );
    let mut consumer = Consumer::attach(directory.path().join("ingest")).expect("attached");
    let message = next(&mut consumer);
    let held = message.fragments().len() as u64;
    drop(consumer);
    // Not to be returned any more.
    drop(message);
    let figures = told_when(&server, "ingest: ", "the end to be noticed", |figures| {
        figures["consumers"] + figures["held"] + figures["pages_with_handlers"] == 0
    });
    assert_eq!(figures["reclaimed"], held);
    assert_eq!(figures["pages_in_ring"], figures["pages"]);
}

fn pages_of_an_upload_are_told(driver: Driver) {
    let site = Site::new();
    let server = Launch::serve(driver)
        .directory(site.path())
        .with(["--writable"])
        .start();
    let kept = |server: &Server| told(server, "memory: http ")["pages_retained"];
    assert_eq!(kept(&server), 0);
    let mut client = server.client();
    client.request("PUT", "/file", &[("Content-Length", "1000000")]);
    // Less than is written at once: it gathers.
    client.send(&[7; 100_000]);
    until("its pages to be kept", || (kept(&server) > 0).then_some(()));
    client.send(&[7; 900_000]);
    assert_eq!(client.reply().status, 201);
    until("its pages to be back", || {
        (kept(&server) == 0).then_some(())
    });
    let counters = told(&server, "server:");
    assert!(counters["body_bytes_kept"] > 0, "{counters:?}");
}
