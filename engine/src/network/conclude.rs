//! The end of an event: what follows from it for its connection, its pair, and the tables.
//!
//! An event knows one connection. A step that looks one up, or several, does it through
//! [`Network::on`], so that each event is reconciled, once (N1).

use flatpath_driver::Driver;
use flatpath_structures::slots::Key;

use crate::connection::output::Width;
use crate::protocol::erased::DynProtocol;

use super::reconcile::Fate;
use super::thread::{Event, Network};

impl<D: Driver> Network<D> {
    /// An event of one connection: what `act` does, and what follows from it (N1).
    pub(super) fn on(&mut self, key: Key, act: impl FnOnce(&mut Event<'_, D>)) {
        let Some(mut event) = self.event(key) else {
            return;
        };
        act(&mut event);
        if event.connection.is_spliced() {
            return self.reconcile_spliced(key);
        }
        let fate = event.reconcile();
        self.conclude(key, fate);
    }

    /// Does what an event could not do with its one connection.
    #[inline]
    pub(super) fn conclude(&mut self, key: Key, fate: Fate) {
        match fate {
            Fate::Stays => {}
            Fate::Gone => self.remove(key),
            Fate::Splices => self.splice_as_wished(key),
        }
    }

    /// Takes a connection out of every table. Its socket is closed already, and nothing is
    /// outstanding on it (C2).
    pub(super) fn remove(&mut self, key: Key) {
        let Some(mut connection) = self.connections.remove(key) else {
            return;
        };
        if connection.is_opening() {
            let listener = usize::from(connection.listener());
            let mut event = Event {
                key,
                connection: &mut connection,
                listener: &mut self.listeners[listener],
                thread: &mut self.thread,
            };
            event.tell_unsecured();
        }
        self.thread.timers.cancel(key.index);
        self.thread.cipher_cache.remove(key.index);
        if connection.output().width() != Width::Narrow {
            self.thread.sends.wide.left(key);
        }
        self.thread.end_starving(&mut connection, key.index);
        let number = self.listeners[usize::from(connection.listener())].number();
        let (account, holding) = (&mut self.thread.memory, &mut connection.holding);
        account.gone(key.index, holding, number);
        self.thread.common.forget(holding, key.index);
        self.thread.common.admission.left(key.index);
        if let Some(answered) = &self.thread.common.shared().answered {
            self.datagrams.forget_answered(answered, key.index);
        }
        debug_assert!(!connection.is_spliced(), "J1: its pair was over before");
        // Given back as soon as no input was wanted, by `clear_inbox`.
        debug_assert!(
            connection.inbox().holds_nothing(),
            "pages go with their connection"
        );
        let protocol: &mut dyn DynProtocol = match connection.successor() {
            0 => self.listeners[usize::from(connection.listener())].protocol_mut(),
            number => self.thread.successors.get(number),
        };
        let log = self.thread.common.log_end(connection.output().sent_bytes());
        protocol.close(connection.session(), log);
        if let Some(logged) = connection.take_line() {
            self.log_connection(&connection, &logged);
        }
        let counters = self.thread.common.counters(connection.listener());
        counters.connections_closed.add(1);
        self.acceptors.end_pauses();
    }
}
