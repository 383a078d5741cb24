//! Signals of a program that starts a server and waits for it, and what `on_ready` gets. In a
//! process of its own, which sends signals to itself.

use std::env;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use flatpath::{DriverChoice, Running, Server, ServerState};
use flatpath_testkit::in_child;
use rustix::process::{Signal, getpid, kill_process};

use crate::lines::{Lines, on_both};

use flatpath_testkit::patience;

/// Names the part that a child of this process has to play.
const PART: &str = "FLATPATH_TEST_PART";

fn server(choice: DriverChoice) -> Server {
    let server = Server::new().driver(choice).workers(1..=2);
    server.listen("127.0.0.1:0", Lines)
}

/// A client that was answered, and waits for the reply to what takes a worker's time.
fn busy_client(address: SocketAddr) -> TcpStream {
    let mut client = TcpStream::connect(address).expect("it listens");
    client.set_read_timeout(Some(patience())).expect("a socket");
    client.write_all(b"ping\n").expect("written");
    let mut pong = [0; 5];
    client.read_exact(&mut pong).expect("answered");
    client
}

/// Waits for a server in a thread, sends this process a signal once it is heard, and returns
/// whether the client was served to its end.
fn drained_by(signal: Signal, running: Running) -> bool {
    let (handle, address) = (running.handle(), running.addresses()[0].address);
    let mut client = busy_client(address);
    let (tell, told) = channel();
    let waiting = std::thread::spawn(move || tell.send(running.wait().is_ok()));
    let deadline = Instant::now() + patience();
    while !is_caught(signal) {
        assert!(Instant::now() < deadline, "the signal is not watched");
        std::thread::yield_now();
    }
    // Until it is its own wait that hears it, and not one before.
    while handle.state() == ServerState::Running {
        assert!(Instant::now() < deadline, "the server does not drain");
        kill_process(getpid(), signal).expect("sent");
        std::thread::sleep(Duration::from_millis(10));
    }
    let mut rest = Vec::new();
    let is_closed = client.read_to_end(&mut rest).is_ok();
    let is_over = told.recv_timeout(patience()) == Ok(true);
    waiting.join().expect("no panic").expect("it is awaited");
    is_closed && is_over
}

fn is_caught(signal: Signal) -> bool {
    is_in("SigCgt:", signal)
}

/// Whether a signal is in a mask of this process (proc_pid_status(5)).
fn is_in(mask: &str, signal: Signal) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").expect("mounted");
    let mask = status.lines().find_map(|line| line.strip_prefix(mask));
    let mask = u64::from_str_radix(mask.expect("a mask").trim(), 16).expect("digits");
    mask >> (signal.as_raw() - 1) & 1 == 1
}

/// What a child does: which signal ended it, if one did.
fn signal_of_child(part: &str) -> Option<i32> {
    let program = env::current_exe().expect("this test");
    let mut child = Command::new(program);
    let child = child
        .args(["--exact", "waits::a_child_plays_its_part"])
        .env(PART, part);
    let mut child = child.spawn().expect("run");
    let deadline = Instant::now() + patience();
    loop {
        if let Some(status) = child.try_wait().expect("a child") {
            return status.signal();
        }
        if Instant::now() > deadline {
            child.kill().expect("a child");
            panic!("{part} does not end");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn play(part: &str) {
    let running = server(DriverChoice::Epoll).start().expect("started");
    match part {
        "not waited for" => kill_process(getpid(), Signal::TERM).expect("sent"),
        "ended without a signal" => {
            running.handle().drain();
            running.wait().expect("it ends");
            kill_process(getpid(), Signal::TERM).expect("sent");
        }
        other => panic!("no such part: {other}"),
    }
    std::thread::sleep(patience());
}

/// Plays the part of a child, where this process is one.
#[test]
fn a_child_plays_its_part() {
    if let Ok(part) = env::var(PART) {
        play(&part);
    }
}

#[test]
fn a_program_that_waits_is_drained_by_signals() {
    if !in_child(concat!(
        module_path!(),
        "::a_program_that_waits_is_drained_by_signals"
    )) {
        return;
    }
    let killed = Some(Signal::TERM.as_raw());
    assert_eq!(signal_of_child("not waited for"), killed);
    assert_eq!(signal_of_child("ended without a signal"), killed);
    on_both(|choice| {
        // SIGHUP stays ignored where it was (`nohup`).
        let signals = [Signal::TERM, Signal::INT, Signal::HUP];
        for signal in signals.into_iter().filter(|it| !is_in("SigIgn:", *it)) {
            let (tell, told) = channel();
            let server = server(choice).on_ready(move |running| {
                tell.send(running.addresses()[0].address).expect("awaited");
            });
            let running = server.start().expect("started");
            let port = told.try_recv().expect("it was told before").port();
            assert_eq!(port, running.addresses()[0].address.port());
            assert!(port > 0 && drained_by(signal, running), "{signal:?}");
        }
    });
    let failed = server(DriverChoice::Epoll).listen("192.0.2.1:1", Lines);
    let failed = failed.on_ready(|_| panic!("it does not run")).start();
    assert!(failed.is_err());
}
