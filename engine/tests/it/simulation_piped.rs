//! What comes in pipes, on the simulated driver: nothing that is not next, nothing encrypted, and
//! nothing more of a stream once its connection ends.

use std::fs::File;
use std::sync::Arc;

#[cfg(feature = "tls")]
use crate::tls_client::{End, VERSIONS, server_config, tls_conditions};
#[cfg(feature = "tls")]
use flatpath::Limits;
use flatpath::lock::Lock;
use flatpath::memory::{Piped, RegionConfig};
use flatpath::simulation::{Conditions, SimulatedServer};
use flatpath::{Context, Event, ListenerOptions, Pages, Protocol, Received, Stall, WorkerScope};

const TURNS_MAX: usize = 10_000;

/// What a receive brings at most.
const PAGE_BYTES: u32 = 4096;
/// The first bytes of a stream, which are taken in one piece.
const HEAD_BYTES: usize = 6000;
/// A pipe takes no more.
const PIPE_BYTES: u32 = 64;

/// What was taken, in its order, and whether some of it came in a pipe.
#[derive(Default)]
struct Taken {
    bytes: Vec<u8>,
    is_piped: bool,
}

/// A head and then a body, which is asked for in pipes from the beginning.
#[derive(Clone, Default)]
struct Takes {
    taken: Arc<Lock<Taken>>,
    /// Keeps pipes, as a worker would that writes them to a slow disk.
    keeps: bool,
    kept: Arc<Lock<Option<Piped>>>,
}

impl Takes {
    fn note(&self, is_piped: bool, bytes: &[u8]) {
        let mut taken = self.taken.lock();
        taken.bytes.extend_from_slice(bytes);
        taken.is_piped |= is_piped;
    }

    fn has_taken(&self, bytes: &[u8], is_piped: bool) -> bool {
        let taken = self.taken.lock();
        taken.bytes == bytes && taken.is_piped == is_piped
    }
}

impl Protocol for Takes {
    type ThreadState = ();
    /// Its head was taken.
    type Session = bool;
    type Job = ();

    /// Pages of its own are received into one by one, and before each a pipe may take its place.
    fn options(&self) -> ListenerOptions {
        ListenerOptions {
            region: Some(RegionConfig {
                pages: 64,
                page_bytes: PAGE_BYTES,
                ..RegionConfig::default()
            }),
            first_pages: Pages::Listener,
            ..ListenerOptions::named("takes")
        }
    }

    fn received(&self, context: &mut Context<'_, Self>, input: &[u8]) -> Received {
        context.receive_piped(Some(1..=PIPE_BYTES));
        let has_head = std::mem::replace(context.session, true);
        if !has_head && input.len() < HEAD_BYTES {
            *context.session = false;
            return Received::NeedMore { consumed: 0 };
        }
        self.note(false, input);
        Received::Consumed
    }

    fn event(&self, context: &mut Context<'_, Self>, event: Event<'_>) {
        match event {
            Event::Piped(piped) => {
                if self.keeps {
                    *self.kept.lock() = Some(piped);
                    return context.stall(Stall::Body);
                }
                context.receive_piped(Some(1..=PIPE_BYTES));
                self.note(true, &piped.into_bytes().expect("what lies in a pipe"));
            }
            other => other.by_default(context),
        }
    }

    fn run(&self, (): &mut (), _: &mut WorkerScope<'_>) {}
}

fn turns(server: &mut SimulatedServer) {
    (0..200).for_each(|_| server.turn());
}

/// A head and a body of which each byte says where it belongs.
fn stream() -> Vec<u8> {
    let words = (0..10_000_u16).flat_map(u16::to_be_bytes);
    words.collect()
}

#[test]
fn sim_what_is_kept_of_the_input_comes_before_what_is_in_the_socket() {
    let takes = Takes::default();
    let mut server = SimulatedServer::new(Conditions::calm(1), takes.clone());
    let client = server.connect();
    client.write(&stream());
    turns(&mut server);
    assert!(takes.has_taken(&stream(), true));
    client.abort();
    server.drain();
    server.end(TURNS_MAX);
}

#[cfg(feature = "tls")]
#[test]
fn sim_what_is_encrypted_comes_in_no_pipe() {
    for version in 0..VERSIONS.len() {
        let takes = Takes::default();
        let conditions = tls_conditions(Limits::default(), server_config());
        let mut server = SimulatedServer::new(conditions, takes.clone());
        let mut end = End::new(&server, version);
        let (stream, mut said) = (stream(), HEAD_BYTES);
        end.tls.say(&stream[..said]);
        end.talk(&mut server);
        // A record ends where a page does, and the next is in the socket by then.
        let overhead = {
            end.tls.say(&stream[said..][..1]);
            let record = end.tls.take();
            end.client.write(&record);
            said += 1;
            record.len() - 1
        };
        turns(&mut server);
        let mut records = Vec::new();
        for _ in 0..3 {
            let content = &stream[said..][..PAGE_BYTES as usize - overhead];
            end.tls.say(content);
            records.extend(end.tls.take());
            said += content.len();
        }
        assert_eq!(records.len(), 3 * PAGE_BYTES as usize);
        end.client.write(&records);
        turns(&mut server);
        assert!(takes.has_taken(&stream[..said], false));
        end.client.abort();
        server.drain();
        server.end(TURNS_MAX);
    }
}

/// A worker has the stream, and is slow. The connection ends before it is back.
#[test]
fn sim_the_stream_is_taken_back_before_its_connection_ends() {
    let takes = Takes {
        keeps: true,
        ..Takes::default()
    };
    let mut server = SimulatedServer::new(Conditions::calm(1), takes.clone());
    let client = server.connect();
    client.write(&stream());
    turns(&mut server);
    let mut piped = takes.kept.lock().take().expect("a pipe");
    let written = File::create("/dev/null").expect("opened");
    let mut fills_again = || {
        piped.write_to(&written).expect("written");
        piped.refill(1..=2)
    };
    assert!(fills_again(), "while the connection waits for it");
    server.force();
    turns(&mut server);
    assert!(!fills_again(), "the connection has ended");
    drop(piped);
    server.end(TURNS_MAX);
}
