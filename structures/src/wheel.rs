//! Wheel: time-outs that are armed, moved and cancelled all the time and hardly ever expire.
//!
//! Other names: hashed timing wheel (Varghese and Lauck's scheme 6). One list per tick of the
//! horizon; a deadline further away than the horizon waits in the list of its tick for the right
//! round. Timers are indices (those of a slot table, as a rule); the wheel keeps one node for each
//! and never allocates for a timer it has seen before.
//!
//! One thread owns the wheel (`&mut`); no locks, no atomics, no clock: the caller passes the time.
//! It calls nothing back. `expire` queues what is due, and the caller fires it afterwards, so that
//! firing one timer may cancel or move another one that is due as well: ask `confirm` first.
//!
//! Invariants
//! - L1: an armed timer is in the list of `tick & mask`; any other has no links.
//! - L2: lists are circular through sentinels, which are the first links of the table, so that
//!   linking and unlinking have no special case.
//! - L3: the bit of a list is set exactly while the list is not empty, and the bit of a word of
//!   bits exactly while that word is not 0.
//! - L4: every armed tick is later than the last tick that was expired.
//! - L5: of an armed timer's tick only the round is noted, as a distance from that of `base`; the
//!   rest is its slot. `base` moves only while nothing is armed.
//!
//! Time
//! - A timer never fires early. It is due at its deadline rounded up to a tick.
//! - `next_ns` is never later than the first due tick, and may be earlier by rounds: a timer
//!   further away than the horizon costs one needless look per round.
//! - A deadline 2^32 rounds away never comes: with ticks of 16 ms and 4,096 slots, after 8,900
//!   years.
//!
//! Cost: arm, cancel and confirm are O(1). `expire` is O(timers due + timers of later rounds in the
//! lists it passes + 1), however long it was not called: it passes each list at most once and skips
//! the empty ones by their bits. 12 bytes for a timer, 8 for a slot.
//!
//! Links are apart from rounds, and rare paths out of line, to save cache misses;
//! `docs/structures/wheel.md` says why, and why the wheel is not lazy.

/// "No link": the timer is neither armed nor due.
const NIL: u32 = u32::MAX;
/// In `next` of a timer that `expire` has queued and that was not confirmed, moved or cancelled
/// yet.
const DUE: u32 = u32::MAX - 1;
/// In `rounds` of a timer that is too far away ever to be due.
const NEVER: u32 = u32::MAX;

/// Most slots a wheel may have: its bits and their summary then take less than 140 KiB.
pub const SLOTS_MAX: u32 = 1 << 20;

/// A hashed timing wheel. See the module's header.
///
/// ```
/// use flatpath_structures::wheel::Wheel;
///
/// const MS: u64 = 1_000_000;
///
/// let mut wheel = Wheel::new(MS, 1024);
/// wheel.arm(3, 20 * MS);
/// wheel.arm(5, 30 * MS);
/// wheel.arm(5, 40 * MS); // moved
/// assert!(wheel.next_ns(0).unwrap() >= 20 * MS, "so long its owner may sleep");
///
/// let mut due = Vec::new();
/// wheel.expire(25 * MS, &mut due);
/// assert_eq!(due, [3]);
/// assert!(wheel.confirm(3), "neither cancelled nor moved meanwhile");
/// assert!(wheel.cancel(5));
/// assert_eq!(wheel.next_ns(25 * MS), None);
/// ```
#[derive(Debug)]
pub struct Wheel {
    tick_ns: u64,
    /// Slots - 1; slots are a power of two.
    mask: u32,
    /// Sentinels of the slots, then the timers: timer `index` is node `slots + index`.
    links: Vec<Links>,
    /// The round in which each timer is due, counted from `base`, by index. L5.
    rounds: Vec<u32>,
    /// A round that is over or under way.
    base: u64,
    occupied: Occupied,
    /// The last tick that was expired.
    tick: u64,
    armed: u32,
}

#[derive(Clone, Copy, Debug)]
struct Links {
    next: u32,
    prev: u32,
}

impl Wheel {
    /// A wheel of `slots` lists, `tick_ns` nanoseconds apart. Deadlines nearer than their product,
    /// the horizon, are looked at once; those further away once per round.
    ///
    /// # Panics
    /// If `slots` is not a power of two or exceeds [`SLOTS_MAX`], or if `tick_ns` is 0.
    pub fn new(tick_ns: u64, slots: u32) -> Wheel {
        assert!(tick_ns > 0, "a tick takes time");
        assert!(
            slots.is_power_of_two() && slots <= SLOTS_MAX,
            "slots: a power of two, bounded"
        );
        let sentinel = |node| Links {
            next: node,
            prev: node,
        };
        Wheel {
            tick_ns,
            mask: slots - 1,
            links: (0..slots).map(sentinel).collect(),
            rounds: Vec::new(),
            base: 0,
            occupied: Occupied::new(slots),
            tick: 0,
            armed: 0,
        }
    }

    /// Makes room for timers 0 to `timers` - 1, so that arming them allocates nothing. Without it
    /// the table grows by doubling.
    pub fn reserve(&mut self, timers: u32) {
        if timers as usize > self.rounds.len() {
            self.cover(timers - 1);
        }
    }

    /// Arms timer `index` for `deadline_ns`, or moves it there if it is armed or due. O(1).
    /// A deadline of `u64::MAX` never comes.
    ///
    /// # Panics
    /// If `index` and the number of slots together reach `u32::MAX` - 1.
    #[inline(always)]
    pub fn arm(&mut self, index: u32, deadline_ns: u64) {
        let Some(node) = self.known(index) else {
            return self.arm_new(index, deadline_ns);
        };
        let Links { next, prev } = self.links[node as usize];
        if next < DUE {
            self.unlink(next, prev);
        } else {
            self.armed += 1;
        }
        // L4: what is past already is due at the next tick.
        let tick = deadline_ns.div_ceil(self.tick_ns).max(self.tick + 1);
        let rounds = self.round_of(tick) - self.base;
        self.rounds[index as usize] = u32::try_from(rounds).unwrap_or(NEVER);
        // To the end of its list.
        let slot = self.slot_of(tick);
        let last = self.links[slot as usize].prev;
        if last == slot {
            self.occupied.set(slot);
        }
        self.links[last as usize].next = node;
        self.links[slot as usize].prev = node;
        self.links[node as usize] = Links {
            next: slot,
            prev: last,
        };
    }

    #[cold]
    #[inline(never)]
    fn arm_new(&mut self, index: u32, deadline_ns: u64) {
        self.cover(index);
        self.arm(index, deadline_ns);
    }

    /// Disarms timer `index`. Returns whether it was armed, or due and not yet confirmed. O(1).
    #[inline]
    pub fn cancel(&mut self, index: u32) -> bool {
        let Some(node) = self.known(index) else {
            return false;
        };
        let Links { next, prev } = self.links[node as usize];
        match next {
            NIL => return false,
            DUE => {}
            _ => {
                self.unlink(next, prev);
                self.armed -= 1;
            }
        }
        self.links[node as usize].next = NIL;
        true
    }

    /// Appends the timers that are due at `now_ns` to `due` and disarms them. Nothing is called:
    /// the caller takes them one by one and asks [`Wheel::confirm`] for each. Earlier ticks come
    /// first unless more than a horizon passed since the last call; then slots are in order.
    /// A time before that of an earlier call expires nothing.
    pub fn expire(&mut self, now_ns: u64, due: &mut Vec<u32>) {
        let now = (now_ns / self.tick_ns).min(u64::MAX - 1);
        if now <= self.tick {
            return;
        }
        let first = self.slot_of(self.tick + 1);
        let slots = u64::from(self.mask) + 1;
        let mut left = (now - self.tick).min(slots) as u32;
        self.tick = now;
        if self.armed == 0 {
            // L5: no distance is in use.
            self.base = self.round_of(now);
        }
        let mut slot = first;
        while self.armed > 0 {
            let Some(found) = self.occupied.next(slot) else {
                return;
            };
            let skipped = found.wrapping_sub(slot) & self.mask;
            if skipped >= left {
                return;
            }
            self.expire_slot(found, due);
            left -= skipped + 1;
            if left == 0 {
                return;
            }
            slot = (found + 1) & self.mask;
        }
    }

    /// Whether a timer that `expire` queued is still to be fired, that is, was neither cancelled
    /// nor moved since. Answers `true` once. O(1).
    #[inline]
    pub fn confirm(&mut self, index: u32) -> bool {
        let Some(node) = self.known(index) else {
            return false;
        };
        let next = &mut self.links[node as usize].next;
        let due = *next == DUE;
        if due {
            *next = NIL;
        }
        due
    }

    /// How long the owner may sleep from `now_ns` on before it calls [`Wheel::expire`]: until the
    /// next tick whose slot is not empty. 0 if that is past, `None` if nothing is armed. O(1).
    pub fn next_ns(&self, now_ns: u64) -> Option<u64> {
        let slot = self.slot_of(self.tick + 1);
        let found = self.occupied.next(slot)?;
        let skipped = u64::from(found.wrapping_sub(slot) & self.mask);
        let tick = (self.tick + 1).saturating_add(skipped);
        Some(tick.saturating_mul(self.tick_ns).saturating_sub(now_ns))
    }

    /// Takes what is due out of one slot and leaves the timers of later rounds. One pass that
    /// touches each node once: the list is linked anew from the timers that stay.
    fn expire_slot(&mut self, slot: u32, due: &mut Vec<u32>) {
        let slots = self.mask + 1;
        // Rounds that begin up to here, and their tick of this slot, are due.
        let over = self.tick.checked_sub(u64::from(slot));
        let over = over.and_then(|tick| self.round_of(tick).checked_sub(self.base));
        let over = over.map(|over| over.min(u64::from(NEVER) - 1));
        let mut kept = slot;
        let mut node = self.links[slot as usize].next;
        while node != slot {
            let timer = node - slots;
            let rounds = u64::from(self.rounds[timer as usize]);
            let is_due = over.is_some_and(|over| rounds <= over);
            let links = &mut self.links[node as usize];
            let next = links.next;
            if is_due {
                links.next = DUE;
                self.armed -= 1;
                due.push(timer);
            } else {
                links.prev = kept;
                self.links[kept as usize].next = node;
                kept = node;
            }
            node = next;
        }
        self.links[kept as usize].next = slot;
        self.links[slot as usize].prev = kept;
        if kept == slot {
            self.occupied.clear(slot);
        }
    }

    /// Makes nodes up to that of timer `index`.
    fn cover(&mut self, index: u32) {
        let node = index.checked_add(self.mask + 1).filter(|node| *node < DUE);
        let node = node.expect("timer indices and slots together stay below u32::MAX - 1");
        let unlinked = Links {
            next: NIL,
            prev: NIL,
        };
        self.links.resize(node as usize + 1, unlinked);
        self.rounds.resize(index as usize + 1, 0);
    }

    /// The node of timer `index`, if it was made.
    #[inline]
    fn known(&self, index: u32) -> Option<u32> {
        ((index as usize) < self.rounds.len()).then(|| index + self.mask + 1)
    }

    #[inline]
    fn slot_of(&self, tick: u64) -> u32 {
        tick as u32 & self.mask
    }

    /// In which round a tick is: how often the slots were gone through before it.
    #[inline]
    fn round_of(&self, tick: u64) -> u64 {
        tick >> self.mask.trailing_ones()
    }

    /// Takes what lies between two nodes out of their list.
    #[inline]
    fn unlink(&mut self, next: u32, prev: u32) {
        self.links[prev as usize].next = next;
        self.links[next as usize].prev = prev;
        if next == prev {
            // Both neighbours are the sentinel: the list is empty now.
            self.occupied.clear(next);
        }
    }
}

/// Which slots are not empty, in three levels of 64, so that the next one is found in O(1).
#[derive(Debug)]
struct Occupied {
    /// One bit per slot.
    bits: Vec<u64>,
    /// One bit per word of `bits`.
    summary: Vec<u64>,
}

impl Occupied {
    fn new(slots: u32) -> Occupied {
        let words = (slots as usize).div_ceil(64);
        Occupied {
            bits: vec![0; words],
            summary: vec![0; words.div_ceil(64)],
        }
    }

    #[cold]
    fn set(&mut self, slot: u32) {
        let word = slot as usize / 64;
        self.bits[word] |= 1 << (slot % 64);
        self.summary[word / 64] |= 1 << (word % 64);
    }

    #[cold]
    fn clear(&mut self, slot: u32) {
        let word = slot as usize / 64;
        self.bits[word] &= !(1 << (slot % 64));
        if self.bits[word] == 0 {
            self.summary[word / 64] &= !(1 << (word % 64));
        }
    }

    /// The first occupied slot from `slot` on, going round past the end back to `slot`.
    #[inline]
    fn next(&self, slot: u32) -> Option<u32> {
        let word = slot as usize / 64;
        let here = self.bits[word] & (u64::MAX << (slot % 64));
        if here != 0 {
            return Some(first_bit(word, here));
        }
        let word = self.next_word(word + 1).or_else(|| self.next_word(0))?;
        Some(first_bit(word, self.bits[word]))
    }

    /// The first word of `bits` from `word` on that is not 0.
    fn next_word(&self, word: usize) -> Option<usize> {
        let start = word / 64;
        let here = self.summary.get(start)? & (u64::MAX << (word % 64));
        if here != 0 {
            return Some(first_bit(start, here) as usize);
        }
        let rest = &self.summary[start + 1..];
        let skipped = rest.iter().position(|bits| *bits != 0)?;
        Some(first_bit(start + 1 + skipped, rest[skipped]) as usize)
    }
}

#[inline]
fn first_bit(word: usize, bits: u64) -> u32 {
    word as u32 * 64 + bits.trailing_zeros()
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
