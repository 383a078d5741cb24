//! Pairing for Flatpath: connects a source of events or bytes to its consumer, past the workers.
//!
//! Two parties that do not know each other register under one [`Token`], one as a producer, one as
//! a consumer; as soon as both are there they are connected. There are two registries:
//!
//! - [`Pairings`], for ends of any kind ([`Source`], [`Sink`]). The ends below are built in,
//!   and anything that implements the traits is one.
//! - [`Registry`], for services whose producers are all of one type, and their consumers, with
//!   typed keys. It is what `Pairings` is made of.
//!
//! | end               | side     | what it is                                                  |
//! |-------------------|----------|-------------------------------------------------------------|
//! | [`EventSource`]   | producer | an eventfd; its consumer is called on a network thread      |
//! | [`Sender`]        | producer | items that threads of this process hand to it               |
//! | [`ConnectionEnd`] | both     | a TCP connection, spliced to another, or for a callback     |
//! | [`Callback`]      | consumer | a function of this process                                  |
//!
//! ```no_run
//! use std::sync::Arc;
//!
//! use flatpath::watch::Eventfd;
//! use flatpath_pairing::{Callback, Endpoint, EventSource, Pairings, Token};
//!
//! # fn pair(running: &flatpath::Running) -> Result<(), Box<dyn std::error::Error>> {
//! let pairings = Pairings::new(10_000);
//! let source = EventSource::new(&running.handle(), Eventfd::new()?);
//! let source = Arc::new(Endpoint::new(source));
//! let function = Arc::new(Endpoint::new(Callback::new(|item| println!("{item:?}"))));
//! let produced = pairings.produce(Token(7), &source)?;
//! // From now on a write calls the function.
//! let consumed = pairings.consume(Token(7), &function)?;
//! source.eventfd().write(1)?;
//! drop(consumed); // from now on signals wait
//! # drop(produced);
//! # Ok(())
//! # }
//! ```
//!
//! # Contract
//! - Connecting: `stop` of the producer, `stop` of the consumer, [`Source::connect`],
//!   [`Sink::connect`], `start` of the consumer, `start` of the producer. The starts follow
//!   always, also after a failure or a panic. Disconnecting: the stops, [`Sink::disconnect`],
//!   [`Source::disconnect`], the starts.
//! - When `connect` fails on either side, what was connected is disconnected and the newcomer is
//!   not registered; the end that was there stays and waits for another. The error says why.
//! - A token has one producer and one consumer. Another one is refused ([`RegisterError::Taken`])
//!   and nothing of those that are there is touched, now or when the loser is dropped.
//! - An end is registered once at a time ([`RegisterError::RegisteredTwice`]).
//! - The end of a [`Pairing`] is the end of the registration; ending it twice does nothing. After
//!   it, no call of the consumer begins; it waits for one under way, except on the thread that
//!   makes it.
//! - A consumer's function must not end a pairing of its own pair: the thread that ends the other
//!   side could be waiting for it.
//!
//! Invariants
//! - P1: connected and tracked are one: a pair that the registry does not know is not connected,
//!   and both sides of a token are registered exactly if they are.
//! - P2: an end that may still be called is alive: a producer holds its consumer's intake, the
//!   registry holds both ends, and a network thread holds what it watches.
//! - P3: no signal is lost: what an [`EventSource`] could not pass on waits for the next consumer.
//!   No byte is: input of a connection waits in the connection.
//!
//! Cost: a registration is O(1), see [`Registry`]; an item that passes is one uncontended lock and
//! one indirect call.
#![forbid(unsafe_code)]

use std::sync::Arc;

pub use flatpath_structures::pairing::{
    Consumer, Endpoint, PairingKey, Producer, RegisterError, Registered, Registration, Registry,
};

pub use callback::{Callback, Sender};
pub use connection::ConnectionEnd;
pub use ends::{Intake, Item, Refused, Sink, Source};
pub use event::EventSource;

mod callback;
mod connection;
mod ends;
mod event;
mod gate;

/// What a pair calls itself. Zero names nothing ([`RegisterError::EmptyKey`]). Whoever knows it can
/// be the other side: between parties that do not trust each other it is chosen at random.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Token(pub u64);

impl PairingKey for Token {
    fn word(self) -> u64 {
        self.0
    }
}

type Ends = Registry<Token, dyn Source, dyn Sink>;

/// The registry for ends of any kind; see [the crate](crate). Clones are the same registry.
///
/// ```
/// use std::sync::Arc;
///
/// use flatpath_pairing::{Callback, Endpoint, Pairings, Sender, Token};
///
/// let pairings = Pairings::new(100);
/// let sender = Arc::new(Endpoint::new(Sender::new()));
/// let printer = Arc::new(Endpoint::new(Callback::new(|item| println!("{item:?}"))));
/// let produced = pairings.produce(Token(7), &sender).expect("the token is free");
/// let consumed = pairings.consume(Token(7), &printer).expect("the token is free");
/// assert_eq!(pairings.figures().paired, 1);
/// # drop((produced, consumed));
/// ```
#[derive(Clone, Debug)]
pub struct Pairings(Arc<Ends>);

/// How many wait and how many have met.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PairingFigures {
    /// Ends that wait for their other side now.
    pub waiting: u64,
    /// Pairs that are connected now.
    pub paired: u64,
    /// Pairs that were connected since the start.
    pub matched: u64,
}

impl Pairings {
    /// An empty registry for about `tokens_max` tokens.
    pub fn new(tokens_max: u32) -> Pairings {
        Pairings(Arc::new(Registry::new(tokens_max)))
    }

    /// Registers a producer, and connects it if the token has a consumer.
    ///
    /// # Errors
    /// [`RegisterError`]; nothing has changed then.
    pub fn produce<P: Source + 'static>(
        &self,
        token: Token,
        producer: &Arc<Endpoint<P>>,
    ) -> Result<Pairing, RegisterError<Refused>> {
        let producer: Arc<Endpoint<dyn Source>> = Arc::<Endpoint<P>>::clone(producer);
        let registered = Registry::register_producer(Arc::clone(&self.0), token, producer);
        registered.map(Pairing)
    }

    /// Registers a consumer, and connects it if the token has a producer.
    ///
    /// # Errors
    /// [`RegisterError`]; nothing has changed then.
    pub fn consume<C: Sink + 'static>(
        &self,
        token: Token,
        consumer: &Arc<Endpoint<C>>,
    ) -> Result<Pairing, RegisterError<Refused>> {
        let consumer: Arc<Endpoint<dyn Sink>> = Arc::<Endpoint<C>>::clone(consumer);
        let registered = Registry::register_consumer(Arc::clone(&self.0), token, consumer);
        registered.map(Pairing)
    }

    /// Whether both sides of a token are there, and so connected, at this moment.
    pub fn is_connected(&self, token: Token) -> bool {
        self.0.is_connected(token)
    }

    /// Looks at all shards of the registry: for display.
    pub fn figures(&self) -> PairingFigures {
        let paired = self.0.pairs();
        PairingFigures {
            waiting: self.0.len().saturating_sub(paired) as u64,
            paired: paired as u64,
            matched: self.0.matched(),
        }
    }

    /// From now on the registry gets no memory, or gets it again. For tests and simulations.
    pub fn starve(&self, is_out_of_memory: bool) {
        self.0.starve(is_out_of_memory);
    }
}

/// A registration in [`Pairings`]; it ends when this is dropped.
#[derive(Debug)]
#[must_use = "the registration ends when this is dropped"]
pub struct Pairing(Registration<Arc<Ends>>);

impl Pairing {
    /// Disconnects the pair, if it is one, and forgets this side. Whether it had not ended yet: the
    /// second time does nothing.
    pub fn end(&mut self) -> bool {
        self.0.end()
    }
}
