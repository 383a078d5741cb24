//! Services that answer datagrams, on real sockets and on both drivers.

use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use flatpath::blocking::{BlockingLimit, Entry, WaitLimits};
use flatpath::datagrams::{Datagram, DatagramService, Next, Reply};
use flatpath::handover::{Handover, Takeover};
use flatpath::sockets::{ListenAddress, PassedSockets};
use flatpath::{DriverChoice, Error, Running, Server, WorkerScope};
use flatpath_testkit::{Over, until_true};

use crate::lines::{Lines, on_both};

use flatpath_testkit::patience;

/// What a test asks for, by the first word of a datagram: see `answer`.
pub(crate) struct Talk;

impl DatagramService for Talk {
    fn name(&self) -> &'static str {
        "talk"
    }

    fn receive(&self, datagram: &Datagram<'_>, reply: &mut Reply<'_>) -> Next {
        if datagram.bytes().starts_with(b"work ") {
            // Forgotten, as the worker writes its own.
            let _ = reply.write(b"not yet");
            return Next::Work;
        }
        answer(datagram, datagram.bytes(), reply);
        Next::Answer
    }

    fn work(&self, datagram: &Datagram<'_>, reply: &mut Reply<'_>, _: &mut WorkerScope<'_>) {
        assert!(!flatpath::on_network_thread(), "it may block");
        answer(datagram, &datagram.bytes()[b"work ".len()..], reply);
    }
}

/// `echo` has the datagram itself, `long N` has N bytes, `fit N` the same or a word, `panic` does,
/// `quiet` has no answer.
fn answer(datagram: &Datagram<'_>, asked: &[u8], reply: &mut Reply<'_>) {
    let text = String::from_utf8_lossy(asked).into_owned();
    let mut words = text.split_whitespace();
    let (word, count) = (words.next(), words.next());
    let count = count.and_then(|count| count.parse().ok()).unwrap_or(0);
    match word {
        Some("long") => {
            let _ = reply.write(&vec![b'l'; count]);
        }
        Some("fit") => {
            assert_eq!(reply.room(), datagram.room());
            if reply.write(&vec![b'l'; count]).is_err() {
                reply.clear();
                reply.write(b"no room").expect("for a word");
            }
        }
        Some("panic") => panic!("as asked"),
        Some("quiet") => {}
        _ => reply.write(datagram.bytes()).expect("as long as it"),
    }
}

pub(crate) fn client() -> UdpSocket {
    client_at([127, 0, 0, 1])
}

fn client_at(address: [u8; 4]) -> UdpSocket {
    let client = UdpSocket::bind(SocketAddr::from((address, 0))).expect("a free port");
    client.set_read_timeout(Some(patience())).expect("a socket");
    client
}

/// A question and the reply to it, and where that came from.
fn ask(client: &UdpSocket, at: SocketAddr, request: &[u8]) -> (Vec<u8>, SocketAddr) {
    client.send_to(request, at).expect("sent");
    let mut reply = [0; 65_536];
    let (count, from) = client.recv_from(&mut reply).expect("a reply");
    (reply[..count].to_vec(), from)
}

fn at(running: &Running, listener: usize) -> SocketAddr {
    let listening = &running.datagram_listeners()[listener];
    assert_eq!(listening.name, "talk");
    listening.address.internet().expect("of the internet")
}

fn end(running: Running) {
    running.handle().drain();
    running.wait().expect("a clean end");
}

#[test]
fn a_reply_leaves_from_the_address_that_was_asked_on_every_driver_and_thread() {
    on_both(|choice| {
        let server = Server::new().driver(choice).network_threads(2);
        let server = server.listen_datagrams("0.0.0.0:0", Talk);
        // Without a listener for connections.
        let running = server.listen_datagrams("[::1]:0", Talk).start();
        let running = running.expect("the server starts");
        let (first, second) = (at(&running, 0), at(&running, 1));
        let client = client();
        for (number, work) in (0..20).zip(["", "work "].into_iter().cycle()) {
            let to = Ipv4Addr::new(127, 0, 0, 1 + number % 2);
            let to = SocketAddr::from((to, first.port()));
            let request = format!("{work}echo {number}");
            let (reply, from) = ask(&client, to, request.as_bytes());
            assert_eq!((reply, from), (request.into_bytes(), to));
        }
        let six = UdpSocket::bind("[::1]:0").expect("a free port");
        six.set_read_timeout(Some(patience())).expect("a socket");
        assert_eq!(ask(&six, second, b"six"), (b"six".to_vec(), second));
        let handle = running.handle();
        end(running);
        // A reply is counted after it was sent.
        let statistics = handle.statistics();
        assert_eq!(statistics.datagrams_answered, 21);
        assert_eq!(statistics.datagrams_dropped(), 0);
    });
}

#[test]
fn a_long_reply_goes_only_to_an_address_with_a_connection_on_real_sockets() {
    on_both(|choice| {
        let server = Server::new().driver(choice).network_threads(2);
        let server = server.listen("127.0.0.1:0", Lines);
        let running = server.listen_datagrams("127.0.0.1:0", Talk).start();
        let running = running.expect("the server starts");
        let (client, to) = (client(), at(&running, 0));
        for work in ["", "work "] {
            let request = format!("{work}fit 8192");
            assert_eq!(ask(&client, to, request.as_bytes()).0, b"no room");
        }
        let mut stream = TcpStream::connect(running.addresses()[0].address).expect("open");
        stream.set_read_timeout(Some(patience())).expect("a socket");
        stream.write_all(b"ping\n").expect("open");
        let mut line = String::new();
        BufReader::new(&stream).read_line(&mut line).expect("open");
        for work in ["", "work "] {
            let request = format!("{work}fit 8192");
            assert_eq!(ask(&client, to, request.as_bytes()).0.len(), 8192);
        }
        drop(stream);
        let deadline = Instant::now() + patience();
        while running.handle().statistics().connections() > 0 {
            assert!(Instant::now() < deadline, "it is closed");
            std::thread::yield_now();
        }
        assert_eq!(ask(&client, to, b"fit 8192").0, b"no room");
        end(running);
    });
}

/// Waits until the test lets it go on, or its patience ends.
fn await_set(go: &Over) {
    let deadline = Instant::now() + patience();
    while !go.is_set() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Answers no datagram before the test lets it.
struct Slow {
    go: Arc<Over>,
    at_work: Arc<AtomicU32>,
}

impl DatagramService for Slow {
    fn name(&self) -> &'static str {
        "slow"
    }

    fn receive(&self, _: &Datagram<'_>, _: &mut Reply<'_>) -> Next {
        Next::Work
    }

    fn work(&self, datagram: &Datagram<'_>, reply: &mut Reply<'_>, _: &mut WorkerScope<'_>) {
        self.at_work.fetch_add(1, Ordering::Relaxed);
        await_set(&self.go);
        reply.write(datagram.bytes()).expect("as long as it");
    }
}

/// Answers on a worker within a limit, for one at a time: the first when the test lets it.
struct Narrow {
    limit: BlockingLimit,
    go: Arc<Over>,
}

impl DatagramService for Narrow {
    fn name(&self) -> &'static str {
        "narrow"
    }

    fn receive(&self, _: &Datagram<'_>, _: &mut Reply<'_>) -> Next {
        Next::Work
    }

    fn work(&self, datagram: &Datagram<'_>, reply: &mut Reply<'_>, scope: &mut WorkerScope<'_>) {
        let entry = self.limit.enter(scope);
        if let Entry::Entered(_) = &entry {
            await_set(&self.go);
        }
        // What is written here of a job that is parked goes nowhere.
        let last = if matches!(entry, Entry::Entered(_)) {
            b"!"
        } else {
            b"?"
        };
        reply.write(datagram.bytes()).expect("as long as it");
        reply.write(last).expect("there is room");
    }
}

#[test]
fn a_datagram_waits_for_its_limit_without_a_worker_and_is_answered_once() {
    on_both(|choice| {
        let waits = WaitLimits {
            waiting_max: 8,
            stuck_after: patience(),
        };
        let limit = BlockingLimit::at_most(1, "one at a time", waits);
        let go = Arc::new(Over::default());
        let narrow = Narrow {
            limit: limit.clone(),
            go: Arc::clone(&go),
        };
        let server = Server::new().driver(choice).workers(1..=16);
        let server = server.listen("127.0.0.1:0", Lines);
        let running = server.listen_datagrams("127.0.0.1:0", narrow).start();
        let running = running.expect("the server starts");
        let to = running.datagram_listeners()[0].address.internet();
        let (client, to) = (client(), to.expect("of the internet"));
        let _ends = go.at_end();
        for word in [b"a", b"b", b"c"] {
            client.send_to(word, to).expect("sent");
        }
        until_true("one is inside and two wait", || {
            limit.figures().inside == 1 && limit.figures().waiting == 2
        });
        go.set();
        let mut found = Vec::new();
        for _ in 0..3 {
            let mut room = [0; 8];
            let bytes = client.recv(&mut room).expect("an answer");
            found.push(String::from_utf8_lossy(&room[..bytes]).into_owned());
        }
        found.sort();
        assert_eq!(found, ["a!", "b!", "c!"]);
        assert_eq!(limit.figures().inside, 0, "none is inside any more");
    });
}

#[test]
fn datagrams_leave_a_worker_to_connections() {
    const WORKERS: u32 = 16;
    // Those that datagrams of one listener may have.
    const THEIRS: u32 = 4;
    on_both(|choice| {
        let (go, at_work) = (Arc::new(Over::default()), Arc::new(AtomicU32::new(0)));
        let slow = Slow {
            go: Arc::clone(&go),
            at_work: Arc::clone(&at_work),
        };
        let server = Server::new().driver(choice).workers(1..=WORKERS);
        let server = server.listen("127.0.0.1:0", Lines);
        let running = server.listen_datagrams("127.0.0.1:0", slow).start();
        let running = running.expect("the server starts");
        let to = running.datagram_listeners()[0].address.internet();
        let to = to.expect("of the internet");
        let clients = [[127, 0, 0, 1], [127, 0, 0, 80]].map(client_at);
        let _ends = go.at_end();
        let mut theirs = 0;
        for client in &clients {
            for _ in 0..WORKERS {
                client.send_to(b"x", to).expect("sent");
            }
            // One address leaves half of them to others.
            theirs += THEIRS / 2;
            until_true("workers take them", || {
                at_work.load(Ordering::Relaxed) >= theirs
            });
        }
        let mut stream = TcpStream::connect(running.addresses()[0].address).expect("open");
        stream.set_read_timeout(Some(patience())).expect("a socket");
        let mut reader = BufReader::new(stream.try_clone().expect("a descriptor"));
        for number in 0..20 {
            stream
                .write_all(format!("work {number}\n").as_bytes())
                .expect("open");
            let mut line = String::new();
            reader.read_line(&mut line).expect("a worker has it");
            assert_eq!(line, format!("done {number}\n"));
        }
        assert_eq!(at_work.load(Ordering::Relaxed), THEIRS);
        go.set();
        for client in &clients {
            for _ in 0..WORKERS {
                assert_eq!(client.recv_from(&mut [0; 8]).expect("a reply").0, 1);
            }
        }
        end(running);
    });
}

#[test]
fn a_flood_ends_neither_datagrams_nor_connections() {
    on_both(|choice| {
        let server = Server::new().driver(choice).listen("127.0.0.1:0", Lines);
        let running = server.listen_datagrams("127.0.0.1:0", Talk).start();
        let running = running.expect("the server starts");
        let (flood, to, is_over) = (client(), at(&running, 0), Over::default());
        std::thread::scope(|scope| {
            let _ends = is_over.at_end();
            scope.spawn(|| {
                // Once in any case, however late it starts.
                loop {
                    for request in [&b"quiet"[..], b"work quiet", b"long 9000", b""] {
                        let _ = flood.send_to(request, to);
                    }
                    if is_over.is_set() {
                        break;
                    }
                }
            });
            for _ in 0..50 {
                let address = running.addresses()[0].address;
                let mut stream = TcpStream::connect(address).expect("open");
                stream.set_read_timeout(Some(patience())).expect("a socket");
                stream.write_all(b"ping\n").expect("open");
                let mut line = String::new();
                BufReader::new(&stream).read_line(&mut line).expect("open");
                assert_eq!(line, "pong\n");
            }
            is_over.set();
        });
        let client = client();
        client
            .set_read_timeout(Some(Duration::from_millis(200)))
            .expect("a socket");
        // What is left of the flood may still fill the socket.
        let answered = (0..300).any(|_| {
            client.send_to(b"still there?", to).expect("sent");
            let mut reply = [0; 16];
            matches!(client.recv_from(&mut reply), Ok((12, _)))
        });
        assert!(answered, "{:?}", running.handle().statistics());
        let statistics = running.handle().statistics();
        assert!(statistics.datagrams_received > 0);
        assert!(statistics.dropped_amplification > 0);
        end(running);
    });
}

#[test]
fn an_address_of_another_server_a_path_and_a_name_of_nothing_are_refused() {
    // An address at which nothing else takes a port.
    let first = Server::new().listen_datagrams("127.0.0.9:0", Talk).start();
    let first = first.expect("the server starts");
    let taken = at(&first, 0);
    let refused = |address: ListenAddress| {
        let started = Server::new().listen_datagrams_at(address, Talk).start();
        started.map(drop).expect_err("refused")
    };
    let cause = refused(taken.into());
    let is_taken = matches!(&cause, Error::Bind { cause, .. }
        if cause.kind() == std::io::ErrorKind::AddrInUse);
    assert!(is_taken, "{cause}");
    let cause = refused(ListenAddress::Unix("/tmp/talk".into())).to_string();
    assert!(cause.contains("unix:/tmp/talk: datagrams"), "{cause}");
    let cause = refused(ListenAddress::Passed("talk".into()));
    assert!(matches!(cause, Error::NotPassed { .. }), "{cause}");
    // The port is free for connections.
    let beside = Server::new().listen(taken, Lines).start();
    end(beside.expect("TCP has ports of its own"));
    end(first);
    let again = Server::new().listen_datagrams(taken, Talk).start();
    end(again.expect("a drained server has left the port"));
}

#[test]
fn no_datagram_is_lost_while_servers_hand_over_to_each_other() {
    let place = tempfile::tempdir().expect("a directory");
    let path = place.path().join("next");
    let server = |choice| {
        let server = Server::new().driver(choice).listen("127.0.0.1:0", Lines);
        server.listen_datagrams("127.0.0.1:0", Talk)
    };
    let mut running = server(DriverChoice::Auto).start().expect("it starts");
    let to = at(&running, 0);
    let wait = |takeover, running: &Running| {
        let (passed, servers) = (PassedSockets::default(), vec![running.handle()]);
        Handover::start(&path, takeover, &passed, servers, || ()).expect("it waits")
    };
    let mut handover = wait(None, &running);
    let (is_over, client) = (Over::default(), Arc::new(client()));
    std::thread::scope(|scope| {
        let _ends = is_over.at_end();
        let asking = scope.spawn(|| {
            let mut asked = 0_u32;
            while !is_over.is_set() || asked < 100 {
                let request = format!("echo {asked}");
                let (reply, _) = ask(&client, to, request.as_bytes());
                assert_eq!(reply, request.as_bytes());
                asked += 1;
            }
        });
        for choice in [DriverChoice::Epoll, DriverChoice::Auto, DriverChoice::Epoll] {
            let takeover = Takeover::begin(&path)
                .expect("it answers")
                .expect("it waits");
            let next = server(choice).passed_sockets(takeover.sockets()).start();
            let next = next.expect("it starts with the sockets");
            assert_eq!(at(&next, 0), to);
            let of_next = wait(Some(takeover), &next);
            running.wait().expect("the one before has drained");
            drop(std::mem::replace(&mut handover, of_next));
            running = next;
        }
        is_over.set();
        asking.join().expect("every datagram is answered");
        drop(handover);
        end(running);
    });
}
