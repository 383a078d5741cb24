//! Pipelining: replies in the order of their requests, bounded.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use flatpath::{DriverChoice, Limits, Running, Server};
use flatpath_http::{Head, Http, Request, Response, Route};
use flatpath_testkit::Client;

use crate::on_each_driver;
use crate::serve::{Door, get, serve, start};

on_each_driver!(
    replies_come_in_the_order_of_their_requests,
    a_slow_request_holds_back_the_replies_behind_it_and_nothing_else,
    a_fault_behind_other_requests_waits_for_its_turn,
    nothing_behind_connection_close_is_asked_of_a_handler,
    one_job_at_a_time_serves_everybody,
    little_memory_serves_everybody,
    inline_answers_wait_for_memory_and_are_given_once,
);

/// Sleeps for as many milliseconds as the path says, and answers with the path.
fn sleepy(request: &Request) -> Response {
    let path = request.uri().path();
    let milliseconds = path
        .rsplit('-')
        .next()
        .and_then(|last| last.parse().ok())
        .unwrap_or(0);
    std::thread::sleep(Duration::from_millis(milliseconds));
    Response::new(path.to_owned().into())
}

fn replies_come_in_the_order_of_their_requests(choice: DriverChoice) {
    let route = |head: &Head<'_>| match head.path().ends_with("-0") {
        true => Route::Inline,
        false => Route::Pooled,
    };
    let (_server, address) = serve(choice, Http::routed(route, sleepy));
    let mut client = Client::connect(address);
    let paths: Vec<String> = (0..200)
        .map(|at| format!("/{at}-{}", (at * 7) % 4))
        .collect();
    client.send(paths.iter().map(|path| get(path)).collect::<String>());
    for path in &paths {
        assert_eq!(client.reply().text(), path);
    }
}

fn a_slow_request_holds_back_the_replies_behind_it_and_nothing_else(choice: DriverChoice) {
    let door = Arc::new(Door::default());
    let guard = Arc::clone(&door);
    let handler = move |request: &Request| {
        if request.uri().path() == "/door" {
            guard.pass();
        }
        sleepy(request)
    };
    let (_server, address) = serve(choice, Http::pooled(handler));
    let mut slow = Client::connect(address);
    slow.send(get("/door") + &get("/1").repeat(100));
    door.until_waited(1);
    let mut other = Client::connect(address);
    for _ in 0..20 {
        assert_eq!(other.get("/2").text(), "/2");
    }
    door.open();
    assert_eq!(slow.reply().text(), "/door");
    for _ in 0..100 {
        assert_eq!(slow.reply().text(), "/1");
    }
}

fn a_fault_behind_other_requests_waits_for_its_turn(choice: DriverChoice) {
    let (_server, address) = serve(choice, Http::pooled(sleepy));
    let mut client = Client::connect(address);
    client.send(get("/a-50") + &get("/b-1") + "BAD\r\n\r\n" + &get("/c"));
    assert_eq!(client.reply().text(), "/a-50");
    assert_eq!(client.reply().text(), "/b-1");
    let fault = client.reply();
    assert!(fault.status == 400 && fault.says_close());
    client.finish();
    assert_eq!(client.rest().0, b"");
}

/// Like [`sleepy`], and counts what it is asked for.
fn counting() -> (
    Arc<AtomicUsize>,
    impl Fn(&Request) -> Response + Clone + Send + Sync + 'static,
) {
    let count = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&count);
    let handler = move |request: &Request| {
        counter.fetch_add(1, Ordering::SeqCst);
        sleepy(request)
    };
    (count, handler)
}

/// All that was handed to a worker is done.
fn end(server: Running) {
    server.handle().drain();
    server.wait().expect("the drain is complete");
}

fn nothing_behind_connection_close_is_asked_of_a_handler(choice: DriverChoice) {
    let close = "GET /last HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
    let (count, handler) = counting();
    for (server, address) in [
        serve(choice, Http::inline(handler.clone())),
        serve(choice, Http::prompt(handler.clone())),
        serve(choice, Http::pooled(handler)),
    ] {
        count.store(0, Ordering::SeqCst);
        let mut client = Client::connect(address);
        client.send(get("/first") + close + &get("/never"));
        assert!(!client.reply().says_close());
        let last = client.reply();
        assert!(last.text() == "/last" && last.says_close());
        client.finish();
        assert_eq!(client.rest().0, b"");
        end(server);
        assert_eq!(count.load(Ordering::SeqCst), 2);
    }
}

fn everybody_is_served(choice: DriverChoice, limits: Limits) {
    const CLIENTS: usize = 20;
    const REQUESTS: usize = 30;
    let server = Server::new().workers(2..=4).limits(limits);
    let (_server, address) = start(server, choice, Http::pooled(sleepy));
    std::thread::scope(|scope| {
        for number in 0..CLIENTS {
            scope.spawn(move || {
                let mut client = Client::connect(address);
                let paths: Vec<String> = (0..REQUESTS)
                    .map(|at| format!("/{number}-{at}-0"))
                    .collect();
                client.send(paths.iter().map(|path| get(path)).collect::<String>());
                for path in &paths {
                    assert_eq!(client.reply().text(), path);
                }
            });
        }
    });
}

fn one_job_at_a_time_serves_everybody(choice: DriverChoice) {
    everybody_is_served(
        choice,
        Limits {
            in_flight_max: 1,
            ..Limits::default()
        },
    );
}

fn little_memory_serves_everybody(choice: DriverChoice) {
    everybody_is_served(
        choice,
        Limits {
            buffer_bytes_max: 64 * 1024,
            ..Limits::default()
        },
    );
}

/// Answers of many sizes in a memory that holds few of them: each is made once and arrives once.
fn inline_answers_wait_for_memory_and_are_given_once(choice: DriverChoice) {
    const REQUESTS: usize = 300;
    let made = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&made);
    let handler = move |request: &Request| {
        counter.fetch_add(1, Ordering::SeqCst);
        let bytes = request.uri().path()[1..].parse().unwrap_or(0);
        Response::new(vec![b'x'; bytes].into())
    };
    let limits = Limits {
        buffer_bytes_max: 24 * 1024,
        ..Limits::default()
    };
    let server = Server::new().workers(1..=1).limits(limits);
    let (_server, address) = start(server, choice, Http::inline(handler));
    let bytes = |at: usize| at * 617 % 7000;
    let mut client = Client::connect(address);
    let mut sender = client.twin();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let requests: String = (0..REQUESTS)
                .map(|at| get(&format!("/{}", bytes(at))))
                .collect();
            sender.send(requests);
        });
        for at in 0..REQUESTS {
            assert_eq!(client.reply().body.len(), bytes(at), "reply {at}");
        }
    });
    assert_eq!(made.load(Ordering::SeqCst), REQUESTS);
}
