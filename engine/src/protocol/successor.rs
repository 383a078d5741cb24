//! Protocols without an address: a connection comes to them from another protocol.
//!
//! An upgrade (RFC 9110 section 7.8) changes what the bytes of a connection mean. The protocol that
//! accepted it names a [`Successor`] and how the new session begins, and the network thread carries
//! that out after the call, as it does with every wish: `network/reconcile.rs`.
//!
//! Nothing of it is there before the first hand-over: each network thread makes what it needs of a
//! successor then, and keeps it. A connection without one pays a comparison for each call.
//!
//! Invariants
//! - U1: a connection has one session at any time; the new one is there before the old one is
//!   closed, and no call of the old protocol comes after [`Protocol::closed`].
//! - U2: what the old protocol queued is sent before what the new one queues; the new one is
//!   given every byte that the old one has not consumed, once, in order, then the end of the
//!   stream.
//! - U3: no job changes its protocol: none is under way at the moment of the change, and one whose
//!   connection is gone is retired by the protocol that made it.
//! - U4: the connection still counts for the listener that accepted it.

use std::fmt;
use std::sync::Arc;

use flatpath_structures::panics::{contain, drop_contained};
use flatpath_structures::slots::Key;

use crate::protocol::discard::discard;
use crate::protocol::erased::{DynProtocol, ErasedListener};
use crate::protocol::hand_over::HandOver;
use crate::protocol::{Protocol, options_of};
use crate::workers::free_list::Trimmed;

/// A protocol that takes over connections which another protocol has accepted. Make it once and
/// clone it: each network thread keeps what it has made for it until the server ends, as it does
/// for a listener, and a server has room for 65,535.
///
/// Of the protocol's [`ListenerOptions`](crate::ListenerOptions) only the name and the refusal
/// count: shares and limits are those of the listener that accepted the connection, and there is no
/// region of its own. [`Protocol::starts`] is not called, and the state of a network thread is made
/// at the first hand-over there.
pub struct Successor<P: Protocol>(Arc<P>);

impl<P: Protocol> Clone for Successor<P> {
    fn clone(&self) -> Successor<P> {
        Successor(Arc::clone(&self.0))
    }
}

impl<P: Protocol> fmt::Debug for Successor<P> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_tuple("Successor")
            .field(&options_of(&*self.0).name)
            .finish()
    }
}

impl<P: Protocol> Successor<P> {
    /// A protocol to hand connections over to.
    pub fn new(protocol: P) -> Successor<P> {
        Successor(Arc::new(protocol))
    }

    /// What [`Io::hand_over`](crate::Io::hand_over) takes. The network thread makes the session
    /// with `begin`; a panic in it aborts the connection. One hand-over allocates this.
    pub fn begin(&self, begin: impl FnOnce() -> P::Session + Send + 'static) -> HandOver {
        let begin: Begun = Box::new(Beginning {
            protocol: Arc::clone(&self.0),
            begin,
        });
        HandOver::new(Box::new(begin))
    }
}

/// What a [`HandOver`] holds.
type Begun = Box<dyn Begin + Send>;

/// A [`Beginning`] with its types erased.
trait Begin {
    /// Tells a successor from every other as long as it exists.
    fn address(&self) -> usize;
    fn make(&self, connections_max: usize) -> Box<dyn DynProtocol>;
    fn open(self: Box<Self>, protocol: &mut dyn DynProtocol) -> Option<Key>;
}

struct Beginning<P, F> {
    protocol: Arc<P>,
    begin: F,
}

impl<P: Protocol, F: FnOnce() -> P::Session> Begin for Beginning<P, F> {
    fn address(&self) -> usize {
        Arc::as_ptr(&self.protocol).addr()
    }

    fn make(&self, connections_max: usize) -> Box<dyn DynProtocol> {
        Box::new(ErasedListener::new(
            Arc::clone(&self.protocol),
            connections_max,
        ))
    }

    fn open(self: Box<Self>, protocol: &mut dyn DynProtocol) -> Option<Key> {
        let listener = protocol.as_any().downcast_mut::<ErasedListener<P>>()?;
        listener.open_with(self.begin)
    }
}

/// The successors of one network thread, in the order of their first connections.
pub(crate) struct Successors {
    entries: Vec<Entry>,
    connections_max: usize,
    /// The number of the protocol that reads PROXY headers; 0 before a listener has balancers.
    proxy_header: u16,
}

struct Entry {
    address: usize,
    protocol: Box<dyn DynProtocol>,
    /// One of its connections was called in this turn.
    was_called: bool,
}

impl Successors {
    pub(crate) fn new(connections_max: usize) -> Successors {
        Successors {
            entries: Vec::new(),
            connections_max,
            proxy_header: 0,
        }
    }

    /// Opens a session; the number of its protocol and its key. `None` when it could not be made.
    pub(crate) fn open(&mut self, wish: HandOver) -> Option<(u16, Key)> {
        let begun = wish.into_inner()?.downcast::<Begun>().ok()?;
        let address = begun.address();
        // The address is no other's: the entry keeps the protocol alive.
        let known = self
            .entries
            .iter()
            .position(|entry| entry.address == address);
        let Some(index) = known.or_else(|| self.add(&**begun)) else {
            discard(begun);
            return None;
        };
        let number = u16::try_from(index + 1).expect("as many as have a number");
        let key = begun.open(&mut *self.entries[index].protocol)?;
        Some((number, key))
    }

    fn add(&mut self, begun: &dyn Begin) -> Option<usize> {
        if self.entries.len() >= usize::from(u16::MAX) {
            log::error!("no room for another successor: make each once, not for each connection");
            return None;
        }
        let protocol = contain(|| begun.make(self.connections_max))?;
        self.entries.push(Entry {
            address: begun.address(),
            protocol,
            was_called: false,
        });
        Some(self.entries.len() - 1)
    }

    /// Adds a protocol that no hand-over names; its number.
    pub(crate) fn add_own(&mut self, protocol: Box<dyn DynProtocol>) -> u16 {
        self.entries.push(Entry {
            // No other's: nothing lies there.
            address: 0,
            protocol,
            was_called: false,
        });
        u16::try_from(self.entries.len()).expect("the first of them")
    }

    /// Adds the protocol that reads PROXY headers, unless it is there.
    pub(crate) fn add_proxy_header(&mut self, make: impl FnOnce() -> Box<dyn DynProtocol>) {
        if self.proxy_header == 0 {
            self.proxy_header = self.add_own(make());
        }
    }

    /// The number of that protocol, which connections begin with whose header is awaited.
    pub(crate) fn proxy_header(&self) -> u16 {
        self.proxy_header
    }

    /// The protocol with a number, which is not 0.
    pub(crate) fn get(&mut self, number: u16) -> &mut (dyn DynProtocol + 'static) {
        &mut *self.entries[usize::from(number) - 1].protocol
    }

    /// The same for a call.
    pub(crate) fn call(&mut self, number: u16) -> &mut (dyn DynProtocol + 'static) {
        let entry = &mut self.entries[usize::from(number) - 1];
        entry.was_called = true;
        &mut *entry.protocol
    }

    /// The thread ends: drops them one by one, as drops may panic.
    pub(crate) fn clear(&mut self) {
        self.entries.drain(..).for_each(drop_contained);
    }

    pub(crate) fn all(&mut self) -> impl Iterator<Item = &mut Box<dyn DynProtocol>> {
        self.entries.iter_mut().map(|entry| &mut entry.protocol)
    }

    /// The end of a turn.
    pub(crate) fn turn_ended(&mut self) {
        for entry in &mut self.entries {
            if std::mem::take(&mut entry.was_called) {
                entry.protocol.turn_ended();
            }
        }
    }

    /// Frees jobs that were not needed since the last call.
    pub(crate) fn trim(&mut self) -> Trimmed {
        let mut trimmed = Trimmed::default();
        for entry in &mut self.entries {
            let one = entry.protocol.trim();
            trimmed.any |= one.any;
            trimmed.more |= one.more;
        }
        trimmed
    }
}
