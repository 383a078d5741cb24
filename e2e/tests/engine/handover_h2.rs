//! Servers relieve each other under clients that come anew and speak HTTP/2 in the clear: each says
//! its preface, its settings and its request in as many pieces as may be, and every request is
//! answered, after the settings of the server (RFC 9113 section 3.4).

use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;

use flatpath_testkit::deadline::long_patience;
use flatpath_testkit::{Driver, Launch, Server, Site, binary, each_driver};

use crate::handover_crowd::relieve_under_crowd;
use flatpath_testkit::h2_frames::{
    ACK, DATA, END_STREAM, Frame, GOAWAY, PING, PREFACE, SETTINGS, frame, get, next,
};

each_driver!(no_connection_ends_before_its_reply);

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
    let start = || start(driver, &site, &path);
    relieve_under_crowd("http", start, |address, _, random| ask(address, random));
}
