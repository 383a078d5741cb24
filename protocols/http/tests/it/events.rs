//! Broadcasts on a simulated server: every order, every fault, slow listeners, and what one costs.

use allocation_counter::measure;
use flatpath_http::sse::{Broadcast, Event};
use flatpath_http::{Decoder, Framing, Http, Piece, Request, Response};
use flatpath_test::{Client, ClientState, Conditions, TestServer, each_seed};

const GET: &[u8] = b"GET /events HTTP/1.1\r\nHost: h\r\n\r\n";
const GET_PLAIN: &[u8] = b"GET /plain HTTP/1.1\r\nHost: h\r\n\r\n";

fn site(conditions: Conditions, news: &Broadcast) -> TestServer {
    let listen = news.clone();
    let http = Http::inline(move |request: Request| match request.uri().path() {
        "/events" => listen.response(),
        _ => Response::new("x".repeat(200).into()),
    });
    TestServer::new(conditions, http)
}

/// A client and what it has read.
struct Listener {
    client: Client,
    arrived: Vec<u8>,
    /// The number of the first event after it was known to listen.
    since: usize,
}

impl Listener {
    fn join(server: &mut TestServer, since: usize) -> Listener {
        let (client, mut arrived) = (server.connect(), Vec::new());
        client.write(GET);
        // The head of its answer.
        server.run_until(|| {
            arrived.extend(client.read());
            !arrived.is_empty()
        });
        Listener {
            client,
            arrived,
            since,
        }
    }

    /// The numbers of the events that have arrived, and whether the stream has ended well.
    fn events(&self) -> (Vec<usize>, bool) {
        let Some(head) = self.arrived.windows(4).position(|four| four == b"\r\n\r\n") else {
            return (Vec::new(), false);
        };
        let (mut rest, mut text) = (&self.arrived[head + 4..], Vec::new());
        let mut decoder = Decoder::new(Framing::Chunked);
        let is_complete = loop {
            match decoder.next(&mut rest).expect("it is well formed") {
                Piece::Data(data) => text.extend_from_slice(data),
                Piece::More => break false,
                Piece::End => break true,
            }
        };
        let text = String::from_utf8(text).expect("text");
        let ids = text.lines().filter_map(|line| line.strip_prefix("id: "));
        let numbers = ids.map(|id| id.parse().expect("a number"));
        (numbers.collect(), is_complete)
    }
}

fn event(number: usize, bytes: usize) -> Event {
    Event::new().id(number.to_string()).data("x".repeat(bytes))
}

#[test]
fn sim_every_listener_gets_every_event_since_it_joined_in_order_or_is_cut_off() {
    let cut_off = each_seed(60, |seed| {
        let mut random = fastrand::Rng::with_seed(seed);
        let news = Broadcast::with_history(4);
        let mut server = site(Conditions::rough(seed), &news);
        let (mut sent, mut listeners) = (0, Vec::new());
        for _ in 0..200 {
            match random.u8(..10) {
                0 if listeners.len() < 6 => {
                    listeners.push(Listener::join(&mut server, sent));
                }
                0..5 => {
                    // Large ones are too much for those who read now and then.
                    let kinds = if seed % 2 == 0 { 2 } else { 4 };
                    let bytes = [10, 300, 20_000, 60_000][random.usize(..kinds)];
                    news.send(event(sent, bytes));
                    sent += 1;
                }
                _ if !listeners.is_empty() => {
                    let at = random.usize(..listeners.len());
                    let read = listeners[at].client.read_at_most(random.usize(..100_000));
                    listeners[at].arrived.extend(read);
                }
                _ => {}
            }
            for _ in 0..random.u8(..4) {
                server.turn();
            }
        }
        drop(news);
        server.drain();
        let mut cut_off = 0;
        for listener in &mut listeners {
            server.run_until(|| {
                listener.arrived.extend(listener.client.read());
                listener.client.state() != ClientState::Open
            });
            listener.arrived.extend(listener.client.read());
            let (events, is_complete) = listener.events();
            let expected: Vec<_> = (listener.since..sent).collect();
            match is_complete {
                true => assert_eq!(events, expected),
                false => assert_eq!(events, expected[..events.len()]),
            }
            cut_off += usize::from(!is_complete);
        }
        cut_off
    });
    assert!(cut_off.iter().any(|count| *count > 0), "none was slow");
    assert!(cut_off.contains(&0), "all were slow");
}

#[test]
fn sim_a_listener_that_rests_gets_comments_and_none_while_events_come() {
    let news = Broadcast::new();
    let mut server = site(Conditions::calm(1), &news);
    let listener = Listener::join(&mut server, 0);
    server.settle();
    listener.client.read();
    let interval = Conditions::calm(1).limits.push_interval;
    for _ in 0..3 {
        server.advance(interval / 2);
        server.settle();
        assert!(listener.client.read().is_empty(), "it is too early");
        news.send("x");
        server.settle();
        assert_eq!(listener.client.read(), b"9\r\ndata: x\n\n\r\n");
    }
    for _ in 0..3 {
        server.advance(interval + interval / 10);
        server.settle();
        assert_eq!(listener.client.read(), b"3\r\n:\n\n\r\n");
    }
}

#[test]
fn a_listener_that_waits_is_less_than_two_hundred_bytes() {
    const LISTENERS: usize = 16;
    let news = Broadcast::new();
    let mut server = site(Conditions::calm(1), &news);
    let mut measured = |rounds: usize| {
        let clients: Vec<_> = (0..LISTENERS).map(|_| server.connect()).collect();
        let mut ask = |request: &[u8]| {
            for client in &clients {
                client.write(request);
                server.settle();
                client.read();
            }
        };
        // What the simulated kernel keeps of each client doubles now and then.
        (0..rounds).for_each(|_| ask(GET_PLAIN));
        let held = measure(|| ask(GET)).bytes_current;
        (clients, held / LISTENERS as i64)
    };
    // The first ones warm up what all share; what doubles does so in one of the others at most.
    let groups = [8, 8, 9, 10].map(&mut measured);
    let bytes = groups[1..].iter().map(|(_, bytes)| *bytes).min();
    let bytes = bytes.expect("three groups");
    assert_eq!(news.listeners(), groups.len() * LISTENERS);
    assert!(bytes < 200, "a listener holds {bytes} bytes");
}
