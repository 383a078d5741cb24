//! The end of a server comes in time, whatever hangs, and the end of any of its network threads is
//! noticed. On both drivers.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use crate::gate::{Gate, Gated, Opener, client, patience};
use crate::lines::on_both;
use flatpath::{DriverChoice, Error, Limits, Running, Server};

fn start(choice: DriverChoice, gate: &Gate, limits: Limits) -> Running {
    let server = Server::new().driver(choice).limits(limits);
    let server = server.listen("127.0.0.1:0", Gated(gate.clone()));
    server.start().expect("started")
}

/// Waits for a server on a thread of its own, so that the test has a deadline.
fn wait(running: Running) -> Receiver<Result<(), Error>> {
    let (tell, told) = channel();
    thread::spawn(move || {
        let _ = tell.send(running.wait());
    });
    told
}

fn ended(told: &Receiver<Result<(), Error>>) -> Result<(), Error> {
    told.recv_timeout(patience())
        .expect("the server ends in time")
}

/// A request that blocks its thread until the end, and what the end says of it.
fn left_behind(choice: DriverChoice, word: &[u8], is_forced: bool) -> Vec<flatpath::LeftBehind> {
    let gate = Gate::default();
    let _opener = Opener(gate.clone());
    let limits = Limits {
        // A force does not wait for it; a drain does.
        drain_timeout: if is_forced {
            Duration::MAX
        } else {
            Duration::from_millis(1)
        },
        ..Limits::default()
    };
    let running = start(choice, &gate, limits);
    let mut client = client(running.addresses()[0].address);
    client.write_all(word).expect("written");
    gate.await_waiting(1);
    let handle = running.handle();
    let told = wait(running);
    match is_forced {
        true => handle.force(),
        false => handle.drain(),
    }
    match ended(&told) {
        Err(Error::LeftBehind { left, cause }) => {
            assert!(cause.is_none(), "{cause:?}");
            left
        }
        other => panic!("{other:?}: a thread is blocked"),
    }
}

/// The blocked thread is left behind, and no other. A busy machine may not run the others in time,
/// so of several ends one has to leave it alone behind; at work it is alone in all of them.
fn only_one_is_left_behind(choice: DriverChoice, word: &[u8], thread: &str) {
    const ATTEMPTS: usize = 20;
    for is_forced in [false, true] {
        let is_alone = (0..ATTEMPTS).any(|_| {
            let left = left_behind(choice, word, is_forced);
            let at_work: Vec<_> = left.iter().filter(|one| one.listener.is_some()).collect();
            let [one] = at_work[..] else {
                panic!("one thread is blocked, not {at_work:?}");
            };
            assert!(one.thread.starts_with(thread), "{one}");
            assert_eq!(one.listener, Some("gated"));
            left.len() == 1
        });
        assert!(is_alone, "others were left behind {ATTEMPTS} times");
    }
}

#[test]
fn a_handler_that_never_returns_holds_up_no_end() {
    on_both(|choice| only_one_is_left_behind(choice, b"w", "worker "));
}

#[test]
fn a_network_thread_that_is_blocked_holds_up_no_end() {
    on_both(|choice| only_one_is_left_behind(choice, b"i", "network thread 0"));
}

#[test]
fn a_force_ends_a_drain_that_waits() {
    on_both(|choice| {
        let gate = Gate::default();
        let _opener = Opener(gate.clone());
        let running = start(choice, &gate, Limits::default());
        let mut client = client(running.addresses()[0].address);
        client.write_all(b"i").expect("written");
        gate.await_waiting(1);
        let handle = running.handle();
        let told = wait(running);
        handle.drain();
        let early = told.recv_timeout(Duration::from_millis(50));
        assert!(matches!(early, Err(RecvTimeoutError::Timeout)), "{early:?}");
        handle.force();
        assert!(matches!(ended(&told), Err(Error::LeftBehind { .. })));
    });
}

fn read_one(client: &mut TcpStream) -> Option<u8> {
    let mut answer = [0];
    client.read_exact(&mut answer).ok().map(|()| answer[0])
}

#[test]
fn clients_that_are_there_when_a_server_ends_are_answered_until_then() {
    on_both(|choice| {
        let gate = Gate::default();
        gate.open();
        let running = start(choice, &gate, Limits::default());
        let mut client = client(running.addresses()[0].address);
        client.write_all(b"x").expect("written");
        assert_eq!(read_one(&mut client), Some(b'x'));
        running.handle().drain();
        ended(&wait(running)).expect("a clean end");
        assert_eq!(read_one(&mut client), None);
    });
}
