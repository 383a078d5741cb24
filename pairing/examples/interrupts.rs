//! An interrupt source: a device (here a thread) writes an eventfd, and the function registered for
//! it runs on a network thread. No worker wakes, and the device knows nothing but the descriptor.
//!
//! ```console
//! $ cargo run -p flatpath-pairing --example interrupts
//! $ nc 127.0.0.1 7778    # every line is answered with the number of interrupts so far
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use flatpath::watch::Eventfd;
use flatpath::{Context, Handle, Protocol, Received, Server};
use flatpath_pairing::{Callback, Endpoint, EventSource, Item, Pairing, Pairings, Token};

/// What the consumer has counted.
pub(crate) type Count = Arc<AtomicU64>;

/// The name of the interrupt, as both sides know it.
const LINE: Token = Token(7);

/// Registers the consumer, which is the guest in the machine, say.
pub(crate) fn consume(pairings: &Pairings, count: &Count) -> Pairing {
    let count = Arc::clone(count);
    let consumer = Callback::new(move |item| {
        if let Item::Signal(signals) = item {
            count.fetch_add(signals, Ordering::Relaxed);
        }
    });
    let consumer = Arc::new(Endpoint::new(consumer));
    pairings.consume(LINE, &consumer).expect("the line is free")
}

/// Registers the producer, which is the device; the eventfd is for who raises the interrupt.
pub(crate) fn produce(
    pairings: &Pairings,
    server: &Handle,
) -> std::io::Result<(Pairing, Arc<Eventfd>)> {
    let source = Arc::new(Endpoint::new(EventSource::new(server, Eventfd::new()?)));
    let eventfd = Arc::clone(source.eventfd());
    let pairing = pairings.produce(LINE, &source).expect("the line is free");
    Ok((pairing, eventfd))
}

/// Tells clients how many interrupts there were.
pub(crate) struct Teller(pub(crate) Count);

impl Protocol for Teller {
    type ThreadState = ();
    type Session = ();
    type Job = ();

    fn received(&self, context: &mut Context<'_, Self>, input: &[u8]) -> Received {
        let lines = input.iter().filter(|byte| **byte == b'\n').count();
        let words = format!("{}\n", self.0.load(Ordering::Relaxed));
        if context.write(words.repeat(lines).as_bytes()).is_err() {
            context.abort();
        }
        Received::Consumed
    }
}

#[allow(dead_code, reason = "the test has one of its own")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let count = Count::default();
    let server = Server::new().listen("127.0.0.1:7778", Teller(Arc::clone(&count)));
    let running = server.start()?;
    let pairings = Pairings::new(100);
    let _consumed = consume(&pairings, &count);
    let (_produced, eventfd) = produce(&pairings, &running.handle())?;
    loop {
        std::thread::sleep(Duration::from_millis(100));
        eventfd.write(1)?;
    }
}
