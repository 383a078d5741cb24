//! Servers relieve each other under clients that come anew and speak HTTP/2 in the clear: each says
//! its preface, its settings and its request in as many pieces as may be, and every request is
//! answered, after the settings of the server (RFC 9113 section 3.4).
//!
//! `FLATPATH_HANDOVERS=300` makes it as many.

use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::ScopedJoinHandle;

use flatpath_testkit::deadline::long_patience;
use flatpath_testkit::{
    Driver, Launch, Over, Server, Site, binary, each_driver, handovers, until_true,
};

use crate::h2_frames::{
    ACK, DATA, END_STREAM, Frame, GOAWAY, PING, PREFACE, SETTINGS, frame, get, next,
};

each_driver!(no_connection_ends_before_its_reply);

const HANDOVERS_MIN: usize = 10;
const CLIENTS: usize = 4;
/// Requests from one hand-over to the next.
const ASKED_MIN: usize = 20;

fn start(driver: Driver, site: &Site, path: &Path) -> Server {
    let launch = Launch::new(binary::flatpath().to_path_buf());
    let launch = launch.with(["serve", "--driver", driver.name()]);
    let launch = launch.with(["--http", "127.0.0.1:0", "--handover"]);
    launch.with([path]).directory(site.path()).start()
}

/// One request on a connection of its own.
fn ask(address: SocketAddr, random: &mut fastrand::Rng) -> Result<(), String> {
    let mut stream = TcpStream::connect(address).map_err(|error| format!("connect: {error}"))?;
    stream.set_nodelay(true).expect("an option");
    stream
        .set_read_timeout(Some(long_patience()))
        .expect("a deadline");
    let settings = frame(SETTINGS, 0, 0, &[]);
    let said = [PREFACE, &settings, &get(1, "localhost", "/file")].concat();
    let mut heard = Vec::new();
    let mut exchange = || {
        let mut left = &said[..];
        while !left.is_empty() {
            let (piece, rest) = left.split_at(random.usize(1..=left.len()));
            stream.write_all(piece)?;
            left = rest;
            if random.bool() {
                std::thread::yield_now();
            }
        }
        loop {
            let Frame {
                kind,
                flags,
                payload,
                ..
            } = next(&mut stream)?;
            heard.push((kind, flags));
            match kind {
                PING if flags & ACK == 0 => stream.write_all(&frame(PING, ACK, 0, &payload))?,
                // Its request is within what is answered (RFC 9113 section 6.8).
                GOAWAY => assert_ne!(payload[..4], [0; 4], "told to go before it has asked"),
                DATA if flags & END_STREAM != 0 => return Ok(payload),
                _ => {}
            }
        }
    };
    let body: std::io::Result<Vec<u8>> = exchange();
    let body = body.map_err(|error| format!("{error}, after {heard:?}"))?;
    let is_greeted = heard.first().is_some_and(|(kind, _)| *kind == SETTINGS);
    let is_right = body == b"contents" && is_greeted;
    is_right.then_some(()).ok_or(format!("{heard:?}, {body:?}"))
}

fn no_connection_ends_before_its_reply(driver: Driver) {
    let (site, run) = (Site::new().with("file", "contents"), Site::new());
    let path = run.at("next");
    let mut current = start(driver, &site, &path);
    let address = current.address("http");
    let (is_over, asked) = (Over::default(), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        let _ends = is_over.at_end();
        let client = |seed: usize| {
            let mut random = fastrand::Rng::with_seed(seed as u64);
            while !is_over.is_set() {
                ask(address, &mut random).unwrap_or_else(|why| panic!("lost: {why}"));
                asked.fetch_add(1, Ordering::Relaxed);
            }
        };
        let clients = (0..CLIENTS).map(|seed| scope.spawn(move || client(seed)));
        let clients: Vec<ScopedJoinHandle<'_, ()>> = clients.collect();
        for _ in 0..handovers().max(HANDOVERS_MIN) {
            let before = asked.load(Ordering::Relaxed);
            let next = start(driver, &site, &path);
            assert_eq!(next.address("http"), address);
            let mut last = std::mem::replace(&mut current, next);
            assert_eq!(last.exit_status().code(), Some(0), "{}", last.log());
            until_true("clients to be served by the next", || {
                let is_lost = clients.iter().any(ScopedJoinHandle::is_finished);
                is_lost || asked.load(Ordering::Relaxed) > before + ASKED_MIN
            });
        }
        is_over.set();
        let ended = clients.into_iter().map(ScopedJoinHandle::join);
        assert!(
            ended.filter(Result::is_err).count() == 0,
            "requests were lost"
        );
    });
}
