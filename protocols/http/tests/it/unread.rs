//! Streams and replies that no client reads, on a simulated server: all that waits for them is of
//! one account, and what others need is left to them.

use std::sync::mpsc;
use std::time::Duration;

use allocation_counter::measure;
use flatpath::{Bytes, Limits};
use flatpath_http::sse::{Broadcast, Event};
use flatpath_http::{Body, Http, Request, Response, Sender};
use flatpath_test::{Client, ClientState, Conditions, TestServer, each_seed};

const GET_PLAIN: &[u8] = b"GET /plain HTTP/1.1\r\nHost: h\r\n\r\n";
const GET_STREAM: &[u8] = b"GET /stream HTTP/1.1\r\nHost: h\r\n\r\n";
const GET_EVENTS: &[u8] = b"GET /events HTTP/1.1\r\nHost: h\r\n\r\n";

/// What may wait in a channel, in bytes.
const BYTES_MAX: usize = 64 * 1024;

/// A site with little memory, whose network takes a byte of each client that does not read.
fn site(seed: u64, buffer_bytes_max: usize) -> (TestServer, Broadcast, mpsc::Receiver<Sender>) {
    let news = Broadcast::with_history(16);
    let (streams, taken) = mpsc::channel();
    let listen = news.clone();
    let http = Http::inline(move |request: Request| match request.uri().path() {
        "/events" => listen.response(),
        "/stream" => {
            let (sender, body) = Body::channel(BYTES_MAX);
            streams.send(sender).expect("the test is there");
            Response::new(body)
        }
        _ => Response::new("x".repeat(200).into()),
    });
    let mut conditions = Conditions::calm(seed);
    conditions.limits = Limits {
        buffer_bytes_max,
        ..Limits::default()
    };
    let server = TestServer::new(conditions, http);
    server.world().set_window_bytes(1);
    (server, news, taken)
}

fn ask(server: &mut TestServer, clients: usize, request: &[u8]) -> Vec<Client> {
    (0..clients)
        .map(|_| {
            let client = server.connect();
            client.write(request);
            for _ in 0..4 {
                server.turn();
            }
            client
        })
        .collect()
}

fn pass(server: &mut TestServer, time: Duration) {
    for _ in 0..20 {
        server.advance(time / 20);
        for _ in 0..4 {
            server.turn();
        }
    }
}

/// How long newcomers wait for a short reply each, at most.
fn newcomers_wait(server: &mut TestServer, clients: usize) -> Duration {
    let mut longest = Duration::ZERO;
    for _ in 0..clients {
        let since = server.world().now();
        let client = server.connect();
        client.write(GET_PLAIN);
        let mut reply = Vec::new();
        server.run_until(|| {
            reply.extend(client.read());
            reply.ends_with(b"xxx") || client.state() != ClientState::Open
        });
        assert!(reply.starts_with(b"HTTP/1.1 200"), "one is refused");
        longest = longest.max(server.world().now() - since);
    }
    longest
}

#[test]
fn sim_pieces_that_wait_for_clients_are_within_the_budget_and_stop_no_short_request() {
    const BUDGET: usize = 4 << 20;
    each_seed(8, |seed| {
        let (mut server, _, taken) = site(seed, BUDGET);
        let _clients = ask(&mut server, 20, GET_STREAM);
        let senders: Vec<Sender> = taken.try_iter().collect();
        assert_eq!(senders.len(), 20);
        let bytes = [4_000, 16 * 1024, 60_000][seed as usize % 3];
        let mut sent = 0;
        for _ in 0..40 {
            for sender in &senders {
                sent += match sender.try_send(vec![0; bytes]) {
                    Ok(()) => bytes,
                    Err(_) => 0,
                };
            }
            pass(&mut server, Duration::from_millis(2));
        }
        assert!(
            sent > BUDGET / 8,
            "seed {seed}: only {sent} bytes were taken"
        );
        assert!(sent <= BUDGET, "seed {seed}: {sent} bytes wait");
        let held = server.handle().pool_statistics().in_use_bytes;
        assert!(held >= sent / 2, "seed {seed}: {held} bytes are charged");
        let wait = newcomers_wait(&mut server, 20);
        assert!(wait < Duration::from_secs(1), "seed {seed}: {wait:?}");
    });
}

#[test]
fn sim_what_handlers_queue_before_they_reply_is_within_the_budget_or_refused() {
    const BUDGET: usize = 1 << 20;
    const CLIENTS: usize = 100;
    for pooled in [false, true] {
        let answer = |_: Request| {
            let (sender, body) = Body::channel(BYTES_MAX);
            sender.send(vec![b'x'; 60_000]).expect("there is room");
            Response::new(body)
        };
        let http = match pooled {
            true => Http::pooled(answer),
            false => Http::inline(answer),
        };
        let mut conditions = Conditions::calm(1);
        conditions.limits.buffer_bytes_max = BUDGET;
        let mut server = TestServer::new(conditions, http);
        server.world().set_window_bytes(1);
        let mut clients = Vec::new();
        let held = measure(|| {
            for _ in 0..CLIENTS {
                clients.extend(ask(&mut server, 1, GET_STREAM));
                server.settle();
            }
        });
        // Their sockets and tables are some kilobytes each.
        let most = (BUDGET + CLIENTS * 8192) as i64;
        let current = held.bytes_current;
        assert!(current < most, "{current} bytes are held, {most} at most");
        server.world().set_window_bytes(1 << 20);
        (0..20).for_each(|_| pass(&mut server, Duration::from_millis(10)));
        let heard = clients.iter().map(Client::read);
        let heard: Vec<Vec<u8>> = heard.collect();
        let starts = |words: &str| {
            let with = |reply: &&Vec<u8>| reply.starts_with(words.as_bytes());
            heard.iter().filter(with).count()
        };
        let (served, refused) = (starts("HTTP/1.1 200"), starts("HTTP/1.1 503"));
        assert_eq!(served + refused, CLIENTS, "pooled: {pooled}");
        assert!(
            served >= 5 && refused > 0,
            "{served} of {CLIENTS} are served"
        );
    }
}

#[test]
fn sim_a_sender_holds_no_more_for_its_client_than_its_bound_and_a_piece() {
    let (mut server, _, taken) = site(1, 64 << 20);
    let _clients = ask(&mut server, 1, GET_STREAM);
    let sender = taken.try_recv().expect("it is asked for");
    let mut sent = 0;
    for _ in 0..100 {
        sent += sender.try_send(vec![0; 5_000]).map_or(0, |()| 5_000);
        pass(&mut server, Duration::from_millis(1));
    }
    assert!((BYTES_MAX..BYTES_MAX + 5_000).contains(&sent), "{sent}");
}

#[test]
fn sim_listeners_that_do_not_read_share_what_waits_for_them() {
    const LISTENERS: usize = 50;
    for bytes in [600, 1_500, 5_000, 60_000] {
        let (mut server, news, _) = site(1, 64 << 20);
        let _clients = ask(&mut server, LISTENERS, GET_EVENTS);
        let event = Event::new().data("x".repeat(bytes));
        let held = measure(|| {
            for _ in 0..120 {
                news.send(event.clone());
                pass(&mut server, Duration::from_millis(20));
            }
        });
        // The events of one output, the history, and a hundred and some bytes for each segment.
        let events = (64 * 1024 / bytes + 1) * bytes + 17 * bytes;
        let segments = (64 * 1024 / bytes + 2) * LISTENERS * 320;
        let most = (events + segments + LISTENERS * 4096) as i64;
        assert!(
            held.bytes_current < most,
            "{bytes}: {} bytes are held, {most} at most",
            held.bytes_current
        );
        let charged = server.handle().pool_statistics().in_use_bytes as i64;
        assert!(charged < most, "{bytes}: {charged} bytes are charged");
    }
}

/// Four hundred listeners that do not read get events of this size.
fn listeners_leave_the_reserve(bytes: usize) {
    const BUDGET: usize = 2 << 20;
    let (mut server, news, _) = site(1, BUDGET);
    let clients = ask(&mut server, 400, GET_EVENTS);
    let event = Event::new().data("x".repeat(bytes));
    for _ in 0..100 {
        news.send(event.clone());
        pass(&mut server, Duration::from_millis(20));
    }
    let buffers = server.handle().pool_statistics();
    assert!(buffers.in_use_bytes <= BUDGET - BUDGET / 8, "{buffers:?}");
    let wait = newcomers_wait(&mut server, 20);
    assert!(wait < Duration::from_millis(500), "{wait:?}");
    let open = clients.iter().filter(|it| it.state() == ClientState::Open);
    assert_eq!(open.count(), clients.len());
}

#[test]
fn sim_listeners_of_small_events_leave_the_reserve_to_short_requests_and_are_not_ended() {
    listeners_leave_the_reserve(100);
}

#[test]
fn sim_listeners_of_middling_events_leave_the_reserve_to_short_requests_and_are_not_ended() {
    listeners_leave_the_reserve(400);
}

#[test]
fn sim_listeners_of_large_events_leave_the_reserve_to_short_requests_and_are_not_ended() {
    listeners_leave_the_reserve(4_000);
}

#[test]
fn sim_old_events_leave_the_history_when_there_is_no_memory_and_the_newest_stays() {
    const EVENT: usize = 100_000;
    let (mut server, news, _) = site(1, 1 << 20);
    server.world().set_window_bytes(64 * 1024);
    let listener = ask(&mut server, 1, GET_EVENTS).remove(0);
    let mut arrived = Vec::new();
    // Fourteen of these would be the history.
    for number in 0..14 {
        let event = Event::new().id(number.to_string()).data("x".repeat(EVENT));
        news.send(event);
        let mark = format!("id: {number}\n");
        server.run_until(|| {
            arrived.extend(listener.read());
            arrived.ends_with(b"x\n\n\r\n")
                && arrived
                    .windows(mark.len())
                    .any(|part| part == mark.as_bytes())
        });
    }
    let buffers = server.handle().pool_statistics();
    assert!(buffers.charged_bytes <= 768 * 1024, "{buffers:?}");
    assert!(buffers.charged_bytes >= EVENT, "{buffers:?}");
    drop(listener);
    server.run_until(|| news.listeners() == 0);
    server.settle();
    assert_eq!(
        server.handle().pool_statistics().charged_bytes,
        0,
        "nobody listens"
    );
}

#[test]
fn sim_the_history_holds_what_is_charged_before_anyone_looks_at_it() {
    const EVENT: usize = 100_000;
    let (mut server, news, _) = site(1, 1 << 20);
    let event = Event::new().data("x".repeat(EVENT));
    let charged = |server: &TestServer| server.handle().pool_statistics().charged_bytes;
    (0..3).for_each(|_| news.send(event.clone()));
    assert_eq!(charged(&server), 0, "nobody listens");
    let _listener = ask(&mut server, 1, GET_EVENTS);
    let joined = charged(&server);
    assert!((3 * EVENT..4 * EVENT).contains(&joined), "{joined}");
    // Nobody takes them, and the history may have sixteen.
    let held = measure(|| (0..16).for_each(|_| news.send(event.clone())));
    let sent = charged(&server);
    assert!((6 * EVENT..=768 * 1024).contains(&sent), "{sent}");
    let more = sent as i64 - joined as i64 + EVENT as i64;
    assert!(held.bytes_current < more, "{held:?}, {more} bytes at most");
}

/// How many of the clients read the beginning of a 200, and of a 503.
fn served_and_refused(clients: &[Client]) -> (usize, usize) {
    let begun: Vec<Vec<u8>> = clients.iter().map(Client::read).collect();
    let count = |with: &str| {
        let is_it = |it: &&Vec<u8>| it.starts_with(with.as_bytes());
        begun.iter().filter(is_it).count()
    };
    (count("HTTP/1.1 200 "), count("HTTP/1.1 503 "))
}

/// A site whose replies are in memory of the program: each in its own, or all in the same.
fn bytes_site(is_inline: bool, body: impl Fn() -> Bytes + Send + Sync + 'static) -> TestServer {
    let handler = move |request: Request| match request.uri().path() {
        "/stream" => Response::new(body().into()),
        _ => Response::new("x".repeat(200).into()),
    };
    let mut conditions = Conditions::calm(1);
    conditions.limits.buffer_bytes_max = BYTES_BUDGET;
    let server = match is_inline {
        true => TestServer::new(conditions, Http::inline(handler)),
        false => TestServer::new(conditions, Http::pooled(handler)),
    };
    server.world().set_window_bytes(64);
    server
}

const BYTES_BUDGET: usize = 2 << 20;

#[test]
fn sim_replies_in_memory_that_are_not_read_are_within_the_budget() {
    for (is_inline, bytes) in [
        (true, 20_000),
        (true, 200_000),
        (false, 20_000),
        (false, 200_000),
    ] {
        let mut server = bytes_site(is_inline, move || vec![b'x'; bytes].into());
        let mut clients = Vec::new();
        let asked = 3 * BYTES_BUDGET / bytes;
        let held = measure(|| clients = ask(&mut server, asked, GET_STREAM));
        let case = format!("inline {is_inline}, {bytes} bytes");
        let most = (BYTES_BUDGET + asked * 8192) as i64;
        assert!(held.bytes_current < most, "{case}: {held:?}");
        let charged = server.handle().pool_statistics().in_use_bytes;
        let (begun, refused) = served_and_refused(&clients);
        assert!(
            begun * bytes <= charged,
            "{case}: {begun} of {charged} bytes"
        );
        assert!(
            charged <= BYTES_BUDGET,
            "{case}: {charged} bytes are charged"
        );
        assert!(
            begun * bytes > BYTES_BUDGET / 2,
            "{case}: {begun} are served"
        );
        assert_eq!(begun + refused, asked, "{case}: each has a reply");
        let wait = newcomers_wait(&mut server, 20);
        assert!(wait < Duration::from_secs(1), "{case}: {wait:?}");
        clients.iter().for_each(Client::abort);
        server.settle();
        assert_eq!(server.handle().pool_statistics().charged_bytes, 0, "{case}");
    }
}

#[test]
fn sim_replies_that_share_their_bytes_are_charged_once() {
    const BYTES: usize = 1 << 20;
    for is_inline in [true, false] {
        let page = Bytes::from(vec![b'x'; BYTES]);
        let mut server = bytes_site(is_inline, move || page.clone());
        let clients = ask(&mut server, 20, GET_STREAM);
        let charged = server.handle().pool_statistics().charged_bytes;
        assert!((BYTES..BYTES + 4096).contains(&charged), "{charged}");
        assert_eq!(served_and_refused(&clients), (20, 0));
        drop(clients);
        server.settle();
        assert_eq!(server.handle().pool_statistics().charged_bytes, 0);
    }
}

#[test]
fn sim_a_reply_in_memory_that_a_small_buffer_holds_has_the_reserve() {
    const SHORT: usize = 12_000;
    for is_inline in [true, false] {
        let count = std::sync::atomic::AtomicUsize::new(0);
        // Long ones first, until there is no memory for more of them.
        let mut server = bytes_site(is_inline, move || {
            let before = count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            vec![b'x'; if before < 40 { 100_000 } else { SHORT }].into()
        });
        let long = ask(&mut server, 40, GET_STREAM);
        assert!(served_and_refused(&long).1 > 0, "none is refused");
        // They fill what is left of the rest, and then take from the reserve.
        let short = ask(&mut server, 12, GET_STREAM);
        assert_eq!(served_and_refused(&short), (12, 0));
    }
}
