//! A live dashboard: what a thread measures of this machine, at once in every browser that looks.
//!
//! | request       | answer                                                                   |
//! |---------------|--------------------------------------------------------------------------|
//! | `GET /`       | a page that shows it                                                     |
//! | `GET /events` | server-sent events: every measurement, the last ones first               |
//! | `GET /socket` | a WebSocket: the last measurement and those after it; takes [`Command`]s |
//!
//! A listener that comes back gets what was measured since its `Last-Event-ID`. A socket that does
//! not keep up misses measurements.
//!
//! A client of either kind holds no thread, and a measurement is encoded once for all of them. The
//! events suit a client that wants each measurement, the socket one that wants the latest, or has
//! something to say.
#![forbid(unsafe_code)]

mod sample;

use std::io;
use std::ops::RangeInclusive;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use flatpath_http::http::HeaderMap;
use flatpath_http::sse::{Broadcast, Event};
use flatpath_http::{Hosts, Html, Http, Origins, Request, Response, Router, State, routing};
use flatpath_websocket::{Handler, Limits, Member, Message, Slow, Socket, WebSocket};
use serde::{Deserialize, Serialize};

use sample::Sampler;

pub use sample::Sample;

/// How much of what was measured newcomers get, and clients that come back.
const REMEMBERED_MAX: usize = 600;

/// What a command may be long, in bytes.
const COMMAND_BYTES_MAX: usize = 1024;

/// The intervals that a client may ask for, in milliseconds.
const INTERVAL_MS: RangeInclusive<u64> = 50..=3_600_000;

/// What a page may ask for, over its WebSocket: `{"interval_ms": 500}`.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Command {
    /// The time between two measurements from now on, for all who look: 50 ms to an hour.
    pub interval_ms: u64,
}

/// One dashboard. Clones are the same one.
#[derive(Clone, Debug)]
pub struct Dashboard(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    listeners: Broadcast,
    /// Of a measurement that a client is too slow for, the next one takes the place.
    sockets: flatpath_websocket::Broadcast,
    state: Mutex<Measuring>,
    /// The interval has changed, or the meter is to end.
    changed: Condvar,
}

#[derive(Debug)]
struct Measuring {
    interval: Duration,
    /// No id is given twice, whenever the server is started again: clients may come back.
    id: u64,
    /// What sockets that are opened begin with.
    latest: Option<Message>,
    is_over: bool,
}

/// What clients get: an object of JSON.
#[derive(Serialize)]
struct Update<'a> {
    id: u64,
    interval_ms: u64,
    /// Who get this.
    listeners: usize,
    sockets: usize,
    #[serde(flatten)]
    sample: &'a Sample,
}

impl Dashboard {
    /// A dashboard that shows what is published, and measures nothing yet.
    #[must_use]
    pub fn new(interval: Duration) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        Self(Arc::new(Shared {
            listeners: Broadcast::with_history(REMEMBERED_MAX),
            sockets: flatpath_websocket::Broadcast::with_slow(Slow::Skip),
            state: Mutex::new(Measuring {
                interval,
                id: now.map_or(0, |now| now.as_micros() as u64),
                latest: None,
                is_over: false,
            }),
            changed: Condvar::new(),
        }))
    }

    /// The routes of this dashboard, for a server on a loopback address; pages of other servers
    /// cannot open its socket. All is answered on network threads, where nothing here can block.
    pub fn service(&self) -> Http<Router> {
        let sockets = WebSocket::inline().limits(Limits {
            message_bytes_max: COMMAND_BYTES_MAX,
            ..Limits::default()
        });
        let dashboard = self.clone();
        let open = move |request: Request| {
            let dashboard = dashboard.clone();
            let member = None;
            sockets.accept(&request, Viewer { dashboard, member })
        };
        let router = Router::new()
            .route("/", routing::get(page).inline())
            .route("/events", routing::get(listen).inline())
            .route("/socket", routing::get(open).inline())
            .with_state(self.clone());
        let http = Http::service(router);
        http.hosts(Hosts::local()).origins(Origins::own())
    }

    /// Starts the thread that measures, now and after each interval.
    ///
    /// # Errors
    /// `/proc` cannot be read, or no thread can be started.
    pub fn start_meter(&self) -> io::Result<Meter> {
        let sampler = Sampler::new().map_err(io::Error::other)?;
        let dashboard = self.clone();
        let thread = std::thread::Builder::new().name("meter".to_owned());
        let thread = thread.spawn(move || dashboard.measure(sampler))?;
        let dashboard = self.clone();
        let thread = Some(thread);
        Ok(Meter { dashboard, thread })
    }

    /// Shows a measurement to all who look. Waits for no client.
    pub fn publish(&self, sample: &Sample) {
        let shared = &self.0;
        // Held until it is sent: all get the measurements in the order of their ids.
        let mut state = self.state();
        state.id += 1;
        let update = Update {
            id: state.id,
            interval_ms: state.interval.as_millis() as u64,
            listeners: shared.listeners.listeners(),
            sockets: shared.sockets.sockets(),
            sample,
        };
        let json = serde_json::to_string(&update).expect("numbers are JSON");
        let event = Event::new().id(update.id.to_string()).data(&json);
        shared.listeners.send(event);
        let message = Message::from(json);
        shared.sockets.send(message.clone());
        state.latest = Some(message);
    }

    /// Does what a client asks for; an error is for its user.
    fn obey(&self, command: &str) -> Result<(), String> {
        let command: Command = serde_json::from_str(command).map_err(|error| error.to_string())?;
        if !INTERVAL_MS.contains(&command.interval_ms) {
            let (least, most) = INTERVAL_MS.into_inner();
            return Err(format!("interval_ms: {least} to {most}"));
        }
        self.state().interval = Duration::from_millis(command.interval_ms);
        self.0.changed.notify_all();
        Ok(())
    }

    /// The thread of the meter.
    fn measure(&self, mut sampler: Sampler) {
        loop {
            let begun = Instant::now();
            match sampler.sample() {
                Ok(sample) => self.publish(&sample),
                Err(error) => log::error!("nothing is measured: {error}"),
            }
            let mut state = self.state();
            loop {
                let left = state.interval.saturating_sub(begun.elapsed());
                if state.is_over {
                    return;
                }
                if left.is_zero() {
                    break;
                }
                let waited = self.0.changed.wait_timeout(state, left);
                (state, _) = waited.expect("no panic while it is locked");
            }
        }
    }

    /// Held for moments only: network threads want it, too.
    fn state(&self) -> MutexGuard<'_, Measuring> {
        let state = self.0.state.lock();
        state.expect("no panic while it is locked")
    }
}

fn page() -> Html<&'static str> {
    Html(include_str!("page.html"))
}

fn listen(State(dashboard): State<Dashboard>, headers: HeaderMap) -> Response {
    let listeners = &dashboard.0.listeners;
    match headers.contains_key("last-event-id") {
        true => listeners.response_to(&headers),
        false => listeners.response_with_history(),
    }
}

/// One client with a socket, a member for as long as this is there.
struct Viewer {
    dashboard: Dashboard,
    member: Option<Member>,
}

impl Handler for Viewer {
    fn opened(&mut self, socket: &Socket) {
        // Held, so that no measurement comes between the latest and those that follow.
        let state = self.dashboard.state();
        if let Some(latest) = &state.latest {
            // An error: the client is gone.
            let _ = socket.send(latest.clone());
        }
        self.member = Some(self.dashboard.0.sockets.join(socket));
    }

    fn message(&mut self, socket: &Socket, message: Message) {
        let command = message.text().ok_or_else(|| "text only".to_owned());
        if let Err(error) = command.and_then(|command| self.dashboard.obey(command)) {
            let _ = socket.send(serde_json::json!({ "error": error }).to_string());
        }
    }
}

/// The thread that measures. Dropped, it ends.
#[derive(Debug)]
#[must_use = "dropped, it measures no more"]
pub struct Meter {
    dashboard: Dashboard,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Meter {
    fn drop(&mut self) {
        self.dashboard.state().is_over = true;
        self.dashboard.0.changed.notify_all();
        if self
            .thread
            .take()
            .is_some_and(|thread| thread.join().is_err())
        {
            log::error!("the meter has panicked");
        }
    }
}
