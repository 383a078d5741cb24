//! The desk: one thread that attaches consumers, takes what they return, and notices their end.
//!
//! It waits for all of it at once and never for one of them: every descriptor here is this side's
//! own open file and does not block, so nobody can put the desk to sleep.
//!
//! Invariants
//! - K1: a consumer is in the roster only while its socket is open here; it leaves the roster
//!   before its end, so that nobody is seated with the dead.
//! - K2: what a consumer sends is bounded in each round: one read of its bell, one hello.
//!
//! Behind a round in which bells rang the desk pauses, unless a producer waits for room: a consumer
//! that returns each message by itself would else wake it for every one. Nobody misses what lies in
//! a return ring meanwhile, and network threads collect from the consumers that they serve.
//!
//! Cost: a round is one `epoll_wait` and a `read` for each bell that rang.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use flatpath::DescriptorHold;
use flatpath_messages::handshake::Status;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with};

use crate::consumer::Consumer;
use crate::handshake::{self, Hello};
use crate::pairing::Registered;
use crate::protocol::Shared;
use crate::settings::Error;

/// How long a new connection may take to say hello, and a server to make its regions.
const HELLO_MAX: Duration = Duration::from_secs(5);

/// Connections that have not said hello yet, beside the consumers.
const STRANGERS_MAX: usize = 64;

/// The same where no descriptor is left for another one: whoever is refused before it has said
/// hello may not read why. They are among those that the server keeps in reserve.
const UNCOUNTED_MAX: usize = 8;

/// How long the desk looks at nothing behind a round in which bells rang.
const PAUSE: Duration = Duration::from_millis(4);

/// Events handled in one round.
const EVENTS_MAX: usize = 64;

/// The desk of one listener. Dropped, it stops and all consumers are detached.
#[derive(Debug)]
pub struct Desk {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Desk {
    pub(crate) fn start(shared: Arc<Shared>) -> Result<Desk, Error> {
        let mut work = Work::new(Arc::clone(&shared))?;
        let thread = std::thread::Builder::new()
            .name("flatpath-desk".into())
            .spawn(move || work.run())
            .map_err(Error::Desk)?;
        Ok(Desk {
            shared,
            thread: Some(thread),
        })
    }

    /// Detaches all consumers and removes the socket.
    pub fn stop(self) {}
}

impl Drop for Desk {
    fn drop(&mut self) {
        self.shared.doorbell.stop();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            log::error!("the desk panicked; this is a bug");
        }
    }
}

/// A desk without a thread: its owner gives it rounds. For simulations, where nothing may happen by
/// itself. Dropped, all consumers are detached.
#[derive(Debug)]
pub struct DeskByHand(Work);

impl DeskByHand {
    pub(crate) fn new(shared: Arc<Shared>) -> Result<DeskByHand, Error> {
        Work::new(shared).map(DeskByHand)
    }

    /// Looks at everything once, and waits for nothing.
    pub fn round(&mut self) {
        if let Err(errno) = self.0.round(Some(Timespec::default())) {
            log::error!("a round of the desk: {errno}");
        }
    }
}

impl Drop for DeskByHand {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// Who an event is about: a number of the desk's own, and which of its descriptors.
const LISTENER: u64 = 0;
const DOORBELL: u64 = 1;
const FIRST_GUEST: u64 = 2;

fn socket_of(guest: u64) -> EventData {
    EventData::new_u64(guest << 1)
}

fn bell_of(guest: u64) -> EventData {
    EventData::new_u64(guest << 1 | 1)
}

/// Whoever connected.
#[derive(Debug)]
enum Guest {
    Stranger(Stranger),
    Attached(Attached),
}

impl Guest {
    fn consumer(&self) -> Option<&Consumer> {
        match self {
            Guest::Attached(attached) => Some(&attached.consumer),
            Guest::Stranger(_) => None,
        }
    }
}

#[derive(Debug)]
struct Stranger {
    socket: OwnedFd,
    /// For the socket, dropped after it. None: it is refused as soon as it has said hello.
    hold: Option<DescriptorHold>,
    since: Instant,
    /// Its token, or 0, once it has said hello.
    hello: Option<u64>,
}

#[derive(Debug)]
struct Attached {
    /// Ends before the consumer does.
    registered: Option<Registered>,
    consumer: Arc<Consumer>,
    socket: OwnedFd,
    /// For the socket, dropped after it.
    _hold: DescriptorHold,
}

/// The thread's own.
#[derive(Debug)]
struct Work {
    shared: Arc<Shared>,
    epoll: OwnedFd,
    listener: OwnedFd,
    path: PathBuf,
    guests: HashMap<u64, Guest>,
    next: u64,
    attached: u32,
    /// In this round.
    heard_returns: bool,
}

impl Work {
    fn new(shared: Arc<Shared>) -> Result<Work, Error> {
        let path = shared.settings.socket.clone();
        let listener =
            handshake::listener(&path).map_err(|cause| Error::Socket(path.clone(), cause))?;
        Work::listening(shared, listener, path).map_err(Error::Desk)
    }

    fn listening(shared: Arc<Shared>, listener: OwnedFd, path: PathBuf) -> io::Result<Work> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &listener, socket_of(LISTENER), EventFlags::IN)?;
        epoll::add(
            &epoll,
            &*shared.doorbell,
            socket_of(DOORBELL),
            EventFlags::IN,
        )?;
        Ok(Work {
            shared,
            epoll,
            listener,
            path,
            guests: HashMap::new(),
            next: FIRST_GUEST,
            attached: 0,
            heard_returns: false,
        })
    }

    fn run(&mut self) {
        while !self.shared.doorbell.is_stopped() {
            let timeout = self.timeout();
            if let Err(errno) = self.round(timeout) {
                log::error!("the desk ends: {errno}");
                break;
            }
            if std::mem::take(&mut self.heard_returns) {
                let consumers = || self.guests.values().filter_map(Guest::consumer);
                let is_waited_for = || consumers().any(Consumer::is_waited_for);
                self.shared.doorbell.pause(PAUSE, is_waited_for);
            }
        }
        self.end();
    }

    /// One look at everything, behind a wait.
    fn round(&mut self, timeout: Option<Timespec>) -> Result<(), Errno> {
        let none = Event {
            flags: EventFlags::empty(),
            data: EventData::new_u64(0),
        };
        let mut events = [none; EVENTS_MAX];
        let count = match epoll::wait(&self.epoll, &mut events, timeout.as_ref()) {
            Err(Errno::INTR) => 0,
            waited => waited?,
        };
        for event in &events[..count] {
            self.look(*event);
        }
        self.dismiss_slow_strangers();
        Ok(())
    }

    fn end(&mut self) {
        let guests: Vec<u64> = self.guests.keys().copied().collect();
        for guest in guests {
            self.dismiss(guest, "the server stops");
        }
        let _ = fs::remove_file(&self.path);
        log::info!("ingest: {}", self.shared.figures());
    }

    fn look(&mut self, event: Event) {
        let word = event.data.u64();
        let guest = word >> 1;
        match guest {
            LISTENER => self.accept(),
            DOORBELL => {
                self.shared.doorbell.answer();
                self.look_at_all();
            }
            _ if word & 1 == 1 => self.take_returns(guest),
            _ => self.hear(guest),
        }
    }

    /// A region was made, or a network thread found somebody to have broken the rules.
    fn look_at_all(&mut self) {
        let guests: Vec<u64> = self.guests.keys().copied().collect();
        for guest in guests {
            match self.guests.get(&guest) {
                Some(Guest::Attached(attached)) => self.judge(guest, attached.consumer.broken()),
                Some(Guest::Stranger(stranger)) if stranger.hello.is_some() => self.attach(guest),
                _ => {}
            }
        }
    }

    fn judge(&mut self, guest: u64, broken: Option<&str>) {
        if let Some(why) = broken {
            self.dismiss(guest, why);
        }
    }

    fn accept(&mut self) {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = match accept_with(&self.listener, flags) {
            Ok(socket) => socket,
            Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => return,
            Err(errno) => {
                // Out of descriptors, say: a pause, as the listener stays readable.
                log::warn!("a consumer cannot be accepted: {errno}");
                std::thread::sleep(Duration::from_millis(20));
                return;
            }
        };
        let hold = self.shared.hold_descriptors(1);
        let strangers_max = match hold {
            Some(_) => STRANGERS_MAX,
            None => UNCOUNTED_MAX,
        };
        let strangers = self
            .guests
            .values()
            .filter(|guest| matches!(guest, Guest::Stranger(_)));
        if strangers.count() >= strangers_max {
            handshake::refuse(&socket, Status::Full);
            return;
        }
        let guest = self.next;
        self.next += 1;
        if let Err(errno) = epoll::add(&self.epoll, &socket, socket_of(guest), EventFlags::IN) {
            log::warn!("a consumer cannot be watched: {errno}");
            return;
        }
        let stranger = Stranger {
            socket,
            hold,
            since: Instant::now(),
            hello: None,
        };
        self.guests.insert(guest, Guest::Stranger(stranger));
    }

    /// A socket has something to say: a stranger its hello, anybody else nothing but its end.
    fn hear(&mut self, guest: u64) {
        match self.guests.get_mut(&guest) {
            Some(Guest::Stranger(stranger)) if stranger.hello.is_none() => {
                match handshake::hello(&stranger.socket) {
                    Hello::NotYet => {}
                    Hello::Said(token) => {
                        stranger.hello = Some(token);
                        self.attach(guest);
                    }
                    Hello::Wrong(status) => {
                        if let Some(status) = status {
                            handshake::refuse(&stranger.socket, status);
                        }
                        self.dismiss(guest, "it did not say hello");
                    }
                }
            }
            Some(_) => self.dismiss(guest, "its socket is closed"),
            None => {}
        }
    }

    /// Welcomes a stranger that said hello, when all regions are made.
    fn attach(&mut self, guest: u64) {
        let Some(regions) = self.shared.regions() else {
            return;
        };
        let Some(Guest::Stranger(stranger)) = self.guests.remove(&guest) else {
            return;
        };
        let consumers_max = self.shared.settings.consumers_max as usize;
        if self.shared.roster.len() >= consumers_max {
            handshake::refuse(&stranger.socket, Status::Full);
            log::info!("a consumer is refused: as many are attached as may be");
            return;
        }
        let Some(hold) = stranger.hold else {
            handshake::refuse(&stranger.socket, Status::Full);
            log::info!("a consumer is refused: there are no descriptors for it");
            return;
        };
        let token = stranger.hello.unwrap_or_default();
        if token != 0 && self.has_token(token) {
            handshake::refuse(&stranger.socket, Status::Taken);
            log::info!("a consumer is refused: another one has its token");
            return;
        }
        let number = self.attached;
        let names = (number, token);
        let welcomed = handshake::welcome(&self.shared, &regions, names, &stranger.socket);
        let watched = welcomed.and_then(|consumer| {
            let bell = consumer.return_bell();
            epoll::add(&self.epoll, bell, bell_of(guest), EventFlags::IN)?;
            Ok(consumer)
        });
        let consumer = match watched {
            Ok(consumer) => consumer,
            Err(cause) => {
                let is_full = cause.raw_os_error() == Some(Errno::MFILE.raw_os_error());
                let status = match is_full {
                    true => Status::Full,
                    false => Status::Failed,
                };
                handshake::refuse(&stranger.socket, status);
                log::warn!("a consumer cannot be attached: {cause}");
                return;
            }
        };
        self.attached += 1;
        self.shared.statistics.attached.add(1);
        log::info!("consumer {number} is attached");
        self.shared.roster.add(Arc::clone(&consumer), consumers_max);
        let registered = match token {
            0 => None,
            token => self.shared.pairings.offer(token, &consumer),
        };
        let is_without = token != 0 && registered.is_none();
        let attached = Attached {
            registered,
            consumer,
            socket: stranger.socket,
            _hold: hold,
        };
        self.guests.insert(guest, Guest::Attached(attached));
        if is_without {
            self.dismiss(guest, "there is no memory for its token");
        }
    }

    fn has_token(&self, token: u64) -> bool {
        self.guests.values().any(|guest| match guest {
            Guest::Attached(attached) => attached.consumer.token == token,
            Guest::Stranger(_) => false,
        })
    }

    fn take_returns(&mut self, guest: u64) {
        let Some(Guest::Attached(attached)) = self.guests.get(&guest) else {
            return;
        };
        self.heard_returns = true;
        attached.consumer.collect();
        self.judge(guest, attached.consumer.broken());
    }

    /// Ends a guest. Its descriptors are closed, and with that forgotten by epoll.
    fn dismiss(&mut self, guest: u64, why: &str) {
        let Some(guest) = self.guests.remove(&guest) else {
            return;
        };
        if let Guest::Attached(mut attached) = guest {
            let number = attached.consumer.number;
            // K1: out of the roster first.
            self.shared.roster.remove(number);
            attached.registered = None;
            // Producers may keep it for a while, and its bell with it.
            let _ = epoll::delete(&self.epoll, attached.consumer.return_bell());
            // What was returned before the end was returned.
            attached.consumer.collect();
            let held = attached.consumer.end();
            drop(attached.socket);
            log::info!("consumer {number} is detached, {held} fragments taken back: {why}");
        }
    }

    fn dismiss_slow_strangers(&mut self) {
        let slow: Vec<u64> = self.strangers(|since| since.elapsed() >= HELLO_MAX);
        for guest in slow {
            self.dismiss(guest, "it was too slow to say hello");
        }
    }

    fn strangers(&self, which: impl Fn(Instant) -> bool) -> Vec<u64> {
        let mut found = Vec::new();
        for (number, guest) in &self.guests {
            if let Guest::Stranger(stranger) = guest
                && which(stranger.since)
            {
                found.push(*number);
            }
        }
        found
    }

    /// Until the oldest stranger is too slow.
    fn timeout(&self) -> Option<Timespec> {
        let left = self.guests.values().filter_map(|guest| match guest {
            Guest::Stranger(stranger) => Some(HELLO_MAX.saturating_sub(stranger.since.elapsed())),
            Guest::Attached(_) => None,
        });
        let tick = Duration::from_millis(10);
        left.min()
            .and_then(|left| Timespec::try_from(left + tick).ok())
    }
}
