//! Handlers that are tried on the network thread: when they are, and what falls to workers.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use flatpath::{DriverChoice, on_network_thread};
use flatpath_http::{Answer, Http, Next, Request, Router, routing};
use flatpath_testkit::deadline::is_slow;
use flatpath_testkit::{Client, until_true};

use crate::on_each_driver;
use crate::serve::serve;

on_each_driver!(
    a_handler_that_is_declared_prompt_runs_where_its_request_arrives,
    what_an_attempt_leaves_is_answered_by_its_handler,
    a_handler_that_sleeps_loses_its_right_and_no_other_does,
    a_panic_of_a_try_is_a_500,
);

fn place() -> &'static str {
    match on_network_thread() {
        true => "network",
        false => "worker",
    }
}

fn places(client: &mut Client, path: &str, count: usize) -> Vec<String> {
    let asked = (0..count).map(|_| client.get(path).text().to_owned());
    asked.collect()
}

/// Requests are answered by the network thread, each of them. A machine that is so slow that even
/// such a handler takes long puts it on trial: there it is so again after some.
fn is_tried(client: &mut Client, path: &str, count: usize) {
    if is_slow() {
        return until_true(path, || places(client, path, 1) == ["network"]);
    }
    assert_eq!(
        places(client, path, count),
        vec!["network"; count],
        "{path}"
    );
}

fn a_handler_that_is_declared_prompt_runs_where_its_request_arrives(choice: DriverChoice) {
    let router = Router::new()
        .get("/pooled", place)
        .route("/prompt", routing::get(place).post(place).prompt())
        .nest(
            "/in",
            Router::new().route("/a/{b}", routing::get(place).prompt()),
        );
    for (_server, address) in [
        serve(choice, Http::service(router)),
        serve(choice, Http::prompt(place)),
    ] {
        let mut client = Client::connect(address);
        is_tried(&mut client, "/prompt", 3);
        is_tried(&mut client, "/in/a/7", 2);
        // What has a body is not tried.
        client.send("POST /prompt HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n\r\nx");
        assert_eq!(client.reply().text(), "worker");
    }
    let (_server, address) = serve(choice, Http::pooled(place));
    assert_eq!(places(&mut Client::connect(address), "/", 1), ["worker"]);
}

fn what_an_attempt_leaves_is_answered_by_its_handler(choice: DriverChoice) {
    let at_hand = |request: &Request| (request.uri().query() == Some("hot")).then(place);
    let through = |request: Request, next: &Next<'_>| -> Answer { next.run(request) };
    let routes = || Router::new().route("/", routing::get(place).try_first(at_hand));
    let (_server, address) = serve(choice, Http::service(routes()));
    let mut client = Client::connect(address);
    is_tried(&mut client, "/?hot", 1);
    assert_eq!(places(&mut client, "/", 1), ["worker"]);
    is_tried(&mut client, "/?hot", 1);
    // It must not go past a layer.
    let (_server, address) = serve(choice, Http::service(routes().layer(through)));
    assert_eq!(
        places(&mut Client::connect(address), "/?hot", 2),
        ["worker"; 2]
    );
}

fn a_handler_that_sleeps_loses_its_right_and_no_other_does(choice: DriverChoice) {
    let sleeps = || {
        thread::sleep(Duration::from_millis(20));
        place()
    };
    let router = Router::new()
        .route("/sleeps", routing::get(sleeps).prompt())
        .route("/quick", routing::get(place).prompt());
    let (_server, address) = serve(choice, Http::service(router));
    let mut client = Client::connect(address);
    // The first is a suspect, unless it took very long, the second is watched, and then the right
    // is gone.
    let told = places(&mut client, "/sleeps", 4);
    assert_eq!(
        (&*told[0], &told[2..]),
        ("network", &["worker", "worker"].map(String::from)[..])
    );
    is_tried(&mut client, "/quick", 1);
}

fn a_panic_of_a_try_is_a_500(choice: DriverChoice) {
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    let (_server, address) = serve(
        choice,
        Http::prompt(move || {
            assert!(counted.fetch_add(1, Ordering::Relaxed) > 0, "the first");
            place()
        }),
    );
    let mut client = Client::connect(address);
    assert_eq!(client.get("/").status, 500);
    // A panic that took long to be told of may have cost the right.
    assert_eq!(places(&mut Client::connect(address), "/", 1).len(), 1);
    assert_eq!(calls.load(Ordering::Relaxed), 2);
}
