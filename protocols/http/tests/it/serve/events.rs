//! Server-sent events: to one client, to all, and how their streams end.

use std::time::Duration;

use flatpath::{DriverChoice, Limits, Server};
use flatpath_http::sse::{self, Broadcast, Event};
use flatpath_http::{Http, Request, Response};
use flatpath_testkit::client::{Client, Ending};
use flatpath_testkit::until_true;

use crate::on_each_driver;
use crate::serve::{get, serve, start};

on_each_driver!(
    every_listener_gets_every_event_and_no_worker_waits,
    listeners_that_join_while_events_are_sent_miss_none,
    what_happened_before_comes_first,
    a_listener_that_leaves_is_forgotten_at_once,
    a_stream_that_rests_is_kept_alive,
    a_drain_ends_every_stream_at_once,
    streams_end_with_what_sends_to_them,
    events_for_one_client_come_with_the_right_headers,
);

/// More than are woken at a time.
const LISTENERS: usize = 150;

fn broadcasting(pooled: bool) -> (Http<impl flatpath_http::Service>, Broadcast) {
    let news = Broadcast::new();
    let listen = news.clone();
    let handler = move |request: Request| match request.uri().path() {
        "/events" => listen.response(),
        _ => Response::new("plain".into()),
    };
    let route = move |_: &flatpath_http::Head<'_>| match pooled {
        true => flatpath_http::Route::Pooled,
        false => flatpath_http::Route::Inline,
    };
    (Http::routed(route, handler), news)
}

fn listeners(address: std::net::SocketAddr, news: &Broadcast, count: usize) -> Vec<Client> {
    let mut clients: Vec<_> = (0..count).map(|_| Client::connect(address)).collect();
    for client in &mut clients {
        client.send(get("/events"));
        client.until("\r\n\r\n");
    }
    until_true("every listener", || news.listeners() == count);
    clients
}

fn every_listener_gets_every_event_and_no_worker_waits(choice: DriverChoice) {
    for pooled in [false, true] {
        let (http, news) = broadcasting(pooled);
        let server = Server::new().workers(2..=2).network_threads(2);
        let (_server, address) = start(server, choice, http);
        let mut clients = listeners(address, &news, LISTENERS);
        let mut other = Client::connect(address);
        other.send(get("/other"));
        assert_eq!(other.reply().text(), "plain", "workers are free");
        for number in 0..20 {
            news.send(Event::new().id(number.to_string()).data("hello"));
        }
        for client in &mut clients {
            for number in 0..20 {
                client.until(&format!("id: {number}\ndata: hello\n\n\r\n"));
            }
        }
    }
}

/// The number after `id: ` in the next event.
fn next_id(client: &mut Client) -> usize {
    client.until("id: ");
    client.line().parse().expect("a number")
}

fn listeners_that_join_while_events_are_sent_miss_none(choice: DriverChoice) {
    const EVENTS: usize = 2000;
    let news = Broadcast::with_history(EVENTS);
    let listen = news.clone();
    let http = Http::inline(move |_: Request| listen.response());
    let (_server, address) = start(Server::new().network_threads(2), choice, http);
    let sender = std::thread::spawn(move || {
        for number in 0..EVENTS {
            news.send(Event::new().id(number.to_string()).data("x"));
            std::thread::yield_now();
        }
        until_true("a listener", || news.listeners() > 0);
        news.send(Event::new().id(EVENTS.to_string()).data("last"));
        news
    });
    let mut clients = Vec::new();
    while !sender.is_finished() || clients.is_empty() {
        let mut client = Client::connect(address);
        client.send(get("/"));
        client.until("\r\n\r\n");
        clients.push(client);
        if clients.len() == LISTENERS {
            break;
        }
    }
    let news = sender.join().expect("no panic");
    // Those who joined after all else get this one.
    news.send(Event::new().id((EVENTS + 1).to_string()).data("end"));
    for client in &mut clients {
        let mut id = next_id(client);
        while id <= EVENTS {
            let next = next_id(client);
            assert_eq!(next, id + 1, "none is missing");
            id = next;
        }
    }
}

fn what_happened_before_comes_first(choice: DriverChoice) {
    let news = Broadcast::new();
    let listen = news.clone();
    let http = Http::inline(move |_: Request| {
        let before = ["one", "two"].map(Event::from);
        listen.response_after(before)
    });
    let (_server, address) = serve(choice, http);
    let mut client = Client::connect(address);
    client.send(get("/"));
    client.until("\r\n\r\n16\r\ndata: one\n\ndata: two\n\n\r\n");
    news.send("three");
    client.until("d\r\ndata: three\n\n\r\n");
}

fn a_listener_that_leaves_is_forgotten_at_once(choice: DriverChoice) {
    let (http, news) = broadcasting(false);
    let (_server, address) = serve(choice, http);
    let mut clients = listeners(address, &news, 3);
    clients.remove(1);
    until_true("it is gone", || news.listeners() == 2);
    news.send("still");
    for client in &mut clients {
        client.until("data: still\n\n");
    }
}

fn a_stream_that_rests_is_kept_alive(choice: DriverChoice) {
    let limits = Limits {
        push_interval: Duration::from_millis(10),
        ..Limits::default()
    };
    let (http, news) = broadcasting(true);
    let (_server, address) = start(Server::new().limits(limits), choice, http);
    let mut clients = listeners(address, &news, 2);
    for client in &mut clients {
        client.until("3\r\n:\n\n\r\n3\r\n:\n\n\r\n");
    }
    news.send("after");
    for client in &mut clients {
        client.until("d\r\ndata: after\n\n\r\n");
        client.until("3\r\n:\n\n\r\n");
    }
}

fn a_drain_ends_every_stream_at_once(choice: DriverChoice) {
    let limits = Limits {
        // A test that waits for it fails.
        drain_timeout: Duration::from_secs(600),
        ..Limits::default()
    };
    let (http, news) = broadcasting(false);
    let (server, address) = start(Server::new().limits(limits), choice, http);
    let clients = listeners(address, &news, 3);
    news.send("last");
    server.handle().drain();
    for mut client in clients {
        client.until("data: last\n\n\r\n0\r\n\r\n");
        assert_eq!(client.rest().1, Ending::Closed);
    }
    server.wait().expect("ends");
    assert_eq!(news.listeners(), 0);
}

fn streams_end_with_what_sends_to_them(choice: DriverChoice) {
    let news = Broadcast::new();
    let (one, all) = sse::channel();
    let responses = std::sync::Mutex::new(vec![all, news.response()]);
    let http = Http::pooled(move |_: Request| {
        let mut responses = responses.lock().expect("whole");
        responses.pop().expect("two requests")
    });
    let (_server, address) = serve(choice, http);
    let mut clients = [Client::connect(address), Client::connect(address)];
    for client in &mut clients {
        client.send(get("/"));
        client.until("\r\n\r\n");
    }
    one.send("bye").expect("there");
    news.send("bye");
    drop((one, news));
    for client in &mut clients {
        client.until("b\r\ndata: bye\n\n\r\n0\r\n\r\n");
    }
}

fn events_for_one_client_come_with_the_right_headers(choice: DriverChoice) {
    let http = Http::inline(|_: Request| {
        let (events, response) = sse::channel();
        events.try_send("at once").expect("there is room");
        std::thread::spawn(move || {
            while events.send("again").is_ok() {
                std::thread::yield_now();
            }
        });
        response
    });
    let (server, address) = serve(choice, http);
    let mut client = Client::connect(address);
    client.send("GET / HTTP/1.0\r\n\r\n");
    client.until("Content-Type: text/event-stream\r\n");
    client.until("Cache-Control: no-store\r\n");
    client.until("\r\n\r\ndata: at once\n\n");
    client.until("data: again\n\n");
    server.handle().drain();
    assert_eq!(client.rest().1, Ending::Closed);
    server.wait().expect("ends");
}
