//! A connection changes its protocol: on both drivers.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use crate::lines::choices;
use crate::speakers::{Speaker, heard_after, troupe};
use flatpath::{DriverChoice, Running, Server};

use flatpath_testkit::patience;

fn start(choice: DriverChoice, speaker: Speaker) -> Running {
    let server = Server::new().driver(choice).listen("127.0.0.1:0", speaker);
    server.start().expect("start")
}

fn connect(running: &Running) -> TcpStream {
    let client = TcpStream::connect(running.addresses()[0].address).expect("it listens");
    client.set_read_timeout(Some(patience())).expect("settable");
    client
}

#[test]
fn the_next_protocol_gets_what_was_not_consumed_and_its_words_come_after() {
    let long = "ping\n".repeat(5_000);
    let scripts = [
        "ping\ngo 1\nping\nwork 7\nping\n",
        "go 1\ngo 2\ngo 3\ngo 1\nwork 1\ngo 2\n",
        "try 2\ngo 2\ntry 1\n",
        &format!("go 3\n{long}go 2\n{long}"),
    ];
    for choice in choices() {
        let (speaker, troupe) = troupe();
        let running = start(choice, speaker);
        for script in scripts {
            let mut client = connect(&running);
            let mut writer = client.try_clone().expect("a second descriptor");
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    writer.write_all(script.as_bytes()).expect("it reads");
                    writer.shutdown(Shutdown::Write).expect("open");
                });
                let mut heard = String::new();
                client.read_to_string(&mut heard).expect("a clean end");
                assert_eq!(heard, heard_after(script), "{choice:?}");
            });
        }
        // Piece by piece, too.
        let mut client = connect(&running);
        client.set_nodelay(true).expect("settable");
        for byte in scripts[0].bytes() {
            client.write_all(&[byte]).expect("it reads");
        }
        client.shutdown(Shutdown::Write).expect("open");
        let mut heard = String::new();
        client.read_to_string(&mut heard).expect("a clean end");
        assert_eq!(heard, heard_after(scripts[0]), "{choice:?}");
        running.wait_for_end();
        assert_eq!(troupe.strangers.load(Relaxed), 0);
        assert_eq!(troupe.begun.load(Relaxed), troupe.closed.load(Relaxed));
    }
}

#[test]
fn a_panic_at_the_beginning_and_a_late_job_cut_the_connection() {
    for choice in choices() {
        let (speaker, troupe) = troupe();
        let running = start(choice, speaker);
        for script in ["go 1\nfail\n", "late 2\n"] {
            let mut client = connect(&running);
            client.write_all(script.as_bytes()).expect("it reads");
            let cause = client.read_to_end(&mut Vec::new()).expect_err("a reset");
            assert_eq!(cause.kind(), ErrorKind::ConnectionReset, "{choice:?}");
        }
        let mut client = connect(&running);
        client.write_all(b"go 1\n").expect("it reads");
        client.shutdown(Shutdown::Write).expect("open");
        let mut heard = String::new();
        client.read_to_string(&mut heard).expect("it serves on");
        assert_eq!(heard, heard_after("go 1\n"));
        running.wait_for_end();
        assert_eq!(troupe.strangers.load(Relaxed), 0);
        assert_eq!(troupe.begun.load(Relaxed), troupe.closed.load(Relaxed));
    }
}

#[test]
fn a_successor_learns_that_the_server_drains() {
    for choice in choices() {
        let (speaker, troupe) = troupe();
        let running = start(choice, speaker);
        let mut client = connect(&running);
        client.write_all(b"go 1\n").expect("it reads");
        let mut heard = [0; 17];
        client.read_exact(&mut heard).expect("both say something");
        running.handle().drain();
        let deadline = Instant::now() + patience();
        while troupe.drains_told.load(Relaxed) < 1 {
            assert!(
                Instant::now() < deadline,
                "{choice:?}: the speaker is notified"
            );
            std::thread::yield_now();
        }
        // One that is handed over now is notified as well.
        client.write_all(b"go 2\n").expect("it reads");
        client.shutdown(Shutdown::Write).expect("open");
        let mut heard = String::new();
        client.read_to_string(&mut heard).expect("a clean end");
        assert_eq!(heard, "1 goes\n2 after 1\n2 ends\n");
        assert_eq!(troupe.drains_told.load(Relaxed), 2, "{choice:?}");
        running.wait().expect("it ends");
    }
}

trait WaitForEnd {
    fn wait_for_end(self);
}

impl WaitForEnd for Running {
    fn wait_for_end(self) {
        self.handle().drain();
        self.wait().expect("it ends");
    }
}
