//! The forwarder on real sockets, with both drivers, and in the simulation.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use flatpath::{DriverChoice, Remote, Running, Server};
use flatpath_example_forward::Forward;
use flatpath_test::{
    Answer, Client, ClientState, Conditions, Fault, Faults, TestServer, Upstream, each_seed,
};

/// Far beyond what anything here takes.
const PATIENCE: Duration = Duration::from_secs(60);

const BOTH: [DriverChoice; 2] = [DriverChoice::Auto, DriverChoice::Epoll];

fn start(choice: DriverChoice, forward: Forward) -> (Running, TcpStream) {
    let server = Server::new().driver(choice).listen("127.0.0.1:0", forward);
    let running = server.start().expect("start");
    let client = TcpStream::connect(running.addresses()[0].address).expect("connect");
    client.set_read_timeout(Some(PATIENCE)).expect("settable");
    client.set_write_timeout(Some(PATIENCE)).expect("settable");
    (running, client)
}

fn end(running: Running) {
    running.handle().drain();
    running.wait().expect("it ends");
}

/// What comes until the end, however that is said.
fn read_to_end(client: &mut TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    match client.read_to_end(&mut bytes) {
        Ok(_) => {}
        Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}"),
    }
    bytes
}

/// Accepts one connection, and answers with what it has sent, turned round, when that has ended.
fn turn_round(mut stream: impl Read + Write) {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).expect("read");
    bytes.reverse();
    stream.write_all(&bytes).expect("write");
}

fn is_turned_round(client: &mut TcpStream) {
    let sent: Vec<u8> = (0..200_000_u32).map(|number| number as u8).collect();
    client.write_all(&sent).expect("write");
    client.shutdown(Shutdown::Write).expect("half-closed");
    let mut back = read_to_end(client);
    back.reverse();
    assert!(back == sent, "{} bytes came back", back.len());
}

#[test]
fn a_client_is_passed_on_to_an_address() {
    for choice in BOTH {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let to = listener.local_addr().expect("bound");
        let (running, mut client) = start(choice, Forward::to(to));
        let far = std::thread::spawn(move || turn_round(listener.accept().expect("one").0));
        is_turned_round(&mut client);
        far.join().expect("served");
        end(running);
    }
}

#[test]
fn a_client_is_passed_on_to_a_unix_socket() {
    for choice in BOTH {
        let directory = tempfile::tempdir().expect("a directory");
        let path: Arc<Path> = directory.path().join("far.sock").into();
        let listener = UnixListener::bind(&path).expect("a path");
        let (running, mut client) = start(choice, Forward::to(Remote::Unix(path)));
        let far = std::thread::spawn(move || turn_round(listener.accept().expect("one").0));
        is_turned_round(&mut client);
        far.join().expect("served");
        end(running);
    }
}

#[test]
fn a_client_is_closed_where_no_server_listens() {
    for choice in BOTH {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let to = listener.local_addr().expect("bound");
        drop(listener);
        let (running, mut client) = start(choice, Forward::to(to));
        assert_eq!(read_to_end(&mut client), b"");
        let counted = running.handle().statistics();
        assert_eq!(
            (counted.connections_opened, counted.connect_refused),
            (0, 1)
        );
        end(running);
    }
}

#[test]
fn a_client_is_closed_where_no_server_answers() {
    for choice in BOTH {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let to = listener.local_addr().expect("bound");
        // The backlog is full: of the last of these SYN is dropped.
        rustix::net::listen(&listener, 0).expect("a shorter backlog");
        let mut filling = Vec::new();
        while let Ok(one) = TcpStream::connect_timeout(&to, Duration::from_millis(200)) {
            filling.push(one);
        }
        let forward = Forward::to(to).timeout(Duration::from_millis(50));
        let (running, mut client) = start(choice, forward);
        assert_eq!(read_to_end(&mut client), b"");
        assert_eq!(running.handle().statistics().connect_timed_out, 1);
        end(running);
    }
}

#[test]
fn a_pair_outlasts_the_beginning_of_a_drain() {
    for choice in BOTH {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let to = listener.local_addr().expect("bound");
        let (running, mut client) = start(choice, Forward::to(to));
        client.write_all(b"asked").expect("write");
        let (mut far, _) = listener.accept().expect("connected");
        far.set_read_timeout(Some(PATIENCE)).expect("settable");
        let mut asked = [0; 5];
        far.read_exact(&mut asked).expect("spliced");
        running.handle().drain();
        far.write_all(b"told").expect("write");
        drop(far);
        assert_eq!(read_to_end(&mut client), b"told");
        drop(client);
        running.wait().expect("it ends");
    }
}

fn address() -> SocketAddr {
    "192.0.2.1:80".parse().expect("an address")
}

/// A forwarder, and the server that it passes clients on to.
fn forwarder(conditions: Conditions, answer: Answer) -> (TestServer, Upstream) {
    let server = TestServer::new(conditions, Forward::to(address()));
    let far = server.world().upstream(address(), answer);
    (server, far)
}

/// The far end of the next connection.
fn accept(server: &mut TestServer, far: &Upstream) -> Client {
    let mut peer = None;
    server.run_until(|| {
        peer = peer.take().or_else(|| far.accept());
        peer.is_some()
    });
    peer.expect("it was there")
}

#[test]
fn sim_bytes_go_both_ways_and_each_end_for_itself() {
    each_seed(100, |seed| {
        let (mut server, far) = forwarder(Conditions::rough(seed), Answer::Accepts);
        let client = server.connect();
        client.write(b"asked");
        client.shutdown_write();
        let peer = accept(&mut server, &far);
        assert_eq!(server.read_to_end(&peer), b"asked");
        peer.write(&[7; 100_000]);
        peer.shutdown_write();
        assert_eq!(server.read_to_end(&client), [7; 100_000]);
        assert_eq!(server.statistics().connections_opened, 1);
    });
}

#[test]
fn sim_what_the_other_server_says_first_comes_first() {
    each_seed(50, |seed| {
        let (mut server, far) = forwarder(Conditions::rough(seed), Answer::Accepts);
        let client = server.connect();
        let peer = accept(&mut server, &far);
        peer.write(b"220 ready\r\n");
        assert_eq!(server.read_line(&client), "220 ready\r\n");
    });
}

#[test]
fn sim_a_client_whose_server_cannot_be_reached_is_closed() {
    each_seed(100, |seed| {
        let answers = [Answer::Refuses, Answer::IsSilent];
        for (answer, place) in answers.into_iter().zip(0..) {
            let (mut server, _far) = forwarder(Conditions::rough(seed), answer);
            let client = server.connect();
            client.write(b"asked");
            server.run_until(|| client.state() != ClientState::Open);
            let counted = server.statistics();
            let failed = [counted.connect_refused, counted.connect_timed_out];
            assert_eq!(failed[place], 1, "{answer:?}");
            assert_eq!(
                (counted.connections_failed(), counted.connections_opened),
                (1, 0)
            );
        }
    });
}

#[test]
fn sim_a_server_that_is_slow_is_awaited() {
    each_seed(50, |seed| {
        let slow = Answer::AcceptsAfter(Duration::from_secs(4));
        let (mut server, far) = forwarder(Conditions::rough(seed), slow);
        let client = server.connect();
        client.write(b"asked");
        let peer = accept(&mut server, &far);
        assert!(server.world().now() >= Duration::from_secs(4));
        assert_eq!(server.read_exact(&peer, 5), b"asked");
    });
}

#[test]
fn sim_a_server_that_resets_at_the_first_byte_has_its_client_closed() {
    each_seed(100, |seed| {
        let (mut server, _far) = forwarder(Conditions::rough(seed), Answer::ResetsAtFirstByte);
        let client = server.connect();
        client.write(b"asked");
        server.run_until(|| client.state() != ClientState::Open);
    });
}

#[test]
fn sim_a_server_that_is_gone_keeps_its_client_for_the_time_of_a_pair() {
    let (mut server, _far) = forwarder(Conditions::calm(1), Answer::Vanishes);
    let client = server.connect();
    client.write(b"asked");
    server.settle();
    assert_eq!(client.state(), ClientState::Open);
    server.advance(Duration::from_secs(100_000));
    server.run_until(|| client.state() != ClientState::Open);
    assert_eq!(server.statistics().expired_spliced, 1);
}

#[test]
fn sim_a_client_that_goes_away_meanwhile_leaves_nothing() {
    each_seed(200, |seed| {
        let slow = Answer::AcceptsAfter(Duration::from_secs(1));
        let (mut server, far) = forwarder(Conditions::rough(seed), slow);
        let client = server.connect();
        if seed % 3 > 0 {
            client.write(b"asked");
        }
        for _ in 0..seed % 20 {
            server.turn();
        }
        match seed % 2 {
            0 => client.abort(),
            _ => drop(client),
        }
        // The other side hears of it when it stands, or never stood.
        server.advance(Duration::from_secs(2));
        server.settle();
        if let Some(peer) = far.accept() {
            server.run_until(|| {
                peer.read();
                peer.state() != ClientState::Open
            });
        }
    });
}

#[test]
fn sim_a_drain_serves_who_is_waiting_and_force_ends_them() {
    each_seed(100, |seed| {
        let slow = Answer::AcceptsAfter(Duration::from_secs(1));
        let (mut server, far) = forwarder(Conditions::rough(seed), slow);
        let client = server.connect();
        client.write(b"asked");
        while server.statistics().connections() == 0 {
            server.turn();
        }
        for _ in 0..seed % 30 {
            server.turn();
        }
        server.drain();
        if seed % 4 == 0 {
            server.force();
            server.run_until(|| client.state() != ClientState::Open);
            return;
        }
        let peer = accept(&mut server, &far);
        assert_eq!(server.read_exact(&peer, 5), b"asked");
        peer.write(b"told");
        drop(peer);
        assert_eq!(server.read_to_end(&client), b"told");
    });
}

#[test]
fn sim_whatever_goes_wrong_nothing_is_left() {
    each_seed(200, |seed| {
        let faults = Faults::mixed(seed).with(Fault::ConnectRefused, 100);
        let conditions = Conditions {
            faults,
            ..Conditions::calm(seed)
        };
        let (mut server, far) = forwarder(conditions, Answer::Accepts);
        let clients: Vec<_> = (0..6).map(|_| server.connect()).collect();
        for client in &clients {
            client.write(&[3; 5000]);
        }
        for _ in 0..300 {
            server.turn();
            if let Some(peer) = far.accept() {
                peer.write(b"told");
            }
        }
        drop(clients);
        // What is left is looked for when the server is dropped.
    });
}

#[test]
fn sim_without_a_descriptor_or_a_place_a_client_is_closed() {
    let (mut server, _far) = forwarder(Conditions::calm(1), Answer::Accepts);
    server.world().set_sockets_max(1);
    let client = server.connect();
    server.run_until(|| client.state() != ClientState::Open);
    assert_eq!(server.statistics().connect_no_descriptor, 1);

    let mut conditions = Conditions::calm(1);
    conditions.limits.connections_max = 1;
    let (mut server, _far) = forwarder(conditions, Answer::Accepts);
    let client = server.connect();
    server.run_until(|| client.state() != ClientState::Open);
    assert_eq!(server.statistics().connect_no_place, 1);
}

#[test]
fn sim_ten_thousand_clients() {
    // A turn of the simulation looks at each operation for each that completes.
    const WAVES: usize = 100;
    const CLIENTS: usize = 100;
    let (mut server, far) = forwarder(Conditions::calm(1), Answer::Accepts);
    for _ in 0..WAVES {
        let clients: Vec<_> = (0..CLIENTS).map(|_| server.connect()).collect();
        let mut peers = Vec::new();
        server.run_until(|| {
            peers.extend(std::iter::from_fn(|| far.accept()));
            peers.len() == CLIENTS
        });
        for client in &clients {
            client.write(b"asked");
        }
        server.settle();
        assert!(peers.iter().all(|peer| peer.read() == b"asked"));
        assert_eq!(server.statistics().connections(), 2 * CLIENTS as u64);
        drop(peers);
        server.run_until(|| clients.iter().all(|one| one.state() != ClientState::Open));
    }
    server.settle();
    let counted = server.statistics();
    assert_eq!(counted.connections_opened, (WAVES * CLIENTS) as u64);
    assert_eq!(counted.connections(), 0);
}
