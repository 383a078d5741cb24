//! Slow peers on the simulated driver: one that moves is served for as long as it likes, one that
//! has stopped is cut off after its deadline.

use std::time::Duration;

use crate::lines::Lines;
use flatpath::simulation::{Conditions, SimulatedServer};
use flatpath::{Context, Event, Limits, Phase, Protocol, Received};
use flatpath_driver::simulation::{Client, ClientState};

const SECOND: Duration = Duration::from_secs(1);

fn server(limits: Limits) -> SimulatedServer {
    let mut conditions = Conditions::calm(1);
    conditions.limits = limits;
    SimulatedServer::new(conditions, Lines)
}

/// Lets simulated seconds pass in steps, with something done in each.
fn pass(server: &mut SimulatedServer, seconds: u64, mut step: impl FnMut()) {
    const STEPS: u32 = 4;
    for _ in 0..seconds * u64::from(STEPS) {
        server.world().advance(SECOND / STEPS);
        for _ in 0..4 {
            server.turn();
        }
        step();
    }
}

/// A client with a long reply on the way that it has not begun to read.
fn reader(server: &mut SimulatedServer) -> Client {
    // What is on the way is more than the client reads in the time of the deadline.
    server.world().set_window_bytes(1 << 20);
    server.world().drain_sockets_first();
    let client = server.connect();
    client.write(b"big 8000000\n");
    for _ in 0..50 {
        server.turn();
    }
    client
}

#[test]
fn sim_a_steady_slow_reader_is_not_a_stalled_one() {
    let mut server = server(Limits {
        write_timeout: Duration::from_secs(10),
        ..Limits::default()
    });
    let client = reader(&mut server);
    let mut heard = 0;
    // 400 bytes a quarter of a second: far less than one send in ten seconds.
    pass(&mut server, 100, || heard += client.read_at_most(400).len());
    assert_eq!(client.state(), ClientState::Open, "{heard} bytes were read");
    assert_eq!(server.statistics().connections_expired(), 0);
    // From now on it is gone.
    client.vanish();
    pass(&mut server, 14, || {});
    assert_eq!(client.state(), ClientState::Reset);
    assert_eq!(server.statistics().connections_expired(), 1);
    assert_eq!(server.statistics().expired_send, 1);
}

#[test]
fn sim_a_closed_window_that_answers_has_ten_times_the_deadline() {
    let mut server = server(Limits {
        write_timeout: Duration::from_secs(10),
        ..Limits::default()
    });
    let client = reader(&mut server);
    // It reads so seldom that its kernel opens the window every ninety seconds.
    let mut heard = 0;
    for _ in 0..5 {
        pass(&mut server, 90, || {});
        heard += client.read_at_most(100_000).len();
    }
    assert_eq!(client.state(), ClientState::Open, "{heard} bytes were read");
    assert_eq!(server.statistics().connections_expired(), 0);
    // From now on it does not read.
    pass(&mut server, 95, || {});
    assert_eq!(client.state(), ClientState::Open);
    pass(&mut server, 20, || {});
    assert_eq!(client.state(), ClientState::Reset);
    assert_eq!(server.statistics().expired_send, 1);
}

/// Takes bodies: whatever comes is one, and a body that is late hears so.
struct Bodies;

impl Protocol for Bodies {
    type ThreadState = ();
    type Session = ();
    type Job = ();

    fn received(&self, context: &mut Context<'_, Self>, _input: &[u8]) -> Received {
        context.phase(Phase::Body);
        Received::Consumed
    }

    fn event(&self, context: &mut Context<'_, Self>, event: Event<'_>) {
        match event {
            Event::Expired(_) => {
                context.write_static(b"late\n");
                context.close_after_output();
            }
            other => other.by_default(context),
        }
    }
}

fn body(limits: Limits) -> (SimulatedServer, Client) {
    let mut conditions = Conditions::calm(1);
    conditions.limits = limits;
    let mut server = SimulatedServer::new(conditions, Bodies);
    let client = server.connect();
    client.write(b"begin");
    for _ in 0..5 {
        server.turn();
    }
    (server, client)
}

#[test]
fn sim_a_body_that_began_with_much_is_cut_off_after_the_same_silence_as_any() {
    for bytes in [0, 1 << 20] {
        let (mut server, client) = body(Limits::default());
        client.write(&vec![0; bytes]);
        pass(&mut server, 55, || {});
        assert!(client.read().is_empty(), "silent for less than it may be");
        pass(&mut server, 10, || {});
        assert_eq!(client.read(), b"late\n", "after {bytes} bytes");
    }
}

#[test]
fn sim_a_body_may_begin_late_and_be_as_slow_as_the_minimum_rate() {
    let (mut server, client) = body(Limits::default());
    pass(&mut server, 30, || {});
    let rate = Limits::default().body_rate_min as usize;
    // Four steps a second.
    pass(&mut server, 300, || client.write(&vec![0; rate / 4]));
    assert!(client.read().is_empty());
    pass(&mut server, 150, || client.write(&vec![0; rate / 8]));
    assert_eq!(client.read(), b"late\n", "half of the rate is too little");
}

/// Lets an idle connection live for some periods.
struct Patient(u32);

impl Protocol for Patient {
    type ThreadState = ();
    type Session = u32;
    type Job = ();

    fn received(&self, context: &mut Context<'_, Self>, _input: &[u8]) -> Received {
        context.phase(Phase::Idle);
        Received::Consumed
    }

    fn event(&self, context: &mut Context<'_, Self>, event: Event<'_>) {
        match event {
            Event::Expired(phase) => {
                *context.session += 1;
                if *context.session < self.0 {
                    context.restart_phase(phase);
                }
            }
            other => other.by_default(context),
        }
    }
}

#[test]
fn sim_an_idle_connection_lives_for_the_periods_that_its_protocol_asks_for() {
    let mut conditions = Conditions::calm(1);
    conditions.limits.idle_timeout = Duration::from_secs(10);
    let mut server = SimulatedServer::new(conditions, Patient(3));
    let client = server.connect();
    client.write(b"a");
    pass(&mut server, 25, || {});
    assert_eq!(client.state(), ClientState::Open, "in its third period");
    assert_eq!(server.statistics().connections_expired(), 0);
    pass(&mut server, 10, || {});
    assert_ne!(client.state(), ClientState::Open, "it asked for no fourth");
    assert_eq!(server.statistics().connections_expired(), 1);
}
