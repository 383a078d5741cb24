//! The control thread: it attaches consumers, takes what they return, and notices their end.
//!
//! It waits for all of it at once and never for one of them: every descriptor here is this side's
//! own open file and does not block, so no process can put the control thread to sleep.
//!
//! Invariants
//! - K1: a consumer is in the set only while its socket is open here; it is removed before its end,
//!   so that no producer is assigned to a dead one.
//! - K2: what a consumer sends is bounded in each round: one read of its doorbell, one hello.
//!
//! After a round with returns the control thread pauses, unless a producer waits for room:
//! otherwise a consumer that returns each message by itself would wake it for every one. Returns
//! stay in their ring, and network threads collect from the consumers that they serve.
//!
//! Cost: a round is one `epoll_wait` and a `read` for each doorbell that rang.

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use flatpath::ServiceSocket;
use flatpath::descriptors::DescriptorHold;
use flatpath_messages::handshake::Status;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with};

use crate::consumer::Consumer;
use crate::handshake::{self, Hello};
use crate::pairing::Registered;
use crate::settings::Error;
use crate::shared::Shared;

/// How long a new connection may take to say hello, and a server to make its regions.
const HELLO_MAX: Duration = Duration::from_secs(5);

/// Connections in their handshake, in addition to the consumers.
const HANDSHAKES_MAX: usize = 64;

/// The same where the server has no descriptor to spare: a client that is refused before it has
/// sent its hello may not read why. They are among the descriptors that the server keeps in
/// reserve.
const UNCOUNTED_MAX: usize = 8;

/// The pause after a round with returns.
const PAUSE: Duration = Duration::from_millis(4);

/// The pause after an accept that failed: the listener stays readable.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);

/// Events handled in one round.
const EVENTS_MAX: usize = 64;

/// The name of the socket in a handover.
const SOCKET_NAME: &str = "ingest-consumers";

/// The control thread of one listener. Dropped, it stops and all consumers are detached.
#[derive(Debug)]
pub struct ControlThread {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl ControlThread {
    pub(crate) fn start(shared: Arc<Shared>) -> Result<ControlThread, Error> {
        let mut control = Control::new(Arc::clone(&shared))?;
        let thread = std::thread::Builder::new()
            .name("flatpath-ingest".into())
            .spawn(move || control.run())
            .map_err(Error::Control)?;
        Ok(ControlThread {
            shared,
            thread: Some(thread),
        })
    }
}

impl Drop for ControlThread {
    fn drop(&mut self) {
        self.shared.wakeup.stop();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            log::error!("the control thread of ingest panicked; this is a bug");
        }
    }
}

/// The work of the control thread, without a thread: simulations call [`Control::round`]. Dropped,
/// all consumers are detached.
#[derive(Debug)]
pub struct Control {
    shared: Arc<Shared>,
    epoll: OwnedFd,
    /// None: another process accepts there.
    listener: Option<Arc<OwnedFd>>,
    peers: HashMap<u64, Peer>,
    next: u64,
    attached: u32,
    /// Returns came in this round.
    collected: bool,
}

/// The source of an event: a peer, or one of these two.
const LISTENER: u64 = 0;
const WAKEUP: u64 = 1;
const FIRST_PEER: u64 = 2;

fn socket_of(peer: u64) -> EventData {
    EventData::new_u64(peer << 1)
}

fn doorbell_of(peer: u64) -> EventData {
    EventData::new_u64(peer << 1 | 1)
}

#[derive(Debug)]
enum Peer {
    Handshaking(Handshaking),
    Attached(Attached),
}

#[derive(Debug)]
struct Handshaking {
    socket: OwnedFd,
    /// For the socket, dropped after it. None: it is refused as soon as it has sent its hello.
    hold: Option<DescriptorHold>,
    since: Instant,
    /// Its token, or 0, once it has sent its hello.
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

impl Control {
    pub(crate) fn new(shared: Arc<Shared>) -> Result<Control, Error> {
        let (path, passed) = (&shared.settings.socket, &shared.settings.passed);
        let (listener, known) = ServiceSocket::packets_at(path, SOCKET_NAME, passed)
            .map_err(|cause| Error::Socket(path.clone(), cause))?;
        let is_first = shared.socket.set(known).is_ok();
        debug_assert!(is_first, "a listener has one control");
        let epoll = watch(&listener, &shared).map_err(Error::Control)?;
        Ok(Control {
            shared,
            epoll,
            listener: Some(listener),
            peers: HashMap::new(),
            next: FIRST_PEER,
            attached: 0,
            collected: false,
        })
    }

    fn run(&mut self) {
        while !self.shared.wakeup.is_stopped() {
            let timeout = self.timeout();
            if let Err(errno) = self.wait_and_handle(timeout) {
                log::error!("the control thread of ingest ends: {errno}");
                break;
            }
            if std::mem::take(&mut self.collected) {
                let is_waited_for = || {
                    let mut attached = self.peers.values().filter_map(Peer::consumer);
                    attached.any(Consumer::is_waited_for)
                };
                self.shared.wakeup.pause(PAUSE, is_waited_for);
            }
        }
    }

    /// Checks everything once, without waiting.
    pub fn round(&mut self) {
        if let Err(errno) = self.wait_and_handle(Some(Timespec::default())) {
            log::error!("a round of ingest's control: {errno}");
        }
    }

    fn wait_and_handle(&mut self, timeout: Option<Timespec>) -> Result<(), Errno> {
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
            let word = event.data.u64();
            match (word >> 1, word & 1 == 1) {
                (LISTENER, _) => self.accept(),
                (WAKEUP, _) => {
                    self.shared.wakeup.clear();
                    self.follow_handover();
                    self.check_all();
                }
                (peer, true) => self.take_returns(peer),
                (peer, false) => self.socket_readable(peer),
            }
        }
        self.dismiss_slow();
        Ok(())
    }

    /// A region was made, or a network thread found a consumer to have broken the rules.
    fn check_all(&mut self) {
        let peers: Vec<u64> = self.peers.keys().copied().collect();
        for peer in peers {
            match self.peers.get(&peer) {
                Some(Peer::Attached(_)) => self.dismiss_if_broken(peer),
                Some(Peer::Handshaking(client)) if client.hello.is_some() => self.attach(peer),
                _ => {}
            }
        }
    }

    /// Another process accepts consumers from now on: they learn of it, and stay attached here for
    /// what this one has still to deliver.
    fn follow_handover(&mut self) {
        if !self.shared.is_handed_over() {
            return;
        }
        let Some(listener) = self.listener.take() else {
            return;
        };
        let _ = epoll::delete(&self.epoll, &*listener);
        for peer in self.peers.values() {
            if let Peer::Attached(attached) = peer {
                handshake::name_successor(&attached.socket);
            }
        }
    }

    fn accept(&mut self) {
        let Some(listener) = &self.listener else {
            return;
        };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = match accept_with(listener, flags) {
            Ok(socket) => socket,
            Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => return,
            Err(errno) => {
                log::warn!("a consumer cannot be accepted: {errno}");
                std::thread::sleep(ACCEPT_PAUSE);
                return;
            }
        };
        let hold = self.shared.hold_descriptors(1);
        let handshakes_max = match hold {
            Some(_) => HANDSHAKES_MAX,
            None => UNCOUNTED_MAX,
        };
        let is_handshaking = |peer: &&Peer| matches!(peer, Peer::Handshaking(_));
        if self.peers.values().filter(is_handshaking).count() >= handshakes_max {
            handshake::refuse(&socket, Status::Full);
            return;
        }
        if let Err(errno) = epoll::add(&self.epoll, &socket, socket_of(self.next), EventFlags::IN) {
            log::warn!("a consumer cannot be watched: {errno}");
            return;
        }
        let client = Handshaking {
            socket,
            hold,
            since: Instant::now(),
            hello: None,
        };
        self.peers.insert(self.next, Peer::Handshaking(client));
        self.next += 1;
    }

    /// Reads a hello from a client that has sent none; any other only ends.
    fn socket_readable(&mut self, peer: u64) {
        match self.peers.get_mut(&peer) {
            Some(Peer::Handshaking(client)) if client.hello.is_none() => {
                match handshake::hello(&client.socket) {
                    Hello::NotYet => {}
                    Hello::Said(token) => {
                        client.hello = Some(token);
                        self.attach(peer);
                    }
                    Hello::Wrong(status) => {
                        if let Some(status) = status {
                            handshake::refuse(&client.socket, status);
                        }
                        self.dismiss(peer, "it did not say hello");
                    }
                }
            }
            Some(_) => self.dismiss(peer, "its socket is closed"),
            None => {}
        }
    }

    /// Attaches a client that has sent its hello, once all regions are made.
    fn attach(&mut self, peer: u64) {
        let Some(regions) = self.shared.regions() else {
            return;
        };
        let Some(Peer::Handshaking(client)) = self.peers.remove(&peer) else {
            return;
        };
        let token = client.hello.expect("it has sent its hello");
        let refuse = |status: Status, why: &str| {
            handshake::refuse(&client.socket, status);
            let level = match status {
                Status::Failed => log::Level::Warn,
                _ => log::Level::Info,
            };
            log::log!(level, "a consumer is refused: {why}");
        };
        if self.shared.consumers.len() >= self.shared.settings.consumers_max as usize {
            return refuse(Status::Full, "as many are attached as may be");
        }
        let Some(hold) = client.hold else {
            return refuse(Status::Full, "there are no descriptors for it");
        };
        if token != 0 && self.has_token(token) {
            return refuse(Status::Taken, "another one has its token");
        }
        let number = self.attached;
        let welcomed = handshake::welcome(&self.shared, &regions, (number, token), &client.socket);
        let watched = welcomed.and_then(|consumer| {
            let doorbell = consumer.return_doorbell();
            epoll::add(&self.epoll, doorbell, doorbell_of(peer), EventFlags::IN)?;
            Ok(consumer)
        });
        let consumer = match watched {
            Ok(consumer) => consumer,
            Err(cause) if cause.raw_os_error() == Some(Errno::MFILE.raw_os_error()) => {
                return refuse(Status::Full, "there are no descriptors for it");
            }
            Err(cause) => return refuse(Status::Failed, &cause.to_string()),
        };
        self.attached += 1;
        log::info!("consumer {number} is attached");
        if self.listener.is_none() {
            handshake::name_successor(&client.socket);
        }
        self.shared.consumers.add(Arc::clone(&consumer));
        let registered = match token {
            0 => None,
            token => self.shared.pairings.offer(token, &consumer),
        };
        let is_without = token != 0 && registered.is_none();
        let attached = Attached {
            registered,
            consumer,
            socket: client.socket,
            _hold: hold,
        };
        self.peers.insert(peer, Peer::Attached(attached));
        if is_without {
            self.dismiss(peer, "there is no memory for its token");
        }
    }

    fn has_token(&self, token: u64) -> bool {
        let mut attached = self.peers.values().filter_map(Peer::consumer);
        attached.any(|consumer| consumer.token == token)
    }

    fn take_returns(&mut self, peer: u64) {
        if let Some(consumer) = self.peers.get(&peer).and_then(Peer::consumer) {
            self.collected = true;
            consumer.collect();
            self.dismiss_if_broken(peer);
        }
    }

    fn dismiss_if_broken(&mut self, peer: u64) {
        let consumer = self.peers.get(&peer).and_then(Peer::consumer);
        if let Some(why) = consumer.and_then(Consumer::broken) {
            self.dismiss(peer, why);
        }
    }

    /// Ends a peer. Its descriptors are closed, and epoll forgets them with that.
    fn dismiss(&mut self, peer: u64, why: &str) {
        let Some(Peer::Attached(mut attached)) = self.peers.remove(&peer) else {
            return;
        };
        let number = attached.consumer.number;
        // K1: out of the set first.
        self.shared.consumers.remove(number);
        attached.registered = None;
        // Producers may keep it for a while, and its doorbell with it.
        let _ = epoll::delete(&self.epoll, attached.consumer.return_doorbell());
        // Returns that were made before the end count.
        attached.consumer.collect();
        let held = attached.consumer.end();
        drop(attached.socket);
        log::info!("consumer {number} is detached, {held} fragments taken back: {why}");
    }

    fn dismiss_slow(&mut self) {
        let is_slow = |peer: &Peer| {
            peer.handshake_age()
                .is_some_and(|age: Duration| age >= HELLO_MAX)
        };
        self.peers.retain(|_, peer| !is_slow(peer));
    }

    /// Until the oldest handshake is too slow.
    fn timeout(&self) -> Option<Timespec> {
        let oldest = self.peers.values().filter_map(Peer::handshake_age).max()?;
        let tick = Duration::from_millis(10);
        Timespec::try_from(HELLO_MAX.saturating_sub(oldest) + tick).ok()
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        let peers: Vec<u64> = self.peers.keys().copied().collect();
        for peer in peers {
            if let Some(Peer::Attached(attached)) = self.peers.get(&peer) {
                handshake::bid_farewell(&attached.socket);
            }
            self.dismiss(peer, "the server stops");
        }
        log::info!("ingest: {}", self.shared.figures());
    }
}

impl Peer {
    fn consumer(&self) -> Option<&Consumer> {
        match self {
            Peer::Attached(attached) => Some(&attached.consumer),
            Peer::Handshaking(_) => None,
        }
    }

    fn handshake_age(&self) -> Option<Duration> {
        match self {
            Peer::Handshaking(client) => Some(client.since.elapsed()),
            Peer::Attached(_) => None,
        }
    }
}

/// An epoll that watches what every round needs.
fn watch(listener: &OwnedFd, shared: &Shared) -> io::Result<OwnedFd> {
    let epoll = epoll::create(CreateFlags::CLOEXEC)?;
    epoll::add(&epoll, listener, socket_of(LISTENER), EventFlags::IN)?;
    epoll::add(&epoll, &*shared.wakeup, socket_of(WAKEUP), EventFlags::IN)?;
    Ok(epoll)
}
