//! The account of a network thread: what its connections hold of the memory for buffers.
//!
//! Every event that changes what a connection holds is charged here, and the verdict says what
//! follows for it. Everything that a rule needs is a number or an enum: no driver, no connection,
//! no clock. What the verdicts do is in `network/memory.rs`.
//!
//! | facts after an event                                      | verdict                      |
//! |-----------------------------------------------------------|------------------------------|
//! | it takes no input now, or is spliced                      | [`Verdict::Go`]              |
//! | it holds its share                                        | pause: [`Share::Connection`] |
//! | it holds more than before, its address more than its share | pause: `Over::Address`      |
//! | the same of its listener                                  | pause: `Over::Listener`      |
//! | anything else                                             | [`Verdict::Go`]              |
//!
//! One that is paused is looked at again in each turn, every ten milliseconds at least, so what
//! other threads give back is seen without a wake-up. It resumes with half of its share or less,
//! when its address and listener have less than theirs ([`Account::resumes`]). Its stall has the
//! deadline of any other: where all that an address holds are halves of what it never completes,
//! they are refused one after the other.
//!
//! Holdings are counted with addresses and listeners (`admission/address_limit.rs`) from a quarter
//! of the budget in use on. What was held before that is counted by a hand that goes round the
//! table. A connection's address is asked for when it is counted first: one system call.
//!
//! Invariants
//! - A connection that is gone, or comes from another address, is counted for the first no more.
//!
//! Cost: a request pays [`Holding::is_changed`]; a turn one load and one comparison.

use std::sync::Arc;

use crate::admission::address_limit::{AddressLimit, Cells, Over, WAITING_BUFFERS, Waited};
use crate::limits::{BUFFER_CLASSES, COUNTED_PER_LOOK, TRIM_PERIOD_NS, WEIGH_PERIOD_NS};
use crate::observe::episode::{BoundEpisode, Price};

use super::appeals::Appeals;
use super::holders::{Connections, Holders};
use super::holding::{Holding, Share, Verdict, buffers_of};
use super::pages::Pages;
use super::pools::Pools;
use super::shortage::{Demand, Home, Shortages, Step};

/// What an address or a listener has come to.
const SHARE_HELD: &str = "connections hold their share of the memory for buffers";

/// What all threads of a server share of the memory for buffers.
#[derive(Debug)]
pub(crate) struct ServerMemory {
    pub(crate) pools: Pools,
    /// What addresses and listeners hold of them, in smallest buffers.
    pub(crate) by_address: AddressLimit,
    pub(super) appeals: Appeals,
}

impl ServerMemory {
    pub(crate) fn new(pools: Pools, listeners: usize, threads: usize) -> ServerMemory {
        let buffers = pools.budget_bytes() / BUFFER_CLASSES[0];
        ServerMemory {
            pools,
            by_address: AddressLimit::new(buffers, listeners, 0),
            appeals: Appeals::new(threads),
        }
    }
}

/// A connection after an event.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Facts {
    /// Bytes of buffers that are out for it.
    pub(crate) held_bytes: usize,
    /// It is stalled without memory.
    pub(crate) waits: bool,
    /// Bytes that have moved, wrapping.
    pub(crate) moved: u32,
    /// It takes input, and is not spliced to another one.
    pub(crate) may_pause: bool,
    /// The number of its listener in the server.
    pub(crate) listener: u16,
    pub(crate) now_ns: u64,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Account {
    server: Arc<ServerMemory>,
    /// The number of the network thread.
    thread: u16,
    /// Places of its table.
    places: u32,
    pub(crate) pages: Pages,
    holders: Holders,
    shortages: Shortages,
    /// When it is looked at next whether memory runs short, and the place in the table where the
    /// hand is that looks for connections that are not counted yet.
    check_ns: u64,
    hand: u32,
    /// When idle memory was last given back, and whether some may have become idle since.
    trimmed_ns: u64,
    is_trim_due: bool,
    /// Times in which an address, or a listener, holds more than its share.
    over_address: BoundEpisode,
    over_listener: BoundEpisode,
}

impl Account {
    /// For a thread whose table has `places`, and whose driver has `region_count` regions.
    pub(crate) fn new(
        server: Arc<ServerMemory>,
        thread: u16,
        (places, region_count): (u32, usize),
        now_ns: u64,
    ) -> Account {
        Account {
            server,
            thread,
            places,
            pages: Pages::new(places as usize, region_count),
            holders: Holders::new(places as usize),
            shortages: Shortages::default(),
            check_ns: 0,
            hand: 0,
            trimmed_ns: now_ns,
            is_trim_due: false,
            over_address: BoundEpisode::new(SHARE_HELD),
            over_listener: BoundEpisode::new(SHARE_HELD),
        }
    }

    /// Whether a connection's address is to be asked for before it is charged: it is counted for
    /// the first time.
    pub(crate) fn asks_address(&self, holding: &Holding, facts: &Facts) -> bool {
        let is_unknown = holding.cells == Cells::UNKNOWN;
        is_unknown && self.counts() && (buffers_of(facts.held_bytes) > 0 || facts.waits)
    }

    /// Charges the connection at a place for what it holds after an event. One whose address is
    /// still unknown is not counted.
    pub(crate) fn charge(&mut self, index: u32, holding: &mut Holding, facts: &Facts) -> Verdict {
        let buffers = buffers_of(facts.held_bytes);
        let grows = buffers > holding.buffers;
        (holding.buffers, holding.waits) = (buffers, facts.waits);
        let held = (facts.held_bytes, facts.moved);
        if let Some(class) = self.holders.note(index, held, facts.now_ns) {
            self.server.appeals.publish(self.thread, class);
        }
        self.count(holding, facts.listener);
        if !facts.may_pause {
            return Verdict::Go;
        }
        if facts.held_bytes >= self.server.pools.share_bytes() {
            return Verdict::Pause(Share::Connection);
        }
        match self.over(holding, facts.listener, Waited::No) {
            Some(over) if grows => Verdict::Pause(Share::Common(over)),
            _ => Verdict::Go,
        }
    }

    /// Counts what a connection holds, and what it waits for, with its address and listener.
    pub(crate) fn count(&self, holding: &mut Holding, listener: u16) {
        let waits = if holding.waits { WAITING_BUFFERS } else { 0 };
        let after = match self.counts() || holding.counted > 0 {
            true => holding.buffers.saturating_add(waits),
            false => 0,
        };
        if holding.counted == after || holding.cells == Cells::UNKNOWN {
            return;
        }
        let before = std::mem::replace(&mut holding.counted, after);
        let by_address = &self.server.by_address;
        by_address.change(listener, holding.cells, before, after);
    }

    /// What a connection holds is counted with its address no more: that becomes another one.
    pub(crate) fn uncount(&self, holding: &mut Holding, listener: u16) {
        let before = std::mem::take(&mut holding.counted);
        if before > 0 {
            let by_address = &self.server.by_address;
            by_address.change(listener, holding.cells, before, 0);
        }
    }

    /// The connection at a place is gone.
    pub(crate) fn gone(&mut self, index: u32, holding: &mut Holding, listener: u16) {
        self.holders.left(index);
        self.pages.gone(holding);
        self.uncount(holding, listener);
    }

    /// Whether so much is in use that it counts which address holds it. One load.
    fn counts(&self) -> bool {
        self.server.pools.counts_addresses()
    }

    /// Whether what a connection holds is to be counted, although no event has changed it since
    /// holdings count.
    pub(crate) fn is_uncounted(&self, holding: &Holding) -> bool {
        self.counts() && holding.buffers > 0 && holding.counted == 0
    }

    /// Which of its address and its listener has more than its share.
    fn over(&self, holding: &Holding, listener: u16, waited: Waited) -> Option<Over> {
        let by_address = &self.server.by_address;
        let is_counted = holding.counted > 0;
        is_counted.then(|| by_address.over(listener, holding.cells, waited))?
    }

    /// Whether a connection that is paused, and holds so much now, takes input again.
    #[must_use]
    pub(crate) fn resumes(&self, holding: &Holding, held_bytes: usize, listener: u16) -> bool {
        held_bytes <= self.server.pools.share_bytes() / 2
            && self.over(holding, listener, Waited::Yes).is_none()
    }

    /// Whether [`Account::check`] is due. One load and one comparison.
    #[inline]
    pub(crate) fn is_check_due(&self, now_ns: u64) -> bool {
        now_ns >= self.check_ns
    }

    /// Looks whether memory runs short: some wait for it, or much is in use. The places in the
    /// table to look at now: a part of it, while holdings are counted, or `asks_addresses` for
    /// another reason.
    pub(crate) fn check(
        &mut self,
        now_ns: u64,
        is_waited_for: bool,
        asks_addresses: bool,
    ) -> impl Iterator<Item = u32> + use<> {
        self.check_ns = now_ns + WEIGH_PERIOD_NS;
        self.server.pools.note_shortage(is_waited_for);
        let count = match self.counts() || asks_addresses {
            true => COUNTED_PER_LOOK.min(self.places),
            false => 0,
        };
        let (hand, places) = (self.hand, self.places);
        self.hand = (hand + count) % places;
        (0..count).map(move |step| (hand + step) % places)
    }

    /// Whether connections wait for memory, or did a moment ago.
    pub(crate) fn is_short(&self) -> bool {
        self.shortages.is_short()
    }

    /// Begins the round of a turn: see `shortage.rs`.
    pub(crate) fn begin_round(&mut self, demand: Demand) {
        let asked_bytes = self.server.appeals.take(self.thread);
        self.shortages
            .begin_round(&mut self.holders, demand, asked_bytes);
    }

    /// What the round does next; `None` when it has done all. Called until then.
    pub(crate) fn next_step(&mut self, connections: &impl Connections) -> Option<Step> {
        let home = Home {
            thread: self.thread,
            pools: &self.server.pools,
            appeals: &self.server.appeals,
        };
        let holders = (&mut self.holders, self.places);
        self.shortages.next(home, holders, connections)
    }

    /// An address, or a listener, has more than its share, and a connection of it is paused;
    /// `which` says which one it is.
    pub(crate) fn note_over(&mut self, over: Over, now_ns: u64, which: &dyn Fn() -> String) {
        let episode = match over {
            Over::Address => &mut self.over_address,
            Over::Listener => &mut self.over_listener,
        };
        episode.note(now_ns, Price::Stalled, which);
    }

    /// Ends the episodes in the log that are over.
    pub(crate) fn end_episodes(&mut self, now_ns: u64) {
        self.over_address.end(now_ns);
        self.over_listener.end(now_ns);
    }

    /// When the next episode may be over.
    pub(crate) fn episode_end_ns(&self) -> Option<u64> {
        let episodes = [&self.over_address, &self.over_listener];
        episodes.into_iter().filter_map(BoundEpisode::end_ns).min()
    }

    /// Something has happened: memory may have become idle. When it is to be given back, if that
    /// was not known.
    #[inline]
    pub(crate) fn note_use(&mut self) -> Option<u64> {
        if self.is_trim_due {
            return None;
        }
        self.is_trim_due = true;
        self.trim_ns()
    }

    /// When idle memory is given back next.
    pub(crate) fn trim_ns(&self) -> Option<u64> {
        let trim_ns = self.trimmed_ns + TRIM_PERIOD_NS;
        self.is_trim_due.then_some(trim_ns)
    }

    /// Whether idle memory is to be given back now, once per period. If so, that has begun.
    #[must_use]
    pub(crate) fn begin_trim(&mut self, now_ns: u64) -> bool {
        let is_time = now_ns >= self.trimmed_ns + TRIM_PERIOD_NS;
        if is_time {
            self.trimmed_ns = now_ns;
        }
        is_time
    }

    /// It has been; `more` is left for the next period.
    pub(crate) fn end_trim(&mut self, more: bool) {
        self.is_trim_due = more;
    }
}

#[cfg(test)]
mod tests;
