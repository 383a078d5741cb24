//! Who gets a place at a bound, over real sockets, every test on io_uring and on epoll.

use std::net::{Ipv4Addr, SocketAddr};

use crate::lines::{Client, Site, on_both};
use flatpath::Limits;

fn limited(limits: Limits) -> impl FnOnce(flatpath::Server) -> flatpath::Server {
    |server| server.limits(limits)
}

/// A client that comes from another address of this machine.
fn client_from(site: &Site, address: Ipv4Addr) -> Client {
    use socket2::{Domain, Socket, Type};
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    socket
        .bind(&SocketAddr::from((address, 0)).into())
        .expect("loopback has all of 127.0.0.0/8");
    socket.connect(&site.address.into()).expect("connected");
    Client::of(socket.into())
}

#[test]
fn an_address_beyond_its_share_loses_its_own_longest_idle_connection() {
    on_both(|choice| {
        let limits = Limits {
            connections_per_address: 2,
            ..Limits::default()
        };
        let site = Site::new(choice, limited(limits));
        let mut neighbour = client_from(&site, Ipv4Addr::new(127, 0, 0, 2));
        assert_eq!(neighbour.ask("ping\n"), "pong\n");
        let mut clients: Vec<Client> = (0..2).map(|_| site.client()).collect();
        for client in &mut clients {
            assert_eq!(client.ask("ping\n"), "pong\n");
        }
        let mut newcomer = site.client();
        assert_eq!(newcomer.ask("ping\n"), "pong\n");
        assert!(clients[0].rest().is_empty(), "the longest idle is closed");
        assert_eq!(clients[1].ask("ping\n"), "pong\n");
        assert_eq!(neighbour.ask("ping\n"), "pong\n");
        site.end();
    });
}

#[test]
fn an_address_whose_share_is_in_work_is_refused_in_the_protocols_words() {
    on_both(|choice| {
        let limits = Limits {
            connections_per_address: 1,
            ..Limits::default()
        };
        let site = Site::new(choice, limited(limits));
        let mut busy = site.client();
        // A reply that is not read keeps its connection in work.
        busy.say("big 100000000\n");
        assert_eq!(busy.stream().peek(&mut [0]).expect("it has begun"), 1);
        assert_eq!(site.client().line(), "full\n");
        let mut neighbour = client_from(&site, Ipv4Addr::new(127, 0, 0, 2));
        assert_eq!(neighbour.ask("ping\n"), "pong\n");
        drop(busy);
        site.end();
    });
}
