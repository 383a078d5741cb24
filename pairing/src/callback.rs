//! The ends within this process: a function that consumes, and a handle that produces.

use std::sync::Arc;

use crate::ends::{Intake, Item, Refused, Sink, Source};
use crate::gate::{Gate, Passed};

/// A consumer that is a function; see [`Intake`] for what it may do.
///
/// ```
/// use std::sync::Arc;
///
/// use flatpath_pairing::{Callback, Endpoint, Item, Pairings, Sender, Token};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let pairings = Pairings::new(100);
/// let sender = Arc::new(Endpoint::new(Sender::new()));
/// let shown = Arc::new(Endpoint::new(Callback::new(|item| println!("{item:?}"))));
/// let produced = pairings.produce(Token(1), &sender)?;
/// assert!(!sender.send(Item::Bytes(b"too early"))); // nobody consumes
/// let consumed = pairings.consume(Token(1), &shown)?;
/// assert!(sender.send(Item::Bytes(b"hello")));
/// # drop((produced, consumed));
/// # Ok(())
/// # }
/// ```
pub struct Callback(Arc<Intake>);

impl Callback {
    /// Lets `function` take what a producer brings.
    pub fn new(function: impl Fn(Item<'_>) + Send + Sync + 'static) -> Callback {
        Callback(Arc::new(function))
    }
}

impl Sink for Callback {
    fn intake(&self) -> Option<Arc<Intake>> {
        Some(Arc::clone(&self.0))
    }
}

impl std::fmt::Debug for Callback {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_tuple("Callback").finish_non_exhaustive()
    }
}

/// A producer that threads of this process hand items to. The consumer's function runs on their
/// thread, so there is no queue.
#[derive(Debug, Default)]
pub struct Sender(Gate);

impl Sender {
    /// One that leads nowhere yet.
    pub fn new() -> Sender {
        Sender::default()
    }

    /// Hands an item to the consumer, and returns when it has taken it. Waits for other threads
    /// that do the same, and while a pair is just being connected. False: no consumer is connected.
    pub fn send(&self, item: Item<'_>) -> bool {
        self.0.pass_in_time(item) == Passed::Taken
    }
}

impl Source for Sender {
    fn connect(&self, consumer: &dyn Sink) -> Result<(), Refused> {
        self.0.connect(consumer.intake().ok_or(Refused::Unfit)?);
        Ok(())
    }

    fn disconnect(&self) {
        self.0.disconnect();
    }

    fn stop(&self) {
        self.0.stop();
    }

    fn start(&self) {
        self.0.start();
    }
}
