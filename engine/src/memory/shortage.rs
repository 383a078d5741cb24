//! A shortage of memory: connections wait for it, and others give some of theirs back, in rounds.
//!
//! A turn begins a round with what waits ([`Demand`]), and does what it is given, one [`Step`]
//! after the other. A shortage begins with the first connection that waits, and is over when none
//! has waited for `RELIEF_WAIT_NS`.
//!
//! | order | who gives back                                  | step                 | from    |
//! |-------|-------------------------------------------------|----------------------|---------|
//! | 1     | the largest are asked to hand on what they hold | [`Step::Flush`]      | at once |
//! | 2     | what lasted longest, for bulk of a favoured one | [`Step::EndLongest`] | 10 ms   |
//! | 3     | another thread, where a larger holder is        | [`Step::Ask`]        | 100 ms  |
//! | 4     | those that `holders.rs` names, to make room     | [`Step::End`]        | 100 ms  |
//! | 5     | each other thread in turn, if there is no room  | [`Step::Ask`]        | 100 ms  |
//!
//! Flushes and ends have a period of 10 ms (`RELIEF_PERIOD_NS`). A thread that was asked ends
//! holders at once: the one that asks has waited. So one thread's holders do not last because no
//! connection waits there. After a round that has asked another thread the next one ends holders
//! here, should that not have helped. A shortage is long after `SHORTAGE_NS_MAX` in which every
//! holder moved.
//!
//! Does not: end, ask or flush anything. Cost: nothing while no connection waits.

use crate::limits::{
    HOLDERS_ENDED_MAX, INPUT_BYTES_MAX, RELIEF_PART, RELIEF_PERIOD_NS, RELIEF_WAIT_NS, RETRIES_MAX,
    SHORTAGE_NS_MAX,
};

use super::appeals::Appeals;
use super::holders::{CLASSES, Connections, Holders};
use super::pools::Pools;

/// A network thread of a server, and what that has in common.
#[derive(Clone, Copy, Debug)]
pub(super) struct Home<'a> {
    pub(super) thread: u16,
    pub(super) pools: &'a Pools,
    pub(super) appeals: &'a Appeals,
}

impl Home<'_> {
    /// Where the largest holder of another thread is, if it is larger than the largest here.
    fn larger(self, largest: u8) -> Option<u16> {
        self.appeals.publish(self.thread, largest);
        self.appeals.larger(self.thread, largest)
    }
}

/// What waits for memory on a network thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Demand {
    /// Connections that wait, and jobs that wait although there is a reserve for them.
    pub(crate) waiting: usize,
    /// Since when the bulk of a favoured user waits.
    pub(crate) favoured_since_ns: Option<u64>,
    pub(crate) now_ns: u64,
}

/// What a round is to do next.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The connection at this place hands on what it has gathered, if it can.
    Flush(u32),
    /// The connection is ended that has lasted longest of those whose address holds more memory
    /// than the average.
    EndLongest,
    /// The connection at this place is ended for the memory that it holds.
    End(u32),
    /// This network thread looks at what it was asked for.
    Ask(u16),
}

/// Connections wait for memory.
#[derive(Debug)]
struct Shortage {
    since_ns: u64,
    /// Not before then is a holder ended.
    relief_ns: u64,
    /// When holders are asked next to hand on what they have, and from which class down.
    flush_ns: u64,
    flush_class: usize,
    /// Times that other threads were asked to end holders of theirs.
    appeals: usize,
    /// The last round has asked one that has larger holders.
    has_appealed: bool,
    ended: u64,
    ended_bytes: usize,
}

/// How far a round has come in ending holders.
#[derive(Debug, Default)]
enum Relief {
    #[default]
    Done,
    /// After what comes before it.
    Begins {
        waiting: usize,
        asked_bytes: usize,
    },
    Ends(Ends),
}

/// A round in which holders of this thread are ended.
#[derive(Debug)]
struct Ends {
    /// Room that this thread wants, and that it is to make.
    own_bytes: usize,
    wanted_bytes: usize,
    /// What there is, with what comes back when those that were ended are gone.
    room_bytes: usize,
    /// How many more may be ended, and how many were looked at.
    left: usize,
    steps: u32,
    is_long: bool,
    /// No other thread has larger holders.
    is_largest: bool,
}

/// The shortages of one network thread, and the round of this turn.
#[derive(Debug, Default)]
pub(super) struct Shortages {
    shortage: Option<Shortage>,
    now_ns: u64,
    flushes: std::vec::IntoIter<u32>,
    ends_longest: bool,
    relief: Relief,
}

impl Shortages {
    /// Whether connections wait for memory, or did a moment ago.
    pub(super) fn is_short(&self) -> bool {
        self.shortage.is_some()
    }

    /// Decides what the round of this turn does. Others have asked for `asked_bytes`.
    pub(super) fn begin_round(
        &mut self,
        holders: &mut Holders,
        demand: Demand,
        asked_bytes: usize,
    ) {
        let now_ns = demand.now_ns;
        if demand.waiting == 0 && asked_bytes == 0 {
            return self.end(now_ns);
        }
        self.now_ns = now_ns;
        let begin = || Shortage::new(now_ns, asked_bytes > 0);
        let shortage = self.shortage.get_or_insert_with(begin);
        if now_ns >= shortage.flush_ns {
            shortage.flush_ns = now_ns + RELIEF_PERIOD_NS;
            let (asked, class) = holders.next_flushes(shortage.flush_class);
            shortage.flush_class = class;
            self.flushes = asked.into_iter();
            let is_due = |since_ns: u64| now_ns >= since_ns.saturating_add(RELIEF_PERIOD_NS);
            self.ends_longest = demand.favoured_since_ns.is_some_and(is_due);
        }
        if now_ns >= shortage.relief_ns {
            shortage.relief_ns = now_ns + RELIEF_PERIOD_NS;
            self.relief = Relief::Begins {
                waiting: demand.waiting,
                asked_bytes,
            };
        }
    }

    /// The next step of the round, where the table of the thread has `places`.
    pub(super) fn next(
        &mut self,
        home: Home<'_>,
        (holders, places): (&mut Holders, u32),
        connections: &impl Connections,
    ) -> Option<Step> {
        if let Some(index) = self.flushes.next() {
            return Some(Step::Flush(index));
        }
        if std::mem::take(&mut self.ends_longest) {
            return Some(Step::EndLongest);
        }
        let shortage = self.shortage.as_mut()?;
        let mut ends = match std::mem::take(&mut self.relief) {
            Relief::Done => return None,
            Relief::Ends(ends) => ends,
            Relief::Begins {
                waiting,
                asked_bytes,
            } => {
                let larger = home.larger(holders.largest_class());
                let wanted = (waiting, asked_bytes);
                let ends = shortage.relief(home.pools, larger.is_none(), wanted, self.now_ns);
                if shortage.appeals_first(larger.is_some(), ends.is_short()) {
                    return larger.map(|other| shortage.ask(home, other, ends.own_bytes));
                }
                ends
            }
        };
        let step = ends.next((holders, places), connections, self.now_ns);
        if let Some((index, held_bytes)) = step {
            shortage.ended += 1;
            shortage.ended_bytes += held_bytes;
            self.relief = Relief::Ends(ends);
            return Some(Step::End(index));
        }
        // Others may have holders of one buffer, which are in no class.
        let asks = ends.is_short() && ends.is_largest;
        let next = || home.appeals.other(home.thread, shortage.appeals);
        let other = asks.then(next)??;
        Some(shortage.ask(home, other, ends.own_bytes))
    }

    /// No connection waits any more. The log has one line for each shortage, when it is over.
    fn end(&mut self, now_ns: u64) {
        let is_over = |it: &mut Shortage| now_ns >= it.relief_ns.saturating_add(RELIEF_WAIT_NS);
        let Some(shortage) = self.shortage.take_if(is_over) else {
            return;
        };
        if shortage.ended > 0 {
            let milliseconds = (now_ns - shortage.since_ns) / 1_000_000;
            log::warn!(
                "the memory for buffers was used up for {milliseconds} ms: {} connections that \
                 held {} bytes and moved little were ended",
                shortage.ended,
                shortage.ended_bytes
            );
        }
    }
}

impl Shortage {
    /// Connections wait here, or on another thread that has asked: it has waited already.
    fn new(now_ns: u64, is_asked: bool) -> Shortage {
        Shortage {
            since_ns: now_ns,
            relief_ns: now_ns + if is_asked { 0 } else { RELIEF_WAIT_NS },
            flush_ns: now_ns,
            flush_class: CLASSES - 1,
            appeals: 0,
            has_appealed: false,
            ended: 0,
            ended_bytes: 0,
        }
    }

    /// How much room is to be made, and how. What is freed in a round comes back when the
    /// connections have ended.
    fn relief(
        &self,
        pools: &Pools,
        is_largest: bool,
        (waiting, asked_bytes): (usize, usize),
        now_ns: u64,
    ) -> Ends {
        let wanted_bytes = waiting.min(RETRIES_MAX) * INPUT_BYTES_MAX;
        let own_bytes = wanted_bytes.min(pools.budget_bytes() / RELIEF_PART);
        let has_lasted = now_ns - self.since_ns >= SHORTAGE_NS_MAX && self.ended == 0;
        Ends {
            own_bytes,
            wanted_bytes: own_bytes.max(asked_bytes),
            room_bytes: pools.available_bytes(),
            left: HOLDERS_ENDED_MAX,
            steps: 0,
            is_long: is_largest && has_lasted,
            is_largest,
        }
    }

    /// Whether another thread, which has larger holders, is asked to end some of them, instead of
    /// ending one here: not twice in a row, as that did not help then.
    fn appeals_first(&mut self, is_larger_elsewhere: bool, is_short: bool) -> bool {
        let has_appealed = self.has_appealed;
        self.has_appealed = is_larger_elsewhere && is_short && !has_appealed;
        self.has_appealed
    }

    fn ask(&mut self, home: Home<'_>, other: u16, bytes: usize) -> Step {
        self.appeals += 1;
        home.appeals.ask(other, bytes);
        Step::Ask(other)
    }
}

impl Ends {
    /// Whether this thread has less room than it wants.
    fn is_short(&self) -> bool {
        self.room_bytes < self.own_bytes
    }

    /// The connection to end next, and what it holds, unless there is enough room.
    fn next(
        &mut self,
        (holders, places): (&mut Holders, u32),
        connections: &impl Connections,
        now_ns: u64,
    ) -> Option<(u32, usize)> {
        if self.left == 0 || self.room_bytes >= self.wanted_bytes {
            return None;
        }
        let budget = (&mut self.steps, places);
        let index = holders.victim(connections, now_ns, budget, self.is_long)?;
        let held_bytes = connections.look(index).map_or(0, |look| look.held_bytes);
        holders.ended(index);
        self.left -= 1;
        self.room_bytes += held_bytes;
        Some((index, held_bytes))
    }
}

#[cfg(test)]
mod tests;
