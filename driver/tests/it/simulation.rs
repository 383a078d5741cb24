//! The simulation: a caller that keeps its promises survives every mix of faults, one that breaks
//! them is found out, and the same seed gives the same run.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use bytes::Bytes;
use flatpath_driver::simulation::{Client, ClientState, Faults, Injected, Network, Simulation};
use flatpath_driver::{
    AfterSend, Completion, Driver, DriverConfig, Errno, Listener, Operation, OperationMode,
    Outcome, Socket,
};

use crate::rig::echo::Echo;
use crate::rig::{list, pattern};

/// Seeds of the long runs.
const SEEDS: u64 = 300;

/// Turns after which a run that has not ended is stuck.
const TURNS_MAX: usize = 200_000;

fn config(seed: u64) -> DriverConfig {
    DriverConfig {
        completion_entries: [4, 16, 1024][seed as usize % 3],
        receive_buffers: [1, 4, 64][seed as usize / 3 % 3],
        receive_buffer_bytes: [16, 256, 4096][seed as usize / 9 % 3],
        ..DriverConfig::default()
    }
}

/// A client that sends its bytes little by little and checks what comes back.
struct Checked {
    client: Client,
    sent: Vec<u8>,
    written: usize,
    read: Vec<u8>,
    over: bool,
}

impl Checked {
    fn new(network: &Network, listener: &Listener, bytes: usize) -> Checked {
        let client = network.connect(listener);
        Checked {
            client,
            sent: pattern(bytes),
            written: 0,
            read: vec![],
            over: false,
        }
    }

    fn step(&mut self, round: usize) {
        if self.over {
            return;
        }
        if self.written < self.sent.len() {
            let count = (1 + round % 700).min(self.sent.len() - self.written);
            self.client
                .write(&self.sent[self.written..self.written + count]);
            self.written += count;
            if self.written == self.sent.len() {
                self.client.shutdown_write();
            }
        }
        if round.is_multiple_of(3) {
            self.read.extend(self.client.read());
            assert!(
                self.sent.starts_with(&self.read),
                "what came back is not what was sent"
            );
        }
        match self.client.state() {
            ClientState::Open => {}
            ClientState::Finished | ClientState::Reset => {
                self.read.extend(self.client.read());
                assert!(
                    self.sent.starts_with(&self.read),
                    "what came back is not what was sent"
                );
                self.over = true;
            }
        }
    }

    fn is_whole(&self) -> bool {
        self.read == self.sent
    }
}

/// One run of the echo server. Returns what struck, and how many clients got everything back.
fn run(seed: u64, faults: Faults) -> (Injected, usize, usize) {
    let (mut simulation, network) = Simulation::new(seed, &config(seed), faults);
    network.set_window_bytes(300);
    network.set_sockets_max(if seed.is_multiple_of(5) { 3 } else { 1_000 });
    let mode = |bit: u64| {
        if seed >> bit & 1 == 0 {
            OperationMode::Multishot
        } else {
            OperationMode::Single
        }
    };
    let listener = network.listen();
    let mut clients: Vec<Checked> = (0..12)
        .map(|number| Checked::new(&network, &listener, 100 + 613 * number))
        .collect();
    let mut echo = Echo::new(listener, mode(1), mode(2));
    let mut round = 0;
    while clients.iter().any(|client| !client.over) {
        for client in &mut clients {
            client.step(round);
        }
        echo.turn(&mut simulation, 1_000_000);
        round += 1;
        assert!(
            round < TURNS_MAX,
            "seed {seed}: stuck, {:?}",
            network.leaks()
        );
    }
    while !echo.stop(&mut simulation) {
        echo.turn(&mut simulation, 1_000_000);
        round += 1;
        assert!(
            round < TURNS_MAX,
            "seed {seed}: does not stop, {:?}",
            network.leaks()
        );
    }
    // No operation expects a late duplicate.
    for _ in 0..100 {
        echo.turn(&mut simulation, 1_000_000);
    }
    assert!(
        network.leaks().is_none(),
        "seed {seed}: leaked {:?}",
        network.leaks()
    );
    let whole = clients.iter().filter(|client| client.is_whole()).count();
    (network.injected(), whole, clients.len())
}

#[test]
fn sim_an_echo_server_survives_every_mix_of_faults() {
    let mut injected = Injected::default();
    for seed in 0..SEEDS {
        let (struck, _, _) = run(seed, Faults::mixed(seed));
        injected.add(&struck);
    }
    let missing = injected.missing();
    assert!(missing.is_empty(), "some faults never struck: {missing:?}");
}

#[test]
fn sim_without_losses_every_client_gets_every_byte() {
    for seed in 0..SEEDS {
        let (_, whole, clients) = run(seed, Faults::mixed(seed).without_losses());
        assert_eq!(whole, clients, "seed {seed}");
    }
}

#[test]
fn sim_without_faults_nothing_strikes() {
    for seed in 0..20 {
        let (struck, whole, clients) = run(seed, Faults::none());
        assert_eq!(
            (struck, whole),
            (Injected::default(), clients),
            "seed {seed}"
        );
    }
}

/// The completions of a run, in words.
fn trace(seed: u64) -> Vec<String> {
    let (mut simulation, network) = Simulation::new(seed, &config(seed), Faults::mixed(3));
    let listener = network.listen();
    let clients: Vec<Client> = (0..20).map(|_| network.connect(&listener)).collect();
    for (number, client) in clients.iter().enumerate() {
        client.write(&pattern(50 * number));
    }
    let (mut words, mut completions, mut next, mut accepting) = (vec![], vec![], 2, 1);
    simulation.accept(&listener, accepting, OperationMode::Multishot);
    for _ in 0..200 {
        simulation
            .wait(Some(1_000_000), &|| false, &mut completions)
            .expect("never fails");
        for completion in completions.drain(..) {
            words.push(format!("{} {completion:?}", simulation.now_ns()));
            if completion.user_data == accepting && !completion.more {
                next += 1;
                accepting = next;
                simulation.accept(&listener, accepting, OperationMode::Multishot);
            }
            match completion.outcome {
                Outcome::Accepted(socket) => {
                    next += 1;
                    simulation.receive(socket, next, OperationMode::Multishot, 0);
                }
                Outcome::Received(piece) => simulation.recycle(piece),
                _ => {}
            }
        }
    }
    words
}

#[test]
fn sim_the_same_seed_gives_the_same_run() {
    for seed in 0..20 {
        let first = trace(seed);
        assert!(first.len() > 10, "a run of some length");
        assert_eq!(first, trace(seed), "seed {seed}");
    }
    assert_ne!(trace(1), trace(2));
}

/// A perfect network with one accepted connection.
struct Desk {
    simulation: Simulation,
    network: Network,
    listener: Listener,
    client: Client,
    socket: Socket,
}

fn desk() -> Desk {
    let (mut simulation, network) = Simulation::new(77, &DriverConfig::default(), Faults::none());
    let listener = network.listen();
    let client = network.connect(&listener);
    simulation.accept(&listener, 1, OperationMode::Single);
    let completion = next(&mut simulation);
    let Outcome::Accepted(socket) = completion.outcome else {
        panic!("{completion:?}")
    };
    Desk {
        simulation,
        network,
        listener,
        client,
        socket,
    }
}

fn next(simulation: &mut Simulation) -> Completion {
    let mut completions = vec![];
    for _ in 0..100 {
        simulation
            .wait(None, &|| false, &mut completions)
            .expect("never fails");
        if let Some(completion) = completions.pop() {
            assert!(completions.is_empty(), "one at a time");
            return completion;
        }
    }
    panic!("nothing came")
}

/// What the simulation says about a caller that breaks a promise.
fn verdict(breaks: impl FnOnce(&mut Desk)) -> String {
    let mut desk = desk();
    let panicked = catch_unwind(AssertUnwindSafe(|| breaks(&mut desk)));
    let words = panicked.expect_err("the caller should have been found out");
    words.downcast_ref::<String>().expect("a message").clone()
}

fn assert_found_out(promise: &str, breaks: impl FnOnce(&mut Desk)) {
    let words = verdict(breaks);
    assert!(words.contains(promise), "{words:?} does not name {promise}");
    assert!(
        words.contains("seed 77"),
        "{words:?} does not name the seed"
    );
}

fn bytes() -> flatpath_driver::SendList {
    list(&[Bytes::from_static(b"bytes")])
}

#[test]
fn broken_promises_are_found_out_and_named_with_the_seed() {
    assert_found_out("C1", |desk| {
        desk.simulation
            .receive(desk.socket, u64::MAX, OperationMode::Single, 0);
    });
    assert_found_out("C1", |desk| {
        desk.simulation
            .receive(desk.socket, 5, OperationMode::Single, 0);
        desk.simulation
            .send(desk.socket, 5, &mut bytes(), AfterSend::KeepOpen);
    });
    assert_found_out("C2: a second receive", |desk| {
        desk.simulation
            .receive(desk.socket, 5, OperationMode::Single, 0);
        desk.simulation
            .receive(desk.socket, 6, OperationMode::Single, 0);
    });
    assert_found_out("C2: a second send", |desk| {
        desk.simulation
            .send(desk.socket, 5, &mut bytes(), AfterSend::KeepOpen);
        desk.simulation
            .send(desk.socket, 6, &mut bytes(), AfterSend::KeepOpen);
    });
    assert_found_out("C2: a second accept", |desk| {
        desk.simulation
            .accept(&desk.listener, 5, OperationMode::Multishot);
        desk.simulation
            .accept(&desk.listener, 6, OperationMode::Multishot);
    });
    assert_found_out("C3", |desk| {
        desk.simulation
            .receive(desk.socket, 5, OperationMode::Single, 0);
        desk.simulation.close(desk.socket);
    });
    assert_found_out("C3", |desk| {
        desk.simulation
            .receive(desk.socket, 5, OperationMode::Single, 0);
        // A cancel is not an end: the final completion has to be seen first.
        desk.simulation.cancel(Operation::Receive(desk.socket), 5);
        desk.simulation.abort(desk.socket);
    });
    assert_found_out("C3", |desk| {
        desk.simulation
            .send(desk.socket, 5, &mut bytes(), AfterSend::KeepOpen);
        desk.simulation.shutdown_write(desk.socket);
    });
    assert_found_out("C3", |desk| {
        desk.simulation.shutdown_write(desk.socket);
        desk.simulation
            .send(desk.socket, 5, &mut bytes(), AfterSend::KeepOpen);
    });
    assert_found_out("C3", |desk| {
        desk.simulation
            .receive(desk.socket, 5, OperationMode::Single, 0);
        desk.simulation
            .send(desk.socket, 6, &mut bytes(), AfterSend::Close);
        let _ = next(&mut desk.simulation);
    });
    assert_found_out("C4", |desk| {
        desk.simulation.close(desk.socket);
        desk.simulation
            .receive(desk.socket, 5, OperationMode::Single, 0);
    });
    assert_found_out("C4", |desk| {
        desk.simulation
            .send(desk.socket, 5, &mut bytes(), AfterSend::Close);
        let _ = next(&mut desk.simulation);
        desk.simulation.close(desk.socket);
    });
}

#[test]
fn a_piece_of_another_driver_is_found_out() {
    let mut one = desk();
    let mut other = desk();
    one.client.write(b"hello");
    one.simulation
        .receive(one.socket, 5, OperationMode::Single, 0);
    let completion = next(&mut one.simulation);
    let Outcome::Received(piece) = completion.outcome else {
        panic!("{completion:?}")
    };
    let panicked = catch_unwind(AssertUnwindSafe(|| other.simulation.recycle(piece)));
    let words = panicked.expect_err("found out");
    assert!(
        words
            .downcast_ref::<String>()
            .expect("a message")
            .contains("C5")
    );
}

#[test]
fn what_is_not_given_back_is_listed() {
    let mut desk = desk();
    desk.client.write(b"hello");
    desk.simulation
        .receive(desk.socket, 5, OperationMode::Multishot, 0);
    let completion = next(&mut desk.simulation);
    assert!(completion.more);
    let Outcome::Received(piece) = completion.outcome else {
        panic!("{completion:?}")
    };
    let leaks = desk.network.leaks();
    assert_eq!(
        (leaks.sockets.len(), leaks.pieces, leaks.operations),
        (1, 1, vec![5])
    );
    desk.simulation.recycle(piece);
    desk.simulation.cancel(Operation::Receive(desk.socket), 5);
    let completion = next(&mut desk.simulation);
    assert!(matches!(
        completion.outcome,
        Outcome::Failed(Errno::CANCELED)
    ));
    desk.simulation.close(desk.socket);
    assert!(desk.network.leaks().is_none());
}

#[test]
fn a_full_table_of_sockets_keeps_connections_in_the_backlog() {
    let mut desk = desk();
    desk.network.set_sockets_max(1);
    let _waiting = desk.network.connect(&desk.listener);
    desk.simulation
        .accept(&desk.listener, 5, OperationMode::Multishot);
    let completion = next(&mut desk.simulation);
    assert!(!completion.more);
    assert!(
        matches!(completion.outcome, Outcome::Failed(Errno::MFILE)),
        "{completion:?}"
    );
    desk.simulation.close(desk.socket);
    desk.simulation
        .accept(&desk.listener, 6, OperationMode::Multishot);
    let completion = next(&mut desk.simulation);
    assert!(
        matches!(completion.outcome, Outcome::Accepted(_)),
        "{completion:?}"
    );
}

#[test]
fn a_client_that_does_not_read_stops_a_send() {
    let mut desk = desk();
    desk.network.set_window_bytes(1_000);
    let sent = pattern(5_000);
    let segment = Bytes::copy_from_slice(&sent);
    desk.simulation
        .send(desk.socket, 5, &mut list(&[segment]), AfterSend::Close);
    let (mut completions, mut read, mut counted) = (vec![], vec![], 0);
    for turn in 0..100 {
        desk.simulation
            .wait(Some(1_000), &|| false, &mut completions)
            .expect("never fails");
        for completion in completions.drain(..) {
            let Outcome::Sent { bytes, closed } = completion.outcome else {
                panic!("{completion:?}")
            };
            counted += bytes;
            assert_eq!(closed, !completion.more);
        }
        assert!(
            counted <= read.len() + 1_000,
            "more was taken than there was room for"
        );
        if turn > 10 {
            read.extend(desk.client.read());
        } else {
            assert!(counted <= 1_000);
        }
    }
    assert_eq!((counted, read), (5_000, sent));
    assert_eq!(desk.client.state(), ClientState::Finished);
}

#[test]
fn the_clock_moves_with_waits_and_with_the_test() {
    let Desk {
        mut simulation,
        network,
        ..
    } = desk();
    let before = simulation.now_ns();
    let mut completions = vec![];
    network.set_step_max(Duration::from_millis(5));
    simulation
        .wait(Some(60_000_000_000), &|| false, &mut completions)
        .expect("never fails");
    assert_eq!(
        simulation.now_ns(),
        before + 5_001_000,
        "one step and the turn itself"
    );
    simulation
        .wait(Some(60_000_000_000), &|| true, &mut completions)
        .expect("never fails");
    assert_eq!(
        simulation.now_ns(),
        before + 5_002_000,
        "ready work leaves no time to pass"
    );
    let seconds = simulation.wall_seconds();
    network.advance(Duration::from_secs(10));
    simulation
        .wait(Some(0), &|| false, &mut completions)
        .expect("never fails");
    assert_eq!(simulation.wall_seconds(), seconds + 10);
    assert!(completions.is_empty());
}

#[test]
fn dropping_a_simulation_ends_its_clients() {
    let desk = desk();
    desk.client.write(b"hello");
    drop(desk.simulation);
    assert_eq!(desk.client.state(), ClientState::Reset);
    assert_eq!(
        desk.network.leaks().sockets.len(),
        1,
        "and still says what was left open"
    );
}
