//! A handler that is tried on a network thread and sleeps there: its route loses the right, which
//! the log and the metrics say, and nothing else does. On both drivers.

use std::thread;
use std::time::Duration;

use flatpath_admin::Admin;
use flatpath_admin::flatpath::{DriverChoice, Server, on_network_thread};
use flatpath_http::{Http, Request, Router, routing};
use flatpath_testkit::Driver;
use flatpath_testkit::logged::Logged;
use log::LevelFilter;

use crate::get::get;

/// Longer than any try should take, and so short that no other bound is met.
const SLEEP: Duration = Duration::from_millis(20);
const TRIES: usize = 5;

fn place() -> &'static str {
    match on_network_thread() {
        true => "network",
        false => "worker",
    }
}

fn sleeps() -> &'static str {
    thread::sleep(SLEEP);
    place()
}

/// Sleeps where it should not, and leaves the request to its handler.
fn sleeps_in_vain(_: &Request) -> Option<&'static str> {
    thread::sleep(SLEEP);
    None
}

fn a_route_that_sleeps_loses_its_right(choice: DriverChoice) {
    let logged = Logged::begin(LevelFilter::Warn);
    let [slow, vain, quick] = ["slow", "vain", "quick"].map(|name| format!("/{name}-{choice:?}"));
    let router = Router::new()
        .route(&slow, routing::get(sleeps).prompt())
        .route(&vain, routing::get(place).try_first(sleeps_in_vain))
        .route(&quick, routing::get(place).prompt());
    let server = Server::new().driver(choice).network_threads(1);
    let server = server.listen("127.0.0.1:0", Http::service(router));
    let running = server.start().expect("it starts");
    let address = running.listeners()[0].address.internet().expect("TCP");
    let admin = Admin::new();
    admin.attach(running.handle());
    let beside = admin.serve("127.0.0.1:0").expect("free");
    let shown = beside.listeners()[0].address.internet().expect("TCP");
    let lost = || -> f64 {
        let metrics = get(shown, "/metrics");
        let samples = metrics.lines().filter_map(|line| line.rsplit_once(' '));
        let lost =
            samples.filter(|(name, _)| name.starts_with("flatpath_prompt_rights_lost_total{"));
        lost.map(|(_, value)| value.parse::<f64>().expect("a number"))
            .sum()
    };
    let names = |path: &str| {
        let start = format!("GET {path}: blocked the network thread for ");
        let end = " ms; using workers for 10 s";
        logged.count(|line| line.starts_with(&start) && line.ends_with(end))
    };
    let answers = |path: &str| -> Vec<bool> {
        let answered = (0..TRIES).map(|_| get(address, path).ends_with("network"));
        answered.collect()
    };
    assert!(lost() == 0.0, "nothing has slept yet");
    // The first is a suspect, and the second is watched, unless the first took very long.
    let slow_answers = answers(&slow);
    assert_eq!(
        (slow_answers[0], &slow_answers[2..]),
        (true, &[false; TRIES - 2][..])
    );
    assert!(lost() == 1.0 && names(&slow) == 1);
    assert_eq!(answers(&vain), [false; TRIES], "its handler answers");
    assert!(lost() == 2.0 && names(&vain) == 1);
    assert_eq!(answers(&quick), [true; TRIES]);
    assert!(lost() == 2.0 && names(&quick) == 0);
}

#[test]
fn a_route_that_sleeps_loses_its_right_on_uring() {
    if Driver::Uring.is_here() {
        a_route_that_sleeps_loses_its_right(DriverChoice::Uring);
    }
}

#[test]
fn a_route_that_sleeps_loses_its_right_on_epoll() {
    a_route_that_sleeps_loses_its_right(DriverChoice::Epoll);
}
