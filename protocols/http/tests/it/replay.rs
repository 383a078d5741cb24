//! Clients of a broadcast that come back: with every cut of the connection, and events meanwhile.

use flatpath_http::http::{HeaderMap, HeaderValue};
use flatpath_http::sse::{Broadcast, Event};
use flatpath_http::{Decoder, Framing, Http, Piece, Request};
use flatpath_test::{Client, ClientState, Conditions, TestServer, each_seed};

fn site(conditions: Conditions, news: &Broadcast) -> TestServer {
    let listen = news.clone();
    let http = Http::inline(move |request: Request| match request.uri().path() {
        "/all" => listen.response_with_history(),
        _ => listen.response_to(request.headers()),
    });
    TestServer::new(conditions, http)
}

fn event(number: usize) -> Event {
    Event::new()
        .id(format!("life/{number}"))
        .data(number.to_string())
}

/// A client as a browser is one: it knows the last id.
#[derive(Default)]
struct Page {
    client: Option<Client>,
    arrived: Vec<u8>,
    last_id: Option<String>,
    /// All that it has seen, numbers and `missed`.
    seen: Vec<String>,
}

impl Page {
    fn connect(&mut self, server: &mut TestServer, path: &str) {
        let client = server.connect();
        client.write(format!("GET {path} HTTP/1.1\r\nHost: h\r\n").as_bytes());
        if let Some(id) = &self.last_id {
            client.write(format!("Last-Event-ID:  {id} \r\n").as_bytes());
        }
        client.write(b"\r\n");
        self.client = Some(client);
    }

    /// Looks at what has come of whole events, and forgets the connection.
    fn disconnect(&mut self) {
        let Some(client) = self.client.take() else {
            return;
        };
        self.arrived.extend(client.read());
        client.abort();
        let arrived = std::mem::take(&mut self.arrived);
        let Some(head) = arrived.windows(4).position(|four| four == b"\r\n\r\n") else {
            return;
        };
        let (mut rest, mut text) = (&arrived[head + 4..], Vec::new());
        let mut decoder = Decoder::new(Framing::Chunked);
        while let Piece::Data(data) = decoder.next(&mut rest).expect("it is well formed") {
            text.extend_from_slice(data);
        }
        let text = String::from_utf8(text).expect("text");
        let Some((whole, _)) = text.rsplit_once("\n\n") else {
            return;
        };
        for event in whole.split("\n\n") {
            for line in event.lines() {
                match line.split_once(": ").unwrap_or((line, "")) {
                    ("id", id) => self.last_id = Some(id.to_owned()),
                    ("event", name) => self.seen.push(name.to_owned()),
                    ("data", "") => {}
                    ("data", data) => self.seen.push(data.to_owned()),
                    (other, _) => panic!("{other} in {event:?}"),
                }
            }
        }
    }
}

#[test]
fn sim_who_comes_back_gets_what_it_missed_once_and_in_order_or_is_told() {
    let missed = each_seed(100, |seed| {
        let mut random = fastrand::Rng::with_seed(seed);
        // Of some nothing is ever lost.
        let history = [5, 1000][usize::from(seed % 2 == 0)];
        let news = Broadcast::with_history(history);
        let mut server = site(Conditions::rough(seed), &news);
        let mut pages: Vec<Page> = (0..3).map(|_| Page::default()).collect();
        let mut sent = 0;
        for _ in 0..150 {
            let page = random.choice(&mut pages).expect("some");
            match random.u8(..10) {
                0 | 1 if page.client.is_none() => {
                    let path = if page.last_id.is_none() { "/all" } else { "/" };
                    page.connect(&mut server, path);
                }
                0 => page.disconnect(),
                2..6 => {
                    news.send(event(sent));
                    sent += 1;
                }
                _ => {}
            }
            for _ in 0..random.u8(..6) {
                server.turn();
            }
            for page in &mut pages {
                page.arrived
                    .extend(page.client.iter().flat_map(Client::read));
            }
        }
        let mut missed = 0;
        for page in &mut pages {
            page.disconnect();
            // In the end each catches up.
            let path = if page.last_id.is_none() { "/all" } else { "/" };
            page.connect(&mut server, path);
            server.settle();
            page.disconnect();
            let mut next = None;
            for seen in &page.seen {
                if seen == "missed" {
                    missed += 1;
                    next = None;
                    continue;
                }
                let number: usize = seen.parse().expect("a number");
                if let Some(next) = next {
                    assert_eq!(number, next, "of {:?}", page.seen);
                }
                next = Some(number + 1);
            }
            assert_eq!(next.unwrap_or(sent), sent, "{:?}", page.seen);
            assert!(history == 5 || page.seen.len() == sent, "{:?}", page.seen);
        }
        assert!(history == 5 || missed == 0);
        missed
    });
    assert!(missed.iter().any(|count| *count > 0), "none missed any");
}

/// What the response has at once.
fn begins(news: &Broadcast, id: &str) -> String {
    let mut headers = HeaderMap::new();
    headers.insert("last-event-id", HeaderValue::from_str(id).expect("text"));
    let mut server = TestServer::new(Conditions::calm(1), {
        let news = news.clone();
        Http::inline(move || news.response_to(&headers))
    });
    let client = server.connect();
    client.write(b"GET / HTTP/1.0\r\n\r\n");
    server.settle();
    assert_eq!(client.state(), ClientState::Open);
    let text = String::from_utf8(client.read()).expect("text");
    let (_, body) = text.split_once("\r\n\r\n").expect("a head");
    body.to_owned()
}

#[test]
fn an_id_that_is_not_in_the_history_is_answered_with_missed_and_the_history() {
    let news = Broadcast::with_history(2);
    (0..3).for_each(|number| news.send(event(number)));
    let event = |number| format!("id: life/{number}\ndata: {number}\n\n");
    let (one, two) = (event(1), event(2));
    let missed = "event: missed\ndata: \n\n";
    assert_eq!(begins(&news, "life/2"), "");
    assert_eq!(begins(&news, "life/1"), two);
    for unknown in ["life/0", "other/1", ""] {
        assert_eq!(begins(&news, unknown), format!("{missed}{one}{two}"));
    }
    assert_eq!(begins(&Broadcast::new(), "life/1"), missed);
}
