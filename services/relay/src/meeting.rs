//! Clients that wait for their partner: in the pairing registry, and spares outside it.
//!
//! The registry connects one producer with one consumer per key. Both parties of a relay are alike,
//! so a client takes whichever side is free: the first one waits as a consumer, and the one that
//! meets it is the producer; or the reverse, if the consumer has left.
//!
//! A client that would meet one of its own side is a spare: it waits outside the registry and
//! replaces the one it met when that one leaves. When that one is spliced, its spares are closed.
//!
//! Invariants
//! - M1: a client is registered, or a spare, or neither; never two of them.
//! - M2: two clients are registered under one key exactly if each has the other as its partner.
//! - M3: the key is a hash of the token, keyed at random; the tokens themselves are compared when
//!   two meet, so that a collision connects no pair.

use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use flatpath::ConnectionHandle;
use flatpath::lock::{Guard, Lock};
use flatpath_pairing::{
    Consumer, Endpoint, PairingKey, Producer, RegisterError, Registration, Registry,
};

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

type ClientRegistry = Registry<Key, Client, Client>;

/// Why two clients under one key are not connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mismatch {
    SameSide,
    OtherToken,
}

/// A client with its handshake done.
#[derive(Debug)]
pub(crate) struct Client {
    token: Token,
    side: Option<Side>,
    end: ConnectionHandle,
    since: Duration,
    state: Lock<State>,
}

#[derive(Debug, Default)]
struct State {
    registration: Option<Registration<Arc<ClientRegistry>>>,
    partner: Option<Partner>,
    /// While it is counted as waiting; and whether a newcomer has replaced it.
    ticket: Option<Ticket>,
    is_displaced: bool,
}

/// The client that a client has met.
#[derive(Clone, Debug)]
pub(crate) struct Partner {
    pub(crate) end: ConnectionHandle,
    /// When it began to wait.
    pub(crate) since: Duration,
}

/// Shared by the connection's session and, while it is registered, the registry.
pub(crate) type ClientHandle = Arc<Endpoint<Client>>;

impl Client {
    fn state(&self) -> Guard<'_, State> {
        self.state.lock()
    }

    /// Whether a newcomer has replaced it.
    pub(crate) fn is_displaced(&self) -> bool {
        self.state().is_displaced
    }

    pub(crate) fn partner(&self) -> Option<Partner> {
        self.state().partner.clone()
    }

    fn as_partner(&self) -> Partner {
        Partner {
            end: self.end.clone(),
            since: self.since,
        }
    }

    fn fits(&self, other: &Client) -> Result<(), Mismatch> {
        if self.token != other.token {
            Err(Mismatch::OtherToken)
        } else if self.side.is_some() && self.side == other.side {
            Err(Mismatch::SameSide)
        } else {
            Ok(())
        }
    }
}

impl Producer<Client> for Client {
    type Error = Mismatch;

    fn add_consumer(&self, consumer: &Client) -> Result<(), Mismatch> {
        self.fits(consumer)?;
        self.state().partner = Some(consumer.as_partner());
        Ok(())
    }

    fn del_consumer(&self, _consumer: &Client) {
        self.state().partner = None;
    }
}

impl Consumer<Client> for Client {
    type Error = Mismatch;

    fn add_producer(&self, producer: &Client) -> Result<(), Mismatch> {
        self.state().partner = Some(producer.as_partner());
        Ok(())
    }

    fn del_producer(&self, _producer: &Client) {
        self.state().partner = None;
    }
}

/// The answer to a client that came with a token.
#[derive(Debug)]
pub(crate) enum Arrival {
    /// Its partner was there.
    Met(ClientHandle, Partner),
    /// It waits, registered or as a spare.
    Waits(ClientHandle),
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
pub(crate) struct Meetings {
    registry: Arc<ClientRegistry>,
    hash: RandomState,
    spares: HashMap<Key, Vec<ClientHandle>>,
    waiting: Waiting<ClientHandle>,
    /// Clients that may wait.
    places: usize,
}

impl Default for Meetings {
    fn default() -> Meetings {
        Meetings {
            // Every client has a key at most, waiting or spliced.
            registry: Arc::new(Registry::new(u32::MAX)),
            hash: RandomState::new(),
            spares: HashMap::new(),
            waiting: Waiting::default(),
            places: usize::MAX,
        }
    }
}

impl fmt::Debug for Meetings {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Meetings").finish_non_exhaustive()
    }
}

impl Meetings {
    fn key(&self, token: &Token) -> Key {
        // 0 is the registry's empty key.
        Key(self.hash.hash_one(token).max(1))
    }

    pub(crate) fn arrive(
        &mut self,
        handshake: Handshake,
        end: ConnectionHandle,
        now: Duration,
    ) -> Arrival {
        let client = Arc::new(Endpoint::new(Client {
            token: handshake.token,
            side: handshake.side,
            end,
            since: now,
            state: Lock::default(),
        }));
        match self.register(&client) {
            Ok(()) => match client.partner() {
                Some(partner) => Arrival::Met(client, partner),
                None => Arrival::Waits(client),
            },
            Err(RegisterError::Connect(Mismatch::SameSide)) => self.keep_spare(client),
            Err(RegisterError::Connect(Mismatch::OtherToken)) => {
                Arrival::Refused(Refusal::TokenTaken)
            }
            Err(RegisterError::Taken) => Arrival::Refused(Refusal::TokenTaken),
            Err(RegisterError::Full | RegisterError::NoMemory) => Arrival::Refused(Refusal::NoRoom),
            Err(RegisterError::EmptyKey | RegisterError::RegisteredTwice) => {
                debug_assert!(false, "a new client under a key that is not empty");
                Arrival::Refused(Refusal::NoRoom)
            }
        }
    }

    /// Registers a client on whichever side is free.
    fn register(&self, client: &ClientHandle) -> Result<(), RegisterError<Mismatch>> {
        let key = self.key(&client.token);
        let registry = Arc::clone(&self.registry);
        let registered = Registry::register_consumer(registry, key, Arc::clone(client));
        let registration = match registered {
            Err(RegisterError::Taken) => {
                let registry = Arc::clone(&self.registry);
                Registry::register_producer(registry, key, Arc::clone(client))?
            }
            other => other?,
        };
        client.state().registration = Some(registration);
        Ok(())
    }

    fn keep_spare(&mut self, client: ClientHandle) -> Arrival {
        let spares = self.spares.entry(self.key(&client.token)).or_default();
        if spares.len() >= SPARES_PER_TOKEN_MAX {
            return Arrival::Refused(Refusal::NoRoom);
        }
        spares.push(Arc::clone(&client));
        Arrival::Waits(client)
    }

    /// A client was spliced: removes its spares, and notifies them to be closed.
    pub(crate) fn dismiss_spares(&mut self, client: &ClientHandle) {
        let spares = self.spares.remove(&self.key(&client.token));
        for spare in spares.unwrap_or_default() {
            spare.end.wake();
        }
    }

    /// A client waits from now on. Where that makes more than `places`, another one is replaced,
    /// and notified.
    pub(crate) fn begin_wait(
        &mut self,
        client: &ClientHandle,
        peer: Option<SocketAddr>,
        places: usize,
    ) {
        self.places = places;
        let ticket = self.waiting.enter(Arc::clone(client), peer);
        client.state().ticket = Some(ticket);
        while let Some(displaced) = self.waiting.displace(places) {
            let mut state = displaced.state();
            state.ticket = None;
            state.is_displaced = true;
            drop(state);
            displaced.end.wake();
        }
    }

    pub(crate) fn end_wait(&mut self, client: &ClientHandle) {
        let ticket = client.state().ticket.take();
        if let Some(ticket) = ticket {
            self.waiting.leave(ticket, self.places);
        }
    }

    /// A client could not be spliced to the partner it had met, which is about to leave: it waits
    /// outside the registry until that one has left.
    pub(crate) fn wait_again(&mut self, client: &ClientHandle) -> bool {
        end_registration(client);
        matches!(self.keep_spare(Arc::clone(client)), Arrival::Waits(_))
    }

    /// A client leaves, whatever it was. A spare replaces it, and is notified if it meets a partner
    /// so.
    pub(crate) fn leave(&mut self, client: &ClientHandle) {
        end_registration(client);
        let key = self.key(&client.token);
        let Some(mut spares) = self.spares.remove(&key) else {
            return;
        };
        spares.retain(|spare| {
            if Arc::ptr_eq(spare, client) {
                return false;
            }
            let registered = self.register(spare).is_ok();
            if registered && spare.partner().is_some() {
                spare.end.wake();
            }
            !registered
        });
        if !spares.is_empty() {
            self.spares.insert(key, spares);
        }
    }
}

/// Ends a client's registration, if it has one.
fn end_registration(client: &ClientHandle) {
    // Out of the lock first: the end calls back into the client.
    let registration = client.state().registration.take();
    drop(registration);
}
