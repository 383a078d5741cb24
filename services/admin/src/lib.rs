//! Metrics and status of a server, at their own address.
//!
//! # What is there
//!
//! | path           | answer                                                                      |
//! |----------------|-----------------------------------------------------------------------------|
//! | `/`            | a page that shows the metrics live, for people; see `page.html`             |
//! | `/metrics`     | all metrics for Prometheus                                                  |
//! | `/healthz`     | 200, or 503 when a network thread has been in one turn for 30 s             |
//! | `/readyz`      | 200, or 503 before the server runs and from the moment a drain begins       |
//! | `/status.json` | the same metrics as one object, see `status.rs`                             |
//!
//! `/readyz` is 503 as well while the program has [reasons](Admin::ready_unless).
//!
//! It is a server of its own with one network thread: it answers while the network threads of the
//! server that it shows are busy, blocked, or gone. Metrics are read when they are asked for
//! ([`metrics`](flatpath::metrics)); requests of other listeners pay nothing for them.
//!
//! ```no_run
//! use flatpath_admin::{Admin, flatpath::{Error, Protocol, Server}};
//!
//! fn serve(protocol: impl Protocol) -> Result<(), Error> {
//!     let admin = Admin::new();
//!     let beside = admin.serve("127.0.0.1:9090")?;
//!     let running = Server::new().listen("127.0.0.1:8080", protocol).start()?;
//!     admin.attach(running.handle());
//!     running.wait()?;
//!     beside.handle().force();
//!     beside.wait()
//! }
//! ```
//!
//! There is no access control and nothing that changes anything: listen where only operators are.
//! Requests are answered for [`Hosts::local`] and the names of [`Admin::hosts`] alone, so that no
//! page in an operator's browser reads the metrics.

mod compressed;
mod exposition;
mod own;
mod page;
mod process;
mod status;

use std::net::ToSocketAddrs;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use flatpath::lock::{Guard, Lock};
pub use flatpath_http::flatpath;

use exposition::MEDIA_TYPE;
use flatpath::metrics::Family;
use flatpath::{DriverChoice, Error, Handle, Limits, Running, Server, ServerState};
use flatpath_http::http::{HeaderValue, Method, StatusCode, header};
use flatpath_http::{Body, HostPattern, Hosts, Http, Request, Response};
use own::Reading;
use process::Process;

/// A network thread that has been in one turn for so long is stuck.
pub(crate) const STUCK_AFTER: Duration = Duration::from_secs(30);

/// A handler that has run for so long is slow, unless [`Admin::slow`] says otherwise.
pub(crate) const SLOW_AFTER: Duration = Duration::from_secs(1);

/// Reads metrics of its own, at each scrape.
type Source = Arc<dyn Fn() -> Vec<Family> + Send + Sync>;

/// What the program says of itself, at each question.
type Words = Arc<dyn Fn() -> Vec<String> + Send + Sync>;

/// The admin service of a server; clones serve the same one.
///
/// ```no_run
/// use flatpath_admin::{Admin, flatpath::{Error, Protocol, Server}};
///
/// fn serve(protocol: impl Protocol) -> Result<(), Error> {
///     let admin = Admin::new();
///     let beside = admin.serve("127.0.0.1:9090")?; // not ready yet
///     let running = Server::new().listen("127.0.0.1:8080", protocol).start()?;
///     admin.attach(running.handle());
///     running.wait()?;
///     beside.handle().force();
///     beside.wait()
/// }
/// ```
#[derive(Clone, Default)]
pub struct Admin(Arc<Shared>);

flatpath::opaque_debug! {
    impl[] Admin as "Admin";
}

#[derive(Default)]
struct Shared {
    shown: OnceLock<Handle>,
    /// After which time a handler is slow, if that was set.
    slow: Lock<Option<Duration>>,
    sources: Lock<Vec<Source>>,
    /// Why the program is not ready.
    reasons: Lock<Vec<Words>>,
    /// What `/readyz` says besides.
    remarks: Lock<Vec<Words>>,
    /// By which names it is reached.
    names: Lock<Vec<HostPattern>>,
}

impl Admin {
    /// Shows nothing yet: not ready.
    pub fn new() -> Admin {
        Admin::default()
    }

    /// Shows this server from now on. The first one counts.
    pub fn attach(&self, server: Handle) {
        let _ = self.0.shown.set(server);
    }

    /// After which time a handler is shown as slow from now on; with `None` after a second.
    pub fn slow(&self, after: Option<Duration>) {
        *self.slow_mut() = after;
    }

    fn slow_mut(&self) -> Guard<'_, Option<Duration>> {
        // Nothing under the lock panics half way.
        self.0.slow.lock()
    }

    /// Shows metrics of the program in addition to the server's, which `source` reads at each
    /// scrape. It runs on the network thread that answers, so it must not block. Each name is in
    /// one source.
    ///
    /// ```
    /// use std::sync::atomic::{AtomicU64, Ordering};
    /// use flatpath_admin::{Admin, flatpath::metrics::{Metric, read}};
    ///
    /// static USERS: AtomicU64 = AtomicU64::new(0);
    ///
    /// const METRICS: &[Metric<AtomicU64>] = &[Metric::gauge(
    ///     "myapp_users", "Users that are logged in.", &["plan"],
    ///     |users, out| out.put(&["free"], users.load(Ordering::Relaxed)),
    /// )];
    ///
    /// let admin = Admin::new();
    /// admin.source(|| read(METRICS, &USERS));
    /// ```
    pub fn source(&self, source: impl Fn() -> Vec<Family> + Send + Sync + 'static) {
        self.sources().push(Arc::new(source));
    }

    /// `/readyz` says 503 while `reasons` gives any, and each in a line of its own. It runs on the
    /// network thread that answers, so it must not block.
    pub fn ready_unless(&self, reasons: impl Fn() -> Vec<String> + Send + Sync + 'static) {
        self.0.reasons.lock().push(Arc::new(reasons));
    }

    /// Adds lines to what `/readyz` says, for what a person should look at although clients are
    /// served. The status stays. It runs on the network thread that answers, so it must not block.
    pub fn remarks(&self, remarks: impl Fn() -> Vec<String> + Send + Sync + 'static) {
        self.0.remarks.lock().push(Arc::new(remarks));
    }

    fn sources(&self) -> Guard<'_, Vec<Source>> {
        self.0.sources.lock()
    }

    /// Starts a server of its own that answers at `address`.
    ///
    /// # Errors
    /// As [`Server::start`].
    pub fn serve(&self, address: impl ToSocketAddrs) -> Result<Running, Error> {
        self.server().listen(address, self.protocol()).start()
    }

    /// That server before it listens anywhere: small, and on epoll, which works everywhere. It
    /// speaks [`Admin::protocol`].
    pub fn server(&self) -> Server {
        const CONNECTIONS_MAX: usize = 64;
        const IN_FLIGHT_MAX: usize = 16;
        const BUFFER_BYTES_MAX: usize = 4 << 20;
        let limits = Limits {
            connections_max: CONNECTIONS_MAX,
            in_flight_max: IN_FLIGHT_MAX,
            buffer_bytes_max: BUFFER_BYTES_MAX,
            drain_timeout: Duration::from_millis(500),
            drain_idle_timeout: Duration::from_millis(50),
            ..Limits::default()
        };
        Server::new()
            .network_threads(1)
            .threads_named("admin")
            .driver(DriverChoice::Epoll)
            .workers(1..=1)
            .limits(limits)
    }

    /// The names by which it is reached in addition to [`Hosts::local`]; `*` is not among them. For
    /// what is begun afterwards.
    pub fn hosts(&self, names: impl IntoIterator<Item = HostPattern>) {
        let names = names.into_iter().filter(|name| !name.is_any()).collect();
        *self.names() = names;
    }

    fn names(&self) -> Guard<'_, Vec<HostPattern>> {
        self.0.names.lock()
    }

    /// What is spoken there.
    pub fn protocol(&self) -> impl flatpath::Protocol + use<> {
        let admin = self.clone();
        let hosts = Hosts::local().and(self.names().clone());
        Http::inline(move |request: &Request| admin.answer(request)).hosts(hosts)
    }

    fn answer(&self, request: &Request) -> Response {
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            let mut response = text(StatusCode::METHOD_NOT_ALLOWED, "GET or HEAD\n");
            let headers = response.headers_mut();
            headers.insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
            return response;
        }
        match request.uri().path() {
            "/" => page::response(),
            "/metrics" => {
                let metrics = typed(MEDIA_TYPE, exposition::text(&self.metrics()));
                compressed::for_request(request, metrics)
            }
            "/healthz" => self.health(),
            "/readyz" => self.readiness(),
            "/status.json" => typed("application/json", self.status()),
            _ => text(
                StatusCode::NOT_FOUND,
                "There are /, /metrics, /healthz, /readyz and /status.json.\n",
            ),
        }
    }

    /// All numbers now; without a server, of the process alone.
    fn read(&self) -> Reading {
        let slow_after = self.slow_mut().unwrap_or(SLOW_AFTER);
        let shown = self.0.shown.get();
        Reading {
            is_attached: shown.is_some(),
            has_no_reason: said(&self.0.reasons).is_empty(),
            figures: shown.map(Handle::figures).unwrap_or_default(),
            slow: shown.map_or(Vec::new(), |shown| shown.handlers(slow_after)),
            slow_after,
            process: Process::read(),
        }
    }

    /// All metrics at this moment, those of the sources included.
    pub fn metrics(&self) -> Vec<Family> {
        self.of(&self.read())
    }

    fn of(&self, reading: &Reading) -> Vec<Family> {
        // A source is the program's, so it runs under no lock.
        let sources = self.sources().clone();
        let own = reading.metrics().into_iter();
        own.chain(sources.iter().flat_map(|source| source()))
            .collect()
    }

    fn status(&self) -> String {
        let reading = self.read();
        status::object(&reading, self.of(&reading)).to_string()
    }

    /// Whether starting the process anew would help.
    fn health(&self) -> Response {
        let Some(shown) = self.0.shown.get() else {
            return text(StatusCode::OK, "starting\n");
        };
        let stuck = shown.handlers(STUCK_AFTER);
        match stuck.iter().find(|handler| handler.is_inline) {
            None => text(StatusCode::OK, "ok\n"),
            Some(handler) => {
                let figures = shown.figures();
                let listener = figures.listeners.get(handler.listener);
                let words = format!(
                    "network thread {} has been busy for {} s, with {}\n",
                    handler.thread,
                    handler.age.as_secs(),
                    listener.map_or("?", |listener| listener.name)
                );
                text(StatusCode::SERVICE_UNAVAILABLE, &words)
            }
        }
    }

    /// Whether new clients should be sent here.
    fn readiness(&self) -> Response {
        match self.0.shown.get().map(Handle::state) {
            Some(ServerState::Running) => {
                let reasons = said(&self.0.reasons);
                let (status, mut lines) = match reasons.is_empty() {
                    true => (StatusCode::OK, vec!["ready".to_owned()]),
                    false => {
                        let lines = reasons.iter().map(|it| format!("not ready: {it}"));
                        (StatusCode::SERVICE_UNAVAILABLE, lines.collect())
                    }
                };
                lines.extend(said(&self.0.remarks));
                text(status, &(lines.join("\n") + "\n"))
            }
            Some(state) => {
                let words = format!("{}\n", own::word(state));
                text(StatusCode::SERVICE_UNAVAILABLE, &words)
            }
            None => text(StatusCode::SERVICE_UNAVAILABLE, "starting\n"),
        }
    }
}

/// What all of these say now. They are the program's, so they run under no lock.
fn said(all: &Lock<Vec<Words>>) -> Vec<String> {
    let all = all.lock().clone();
    all.iter().flat_map(|words| words()).collect()
}

fn text(status: StatusCode, words: &str) -> Response {
    let mut response = typed("text/plain; charset=utf-8", words.to_owned());
    *response.status_mut() = status;
    response
}

fn typed(media_type: &'static str, body: impl Into<Body>) -> Response {
    let mut response = Response::new(body.into());
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
