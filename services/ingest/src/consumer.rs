//! One attached consumer, as the server has it: its window, its holders, its rings and doorbells.
//!
//! | thread         | does                                                                     |
//! |----------------|--------------------------------------------------------------------------|
//! | network thread | reserve, claim, give up, deliver; announce and collect at the turn's end |
//! | control thread | collect, end                                                             |
//!
//! All of it is under one lock, and no thread waits for anything while it holds that.
//!
//! Whichever thread comes first collects returns. The network thread does it after each turn in
//! which the consumer got something, and when there is no room: it is awake anyway, and pages that
//! come back at once are received into while they are warm. So the control thread need not be
//! quick: it pauses between two rounds, unless a producer waits for room.
//!
//! Invariants
//! - C1: a fragment that was delivered is a token of this consumer's holder, and counts in the
//!   window until the token is returned or the consumer ends.
//! - C2: descriptors are written before the doorbell announces them; a message's all at once.
//! - C3: after the end nothing is taken, delivered or returned any more, so what the holders had at
//!   the end is what the dead consumer held.
//! - C4: nothing that the other side can write decides an index, a length or a wait here: entries
//!   of the rings are counted on this side, tokens are checked by the holder, doorbells never
//!   block.
//! - C5: a doorbell is read under the lock, and what it announced is taken before the end: returns
//!   are taken once, in order, by whichever thread, and what was returned is not reclaimed.
//! - C6: the control thread is woken for a broken consumer, and for a producer that begins to wait
//!   while it pauses.
//!
//! Cost: a collect is a `read` of the doorbell, which does not block.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use flatpath::ConnectionHandle;
use flatpath::descriptors::DescriptorHold;
use flatpath::lock::{Guard, Lock};
use flatpath_driver::{Attachment, Fragment, Region};
use flatpath_messages::layout::{
    DESCRIPTOR_WORDS, Descriptor, RETURN_WORDS, Return, announced, announcement,
};
use flatpath_messages::limits::{DOORBELL_BYTES_MAX, REFUSALS_MAX};
use flatpath_structures::tokens::PageToken;
use flatpath_sys::shared_memory::SharedWords;
use rustix::io::Errno;

use crate::statistics::Statistics;
use crate::wakeup::Wakeup;
use crate::window::{Room, Ticket, Window};

/// Returns that are taken under one hold of the lock.
const RETURNS_PER_HOLD: u64 = 256;

#[derive(Debug)]
pub(crate) struct Consumer {
    pub(crate) number: u32,
    /// The token it named; 0: it shares the producers that named none.
    pub(crate) token: u64,
    entries: u32,
    /// The regions' names, in the order of their numbers.
    regions: Vec<u64>,
    statistics: Arc<Statistics>,
    wakeup: Arc<Wakeup>,
    /// Announces returns.
    return_doorbell: OwnedFd,
    state: Lock<State>,
    /// For both doorbells, dropped after them.
    _hold: DescriptorHold,
}

#[derive(Debug)]
struct State {
    window: Window<ConnectionHandle>,
    /// One for each region; none after the end.
    holders: Vec<Attachment>,
    descriptors: SharedWords,
    returns: SharedWords,
    /// Descriptors written, and how many of them the doorbell has not announced.
    written: u64,
    unannounced: u32,
    /// Returns read, and how many more the doorbell has announced.
    read: u64,
    announced: u64,
    refused: u32,
    doorbell: OwnedFd,
    alive: bool,
    /// How the other side broke the rules: the control thread ends it.
    broken: Option<&'static str>,
}

/// The parts of a consumer.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) descriptors: SharedWords,
    pub(crate) returns: SharedWords,
    pub(crate) doorbell: OwnedFd,
    pub(crate) return_doorbell: OwnedFd,
    pub(crate) statistics: Arc<Statistics>,
    pub(crate) wakeup: Arc<Wakeup>,
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
            wakeup: parts.wakeup,
            return_doorbell: parts.return_doorbell,
            state: Lock::new(State {
                window: Window::new(entries),
                holders: holders?,
                descriptors: parts.descriptors,
                returns: parts.returns,
                written: 0,
                unannounced: 0,
                read: 0,
                announced: 0,
                refused: 0,
                doorbell: parts.doorbell,
                alive: true,
                broken: None,
            }),
            _hold: parts.hold,
        })
    }

    /// Reserves room for a message, at once or after those before it; then `waker` is called.
    pub(crate) fn reserve(
        &self,
        need: u32,
        waker: impl FnOnce() -> ConnectionHandle,
    ) -> Result<Room, Ended> {
        if !self.state().window.has_room(need) {
            self.collect();
        }
        let mut state = self.state();
        if !state.alive {
            return Err(Ended);
        }
        let room = state.window.reserve(need, waker);
        drop(state);
        if room != Room::Reserved {
            // A producer begins to wait: the control thread is woken (C6).
            self.wakeup.end_pause();
        }
        Ok(room)
    }

    pub(crate) fn is_waited_for(&self) -> bool {
        self.state().window.is_waited_for()
    }

    /// The grant of a ticket; `None` if it still waits.
    pub(crate) fn claim(&self, ticket: Ticket) -> Result<Option<u32>, Ended> {
        let mut state = self.state();
        if !state.alive {
            return Err(Ended);
        }
        Ok(state.window.claim(ticket))
    }

    /// A producer no longer waits.
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

    /// Delivers a whole message out of `reserved` room, and frees the rest of it. The message is
    /// announced by [`Consumer::announce`].
    pub(crate) fn deliver(
        &self,
        fragments: &[Fragment],
        message_bytes: u32,
        producer: u32,
        reserved: u32,
    ) -> Result<(), Ended> {
        let count = u32::try_from(fragments.len()).expect("a window has few");
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
                let Some((region, token)) = self.take(state, fragment) else {
                    // The consumer never learns of what was written so far.
                    state.written = before;
                    state.broken = Some("its fragments cannot be counted");
                    panic!("C1: the window is the holder's bound, and the region is known");
                };
                let page_bytes = u64::from(fragment.region().page_bytes());
                let page_at = u64::from(fragment.page()) * page_bytes;
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
            state.unannounced += count;
            state.window.release(reserved - count, woken);
            // Under the lock, so that the end cannot count them off before.
            self.statistics.messages.add(1);
            self.statistics.message_bytes.add(u64::from(message_bytes));
            self.statistics.fragments.add(u64::from(count));
            self.statistics.fragments_held.add(u64::from(count));
            Ok(())
        })
    }

    fn take(&self, state: &mut State, fragment: &Fragment) -> Option<(u16, PageToken)> {
        let id = fragment.region_serial();
        let region = self.regions.iter().position(|region| *region == id)?;
        let token = fragment.token(state.holders.get_mut(region)?).ok()?;
        Some((u16::try_from(region).ok()?, token))
    }

    pub(crate) fn announce(&self) {
        let mut state = self.state();
        let unannounced = std::mem::take(&mut state.unannounced);
        if unannounced == 0 || !state.alive {
            return;
        }
        let bytes: Vec<u8> = announcement(unannounced).collect();
        match rustix::io::write(&state.doorbell, &bytes) {
            Ok(written) if written == bytes.len() => {}
            // L3: there is room unless the other side filled the pipe. Closed: the control thread
            // sees the end of the socket.
            Ok(_) | Err(_) => self.condemn(&mut state, "its doorbell is full or closed"),
        }
    }

    /// C6: the control thread ends it, for this reason.
    fn condemn(&self, state: &mut State, why: &'static str) {
        state.broken = state.broken.or(Some(why));
        self.wakeup.wake();
    }

    /// How it broke the rules, if it did.
    pub(crate) fn broken(&self) -> Option<&'static str> {
        self.state().broken
    }

    /// Readable when there is something to collect, or the other side has closed it.
    pub(crate) fn return_doorbell(&self) -> BorrowedFd<'_> {
        self.return_doorbell.as_fd()
    }

    /// Takes the announced returns from the ring. Reads the doorbell once: the other side cannot
    /// keep this thread busy.
    pub(crate) fn collect(&self) {
        if self.read_doorbell() {
            while self.take_some() {}
        }
    }

    /// C5. Whether there is something to take.
    fn read_doorbell(&self) -> bool {
        let mut state = self.state();
        if !state.alive || state.broken.is_some() {
            return false;
        }
        let mut room = [MaybeUninit::uninit(); DOORBELL_BYTES_MAX];
        match rustix::io::read(&self.return_doorbell, &mut room) {
            Ok(([], _)) => self.condemn(&mut state, "its return doorbell is closed"),
            Ok((bytes, _)) => state.announced += announced(bytes),
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(errno) => {
                log::warn!("cannot read the return doorbell of a consumer: {errno}");
                self.condemn(&mut state, "its return doorbell failed");
            }
        }
        if state.announced > u64::from(self.entries) {
            self.condemn(&mut state, "it announces more returns than the ring has");
            return false;
        }
        state.announced > 0
    }

    /// Takes returns under one hold of the lock. Whether there are more.
    fn take_some(&self) -> bool {
        self.with_woken(|state, woken| {
            if !state.alive || state.broken.is_some() {
                return false;
            }
            let now = state.announced.min(RETURNS_PER_HOLD);
            state.announced -= now;
            let accepted = state.take_returns(now, self.entries);
            state.window.release(accepted, woken);
            state.refused += now as u32 - accepted;
            self.statistics.fragments_returned.add(u64::from(accepted));
            self.statistics.fragments_held.subtract(u64::from(accepted));
            self.statistics
                .returns_refused
                .add(now - u64::from(accepted));
            if state.refused > REFUSALS_MAX {
                self.condemn(state, "it returns what it does not hold");
            }
            state.announced > 0
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

    /// The end: takes back what it holds, exactly, and wakes all waiting producers. The number of
    /// fragments taken back.
    pub(crate) fn end(&self) -> u32 {
        self.with_woken(|state, woken| {
            if !state.alive {
                return 0;
            }
            state.alive = false;
            state.window.end(woken);
            let holders = std::mem::take(&mut state.holders);
            let held: u32 = holders.iter().map(Attachment::held).sum();
            self.statistics.fragments_reclaimed.add(u64::from(held));
            self.statistics.fragments_held.subtract(u64::from(held));
            self.statistics.consumers_detached.add(1);
            held
        })
    }

    /// Acts under the lock, and resumes the woken producers after it.
    fn with_woken<R>(&self, act: impl FnOnce(&mut State, &mut Vec<ConnectionHandle>) -> R) -> R {
        let mut woken = Vec::new();
        let result = act(&mut self.state(), &mut woken);
        for waker in woken {
            waker.wake();
        }
        result
    }

    fn state(&self) -> Guard<'_, State> {
        // A panic under the lock leaves true counts; the consumer may continue.
        self.state.lock()
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
