//! Servers relieve each other under clients that come anew, again and again: each request is
//! answered, and each server takes its part of them.
//!
//! `FLATPATH_HANDOVERS=300` makes it as many.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::ScopedJoinHandle;

use flatpath_testkit::{Over, Server, handovers, until_true};

const HANDOVERS_MIN: usize = 10;
pub(crate) const CLIENTS: usize = 4;
/// Requests from one hand-over to the next.
const ASKED_MIN: usize = 20;

/// `start` starts a server that takes the sockets over from the last one. `ask` is one request to
/// its listener `name`, by the client of a number, on a connection of its own; what it returns is
/// why the request was lost.
pub(crate) fn relieve_under_crowd(
    name: &str,
    start: impl Fn() -> Server,
    ask: impl Fn(SocketAddr, usize, &mut fastrand::Rng) -> Result<(), String> + Sync,
) {
    let mut current = start();
    let address = current.address(name);
    let (is_over, asked) = (Over::default(), AtomicUsize::new(0));
    let servers = handovers().max(HANDOVERS_MIN);
    let client = |number: usize| {
        let mut random = fastrand::Rng::with_seed(number as u64);
        while !is_over.is_set() {
            let answer = ask(address, number, &mut random);
            answer.unwrap_or_else(|why| panic!("lost: {why}"));
            asked.fetch_add(1, Ordering::Relaxed);
        }
    };
    let client = &client;
    std::thread::scope(|scope| {
        let _ends = is_over.at_end();
        let clients = (0..CLIENTS).map(|number| scope.spawn(move || client(number)));
        let clients: Vec<ScopedJoinHandle<'_, ()>> = clients.collect();
        for _ in 0..servers {
            let before = asked.load(Ordering::Relaxed);
            let next = start();
            assert_eq!(next.address(name), address);
            let mut last = std::mem::replace(&mut current, next);
            assert_eq!(last.exit_status().code(), Some(0), "{}", last.log());
            until_true("clients to be served by the next", || {
                let is_lost = clients.iter().any(ScopedJoinHandle::is_finished);
                is_lost || asked.load(Ordering::Relaxed) > before + ASKED_MIN
            });
        }
        is_over.set();
        let ended = clients.into_iter().map(ScopedJoinHandle::join);
        let lost = ended.filter(Result::is_err).count();
        assert_eq!(lost, 0, "clients whose request was lost");
    });
    println!("{servers} hand-overs, {} requests", asked.into_inner());
    current.terminate();
    assert_eq!(current.exit_status().code(), Some(0), "{}", current.log());
}
