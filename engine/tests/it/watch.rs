//! Eventfds that network threads watch, on io_uring and on epoll.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::lines::{Lines, choices, cut};
use flatpath::watch::{EventWatch, Eventfd, WatchError};
use flatpath::{Running, Server};
use flatpath_testkit::until_true;

/// Calls of a watch's function, and the sum of what it was called with.
#[derive(Default)]
struct Heard {
    calls: AtomicU64,
    sum: AtomicU64,
}

fn watch(running: &Running) -> (EventWatch, Arc<Heard>) {
    let heard = Arc::<Heard>::default();
    let ours = Arc::clone(&heard);
    let event = Eventfd::new().expect("a descriptor");
    let watch = running.handle().watch(event, move |count| {
        ours.sum.fetch_add(count, Ordering::Relaxed);
        ours.calls.fetch_add(1, Ordering::Relaxed);
    });
    (watch, heard)
}

fn until(what: &str, count: &AtomicU64, wanted: u64) {
    until_true(what, || count.load(Ordering::Relaxed) == wanted);
}

#[test]
fn a_watch_lasts_from_its_start_to_its_stop_and_ends_with_its_owner() {
    for choice in choices() {
        let server = Server::new().driver(choice).network_threads(2);
        let running = server.listen("127.0.0.1:0", Lines).start();
        let running = running.expect("started");
        let (watch, heard) = watch(&running);
        let event = Arc::clone(watch.eventfd());
        event.write(2).expect("room");
        assert_eq!(heard.calls.load(Ordering::Relaxed), 0, "not started");
        watch.start().expect("memory");
        until("what was written before", &heard.sum, 2);
        event.write(3).expect("room");
        until("what was written meanwhile", &heard.sum, 5);
        let calls = heard.calls.load(Ordering::Relaxed);
        watch.start().expect("started already");
        until("a call with zero", &heard.calls, calls + 1);
        watch.stop();
        watch.start().expect("memory");
        event.write(1).expect("room");
        until("what was written after a second start", &heard.sum, 6);
        drop(watch);
        until_true("the function goes with the watch", || {
            Arc::strong_count(&heard) == 1
        });
        event.write(4).expect("room");
        assert_eq!(event.take().expect("left"), 4);
        cut(running);
    }
}

#[test]
fn a_server_that_has_ended_watches_nothing() {
    let server = Server::new().listen("127.0.0.1:0", Lines);
    let running = server.start().expect("started");
    let (watch, heard) = watch(&running);
    cut(running);
    assert_eq!(watch.start(), Err(WatchError::ShutDown));
    assert_eq!(heard.calls.load(Ordering::Relaxed), 0);
}
