//! Bounds of one listener beside another one's, over real sockets, on io_uring and on epoll.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::lines::{Client, Lines, Site, on_both};
use flatpath::{ListenerLimits, Server};

/// A second listener of lines, with these bounds; the first one has the server's.
fn bounded(limits: ListenerLimits) -> impl FnOnce(Server) -> Server {
    |server| server.listen("127.0.0.1:0", Lines).listener_limits(limits)
}

fn client_of(address: SocketAddr) -> Client {
    Client::of(TcpStream::connect(address).expect("connected"))
}

/// Whether a newcomer gets its answer; one that is refused may be reset.
fn is_served(address: SocketAddr) -> bool {
    let client = client_of(address);
    let (mut stream, mut answer) = (client.stream(), [0; 5]);
    let _ = stream.write_all(b"ping\n");
    stream.read_exact(&mut answer).is_ok() && &answer == b"pong\n"
}

fn second(site: &Site) -> SocketAddr {
    site.running().addresses()[1].address
}

#[test]
fn a_listener_at_its_bound_pays_with_its_own_idle_connections() {
    on_both(|choice| {
        let site = Site::new(
            choice,
            bounded(ListenerLimits {
                connections_max: Some(2),
                ..ListenerLimits::default()
            }),
        );
        let mut neighbours: Vec<Client> = (0..4).map(|_| site.client()).collect();
        for client in &mut neighbours {
            assert_eq!(client.ask("ping\n"), "pong\n");
        }
        let mut clients: Vec<Client> = (0..2).map(|_| client_of(second(&site))).collect();
        for client in &mut clients {
            assert_eq!(client.ask("ping\n"), "pong\n");
        }
        let mut newcomer = client_of(second(&site));
        assert_eq!(newcomer.ask("ping\n"), "pong\n");
        assert!(clients[0].rest().is_empty(), "the longest idle is closed");
        for client in [&mut clients[1], &mut newcomer]
            .into_iter()
            .chain(&mut neighbours)
        {
            assert_eq!(client.ask("ping\n"), "pong\n");
        }
        site.end();
    });
}

#[test]
fn a_listener_whose_connections_are_all_in_work_refuses_and_accepts_again() {
    on_both(|choice| {
        let site = Site::new(
            choice,
            bounded(ListenerLimits {
                connections_max: Some(1),
                ..ListenerLimits::default()
            }),
        );
        for _ in 0..3 {
            let mut busy = client_of(second(&site));
            // A reply that is not read keeps its connection in work.
            busy.say("big 100000000\n");
            assert_eq!(busy.stream().peek(&mut [0]).expect("it has begun"), 1);
            assert_eq!(client_of(second(&site)).line(), "full\n");
            assert_eq!(site.client().ask("ping\n"), "pong\n");
            drop(busy);
            // Its place is free when the server has seen that.
            let mut tries = 0;
            while !is_served(second(&site)) {
                tries += 1;
                assert!(tries < 10_000, "the place stays taken");
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        site.end();
    });
}

#[test]
fn deadlines_are_those_of_the_listener() {
    on_both(|choice| {
        let brief = Duration::from_millis(100);
        let site = Site::new(
            choice,
            bounded(ListenerLimits {
                idle_timeout: Some(brief),
                head_timeout: Some(brief),
                ..ListenerLimits::default()
            }),
        );
        let mut patient = site.client();
        assert_eq!(patient.ask("ping\n"), "pong\n");
        let mut hasty = client_of(second(&site));
        assert_eq!(hasty.ask("ping\n"), "pong\n");
        assert!(hasty.rest().is_empty(), "idle for too long");
        let mut silent = client_of(second(&site));
        assert!(silent.rest().is_empty(), "no head in time");
        assert_eq!(patient.ask("ping\n"), "pong\n", "the other has its own");
        site.end();
    });
}
