//! One attached consumer, as the server has it: its window, its holders, its rings and its bells.
//!
//! | who            | does                                                    |
//! |----------------|---------------------------------------------------------|
//! | network thread | reserve, claim, give up, deliver; ring and collect at the turn's end |
//! | desk           | collect, end                                            |
//!
//! All of it is under one lock, which nobody holds while waiting for anything.
//!
//! Returns are collected by whoever comes first. The network thread does it behind each turn in
//! which the consumer got something, and when there is no room; it is awake anyway, and pages that
//! come back at once are received into while they are warm. So the desk need not be quick: it
//! pauses between two looks at the bells, unless somebody waits for room.
//!
//! Invariants
//! - C1: a fragment that was delivered is a token of this consumer's holder, and counts in the
//!   window until the token is returned or the consumer ends.
//! - C2: descriptors are written before the bell tells of them; a message's all at once.
//! - C3: after the end nothing is taken, delivered or returned any more, so what the holders had at
//!   the end is what the dead consumer held.
//! - C4: nothing that the other side can write decides an index, a length or a wait here: places in
//!   the rings are counted on this side, tokens are checked by the holder, bells are never waited
//!   for.
//! - C5: a bell is read under the lock, and what it told of is taken before the end: returns are
//!   taken once, in order, by whichever thread, and what was returned is not reclaimed.
//! - C6: the doorbell rings for a broken consumer, and for somebody who begins to wait while the
//!   desk pauses.
//!
//! Cost: a collect is a `read` of the bell, which does not block.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use flatpath::{DescriptorHold, Resumer};
use flatpath_driver::shared::SharedWords;
use flatpath_driver::{Attachment, Fragment, Region};
use flatpath_messages::layout::{
    DESCRIPTOR_WORDS, Descriptor, RETURN_WORDS, Return, announced, announcement,
};
use flatpath_messages::limits::{BELL_BYTES_MAX, REFUSALS_MAX};
use flatpath_structures::tokens::{PageToken, TakeError};
use rustix::io::Errno;

use crate::doorbell::Doorbell;
use crate::statistics::Statistics;
use crate::window::{Room, Ticket, Window};

/// Returns that are taken under one hold of the lock.
const RETURNS_PER_HOLD: u64 = 256;

/// See the module.
#[derive(Debug)]
pub(crate) struct Consumer {
    pub(crate) number: u32,
    /// What it named; 0: it shares the producers that named nothing.
    pub(crate) token: u64,
    entries: u32,
    /// The regions' names, in the order of their numbers.
    regions: Vec<u64>,
    statistics: Arc<Statistics>,
    doorbell: Arc<Doorbell>,
    /// Tells of returns.
    return_bell: OwnedFd,
    state: Mutex<State>,
    /// For both bells, dropped after them.
    _hold: DescriptorHold,
}

#[derive(Debug)]
struct State {
    window: Window<Resumer>,
    /// One for each region; none after the end.
    holders: Vec<Attachment>,
    descriptors: SharedWords,
    returns: SharedWords,
    /// Descriptors written, and how many of them the bell has not told of.
    written: u64,
    untold: u32,
    /// Returns read, and how many more the bell has told of.
    read: u64,
    told: u64,
    refused: u32,
    bell: OwnedFd,
    alive: bool,
    /// How the other side broke the rules: the desk ends it.
    broken: Option<&'static str>,
}

/// What a consumer is made of.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) descriptors: SharedWords,
    pub(crate) returns: SharedWords,
    pub(crate) bell: OwnedFd,
    pub(crate) return_bell: OwnedFd,
    pub(crate) statistics: Arc<Statistics>,
    pub(crate) doorbell: Arc<Doorbell>,
    pub(crate) hold: DescriptorHold,
}

/// The consumer has ended: go to another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ended;

impl Consumer {
    /// `None` when a region's driver is gone.
    pub(crate) fn new(
        (number, token): (u32, u64),
        entries: u32,
        regions: &[Region],
        parts: Parts,
    ) -> Option<Consumer> {
        let holders: Option<Vec<_>> = regions
            .iter()
            .map(|region| region.attach(entries))
            .collect();
        Some(Consumer {
            number,
            token,
            entries,
            regions: regions.iter().map(Region::serial).collect(),
            statistics: parts.statistics,
            doorbell: parts.doorbell,
            return_bell: parts.return_bell,
            state: Mutex::new(State {
                window: Window::new(entries),
                holders: holders?,
                descriptors: parts.descriptors,
                returns: parts.returns,
                written: 0,
                untold: 0,
                read: 0,
                told: 0,
                refused: 0,
                bell: parts.bell,
                alive: true,
                broken: None,
            }),
            _hold: parts.hold,
        })
    }

    /// Reserves room for a message, now or in turn; then `resumer` is told.
    pub(crate) fn reserve(
        &self,
        need: u32,
        resumer: impl FnOnce() -> Resumer,
    ) -> Result<Room, Ended> {
        if !self.state().window.has_room(need) {
            self.collect();
        }
        let mut state = self.state();
        if !state.alive {
            return Err(Ended);
        }
        let room = state.window.reserve(need, resumer);
        drop(state);
        if room != Room::Reserved {
            // C6.
            self.doorbell.somebody_waits();
        }
        Ok(room)
    }

    /// Whether somebody waits for room.
    pub(crate) fn is_waited_for(&self) -> bool {
        self.state().window.is_waited_for()
    }

    /// What was granted to a ticket; `None` if its turn has not come.
    pub(crate) fn claim(&self, ticket: Ticket) -> Result<Option<u32>, Ended> {
        let mut state = self.state();
        if !state.alive {
            return Err(Ended);
        }
        Ok(state.window.claim(ticket))
    }

    /// Who waited does not any more.
    pub(crate) fn give_up(&self, ticket: Ticket) {
        self.with_woken(|state, woken| state.window.give_up(ticket, woken));
    }

    /// Reserved room is not needed.
    pub(crate) fn release(&self, count: u32) {
        self.with_woken(|state, woken| {
            if state.alive {
                state.window.release(count, woken);
            }
        });
    }

    /// Delivers a whole message out of `reserved` room; what is over comes free. The bell is rung
    /// by [`Consumer::ring`].
    pub(crate) fn deliver(
        &self,
        fragments: &[Fragment],
        message_bytes: u32,
        producer: u32,
        reserved: u32,
    ) -> Result<(), Ended> {
        let count = fragments.len() as u32;
        debug_assert!(
            count <= reserved,
            "a message takes no more than it reserved"
        );
        self.with_woken(|state, woken| {
            if !state.alive {
                return Err(Ended);
            }
            let before = state.written;
            for (position, fragment) in fragments.iter().enumerate() {
                let place = self.take(state, fragment);
                let Some((region, token)) = place else {
                    // The consumer never learns of what was written so far.
                    state.written = before;
                    state.broken = Some("its fragments cannot be counted");
                    panic!("C1: the window is the holder's bound, and the region is known");
                };
                let page_at = u64::from(fragment.page()) * self.page_bytes(fragment);
                let descriptor = Descriptor {
                    token: token.to_u64(),
                    offset: page_at + u64::from(fragment.offset()),
                    length: fragment.len() as u32,
                    region,
                    first: position == 0,
                    last: position + 1 == fragments.len(),
                    message_bytes,
                    producer,
                };
                state.write(descriptor, self.entries);
            }
            state.untold += count;
            state.window.release(reserved - count, woken);
            // Under the lock, so that the end cannot count them off before.
            self.statistics.messages.add(1);
            self.statistics.bytes.add(u64::from(message_bytes));
            self.statistics.fragments.add(u64::from(count));
            self.statistics.held.add(u64::from(count));
            Ok(())
        })
    }

    fn take(&self, state: &mut State, fragment: &Fragment) -> Option<(u16, PageToken)> {
        let id = fragment.region_serial();
        let region = self.regions.iter().position(|region| *region == id)?;
        let taken: Result<PageToken, TakeError> = state.holders.get_mut(region)?.take(fragment);
        Some((u16::try_from(region).ok()?, taken.ok()?))
    }

    fn page_bytes(&self, fragment: &Fragment) -> u64 {
        u64::from(fragment.region().page_bytes())
    }

    /// Tells the consumer of what was delivered.
    pub(crate) fn ring(&self) {
        let mut state = self.state();
        let untold = std::mem::take(&mut state.untold);
        if untold == 0 || !state.alive {
            return;
        }
        let bytes: Vec<u8> = announcement(untold).collect();
        match rustix::io::write(&state.bell, &bytes) {
            Ok(written) if written == bytes.len() => {}
            // L3: there is room unless the other side filled the pipe. Gone: the desk hears of it.
            Ok(_) | Err(_) => self.sentence(&mut state, "its bell is full or closed"),
        }
    }

    /// C6: the desk ends it, for this reason.
    fn sentence(&self, state: &mut State, why: &'static str) {
        state.broken = state.broken.or(Some(why));
        self.doorbell.ring();
    }

    /// How it broke the rules, if it did.
    pub(crate) fn broken(&self) -> Option<&'static str> {
        self.state().broken
    }

    /// Readable when there is something to collect, or the other side has closed it.
    pub(crate) fn return_bell(&self) -> BorrowedFd<'_> {
        self.return_bell.as_fd()
    }

    /// Takes what the return bell tells of, from the ring. Reads it once: the other side cannot
    /// keep us.
    pub(crate) fn collect(&self) {
        if self.hear() {
            while self.take_some() {}
        }
    }

    /// C5: reads the bell. Whether there is something to take.
    fn hear(&self) -> bool {
        let mut state = self.state();
        if !state.alive || state.broken.is_some() {
            return false;
        }
        let mut bytes = [0; BELL_BYTES_MAX];
        match rustix::io::read(&self.return_bell, &mut bytes) {
            Ok(0) => self.sentence(&mut state, "its return bell is closed"),
            Ok(count) => state.told += announced(&bytes[..count]),
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(errno) => {
                log::warn!("a return bell cannot be read: {errno}");
                self.sentence(&mut state, "its return bell failed");
            }
        }
        if state.told > u64::from(self.entries) {
            self.sentence(&mut state, "it tells of more returns than the ring has");
            return false;
        }
        state.told > 0
    }

    /// Takes returns under one hold of the lock. Whether there are more.
    fn take_some(&self) -> bool {
        self.with_woken(|state, woken| {
            if !state.alive || state.broken.is_some() {
                return false;
            }
            let now = state.told.min(RETURNS_PER_HOLD);
            state.told -= now;
            let accepted = state.take_returns(now, self.entries);
            state.window.release(accepted, woken);
            state.refused += now as u32 - accepted;
            self.statistics.returned.add(u64::from(accepted));
            self.statistics.held.subtract(u64::from(accepted));
            self.statistics.refused.add(now - u64::from(accepted));
            if state.refused > REFUSALS_MAX {
                self.sentence(state, "it returns what it does not hold");
            }
            state.told > 0
        })
    }

    /// Marks the pages of which it holds tokens; one row for each region.
    pub(crate) fn mark_held(&self, marks: &mut [Vec<bool>]) {
        for (holder, row) in self.state().holders.iter().zip(marks) {
            holder.held_pages(|page| {
                if let Some(mark) = row.get_mut(page as usize) {
                    *mark = true;
                }
            });
        }
    }

    /// The end: takes back what it holds, exactly, and tells all who wait. How much that was.
    pub(crate) fn end(&self) -> u32 {
        self.with_woken(|state, woken| {
            if !state.alive {
                return 0;
            }
            state.alive = false;
            state.window.end(woken);
            let holders = std::mem::take(&mut state.holders);
            let held: u32 = holders.iter().map(Attachment::held).sum();
            self.statistics.reclaimed.add(u64::from(held));
            self.statistics.held.subtract(u64::from(held));
            self.statistics.detached.add(1);
            held
        })
    }

    /// Acts under the lock, and tells who may go on after it.
    fn with_woken<R>(&self, act: impl FnOnce(&mut State, &mut Vec<Resumer>) -> R) -> R {
        let mut woken = Vec::new();
        let result = act(&mut self.state(), &mut woken);
        for resumer in woken {
            resumer.resume();
        }
        result
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Whoever panicked under the lock left counts that are true; the consumer may go on.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn write(&mut self, descriptor: Descriptor, entries: u32) {
        let place = (self.written % u64::from(entries)) as usize * DESCRIPTOR_WORDS;
        for (word, value) in descriptor.words().into_iter().enumerate() {
            self.descriptors.store(place + word, value);
        }
        self.written += 1;
    }

    /// How many of the next `count` entries are returns of what is held.
    fn take_returns(&mut self, count: u64, entries: u32) -> u32 {
        let mut accepted = 0;
        for _ in 0..count {
            let place = (self.read % u64::from(entries)) as usize * RETURN_WORDS;
            self.read += 1;
            // C4: loaded once; what happens to the ring after that is of no interest.
            let words = std::array::from_fn(|word| self.returns.load(place + word));
            let Some(given) = Return::of(words) else {
                continue;
            };
            let holder = self.holders.get_mut(usize::from(given.region));
            let token = PageToken::from_u64(given.token);
            if holder.is_some_and(|holder| holder.give_back(token)) {
                accepted += 1;
            }
        }
        accepted
    }
}
