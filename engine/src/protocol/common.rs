//! What the calls of all protocols on one network thread have in common, whatever its driver.

use std::net::SocketAddr;
use std::sync::Arc;

use crate::admission::Admission;
use crate::admission::address_limit::Cells;
use crate::connection::Connection;
use crate::limits::Limits;
use crate::memory::holding::Holding;
use crate::network::mailbox::Mailbox;
use crate::network::wakes::Wakes;
use crate::observe::access_log::{AccessLog, LogEnd};
use crate::observe::episode::Refusals;
use crate::observe::statistics::{Counters, ThreadCounters};
use crate::protocol::phase::Stall;
use crate::protocol::turn::Turn;
use crate::server::lifecycle::ServerState;
use crate::workers::prompt::Tries;
use crate::workers::{Dispatcher, Shared};

pub(crate) struct Common {
    /// Which network thread this is, from 0.
    pub(crate) number: u16,
    pub(crate) turn: Turn,
    pub(crate) limits: Limits,
    /// Which change of them the thread has taken over last.
    pub(crate) limits_version: u32,
    /// How far the thread has followed the server to its end.
    pub(crate) server_state: ServerState,
    pub(crate) shared: Arc<Shared>,
    pub(crate) dispatcher: Dispatcher,
    /// Who has a place, and comes from where.
    pub(crate) admission: Admission,
    pub(crate) counters: Arc<ThreadCounters>,
    pub(crate) refusals: Refusals,
    /// Requests that were tried here in this turn.
    pub(crate) tries: Tries,
    /// Of each listener.
    pub(crate) entrances: Box<[Entrance]>,
    pub(crate) access_log: Option<AccessLog>,
    /// The shortest time that a phase or a send has; see `Connection::has_new_deadline`.
    pub(crate) shortest_ns: u64,
    /// The same of the connections that have deadlines of their own.
    pub(crate) own_shortest_ns: u64,
    /// What other threads say about connections.
    pub(crate) wakes: Arc<Wakes>,
}

/// What protocols may know of the listener that a connection has come by.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Entrance {
    /// They may begin TLS.
    pub(crate) may_start_tls: bool,
    /// It is a Unix socket.
    pub(crate) is_unix: bool,
}

impl Common {
    /// The shortest deadline of all listeners has changed.
    pub(crate) fn bound_shortest(&mut self, of_listeners_ns: u64) {
        self.shortest_ns = of_listeners_ns.min(self.own_shortest_ns);
    }

    /// The connection at a place comes from `peer`: it is counted there from now on, and so is what
    /// it holds, in every bound.
    pub(crate) fn learn(&mut self, index: u32, holding: &mut Holding, peer: Option<SocketAddr>) {
        let address = self.shared.address_keys.find(peer);
        holding.cells = address.cells;
        self.admission.learn(index, address);
        self.name(index, address.cells);
    }

    /// The connection at a place is gone, or its address is another one.
    pub(crate) fn forget(&self, holding: &mut Holding, index: u32) {
        if std::mem::take(&mut holding.cells) != Cells::UNKNOWN {
            self.name(index, Cells::UNKNOWN);
        }
    }

    fn name(&self, index: u32, cells: Cells) {
        let place = self.shared.memory.pools.owner(self.number, index);
        self.shared.descriptors.name(place as usize, cells);
        self.dispatcher.name(index, cells);
    }

    /// Stops the input of a connection, and counts that if it is not the same stall that is tried
    /// again.
    pub(crate) fn stall(&self, connection: &mut Connection, stall: Stall) {
        if !connection.stall(stall, self.turn.now_ns) {
            return;
        }
        let counters = self.counters(connection.listener());
        let count = match stall {
            // Neither is a shortage.
            Stall::Turn | Stall::Step => return,
            Stall::Output => &counters.output_stalls,
            Stall::Pipeline => &counters.pipeline_stalls,
            Stall::Body => &counters.body_stalls,
            Stall::Jobs => &counters.jobs_stalls,
            Stall::LongLived => &counters.lasting_stalls,
            Stall::Memory => &counters.memory_stalls,
            Stall::Share => &counters.share_stalls,
            Stall::Outside => &counters.outside_stalls,
        };
        count.add(1);
    }

    /// Bytes of buffers that are out for the connection at a place. One load.
    #[inline]
    pub(crate) fn held_bytes(&self, index: u32) -> usize {
        self.shared.memory.pools.held_bytes(self.number, index)
    }

    /// Descriptors of files that are held for the connection at a place. One load.
    pub(crate) fn files_of(&self, index: u32) -> usize {
        let place = self.shared.memory.pools.owner(self.number, index);
        self.shared.descriptors.held_by(place as usize)
    }

    /// What other threads have left for this one.
    #[inline]
    pub(crate) fn mailbox(&self) -> &Mailbox {
        &self.shared.mailboxes[usize::from(self.number)]
    }

    /// Tells the other network threads that something has changed.
    pub(crate) fn tell_others(&self) {
        let mailboxes = self.shared.mailboxes.iter().enumerate();
        let others = mailboxes.filter(|(thread, _)| *thread != usize::from(self.number));
        others.for_each(|(_, mailbox)| mailbox.tell());
    }

    /// What the thread counts for a listener, by its own number for it.
    #[inline]
    pub(crate) fn counters(&self, listener: u16) -> &Counters {
        self.counters.of(listener)
    }

    /// What a session is to log its rest with, whose connection's kernel took so many bytes.
    pub(crate) fn log_end(&mut self, sent_bytes: u64) -> Option<LogEnd<'_>> {
        let turn = self.turn;
        self.access_log.as_mut().map(|log| LogEnd {
            log,
            turn,
            sent_bytes,
        })
    }
}
