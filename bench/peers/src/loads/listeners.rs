//! Clients that listen to server-sent events: one thread, one epoll loop.
//!
//! Each asks once and then only reads. One that is refused, or whose stream ends, has ended.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use flatpath_bench_common::{scheduling, source::Source};
use flatpath_testkit::child::refuse_if_interrupted;
use flatpath_testkit::clients::{Clients, Connection};
use rustix::net::SocketFlags;

/// Clients dialled between two looks at what has arrived.
const DIALS_PER_LOOK: u64 = 64;
/// Clients that wait for their head, at most: what the kernel's queue of a listener takes.
const WAITING_MAX: u64 = 2_000;
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Between two looks once all listen. What is sent meanwhile wakes no client: the wake-ups of
/// clients are work of other machines, and the kernel counts them to the sender.
const GATHER: Duration = Duration::from_millis(5);
/// How long all of them together may take to connect.
const PATIENCE: Duration = Duration::from_secs(60);
/// What every event has, once.
const DATA: &[u8] = b"data:";
const ACCEPTED: &[u8] = b"HTTP/1.1 200 ";

/// All listeners of a server. Dropping this closes them.
pub(crate) struct Listeners {
    counts: Arc<Counts>,
    thread: Option<JoinHandle<()>>,
}

/// What the thread has seen so far.
#[derive(Debug, Default)]
struct Counts {
    listening: AtomicU64,
    ended: AtomicU64,
    events: AtomicU64,
    stop: AtomicBool,
}

/// What a client has got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Asked,
    Listening,
    Ended,
}

impl Listeners {
    /// Connects them all with this request, and waits until each has the head of its reply or has
    /// ended. They get a core last if `yields` is set.
    ///
    /// # Errors
    /// `TimedOut`; if sockets cannot be made; or if the bench was told to stop.
    pub(crate) fn connect(
        address: SocketAddr,
        count: u64,
        request: Vec<u8>,
        yields: bool,
    ) -> io::Result<Self> {
        let counts = Arc::new(Counts::default());
        let shared = Arc::clone(&counts);
        let listen = move || {
            let policy = match yields {
                true => scheduling::is_other_clients().map(drop),
                false => Ok(()),
            };
            let crowd = policy.and_then(|()| Crowd::new(address, count, request, shared));
            let outcome = crowd.and_then(Crowd::listen);
            if let Err(error) = outcome {
                eprintln!("the listeners failed: {error}");
            }
        };
        let builder = thread::Builder::new().name("listeners".into());
        let thread = Some(builder.spawn(listen)?);
        let listeners = Self { counts, thread };
        let begin = Instant::now();
        while listeners.listening() + listeners.ended() < count {
            refuse_if_interrupted()?;
            if begin.elapsed() > PATIENCE || listeners.has_failed() {
                let there = listeners.listening();
                let message = format!("only {there} of {count} could connect");
                return Err(io::Error::new(io::ErrorKind::TimedOut, message));
            }
            thread::sleep(LOOK_EVERY);
        }
        Ok(listeners)
    }

    /// Events received so far, by all.
    pub(crate) fn events(&self) -> u64 {
        // ORDER: a count; nothing else is read by it. So are the next two.
        self.counts.events.load(Ordering::Relaxed)
    }

    /// Clients that got the head of a stream.
    fn listening(&self) -> u64 {
        self.counts.listening.load(Ordering::Relaxed)
    }

    /// Clients that were refused, or whose stream has ended.
    pub(crate) fn ended(&self) -> u64 {
        self.counts.ended.load(Ordering::Relaxed)
    }

    fn has_failed(&self) -> bool {
        self.thread.as_ref().is_some_and(JoinHandle::is_finished)
    }
}

impl Drop for Listeners {
    fn drop(&mut self) {
        // ORDER: the thread only has to see it some time; joining it orders the rest.
        self.counts.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Crowd {
    address: SocketAddr,
    count: u64,
    request: Vec<u8>,
    clients: Clients,
    source: Source,
    /// By connection.
    states: Vec<State>,
    counts: Arc<Counts>,
}

impl Crowd {
    fn new(
        address: SocketAddr,
        count: u64,
        request: Vec<u8>,
        counts: Arc<Counts>,
    ) -> io::Result<Self> {
        Ok(Self {
            address,
            count,
            request,
            clients: Clients::new()?,
            source: Source::fresh(),
            states: Vec::new(),
            counts,
        })
    }

    fn listen(mut self) -> io::Result<()> {
        while !self.counts.stop.load(Ordering::Relaxed) {
            let limit = match self.dial_some()? {
                true => Duration::ZERO,
                false if self.has_all() => {
                    thread::sleep(GATHER);
                    Duration::ZERO
                }
                false => LOOK_EVERY,
            };
            for index in self.clients.wait(limit)? {
                self.look(index);
            }
        }
        Ok(())
    }

    /// Clients that listen, or have ended.
    fn answered(&self) -> u64 {
        let counts = &*self.counts;
        counts.listening.load(Ordering::Relaxed) + counts.ended.load(Ordering::Relaxed)
    }

    /// Whether each client has got its head.
    fn has_all(&self) -> bool {
        self.answered() == self.count
    }

    /// Whether more may be dialled at once.
    fn dial_some(&mut self) -> io::Result<bool> {
        let (dialled, answered) = (self.states.len() as u64, self.answered());
        let room = WAITING_MAX.saturating_sub(dialled - answered);
        let now = DIALS_PER_LOOK.min(self.count - dialled).min(room);
        for _ in 0..now {
            let socket = self.source.dial(self.address, SocketFlags::NONBLOCK)?;
            let request = self.request.clone();
            self.clients
                .insert(self.states.len(), socket.into(), request)?;
            self.states.push(State::Asked);
        }
        Ok(now > 0)
    }

    fn look(&mut self, index: usize) {
        let (Some(connection), Some(state)) = (self.clients.get(index), self.states.get_mut(index))
        else {
            return;
        };
        let before = *state;
        let events = state.advance(connection);
        if *state != before {
            let reached = match state {
                State::Ended => &self.counts.ended,
                _ => &self.counts.listening,
            };
            reached.fetch_add(1, Ordering::Relaxed);
        }
        if *state == State::Ended {
            self.clients.close(index);
        }
        self.counts.events.fetch_add(events, Ordering::Relaxed);
    }
}

impl State {
    /// Takes what was received: the events in it.
    fn advance(&mut self, connection: &mut Connection) -> u64 {
        let received = &mut connection.received;
        if *self == Self::Asked && received.windows(4).any(|end| end == b"\r\n\r\n") {
            *self = match received.starts_with(ACCEPTED) {
                true => Self::Listening,
                false => Self::Ended,
            };
        }
        let events = match self {
            Self::Listening => take_events(received),
            _ => 0,
        };
        if connection.end.is_some() {
            *self = Self::Ended;
        }
        events
    }
}

/// Counts the events, and leaves what may be the beginning of the next one.
fn take_events(received: &mut Vec<u8>) -> u64 {
    let events = received.windows(DATA.len()).filter(|it| *it == DATA);
    let events = events.count() as u64;
    received.drain(..received.len().saturating_sub(DATA.len() - 1));
    events
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_counted_however_they_were_split() {
        let stream = b"3\r\ndata: a\n\n\r\n3\r\ndata: b\n\n\r\n: nothing\n\n";
        for size in 1..stream.len() {
            let (mut received, mut events) = (Vec::new(), 0);
            for piece in stream.chunks(size) {
                received.extend_from_slice(piece);
                events += take_events(&mut received);
            }
            assert_eq!(events, 2, "in pieces of {size}");
        }
    }
}
