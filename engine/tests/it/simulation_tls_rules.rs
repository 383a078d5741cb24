//! TLS on the simulated driver, one rule at a time: what clients may do, what ends their
//! connection, and what all of that costs the others.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use crate::headers::{Herald, line};
use crate::hoard::Hoard;
use crate::lines::Lines;
use crate::tls_client::{
    End, Pair, TURNS_MAX, TlsClient, VERSIONS, client_config, server_config, tls_conditions,
};
use flatpath::Limits;
use flatpath::simulation::{Conditions, SimulatedServer};
use flatpath::tls::rustls::server::{ClientHello, ResolvesServerCert};
use flatpath::tls::rustls::sign::CertifiedKey;
use flatpath::tls::rustls::{ClientConfig, ServerConfig};
use flatpath::tls::{TlsConfig, provider};
use flatpath_driver::simulation::ClientState;

#[test]
fn sim_a_handshake_cut_at_every_byte_is_made() {
    for (version, protocol) in VERSIONS.into_iter().enumerate() {
        let hello = TlsClient::new(&client_config(protocol)).take();
        for cut in 1..hello.len() {
            let mut pair = Pair::new(version, Limits::default());
            let hello = pair.end.tls.take();
            let cut = cut.min(hello.len());
            pair.end.client.write(&hello[..cut]);
            pair.server.turn();
            pair.end.client.write(&hello[cut..]);
            pair.talk();
            pair.end.tls.say(b"ping\n");
            assert_eq!(pair.hears(), "pong\n", "cut at {cut}");
        }
    }
}

#[test]
fn sim_a_client_that_is_silent_in_its_handshake_is_closed_when_a_head_would_be() {
    for cut in [0, 3, 5, 40] {
        let mut pair = Pair::new(1, Limits::default());
        pair.end.client.write(&pair.end.tls.take()[..cut]);
        (0..20).for_each(|_| pair.server.turn());
        let head = Limits::default().head_timeout;
        pair.server.advance(head - Duration::from_secs(1));
        (0..20).for_each(|_| pair.server.turn());
        assert_eq!(pair.end.client.state(), ClientState::Open, "{cut}");
        pair.server.advance(Duration::from_secs(3));
        (0..20).for_each(|_| pair.server.turn());
        assert_ne!(pair.end.client.state(), ClientState::Open, "{cut}");
        pair.finish();
    }
}

#[test]
fn sim_what_is_no_tls_is_refused() {
    for said in [
        &b"GET / HTTP/1.1\r\n"[..],
        &[22, 3, 1, 255, 255, 0],
        &[0; 20],
    ] {
        let mut pair = Pair::new(1, Limits::default());
        pair.end.client.write(said);
        (0..20).for_each(|_| pair.server.turn());
        assert_eq!(pair.end.client.state(), ClientState::Finished);
        assert_eq!(pair.server.statistics().tls_none, 1);
        pair.finish();
    }
}

#[test]
fn sim_a_client_of_other_protocols_is_refused() {
    for (names, agreed) in [
        (&["other", "lines"][..], Some(&b"lines"[..])),
        (&["other"], None),
    ] {
        let mut config = ClientConfig::clone(&client_config(VERSIONS[1]));
        config.alpn_protocols = names.iter().map(|name| name.as_bytes().into()).collect();
        let mut pair = Pair::new(1, Limits::default());
        pair.end.tls = TlsClient::new(&Arc::new(config));
        pair.talk();
        assert_eq!(pair.end.tls.tls.alpn_protocol(), agreed);
        assert_eq!(pair.end.tls.broken.is_none(), agreed.is_some());
        let refused = pair.server.statistics().tls_incompatible;
        assert_eq!(refused, u64::from(agreed.is_none()));
        pair.finish();
    }
}

/// RFC 8737 section 4: what the protocol of challenges is agreed on for ends there, and no other
/// listener has it.
#[test]
fn sim_a_connection_for_a_challenge_ends_with_its_handshake() {
    for (version, names, answers, agreed) in [
        (0, &["acme-tls/1"][..], true, Some(&b"acme-tls/1"[..])),
        (1, &["acme-tls/1"], true, Some(b"acme-tls/1")),
        (1, &["acme-tls/1", "lines"], true, Some(b"lines")),
        (1, &["acme-tls/1"], false, None),
    ] {
        let mut config = ClientConfig::clone(&client_config(VERSIONS[version]));
        config.alpn_protocols = names.iter().map(|name| name.as_bytes().into()).collect();
        let tls = server_config();
        if answers {
            tls.answer_challenges();
        }
        let conditions = tls_conditions(Limits::default(), tls);
        let server = SimulatedServer::new(conditions, Lines);
        let end = End::with(&server, &Arc::new(config));
        let mut pair = Pair { server, end };
        pair.talk();
        assert_eq!(pair.end.tls.tls.alpn_protocol(), agreed);
        assert_eq!(pair.end.tls.broken.is_none(), agreed.is_some());
        if agreed.is_some() {
            pair.end.tls.say(b"ping\n");
        }
        let is_open = agreed == Some(b"lines");
        assert_eq!(pair.hears(), if is_open { "pong\n" } else { "" });
        let state = pair.end.client.state();
        assert_eq!(state == ClientState::Open, is_open, "{state:?}");
        pair.finish();
    }
}

/// A record of a ClientHello that says how long it is, and then continues without an end.
fn part_of_a_hello(bytes: u32, is_first: bool) -> Vec<u8> {
    let [_, length @ ..] = bytes.to_be_bytes();
    let head = [&[1][..], &length].concat();
    let mut payload = if is_first { head } else { Vec::new() };
    payload.resize(4_000, 0);
    let count = u16::try_from(payload.len()).expect("one record");
    [&[22, 3, 1][..], &count.to_be_bytes(), &payload].concat()
}

#[test]
fn sim_a_long_message_of_a_handshake_is_charged_before_it_is_kept() {
    let limits = Limits {
        buffer_bytes_max: 4 << 20,
        ..Limits::default()
    };
    let mut pair = Pair::new(1, limits);
    let charged = |pair: &Pair| pair.server.handle().pool_statistics().charged_bytes;
    let say = |pair: &mut Pair, is_first| {
        pair.end.client.write(&part_of_a_hello(0xffff, is_first));
        (0..20).for_each(|_| pair.server.turn());
    };
    say(&mut pair, true);
    let short = charged(&pair);
    for part in 1..16 {
        say(&mut pair, false);
        assert!(charged(&pair) >= short + part * 7_800, "part {part}");
    }
    assert_eq!(pair.end.client.state(), ClientState::Open);
    // Many such clients wait for memory, and those that are there first have it.
    let others: Vec<End> = (0..100).map(|_| End::new(&pair.server, 1)).collect();
    for part in 0..16 {
        for other in &others {
            other.client.write(&part_of_a_hello(0xffff, part == 0));
        }
        (0..20).for_each(|_| pair.server.turn());
        assert!(charged(&pair) <= 4 << 20);
    }
    for time in [
        Limits::default().head_timeout,
        Limits::default().stall_timeout,
    ] {
        pair.server.advance(time + Duration::from_secs(2));
        (0..40).for_each(|_| pair.server.turn());
    }
    assert_eq!(charged(&pair), 0, "their deadlines end them");
    pair.finish();
}

#[test]
fn sim_a_message_of_a_handshake_that_is_too_long_is_refused_by_its_head() {
    let mut pair = Pair::new(1, Limits::default());
    pair.end.client.write(&part_of_a_hello(0x01_0000, true));
    (0..20).for_each(|_| pair.server.turn());
    assert_eq!(pair.end.client.state(), ClientState::Finished);
    assert_eq!(pair.server.statistics().tls_unshaken, 1);
    pair.finish();
}

#[test]
fn sim_changed_and_oversized_records_are_refused_and_nothing_of_them_is_read() {
    for version in 0..2 {
        let mut pair = Pair::shaken(version);
        pair.end.tls.say(b"ping\n");
        let mut record = pair.end.tls.take();
        *record.last_mut().expect("bytes") ^= 1;
        pair.end.client.write(&record);
        assert_eq!(pair.hears(), "");
        let why = pair.end.tls.broken.clone().expect("an alert");
        assert!(why.contains("BadRecordMac"), "{why}");
        assert_eq!(pair.server.statistics().tls_broken, 1);
        pair.finish();
        let mut pair = Pair::shaken(version);
        pair.end.client.write(&[23, 3, 3, 0xff, 0xff]);
        pair.talk();
        let why = pair.end.tls.broken.clone().expect("an alert");
        assert!(why.contains("RecordOverflow"), "{why}");
        pair.finish();
    }
}

#[test]
fn sim_a_record_in_the_clear_is_refused() {
    let mut pair = Pair::shaken(1);
    pair.end.client.write(&[21, 3, 3, 0, 2, 1, 0]);
    pair.talk();
    let why = pair.end.tls.broken.clone().expect("an alert");
    assert!(why.contains("UnexpectedMessage"), "{why}");
    pair.finish();
}

#[test]
fn sim_keys_are_changed_as_often_as_it_brings_something() {
    let mut pair = Pair::shaken(1);
    for _ in 0..100 {
        pair.end.tls.tls.refresh_traffic_keys().expect("TLS 1.3");
        pair.end.tls.say(b"ping\n");
        assert_eq!(pair.hears(), "pong\n");
    }
    for _ in 0..32 {
        pair.end.tls.tls.refresh_traffic_keys().expect("TLS 1.3");
    }
    pair.talk();
    pair.end.tls.say(b"ping\n");
    assert_eq!(pair.hears(), "pong\n", "this number in a row is");
    for _ in 0..33 {
        pair.end.tls.tls.refresh_traffic_keys().expect("TLS 1.3");
    }
    pair.talk();
    assert!(pair.end.tls.broken.is_some(), "a storm is not");
    pair.finish();
}

#[test]
fn sim_a_stream_that_is_cut_off_is_no_end() {
    for version in 0..2 {
        for words in ["ping\npi", "pi", "last\n"] {
            let mut pair = Pair::shaken(version);
            pair.end.tls.say(words.as_bytes());
            pair.talk();
            pair.end.client.shutdown_write();
            pair.talk();
            assert_eq!(pair.end.client.state(), ClientState::Reset, "{words}");
            assert_eq!(failures(&pair), (0, 1, 0), "{words}");
            pair.finish();
        }
    }
}

/// Records that were refused, streams that were cut off, and alerts.
fn failures(pair: &Pair) -> (u64, u64, u64) {
    let statistics = pair.server.statistics();
    let all = statistics.tls_failures();
    let (records, cut_off) = (statistics.tls_broken, statistics.tls_cut_off);
    assert_eq!(records + cut_off + statistics.tls_alert, all, "no others");
    (records, cut_off, statistics.tls_alert)
}

#[test]
fn sim_a_stream_that_ends_between_two_requests_is_no_failure_and_a_record_in_part_is_one() {
    for version in 0..2 {
        for words in ["", "ping\n", "work 7\n"] {
            let mut pair = Pair::shaken(version);
            if !words.is_empty() {
                pair.end.tls.say(words.as_bytes());
            }
            pair.talk();
            pair.end.client.shutdown_write();
            pair.talk();
            assert_eq!(pair.end.client.state(), ClientState::Finished, "{words}");
            assert!(pair.end.tls.was_told_of_the_end(), "{words}");
            assert_eq!(failures(&pair), (0, 0, 0), "{words}");
            pair.finish();
        }
        let mut pair = Pair::shaken(version);
        pair.end.tls.say(b"ping\n");
        pair.talk();
        pair.end.tls.say(b"ping\n");
        let record = pair.end.tls.take();
        pair.end.client.write(&record[..record.len() - 1]);
        pair.talk();
        pair.end.client.shutdown_write();
        pair.talk();
        assert_eq!(failures(&pair), (0, 1, 0));
        pair.finish();
    }
}

#[test]
fn sim_a_handshake_is_no_stall_of_a_pipeline() {
    for version in 0..2 {
        let mut pair = Pair::shaken(version);
        pair.end.tls.say(b"ping\n");
        assert_eq!(pair.hears(), "pong\n");
        assert_eq!(pair.server.statistics().stalls(), 0);
        pair.finish();
    }
}

#[test]
fn sim_the_last_words_end_with_close_notify() {
    for version in 0..2 {
        let mut pair = Pair::shaken(version);
        // More than one send seals.
        pair.end.tls.say(b"big 200000\nbye\n");
        let heard = pair.hears();
        assert_eq!(heard.len(), 200_000 + "\nbye\n".len());
        assert!(heard.ends_with("\nbye\n"));
        assert!(pair.end.tls.was_told_of_the_end());
        assert_eq!(pair.end.client.state(), ClientState::Finished);
        pair.finish();
    }
}

#[test]
fn sim_a_drain_ends_handshakes_and_connections_with_their_last_words() {
    let mut pair = Pair::new(1, Limits::default());
    let idle = pair.server.connect();
    pair.end.client.write(&pair.end.tls.take());
    (0..3).for_each(|_| pair.server.turn());
    pair.server.drain();
    pair.talk();
    pair.server.advance(Duration::from_secs(10));
    pair.talk();
    assert!(!pair.end.tls.tls.is_handshaking(), "it was under way");
    assert_eq!(idle.state(), ClientState::Finished);
    assert!(pair.end.tls.was_told_of_the_end());
    pair.server.end(TURNS_MAX);
}

#[test]
fn sim_a_session_is_resumed_and_counted() {
    for version in VERSIONS {
        let mut pair = Pair::new(1, Limits::default());
        let config = client_config(version);
        for resumed in 0..3 {
            pair.end.client = pair.server.connect();
            pair.end.tls = TlsClient::new(&config);
            pair.talk();
            pair.end.tls.say(b"ping\n");
            assert_eq!(pair.hears(), "pong\n");
            let statistics = pair.server.statistics();
            assert_eq!((statistics.tls_full, statistics.tls_resumed), (1, resumed));
            pair.end.tls.tls.send_close_notify();
            pair.talk();
        }
        pair.finish();
    }
}

#[test]
fn sim_a_panic_in_a_handshake_ends_one_connection() {
    let calm = Calm(AtomicBool::new(false));
    let server_config = ServerConfig::builder_with_provider(Arc::new(provider()))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth();
    let resolver = Arc::new(calm);
    let mut config = server_config.with_cert_resolver(Arc::clone(&resolver) as _);
    config.enable_secret_extraction = true;
    let config = TlsConfig::from_server_config(config).expect("as it has to be");
    let conditions = tls_conditions(Limits::default(), config);
    let mut server = SimulatedServer::new(conditions, Lines);
    let mut end = End::new(&server, 1);
    end.talk(&mut server);
    assert_eq!(end.client.state(), ClientState::Finished);
    assert_eq!(server.statistics().tls_unshaken, 1);
    resolver.0.store(true, Relaxed);
    let mut end = End::new(&server, 1);
    end.talk(&mut server);
    let why = end
        .tls
        .broken
        .clone()
        .expect("an alert: there is no certificate");
    assert!(why.contains("AccessDenied"), "{why}");
    server.drain();
    server.end(TURNS_MAX);
}

/// Panics until it is calm; then it has no certificate.
#[derive(Debug)]
struct Calm(AtomicBool);

impl ResolvesServerCert for Calm {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        assert!(self.0.load(Relaxed), "as the test wants it");
        None
    }
}

#[test]
fn sim_what_is_kept_stays_in_its_page_and_as_it_was_opened() {
    for version in 0..2 {
        let conditions = tls_conditions(Limits::default(), server_config());
        let mut server = SimulatedServer::new(conditions, Hoard::default());
        let mut end = End::new(&server, version);
        end.talk(&mut server);
        end.tls.say(b"keep\n");
        assert_eq!(end.hears(&mut server), "");
        end.tls.say(b"word\n");
        assert_eq!(end.hears(&mut server), "ok\n");
        drop(end);
        server.drain();
        server.end(TURNS_MAX);
    }
}

#[test]
fn sim_a_part_of_a_record_waits_for_memory_and_is_read_then() {
    const BUFFERS: usize = 16;
    let limits = Limits {
        buffer_bytes_max: BUFFERS * 4096,
        head_timeout: Duration::from_secs(100_000),
        stall_timeout: Duration::from_secs(100_000),
        ..Limits::default()
    };
    let conditions = tls_conditions(limits, server_config());
    let mut server = SimulatedServer::new(conditions, Hoard::default());
    let mut ends: Vec<End> = (0..=BUFFERS).map(|_| End::new(&server, 1)).collect();
    for end in &mut ends {
        end.talk(&mut server);
        assert!(!end.tls.tls.is_handshaking());
    }
    let mut waiting = ends.pop().expect("the last");
    for end in &mut ends {
        end.tls.say(b"hold 1\n");
        assert_eq!(end.hears(&mut server), "");
    }
    waiting.tls.say(b"word\n");
    let record = waiting.tls.take();
    waiting.client.write(&record[..9]);
    assert_eq!(waiting.hears(&mut server), "");
    waiting.client.write(&record[9..]);
    assert_eq!(
        waiting.hears(&mut server),
        "",
        "there is nowhere to put a part"
    );
    assert_eq!(waiting.client.state(), ClientState::Open);
    ends[0].tls.say(b"free\n");
    ends[0].talk(&mut server);
    for _ in 0..10 {
        server.advance(Duration::from_millis(100));
        waiting.talk(&mut server);
    }
    assert_eq!(waiting.hears(&mut server), "ok\n");
    drop((ends, waiting));
    server.drain();
    server.end(TURNS_MAX);
}

#[test]
fn sim_more_connections_than_have_ciphers_ready_are_served_as_well() {
    const CONNECTIONS: usize = 1100;
    let limits = Limits {
        connections_max: 2000,
        ..Limits::default()
    };
    let conditions = tls_conditions(limits, server_config());
    let mut server = SimulatedServer::new(conditions, Lines);
    let config = client_config(VERSIONS[1]);
    let mut ends: Vec<End> = (0..CONNECTIONS)
        .map(|_| End {
            client: server.connect(),
            tls: TlsClient::new(&config),
        })
        .collect();
    for round in 1..3 {
        ends.iter_mut().for_each(|end| end.tls.say(b"ping\n"));
        for turn in 0.. {
            assert!(turn < TURNS_MAX, "a client still waits");
            server.turn();
            for end in &mut ends {
                let said = end.tls.take();
                if !said.is_empty() {
                    end.client.write(&said);
                }
                end.tls.feed(&end.client.read());
            }
            if ends
                .iter()
                .all(|end| end.tls.heard.len() == round * "pong\n".len())
            {
                break;
            }
        }
    }
    drop(ends);
    server.drain();
    server.end(TURNS_MAX);
}

#[test]
fn sim_a_client_that_does_not_read_stops_the_server_from_making_more() {
    let mut pair = Pair::shaken(1);
    pair.end.tls.say(b"big 50000000\n");
    for _ in 0..200 {
        let said = pair.end.tls.take();
        if !said.is_empty() {
            pair.end.client.write(&said);
        }
        pair.server.turn();
    }
    let pooled = pair.server.leaks().1;
    assert!(pooled < 1 << 20, "{pooled} bytes are queued");
    pair.finish();
}

#[test]
fn sim_behind_a_balancer_the_header_comes_first_and_in_the_clear() {
    let conditions = Conditions {
        balancers: Some(vec!["10.1.0.0/16".parse().expect("a network")]),
        ..tls_conditions(Limits::default(), server_config())
    };
    let mut server = SimulatedServer::new(conditions, Herald);
    let balancer = "10.1.2.3:4000".parse().expect("an address");
    let client = "198.51.100.7:56324".parse().expect("an address");
    for with_hello in [false, true] {
        let mut end = End {
            client: server.connect_from(Some(balancer)),
            tls: TlsClient::new(&client_config(VERSIONS[1])),
        };
        let mut said = line(client);
        if with_hello {
            said.extend(end.tls.take());
        }
        end.client.write(&said);
        end.talk(&mut server);
        end.tls.say(b"one.");
        let heard = end.hears(&mut server);
        assert!(
            heard.starts_with("198.51.100.7:56324 through 10.1.2.3:4000"),
            "{heard}"
        );
        assert!(heard.ends_with("ONE."), "{heard}");
    }
    server.drain();
    server.advance(Duration::from_secs(60));
    server.end(TURNS_MAX);
}
