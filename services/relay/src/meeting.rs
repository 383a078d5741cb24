//! Who waits for whom: clients in the pairing registry, and spares beside it.
//!
//! The registry joins one producer with one consumer per key. Both parties of a relay are alike, so
//! a client takes whichever side is free: the first one waits as a consumer, and the one that
//! meets it is the producer; or the other way round, if the consumer has left meanwhile.
//!
//! A client that would meet one of its own side is a spare: it waits beside the registry and takes
//! the place of the one it met should that one leave. When that one is joined, its spares are told
//! to go.
//!
//! Invariants
//! - M1: a client is registered, or a spare, or neither; never two of them.
//! - M2: two clients are registered under one key exactly if each has the other as its partner.
//! - M3: the key is a hash of the token, keyed at random; the tokens themselves are compared when
//!   two meet, so that a collision joins nobody.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use flatpath::pairing::{
    Consumer, Endpoint, PairingKey, Producer, RegisterError, Registration, Registry,
};
use flatpath::{ConnectionHandle, LocalWaker};

use crate::handshake::{Handshake, Side, Token};
use crate::waiting::{Ticket, Waiting};

/// Spares of one token at most: what one side connects by several addresses.
const SPARES_PER_TOKEN_MAX: usize = 8;

/// A token's hash, as the registry wants it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key(u64);

impl PairingKey for Key {
    fn word(self) -> u64 {
        self.0
    }
}

type Meetings = Registry<Key, Client, Client>;

/// Why two clients under one key are not joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unfit {
    SameSide,
    OtherToken,
}

/// A client with its handshake done.
#[derive(Debug)]
pub(crate) struct Client {
    token: Token,
    side: Option<Side>,
    end: ConnectionHandle,
    since_ns: u64,
    place: Mutex<Place>,
}

#[derive(Debug, Default)]
struct Place {
    registration: Option<Registration<Arc<Meetings>>>,
    partner: Option<Partner>,
    /// Its place among those that wait, and whether it has lost it.
    ticket: Option<Ticket>,
    is_displaced: bool,
}

/// Whom a client has met.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Partner {
    pub(crate) end: ConnectionHandle,
    /// When it began to wait.
    pub(crate) since_ns: u64,
}

/// Shared by the connection's session and, while it is registered, the registry.
pub(crate) type Guest = Arc<Endpoint<Client>>;

impl Client {
    fn place(&self) -> MutexGuard<'_, Place> {
        self.place.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it has lost its place to another.
    pub(crate) fn is_displaced(&self) -> bool {
        self.place().is_displaced
    }

    /// Whom it has met, if anybody.
    pub(crate) fn partner(&self) -> Option<Partner> {
        self.place().partner
    }

    fn as_partner(&self) -> Partner {
        Partner {
            end: self.end,
            since_ns: self.since_ns,
        }
    }

    fn fits(&self, other: &Client) -> Result<(), Unfit> {
        if self.token != other.token {
            Err(Unfit::OtherToken)
        } else if self.side.is_some() && self.side == other.side {
            Err(Unfit::SameSide)
        } else {
            Ok(())
        }
    }
}

impl Producer<Client> for Client {
    type Error = Unfit;

    fn add_consumer(&self, consumer: &Client) -> Result<(), Unfit> {
        self.fits(consumer)?;
        self.place().partner = Some(consumer.as_partner());
        Ok(())
    }

    fn del_consumer(&self, _consumer: &Client) {
        self.place().partner = None;
    }
}

impl Consumer<Client> for Client {
    type Error = Unfit;

    fn add_producer(&self, producer: &Client) -> Result<(), Unfit> {
        self.place().partner = Some(producer.as_partner());
        Ok(())
    }

    fn del_producer(&self, _producer: &Client) {
        self.place().partner = None;
    }
}

/// What became of a client that came with a token.
#[derive(Debug)]
pub(crate) enum Arrival {
    /// Its partner was there.
    Met(Guest, Partner),
    /// It waits, registered or as a spare.
    Waits(Guest),
    /// Its token is in use, or has too many spares, or there is no room for it.
    Refused(Refusal),
}

/// Why a client is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// Two others have its token, or one whose hash is the same.
    TokenTaken,
    /// Its side has too many connections, or there is no memory.
    NoRoom,
}

/// All meetings of a relay.
pub(crate) struct Room {
    registry: Arc<Meetings>,
    hash: RandomState,
    spares: HashMap<Key, Vec<Guest>>,
    waiting: Waiting<Guest>,
    /// Clients that may wait.
    places: usize,
    /// Calls connections; there from the first arrival on.
    pub(crate) waker: Option<LocalWaker>,
}

impl Room {
    pub(crate) fn new(clients_max: u32) -> Room {
        Room {
            registry: Arc::new(Registry::new(clients_max)),
            hash: RandomState::new(),
            spares: HashMap::new(),
            waiting: Waiting::default(),
            places: usize::MAX,
            waker: None,
        }
    }

    fn key(&self, token: &Token) -> Key {
        // 0 is the registry's empty key.
        Key(self.hash.hash_one(token).max(1))
    }

    pub(crate) fn arrive(
        &mut self,
        handshake: Handshake,
        end: ConnectionHandle,
        now_ns: u64,
    ) -> Arrival {
        let guest = Arc::new(Endpoint::new(Client {
            token: handshake.token,
            side: handshake.side,
            end,
            since_ns: now_ns,
            place: Mutex::default(),
        }));
        match self.register(&guest) {
            Ok(()) => match guest.partner() {
                Some(partner) => Arrival::Met(guest, partner),
                None => Arrival::Waits(guest),
            },
            Err(RegisterError::Connect(Unfit::SameSide)) => self.keep_spare(guest),
            Err(RegisterError::Connect(Unfit::OtherToken)) => Arrival::Refused(Refusal::TokenTaken),
            Err(RegisterError::Taken) => Arrival::Refused(Refusal::TokenTaken),
            Err(RegisterError::Full | RegisterError::NoMemory) => Arrival::Refused(Refusal::NoRoom),
            Err(RegisterError::EmptyKey | RegisterError::RegisteredTwice) => {
                debug_assert!(false, "a new client under a key that is not empty");
                Arrival::Refused(Refusal::NoRoom)
            }
        }
    }

    /// Registers a client on whichever side is free.
    fn register(&self, guest: &Guest) -> Result<(), RegisterError<Unfit>> {
        let key = self.key(&guest.token);
        let registry = Arc::clone(&self.registry);
        let registered = Registry::register_consumer(registry, key, Arc::clone(guest));
        let registration = match registered {
            Err(RegisterError::Taken) => {
                let registry = Arc::clone(&self.registry);
                Registry::register_producer(registry, key, Arc::clone(guest))?
            }
            other => other?,
        };
        guest.place().registration = Some(registration);
        Ok(())
    }

    fn keep_spare(&mut self, guest: Guest) -> Arrival {
        let spares = self.spares.entry(self.key(&guest.token)).or_default();
        if spares.len() >= SPARES_PER_TOKEN_MAX {
            return Arrival::Refused(Refusal::NoRoom);
        }
        spares.push(Arc::clone(&guest));
        Arrival::Waits(guest)
    }

    /// A client was joined: its spares are called to be let go, and forgotten here.
    pub(crate) fn dismiss_spares(&mut self, guest: &Guest) {
        let spares = self.spares.remove(&self.key(&guest.token));
        for spare in spares.unwrap_or_default() {
            self.notify(&spare);
        }
    }

    /// A client waits from now on. Where that makes more than `places`, another one loses its
    /// place and is called.
    pub(crate) fn begin_wait(&mut self, guest: &Guest, peer: Option<SocketAddr>, places: usize) {
        self.places = places;
        let ticket = self.waiting.enter(Arc::clone(guest), peer);
        guest.place().ticket = Some(ticket);
        while let Some(displaced) = self.waiting.displace(places) {
            let mut place = displaced.place();
            place.ticket = None;
            place.is_displaced = true;
            drop(place);
            self.notify(&displaced);
        }
    }

    /// A client waits no more.
    pub(crate) fn end_wait(&mut self, guest: &Guest) {
        let ticket = guest.place().ticket.take();
        if let Some(ticket) = ticket {
            self.waiting.leave(ticket, self.places);
        }
    }

    fn notify(&self, guest: &Guest) {
        if let Some(waker) = &self.waker {
            waker.wake(guest.end);
        }
    }

    /// A client could not be joined to the partner it had met, who is about to leave: it waits
    /// beside the registry until that one has left.
    pub(crate) fn wait_again(&mut self, guest: &Guest) -> bool {
        end_registration(guest);
        matches!(self.keep_spare(Arc::clone(guest)), Arrival::Waits(_))
    }

    /// A client leaves, whatever it was. Spares take what it leaves free; one that meets a partner
    /// there is called.
    pub(crate) fn leave(&mut self, guest: &Guest) {
        end_registration(guest);
        let key = self.key(&guest.token);
        let Some(mut spares) = self.spares.remove(&key) else {
            return;
        };
        spares.retain(|spare| {
            if Arc::ptr_eq(spare, guest) {
                return false;
            }
            let registered = self.register(spare).is_ok();
            if registered && spare.partner().is_some() {
                self.notify(spare);
            }
            !registered
        });
        if !spares.is_empty() {
            self.spares.insert(key, spares);
        }
    }
}

/// Ends a client's registration, if it has one.
fn end_registration(guest: &Guest) {
    // Out of the lock first: the end calls back into the client.
    let registration = guest.place().registration.take();
    drop(registration);
}
