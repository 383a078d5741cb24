//! What a running server tells of its memory when it is asked (SIGUSR1), and what is true of it.

use std::io::Write;
use std::net::TcpStream;

use flatpath_consumer::{Consumer, Message};
use flatpath_testkit::ingest::{Counts, launch, message, told};
use flatpath_testkit::{Driver, Launch, Server, Site, each_driver, until};

each_driver!(
    pages_are_told_by_who_has_them,
    stalls_are_told_and_pages_of_the_dead_are_back,
    pages_of_an_upload_are_told,
);

fn next(consumer: &mut Consumer) -> Message {
    consumer
        .receive_timeout(flatpath_testkit::patience())
        .expect("attached")
        .expect("a message")
}

const IN_RING: &str = "flatpath_ingest_pages{state=in_ring}";
const WITH_HANDLERS: &str = "flatpath_ingest_pages{state=with_handlers}";
const WITH_CONSUMERS: &str = "flatpath_ingest_pages{state=with_consumers}";

/// What is told, once it is as `settled` wants it: what was sent may be on its way.
fn told_when(server: &Server, what: &str, settled: impl Fn(&Counts) -> bool) -> Counts {
    until(what, || {
        let figures = told(server, "ingest ");
        settled(&figures).then_some(figures)
    })
}

fn pages_are_told_by_who_has_them(driver: Driver) {
    let directory = tempfile::tempdir().expect("a directory");
    let server = launch(driver, directory.path()).start();
    let mut consumer = Consumer::attach(directory.path().join("ingest")).expect("attached");
    let figures = told(&server, "ingest ");
    let pages = figures[IN_RING];
    assert_eq!(figures[WITH_HANDLERS] + figures[WITH_CONSUMERS], 0);

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
    let figures = told_when(&server, "a message to begin", |figures| {
        figures[WITH_HANDLERS] > 0
    });
    let fragments = kept.iter().map(|one| one.fragments().len() as u64).sum();
    assert_eq!(figures["flatpath_ingest_fragments_held"], fragments);
    let with_consumers = figures[WITH_CONSUMERS];
    assert!((1..=fragments).contains(&with_consumers), "{figures:?}");
    assert_eq!(
        figures[IN_RING] + figures[WITH_HANDLERS] + with_consumers,
        pages
    );

    producer.write_all(rest).expect("sent");
    kept.push(next(&mut consumer));
    kept.clear();
    consumer.flush();
    told_when(&server, "all pages to come back", |figures| {
        figures[IN_RING] == pages
    });
}

fn stalls_are_told_and_pages_of_the_dead_are_back(driver: Driver) {
    let directory = tempfile::tempdir().expect("a directory");
    let server = launch(driver, directory.path()).start();
    let mut producer = TcpStream::connect(server.address("ingest")).expect("connect");
    producer.write_all(&message(1, 1000)).expect("sent");
    let figures = told_when(&server, "a producer to wait for a consumer", |figures| {
        figures["flatpath_ingest_producer_waits_total"] == 1
            && figures["flatpath_ingest_producers"] == 1
    });
    let pages = figures[IN_RING] + figures[WITH_HANDLERS];
    let mut consumer = Consumer::attach(directory.path().join("ingest")).expect("attached");
    let message = next(&mut consumer);
    let held = message.fragments().len() as u64;
    drop(consumer);
    // Not to be returned any more.
    drop(message);
    let figures = told_when(&server, "the end to be noticed", |figures| {
        let held = figures["flatpath_ingest_fragments_held"] + figures[WITH_HANDLERS];
        figures["flatpath_ingest_consumers"] + held == 0
    });
    assert_eq!(
        figures["flatpath_ingest_fragments_back_total{way=reclaimed}"],
        held
    );
    assert_eq!(figures[IN_RING], pages);
}

fn pages_of_an_upload_are_told(driver: Driver) {
    let site = Site::new();
    let server = Launch::serve(driver)
        .directory(site.path())
        .with(["--writable"])
        .start();
    let retained = |told: &Counts| told["flatpath_receive_bytes{region=http,state=retained}"];
    let kept = |server: &Server| retained(&told(server, "network thread 0: "));
    assert_eq!(kept(&server), 0);
    let mut client = server.client();
    client.request("PUT", "/file", &[("Content-Length", "1000000")]);
    // Less than is written at once: it gathers.
    client.send([7; 100_000]);
    until("its pages to be kept", || (kept(&server) > 0).then_some(()));
    client.send([7; 900_000]);
    assert_eq!(client.reply().status, 201);
    until("its pages to be back", || {
        (kept(&server) == 0).then_some(())
    });
    let counters = told(&server, "http ");
    assert!(
        counters["flatpath_body_bytes_total{way=retained}"] > 0,
        "{counters:?}"
    );
}
