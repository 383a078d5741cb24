//! TLS that a protocol begins at its client's request, on the simulated driver.

use crate::lines::Lines;
use crate::tls_client::{End, TURNS_MAX, TlsClient, VERSIONS, client_config, server_config};
use flatpath::Limits;
use flatpath::simulation::{Conditions, SimulatedServer};
use flatpath_driver::simulation::{ClientState, Faults, each_seed};

fn conditions(seed: u64, faults: Faults) -> Conditions {
    Conditions {
        faults,
        tls: Some(server_config()),
        starts_tls: true,
        ..Conditions::calm(seed)
    }
}

fn turns(server: &mut SimulatedServer) {
    (0..60).for_each(|_| server.turn());
}

fn finish(mut server: SimulatedServer, end: &End) {
    end.client.abort();
    server.drain();
    server.end(TURNS_MAX);
}

/// What the server says in the clear, until it ends like this.
fn said_until(server: &mut SimulatedServer, end: &End, last: &[u8]) -> Vec<u8> {
    let mut said = Vec::new();
    for _ in 0..TURNS_MAX {
        if said.ends_with(last) {
            break;
        }
        server.turn();
        said.extend(end.client.read());
    }
    said
}

#[test]
fn sim_tls_begins_where_the_client_asks_for_it() {
    each_seed(60, |seed| {
        let faults = Faults::mixed(seed).without_losses();
        let mut server = SimulatedServer::new(conditions(seed, faults), Lines);
        let mut end = End::new(&server, seed as usize % VERSIONS.len());
        end.client.write(b"ping\ntls?\n");
        let said = said_until(&mut server, &end, b"no TLS\n");
        assert_eq!(said, b"pong\nno TLS\n", "seed {seed}");
        end.client.write(b"tls\n");
        let said = said_until(&mut server, &end, b"begin\n");
        assert_eq!(said, b"begin\n", "seed {seed}");
        // Twice is once too often.
        end.tls.say(b"tls?\ntls\nping\n");
        for _ in 0..TURNS_MAX {
            if end.tls.heard.len() >= 16 {
                break;
            }
            end.client.write(&end.tls.take());
            server.turn();
            end.tls.feed(&end.client.read());
        }
        assert_eq!(end.tls.heard, b"TLS\ncannot\npong\n", "seed {seed}");
        finish(server, &end);
    });
}

/// An attacker on the way sends a command after the client's own.
#[test]
fn sim_what_was_sent_in_the_clear_is_not_answered_within_tls() {
    for behind in [&b"ping\n"[..], b"p", &[0; 9_000]] {
        let mut server = SimulatedServer::new(conditions(1, Faults::none()), Lines);
        let end = End::new(&server, 1);
        end.client.write(&[b"tls\n", behind].concat());
        turns(&mut server);
        assert_eq!(end.client.state(), ClientState::Reset, "{behind:?}");
        assert_eq!(server.statistics().tls_none, 1);
        finish(server, &end);
    }
}

#[test]
fn sim_what_is_no_handshake_is_refused_where_one_is_awaited() {
    let mut server = SimulatedServer::new(conditions(1, Faults::none()), Lines);
    let end = End::new(&server, 1);
    end.client.write(b"tls\n");
    turns(&mut server);
    assert_eq!(end.client.read(), b"begin\n");
    end.client.write(b"ping\n");
    turns(&mut server);
    assert_eq!(end.client.read(), b"");
    assert_eq!(end.client.state(), ClientState::Finished);
    assert_eq!(server.statistics().tls_none, 1);
    finish(server, &end);
}

#[test]
fn sim_a_client_that_makes_no_handshake_is_closed_when_a_head_would_be() {
    let mut server = SimulatedServer::new(conditions(1, Faults::none()), Lines);
    let end = End::new(&server, 1);
    turns(&mut server);
    let head = Limits::default().head_timeout;
    server.advance(head / 2);
    end.client.write(b"tls\n");
    turns(&mut server);
    server.advance(head * 3 / 4);
    turns(&mut server);
    assert_eq!(end.client.read(), b"begin\n");
    assert_eq!(end.client.state(), ClientState::Open, "it has begun anew");
    server.advance(head);
    turns(&mut server);
    assert_ne!(end.client.state(), ClientState::Open);
    finish(server, &end);
}

#[test]
fn sim_tls_does_not_begin_where_it_is_not_offered_or_while_a_job_is_out() {
    let mut server = SimulatedServer::new(Conditions::calm(1), Lines);
    let end = End::new(&server, 1);
    end.client.write(b"tls\n");
    turns(&mut server);
    assert_eq!(end.client.read(), b"cannot\n");
    finish(server, &end);
    let mut server = SimulatedServer::new(conditions(1, Faults::none()), Lines);
    let mut end = End::new(&server, 1);
    end.client.write(b"work 1\ntls\n");
    turns(&mut server);
    let said = end.client.read();
    assert!(said.starts_with(b"cannot\n"), "{said:?}");
    // It may be asked for again.
    end.client.write(b"tls\n");
    turns(&mut server);
    assert!(end.client.read().ends_with(b"begin\n"));
    end.tls = TlsClient::new(&client_config(VERSIONS[1]));
    end.tls.say(b"ping\n");
    assert_eq!(end.hears(&mut server), "pong\n");
    finish(server, &end);
}
