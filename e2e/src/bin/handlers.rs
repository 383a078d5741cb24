//! A server made with the library, whose handlers block, panic, never return or stream on request.
//!
//! `handlers [--NAME VALUE]...` understands the names of `flatpath serve` that its tests use,
//! listens on free ports for HTTP and echo, and prints them as `flatpath serve` does.
#![forbid(unsafe_code)]

use std::io::{self, Cursor, Read};
use std::process::ExitCode;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use flatpath::{Bytes, DriverChoice, DriverConfig, Limits, Server, SignalWatch};
use flatpath_echo::Echo;
use flatpath_http::sse::Broadcast;
use flatpath_http::{Body, Head, Http, Request, Response, Route};
use flatpath_testkit::noise;
use http::StatusCode;

/// Nothing is sent, all may listen.
static EVENTS: LazyLock<Broadcast> = LazyLock::new(Broadcast::new);

/// Handlers that have begun and not ended.
static ACTIVE: AtomicUsize = AtomicUsize::new(0);

fn main() -> ExitCode {
    env_logger::init();
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("handlers: {why}");
            ExitCode::from(1)
        }
    }
}

fn run() -> Result<(), String> {
    let server = configured(std::env::args().skip(1))?;
    let server = server.listen("127.0.0.1:0", Http::routed(route, answer));
    let server = server.listen("127.0.0.1:0", Echo);
    let signals = SignalWatch::begin().map_err(|error| error.to_string())?;
    let signals = signals.reloading(|| eprintln!("handlers: reloading"));
    let running = server.start().map_err(|error| error.to_string())?;
    for bound in running.addresses() {
        println!("listening {} {}", bound.name, bound.address);
    }
    println!("ready");
    signals.run(running).map_err(|error| error.to_string())
}

/// A server with what the command line says.
fn configured(mut arguments: impl Iterator<Item = String>) -> Result<Server, String> {
    let (mut server, mut limits) = (Server::new(), Limits::default());
    let mut driver = DriverConfig::default();
    while let Some(name) = arguments.next() {
        let value = arguments
            .next()
            .ok_or_else(|| format!("{name} wants a value"))?;
        match name.as_str() {
            "--driver" if value == "uring" => server = server.driver(DriverChoice::Uring),
            "--driver" if value == "epoll" => server = server.driver(DriverChoice::Epoll),
            "--workers" => {
                let (least, most) = value.split_once("..").ok_or("workers are MIN..MAX")?;
                server = server.workers(number(least)?..=number(most)?);
            }
            "--receive-buffers" => driver.receive_buffers = number(&value)?,
            "--completion-entries" => driver.completion_entries = number(&value)?,
            "--in-flight" => limits.in_flight_max = number(&value)?,
            "--max-connections" => limits.connections_max = number(&value)?,
            "--buffer-bytes" => limits.buffer_bytes_max = number(&value)?,
            "--body-grace" => limits.body_timeout = seconds(&value)?,
            "--body-rate-min" => limits.body_rate_min = number(&value)?,
            "--drain-delay" => limits.drain_delay = seconds(&value)?,
            "--drain-timeout" => limits.drain_timeout = seconds(&value)?,
            _ => return Err(format!("there is no {name} {value}")),
        }
    }
    Ok(server.limits(limits).driver_config(driver))
}

fn number<N: std::str::FromStr>(text: &str) -> Result<N, String> {
    text.parse().map_err(|_| format!("not a number: {text}"))
}

/// Seconds, as `flatpath serve` takes them.
fn seconds(text: &str) -> Result<Duration, String> {
    number(text).map(Duration::from_secs)
}

fn route(head: &Head<'_>) -> Route {
    match head.path() {
        "/hello" | "/active" | "/events" | "/panic-inline" => Route::Inline,
        path if path.starts_with("/number/") => Route::Inline,
        _ => Route::Pooled,
    }
}

fn answer(request: &Request) -> Response {
    let _active = Active::begin(request.uri().path());
    let path = request.uri().path();
    let (name, rest) = path[1..].split_once('/').unwrap_or((&path[1..], ""));
    match name {
        "hello" => fixed("hello"),
        "pooled" => fixed("pooled"),
        "number" => text(rest.into()),
        "active" => text(ACTIVE.load(Ordering::Relaxed).to_string()),
        "panic" | "panic-inline" => panic!("{name}: on purpose"),
        "events" => EVENTS.response(),
        "never" => loop {
            std::thread::park();
        },
        "sleep" => {
            std::thread::sleep(Duration::from_millis(rest.parse().unwrap_or_default()));
            text(format!("slept {rest}"))
        }
        "echo" => {
            let pieces: Vec<u8> = request.body().pieces().flatten().copied().collect();
            Response::new(Body::Bytes(pieces.into()))
        }
        "stream" => {
            let length = rest.parse().unwrap_or_default();
            streamed(Cursor::new(noise(length as u64, length)), None)
        }
        "zeros" => streamed(io::repeat(0).take(rest.parse().unwrap_or_default()), None),
        "broken" => {
            let length = (rest == "length").then_some(1_000_000);
            streamed(io::repeat(b'b').take(300_000).chain(Broken), length)
        }
        _ => {
            let mut response = fixed("there is no such handler");
            *response.status_mut() = StatusCode::NOT_FOUND;
            response
        }
    }
}

fn fixed(text: &'static str) -> Response {
    Response::new(Body::Bytes(Bytes::from_static(text.as_bytes())))
}

fn text(text: String) -> Response {
    Response::new(Body::Bytes(text.into()))
}

fn streamed(source: impl Read + Send + 'static, length: Option<u64>) -> Response {
    Response::new(Body::reader(source, length))
}

/// A reader that fails at once.
struct Broken;

impl Read for Broken {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        Err(io::Error::other("broken on purpose"))
    }
}

/// Counts a handler that can be waited for, for as long as it runs.
struct Active(bool);

impl Active {
    fn begin(path: &str) -> Self {
        let counted = path.starts_with("/never") || path.starts_with("/sleep");
        if counted {
            ACTIVE.fetch_add(1, Ordering::Relaxed);
        }
        Self(counted)
    }
}

impl Drop for Active {
    fn drop(&mut self) {
        if self.0 {
            ACTIVE.fetch_sub(1, Ordering::Relaxed);
        }
    }
}
