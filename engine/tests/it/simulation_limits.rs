//! Limits of listeners, and limits that change while the server runs, on the simulated driver.

use std::net::SocketAddr;
use std::time::Duration;

use crate::lines::Lines;
use flatpath::simulation::{Conditions, SimulatedServer};
use flatpath::{Limits, ListenerLimits};
use flatpath_driver::simulation::{Client, ClientState, Random, each_seed};

const SECOND: Duration = Duration::from_secs(1);
const TURNS_MAX: usize = 10_000;
const TURNS_ENOUGH: usize = 100;
/// In these a new limit reaches thousands of clients, and a deadline that has passed ends some.
const TURNS_FEW: usize = 10;

/// Lets what clients did be seen: near a limit, one of them after the other.
fn settle(server: &mut SimulatedServer) {
    (0..TURNS_ENOUGH).for_each(|_| server.turn());
}

/// Lets simulated time pass.
fn pass(server: &mut SimulatedServer, seconds: u32) {
    pass_in(server, seconds, TURNS_ENOUGH);
}

/// The same, in few turns: with thousands of clients each of them is slow.
fn pass_in(server: &mut SimulatedServer, seconds: u32, turns_each: usize) {
    const STEPS: u32 = 4;
    for _ in 0..STEPS {
        server.advance(SECOND * seconds / STEPS);
        (0..turns_each).for_each(|_| server.turn());
    }
}

fn end(server: &mut SimulatedServer) {
    server.force();
    server.end(TURNS_MAX);
}

fn is_open(client: &Client) -> bool {
    client.state() == ClientState::Open
}

fn open(clients: &[Client]) -> usize {
    clients.iter().filter(|client| is_open(client)).count()
}

/// What the client hears next.
fn expect(server: &mut SimulatedServer, client: &Client, words: &str) {
    let mut heard = Vec::new();
    for _ in 0..TURNS_MAX {
        heard.extend(client.read());
        if heard.len() >= words.len() || !is_open(client) {
            break;
        }
        server.turn();
    }
    assert_eq!(String::from_utf8_lossy(&heard), words);
}

/// Clients that have been answered, and are idle.
fn idlers(server: &mut SimulatedServer, count: usize, listener: usize) -> Vec<Client> {
    let idlers: Vec<Client> = (0..count)
        .map(|_| server.connect_to(listener, None))
        .collect();
    for client in &idlers {
        client.write(b"ping\n");
    }
    idlers
        .iter()
        .for_each(|client| expect(server, client, "pong\n"));
    idlers
}

/// The idle time-out of each server, more clients than are looked at in one turn.
#[test]
fn sim_a_deadline_that_changes_holds_for_connections_that_are_open() {
    let mut conditions = Conditions::calm(1);
    conditions.limits.connections_max = 4_000;
    let mut server = SimulatedServer::new(conditions, Lines);
    let clients = idlers(&mut server, 2_500, 0);
    pass_in(&mut server, 60, TURNS_FEW);
    assert_eq!(open(&clients), clients.len(), "75 seconds are the default");
    let idle_timeout = |seconds| Limits {
        idle_timeout: Duration::from_secs(seconds),
        ..Limits::default()
    };
    server.handle().change_limits(&idle_timeout(600), &[]);
    pass_in(&mut server, 60, TURNS_FEW);
    assert_eq!(open(&clients), clients.len(), "a longer one is given");
    server.handle().change_limits(&idle_timeout(130), &[]);
    settle(&mut server);
    assert_eq!(open(&clients), clients.len());
    pass(&mut server, 12);
    assert_eq!(open(&clients), 0, "a shorter one counts from the beginning");
    assert_eq!(server.statistics().expired_idle, clients.len() as u64);
    end(&mut server);
}

#[test]
fn sim_a_deadline_that_has_passed_by_the_new_measure_fires() {
    let mut server = SimulatedServer::new(Conditions::calm(1), Lines);
    let clients = idlers(&mut server, 3, 0);
    pass(&mut server, 70);
    let own = ListenerLimits {
        idle_timeout: Some(60 * SECOND),
        ..ListenerLimits::default()
    };
    server.handle().change_limits(&Limits::default(), &[own]);
    pass(&mut server, 1);
    assert_eq!(open(&clients), 0);
    end(&mut server);
}

#[test]
fn sim_a_drain_takes_as_long_as_was_said_last() {
    let mut server = SimulatedServer::new(Conditions::calm(1), Lines);
    server.world().set_window_bytes(1_000);
    let client = server.connect();
    client.write(b"big 100000\n");
    settle(&mut server);
    let limits = Limits {
        drain_timeout: 3 * SECOND,
        ..Limits::default()
    };
    server.handle().change_limits(&limits, &[]);
    server.drain();
    let mut seconds = 0;
    while is_open(&client) {
        seconds += 1;
        server.advance(SECOND);
        (0..20).for_each(|_| server.turn());
    }
    assert!((3..=4).contains(&seconds), "{seconds}");
    end(&mut server);
}

#[test]
fn sim_connections_of_an_address_are_counted_from_a_change_on() {
    let peer = |host: u8| Some(SocketAddr::from(([192, 0, 2, host], 9)));
    let mut server = SimulatedServer::new(Conditions::calm(1), Lines);
    let crowd: Vec<Client> = (0..5).map(|_| server.connect_from(peer(1))).collect();
    let other = server.connect_from(peer(2));
    for client in crowd.iter().chain([&other]) {
        client.write(b"ping\n");
        expect(&mut server, client, "pong\n");
    }
    let limits = Limits {
        connections_per_address: 5,
        ..Limits::default()
    };
    server.handle().change_limits(&limits, &[]);
    settle(&mut server);
    pass(&mut server, 2);
    assert_eq!(open(&crowd), 5, "a change closes none");
    let newcomer = server.connect_from(peer(1));
    newcomer.write(b"ping\n");
    expect(&mut server, &newcomer, "pong\n");
    assert!(is_open(&newcomer) && is_open(&other));
    assert_eq!(open(&crowd), 4, "the address pays for its newcomer");
    server.handle().change_limits(&Limits::default(), &[]);
    settle(&mut server);
    let more: Vec<Client> = (0..5).map(|_| server.connect_from(peer(1))).collect();
    settle(&mut server);
    assert_eq!((open(&crowd), open(&more)), (4, 5));
    end(&mut server);
}

/// While descriptors are short, the limit is lower than what is open.
#[test]
fn sim_a_newcomer_is_let_in_after_a_shortage_of_descriptors_although_nothing_else_happens() {
    const OPEN: usize = 8;
    let mut conditions = Conditions::calm(1);
    conditions.limits = Limits {
        connections_max: 100,
        write_timeout: 100_000 * SECOND,
        ..Limits::default()
    };
    let mut server = SimulatedServer::new(conditions, Lines);
    let busy: Vec<Client> = (0..OPEN).map(|_| server.connect()).collect();
    busy.iter().for_each(|one| one.write(b"big 1000000\n"));
    (0..TURNS_FEW).for_each(|_| server.turn());
    server.world().set_sockets_max(OPEN);
    let refused = server.connect();
    (0..TURNS_FEW).for_each(|_| server.turn());
    server.world().set_sockets_max(100);
    refused.write(b"ping\n");
    expect(&mut server, &refused, "full\n");
    refused.abort();
    (0..TURNS_FEW).for_each(|_| server.turn());
    server.world().set_step_max(1_000 * SECOND);
    let before = server.world().now();
    let is_over = |server: &mut SimulatedServer| {
        server.turn();
        let waited = server.world().now() - before;
        (9 * SECOND..11 * SECOND).contains(&waited)
    };
    let is_in_time = (0..20).any(|_| is_over(&mut server));
    assert!(is_in_time, "no turn ends the shortage");
    server.world().set_step_max(SECOND / 1_000);
    let newcomer = server.connect();
    newcomer.write(b"ping\n");
    expect(&mut server, &newcomer, "pong\n");
    end(&mut server);
}

#[test]
fn sim_a_listener_is_bounded_and_no_longer() {
    let bounds = [ListenerLimits::default(), ListenerLimits::default()];
    let mut server = SimulatedServer::with_limited(Conditions::calm(1), 1, &bounds, Lines);
    let neighbours = idlers(&mut server, 3, 0);
    let clients = idlers(&mut server, 5, 1);
    let bounded = |most| ListenerLimits {
        connections_max: Some(most),
        ..ListenerLimits::default()
    };
    let change = |server: &mut SimulatedServer, bounds: &[ListenerLimits]| {
        server.handle().change_limits(&Limits::default(), bounds);
        settle(server);
    };
    for (most, left) in [(3, 4), (5, 4)] {
        change(&mut server, &[ListenerLimits::default(), bounded(most)]);
        pass(&mut server, 2);
        let newcomers = idlers(&mut server, 1, 1);
        assert_eq!((open(&clients), open(&newcomers)), (left, 1), "at {most}");
        newcomers[0].abort();
        settle(&mut server);
    }
    change(&mut server, &[]);
    let many = idlers(&mut server, 20, 1);
    assert_eq!((open(&clients), open(&many)), (4, 20));
    assert_eq!(open(&neighbours), 3);
    end(&mut server);
}

/// Many listeners, each with bounds of its own: none is beyond them, none pays for another, and
/// everything that was asked for is answered. The bounds change meanwhile, but for the last.
#[test]
fn sim_limits_of_many_listeners_hold_for_each() {
    each_seed(6, |seed| {
        let mut random = Random::new(seed);
        let listeners = 12 + random.below(16);
        let draw = |random: &mut Random| ListenerLimits {
            connections_max: (random.below(4) > 0).then(|| 1 + random.below(4)),
            workers_max: (random.below(4) > 0).then(|| 1 + random.below(3) as u32),
            ..ListenerLimits::default()
        };
        let mut bounds: Vec<_> = (0..listeners).map(|_| draw(&mut random)).collect();
        let mut conditions = Conditions::rough(seed);
        conditions.limits.in_flight_max = 256;
        let mut server = SimulatedServer::with_limited(conditions, 400, &bounds, Lines);
        for round in 0..3 {
            if round > 0 {
                bounds = bounds.iter().map(|_| draw(&mut random)).collect();
                server.handle().change_limits(&Limits::default(), &bounds);
                settle(&mut server);
            }
            one_round(&mut server, &bounds, &mut random);
        }
        end(&mut server);
    });
}

fn one_round(server: &mut SimulatedServer, bounds: &[ListenerLimits], random: &mut Random) {
    let crowds: Vec<Vec<Client>> = (0..bounds.len())
        .map(|listener| {
            idlers(
                server,
                bounds[listener].connections_max.unwrap_or(6),
                listener,
            )
        })
        .collect();
    let mut expected = Vec::new();
    for crowd in &crowds {
        for client in crowd {
            assert!(is_open(client), "every listener has what it may");
            let jobs = random.below(5);
            let lines: Vec<String> = (0..jobs).map(|job| format!("work {job}\n")).collect();
            client.write(lines.concat().as_bytes());
            expected.push((client, jobs));
        }
    }
    let mut answers: Vec<String> = vec![String::new(); expected.len()];
    let mut turns = 0;
    let lacks = |(heard, (_, jobs)): (&String, &(&Client, usize))| heard.lines().count() < *jobs;
    while answers.iter().zip(&expected).any(lacks) {
        turns += 1;
        assert!(turns < TURNS_MAX, "{answers:?}");
        server.turn();
        for (heard, (client, _)) in answers.iter_mut().zip(&expected) {
            heard.push_str(&String::from_utf8_lossy(&client.read()));
        }
        let figures = server.handle().figures();
        for (listener, bounds) in figures.listeners.iter().zip(bounds) {
            // Here no worker runs beside the network thread: what is out is queued.
            let most = bounds.workers_max.map_or(usize::MAX, |most| most as usize);
            assert!(
                listener.jobs.queued <= most,
                "{} {most}",
                listener.jobs.queued
            );
        }
    }
    // One more for each that is full: the listener's own longest idle one is closed for it.
    pass(server, 2);
    let newcomers: Vec<_> = (0..bounds.len())
        .map(|listener| idlers(server, 1, listener))
        .collect();
    settle(server);
    for (listener, (crowd, newcomer)) in crowds.iter().zip(&newcomers).enumerate() {
        let is_full = bounds[listener].connections_max.is_some();
        let left = crowd.len() - usize::from(is_full);
        assert_eq!(
            (open(crowd), open(newcomer)),
            (left, 1),
            "listener {listener}"
        );
    }
    for client in crowds.iter().chain(&newcomers).flatten() {
        client.abort();
    }
    settle(server);
}
