//! Values that are no ends: `flatpath_pairing::{Source, Sink}`.

use std::sync::Arc;

use flatpath_pairing::{Callback, Endpoint, Pairings, Sender, Token};

pub(crate) fn a_consumer_as_a_producer(pairings: &Pairings) {
    let callback = Arc::new(Endpoint::new(Callback::new(|_| {})));
    let _ = pairings.produce(Token(1), &callback);
}

pub(crate) fn a_producer_as_a_consumer(pairings: &Pairings) {
    let sender = Arc::new(Endpoint::new(Sender::new()));
    let _ = pairings.consume(Token(1), &sender);
}
