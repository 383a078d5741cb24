//! Ten thousand producers connected at once, one consumer, and a checksum of every message on both
//! sides.

use std::collections::HashMap;
use std::time::Duration;

use flatpath_consumer::{Consumer, Error, Message};
use flatpath_testkit::ingest::{figures, launch, message, told};
use flatpath_testkit::noise;
use flatpath_testkit::{Deadline, Driver, Server, Swarm, each_driver, until};

use crate::is_alone;

each_driver!(ten_thousand_producers_at_once_lose_and_change_nothing);

/// Wished for; fewer where this process may open fewer descriptors.
const PRODUCERS: usize = 10_000;
/// Messages of each producer, one in a round.
const ROUNDS: u64 = 3;

/// FNV-1a, 64 bits.
fn checksum<'a>(bytes: impl IntoIterator<Item = &'a u8>) -> u64 {
    let basis = 0xcbf2_9ce4_8422_2325;
    bytes.into_iter().fold(basis, |sum: u64, byte| {
        (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

fn seed(producer: usize, round: u64) -> u64 {
    (producer as u64) << 8 | round
}

/// Mostly short ones; later some that take several pages. Those of the first round wait in the
/// kernel's buffers, and must fit there.
fn length(producer: usize, round: u64) -> usize {
    let drawn = noise(!seed(producer, round), 2);
    match (producer as u64 + round) % 500 {
        0 if round > 0 => 150_000 + usize::from(drawn[0]),
        _ => usize::from(drawn[0]),
    }
}

/// Checksums of payloads by seed.
type Sums = HashMap<u64, u64>;

/// What was sent: the payload begins with its seed, after the length.
fn sent(producers: usize, round: u64) -> (Vec<Vec<u8>>, Sums) {
    let messages = (0..producers).map(|each| message(seed(each, round), length(each, round)));
    let messages: Vec<Vec<u8>> = messages.collect();
    let sums = (0..producers)
        .map(|each| (seed(each, round), checksum(&messages[each][4..])))
        .collect();
    (messages, sums)
}

/// What the consumer has of `count` messages, each looked at where it lies.
fn received(consumer: &mut Consumer, count: usize) -> Sums {
    let deadline = Deadline::default();
    let mut sums = Sums::new();
    while sums.len() < count {
        deadline.check("all messages to arrive");
        let wait = Duration::from_millis(100);
        let message = match consumer.receive_timeout(wait) {
            Ok(message) => message.expect("the server is there"),
            Err(Error::TimedOut) => continue,
            Err(cause) => panic!("{cause}"),
        };
        let (seed, sum) = looked_at(&message);
        assert_eq!(sums.insert(seed, sum), None, "message {seed:x} came twice");
    }
    sums
}

fn looked_at(message: &Message) -> (u64, u64) {
    let bytes = || {
        message
            .fragments()
            .iter()
            .flat_map(|fragment| fragment.iter())
    };
    let seed = bytes()
        .take(8)
        .fold(0, |seed, byte| seed << 8 | u64::from(*byte));
    (seed, checksum(bytes()))
}

/// A crowd that is connected, each with its first message under way.
fn crowd(server: &Server, producers: usize, first: &[Vec<u8>]) -> Swarm {
    let mut swarm = Swarm::start(server.address("ingest"), producers);
    swarm.send(|each| first[each].clone());
    swarm
}

fn ten_thousand_producers_at_once_lose_and_change_nothing(driver: Driver) {
    if !is_alone(
        driver,
        "ingest_crowd::ten_thousand_producers_at_once_lose_and_change_nothing",
    ) {
        return;
    }
    let producers = Swarm::size_allowed(PRODUCERS);
    let directory = tempfile::tempdir().expect("a directory");
    // As many pages as a region may have: half of them are for waiting producers.
    let mut server = launch(driver, directory.path())
        .with(["--ingest-memory", "2G", "--ingest-page", "64K"])
        .with(["--ingest-consumers", "1"])
        .start();

    // The first round: no consumer is attached, so every producer waits.
    let (messages, mut expected) = sent(producers, 0);
    let mut swarm = crowd(&server, producers, &messages);
    until("all producers to wait", || {
        let figures = told(&server, "ingest ");
        (figures["flatpath_ingest_producer_waits_total"] >= producers as u64).then_some(())
    });
    let mut consumer = Consumer::attach(directory.path().join("ingest")).expect("attached");
    let mut got = received(&mut consumer, producers);

    for round in 1..ROUNDS {
        let (messages, sums) = sent(producers, round);
        let expecting = std::thread::spawn(move || {
            let got = received(&mut consumer, producers);
            (consumer, got)
        });
        swarm.send(|each| messages[each].clone());
        let (back, sums_got) = expecting.join().expect("no panic");
        consumer = back;
        expected.extend(sums);
        got.extend(sums_got);
    }
    assert_eq!(got.len(), expected.len());
    assert!(got == expected, "a message has changed");

    consumer.flush();
    drop(swarm);
    until("all to be back", || {
        let figures = told(&server, "ingest ");
        let there = figures["flatpath_ingest_producers"]
            + figures["flatpath_ingest_fragments_held"]
            + figures["flatpath_ingest_pages{state=with_handlers}"];
        (there == 0).then_some(())
    });
    drop(consumer);
    server.terminate();
    assert!(server.exit_status().success());
    server.await_log("stopped");
    let figures = figures(&server.log(), "ingest: ").expect("figures");
    assert_eq!(
        figures["flatpath_ingest_messages_total"],
        expected.len() as u64
    );
    assert_eq!(
        figures["flatpath_ingest_fragments_back_total{way=returned}"]
            + figures["flatpath_ingest_fragments_back_total{way=reclaimed}"],
        figures["flatpath_ingest_fragments_total"]
    );
    for state in ["with_handlers", "with_consumers"] {
        let pages = figures[&*format!("flatpath_ingest_pages{{state={state}}}")];
        assert_eq!(pages, 0, "{state}");
    }
}
