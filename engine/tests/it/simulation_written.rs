//! A protocol that retains all it takes, with TLS: whatever its input lay in, what it is given
//! lies in a page of its own region.

use std::sync::{Arc, OnceLock};

use crate::tls_client::{End, TURNS_MAX, server_config, tls_conditions};
use flatpath::memory::RegionConfig;
use flatpath::simulation::SimulatedServer;
use flatpath::{ConnectionHandle, Context, Limits, ListenerOptions, Protocol, Received, Stall};

/// Retains lines, and says how long each is. `wait` waits for something else, and is answered when
/// that is there.
#[derive(Clone, Default)]
struct Retains(Arc<OnceLock<ConnectionHandle>>);

impl Protocol for Retains {
    type ThreadState = ();
    type Session = ();
    type Job = ();

    fn options(&self) -> ListenerOptions {
        ListenerOptions {
            region: Some(RegionConfig {
                pages: 16,
                page_bytes: 4096,
                reserve_pages: 4,
                ..RegionConfig::default()
            }),
            retains_all: true,
            ..ListenerOptions::named("retains")
        }
    }

    fn received(&self, context: &mut Context<'_, Self>, input: &[u8]) -> Received {
        if input.is_empty() {
            context.write_static(b"resumed\n");
            return Received::Consumed;
        }
        let Some(end) = input.iter().position(|byte| *byte == b'\n') else {
            return Received::NeedMore { consumed: 0 };
        };
        let line = context.retain(0..end).expect("it lies in a page");
        if line.bytes() == b"wait" {
            let _ = self.0.set(context.handle());
            return Received::Blocked {
                consumed: input.len(),
                on: Stall::Outside,
            };
        }
        let reply = format!("{}\n", line.len());
        context.write(reply.as_bytes()).expect("room");
        Received::NeedMore { consumed: end + 1 }
    }
}

fn shaken(protocol: Retains) -> (SimulatedServer, End) {
    let conditions = tls_conditions(Limits::default(), server_config());
    let mut server = SimulatedServer::new(conditions, protocol);
    let mut end = End::new(&server, 1);
    end.talk(&mut server);
    assert!(!end.tls.tls.is_handshaking());
    (server, end)
}

fn finish(mut server: SimulatedServer, end: End) {
    end.client.abort();
    server.drain();
    server.end(TURNS_MAX);
}

#[test]
fn sim_what_was_left_of_a_record_lies_in_a_page_with_what_follows() {
    let (mut server, mut end) = shaken(Retains::default());
    for (said, heard) in [
        ("whole\n", "5\n"),
        ("the begin", ""),
        (" and the end\n", "21\n"),
        (&("x".repeat(3000) + "\n"), "3000\n"),
    ] {
        end.tls.say(said.as_bytes());
        assert_eq!(end.hears(&mut server), heard, "{said}");
    }
    finish(server, end);
}

#[test]
fn sim_a_protocol_that_waited_with_nothing_left_is_called_again() {
    let protocol = Retains::default();
    let (mut server, mut end) = shaken(protocol.clone());
    end.tls.say(b"wait\n");
    assert_eq!(end.hears(&mut server), "");
    protocol.0.get().expect("it waits").wake();
    assert_eq!(end.hears(&mut server), "resumed\n");
    finish(server, end);
}
