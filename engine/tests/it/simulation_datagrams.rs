//! Datagrams on the simulated driver: bounds, amplification, forged senders, drain.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use flatpath::Limits;
use flatpath::datagrams::{AMPLIFICATION_MAX, AT_WORK_MAX, DATAGRAM_BYTES_MAX};
use flatpath::simulation::{
    Conditions, DATAGRAM_PORT, DATAGRAMS_AT, Errno, Faults, SimulatedServer, each_seed,
};
use flatpath::statistics::Statistics;

use crate::datagrams::Talk;
use crate::lines::Lines;

const TURNS_MAX: usize = 100_000;

/// No reply.
const NONE: [usize; 0] = [];

fn host(number: u32) -> SocketAddr {
    (Ipv4Addr::from(0x0a00_0001 + number), 9).into()
}

fn server(conditions: Conditions) -> SimulatedServer {
    SimulatedServer::with_datagrams(conditions, Lines, Talk)
}

/// Lets the server do what there is to do.
fn settle(server: &mut SimulatedServer) {
    let mut quiet = 0;
    for _ in 0..TURNS_MAX {
        server.turn();
        quiet = if server.is_settled() { quiet + 1 } else { 0 };
        if quiet > 20 {
            return;
        }
    }
    panic!("it does not settle");
}

/// The replies to a question, as long as they are.
fn ask(server: &mut SimulatedServer, from: SocketAddr, request: &[u8]) -> Vec<usize> {
    server.send_datagram(from, request);
    settle(server);
    let sent = server.sent_datagrams();
    assert!(sent.iter().all(|reply| reply.to == from));
    let asked = Some(DATAGRAMS_AT.into());
    assert!(sent.iter().all(|reply| reply.from == asked), "from there");
    sent.iter().map(|reply| reply.bytes.len()).collect()
}

fn end(mut server: SimulatedServer) -> Statistics {
    server.drain();
    server.end(TURNS_MAX);
    server.statistics()
}

#[test]
fn sim_every_datagram_is_answered_once_to_its_sender_whatever_goes_wrong() {
    each_seed(60, |seed| {
        let conditions = Conditions {
            faults: Faults::mixed(seed),
            ..Conditions::calm(seed)
        };
        let mut server = server(conditions);
        let (mut asked, mut answered) = (0_u32, vec![]);
        for _ in 0..TURNS_MAX {
            if asked < 400 && asked < answered.len() as u32 + 50 {
                let work = ["", "work "][asked as usize % 2];
                let request = format!("{work}echo {asked}");
                server.send_datagram(host(asked), request.as_bytes());
                asked += 1;
            }
            server.turn();
            answered.extend(server.sent_datagrams());
            if answered.len() == 400 {
                break;
            }
        }
        answered.sort_by_key(|reply| reply.to);
        for (number, reply) in (0..400).zip(&answered) {
            assert_eq!(reply.to, host(number), "lost, or twice");
            assert!(reply.bytes.ends_with(format!("echo {number}").as_bytes()));
        }
        let statistics = end(server);
        assert_eq!(statistics.datagrams_received, 400);
        assert_eq!(statistics.datagrams_answered, 400);
        assert_eq!(statistics.datagrams_dropped(), 0);
    });
}

#[test]
fn sim_a_reply_is_three_times_its_request_unless_its_receiver_has_a_connection() {
    let mut server = server(Conditions::calm(1));
    let padded = |text: &str, bytes: usize| {
        let mut request = text.as_bytes().to_vec();
        request.resize(bytes, b' ');
        request
    };
    let mut refused = 0;
    for work in ["", "work "] {
        let long = |reply: usize| padded(&format!("{work}long {reply}"), 20);
        let most = 20 * AMPLIFICATION_MAX;
        assert_eq!(ask(&mut server, host(1), &long(most)), [most]);
        assert_eq!(ask(&mut server, host(1), &long(most + 1)), NONE);
        let fit = padded(&format!("{work}fit {}", most + 1), 20);
        assert_eq!(ask(&mut server, host(1), &fit), [7], "it has a shorter one");
        let client = server.connect_from(Some((host(1).ip(), 4711).into()));
        settle(&mut server);
        assert_eq!(ask(&mut server, host(1), &long(most + 1)), [most + 1]);
        let whole = long(DATAGRAM_BYTES_MAX);
        assert_eq!(ask(&mut server, host(1), &whole), [DATAGRAM_BYTES_MAX]);
        assert_eq!(
            ask(&mut server, host(1), &long(DATAGRAM_BYTES_MAX + 1)),
            NONE
        );
        assert_eq!(
            ask(&mut server, host(2), &long(most + 1)),
            NONE,
            "of another"
        );
        client.abort();
        settle(&mut server);
        assert_eq!(
            ask(&mut server, host(1), &long(most + 1)),
            NONE,
            "it is gone"
        );
        refused += 4;
    }
    // An empty one has no room at all.
    assert_eq!(ask(&mut server, host(1), b""), NONE);
    let statistics = end(server);
    assert_eq!(statistics.dropped_amplification, refused);
}

#[test]
fn sim_a_connection_that_is_gone_when_its_reply_is_ready_counts_no_more() {
    each_seed(10, |seed| {
        let mut server = server(Conditions::calm(seed));
        let clients = [1, 2].map(|number| server.connect_from(Some(host(number))));
        settle(&mut server);
        for number in [1, 2] {
            server.send_datagram(host(number), b"work long 1000");
        }
        while server.statistics().datagrams_received < 2 {
            server.turn_without_workers();
        }
        clients[0].abort();
        for _ in 0..TURNS_MAX {
            if server.statistics().connections() == 1 {
                break;
            }
            server.turn_without_workers();
            server.advance(Duration::from_millis(1));
        }
        settle(&mut server);
        let sent = server.sent_datagrams();
        let to: Vec<_> = sent.iter().map(|reply| reply.to).collect();
        assert_eq!(to, [host(2)], "the other one's is still there");
        drop(clients);
        assert_eq!(end(server).dropped_amplification, 1);
    });
}

#[test]
fn sim_ten_thousand_forged_senders_take_nothing_from_a_connection() {
    const SENDERS: u32 = 10_000;
    let mut server = server(Conditions::calm(3));
    let client = server.connect();
    let (mut heard, mut sent_bytes) = (vec![], 0);
    for number in 0..SENDERS {
        let request = ["echo", "work echo", "long 8000", "work long 8000"][number as usize % 4];
        server.send_datagram(host(number), request.as_bytes());
        sent_bytes += request.len();
        if number % 40 == 0 {
            client.write(b"work 1\n");
            server.turn();
            heard.extend(client.read());
            let pool = server.handle().pool_statistics();
            let most = AT_WORK_MAX * 2 * 16 * 1024 + 256 * 1024;
            assert!(pool.in_use_bytes <= most, "{}", pool.in_use_bytes);
        }
    }
    settle(&mut server);
    heard.extend(client.read());
    let answers = heard.iter().filter(|byte| **byte == b'\n').count();
    assert_eq!(
        answers,
        (SENDERS / 40) as usize,
        "each request has its reply"
    );
    let replies = server.sent_datagrams();
    let reply_bytes: usize = replies.iter().map(|reply| reply.bytes.len()).sum();
    assert!(reply_bytes <= AMPLIFICATION_MAX * sent_bytes);
    assert!(!replies.is_empty());
    drop(client);
    let statistics = end(server);
    let Statistics {
        datagrams_received,
        datagrams_answered,
        dropped_socket,
        ..
    } = statistics;
    assert_eq!(datagrams_received + dropped_socket, u64::from(SENDERS));
    let unanswered = statistics.datagrams_dropped() - dropped_socket;
    assert_eq!(datagrams_received, datagrams_answered + unanswered);
}

#[test]
fn sim_one_address_fills_no_more_than_its_part_of_what_workers_may_have() {
    let mut server = server(Conditions::calm(5));
    // All in one turn, before a worker has any.
    for _ in 0..AT_WORK_MAX {
        server.send_datagram(host(1), b"work echo");
    }
    for number in 2..5 {
        server.send_datagram(host(number), b"work echo");
    }
    settle(&mut server);
    let replies = server.sent_datagrams();
    let of_others = replies.iter().filter(|reply| reply.to != host(1)).count();
    assert_eq!(of_others, 3, "they found room");
    let statistics = end(server);
    assert!(statistics.dropped_address > 0 && statistics.dropped_work == 0);
    assert_eq!(
        statistics.datagrams_received,
        statistics.datagrams_answered + statistics.dropped_address
    );
}

#[test]
fn sim_what_workers_have_answered_makes_room_for_more() {
    let mut server = server(Conditions::calm(9));
    for _ in 0..2 * AT_WORK_MAX {
        assert_eq!(ask(&mut server, host(1), b"work echo"), [9]);
    }
    assert_eq!(end(server).datagrams_dropped(), 0);
}

#[test]
fn sim_what_cannot_be_answered_is_counted_by_its_reason_and_nothing_else_suffers() {
    let mut server = server(Conditions::calm(7));
    let unanswerable = [
        (host(1).ip(), 0),
        (DATAGRAMS_AT.into(), DATAGRAM_PORT),
        (Ipv4Addr::BROADCAST.into(), 9),
        (Ipv4Addr::new(224, 0, 0, 1).into(), 9),
    ];
    for from in unanswerable.map(SocketAddr::from) {
        assert_eq!(ask(&mut server, from, b"echo"), NONE, "{from}");
    }
    let beside = SocketAddr::from((DATAGRAMS_AT, DATAGRAM_PORT + 1));
    assert_eq!(ask(&mut server, beside, b"echo"), [4], "of this host");
    assert_eq!(
        ask(&mut server, host(1), &[b'x'; DATAGRAM_BYTES_MAX + 1]),
        NONE
    );
    let longest = [b'x'; DATAGRAM_BYTES_MAX];
    assert_eq!(ask(&mut server, host(1), &longest), [DATAGRAM_BYTES_MAX]);
    assert_eq!(ask(&mut server, host(1), b"panic"), NONE);
    assert_eq!(ask(&mut server, host(1), b"work panic"), NONE);
    assert_eq!(ask(&mut server, host(1), b"quiet"), NONE);
    let socket = server.datagram_socket();
    server
        .world()
        .report_to_datagrams(socket, Errno::CONNREFUSED);
    assert_eq!(ask(&mut server, host(1), b"echo"), [4], "all is as before");
    let statistics = end(server);
    assert_eq!(statistics.dropped_unanswerable, 4);
    assert_eq!(statistics.dropped_long, 1);
    assert_eq!(statistics.dropped_panic, 2);
    assert_eq!(statistics.datagrams_dropped(), 7);
    assert_eq!(statistics.datagrams_received, 11);
}

#[test]
fn sim_a_drain_receives_until_the_last_connection_is_gone_and_answers_what_is_at_work() {
    each_seed(40, |seed| {
        let long = Duration::from_secs(1_000);
        let limits = Limits {
            drain_idle_timeout: long,
            drain_timeout: 10 * long,
            ..Limits::default()
        };
        let conditions = Conditions::rough(seed);
        let mut server = server(Conditions {
            limits,
            ..conditions
        });
        // It has just come, so its first words may be on their way.
        let client = server.connect();
        for _ in 0..50 {
            server.turn();
        }
        server.drain();
        for _ in 0..50 {
            server.turn();
        }
        assert!(!server.has_ended(), "a connection is open");
        server.send_datagram(host(1), b"echo");
        let answered = (0..1000).any(|_| {
            server.turn();
            !server.sent_datagrams().is_empty()
        });
        assert!(answered, "it drains");
        // Whatever the worker has of these when the connection ends.
        let mut received = server.statistics().datagrams_received;
        for number in 0..20 {
            server.send_datagram(host(number), b"work echo");
        }
        while server.statistics().datagrams_received == received {
            server.turn();
            server.advance(Duration::from_millis(1));
        }
        drop(client);
        server.end(TURNS_MAX);
        let statistics = server.statistics();
        received = statistics.datagrams_received;
        assert_eq!(statistics.datagrams_answered, received, "all that came");
    });
}

#[test]
fn sim_a_drain_waits_for_what_workers_have_when_the_last_connection_ends() {
    each_seed(10, |seed| {
        let mut server = server(Conditions::calm(seed));
        let client = server.connect();
        settle(&mut server);
        for number in 0..3 {
            server.send_datagram(host(number), b"work echo");
        }
        while server.statistics().datagrams_received < 3 {
            server.turn_without_workers();
        }
        server.drain();
        drop(client);
        for _ in 0..200 {
            server.turn_without_workers();
            server.advance(Duration::from_millis(1));
            assert!(!server.has_ended(), "workers have three");
        }
        assert_eq!(server.statistics().connections(), 0);
        assert!(server.sent_datagrams().is_empty());
        // Not after it: what is given back then would be sent as well.
        while !server.has_ended() {
            server.turn();
            server.advance(Duration::from_millis(1));
        }
        assert_eq!(server.sent_datagrams().len(), 3);
        server.end(1);
    });
}

#[test]
fn sim_a_forced_end_waits_for_no_datagram() {
    let mut server = server(Conditions::calm(1));
    for number in 0..50 {
        server.send_datagram(host(number), b"work echo");
    }
    while server.statistics().datagrams_received < 50 {
        server.turn_without_workers();
    }
    server.force();
    for _ in 0..50 {
        server.turn_without_workers();
        server.advance(Duration::from_millis(1));
    }
    assert!(server.has_ended(), "it waits for workers");
    assert!(server.sent_datagrams().is_empty());
    server.end(1);
}

#[test]
fn sim_a_flood_of_one_address_takes_the_room_of_a_socket_and_not_the_answers_of_others() {
    each_seed(20, |seed| {
        let mut server = server(Conditions::calm(seed));
        // As many as the socket has room for: no other client is there, so all are answered.
        let room = 1024;
        let flood = |server: &mut SimulatedServer, count: usize| {
            (0..count).for_each(|_| server.send_datagram(host(1), b"echo flood"));
        };
        // Until the server has read that number in all.
        let read = |server: &mut SimulatedServer, count: usize| {
            for _ in 0..TURNS_MAX {
                server.turn();
                if server.statistics().datagrams_received == count as u64 {
                    return;
                }
            }
            panic!("it does not read what its socket has");
        };
        flood(&mut server, room);
        read(&mut server, room);
        assert_eq!(server.sent_datagrams().len(), room);
        // More: the socket loses some, of whatever address. What it has room for are read all, and
        // others are answered before a part of the flood is.
        let (mut of_flood, mut of_others) = (0, 0);
        let (rounds, lost) = (50, 200);
        for round in 0..rounds {
            flood(&mut server, room - 10);
            for number in 0..10 {
                server.send_datagram(host(10 + number), b"echo question");
            }
            flood(&mut server, lost);
            read(&mut server, (2 + round) * room);
            let replies = server.sent_datagrams();
            let (flood, others): (Vec<_>, Vec<_>) =
                replies.iter().partition(|reply| reply.to == host(1));
            assert_eq!(others.len(), 10, "round {round}");
            assert!(flood.len() < room / 2, "round {round}: {}", flood.len());
            of_flood += flood.len();
            of_others += others.len();
        }
        let statistics = end(server);
        let read = (1 + rounds) * room;
        assert_eq!(statistics.datagrams_received, read as u64);
        assert_eq!(statistics.dropped_socket, (rounds * lost) as u64);
        let answered = room + of_flood + of_others;
        assert_eq!(statistics.dropped_address, (read - answered) as u64);
    });
}
