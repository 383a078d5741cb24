//! Protocols made of a framing and a handler: in the simulation over many seeds, and on real
//! sockets with both drivers.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use crate::lines::choices;
use flatpath::framing::{Framed, Handler, Input, LengthPrefix, Lines, Next, Place, Reply};
use flatpath::memory::{Part, Payload};
use flatpath::simulation::Random;
use flatpath::{Io, Limits, NoRoom, Server};
use flatpath_test::{ClientState, Conditions, Faults, TestServer, each_seed};

/// Longest line.
const LINE_BYTES_MAX: usize = 100;

/// One command a line:
///
/// | command  | reply                                                               |
/// |----------|---------------------------------------------------------------------|
/// | `ping`   | `pong`                                                              |
/// | `work N` | `done N`, from a worker                                             |
/// | `big N`  | N bytes in two writes, then a line end                              |
/// | `body N` | none at once; the sum of the next N bytes once they are there       |
/// | `panic`  | none: a worker panics                                               |
/// | `bye`    | `bye`, then closed                                                  |
#[derive(Default)]
struct Commands;

fn number(words: &str) -> usize {
    let digits = words.split_once(' ').map_or("", |(_, digits)| digits);
    digits.parse().expect("a number")
}

impl Handler for Commands {
    type Session = ();
    type Work = ();

    fn message(&self, (): &mut (), io: &mut Io<'_>, line: &[u8]) -> Result<Next, NoRoom> {
        let line = std::str::from_utf8(line).expect("text");
        match line.split(' ').next() {
            Some("ping") => io.write(b"pong\n")?,
            Some("big") => {
                let half = vec![b'x'; number(line) / 2];
                io.write(&half)?;
                io.write(&half)?;
                io.write(b"\n")?;
            }
            Some("body") => return Ok(Next::Body(number(line))),
            Some("bye") => {
                io.write(b"bye\n")?;
                return Ok(Next::Close);
            }
            _ => io.write(b"what?\n")?,
        }
        Ok(Next::Message)
    }

    fn body(&self, (): &mut (), io: &mut Io<'_>, body: &Payload) -> Result<Next, NoRoom> {
        let bytes = body.parts().flat_map(Part::bytes);
        let sum: u64 = bytes.map(|byte| u64::from(*byte)).sum();
        io.write(format!("{sum}\n").as_bytes())?;
        Ok(Next::Message)
    }

    fn place(&self, (): &(), line: &[u8]) -> Place<()> {
        match line.starts_with(b"work") || line == b"panic" {
            true => Place::Worker(()),
            false => Place::Here,
        }
    }

    fn work(&self, (): &mut (), input: &mut Input, reply: &mut Reply) -> Next {
        let line = input.message();
        assert_ne!(line, b"panic", "as asked");
        let line = std::str::from_utf8(line).expect("text");
        let padding = "-".repeat(number(line));
        reply.write(format!("done {padding}\n").as_bytes());
        Next::Message
    }
}

fn commands() -> Framed<Lines, Commands> {
    Framed::new("commands", Lines::new(LINE_BYTES_MAX), Commands).too_long(b"too long\n")
}

/// Some commands, and the replies to them.
fn script(dice: &mut Random, most: usize, body_bytes_max: usize) -> (Vec<u8>, Vec<u8>) {
    let (mut said, mut owed) = (Vec::new(), Vec::new());
    for _ in 0..dice.below(most) {
        match dice.below(5) {
            0 => {
                said.extend(b"ping\n");
                owed.extend(b"pong\n");
            }
            1 | 2 => {
                let bytes = dice.below(20_000);
                said.extend(format!("work {bytes}\r\n").into_bytes());
                owed.extend(format!("done {}\n", "-".repeat(bytes)).into_bytes());
            }
            3 => {
                let bytes = 2 * dice.below(30_000);
                said.extend(format!("big {bytes}\n").into_bytes());
                owed.extend(format!("{}\n", "x".repeat(bytes)).into_bytes());
            }
            _ => {
                let bytes = [0, 1, 5_000, 200_000][dice.below(4)].min(body_bytes_max);
                said.extend(format!("body {bytes}\n").into_bytes());
                said.extend(vec![b'\n'; bytes]);
                owed.extend(format!("{}\n", bytes * usize::from(b'\n')).into_bytes());
            }
        }
    }
    (said, owed)
}

/// Deadlines have tests of their own.
fn patient(limits: Limits) -> Limits {
    let long = Duration::from_secs(100_000);
    Limits {
        write_timeout: long,
        stall_timeout: long,
        body_timeout: long,
        ..limits
    }
}

#[test]
fn sim_every_reply_comes_whole_and_in_order() {
    each_seed(200, |seed| {
        let mut dice = Random::new(seed);
        let mut conditions = Conditions::rough(seed);
        conditions.driver.receive_buffer_bytes = [16, 256, 8192][dice.below(3)];
        // With little, replies find no room half way. Bodies that are gathered would wait for each
        // other.
        let (buffer_bytes_max, body_bytes_max) =
            [(512 << 10, 5_000), (256 << 20, usize::MAX)][dice.below(2)];
        conditions.limits = patient(Limits {
            in_flight_max: [1, 3, 1000][dice.below(3)],
            buffer_bytes_max,
            ..Limits::default()
        });
        let mut server = TestServer::new(conditions, commands());
        server
            .world()
            .set_window_bytes([1000, 1 << 20][dice.below(2)]);
        server.set_wait_max(Duration::from_secs(1000));
        let clients = (0..1 + dice.below(8)).map(|_| {
            let (said, owed) = script(&mut dice, 12, body_bytes_max);
            (server.connect(), said, owed)
        });
        let clients: Vec<_> = clients.collect();
        for (client, said, _) in &clients {
            client.write(said);
            client.shutdown_write();
        }
        let mut heard = vec![Vec::new(); clients.len()];
        server.run_until(|| {
            let mut is_over = true;
            for ((client, ..), heard) in clients.iter().zip(&mut heard) {
                is_over &= client.state() != ClientState::Open;
                heard.extend(client.read());
            }
            is_over
        });
        for ((client, _, owed), heard) in clients.iter().zip(&heard) {
            assert_eq!(client.state(), ClientState::Finished);
            assert!(heard == owed, "{} of {} bytes", heard.len(), owed.len());
        }
    });
}

#[test]
fn sim_with_losses_what_comes_was_owed_and_nothing_is_kept() {
    each_seed(200, |seed| {
        let mut dice = Random::new(seed);
        let mut conditions = Conditions::calm(seed);
        conditions.faults = Faults::mixed(seed);
        conditions.limits = patient(conditions.limits);
        let mut server = TestServer::new(conditions, commands());
        for _ in 0..5 {
            let (said, owed) = script(&mut dice, 12, usize::MAX);
            let client = server.connect();
            client.write(&said);
            let mut heard = Vec::new();
            for _ in 0..dice.below(200) {
                server.turn();
                heard.extend(client.read());
            }
            assert!(owed.starts_with(&heard), "{}", heard.escape_ascii());
            if dice.below(2) == 0 {
                client.abort();
            }
        }
    });
}

#[test]
fn sim_a_line_that_is_too_long_is_refused_after_the_replies_before_it() {
    each_seed(50, |seed| {
        let mut server = TestServer::new(Conditions::rough(seed), commands());
        let client = server.connect();
        client.write(b"work 3\nping\n");
        client.write(&[b'x'; LINE_BYTES_MAX + 2]);
        client.write(b"\nping\n");
        let mut heard = Vec::new();
        server.run_until(|| {
            heard.extend(client.read());
            client.state() == ClientState::Finished
        });
        assert_eq!(
            heard.escape_ascii().to_string(),
            "done ---\\npong\\ntoo long\\n"
        );
    });
}

#[test]
fn sim_half_a_reply_that_found_no_room_is_taken_back() {
    each_seed(50, |seed| {
        let calls = AtomicU32::new(0);
        let halves = Framed::inline(
            "halves",
            Lines::new(10),
            move |(), io: &mut Io<'_>, line| {
                // The first buffer of a reply, and more than it holds.
                io.write(line)?;
                io.write(&[b'-'; 5000])?;
                // As if it had not been had: two times out of three.
                if calls.fetch_add(1, Relaxed) % 3 < 2 {
                    return Err(NoRoom);
                }
                io.write(b"\n")?;
                Ok(Next::Message)
            },
        );
        let mut server = TestServer::new(Conditions::rough(seed), halves);
        let client = server.connect();
        client.write(b"a\nb\nc\n");
        for word in ["a", "b", "c"] {
            let reply = format!("{word}{}\n", "-".repeat(5000));
            assert!(server.read_line(&client) == reply, "the reply to {word}");
        }
    });
}

#[test]
fn sim_a_panic_on_a_worker_ends_the_connection_after_the_replies_before_it() {
    let mut server = TestServer::new(Conditions::calm(7), commands());
    let client = server.connect();
    client.write(b"ping\npanic\nping\n");
    assert_eq!(server.read_to_end(&client), b"pong\n");
}

#[test]
fn sim_bye_is_the_last_word() {
    let mut server = TestServer::new(Conditions::calm(7), commands());
    let client = server.connect();
    client.write(b"bye\nping\n");
    assert_eq!(server.read_to_end(&client), b"bye\n");
}

/// Each phase has its own deadline, from the first message on.
#[test]
fn sim_phases_are_kept_without_the_handlers_doing() {
    let limits = Limits {
        head_timeout: Duration::from_secs(5),
        idle_timeout: Duration::from_secs(40),
        body_timeout: Duration::from_secs(10),
        ..Limits::default()
    };
    let ends_after = |said: &[u8], reply: &[u8]| {
        let mut conditions = Conditions::calm(7);
        conditions.limits = limits.clone();
        let mut server = TestServer::new(conditions, commands());
        let client = server.connect();
        client.write(said);
        assert_eq!(server.read_exact(&client, reply.len()), reply);
        let began = server.world().now();
        server.run_until(|| client.state() != ClientState::Open);
        (server.world().now() - began).as_secs()
    };
    assert_eq!(ends_after(b"ping\n", b"pong\n"), 40, "idle");
    assert_eq!(ends_after(b"work 1\n", b"done -\n"), 40, "idle after work");
    assert_eq!(ends_after(b"ping\npi", b"pong\n"), 5, "a head");
    assert_eq!(ends_after(b"ping\nbody 9\n12", b"pong\n"), 10, "a body");
    assert_eq!(ends_after(b"body 1\n\n", b"10\n"), 40, "idle after a body");
}

#[test]
fn sim_each_message_begins_a_new_time_of_rest() {
    let mut conditions = Conditions::calm(7);
    conditions.limits.idle_timeout = Duration::from_secs(40);
    let mut server = TestServer::new(conditions, commands());
    let client = server.connect();
    for _ in 0..3 {
        client.write(b"ping\n");
        assert_eq!(server.read_line(&client), "pong\n");
        server.advance(Duration::from_secs(30));
    }
    assert_eq!(client.state(), ClientState::Open);
}

#[test]
fn sim_a_drain_answers_what_has_come_and_ends_what_is_idle() {
    each_seed(50, |seed| {
        let mut server = TestServer::new(Conditions::rough(seed), commands());
        let (busy, idle) = (server.connect(), server.connect());
        idle.write(b"ping\n");
        assert_eq!(server.read_line(&idle), "pong\n");
        busy.write(b"ping\n");
        assert_eq!(server.read_line(&busy), "pong\n");
        busy.write(b"work 5000\nwork 1\n");
        while server.statistics().jobs_dispatched == 0 {
            server.turn();
        }
        server.drain();
        let heard = server.read_to_end(&busy);
        assert!(heard.ends_with(b"-\n"), "{}", heard.escape_ascii());
        assert_eq!(server.read_to_end(&idle), b"");
    });
}

#[test]
fn both_drivers_answer_messages_inline_and_pooled() {
    for choice in choices() {
        let reverse = |message: &[u8], reply: &mut Reply| {
            let length = u16::try_from(message.len()).expect("short");
            reply.write(&length.to_be_bytes());
            let reversed: Vec<u8> = message.iter().rev().copied().collect();
            reply.write(&reversed);
            Next::Message
        };
        let reverse = Framed::pooled("reverse", LengthPrefix::u16(1000), reverse);
        let server = Server::new().driver(choice);
        let server = server.listen("127.0.0.1:0", commands());
        let running = server.listen("127.0.0.1:0", reverse).start();
        let running = running.expect("start");
        let talk = |listener: usize, said: &[u8]| {
            let address = running.addresses()[listener].address;
            let mut stream = TcpStream::connect(address).expect("connect");
            let patience = Some(flatpath_testkit::patience());
            stream.set_read_timeout(patience).expect("settable");
            stream.write_all(said).expect("write");
            stream.shutdown(Shutdown::Write).expect("half-closed");
            let mut heard = Vec::new();
            stream.read_to_end(&mut heard).expect("read");
            heard
        };
        assert_eq!(talk(1, b"\0\x03abc\0\0\0\x02de"), b"\0\x03cba\0\0\0\x02ed");
        for seed in 0..20 {
            let (said, owed) = script(&mut Random::new(seed), 12, usize::MAX);
            assert!(talk(0, &said) == owed, "{choice:?}, script {seed}");
        }
        running.handle().drain();
        running.wait().expect("it ends");
    }
}
