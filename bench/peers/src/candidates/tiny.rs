//! `tiny_http`: blocking handlers on a fixed number of threads, the way its own example does it.

use std::io;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::thread;

use tiny_http::{Response, Server};

use flatpath_bench_common::nginx::HELLO_BODY;

use super::serve::{SLEEP, SLEEP_PATH, announce};

/// The number its documentation uses.
const THREADS: u32 = 4;

/// Runs until the process is ended.
///
/// # Errors
/// If it cannot listen or start its threads.
pub(super) fn run(workers: Option<u32>) -> io::Result<()> {
    let server = Server::http((Ipv4Addr::LOCALHOST, 0)).map_err(io::Error::other)?;
    let server = Arc::new(server);
    let address = server.server_addr().to_ip();
    let address = address.ok_or_else(|| io::Error::other("does not listen on an IP address"))?;
    let mut threads = Vec::new();
    for number in 0..workers.unwrap_or(THREADS) {
        let server = Arc::clone(&server);
        let builder = thread::Builder::new().name(format!("tiny {number}"));
        threads.push(builder.spawn(move || answer_all(&server))?);
    }
    announce("http", address)?;
    for handle in threads {
        if let Ok(outcome) = handle.join() {
            outcome?;
        }
    }
    Ok(())
}

fn answer_all(server: &Server) -> io::Result<()> {
    loop {
        let request = server.recv()?;
        if request.url() == SLEEP_PATH {
            thread::sleep(SLEEP);
        }
        // A client that goes away in the middle is its own affair.
        let _ = request.respond(Response::from_string(HELLO_BODY));
    }
}
