//! Messages of framed protocols on workers: several of a connection at a time, in order and as they
//! are ready, alone, with bodies, errors and ends. In the simulation, and on both drivers.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use crate::lines::choices;
use bytes::Bytes;
use flatpath::framing::{Framed, Handler, Input, Lines, Next, Place, Reply};
use flatpath::memory::{Part, Payload};
use flatpath::simulation::Random;
use flatpath::{Io, Limits, NoRoom, Server};
use flatpath_test::{Client, ClientState, Conditions, Faults, TestServer, each_seed};
use flatpath_testkit::patience;

/// What is said to a client that has just come.
const GREETING: &str = "welcome\n";

/// One command a line; `W` is a word that comes back.
///
/// | command       | where   | reply                                                  |
/// |---------------|---------|--------------------------------------------------------|
/// | `now W`       | here    | `W`                                                    |
/// | `work W`      | worker  | `W`, and the name                                      |
/// | `shared N W`  | worker  | N bytes that are shared, then `W`                      |
/// | `error W`     | worker  | `W`, in place of half a reply                          |
/// | `name W`      | alone   | `W`; it is the name from then on                       |
/// | `body N`      | alone   | none, but the sum of N bytes that follow, from a worker |
/// | `end W`       | worker  | `W`, then the end                                      |
/// | `panic`       | worker  | none, then the end                                     |
/// | `take N`      | here    | none, but the sum of N bytes that follow, from a worker |
/// | `bye`         | here    | `bye`, then the end                                    |
#[derive(Default)]
struct Words;

#[derive(Default)]
struct Session {
    name: String,
    has_peer: bool,
}

fn words(line: &[u8]) -> Vec<&str> {
    let line = std::str::from_utf8(line).expect("text");
    line.split(' ').collect()
}

impl Handler for Words {
    type Session = Session;
    /// The name.
    type Work = String;

    fn connected(&self, session: &mut Session, io: &mut Io<'_>) -> Result<Next, NoRoom> {
        io.write(GREETING.as_bytes())?;
        session.has_peer = io.peer().is_some();
        Ok(Next::Message)
    }

    fn place(&self, session: &Session, line: &[u8]) -> Place<String> {
        match words(line)[0] {
            "work" | "shared" | "error" | "end" | "panic" => Place::Worker(session.name.clone()),
            "name" | "body" => Place::Alone(session.name.clone()),
            _ => Place::Here,
        }
    }

    fn message(&self, session: &mut Session, io: &mut Io<'_>, line: &[u8]) -> Result<Next, NoRoom> {
        match words(line)[..] {
            ["now", word] => io.write(format!("{word}\n").as_bytes())?,
            ["peer"] => io.write(format!("{}\n", session.has_peer).as_bytes())?,
            ["take", bytes] => return Ok(Next::Body(bytes.parse().expect("a number"))),
            ["bye"] => {
                io.write(b"bye\n")?;
                return Ok(Next::Close);
            }
            _ => panic!("{}", line.escape_ascii()),
        }
        Ok(Next::Message)
    }

    fn place_body(&self, session: &Session, _: &Payload) -> Place<String> {
        Place::Worker(session.name.clone())
    }

    fn work(&self, name: &mut String, input: &mut Input, reply: &mut Reply) -> Next {
        if input.message().is_empty() {
            let body = std::mem::take(input.body());
            let bytes = body.parts().flat_map(Part::bytes);
            let sum: u64 = bytes.map(|byte| u64::from(*byte)).sum();
            reply.write(format!("{sum}\n").as_bytes());
            return Next::Message;
        }
        let number = |digits: &str| digits.parse::<usize>().expect("a number");
        match words(input.message())[..] {
            ["work", word] => reply.write(format!("{word}{name}\n").as_bytes()),
            ["shared", bytes, word] => {
                reply.write_shared(Bytes::from(vec![b's'; number(bytes)]));
                reply.write(format!("{word}\n").as_bytes());
            }
            ["error", word] => {
                reply.write(b"half of");
                reply.clear();
                reply.write(format!("{word}\n").as_bytes());
            }
            ["name", word] => {
                word.clone_into(name);
                reply.write(format!("{word}\n").as_bytes());
            }
            ["body", bytes] => return Next::Body(number(bytes)),
            ["end", word] => {
                reply.write(format!("{word}\n").as_bytes());
                return Next::Close;
            }
            ref other => panic!("{other:?}"),
        }
        Next::Message
    }

    fn worked(&self, session: &mut Session, name: String) {
        session.name = name;
    }
}

fn served(at_work_max: u32) -> Framed<Lines, Words> {
    Framed::new("words", Lines::new(100), Words).at_work_max(at_work_max)
}

/// A command, and the reply to it.
fn command(random: &mut Random, number: usize, name: &mut String) -> (Vec<u8>, String) {
    let (said, owed) = match random.below(7) {
        0 => (format!("now w{number}\n"), format!("w{number}\n")),
        1 | 2 => (format!("work w{number}\n"), format!("w{number}{name}\n")),
        3 => {
            let bytes = [10, 9_000, 20_000][random.below(3)];
            let owed = format!("{}w{number}\n", "s".repeat(bytes));
            (format!("shared {bytes} w{number}\n"), owed)
        }
        4 => (format!("error w{number}\n"), format!("w{number}\n")),
        5 => {
            *name = format!("n{number}");
            (format!("name {name}\n"), format!("{name}\n"))
        }
        _ => {
            let bytes = [0, 1, 3_000][random.below(3)];
            let sum = bytes * usize::from(b'\n');
            let said = format!("body {bytes}\n{}", "\n".repeat(bytes));
            (said, format!("{sum}\n"))
        }
    };
    (said.into_bytes(), owed)
}

fn rough(seed: u64, random: &mut Random) -> Conditions {
    let mut conditions = Conditions::rough(seed);
    conditions.driver.receive_buffer_bytes = [16, 256, 8192][random.below(3)];
    let long = Duration::from_secs(100_000);
    conditions.limits = Limits {
        in_flight_max: [1, 3, 1000][random.below(3)],
        buffer_bytes_max: [1 << 20, 256 << 20][random.below(2)],
        write_timeout: long,
        stall_timeout: long,
        body_timeout: long,
        ..Limits::default()
    };
    conditions
}

/// How many messages go to workers of what a client says in one turn, before any worker has run.
fn dispatched(said: &str, served: Framed<Lines, Words>) -> u64 {
    let mut server = TestServer::new(Conditions::calm(1), served);
    let client = server.connect();
    assert_eq!(server.read_line(&client), GREETING);
    client.write(said.as_bytes());
    while server.statistics().jobs_dispatched == 0 {
        server.turn();
    }
    let dispatched = server.statistics().jobs_dispatched;
    client.shutdown_write();
    let heard = String::from_utf8(server.read_to_end(&client)).expect("text");
    assert_eq!(heard.lines().count(), said.lines().count());
    dispatched
}

#[test]
fn sim_no_more_than_so_many_messages_are_at_work_and_none_beside_one_that_is_alone() {
    for at_work_max in [1, 3, 8] {
        let said = "work w\n".repeat(20);
        let dispatched = dispatched(&said, served(at_work_max));
        assert_eq!(dispatched, u64::from(at_work_max));
    }
    for said in [
        "work w\nname n\n",
        "name n\nwork w\n",
        "name n\nnow w\nwork w\n",
    ] {
        assert_eq!(dispatched(said, served(8)), 1, "{said:?}");
        let as_ready = served(8).replies_as_ready();
        assert_eq!(dispatched(said, as_ready), 1, "{said:?}");
    }
}

/// What each client hears until its end.
fn hear_all(server: &mut TestServer, clients: &[Client]) -> Vec<String> {
    server.set_wait_max(Duration::from_secs(1000));
    let mut heard = vec![Vec::new(); clients.len()];
    server.run_until(|| {
        let mut is_over = true;
        for (client, heard) in clients.iter().zip(&mut heard) {
            is_over &= client.state() != ClientState::Open;
            heard.extend(client.read());
        }
        is_over
    });
    let all = heard.into_iter();
    all.map(|heard| String::from_utf8(heard).expect("text"))
        .collect()
}

#[test]
fn sim_replies_come_whole_and_in_order_however_many_are_at_work() {
    each_seed(300, |seed| {
        let mut random = Random::new(seed);
        let at_work_max = [1, 2, 8][random.below(3)];
        let mut server = TestServer::new(rough(seed, &mut random), served(at_work_max));
        let window_bytes = [1000, 1 << 20][random.below(2)];
        server.world().set_window_bytes(window_bytes);
        let mut owed = Vec::new();
        let clients = (0..1 + random.below(4)).map(|_| {
            let (client, mut name) = (server.connect(), String::new());
            let mut all = GREETING.to_owned();
            for number in 0..random.below(20) {
                let (said, reply) = command(&mut random, number, &mut name);
                client.write(&said);
                all += &reply;
            }
            client.shutdown_write();
            owed.push(all);
            client
        });
        let clients: Vec<_> = clients.collect();
        for (heard, owed) in hear_all(&mut server, &clients).iter().zip(&owed) {
            assert!(heard == owed, "{heard:.300}\nis not\n{owed:.300}");
        }
    });
}

#[test]
fn sim_replies_as_they_are_ready_are_whole_and_what_is_alone_divides_them() {
    let mut had_other_order = false;
    each_seed(300, |seed| {
        let mut random = Random::new(seed);
        let served = served([2, 3, 8][random.below(3)]).replies_as_ready();
        let mut server = TestServer::new(rough(seed, &mut random), served);
        let client = server.connect();
        // Parts of the conversation, between messages that are alone.
        let mut owed = vec![vec![GREETING.to_owned()]];
        for number in 0..20 {
            match random.below(5) {
                0 => {
                    client.write(format!("name n{number}\n").as_bytes());
                    owed.extend([vec![format!("n{number}\n")], Vec::new()]);
                }
                2 => {
                    // Its worker may have to wait for another, after all input.
                    let bytes = random.below(3) * 1000;
                    client.write(format!("take {bytes}\n{}", "\n".repeat(bytes)).as_bytes());
                    let sum = bytes * usize::from(b'\n');
                    owed.last_mut().expect("one").push(format!("{sum}\n"));
                }
                1 => {
                    client.write(format!("now w{number}\n").as_bytes());
                    owed.last_mut().expect("one").push(format!("w{number}\n"));
                }
                _ => {
                    client.write(format!("shared 9000 w{number}\n").as_bytes());
                    let reply = format!("{}w{number}\n", "s".repeat(9000));
                    owed.last_mut().expect("one").push(reply);
                }
            }
        }
        client.shutdown_write();
        let heard = hear_all(&mut server, &[client]);
        let mut heard = heard[0].split_inclusive('\n');
        for mut part in owed {
            let mut heard: Vec<_> = heard.by_ref().take(part.len()).collect();
            had_other_order |= heard != part;
            heard.sort_unstable();
            part.sort_unstable();
            assert_eq!(heard, part);
        }
        assert_eq!(heard.next(), None);
    });
    assert!(had_other_order);
}

/// What a client hears that says all of this at once.
fn hears(seed: u64, said: &str, served: Framed<Lines, Words>) -> String {
    let mut server = TestServer::new(Conditions::rough(seed), served);
    let client = server.connect();
    client.write(said.as_bytes());
    let mut heard = hear_all(&mut server, &[client]);
    let heard = heard.remove(0);
    heard.strip_prefix(GREETING).expect("a greeting").to_owned()
}

#[test]
fn sim_an_end_in_the_order_of_messages_lets_through_what_is_before_it_alone() {
    let ends = [
        ("end c\n", "a\nb\nc\n"),
        ("panic\n", "a\nb\n"),
        ("bye\n", "a\nb\nbye\n"),
    ];
    each_seed(50, |seed| {
        for (end, owed) in ends {
            let said = format!("work a\nnow b\n{end}work d\nshared 9000 e\nnow f\n");
            assert_eq!(hears(seed, &said, served(8)), owed, "{end}");
        }
    });
}

#[test]
fn sim_an_end_of_replies_as_they_are_ready_lets_through_what_is_at_work() {
    each_seed(50, |seed| {
        for end in ["end c\n", "panic\n", "bye\n"] {
            let said = format!("work a\nerror b\n{end}");
            let heard = hears(seed, &said, served(8).replies_as_ready());
            let mut lines: Vec<_> = heard.lines().collect();
            lines.sort_unstable();
            let last = end
                .split_whitespace()
                .last()
                .filter(|word| *word != "panic");
            let owed: Vec<_> = ["a", "b"].into_iter().chain(last).collect();
            assert_eq!(lines, owed, "{end}");
        }
    });
}

#[test]
fn sim_a_line_that_is_too_long_is_refused_after_the_replies_of_workers() {
    each_seed(50, |seed| {
        let said = format!("work a\nwork b\n{}\n", "x".repeat(200));
        let served = served(8).replies_as_ready().too_long(b"too long\n");
        let heard = hears(seed, &said, served);
        assert!(heard.ends_with("\ntoo long\n"), "{heard}");
        assert_eq!(heard.len(), "a\nb\ntoo long\n".len());
    });
}

#[test]
fn sim_a_drain_answers_all_that_is_at_work() {
    each_seed(50, |seed| {
        let mut server = TestServer::new(Conditions::rough(seed), served(4));
        let client = server.connect();
        assert_eq!(server.read_line(&client), GREETING);
        client.write(b"work a\nwork b\nwork c\nwork d\n");
        while server.statistics().jobs_dispatched < 4 {
            server.turn();
        }
        server.drain();
        assert_eq!(server.read_to_end(&client), b"a\nb\nc\nd\n");
    });
}

#[test]
fn sim_a_reply_that_waits_for_its_client_is_charged_until_it_is_read() {
    const BYTES: usize = 400_000;
    let mut server = TestServer::new(Conditions::calm(1), served(1));
    server.world().set_window_bytes(1000);
    let client = server.connect();
    client.write(format!("shared {BYTES} w\n").as_bytes());
    server.settle();
    let charged = server.handle().pool_statistics().charged_bytes;
    assert!((BYTES..BYTES + 100_000).contains(&charged), "{charged}");
    server.world().set_window_bytes(1 << 20);
    let owed = format!("{GREETING}{}w\n", "s".repeat(BYTES));
    assert!(server.read_exact(&client, owed.len()) == owed.as_bytes());
    server.settle();
    assert_eq!(server.handle().pool_statistics().charged_bytes, 0);
}

/// The end of the server checks that nothing is kept.
#[test]
fn sim_with_losses_what_comes_was_owed() {
    each_seed(200, |seed| {
        let mut random = Random::new(seed);
        let mut conditions = Conditions::calm(seed);
        conditions.faults = Faults::mixed(seed);
        let mut server = TestServer::new(conditions, served(4));
        for _ in 0..4 {
            let (client, mut name) = (server.connect(), String::new());
            let mut owed = GREETING.to_owned();
            for number in 0..10 {
                let (said, reply) = command(&mut random, number, &mut name);
                client.write(&said);
                owed += &reply;
            }
            let mut heard = Vec::new();
            for _ in 0..random.below(100) {
                server.turn();
                heard.extend(client.read());
            }
            let heard = String::from_utf8(heard).expect("text");
            assert!(owed.starts_with(&heard), "{heard:.300}");
            if random.below(2) == 0 {
                client.abort();
            }
        }
    });
}

#[test]
#[should_panic(expected = "0 messages at work are not 1 to 256")]
fn no_message_at_work_is_refused() {
    let _ = served(0);
}

/// What a server says to a client that says this, until the end.
pub(crate) fn talk(address: std::net::SocketAddr, said: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).expect("connect");
    stream.set_read_timeout(Some(patience())).expect("settable");
    stream.write_all(said).expect("write");
    stream.shutdown(Shutdown::Write).expect("half-closed");
    let mut heard = String::new();
    stream.read_to_string(&mut heard).expect("read");
    heard
}

#[test]
fn both_drivers_greet_and_answer_in_order() {
    for choice in choices() {
        let server = Server::new().driver(choice);
        let server = server.listen("127.0.0.1:0", served(8)).start();
        let server = server.expect("it starts");
        let address = server.addresses()[0].address;
        assert_eq!(talk(address, b"peer\n"), format!("{GREETING}true\n"));
        for seed in 0..20 {
            let (mut random, mut name) = (Random::new(seed), String::new());
            let (mut said, mut owed) = (Vec::new(), GREETING.to_owned());
            for number in 0..30 {
                let (command, reply) = command(&mut random, number, &mut name);
                said.extend(command);
                owed += &reply;
            }
            let heard = talk(address, &said);
            assert!(heard == owed, "{choice:?}, script {seed}: {heard:.300}");
        }
        server.handle().drain();
        server.wait().expect("it ends");
    }
}
