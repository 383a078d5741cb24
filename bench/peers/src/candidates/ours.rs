//! Flatpath through its public library, as a user of it writes a server.
//!
//! | server | where the handler runs |
//! |---|---|
//! | inline | on the network thread |
//! | pooled | on workers |
//! | routed | on workers for the path that sleeps, else on the network thread |

use std::io;
use std::thread;

use flatpath::{Limits, Protocol, Server, SignalWatch};
use flatpath_http::{Head, Http, Request, Response, Route};
use http::{HeaderValue, header};

use flatpath_bench_common::nginx::HELLO_BODY;

use super::serve::{SLEEP, SLEEP_PATH, Serve, announce, driver};

/// Where the handler runs.
#[derive(Clone, Copy, Debug)]
pub(super) enum Place {
    /// On the network thread.
    Inline,
    /// On workers.
    Pooled,
    /// Sleepers on workers, the others on the network thread.
    Routed,
}

/// Runs until the process is ended.
///
/// # Errors
/// What the engine reports, or a driver that is none.
pub(super) fn run(serve: &Serve, place: Place) -> io::Result<()> {
    match place {
        Place::Inline => run_with(serve, Http::inline(answer)),
        Place::Pooled => run_with(serve, Http::pooled(answer)),
        Place::Routed => run_with(serve, Http::routed(route, answer)),
    }
}

/// The same for any protocol.
///
/// # Errors
/// As [`run`].
pub(super) fn run_with(serve: &Serve, protocol: impl Protocol) -> io::Result<()> {
    let connections_max = serve.max_connections as usize;
    let mut server = Server::new()
        .driver(driver(&serve.driver)?)
        .limits(Limits {
            connections_max,
            ..Limits::default()
        })
        .listen("127.0.0.1:0", protocol);
    if let Some(workers) = serve.workers {
        server = server.workers(workers..=workers);
    }
    let signals = SignalWatch::begin().map_err(io::Error::other)?;
    let running = server.start().map_err(io::Error::other)?;
    let bound = running.addresses().first();
    let bound = bound.ok_or_else(|| io::Error::other("the server has no listener"))?;
    announce(bound.name, bound.address)?;
    signals.run(running).map_err(io::Error::other)
}

fn route(head: &Head<'_>) -> Route {
    if head.path() == SLEEP_PATH {
        Route::Pooled
    } else {
        Route::Inline
    }
}

fn answer(request: &Request) -> Response {
    if request.uri().path() == SLEEP_PATH {
        thread::sleep(SLEEP);
    }
    let mut response = Response::new(HELLO_BODY.into());
    let headers = response.headers_mut();
    headers.insert(header::SERVER, HeaderValue::from_static("flatpath"));
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    response
}
