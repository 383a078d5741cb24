//! A protocol learns at the start of a session where its peer comes from, and may speak first or
//! refuse it: on both drivers and in the simulation.

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::lines::choices;
use flatpath::simulation::{Conditions, SimulatedServer};
use flatpath::{Context, Event, Protocol, Received, Server};
use flatpath_driver::simulation::{Client, ClientState};

use crate::behind_proxy::hears;

const WELCOME: [u8; 4] = [127, 0, 0, 1];
const REFUSED: [u8; 4] = [127, 0, 0, 2];
const RESET: [u8; 4] = [127, 0, 0, 3];
const FATAL: [u8; 4] = [127, 0, 0, 4];

/// Greets each peer by its address, refuses some, and counts those that it receives from.
#[derive(Default)]
struct Doorkeeper(Arc<AtomicUsize>);

impl Protocol for Doorkeeper {
    type ThreadState = ();
    type Session = Option<SocketAddr>;
    type Job = ();

    fn event(&self, context: &mut Context<'_, Self>, event: Event<'_>) {
        match event {
            Event::Connected => {
                let peer = context.peer();
                *context.session = peer;
                match peer.map(|peer| peer.ip()) {
                    Some(IpAddr::V4(address)) if address.octets() == REFUSED => {
                        context.write_static(b"not you\n");
                        context.close_lingering();
                    }
                    Some(IpAddr::V4(address)) if address.octets() == RESET => context.abort(),
                    Some(IpAddr::V4(address)) if address.octets() == FATAL => {
                        resume_unwind(Box::new("as asked"))
                    }
                    _ => context.write_static(b"welcome\n"),
                }
            }
            other => other.by_default(context),
        }
    }

    fn received(&self, context: &mut Context<'_, Self>, _input: &[u8]) -> Received {
        self.0.fetch_add(1, Relaxed);
        let peer = context.session.map(|peer| peer.ip().to_string());
        let peer = peer.unwrap_or("nowhere".into());
        context.write(peer.as_bytes()).expect("room for an address");
        context.close_after_output();
        Received::Consumed
    }
}

/// What a client from this address reads after it has written a byte, until the end or a reset.
fn read_all(from: [u8; 4], server: SocketAddr) -> Result<String, ErrorKind> {
    hears(from, server, &[b"?"])
}

#[test]
fn a_peer_is_known_and_may_be_refused_before_it_is_received_from() {
    for choice in choices() {
        let received = Arc::new(AtomicUsize::new(0));
        let server = Server::new().driver(choice);
        let server = server.listen("127.0.0.1:0", Doorkeeper(Arc::clone(&received)));
        let running = server.start().expect("start");
        let address = running.addresses()[0].address;
        let welcome = Ok("welcome\n127.0.0.1".into());
        assert_eq!(read_all(WELCOME, address), welcome);
        assert_eq!(read_all(REFUSED, address), Ok("not you\n".into()));
        for fatal in [RESET, FATAL] {
            assert_eq!(read_all(fatal, address), Err(ErrorKind::ConnectionReset));
        }
        assert_eq!(read_all(WELCOME, address), welcome);
        assert_eq!(received.load(Relaxed), 2, "of those that were welcome");
        running.handle().drain();
        running.wait().expect("it ends");
    }
}

#[test]
fn sim_a_peer_is_known_and_may_be_refused() {
    for seed in 0..20 {
        let received = Arc::new(AtomicUsize::new(0));
        let protocol = Doorkeeper(Arc::clone(&received));
        let mut server = SimulatedServer::new(Conditions::calm(seed), protocol);
        let clients: Vec<_> = [WELCOME, REFUSED, RESET, FATAL]
            .map(|from| server.connect_from(Some((from, 7).into())))
            .into();
        clients.iter().for_each(|client| client.write(b"?"));
        let mut texts = vec![String::new(); clients.len()];
        for _ in 0..100 {
            server.turn();
            for (text, client) in texts.iter_mut().zip(&clients) {
                *text += std::str::from_utf8(&client.read()).expect("text");
            }
        }
        let states: Vec<_> = clients.iter().map(Client::state).collect();
        assert_eq!(texts, ["welcome\n127.0.0.1", "not you\n", "", ""]);
        assert_eq!(states[..2], [ClientState::Finished; 2], "seed {seed}");
        assert_eq!(states[2..], [ClientState::Reset; 2], "seed {seed}");
        assert_eq!(received.load(Relaxed), 1, "seed {seed}");
        clients.iter().for_each(Client::abort);
        server.drain();
        server.end(1000);
    }
}
