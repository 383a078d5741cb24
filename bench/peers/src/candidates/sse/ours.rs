//! Flatpath with a broadcast: a thread of the program's own sends, and no worker holds a listener.

use std::io;
use std::thread;
use std::time::{Duration, Instant};

use flatpath_bench_common::nginx::{HELLO_BODY, HELLO_PATH};
use flatpath_http::sse::{Broadcast, Event};
use flatpath_http::{Http, Response, Router, State};

use super::super::ours::run_with;
use super::super::serve::Serve;
use super::{EVENTS_PATH, event, interval};

/// Runs until the process is ended.
///
/// # Errors
/// If there is no thread to be had, what the engine reports, or a driver that is none.
pub(in super::super) fn run(serve: &Serve) -> io::Result<()> {
    let listeners = Broadcast::new();
    let (sender, every) = (listeners.clone(), interval(serve));
    let builder = thread::Builder::new().name("events".into());
    builder.spawn(move || send_all(&sender, every))?;
    let app = Router::new()
        .get(EVENTS_PATH, listen)
        .get(HELLO_PATH, || HELLO_BODY)
        .with_state(listeners);
    run_with(serve, Http::service(app))
}

fn send_all(listeners: &Broadcast, every: Duration) {
    let mut next = Instant::now();
    for number in 0.. {
        listeners.send(Event::new().data(event(number)));
        next += every;
        thread::sleep(next.saturating_duration_since(Instant::now()));
    }
}

fn listen(State(listeners): State<Broadcast>) -> Response {
    listeners.response()
}
