//! Connections through a load balancer: who may connect, and who a connection comes from.
//!
//! Limits and shares count a connection with its client's address, which the header names; what it
//! holds before that is counted with the balancer's. Only the order in which connections are
//! admitted goes by the balancer's address: of the client nothing is known then.

use flatpath_driver::{Driver, Socket};
use flatpath_structures::slots::Key;

use crate::admission::claim::Claim;
use crate::connection::Closing;
use crate::connection::behind_proxy::Balancers;
use crate::protocol;

use super::thread::{Event, Network, Thread};

impl<D: Driver> Thread<D> {
    /// Whether a connection comes from a load balancer; if not, it is noted as refused.
    pub(super) fn is_balancer(
        &mut self,
        listener: u16,
        balancers: &Balancers,
        socket: Socket,
    ) -> bool {
        let peer = self.driver.peer(socket);
        let is_balancer = balancers.include(peer);
        if !is_balancer {
            let why = "it is no load balancer that may send the PROXY header";
            self.common.note_refused(listener, peer, &why);
        }
        is_balancer
    }
}

impl<D: Driver> Event<'_, D> {
    /// What it holds was counted with the balancer's address, and is counted anew.
    fn forget_balancer(&mut self) {
        let holding = &mut self.connection.holding;
        self.thread.memory.uncount(holding, self.listener.number());
        self.thread.common.forget(holding, self.key.index);
        self.thread.common.admission.is_named(self.key.index);
    }
}

impl<D: Driver> Network<D> {
    /// The header of a connection is read: from now on it is one of its listener's protocol.
    pub(super) fn introduce(&mut self, key: Key) {
        let Some(mut event) = self.event(key) else {
            return;
        };
        event.forget_balancer();
        if event.change_from_header() {
            self.admit(key, Claim::client);
        } else {
            event.connection.close(Closing::Abort);
        }
        self.comes_late(key);
        self.on(key, |event| {
            if !event.connection.is_closing() {
                event.begin_line();
                event.report(protocol::Event::Connected);
                event.read_left();
            }
        });
    }
}
