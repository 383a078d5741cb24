//! Pairing: a producer and a consumer that name the same token are each other's only partner.
//!
//! A producer names its token before its first message, a consumer in its hello. The first of them
//! waits: the producer is not received from, the consumer gets nothing. Connected means that the
//! producer's session has its consumer.
//!
//! Invariants
//! - A1: the consumer that a producer has is attached: the control thread ends the registration,
//!   and so takes the consumer from the producer, before it ends the consumer.
//! - A2: a registration lives in the session or in the attached peer, and ends with it.

use std::sync::Arc;

use flatpath::ConnectionHandle;
use flatpath::lock::{Guard, Lock};
use flatpath_pairing::{self as pairing, Endpoint, PairingKey, Registration, Registry};

use crate::consumer::Consumer;

/// A token as the registry wants it; 0 names none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Token(pub(crate) u64);

impl PairingKey for Token {
    fn word(self) -> u64 {
        self.0
    }
}

/// A producer that named a token.
#[derive(Debug)]
pub(crate) struct Seeker {
    waker: ConnectionHandle,
    found: Lock<Option<Arc<Consumer>>>,
}

/// A consumer that named a token.
#[derive(Debug)]
pub(crate) struct Sought(Arc<Consumer>);

type Ends = Registry<Token, Seeker, Sought>;

/// The registration of either.
pub(crate) type Registered = Registration<Arc<Ends>>;

impl Seeker {
    fn found(&self) -> Guard<'_, Option<Arc<Consumer>>> {
        // Nothing under the lock panics.
        self.found.lock()
    }

    /// The consumer of its token; if there is none, its connection is resumed when one attaches.
    pub(crate) fn consumer(&self) -> Option<Arc<Consumer>> {
        self.found().clone()
    }
}

impl pairing::Producer<Sought> for Seeker {
    type Error = std::convert::Infallible;

    fn add_consumer(&self, sought: &Sought) -> Result<(), Self::Error> {
        *self.found() = Some(Arc::clone(&sought.0));
        Ok(())
    }

    fn del_consumer(&self, _sought: &Sought) {
        *self.found() = None;
    }

    fn start(&self) {
        // Connected or disconnected: the session has something to do.
        self.waker.wake();
    }
}

impl pairing::Consumer<Seeker> for Sought {
    type Error = std::convert::Infallible;
}

/// The registry of an ingest listener.
#[derive(Clone, Debug)]
pub(crate) struct Pairings(Arc<Ends>);

impl Pairings {
    pub(crate) fn new(tokens_max: u32) -> Pairings {
        Pairings(Arc::new(Registry::new(tokens_max)))
    }

    /// Registers a producer. `None`: the token has one, or is empty, or there is no memory.
    pub(crate) fn seek(
        &self,
        token: u64,
        waker: ConnectionHandle,
    ) -> Option<(Arc<Endpoint<Seeker>>, Registered)> {
        let found = Lock::new(None);
        let seeker = Arc::new(Endpoint::new(Seeker { waker, found }));
        let registry = Arc::clone(&self.0);
        let registered = Registry::register_producer(registry, Token(token), Arc::clone(&seeker));
        registered.ok().map(|registered| (seeker, registered))
    }

    /// Registers a consumer. `None`: the token has one, or there is no memory.
    pub(crate) fn offer(&self, token: u64, consumer: &Arc<Consumer>) -> Option<Registered> {
        let sought = Arc::new(Endpoint::new(Sought(Arc::clone(consumer))));
        Registry::register_consumer(Arc::clone(&self.0), Token(token), sought).ok()
    }
}
