//! A shard of the registry: a lock, a table of open addressing, and the threads that wait for a
//! busy entry.
//!
//! The contract and the invariants are those of the pairing. Nothing runs under the lock but what
//! is in this file: callbacks, and the end of objects, come after it. Longest under it is a table
//! that doubles or halves: some microseconds for a thousand keys, during which threads that want
//! this shard yield the processor.
//!
//! Probing is linear, and a removed entry is replaced by a later one, so there are no tombstones.
//! Entries may move whenever the lock is free: look an entry up again after taking the lock. A busy
//! entry is never erased.

use super::introduce::{connect, disconnect};
use super::{Consumer, Endpoint, Hash, Producer, RegisterError, Side, Spot};
use crate::sync::{Arc, Brief, BriefGuard, Thread, current, lock_briefly, park};

/// Slots of a table that was touched; it does not shrink below.
const SLOTS_MIN: usize = 4;

/// An object to be registered, or just removed.
pub(super) enum Party<P: ?Sized, C: ?Sized> {
    Producer(Arc<Endpoint<P>>),
    Consumer(Arc<Endpoint<C>>),
}

type Pair<P, C> = (Arc<Endpoint<P>>, Arc<Endpoint<C>>);
type Refusal<P, C, E> = (RegisterError<E>, Party<P, C>);

/// The state of an object that may be registered.
enum Admitted<P: ?Sized, C: ?Sized> {
    /// It is; there is no peer yet.
    Alone,
    /// It is if it can be connected with its peer. The entry at this place is busy.
    Meets(usize, Pair<P, C>),
}

pub(super) struct Shard<P: ?Sized, C: ?Sized> {
    table: Brief<Table<P, C>>,
}

struct Table<P: ?Sized, C: ?Sized> {
    /// A power of two of them, or none.
    slots: Box<[Entry<P, C>]>,
    /// Two short ones, so that a lock and all that an operation needs share a cache line.
    len: u32,
    /// Entries that are connected, and how often one was.
    pairs: u32,
    matched: u64,
    /// Threads that wait until the callbacks of a key are done.
    waiters: Vec<(u64, Thread)>,
    /// Behaves as an allocator without memory, for tests and simulations.
    is_out_of_memory: bool,
}

struct Entry<P: ?Sized, C: ?Sized> {
    /// The key; 0 if the slot is vacant.
    word: u64,
    /// The thread that runs callbacks for this key; 0 if none does. Meanwhile that thread has both
    /// objects, and both sides count as taken.
    busy: usize,
    producer: Option<Arc<Endpoint<P>>>,
    consumer: Option<Arc<Endpoint<C>>>,
}

impl<P: ?Sized, C: ?Sized> Shard<P, C> {
    pub(super) fn new() -> Shard<P, C> {
        Shard {
            table: Brief::new(Table::new()),
        }
    }

    pub(super) fn len(&self) -> usize {
        lock_briefly(&self.table).len as usize
    }

    pub(super) fn pairs(&self) -> usize {
        lock_briefly(&self.table).pairs as usize
    }

    pub(super) fn matched(&self) -> u64 {
        lock_briefly(&self.table).matched
    }

    pub(super) fn is_connected(&self, spot: Spot) -> bool {
        let table = lock_briefly(&self.table);
        table
            .find(spot)
            .is_some_and(|place| table.slots[place].is_paired())
    }

    /// Slots of the table, vacant or not.
    #[cfg(test)]
    pub(super) fn slots(&self) -> usize {
        lock_briefly(&self.table).slots.len()
    }

    /// From now on this shard gets no memory, or gets it again.
    pub(super) fn starve(&self, is_out_of_memory: bool) {
        lock_briefly(&self.table).is_out_of_memory = is_out_of_memory;
    }
}

impl<P, C> Shard<P, C>
where
    P: Producer<C> + ?Sized,
    C: Consumer<P, Error = P::Error> + ?Sized,
{
    /// Registers an object that its caller has claimed, or releases it.
    #[inline]
    pub(super) fn register(
        &self,
        hash: &Hash,
        entries_max: usize,
        spot: Spot,
        party: Party<P, C>,
    ) -> Result<(), RegisterError<P::Error>> {
        let side = party.side();
        let admitted = lock_briefly(&self.table).admit(hash, entries_max, spot, party);
        match admitted {
            Ok(Admitted::Alone) => Ok(()),
            Ok(Admitted::Meets(place, pair)) => {
                let mut busy = Busy {
                    shard: self,
                    spot,
                    place,
                    leaves: Some(side),
                    pair: Some(pair),
                };
                let connected = busy.with_pair(|producer, consumer| connect(producer, consumer));
                if connected.is_ok() {
                    busy.leaves = None;
                }
                connected.map_err(RegisterError::Connect)
            }
            Err((error, party)) => {
                party.release();
                Err(error)
            }
        }
    }

    /// Ends the registration of a side, which the caller owns while `word` is not 0. A panic leaves
    /// it as it is if the side is still in, and 0 if it goes (R3).
    #[inline]
    pub(super) fn end(&self, hash: &Hash, spot: Spot, side: Side, word: &mut u64) {
        let mut table = lock_briefly(&self.table);
        let mut place = table.expect(spot);
        while table.slots[place].busy != 0 {
            (table, place) = self.wait(table, spot, place);
        }
        // Whatever a callback does now, the side leaves: with the entry here, or with `Busy`.
        *word = 0;
        if let Some(pair) = table.slots[place].start_callbacks() {
            table.pairs -= 1;
            drop(table);
            let busy = Busy {
                shard: self,
                spot,
                place,
                leaves: Some(side),
                pair: Some(pair),
            };
            busy.with_pair(|producer, consumer| disconnect(producer, consumer));
        } else {
            let party = table.slots[place].take(side);
            table.erase(hash, place);
            drop(table);
            if let Some(party) = party {
                party.release();
            }
        }
    }
}

impl<P: ?Sized, C: ?Sized> Shard<P, C> {
    /// Waits until the callbacks of an entry are done, or for no reason.
    #[cold]
    fn wait<'a>(
        &'a self,
        mut table: BriefGuard<'a, Table<P, C>>,
        spot: Spot,
        place: usize,
    ) -> (BriefGuard<'a, Table<P, C>>, usize) {
        assert!(
            !is_this_thread(table.slots[place].busy),
            "a callback ends the registration it is for"
        );
        table.waiters.push((spot.word, current()));
        drop(table);
        park();
        let mut table = lock_briefly(&self.table);
        // The thread that was busy took the handle out; a park that ended for no reason did not.
        let this = current().id();
        table.waiters.retain(|(_, waiter)| waiter.id() != this);
        let place = table.expect(spot);
        (table, place)
    }
}

/// An entry whose callbacks this thread runs. Dropping this puts back the sides that stay, also
/// after a panic, and wakes the threads that wait.
struct Busy<'a, P: ?Sized, C: ?Sized> {
    shard: &'a Shard<P, C>,
    spot: Spot,
    /// Where the entry was; it may have been moved since.
    place: usize,
    /// Which side does not stay.
    leaves: Option<Side>,
    /// Until the end.
    pair: Option<Pair<P, C>>,
}

impl<P: ?Sized, C: ?Sized> Busy<'_, P, C> {
    #[inline]
    fn with_pair<T>(&self, callbacks: impl FnOnce(&P, &C) -> T) -> T {
        let (producer, consumer) = self.pair.as_ref().expect("until the end");
        callbacks(producer, consumer)
    }
}

impl<P: ?Sized, C: ?Sized> Drop for Busy<'_, P, C> {
    #[inline]
    fn drop(&mut self) {
        if cfg!(loom) && std::thread::panicking() {
            // A model check failed; loom's stack is gone already.
            return;
        }
        let mut table = lock_briefly(&self.shard.table);
        let place = match table.slots.get(self.place) {
            Some(entry) if entry.word == self.spot.word => self.place,
            _ => table.expect(self.spot),
        };
        let entry = &mut table.slots[place];
        entry.busy = 0;
        (entry.producer, entry.consumer) = self.pair.take().unzip();
        let leaver = self.leaves.and_then(|side| entry.take(side));
        if self.leaves.is_none() {
            table.pairs += 1;
            table.matched += 1;
        }
        if table.waiters.is_empty() {
            drop(table);
        } else {
            wake(table, self.spot.word);
        }
        if let Some(leaver) = leaver {
            leaver.release();
        }
    }
}

/// Wakes the threads that wait for the callbacks of a key, after giving back the lock.
#[cold]
fn wake<P: ?Sized, C: ?Sized>(mut table: BriefGuard<'_, Table<P, C>>, word: u64) {
    let is_waiter = |waiter: &mut (u64, Thread)| waiter.0 == word;
    let waiters: Vec<_> = table.waiters.extract_if(.., is_waiter).collect();
    drop(table);
    waiters.iter().for_each(|(_, waiter)| waiter.unpark());
}

impl<P: ?Sized, C: ?Sized> Table<P, C> {
    fn new() -> Table<P, C> {
        Table {
            slots: Box::default(),
            len: 0,
            pairs: 0,
            matched: 0,
            waiters: Vec::new(),
            is_out_of_memory: false,
        }
    }

    /// Puts an object in. If there is a peer to connect it with, the entry is busy from now on.
    #[inline]
    fn admit<E>(
        &mut self,
        hash: &Hash,
        entries_max: usize,
        spot: Spot,
        party: Party<P, C>,
    ) -> Result<Admitted<P, C>, Refusal<P, C, E>> {
        let mut place = match self.slots.is_empty() {
            true => 0,
            false => self.vacancy(spot),
        };
        if let Some(entry) = self.slots.get_mut(place)
            && entry.word == spot.word
        {
            let is_taken = entry.busy != 0 || entry.has(party.side());
            if is_taken {
                return Err((RegisterError::Taken, party));
            }
            return Ok(Admitted::Meets(place, entry.meet(party)));
        }
        let len = self.len as usize;
        if len >= entries_max {
            return Err((RegisterError::Full, party));
        }
        if (len + 1) * 4 > self.slots.len() * 3 {
            if !self.rebuild(hash, (self.slots.len() * 2).max(SLOTS_MIN)) {
                return Err((RegisterError::NoMemory, party));
            }
            place = self.vacancy(spot);
        }
        self.slots[place].word = spot.word;
        self.slots[place].put(party);
        self.len += 1;
        Ok(Admitted::Alone)
    }

    /// The place of a key.
    #[inline]
    fn find(&self, spot: Spot) -> Option<usize> {
        if self.slots.is_empty() {
            return None;
        }
        let place = self.vacancy(spot);
        (self.slots[place].word == spot.word).then_some(place)
    }

    /// The place of a key under which a side is registered that cannot end meanwhile.
    #[inline]
    fn expect(&self, spot: Spot) -> usize {
        self.find(spot)
            .expect("R1: a side that is registered has an entry")
    }

    /// The place of a key, or the one where it belongs. A quarter of the slots is vacant.
    #[inline]
    fn vacancy(&self, spot: Spot) -> usize {
        let mask = self.slots.len() - 1;
        let mut place = spot.hash as usize & mask;
        while self.slots[place].word != 0 && self.slots[place].word != spot.word {
            place = (place + 1) & mask;
        }
        place
    }

    /// Vacates a slot, and moves entries that were pushed aside back towards where they belong.
    fn erase(&mut self, hash: &Hash, place: usize) {
        let mask = self.slots.len() - 1;
        self.slots[place] = Entry::vacant();
        self.len -= 1;
        let (mut hole, mut next) = (place, (place + 1) & mask);
        while self.slots[next].word != 0 {
            let home = hash.spot(self.slots[next].word).hash as usize & mask;
            // Unless it belongs after the hole.
            if next.wrapping_sub(home) & mask >= next.wrapping_sub(hole) & mask {
                self.slots.swap(hole, next);
                hole = next;
            }
            next = (next + 1) & mask;
        }
        if self.len as usize * 8 < self.slots.len() && self.slots.len() > SLOTS_MIN {
            // Without memory it stays as large as it is.
            self.rebuild(hash, self.slots.len() / 2);
        }
    }

    /// Moves all entries to a table of `count` slots. `false` if there is no memory for it.
    #[cold]
    fn rebuild(&mut self, hash: &Hash, count: usize) -> bool {
        if self.is_out_of_memory {
            return false;
        }
        let mut slots = Vec::new();
        if slots.try_reserve_exact(count).is_err() {
            return false;
        }
        slots.resize_with(count, Entry::vacant);
        let old = std::mem::replace(&mut self.slots, slots.into_boxed_slice());
        for entry in old.into_iter().filter(|entry| entry.word != 0) {
            let place = self.vacancy(hash.spot(entry.word));
            self.slots[place] = entry;
        }
        true
    }
}

impl<P: ?Sized, C: ?Sized> Entry<P, C> {
    fn vacant() -> Entry<P, C> {
        Entry {
            word: 0,
            busy: 0,
            producer: None,
            consumer: None,
        }
    }

    fn has(&self, side: Side) -> bool {
        match side {
            Side::Producer => self.producer.is_some(),
            Side::Consumer => self.consumer.is_some(),
        }
    }

    fn is_paired(&self) -> bool {
        self.has(Side::Producer) && self.has(Side::Consumer)
    }

    fn put(&mut self, party: Party<P, C>) {
        match party {
            Party::Producer(producer) => self.producer = Some(producer),
            Party::Consumer(consumer) => self.consumer = Some(consumer),
        }
    }

    fn take(&mut self, side: Side) -> Option<Party<P, C>> {
        match side {
            Side::Producer => self.producer.take().map(Party::Producer),
            Side::Consumer => self.consumer.take().map(Party::Consumer),
        }
    }

    /// A party comes to the one that is there: marks the entry as busy and hands both objects to
    /// this thread.
    #[inline]
    fn meet(&mut self, party: Party<P, C>) -> Pair<P, C> {
        const THERE: &str = "R1: one side was there";
        self.busy = this_thread();
        match party {
            Party::Producer(producer) => (producer, self.consumer.take().expect(THERE)),
            Party::Consumer(consumer) => (self.producer.take().expect(THERE), consumer),
        }
    }

    /// If both sides are there: marks the entry as busy and hands both objects to this thread.
    #[inline]
    fn start_callbacks(&mut self) -> Option<Pair<P, C>> {
        if !self.is_paired() {
            return None;
        }
        self.busy = this_thread();
        self.producer.take().zip(self.consumer.take())
    }
}

impl<P: ?Sized, C: ?Sized> Party<P, C> {
    pub(super) fn claim(&self) -> bool {
        match self {
            Party::Producer(producer) => producer.claim(),
            Party::Consumer(consumer) => consumer.claim(),
        }
    }

    /// The object may be registered again. Outside the lock: this may be its last reference.
    fn release(self) {
        match self {
            Party::Producer(producer) => producer.release(),
            Party::Consumer(consumer) => consumer.release(),
        }
    }

    fn side(&self) -> Side {
        match self {
            Party::Producer(_) => Side::Producer,
            Party::Consumer(_) => Side::Consumer,
        }
    }
}

/// A number for this thread that no other living thread has; not 0.
#[inline]
fn this_thread() -> usize {
    thread_local!(static MARK: u8 = const { 0 });
    MARK.with(|mark| std::ptr::from_ref(mark).addr())
}

/// Always `false` under the model checkers, whose threads share one of the system's.
fn is_this_thread(number: usize) -> bool {
    number == this_thread() && !cfg!(any(loom, shuttle))
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn an_entry_takes_half_a_cache_line() {
        assert_eq!(size_of::<Entry<String, [u64; 9]>>(), 32);
    }
}
