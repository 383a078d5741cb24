//! tokio and hyper, as their documentation shows them.
//!
//! | server | runtime | handler |
//! |---|---|---|
//! | inline | current thread | in the future |
//! | blocking | two threads | `spawn_blocking`, for every request or for sleepers only |

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::Ipv4Addr;
use std::thread;

use http::{HeaderValue, Request, Response, header};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};
use tokio::task;

use flatpath_bench_common::nginx::HELLO_BODY;

use super::serve::{SLEEP, SLEEP_PATH, announce};

/// Threads of the runtime when handlers run beside it.
pub(super) const NETWORK_THREADS: usize = 2;

/// Which requests go through `spawn_blocking`.
#[derive(Clone, Copy, Debug)]
pub(super) enum Blocking {
    /// All of them: it is not known which ones block.
    Everything,
    /// Only those that sleep: what a careful author writes.
    Sleepers,
}

/// The runtime of `#[tokio::main]`; with a number of workers, one with [`NETWORK_THREADS`] and with
/// that many threads that may block.
///
/// # Errors
/// If its threads cannot be started.
pub(super) fn runtime(workers: Option<u32>) -> io::Result<Runtime> {
    let mut builder = Builder::new_multi_thread();
    builder.enable_all();
    if let Some(workers) = workers {
        builder.worker_threads(NETWORK_THREADS);
        builder.max_blocking_threads(workers as usize);
    }
    builder.build()
}

/// Answers in the future itself, on one thread.
///
/// # Errors
/// If the runtime or the listener cannot be made.
pub(super) fn inline() -> io::Result<()> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    serve(&runtime, |_request| async { Ok(hello()) })
}

/// Answers through the pool of blocking threads.
///
/// # Errors
/// If the runtime or the listener cannot be made.
pub(super) fn blocking(workers: Option<u32>, which: Blocking) -> io::Result<()> {
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(NETWORK_THREADS).enable_all();
    if let Some(workers) = workers {
        builder.max_blocking_threads(workers as usize);
    }
    let runtime = builder.build()?;
    serve(&runtime, move |request: Request<Incoming>| async move {
        let sleeps = request.uri().path() == SLEEP_PATH;
        if !sleeps && matches!(which, Blocking::Sleepers) {
            return Ok(hello());
        }
        let answer = task::spawn_blocking(move || {
            if sleeps {
                thread::sleep(SLEEP);
            }
            hello()
        });
        // The handler does not panic; a runtime that shuts down ends the process anyway.
        Ok(answer
            .await
            .unwrap_or_else(|_error| Response::new(Full::default())))
    })
}

fn serve<H, A>(runtime: &Runtime, handler: H) -> io::Result<()>
where
    H: Fn(Request<Incoming>) -> A + Copy + Send + 'static,
    A: Future<Output = Result<Response<Full<Bytes>>, Infallible>> + Send + 'static,
{
    runtime.block_on(async move {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        announce("http", listener.local_addr()?)?;
        loop {
            let (socket, _) = listener.accept().await?;
            socket.set_nodelay(true)?;
            task::spawn(async move {
                let connection = http1::Builder::new()
                    .timer(TokioTimer::new())
                    .serve_connection(TokioIo::new(socket), service_fn(handler));
                // A client that goes away in the middle is its own affair.
                let _ = connection.await;
            });
        }
    })
}

fn hello() -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from_static(HELLO_BODY.as_bytes())));
    let headers = response.headers_mut();
    headers.insert(header::SERVER, HeaderValue::from_static("hyper"));
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    response
}
