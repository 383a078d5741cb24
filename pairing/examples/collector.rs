//! A function that consumes: what a TCP client sends, and what a thread of this process hands over,
//! goes straight to a callback. The client's bytes pass on the network thread, a thread's items on
//! its own.
//!
//! ```console
//! $ cargo run -p flatpath-pairing --example collector
//! $ nc 127.0.0.1 7779    # say a number from 1 to 3, then whatever you like
//! ```
//!
//! A client whose number has no function yet waits, and so do its bytes.

use std::sync::Arc;

use flatpath::lock::Lock;
use flatpath::{Context, Protocol, Received, Server};
use flatpath_pairing::{Callback, ConnectionEnd, Endpoint, Item, Pairing, Pairings, Sender, Token};

/// What a function has collected.
pub(crate) type Collected = Arc<Lock<Vec<u8>>>;

/// Registers a function that collects bytes.
pub(crate) fn collect(pairings: &Pairings, token: Token, collected: &Collected) -> Pairing {
    let collected = Arc::clone(collected);
    let function = Callback::new(move |item| {
        if let Item::Bytes(bytes) = item {
            collected.lock().extend_from_slice(bytes);
        }
    });
    let function = Arc::new(Endpoint::new(function));
    pairings
        .consume(token, &function)
        .expect("the token is free")
}

/// The service: a client's first line is its token.
pub(crate) struct Collector(pub(crate) Pairings);

type Registered = (Arc<Endpoint<ConnectionEnd>>, Pairing);

impl Protocol for Collector {
    type ThreadState = ();
    type Session = Option<Registered>;
    type Job = ();

    fn received(&self, context: &mut Context<'_, Self>, input: &[u8]) -> Received {
        if let Some((end, _)) = &context.session {
            return end.pass(&mut context.io, input);
        }
        let Some(length) = input.iter().position(|byte| *byte == b'\n') else {
            if input.len() > 20 {
                context.abort();
            }
            return Received::NeedMore { consumed: 0 };
        };
        let line = String::from_utf8_lossy(&input[..length]);
        let token = Token(line.trim_end().parse().unwrap_or(0));
        let end = Arc::new(Endpoint::new(ConnectionEnd::new(context)));
        let Ok(pairing) = self.0.produce(token, &end) else {
            context.write_static(b"no\n");
            context.close_lingering();
            return Received::Consumed;
        };
        end.meet(context);
        let received = end.pass(context, &input[length + 1..]);
        *context.session = Some((end, pairing));
        received.after(length + 1)
    }
}

#[allow(dead_code, reason = "the test has one of its own")]
fn main() -> Result<(), flatpath::Error> {
    let pairings = Pairings::new(100);
    let collected = Collected::default();
    let functions: Vec<Pairing> = (1..=3)
        .map(|token| collect(&pairings, Token(token), &collected))
        .collect();
    // A producer in this process, and a function that prints.
    let log = Arc::new(Endpoint::new(Sender::new()));
    let print = Callback::new(|item| println!("{item:?}"));
    let _printed = pairings.consume(Token(4), &Arc::new(Endpoint::new(print)));
    let _logged = pairings.produce(Token(4), &log);
    log.send(Item::Bytes(b"collecting"));
    Server::new()
        .listen("127.0.0.1:7779", Collector(pairings))
        .run()?;
    drop(functions);
    Ok(())
}
