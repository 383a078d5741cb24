//! The beginning of a drain: a client that connects meanwhile is served, by this process or by
//! another one that has the listening socket too.

use std::time::Duration;

use crate::lines::Lines;
use flatpath::simulation::{Conditions, SimulatedServer};
use flatpath::{Context, Event, Limits, OperationMode, Phase, Protocol, Received, ServerState};
use flatpath_driver::simulation::{Client, ClientState, Fault, Random, each_seed};

const SEEDS: u64 = 300;
const TURNS_MAX: usize = 10_000;
const CLIENTS_MAX: usize = 200;

fn turn_until(
    server: &mut SimulatedServer,
    what: &str,
    mut is_so: impl FnMut(&SimulatedServer) -> bool,
) {
    for _ in 0..TURNS_MAX {
        if is_so(server) {
            return;
        }
        server.turn();
    }
    panic!("seed {}: {what}: not so", server.world().seed());
}

fn accepted(server: &SimulatedServer) -> u64 {
    server.statistics().connections_accepted
}

/// How many clients have been answered; the others are in the backlog, for another process that has
/// the socket.
fn answered(clients: &[Client]) -> u64 {
    let answers = clients
        .iter()
        .map(|client| match (client.read().as_slice(), client.state()) {
            (b"pong\n", ClientState::Finished) => 1,
            (b"", ClientState::Open) => 0,
            (heard, state) => panic!("{:?}, {state:?}", String::from_utf8_lossy(heard)),
        });
    answers.sum()
}

/// What a cancelled accept still brings was accepted for good: no other process can serve it. The
/// protocol here closes a connection as soon as it is notified of the drain.
#[test]
fn a_cancel_that_brings_connections_loses_none() {
    let mut late = 0;
    each_seed(SEEDS, |seed| {
        let mut random = Random::new(seed);
        let mut conditions = Conditions::calm(seed);
        // Far from the limit, where connections are accepted one by one.
        conditions.limits.connections_max = 10_000;
        let races = [Fault::CancelRace, Fault::Late, Fault::EarlyEnd];
        for fault in races {
            conditions.faults = conditions.faults.with(fault, 300);
        }
        if random.below(4) == 0 {
            conditions.accept = OperationMode::Single;
        }
        let mut server = SimulatedServer::new(conditions, Lines);
        let connect = || {
            let client = server.connect();
            client.write(b"ping\n");
            client
        };
        let clients: Vec<Client> = (0..1 + random.below(CLIENTS_MAX))
            .map(|_| connect())
            .collect();
        for _ in 0..random.below(8) {
            server.turn();
        }
        server.drain();
        // Here the drain begins, after what had come before.
        server.turn();
        let before = accepted(&server);
        turn_until(&mut server, "it ends", SimulatedServer::has_ended);
        // What was sent last has arrived.
        server.advance(Duration::from_secs(1));
        late += accepted(&server) - before;
        assert_eq!(answered(&clients), accepted(&server), "seed {seed}");
        let (leaks, bytes) = server.leaks();
        assert!(leaks.is_none() && bytes == 0, "seed {seed}: {leaks:?}");
    });
    assert!(late > 0, "some came after the drain had begun");
}

/// The kernel may have reported those that wait when it ends only to the accept that was cancelled.
#[test]
fn sim_who_waits_when_the_accept_of_a_drain_ends_is_served() {
    for waiting in [1, 2, CLIENTS_MAX] {
        let mut conditions = Conditions::calm(1);
        conditions.limits.connections_max = 10_000;
        let mut server = SimulatedServer::new(conditions, Lines);
        server.turn();
        server.drain();
        // Here the accept is cancelled; it ends in the next turn.
        server.turn();
        let connect = || {
            let client = server.connect();
            client.write(b"ping\n");
            client
        };
        let clients: Vec<Client> = (0..waiting).map(|_| connect()).collect();
        server.advance(Duration::from_millis(1));
        turn_until(&mut server, "it ends", SimulatedServer::has_ended);
        server.advance(Duration::from_secs(1));
        assert_eq!(answered(&clients), waiting as u64);
    }
}

#[test]
fn who_connects_and_says_nothing_does_not_hold_a_drain_up() {
    let mut conditions = Conditions::calm(1);
    let limits = Limits::default();
    conditions.limits.head_timeout = 100 * limits.drain_idle_timeout;
    conditions.limits.drain_timeout = conditions.limits.head_timeout;
    let mut server = SimulatedServer::new(conditions, Lines);
    let [silent, speaks] = [(); 2].map(|()| server.connect());
    turn_until(&mut server, "both are in", |server| accepted(server) == 2);
    server.drain();
    server.turn();
    server.advance(limits.drain_idle_timeout / 2);
    server.turn();
    assert_eq!(silent.state(), ClientState::Open, "it may still speak");
    speaks.write(b"ping\n");
    turn_until(&mut server, "one is answered", |_| {
        speaks.read() == b"pong\n"
    });
    server.advance(limits.drain_idle_timeout);
    turn_until(&mut server, "it ends", SimulatedServer::has_ended);
    server.advance(Duration::from_secs(1));
    assert_eq!(silent.state(), ClientState::Finished);
    assert!(silent.read().is_empty());
}

#[test]
fn who_connects_and_says_nothing_is_told_in_time_although_nothing_else_happens() {
    let long = Duration::from_secs(100);
    let mut conditions = Conditions::calm(1);
    conditions.limits = Limits {
        head_timeout: long,
        drain_timeout: long,
        drain_idle_timeout: Duration::from_secs(5),
        ..Limits::default()
    };
    let mut server = SimulatedServer::new(conditions, Lines);
    let _silent = server.connect();
    turn_until(&mut server, "it is in", |server| accepted(server) == 1);
    server.world().set_step_max(long);
    let before = server.world().now();
    server.drain();
    turn_until(&mut server, "it ends", SimulatedServer::has_ended);
    let waited = server.world().now() - before;
    assert!(waited < Duration::from_secs(6), "it took {waited:?}");
}

/// Lets one that is idle say something yet when the server drains.
struct Waits;

impl Protocol for Waits {
    type ThreadState = ();
    type Session = ();
    type Job = ();

    fn received(&self, context: &mut Context<'_, Self>, _input: &[u8]) -> Received {
        context.restart_phase(Phase::Idle);
        Received::Consumed
    }

    fn event(&self, context: &mut Context<'_, Self>, event: Event<'_>) {
        match event {
            Event::Draining => context.restart_phase(Phase::Idle),
            other => other.by_default(context),
        }
    }
}

#[test]
fn an_idle_connection_has_less_time_once_the_server_drains() {
    let conditions = Conditions::calm(1);
    let drain_idle_timeout = conditions.limits.drain_idle_timeout;
    let mut server = SimulatedServer::new(conditions, Waits);
    let client = server.connect();
    client.write(b"hello");
    (0..20).for_each(|_| server.turn());
    server.drain();
    (0..20).for_each(|_| server.turn());
    assert_eq!(client.state(), ClientState::Open, "it may still speak");
    server.advance(drain_idle_timeout);
    (0..20).for_each(|_| server.turn());
    assert_eq!(client.state(), ClientState::Finished);
}

#[test]
fn a_drain_that_is_delayed_still_accepts() {
    const DELAY: Duration = Duration::from_secs(5);
    let mut conditions = Conditions::calm(1);
    conditions.limits.drain_delay = DELAY;
    let mut server = SimulatedServer::new(conditions, Lines);
    let kept = server.connect();
    turn_until(&mut server, "it is in", |server| accepted(server) == 1);
    assert_eq!(server.handle().state(), ServerState::Running);
    server.drain();
    for client in [&kept, &server.connect()] {
        client.write(b"ping\n");
        turn_until(&mut server, "it is answered", |_| {
            client.read() == b"pong\n"
        });
    }
    assert_eq!(server.handle().state(), ServerState::Leaving);
    server.advance(DELAY);
    turn_until(&mut server, "it ends", SimulatedServer::has_ended);
    assert_eq!(server.handle().state(), ServerState::Draining);
}

/// Deadlines of connections that no test reaches.
fn long_limits() -> Limits {
    let long = Duration::from_secs(100_000);
    Limits {
        head_timeout: long,
        idle_timeout: long,
        write_timeout: long,
        drain_idle_timeout: long,
        drain_timeout: long,
        ..Limits::default()
    }
}

/// How long it takes until something is so, of a server that waits for as long as it may.
fn time_until(
    server: &mut SimulatedServer,
    what: &str,
    is_so: impl FnMut(&SimulatedServer) -> bool,
) -> Duration {
    server.world().set_step_max(Duration::from_secs(1_000));
    let before = server.world().now();
    turn_until(server, what, is_so);
    server.world().now() - before
}

/// A server that was told to drain while it has this client's request.
fn draining(limits: Limits) -> (SimulatedServer, Client) {
    let mut conditions = Conditions::calm(1);
    conditions.limits = limits;
    let mut server = SimulatedServer::new(conditions, Waits);
    let client = server.connect();
    client.write(b"hello");
    turn_until(&mut server, "it is in", |server| accepted(server) == 1);
    (0..20).for_each(|_| server.turn());
    server.drain();
    (server, client)
}

#[test]
fn sim_a_delay_is_over_in_time_although_nothing_else_happens() {
    const DELAY: Duration = Duration::from_secs(5);
    let (mut server, _client) = draining(Limits {
        drain_delay: DELAY,
        ..long_limits()
    });
    let waited = time_until(&mut server, "it drains", |server| {
        server.handle().state() == ServerState::Draining
    });
    assert!((DELAY..DELAY + DELAY / 5).contains(&waited), "{waited:?}");
}

#[test]
fn sim_a_drain_is_forced_in_time_although_nothing_else_happens() {
    const TIMEOUT: Duration = Duration::from_secs(5);
    let (mut server, client) = draining(Limits {
        drain_timeout: TIMEOUT,
        ..long_limits()
    });
    let waited = time_until(&mut server, "it ends", SimulatedServer::has_ended);
    let expected = TIMEOUT..TIMEOUT + TIMEOUT / 5;
    assert!(expected.contains(&waited), "{waited:?}");
    server.advance(Duration::from_secs(1));
    assert_eq!(client.state(), ClientState::Reset);
}

#[test]
fn a_delay_ends_at_once_where_the_drain_is_asked_for_now_or_forced() {
    for is_forced in [false, true] {
        let mut conditions = Conditions::calm(1);
        conditions.limits.drain_delay = Duration::MAX;
        let mut server = SimulatedServer::new(conditions, Lines);
        let client = server.connect();
        turn_until(&mut server, "it is in", |server| accepted(server) == 1);
        server.drain();
        server.turn();
        assert_eq!(client.state(), ClientState::Open);
        match is_forced {
            true => server.force(),
            false => server.handle().drain_now(),
        }
        server.turn();
        server.advance(Duration::from_secs(1));
        turn_until(&mut server, "it ends", SimulatedServer::has_ended);
    }
}

/// Says goodbye to each connection.
struct Polite;

impl Protocol for Polite {
    type ThreadState = ();
    type Session = ();
    type Job = ();

    fn received(&self, context: &mut Context<'_, Self>, _input: &[u8]) -> Received {
        context.restart_phase(Phase::Idle);
        Received::Consumed
    }

    fn event(&self, context: &mut Context<'_, Self>, event: Event<'_>) {
        match event {
            Event::Draining => {
                context.write(b"bye\n").expect("room");
                context.close_after_output();
            }
            other => other.by_default(context),
        }
    }
}

/// Each goodbye takes a buffer until it is sent: all of them at once would be 8 MiB.
#[test]
fn goodbyes_to_many_idle_connections_take_few_buffers_at_a_time() {
    const CLIENTS: usize = 2_000;
    let mut conditions = Conditions::calm(1);
    conditions.limits.connections_max = 2 * CLIENTS;
    let mut server = SimulatedServer::new(conditions, Polite);
    let clients: Vec<Client> = (0..CLIENTS).map(|_| server.connect()).collect();
    clients.iter().for_each(|client| client.write(b"hello"));
    turn_until(&mut server, "all are in", |server| {
        accepted(server) == CLIENTS as u64
    });
    (0..100).for_each(|_| server.turn());
    server.drain();
    let mut most = 0;
    turn_until(&mut server, "it ends", |server| {
        most = most.max(server.handle().pool_statistics().in_use_bytes);
        server.has_ended()
    });
    assert!(most <= 1 << 20, "{most} bytes of buffers");
    server.advance(Duration::from_secs(1));
    for client in &clients {
        assert_eq!(client.read(), b"bye\n");
    }
}
