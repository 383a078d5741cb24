//! What a server shows of itself while it serves, and while a handler keeps it from serving. On
//! both drivers.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use crate::gate::{Gate, Gated, Opener, client, patience};
use crate::lines::{Lines, cut, on_both};
use flatpath::figures::Figures;
use flatpath::{DriverChoice, Handle, Running, Server, ServerState};

/// A server with one worker, whose first listener waits at the gate.
fn site(choice: DriverChoice, gate: &Gate, threads: usize) -> Running {
    let server = Server::new().driver(choice).workers(1..=1);
    let server = server.network_threads(threads);
    let server = server.listen("127.0.0.1:0", Gated(gate.clone()));
    let server = server.listen("127.0.0.1:0", Lines);
    server.start().expect("started")
}

/// The figures once they are as wanted.
fn await_figures(handle: &Handle, what: &str, wanted: impl Fn(&Figures) -> bool) -> Figures {
    let deadline = Instant::now() + patience();
    loop {
        let figures = handle.figures();
        if wanted(&figures) {
            return figures;
        }
        assert!(Instant::now() < deadline, "{what}: {figures:?}");
        thread::sleep(Duration::from_millis(1));
    }
}

fn ask(client: &mut TcpStream, request: &[u8], answer: &[u8]) {
    client.write_all(request).expect("written");
    let mut read = vec![0; answer.len()];
    client.read_exact(&mut read).expect("an answer");
    assert_eq!(read, answer);
}

#[test]
fn each_listener_counts_for_itself_on_each_network_thread() {
    on_both(|choice| {
        let gate = Gate::default();
        let running = site(choice, &gate, 2);
        let handle = running.handle();
        let addresses = running.addresses().to_vec();
        let clients: Vec<_> = (0..20)
            .map(|_| {
                let mut client = client(addresses[1].address);
                ask(&mut client, b"ping\nwork 7\n", b"pong\ndone 7\n");
                client
            })
            .collect();
        ask(&mut client(addresses[0].address), b"x", b"x");
        let figures = await_figures(&handle, "all are counted", |figures| {
            let sent = figures.total().sent_bytes;
            sent == 20 * 12 + 1 && figures.listeners[0].total().connections_closed == 1
        });
        let [gated, lines] = &figures.listeners[..] else {
            panic!("two listeners: {figures:?}");
        };
        assert_eq!((gated.name, lines.name), ("gated", "lines"));
        assert_eq!(lines.address, addresses[1].address.to_string());
        assert_eq!((gated.threads.len(), lines.threads.len()), (2, 2));
        let total = lines.total();
        assert_eq!((total.connections_accepted, total.connections()), (20, 20));
        assert_eq!((total.received_bytes, total.jobs_dispatched), (20 * 12, 20));
        assert_eq!(gated.total().connections(), 0);
        let open = figures.threads.iter().map(|thread| {
            let listeners = figures.listeners.iter();
            let of = listeners.flat_map(|listener| &listener.threads);
            let of = of.filter(|(number, _)| *number == thread.number);
            of.map(|(_, statistics)| statistics.connections())
                .sum::<u64>()
        });
        assert_eq!(open.sum::<u64>(), 20);
        for thread in &figures.threads {
            assert_eq!(thread.driver, running.driver());
        }
        let turns = figures.threads.iter().map(|thread| thread.turns.count());
        assert!(turns.sum::<u64>() >= 20);
        assert_eq!((figures.workers.threads, figures.workers.max), (1, 1));
        assert!(figures.descriptors.room > 0 && figures.receive_memory.len() == 2);
        let classes = figures.pool.classes.iter().map(|class| class.in_use_bytes);
        assert!(classes.sum::<usize>() <= figures.pool.budget_bytes);
        drop(clients);
        handle.drain();
        running.wait().expect("a clean end");
        // What was counted stays.
        assert_eq!(handle.figures().state, ServerState::Draining);
        assert_eq!(handle.statistics().connections_closed, 21);
    });
}

#[test]
fn requests_that_run_and_that_wait_are_shown_with_their_age_and_listener() {
    on_both(|choice| {
        let gate = Gate::default();
        let opener = Opener(gate.clone());
        let running = site(choice, &gate, 1);
        let handle = running.handle();
        let mut blocked = client(running.addresses()[0].address);
        blocked.write_all(b"w").expect("written");
        gate.await_waiting(1);
        let mut waits = client(running.addresses()[1].address);
        waits.write_all(b"work 7\n").expect("written");
        let figures = await_figures(&handle, "both are there", |figures| {
            let jobs = figures.jobs();
            let is_old = |age: Option<Duration>| age >= Some(Duration::from_millis(20));
            is_old(jobs.oldest_queued) && is_old(jobs.longest_running)
        });
        assert_eq!((figures.jobs().queued, figures.jobs().running), (1, 1));
        let [gated, lines] = &figures.listeners[..] else {
            panic!("two listeners: {figures:?}");
        };
        assert!(gated.jobs.longest_running.is_some() && gated.jobs.oldest_queued.is_none());
        assert!(lines.jobs.oldest_queued.is_some() && lines.jobs.longest_running.is_none());
        let handlers = handle.handlers(Duration::from_millis(1));
        let pooled: Vec<_> = handlers
            .iter()
            .filter(|handler| !handler.is_inline)
            .collect();
        assert_eq!((pooled.len(), pooled[0].listener), (1, 0));
        let task = format!("/proc/self/task/{}/comm", pooled[0].thread);
        let name = std::fs::read_to_string(task).expect("a thread of this process");
        assert_eq!(name, "flatpath-worker\n");
        assert!(handle.handlers(patience()).is_empty());
        drop(opener);
        let mut answer = [0; 7];
        waits.read_exact(&mut answer).expect("an answer");
        await_figures(&handle, "both are done", |figures| {
            figures.jobs() == flatpath::figures::JobFigures::default()
        });
        cut(running);
    });
}

#[test]
fn jobs_that_wait_for_their_share_are_shown_as_held_back() {
    on_both(|choice| {
        let gate = Gate::default();
        let opener = Opener(gate.clone());
        let server = Server::new().driver(choice).workers(1..=4);
        let server = server.listen("127.0.0.1:0", Gated(gate.clone()));
        let server = server.listen("127.0.0.1:0", Lines);
        let running = server.start().expect("started");
        let handle = running.handle();
        let mut slow = client(running.addresses()[0].address);
        slow.write_all(b"wwwwwwww").expect("written");
        let figures = await_figures(&handle, "three of four workers are busy", |figures| {
            figures.jobs().running == 3 && figures.jobs().held_back == 5
        });
        assert!(figures.listeners[0].jobs.oldest_queued.is_some());
        drop(opener);
        let mut answers = [0; 8];
        slow.read_exact(&mut answers).expect("every job is done");
        await_figures(&handle, "none is held back", |figures| {
            figures.jobs().held_back == 0 && figures.jobs().oldest_queued.is_none()
        });
        cut(running);
    });
}

#[test]
fn a_network_thread_that_a_handler_blocks_is_seen_from_outside() {
    on_both(|choice| {
        let gate = Gate::default();
        let opener = Opener(gate.clone());
        let running = site(choice, &gate, 1);
        let handle = running.handle();
        let mut other = client(running.addresses()[1].address);
        ask(&mut other, b"ping\n", b"pong\n");
        let mut blocks = client(running.addresses()[0].address);
        blocks.write_all(b"i").expect("written");
        gate.await_waiting(1);
        let figures = await_figures(&handle, "the turn gets old", |figures| {
            let turn = figures.threads[0].turn;
            turn.is_some_and(|turn| turn.age >= Duration::from_millis(20))
        });
        assert_eq!(figures.threads[0].turn.expect("found").listener, 0);
        let handlers = handle.handlers(Duration::from_millis(20));
        assert_eq!((handlers.len(), handlers[0].is_inline), (1, true));
        assert_eq!((handlers[0].listener, handlers[0].thread), (0, 0));
        drop(opener);
        ask(&mut other, b"ping\n", b"pong\n");
        await_figures(&handle, "it waits again", |figures| {
            figures.threads[0].turn.is_none()
        });
        // The long turn is in the histogram.
        let turns = handle.figures().threads[0].turns;
        assert!(turns.sum >= Duration::from_millis(20), "{turns:?}");
        cut(running);
    });
}
