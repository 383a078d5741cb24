//! Bodies that are fed from elsewhere while they are sent.

use std::net::SocketAddr;
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use flatpath::{DriverChoice, Limits, Server};
use flatpath_http::{Body, Http, Request, Response, SendError, Sender};
use flatpath_testkit::client::{Client, Ending};
use flatpath_testkit::{patience, until_true};

use crate::on_each_driver;
use crate::serve::{cut_off, get, serve, start};

on_each_driver!(
    pieces_arrive_one_by_one_and_no_worker_waits,
    lengths_old_clients_and_head_are_framed_as_ever,
    what_is_cut_looks_cut,
    a_client_that_is_gone_is_known_before_the_next_piece,
    a_slow_reader_holds_its_sender_back,
    a_stream_may_end_in_a_drain_and_is_told_of_it,
    after_a_reply_that_announced_no_end_one_more_request_is_taken,
    a_stream_that_begins_in_a_drain_is_told_of_it,
    what_has_not_ended_when_the_drain_ends_is_cut_off,
    a_network_thread_that_would_wait_for_itself_is_told_that_it_is_full,
);

const STREAMS: usize = 20;

/// Hands a sender out for each request for `/push`; `inline` or by workers.
fn pushing(inline: bool) -> (Http<impl flatpath_http::Service>, Receiver<Sender>) {
    let (streams, taken) = mpsc::channel();
    let handler = move |request: Request| {
        if !request.uri().path().starts_with("/push") {
            return Response::new("plain".into());
        }
        let (sender, body) = Body::channel(1000);
        streams.send(sender).expect("the test waits for it");
        let mut response = Response::new(body);
        if let Some(length) = request.uri().query() {
            let length = length.parse().expect("a number");
            response.headers_mut().insert("content-length", length);
        }
        response
    };
    let route = move |_: &flatpath_http::Head<'_>| match inline {
        true => flatpath_http::Route::Inline,
        false => flatpath_http::Route::Pooled,
    };
    (Http::routed(route, handler), taken)
}

fn next(taken: &Receiver<Sender>) -> Sender {
    taken.recv_timeout(patience()).expect("a request in time")
}

/// A client that has heard the first piece, and who feeds it.
fn begun(
    address: SocketAddr,
    taken: &Receiver<Sender>,
    request: impl AsRef<[u8]>,
) -> (Client, Sender) {
    let mut client = Client::connect(address);
    client.send(request);
    let sender = next(taken);
    sender.send("one").expect("there");
    client.until("one");
    (client, sender)
}

fn pieces_arrive_one_by_one_and_no_worker_waits(choice: DriverChoice) {
    for inline in [false, true] {
        let (http, taken) = pushing(inline);
        let (_server, address) = start(Server::new().workers(2..=2), choice, http);
        let mut streams = Vec::new();
        for _ in 0..STREAMS {
            let mut client = Client::connect(address);
            client.send([get("/push"), get("/behind")].concat());
            streams.push((client, next(&taken)));
        }
        let mut other = Client::connect(address);
        other.send(get("/other"));
        assert_eq!(other.reply().text(), "plain", "workers are free");
        for (client, sender) in &mut streams {
            sender.send("one").expect("there");
            client.until("3\r\none\r\n");
            sender.send("a second").expect("there");
            client.until("8\r\na second\r\n");
        }
        for (mut client, sender) in streams {
            drop(sender);
            client.until("0\r\n\r\n");
            assert_eq!(client.reply().text(), "plain", "it was behind the stream");
        }
    }
}

fn lengths_old_clients_and_head_are_framed_as_ever(choice: DriverChoice) {
    let (http, taken) = pushing(false);
    let (_server, address) = serve(choice, http);
    let mut client = Client::connect(address);
    client.send(get("/push?5"));
    let sender = next(&taken);
    sender.send("hel").expect("there");
    sender.send("lo and more").expect("there");
    assert_eq!(client.reply().text(), "hello");
    client.send("HEAD /push HTTP/1.1\r\nHost: h\r\n\r\n");
    let sender = next(&taken);
    until_true("the end", || sender.is_closed());
    client.until("\r\n\r\n");
    client.send("GET /push HTTP/1.0\r\nHost: h\r\n\r\n");
    let sender = next(&taken);
    sender.send("old").expect("there");
    drop(sender);
    client.until("\r\n\r\nold");
    assert_eq!(client.rest().1, Ending::Closed);
}

fn what_is_cut_looks_cut(choice: DriverChoice) {
    for (request, ending) in [
        (get("/push"), Ending::Closed),
        (get("/push?9"), Ending::Closed),
        (
            "GET /push HTTP/1.0\r\nHost: h\r\n\r\n".into(),
            Ending::Reset,
        ),
    ] {
        let (http, taken) = pushing(false);
        let (_server, address) = serve(choice, http);
        let (mut client, sender) = begun(address, &taken, request);
        sender.abort();
        assert_eq!(client.rest().1, ending);
    }
}

fn a_client_that_is_gone_is_known_before_the_next_piece(choice: DriverChoice) {
    let (http, taken) = pushing(false);
    let (_server, address) = serve(choice, http);
    let (client, sender) = begun(address, &taken, get("/push"));
    drop(client);
    until_true("the client's end", || sender.is_closed());
    assert!(sender.send("two").is_err());
}

fn a_slow_reader_holds_its_sender_back(choice: DriverChoice) {
    const BYTES: usize = 16 << 20;
    let (http, taken) = pushing(false);
    let (_server, address) = serve(choice, http);
    let mut client = Client::connect(address);
    client.send(get(&format!("/push?{BYTES}")));
    let sender = next(&taken);
    let mut sent = 0;
    while sender.try_send(vec![b'x'; 1000]).is_ok() {
        sent += 1000;
        std::thread::yield_now();
        assert!(sent < BYTES, "nothing was read, and all was taken");
    }
    let feeder = std::thread::spawn(move || {
        while sent < BYTES {
            sender.send(vec![b'x'; 1000]).expect("it is read");
            sent += 1000;
        }
    });
    assert_eq!(client.reply().body.len(), BYTES);
    feeder.join().expect("no panic");
}

fn a_stream_may_end_in_a_drain_and_is_told_of_it(choice: DriverChoice) {
    let (http, taken) = pushing(false);
    let (server, address) = serve(choice, http);
    let (mut client, sender) = begun(address, &taken, get("/push"));
    server.handle().drain();
    until_true("the drain", || sender.is_draining());
    sender.send("last words").expect("there");
    drop(sender);
    client.until("last words\r\n0\r\n\r\n");
    assert_eq!(client.rest().1, Ending::Closed);
    server.wait().expect("ends");
}

fn after_a_reply_that_announced_no_end_one_more_request_is_taken(choice: DriverChoice) {
    for inline in [false, true] {
        let limits = Limits {
            // The client takes its time: a test that waits for this fails.
            drain_idle_timeout: Duration::from_secs(600),
            drain_timeout: Duration::from_secs(600),
            ..Limits::default()
        };
        let (http, taken) = pushing(inline);
        let (server, address) = start(Server::new().limits(limits), choice, http);
        let (mut client, sender) = begun(address, &taken, get("/push"));
        server.handle().drain();
        until_true("the drain", || sender.is_draining());
        drop(sender);
        client.until("0\r\n\r\n");
        let next = client.get("/next");
        assert!(next.text() == "plain" && next.says_close());
        assert_eq!(client.rest(), (Vec::new(), Ending::Closed));
        server.wait().expect("ends");
    }
}

fn a_stream_that_begins_in_a_drain_is_told_of_it(choice: DriverChoice) {
    let (streams, taken) = mpsc::channel();
    let (arrived, arrivals) = mpsc::channel();
    let (open, gate) = mpsc::channel();
    let gate = std::sync::Mutex::new(gate);
    let handler = move |request: Request| {
        if request.uri().path() == "/late" {
            arrived.send(()).expect("the test waits for it");
            let gate = gate.lock().expect("sound");
            gate.recv_timeout(patience()).expect("the drain in time");
        }
        let (sender, body) = Body::channel(1000);
        streams.send(sender).expect("the test waits for it");
        Response::new(body)
    };
    let (server, address) = serve(choice, Http::pooled(handler));
    let (_client, early) = begun(address, &taken, get("/early"));
    let mut client = Client::connect(address);
    client.send(get("/late"));
    arrivals.recv_timeout(patience()).expect("its request");
    server.handle().drain();
    until_true("the drain", || early.is_draining());
    open.send(()).expect("the handler waits");
    let late = next(&taken);
    until_true("the drain of the late stream", || late.is_draining());
    drop((early, late));
    client.until("\r\n0\r\n\r\n");
    server.wait().expect("ends");
}

fn what_has_not_ended_when_the_drain_ends_is_cut_off(choice: DriverChoice) {
    let limits = Limits {
        drain_timeout: Duration::from_millis(100),
        ..Limits::default()
    };
    let (http, taken) = pushing(false);
    let (server, address) = start(Server::new().limits(limits), choice, http);
    let (mut client, sender) = begun(address, &taken, get("/push"));
    server.handle().drain();
    assert_eq!(client.rest().1, Ending::Reset);
    cut_off(server);
    assert_eq!(sender.send("two"), Err(SendError::Closed));
}

fn a_network_thread_that_would_wait_for_itself_is_told_that_it_is_full(choice: DriverChoice) {
    let http = Http::inline(|_: Request| {
        let (sender, body) = Body::channel(3);
        sender.send("one").expect("nothing has closed it");
        // There is no room for it, and this is the thread that would make some.
        assert_eq!(sender.send("two"), Err(SendError::Full));
        Response::new(body)
    });
    let (_server, address) = serve(choice, http);
    let mut client = Client::connect(address);
    client.send(get("/"));
    let reply = client.reply();
    assert_eq!((reply.status, &reply.body[..]), (200, &b"one"[..]));
}
