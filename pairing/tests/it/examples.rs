//! The examples do what they say, on io_uring and on epoll.

#[path = "../../examples/collector.rs"]
mod collector;
#[path = "../../examples/interrupts.rs"]
mod interrupts;
#[path = "../../examples/rendezvous.rs"]
mod rendezvous;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use self::collector::{Collected, Collector, collect};
use self::interrupts::{Count, Teller};
use self::rendezvous::Rendezvous;
use flatpath::{DriverChoice, Protocol, Running, Server};
use flatpath_pairing::{Endpoint, Item, Pairings, Sender, Token};
use flatpath_testkit::{drivers_here, patience, until_true};

fn start(choice: DriverChoice, protocol: impl Protocol) -> (Running, SocketAddr) {
    let server = Server::new().driver(choice);
    let running = server.listen("127.0.0.1:0", protocol).start();
    let running = running.expect("started");
    let address = running.addresses()[0].address;
    (running, address)
}

fn say(address: SocketAddr, words: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(address).expect("connected");
    stream
        .set_read_timeout(Some(patience()))
        .expect("a deadline");
    stream.write_all(words).expect("written");
    stream
}

fn hear(stream: &mut TcpStream, words: &[u8]) {
    let mut heard = vec![0; words.len()];
    stream.read_exact(&mut heard).expect("in time");
    assert_eq!(heard, words);
}

fn end(running: Running) {
    running.handle().force();
    running.wait().expect("a clean end");
}

#[test]
fn rendezvous_joins_one_who_gives_with_one_who_takes() {
    for choice in drivers_here(DriverChoice::Uring, DriverChoice::Epoll) {
        let (running, address) = start(choice, Rendezvous::new());
        let mut giver = say(address, b"give coffee\n");
        let mut taker = say(address, b"take coffee\n");
        hear(&mut giver, b"here you are\n");
        hear(&mut taker, b"here you are\n");
        giver.write_all(b"a cup").expect("open");
        hear(&mut taker, b"a cup");
        // The word has both its sides.
        hear(&mut say(address, b"take coffee\n"), b"no:");
        end(running);
    }
}

#[test]
fn interrupts_call_the_consumer_and_wake_no_worker() {
    for choice in drivers_here(DriverChoice::Uring, DriverChoice::Epoll) {
        let count = Count::default();
        let (running, address) = start(choice, Teller(Arc::clone(&count)));
        let pairings = Pairings::new(100);
        let handle = running.handle();
        let (_produced, eventfd) = interrupts::produce(&pairings, &handle).expect("a source");
        // Before there is a consumer: it waits in the eventfd.
        eventfd.write(2).expect("room");
        let consumed = interrupts::consume(&pairings, &count);
        until_true("early interrupts", || count.load(Ordering::Relaxed) == 2);
        for interrupts in 3..=50 {
            eventfd.write(1).expect("room");
            until_true("an interrupt", || {
                count.load(Ordering::Relaxed) == interrupts
            });
        }
        hear(&mut say(address, b"\n"), b"50\n");
        let figures = handle.figures();
        assert!(figures.threads[0].signals > 0);
        assert_eq!(
            figures.total().jobs_dispatched,
            0,
            "no worker had to do with it"
        );
        drop(consumed);
        eventfd.write(1).expect("room");
        // Another consumer finds what came in between.
        let second = Count::default();
        let _consumed = interrupts::consume(&pairings, &second);
        until_true("what came in between", || {
            second.load(Ordering::Relaxed) == 1
        });
        assert_eq!(count.load(Ordering::Relaxed), 50, "called after its end");
        end(running);
    }
}

#[test]
fn the_collector_collects_what_clients_and_threads_send() {
    for choice in drivers_here(DriverChoice::Uring, DriverChoice::Epoll) {
        let pairings = Pairings::new(100);
        let collected = Collected::default();
        let (running, address) = start(choice, Collector(pairings.clone()));
        let bytes = || collected.lock().clone();
        let mut early = say(address, b"9\nwaits, ");
        until_true("a producer", || pairings.figures().waiting == 1);
        let consumed = collect(&pairings, Token(9), &collected);
        until_true("early bytes", || bytes() == b"waits, ");
        early.write_all(b"then continues").expect("open");
        until_true("bytes", || bytes() == b"waits, then continues");
        hear(&mut say(address, b"9\n"), b"no\n");
        drop(early);
        until_true("the end of the client", || pairings.figures().waiting == 1);
        let feed = Arc::new(Endpoint::new(Sender::new()));
        assert!(!feed.send(Item::Bytes(b"lost")), "no consumer is connected");
        let _fed = pairings.produce(Token(9), &feed).expect("free again");
        assert!(feed.send(Item::Bytes(b".")));
        assert_eq!(bytes(), b"waits, then continues.");
        drop(consumed);
        assert!(!feed.send(Item::Bytes(b"lost")), "no consumer is connected");
        end(running);
    }
}
