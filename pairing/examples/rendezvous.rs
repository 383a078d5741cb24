//! Clients that say the same word are joined: two TCP connections as the ends of a pair, bytes past
//! the workers.
//!
//! ```console
//! $ cargo run -p flatpath-pairing --example rendezvous
//! $ nc 127.0.0.1 7777    # say: give coffee
//! $ nc 127.0.0.1 7777    # say: take coffee
//! ```
//!
//! One that gives is a producer, one that takes a consumer. The registry connects the two, and
//! whoever came second asks the engine to join the connections.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use flatpath::{Context, Event, ListenerOptions, Protocol, Received, Server, Spread};
use flatpath_pairing::{ConnectionEnd, Endpoint, Pairing, Pairings, Token};

/// The service.
pub(crate) struct Rendezvous(Pairings);

impl Rendezvous {
    pub(crate) fn new() -> Rendezvous {
        Rendezvous(Pairings::new(10_000))
    }

    fn register(&self, line: &str, end: &Arc<Endpoint<ConnectionEnd>>) -> Option<Pairing> {
        let (verb, thing) = line.split_once(' ')?;
        // A service that must not join strangers takes tokens that cannot be guessed.
        let mut hasher = DefaultHasher::new();
        thing.hash(&mut hasher);
        let token = Token(hasher.finish().max(1));
        match verb {
            "give" => self.0.produce(token, end).ok(),
            "take" => self.0.consume(token, end).ok(),
            _ => None,
        }
    }
}

impl Protocol for Rendezvous {
    type ThreadState = ();
    /// Dropped with the connection: then the pair is parted and the word is free.
    type Session = Option<Pairing>;
    type Job = ();

    fn options(&self) -> ListenerOptions {
        ListenerOptions {
            spread: Spread::OneThread,
            ..ListenerOptions::named("rendezvous")
        }
    }

    fn received(&self, context: &mut Context<'_, Self>, input: &[u8]) -> Received {
        let line_end = input.iter().position(|byte| *byte == b'\n');
        let (Some(length), None) = (line_end, &context.session) else {
            // No whole line yet, or a client that speaks before the other is there.
            if context.session.is_some() || input.len() > 100 {
                context.close_lingering();
            }
            return Received::NeedMore { consumed: 0 };
        };
        let line = String::from_utf8_lossy(&input[..length]);
        let end = Arc::new(Endpoint::new(ConnectionEnd::new(context)));
        *context.session = self.register(line.trim_end(), &end);
        if context.session.is_some() {
            end.meet(context);
        } else {
            context.write_static(b"no: say give THING or take THING, once each\n");
            context.close_lingering();
        }
        Received::NeedMore {
            consumed: length + 1,
        }
    }

    fn event(&self, context: &mut Context<'_, Self>, event: Event<'_>) {
        match event {
            Event::Spliced => context.write_static(b"here you are\n"),
            other => other.by_default(context),
        }
    }
}

#[allow(dead_code, reason = "the test has one of its own")]
fn main() -> Result<(), flatpath::Error> {
    Server::new()
        .listen("127.0.0.1:7777", Rendezvous::new())
        .run()
}
