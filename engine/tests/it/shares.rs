//! Slow jobs of one listener leave workers, and places for jobs, to the others. On both drivers.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Instant;

use crate::gate::{Gate, Gated, Opener, client, patience};
use crate::lines::{Lines, on_both};
use flatpath::{DriverChoice, Limits, Running, Server};

const JOBS: usize = 20;

/// A server of the two, and a client of the slow one with all its requests sent.
fn site(choice: DriverChoice, gate: &Gate, limits: Limits) -> (Running, TcpStream) {
    let server = Server::new().driver(choice).workers(1..=4).limits(limits);
    let server = server.listen("127.0.0.1:0", Gated(gate.clone()));
    let server = server.listen("127.0.0.1:0", Lines);
    let running = server.start().expect("started");
    let mut slow = client(running.addresses()[0].address);
    slow.write_all(&[b'w'; JOBS]).expect("written");
    (running, slow)
}

fn ask_the_other(running: &Running) {
    let mut other = client(running.addresses()[1].address);
    other.write_all(b"work 7\n").expect("written");
    let mut answer = [0; 7];
    other.read_exact(&mut answer).expect("an answer");
    assert_eq!(&answer, b"done 7\n");
}

fn await_share_waits(running: &Running, count: u64) {
    let handle = running.handle();
    let deadline = Instant::now() + patience();
    while handle.statistics().held_back_share < count {
        assert!(Instant::now() < deadline, "no job waits for its share");
        std::thread::yield_now();
    }
}

fn all_are_served(running: Running, mut slow: TcpStream) {
    let mut answers = [0; JOBS];
    slow.read_exact(&mut answers).expect("every job is done");
    drop(slow);
    let handle = running.handle();
    handle.drain();
    running.wait().expect("a clean end");
    let held_back = handle.figures().jobs().held_back;
    assert_eq!(held_back, 0, "none still waits");
}

#[test]
fn jobs_that_block_leave_workers_to_other_listeners() {
    on_both(|choice| {
        let gate = Gate::default();
        let opener = Opener(gate.clone());
        let (running, slow) = site(choice, &gate, Limits::default());
        // Of four workers one is for the other listener.
        gate.await_waiting(3);
        await_share_waits(&running, JOBS as u64 - 3);
        ask_the_other(&running);
        assert_eq!(gate.waiting_max(), 3);
        drop(opener);
        all_are_served(running, slow);
        assert!(gate.waiting_max() <= 3);
    });
}

#[test]
fn a_share_may_be_set() {
    on_both(|choice| {
        let gate = Gate::default();
        let opener = Opener(gate.clone());
        let limits = Limits {
            workers_per_listener: 2,
            ..Limits::default()
        };
        let (running, slow) = site(choice, &gate, limits);
        gate.await_waiting(2);
        await_share_waits(&running, JOBS as u64 - 2);
        ask_the_other(&running);
        drop(opener);
        all_are_served(running, slow);
        assert_eq!(gate.waiting_max(), 2);
    });
}

#[test]
fn a_limit_holds_for_all_network_threads_together() {
    on_both(|choice| {
        let gate = Gate::default();
        let opener = Opener(gate.clone());
        let limits = Limits {
            workers_per_listener: 1,
            ..Limits::default()
        };
        let server = Server::new().driver(choice).workers(4..=4).limits(limits);
        let server = server.network_threads(2);
        let server = server.listen("127.0.0.1:0", Gated(gate.clone()));
        let running = server.start().expect("started");
        // Enough for both threads to have some, but for one time in a hundred.
        let mut clients = [(); 8].map(|()| client(running.addresses()[0].address));
        for client in &mut clients {
            client.write_all(b"w").expect("written");
        }
        gate.await_waiting(1);
        await_share_waits(&running, clients.len() as u64 - 1);
        assert_eq!(gate.waiting_max(), 1);
        drop(opener);
        for client in &mut clients {
            client.read_exact(&mut [0]).expect("an answer");
        }
        assert_eq!(gate.waiting_max(), 1);
    });
}

#[test]
fn jobs_that_block_leave_places_to_other_listeners() {
    on_both(|choice| {
        let gate = Gate::default();
        let opener = Opener(gate.clone());
        let limits = Limits {
            in_flight_max: 8,
            ..Limits::default()
        };
        let (running, slow) = site(choice, &gate, limits);
        gate.await_waiting(3);
        await_share_waits(&running, 8 - 1 - 3);
        ask_the_other(&running);
        drop(opener);
        all_are_served(running, slow);
    });
}

/// A connection that is gone leaves its jobs behind, also those that wait; a drain runs them.
#[test]
fn jobs_that_wait_are_run_when_a_drain_ends() {
    on_both(|choice| {
        let gate = Gate::default();
        let opener = Opener(gate.clone());
        let (running, slow) = site(choice, &gate, Limits::default());
        gate.await_waiting(3);
        await_share_waits(&running, JOBS as u64 - 3);
        drop(slow);
        let handle = running.handle();
        handle.drain();
        drop(opener);
        running.wait().expect("a clean end");
        let statistics = handle.statistics();
        assert_eq!(statistics.jobs_dispatched, JOBS as u64);
    });
}
