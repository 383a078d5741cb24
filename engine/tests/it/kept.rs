//! Handlers that wait keep workers, but not those of others: not those of handshakes, nor the last
//! ones that an address with more than its share leaves. On both drivers.

use std::io::{Read, Write};
use std::net::SocketAddr;

use crate::gate::{Gate, Gated, Opener, client_from};
use crate::lines::on_both;
use flatpath::{Limits, Running, Server};

/// The address that has all.
const CROWD: u8 = 80;

fn hears(client: &mut (impl Read + Write), said: u8) -> u8 {
    client.write_all(&[said]).expect("written");
    let mut heard = [0];
    client.read_exact(&mut heard).expect("an answer");
    heard[0]
}

fn address_of(running: &Running) -> SocketAddr {
    running.addresses()[0].address
}

/// Each of them has an address of its own, so none has more than its share.
#[cfg(feature = "tls")]
#[test]
fn handlers_of_many_addresses_that_wait_keep_no_handshake_out() {
    use crate::tls_client::{client_config, server_config};
    use flatpath_testkit::tls::{VERSIONS, handshake};

    on_both(|choice| {
        let gate = Gate::default();
        let _opener = Opener(gate.clone());
        let server = Server::new().driver(choice).workers(1..=16);
        let server = server.listen("127.0.0.1:0", Gated(gate.clone()));
        let running = server.with_tls(&server_config()).start().expect("started");
        let shake = |host, version: usize| {
            let socket = client_from(host, address_of(&running));
            handshake(&client_config(VERSIONS[version]), socket).expect("a handshake")
        };
        let waits = |host| {
            let mut client = shake(host, 1);
            client.write_all(b"w").expect("written");
            client
        };
        let _waiting: Vec<_> = (CROWD..CROWD + 24).map(waits).collect();
        // A sixteenth is the handshakes'.
        gate.await_waiting(15);
        for version in 0..VERSIONS.len() {
            assert_eq!(hears(&mut shake(7, version), b'.'), b'x');
        }
        assert_eq!(gate.waiting_max(), 15);
    });
}

#[test]
fn handlers_of_one_address_that_wait_leave_workers_to_others() {
    on_both(|choice| {
        let gate = Gate::default();
        let _opener = Opener(gate.clone());
        let server = Server::new().driver(choice).workers(1..=16);
        let server = server.listen("127.0.0.1:0", Gated(gate.clone()));
        let running = server.start().expect("started");
        let mut crowd = client_from(CROWD, address_of(&running));
        crowd.write_all(&[b'w'; 40]).expect("written");
        // It leaves a sixteenth.
        gate.await_waiting(15);
        for newcomer in 1..5 {
            let mut newcomer = client_from(newcomer, address_of(&running));
            assert_eq!(hears(&mut newcomer, b'q'), b'd');
        }
        assert_eq!(gate.waiting_max(), 15);
    });
}

#[test]
fn jobs_of_one_address_leave_places_to_those_of_others() {
    on_both(|choice| {
        let gate = Gate::default();
        let _opener = Opener(gate.clone());
        let limits = Limits {
            in_flight_max: 32,
            ..Limits::default()
        };
        let server = Server::new().driver(choice).workers(1..=16).limits(limits);
        let server = server.listen("127.0.0.1:0", Gated(gate.clone()));
        let running = server.start().expect("started");
        let mut crowd = client_from(CROWD, address_of(&running));
        crowd.write_all(&[b'w'; 64]).expect("written");
        gate.await_waiting(15);
        for newcomer in 1..5 {
            let mut newcomer = client_from(newcomer, address_of(&running));
            assert_eq!(hears(&mut newcomer, b'q'), b'd');
        }
    });
}
