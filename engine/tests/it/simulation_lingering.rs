//! Connections that linger, on the simulated driver: a client that is still sending can read why it
//! is refused, for as long as it sends at a rate and others do not need its place.

use std::time::Duration;

use crate::lines::Lines;
use flatpath::Limits;
use flatpath::limits::LINGER_TIMES_MAX;
use flatpath::simulation::{Conditions, SimulatedServer};
use flatpath_driver::simulation::{Client, ClientState};

const SECOND: Duration = Duration::from_secs(1);
const TURNS_MAX: usize = 1000;
const LINGER: Duration = Duration::from_secs(5);

fn server(connections_max: usize) -> SimulatedServer {
    let mut conditions = Conditions::calm(7);
    conditions.limits = Limits {
        connections_max,
        linger_timeout: LINGER,
        body_rate_min: 1000,
        ..Limits::default()
    };
    SimulatedServer::new(conditions, Lines)
}

fn pass(server: &mut SimulatedServer, time: Duration) {
    server.world().advance(time);
    (0..20).for_each(|_| server.turn());
}

/// A client that was answered, and whose connection lingers.
fn lingering(server: &mut SimulatedServer) -> Client {
    let client = server.connect();
    client.write(b"linger\n");
    pass(server, SECOND / 100);
    client
}

/// Sends so much, a piece at a time, as the server takes it.
fn send(server: &mut SimulatedServer, client: &Client, mut bytes: usize) {
    static PIECE: [u8; 64 * 1024] = [b'x'; 64 * 1024];
    while bytes > 0 {
        let piece = bytes.min(PIECE.len());
        client.write(&PIECE[..piece]);
        bytes -= piece;
        for _ in 0..TURNS_MAX {
            server.turn();
            if server.world().is_settled() {
                break;
            }
        }
    }
}

/// Whether the client can read its reply, which it does only now.
fn is_answered(client: &Client) -> bool {
    client.read() == b"bye\n" && client.state() == ClientState::Finished
}

fn end(mut server: SimulatedServer) {
    server.force();
    server.end(10_000);
}

#[test]
fn sim_a_client_that_sends_at_length_before_it_reads_is_answered() {
    let mut server = server(10);
    let client = lingering(&mut server);
    send(&mut server, &client, 40 << 20);
    assert!(is_answered(&client), "it was all dropped, and no more");
    client.shutdown_write();
    pass(&mut server, SECOND);
    let statistics = server.statistics();
    assert!(statistics.received_bytes > 40 << 20);
    assert_eq!(
        (statistics.connections(), statistics.expired_linger),
        (0, 0)
    );
    end(server);
}

#[test]
fn sim_one_that_sends_too_slowly_or_nothing_is_cut_off_after_the_silence() {
    for bytes in [0, 100] {
        let mut server = server(10);
        let client = lingering(&mut server);
        for _ in 0..9 {
            send(&mut server, &client, bytes);
            pass(&mut server, LINGER / 10);
        }
        assert_eq!(server.statistics().connections(), 1, "{bytes}");
        send(&mut server, &client, bytes);
        // What it has sent is worth a second.
        pass(&mut server, LINGER / 10 + SECOND);
        let statistics = server.statistics();
        assert_eq!(
            (statistics.connections(), statistics.expired_linger),
            (0, 1)
        );
        end(server);
    }
}

#[test]
fn sim_a_flood_without_an_end_is_ended_after_a_longest_time() {
    let mut server = server(10);
    let client = lingering(&mut server);
    let (last, begun) = (LINGER * LINGER_TIMES_MAX, server.world().now());
    while server.world().now() - begun < last - 2 * SECOND {
        assert_eq!(server.statistics().connections(), 1);
        pass(&mut server, SECOND);
        send(&mut server, &client, 100_000);
    }
    pass(&mut server, 2 * SECOND);
    let statistics = server.statistics();
    assert_eq!(
        (statistics.connections(), statistics.expired_linger),
        (0, 1)
    );
    end(server);
}

#[test]
fn sim_those_that_linger_give_way_to_newcomers_and_those_in_work_do_not() {
    let mut server = server(4);
    let busy = server.connect();
    busy.write(b"big 1000000\n");
    pass(&mut server, SECOND / 100);
    let lingering: Vec<Client> = (0..3).map(|_| lingering(&mut server)).collect();
    let newcomers: Vec<Client> = (0..3)
        .map(|_| {
            // A flood makes none of them younger.
            send(&mut server, &lingering[0], 100_000);
            let client = server.connect();
            client.write(b"last\n");
            pass(&mut server, SECOND);
            client
        })
        .collect();
    for newcomer in &newcomers {
        assert_eq!(newcomer.read(), b"lasts\n");
        assert_eq!(newcomer.state(), ClientState::Open);
    }
    assert_eq!(busy.state(), ClientState::Open);
    let statistics = server.statistics();
    assert_eq!(statistics.connections_evicted, 3);
    assert_eq!(statistics.connections_refused(), 0);
    end(server);
}

#[test]
fn sim_a_refused_newcomer_that_lingers_has_no_place_to_give_way_with() {
    let mut server = server(2);
    let busy: Vec<Client> = (0..2).map(|_| server.connect()).collect();
    for client in &busy {
        client.write(b"big 1000000\n");
    }
    pass(&mut server, SECOND / 100);
    for _ in 0..2 {
        let refused = server.connect();
        refused.write(b"ping\n");
        (0..20).for_each(|_| pass(&mut server, SECOND / 50));
        assert_eq!(refused.read(), b"full\n");
        std::mem::forget(refused);
    }
    let statistics = server.statistics();
    assert_eq!(
        (statistics.refused_room, statistics.connections_evicted),
        (2, 0)
    );
    end(server);
}
