//! Clients that pipeline without end share the receive pages with the others, on the simulated
//! driver.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::lines::Lines;
use flatpath::simulation::{Conditions, SimulatedServer};
use flatpath::{Context, DriverConfig, ListenerLimits, Phase, Protocol, Received, Stall};
use flatpath_driver::simulation::{Client, Network};

const PAGES: u32 = 32;
const PAGE_BYTES: u32 = 256;

/// Most turns until an answer to one of a few questions, beside clients that pipeline.
fn turns_beside(server: &mut SimulatedServer, crowd: &[Client]) -> usize {
    const QUESTIONS: usize = 20;
    const TURNS_MAX: usize = 1000;
    let innocent = server.connect();
    let pipeline = b"ping\n".repeat(4 * PAGE_BYTES as usize);
    let mut longest = 0;
    for number in 0..QUESTIONS {
        innocent.write(b"ping\n");
        let mut turns = 0;
        while innocent.read() != b"pong\n" {
            for client in crowd {
                client.read();
                client.write(&pipeline);
            }
            server.turn();
            turns += 1;
            assert!(turns < TURNS_MAX, "no answer");
        }
        // The first one meets what the crowd had sent before it was known to be one.
        longest = longest.max(if number == 0 { 0 } else { turns });
    }
    longest
}

#[test]
fn sim_pipelining_clients_leave_pages_to_the_others() {
    const TURNS_MAX: usize = 4;
    let mut conditions = Conditions::calm(1);
    conditions.driver = DriverConfig {
        receive_buffers: PAGES,
        receive_buffer_bytes: PAGE_BYTES,
        ..DriverConfig::default()
    };
    let mut server = SimulatedServer::new(conditions, Lines);
    let crowd: Vec<Client> = (0..40).map(|_| server.connect()).collect();
    for client in &crowd {
        client.write(b"ping\n");
    }
    server.turn();
    let longest = turns_beside(&mut server, &crowd);
    assert!(longest <= TURNS_MAX, "{longest} turns for an answer");
    assert!(server.statistics().bulk_flows > 0);
    for client in &crowd {
        client.abort();
    }
    server.force();
    server.end(1000);
}

/// How many answers of workers a crowd of one address has before a client of another has one that
/// asks after it.
fn answers_before(seed: u64, listeners: usize) -> usize {
    const CROWD: usize = 20;
    const TURNS_MAX: usize = 10_000;
    let peer = |host| Some(([192, 0, 2, host], 7).into());
    let limits = vec![ListenerLimits::default(); listeners];
    let mut server = SimulatedServer::with_limited(Conditions::calm(seed), 16, &limits, Lines);
    let crowd: Vec<Client> = (0..CROWD).map(|_| server.connect_from(peer(1))).collect();
    for client in &crowd {
        client.write(&b"work 1\n".repeat(50));
    }
    let innocent = server.connect_from(peer(2));
    server.turn();
    innocent.write(b"work 2\n");
    let mut answers = 0;
    for _ in 0..TURNS_MAX {
        server.turn();
        let bytes: usize = crowd.iter().map(|client| client.read().len()).sum();
        answers += bytes / b"done 1\n".len();
        if innocent.read() == b"done 2\n" {
            server.force();
            server.end(1000);
            return answers;
        }
    }
    panic!("no answer");
}

/// Those that were queued before anything was counted, and one in eight afterwards.
#[test]
fn sim_jobs_of_a_crowd_of_one_address_do_not_make_others_wait() {
    for listeners in [1, 3] {
        for seed in 1..20 {
            let answers = answers_before(seed, listeners);
            assert!(
                answers < 200,
                "{answers} of 1,000 first, {listeners} listeners"
            );
        }
    }
}

/// A crowd that was, and is answered, leaves nothing that its address would pay for.
#[test]
fn sim_jobs_of_an_address_are_counted_until_they_are_back() {
    let peer = |host| Some(([192, 0, 2, host], 7).into());
    let mut server = SimulatedServer::new(Conditions::calm(3), Lines);
    let ask = |server: &mut SimulatedServer, host, times| {
        let client = server.connect_from(peer(host));
        client.write(&b"work 1\n".repeat(times));
        server.turn();
        client
    };
    let settle = |server: &mut SimulatedServer| {
        for _ in 0..2_000 {
            server.turn();
        }
    };
    // More than are counted at once, several times.
    for _ in 0..4 {
        let clients: Vec<Client> = (0..4).map(|_| ask(&mut server, 1, 60)).collect();
        settle(&mut server);
        for client in &clients {
            assert_eq!(client.read().len(), 60 * b"done 1\n".len());
        }
    }
    // The other address has enough that its last ones come after others, the first has few.
    let many: Vec<Client> = (0..4).map(|_| ask(&mut server, 2, 60)).collect();
    let few = ask(&mut server, 1, 1);
    let mut answers = 0;
    while few.read().is_empty() {
        server.turn();
        let bytes: usize = many.iter().map(|client| client.read().len()).sum();
        answers += bytes / b"done 1\n".len();
        assert!(answers < 200, "its jobs come after those of the other");
    }
    server.force();
    server.end(1000);
}

/// What one question costs the network thread, in simulated nanoseconds.
const QUESTION: Duration = Duration::from_micros(1);

/// Answers each byte with one, and needs time for it.
struct Costly(Arc<OnceLock<Network>>);

impl Protocol for Costly {
    type ThreadState = ();
    type Session = ();
    type Job = ();

    fn received(&self, context: &mut Context<'_, Self>, input: &[u8]) -> Received {
        context.restart_phase(Phase::Idle);
        if context.output_is_full() {
            return Received::Blocked {
                consumed: 0,
                on: Stall::Output,
            };
        }
        let network = self.0.get().expect("set before the first turn");
        network.advance(QUESTION * input.len() as u32);
        context.write(input).expect("room");
        Received::Consumed
    }
}

/// The longest simulated time until one of a few questions is answered, each on a connection of its
/// own, beside a crowd that asks `bytes` questions each whenever it has its answers.
fn longest_beside(crowd: usize, bytes: usize) -> Duration {
    const QUESTIONS: usize = 20;
    const TURNS_MAX: usize = 10_000;
    let network = Arc::new(OnceLock::new());
    let protocol = Costly(Arc::clone(&network));
    let mut conditions = Conditions::calm(1);
    // Enough that connections are not accepted one by one.
    conditions.limits.connections_max = 10_000;
    let mut server = SimulatedServer::new(conditions, protocol);
    let _ = network.set(server.world().clone());
    let pipeline = vec![b'?'; bytes];
    let mut crowd: Vec<(Client, usize)> = (0..crowd)
        .map(|_| (server.connect(), pipeline.len()))
        .collect();
    for _ in 0..crowd.len() {
        server.turn();
    }
    let mut longest = Duration::ZERO;
    for _ in 0..QUESTIONS {
        let innocent = server.connect();
        let asked = server.world().now();
        innocent.write(b"?");
        let mut turns = 0;
        while innocent.read() != b"?" {
            for (client, answers) in &mut crowd {
                *answers += client.read().len();
                if *answers >= pipeline.len() {
                    *answers -= pipeline.len();
                    client.write(&pipeline);
                }
            }
            server.turn();
            turns += 1;
            assert!(turns < TURNS_MAX, "no answer");
        }
        longest = longest.max(server.world().now() - asked);
    }
    longest
}

#[test]
fn sim_a_short_request_does_not_wait_for_a_crowd_that_pipelines() {
    const PAGE_NS: u128 = 16 * 1024 * QUESTION.as_nanos();
    // Accept, receive and send take a turn each, and each turn brings a page of the crowd's.
    for crowd in [1, 64, 300] {
        let longest = longest_beside(crowd, 40_000);
        let pages = longest.as_nanos() as f64 / PAGE_NS as f64;
        assert!(
            pages < 8.0,
            "beside {crowd}: as long as {pages:.1} pages take"
        );
    }
}
