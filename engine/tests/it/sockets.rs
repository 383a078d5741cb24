//! Listening sockets that the server did not bind: of other processes, and of the file system.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::lines::{Lines, choices, on_both};
use flatpath::sockets::ListenAddress;
use flatpath::{DriverChoice, Error, Running, Server};
use flatpath_testkit::Over;

use flatpath_testkit::patience;

fn start(server: Server, choice: DriverChoice) -> Running {
    server.driver(choice).start().expect("the server starts")
}

fn end(running: Running) {
    running.handle().drain();
    running.wait().expect("a clean end");
}

/// One question on a connection of its own.
fn ask(mut stream: impl std::io::Read + Write) -> std::io::Result<String> {
    stream.write_all(b"ping\n")?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line)?;
    Ok(line)
}

fn ask_at(address: SocketAddr) -> std::io::Result<String> {
    let stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(patience()))?;
    ask(stream)
}

/// Sockets that share an address, as a service manager makes them.
fn sockets(count: usize) -> (Vec<OwnedFd>, SocketAddr) {
    let first = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = first.local_addr().expect("bound");
    drop(first);
    let open = || {
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None)?;
        socket.set_reuse_port(true)?;
        socket.bind(&address.into())?;
        socket.listen(1_024)?;
        Ok::<OwnedFd, std::io::Error>(socket.into())
    };
    let sockets = (0..count).map(|_| open().expect("it listens"));
    (sockets.collect(), address)
}

fn copies(sockets: &[OwnedFd]) -> Vec<OwnedFd> {
    let copy = |socket: &OwnedFd| socket.try_clone().expect("a descriptor");
    sockets.iter().map(copy).collect()
}

/// New connections all the time, without a retry, while servers come and go that share the sockets:
/// with one and two network threads, on one and the other driver.
#[test]
fn no_connection_is_lost_while_servers_relieve_each_other() {
    const SERVERS: usize = 12;
    const CLIENTS: usize = 3;
    let (sockets, address) = sockets(2);
    let (is_over, asked) = (Over::default(), AtomicUsize::new(0));
    let choices: Vec<_> = choices().collect();
    let server = |number: usize| {
        let choice = choices[number / 2 % choices.len()];
        let server = Server::new().listen_on(copies(&sockets), Lines);
        start(server.network_threads(1 + number % 2), choice)
    };
    std::thread::scope(|scope| {
        let _ends = is_over.at_end();
        let mut current = server(0);
        let clients = (0..CLIENTS).map(|_| {
            scope.spawn(|| {
                while !is_over.is_set() {
                    let answer = ask_at(address).expect("an answer");
                    assert_eq!(answer, "pong\n");
                    asked.fetch_add(1, Ordering::Relaxed);
                }
            })
        });
        let clients: Vec<_> = clients.collect();
        for number in 1..SERVERS {
            let before = asked.load(Ordering::Relaxed);
            let next = server(number);
            end(std::mem::replace(&mut current, next));
            while asked.load(Ordering::Relaxed) < before + 20
                && clients.iter().any(|client| !client.is_finished())
            {
                std::thread::yield_now();
            }
        }
        is_over.set();
        for client in clients {
            client.join().expect("no connection was lost");
        }
        end(current);
    });
}

/// What is in any socket of the group is served, however many threads there are.
#[test]
fn more_sockets_than_threads_are_all_accepted_from() {
    on_both(|choice| {
        for threads in [1, 2] {
            let (sockets, address) = sockets(5);
            let server = Server::new().listen_on(sockets, Lines);
            let running = start(server.network_threads(threads), choice);
            for _ in 0..64 {
                assert_eq!(ask_at(address).expect("an answer"), "pong\n");
            }
            end(running);
        }
    });
}

#[test]
fn fewer_sockets_than_threads_are_enough() {
    on_both(|choice| {
        let (sockets, address) = sockets(1);
        let server = Server::new().listen_on(sockets, Lines);
        let running = start(server.network_threads(3), choice);
        for _ in 0..16 {
            assert_eq!(ask_at(address).expect("an answer"), "pong\n");
        }
        end(running);
    });
}

#[test]
fn a_unix_socket_is_served_and_gone_at_the_end() {
    on_both(|choice| {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("lines");
        let address = ListenAddress::Unix(path.clone());
        let server = || {
            let server = Server::new().listen_at(address.clone(), Lines);
            server.network_threads(2)
        };
        let running = start(server(), choice);
        assert_eq!(running.listeners()[0].address, address);
        assert!(running.addresses().is_empty());
        for _ in 0..16 {
            let stream = UnixStream::connect(&path).expect("connected");
            stream
                .set_read_timeout(Some(patience()))
                .expect("a deadline");
            assert_eq!(ask(stream).expect("an answer"), "pong\n");
        }
        let taken = server().driver(choice).start().map(drop);
        let taken = taken.expect_err("one server listens there");
        assert!(matches!(taken, Error::Bind { .. }), "{taken}");
        end(running);
        assert!(!path.exists());
    });
}

#[test]
fn what_does_not_listen_is_refused() {
    let (one, other) = UnixStream::pair().expect("a pair");
    let refused = Server::new().listen_on([one.into()], Lines).start();
    let refused = refused.map(drop).expect_err("it is connected");
    assert!(refused.to_string().contains("not a listening"), "{refused}");
    drop(other);
    let none = Server::new().listen_on([], Lines).start();
    assert!(matches!(none.map(drop), Err(Error::Address { .. })));
    let missing = ListenAddress::Passed("web".into());
    let missing = Server::new().listen_at(missing, Lines).start().map(drop);
    let missing = missing.expect_err("nothing was passed");
    assert!(missing.to_string().contains("named web"), "{missing}");
}
