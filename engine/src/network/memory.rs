//! Acts for `crate::memory`: tells the account of the thread what connections hold, and does what
//! it says. Nothing is decided here.
//!
//! | asked                      | verdict   | what is done                                        |
//! |----------------------------|-----------|-----------------------------------------------------|
//! | after an event             | `Verdict` | nothing; the input waits; the connection is refused |
//! | in each turn, while paused | a bool    | its input is given again                            |
//! | while pages are awaited    | `Rearm`   | a receive is armed; the driver awaits pages         |
//! | in each turn with chores   | `Step`    | one flushes or ends; another thread is asked        |
//! | once a millisecond         | places    | what is held there is counted                       |

use flatpath_driver::Driver;
use flatpath_structures::slots::Slots;

use crate::admission::address_limit::{Cells, Over};
use crate::admission::long_lived::Need;
use crate::connection::{Closing, Connection};
use crate::limits::IDLE_BYTES_KEPT;
use crate::memory::account::Facts;
use crate::memory::holders::{Connections, Look};
use crate::memory::holding::{Share, Verdict};
use crate::memory::pages::{Kept, PageKind, Rearm};
use crate::memory::shortage::{Demand, Step};
use crate::network::waits::Wait;
use crate::protocol;
use crate::protocol::common::Common;
use crate::protocol::phase::{Phase, Stall};

use super::thread::{Event, Network, Thread, peer_of};

/// The connections of a thread, and what asks about their peers.
struct View<'a, D: Driver> {
    connections: &'a Slots<Connection>,
    common: &'a Common,
    driver: &'a D,
}

impl<D: Driver> View<'_, D> {
    fn connection(&self, index: u32) -> Option<&Connection> {
        self.connections.get(self.connections.key_at(index)?)
    }
}

impl<D: Driver> Connections for View<'_, D> {
    fn look(&self, index: u32) -> Option<Look> {
        let connection = self.connection(index)?;
        Some(Look {
            held_bytes: self.common.held_bytes(index),
            moved: connection.moved(),
            may_end: connection.closing() < Closing::Abort,
            is_worked_on: connection.jobs_out() > 0
                || connection.phase() == Phase::Work && connection.is_sent(),
        })
    }

    fn acknowledged(&self, index: u32) -> Option<u64> {
        let connection = self.connection(index).filter(|one| one.is_sending())?;
        let delivery = self.driver.delivery(connection.socket())?;
        Some(delivery.acked_bytes)
    }
}

impl<D: Driver> Event<'_, D> {
    /// Whether the connection holds or waits for something else than after its last event.
    #[inline]
    pub(super) fn has_new_holdings(&self) -> bool {
        let held_bytes = self.thread.common.held_bytes(self.key.index);
        let waits = self.connection.waits_for_memory();
        self.connection.holding.is_changed(held_bytes, waits)
    }

    /// Charges the connection for the buffers that it holds by now.
    pub(super) fn charge_buffers(&mut self) {
        let connection = &*self.connection;
        let facts = Facts {
            held_bytes: self.thread.common.held_bytes(self.key.index),
            waits: connection.waits_for_memory(),
            moved: connection.moved(),
            may_pause: connection.takes_input() && !connection.is_spliced(),
            listener: self.listener.number(),
            now_ns: self.thread.now_ns(),
        };
        if self.thread.memory.asks_address(&connection.holding, &facts) {
            self.learn_address();
        }
        let (account, holding) = (&mut self.thread.memory, &mut self.connection.holding);
        let verdict = account.charge(self.key.index, holding, &facts);
        self.carry_out(verdict);
    }

    /// Charges the connection for the common pages that it keeps while it is stalled.
    pub(super) fn charge_pages(&mut self) {
        let connection = &mut *self.connection;
        let pages = connection.pages_stalled();
        if connection.holding.keeps(pages) {
            return;
        }
        let common = self.thread.driver.region(0);
        let mut kept = Kept {
            pages,
            is_spliced: connection.is_spliced(),
            all: common.pages() as usize,
            retained: common.retained() as usize,
        };
        if self.thread.memory.pages.exceeds(&connection.holding, &kept) {
            let (inbox, mut supply) = self.inbox();
            inbox.copy_out(&mut supply);
            kept.pages = self.connection.pages_stalled();
        }
        let (pages, holding) = (&mut self.thread.memory.pages, &mut self.connection.holding);
        let verdict = pages.charge(holding, kept);
        self.carry_out(verdict);
    }

    /// Finds out where the connection's address is counted: one system call. Its socket may be
    /// closed by now, if this was its last send: the driver cannot say then whose it is.
    pub(super) fn learn_address(&mut self) {
        if self.connection.holding.cells == Cells::UNKNOWN && !self.connection.is_sending_last() {
            self.ask_address();
        }
    }

    /// Asks where the connection comes from, and has it counted there.
    pub(super) fn ask_address(&mut self) {
        let peer = peer_of(&self.thread.driver, self.connection);
        let (common, holding) = (&mut self.thread.common, &mut self.connection.holding);
        common.learn(self.key.index, holding, peer);
    }

    /// Does what follows from a charge.
    fn carry_out(&mut self, verdict: Verdict) {
        match verdict {
            Verdict::Go => {}
            Verdict::Pause(Share::Connection) => {
                self.stall(Stall::Share);
                self.wait(Wait::Share);
            }
            Verdict::Pause(Share::Common(over)) => {
                let now_ns = self.thread.now_ns();
                self.connection.stall(Stall::Share, now_ns);
                self.wait(Wait::Share);
                self.note_over(over);
                // What it has gathered it may be able to hand on.
                self.report(protocol::Event::MemoryShort);
                self.wait(Wait::Again);
            }
            Verdict::Refuse => {
                self.refuse();
                self.clear_inbox();
                // Its refusal has not been sent yet.
                self.wait(Wait::Again);
            }
        }
    }

    /// Counts a pause, and logs one line for each episode.
    fn note_over(&mut self, over: Over) {
        let now_ns = self.thread.now_ns();
        let (driver, connection) = (&self.thread.driver, &*self.connection);
        let counters = self.thread.common.counters(connection.listener());
        match over {
            Over::Address => counters.address_share_stalls.add(1),
            Over::Listener => counters.listener_share_stalls.add(1),
        }
        let name = self.listener.name();
        let which = || match (over, peer_of(driver, connection)) {
            (Over::Address, Some(peer)) => format!("from {}", peer.ip()),
            (Over::Address, None) => "from an unknown address".into(),
            (Over::Listener, _) => format!("at listener {name}"),
        };
        self.thread.memory.note_over(over, now_ns, &which);
    }

    /// Whether a connection that is paused takes input again.
    pub(super) fn may_resume(&self) -> bool {
        let held_bytes = self.thread.common.held_bytes(self.key.index);
        let (holding, number) = (&self.connection.holding, self.listener.number());
        self.thread.memory.resumes(holding, held_bytes, number)
    }

    /// The receive has found no page.
    pub(super) fn starve(&mut self) {
        self.counters().receive_buffers_stalls.add(1);
        if !self.connection.starves() {
            let kind = self.connection.begin_starving();
            self.thread.memory.pages.wait(self.key.index, kind);
        }
    }
}

impl<D: Driver> Thread<D> {
    /// A connection waits for no page any more, if it does.
    pub(super) fn end_starving(&mut self, connection: &mut Connection, index: u32) {
        if let Some(kind) = connection.end_starving() {
            self.memory.pages.end_wait(index, kind);
        }
    }
}

impl<D: Driver> Network<D> {
    /// Arms receives that found no page, oldest first, as many as there are free pages now.
    pub(super) fn rearm_starved(&mut self) {
        if self.thread.memory.pages.any_waits() {
            for kind in self.thread.memory.pages.kinds() {
                self.rearm(kind);
            }
        }
    }

    fn rearm(&mut self, kind: PageKind) {
        let region_id = kind.region_id();
        let driver = &mut self.thread.driver;
        let mut free = match kind.shares() {
            true => driver.free_sharing(region_id),
            false => driver.free(region_id),
        };
        for looked in 0.. {
            match self.thread.memory.pages.next(kind, free, looked) {
                Rearm::Arm(index) => {
                    let Some(key) = self.connections.key_at(index) else {
                        unreachable!("S1: a connection that is gone does not wait")
                    };
                    self.on(key, |event| {
                        event.thread.end_starving(event.connection, index);
                    });
                    // Whether a receive into the region is outstanding now.
                    free -= u32::from(self.connections.get(key).is_some_and(|connection| {
                        connection.is_receiving() && connection.pages().region_id() == region_id
                    }));
                }
                Rearm::Await => {
                    let driver = &mut self.thread.driver;
                    return match kind.shares() {
                        true => driver.await_sharing(region_id),
                        false => driver.await_pages(region_id),
                    };
                }
                Rearm::Done => return,
            }
        }
    }

    /// Once a millisecond, counts what is held. One comparison else.
    #[inline]
    pub(super) fn check_memory(&mut self) {
        if self.thread.memory.is_check_due(self.thread.now_ns()) {
            self.count_holdings();
        }
    }

    /// Looks whether memory runs short, and counts what is held with its addresses: a part of the
    /// table each time. Where places run short, addresses are asked for likewise.
    fn count_holdings(&mut self) {
        let now_ns = self.thread.now_ns();
        let is_waited_for = !self.thread.waits.is_empty(Wait::Memory)
            || self.thread.common.dispatcher.waiting_for_memory() > 0;
        let asks_addresses = self.thread.common.admission.asks_addresses(self.load());
        let account = &mut self.thread.memory;
        for index in account.check(now_ns, is_waited_for, asks_addresses) {
            let Some(mut event) = self.event_at(index) else {
                continue;
            };
            if event.connection.is_sending_last() {
                // Its socket may be closed by now: the driver cannot say whose it is.
                continue;
            }
            if event.thread.memory.is_uncounted(&event.connection.holding) {
                event.learn_address();
                let (account, number) = (&event.thread.memory, event.listener.number());
                account.count(&mut event.connection.holding, number);
            }
            if asks_addresses {
                event.learn_address();
            }
        }
    }

    /// Has memory given back while connections wait for it, here or on a thread that has asked.
    pub(super) fn free_memory(&mut self) {
        let (waits, dispatcher) = (&self.thread.waits, &self.thread.common.dispatcher);
        let demand = Demand {
            waiting: waits.len(Wait::Memory) + dispatcher.waiting_for_reserve(),
            favoured_since_ns: dispatcher.favoured_since_ns(),
            now_ns: self.thread.now_ns(),
        };
        self.thread.memory.begin_round(demand);
        while let Some(step) = self.next_step() {
            match step {
                Step::Flush(index) => {
                    if let Some(key) = self.connections.key_at(index) {
                        self.on(key, |event| event.report(protocol::Event::MemoryShort));
                    }
                }
                Step::EndLongest => {
                    if let Some(key) = self.longest_lived(&[Need::Memory]) {
                        self.end_long_lived(key);
                    }
                }
                Step::End(index) => {
                    if let Some(key) = self.connections.key_at(index) {
                        self.counters(key).connections_ended_for_memory.add(1);
                        self.on(key, |event| {
                            event.end_for_memory();
                        });
                    }
                }
                Step::Ask(other) => {
                    self.thread.common.tell(other);
                }
            }
        }
    }

    fn next_step(&mut self) -> Option<Step> {
        let view = View {
            connections: &self.connections,
            common: &self.thread.common,
            driver: &self.thread.driver,
        };
        self.thread.memory.next_step(&view)
    }

    /// Gives idle pooled memory and idle jobs back, once per period. Asks no more often than that,
    /// so the path does not pay for it.
    pub(super) fn trim(&mut self) {
        if !self.thread.memory.begin_trim(self.thread.now_ns()) {
            return;
        }
        self.thread.common.pools().trim(IDLE_BYTES_KEPT);
        let mut trimmed = self.thread.successors.trim();
        for listener in &mut self.listeners {
            let one = listener.protocol_mut().trim();
            trimmed.any |= one.any;
            trimmed.more |= one.more;
        }
        if trimmed.any && !trimmed.more {
            flatpath_sys::allocator::give_back();
        }
        self.thread.memory.end_trim(trimmed.more);
    }
}
