//! Wake set: many threads insert keys; one takes them, each once however often it was inserted.
//!
//! Other names: a run queue with a pending bit per entry; Linux `napi_schedule`, `irq_work`.
//!
//! | may run beside | insert | indices, take | is_empty |
//! |----------------|--------|---------------|----------|
//! | insert         | yes    | yes           | yes      |
//! | indices, take  | yes    | no: one taker | yes      |
//!
//! Invariants
//! - W1: an index is queued by the insert that finds its mark at zero, and by no other; its mark
//!   is zeroed by the taker only, after the queue. So an index is queued at most once.
//! - W2: a mark only rises until it is taken. Generations of a slot only rise, so a key of an
//!   earlier use of the slot never hides a later one.
//!
//! Ordering
//! - WE1 publish: `insert` (Release) -> `take` (Acquire): what every thread wrote before its
//!   insert, also of those inserts that found the key there. An insert that `take` has not seen
//!   finds the mark at zero and queues the index anew: none is lost.
//! - WE2 free: `take` (Release) -> an `insert` that queues the index (Acquire): it has left the
//!   queue.
//! - No fence: a thread that inserts and then looks for a sleeping taker puts a `fence(SeqCst)`
//!   between the two, and so does the taker.
//!
//! Cost: an insert is one atomic maximum, and the first one a push on the queue: lock-free, no
//! allocation but the first touch of a segment. A thread that is stopped between the two delays
//! what the others insert of the same key, and of no other.

use crate::queue::{Chain, Queue};
use crate::slots::Key;
use crate::sync::{AtomicU32, Ordering, edge};
use crate::table::Table;

const INSERT: Ordering = edge!("wake_set_insert_publish", AcqRel, Acquire);
const TAKE: Ordering = edge!("wake_set_take_acquire", AcqRel, Release);

/// Keys of one table that its thread should look at. See the module for who may run beside whom.
///
/// ```
/// use flatpath_structures::slots::Slots;
/// use flatpath_structures::wake_set::WakeSet;
///
/// let mut slots = Slots::new(16);
/// let key = slots.insert("a connection").unwrap();
///
/// let set = WakeSet::new(16);
/// assert!(set.insert(key), "it was not there: its thread may have to be woken");
/// assert!(!set.insert(key), "a thousand wishes are one");
///
/// // On the thread that owns the table:
/// let looked_at: Vec<_> = set.indices().map(|index| slots.get(set.take(index))).collect();
/// assert_eq!(looked_at, [Some(&"a connection")]);
/// ```
#[derive(Debug)]
pub struct WakeSet {
    /// Per index the generation that was inserted; 0 for none.
    marks: Table<AtomicU32>,
    queue: Queue,
}

impl WakeSet {
    /// An empty set for the keys of a table of `capacity` entries.
    ///
    /// # Panics
    /// If the capacity is above [`INDICES_MAX`](crate::queue::INDICES_MAX).
    pub fn new(capacity: u32) -> WakeSet {
        WakeSet {
            marks: Table::new(capacity, |_| AtomicU32::new(0)),
            queue: Queue::new(capacity),
        }
    }

    /// Has the taker look at `key`. True: it was not there, so the taker may have to be woken.
    #[inline]
    pub fn insert(&self, key: Key) -> bool {
        debug_assert!(key.generation > 0, "a key that a table handed out");
        // ORDER: WE1: what was written before; WE2: the index is free.
        let before = self.marks[key.index].fetch_max(key.generation, INSERT);
        if before == 0 {
            self.queue.push(key.index);
        }
        before == 0
    }

    /// Whether nothing was inserted since the last call of `indices`.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Takes the indices of all keys off the queue, oldest first. Each has to be given to
    /// [`WakeSet::take`], sooner or later: until then its key counts as inserted.
    pub fn indices(&self) -> Chain<'_> {
        self.queue.take_all()
    }

    /// The latest key inserted of an index that [`WakeSet::indices`] gave out. From here on it can
    /// be inserted anew.
    #[inline]
    pub fn take(&self, index: u32) -> Key {
        // ORDER: WE1: what all inserts wrote; WE2: frees the index.
        let generation = self.marks[index].swap(0, TAKE);
        debug_assert!(generation > 0, "W1: a queued index has a mark");
        Key { index, generation }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::{Arc, Ordering::Relaxed};
    use crate::testing::race;

    fn key(index: u32, generation: u32) -> Key {
        Key { index, generation }
    }

    fn taken(set: &WakeSet) -> Vec<Key> {
        set.indices().map(|index| set.take(index)).collect()
    }

    #[test]
    fn a_key_inserted_a_thousand_times_is_taken_once_and_can_be_inserted_anew() {
        let set = WakeSet::new(8);
        assert!(set.is_empty());
        for step in 0..1000 {
            assert_eq!(set.insert(key(7, 1)), step == 0);
            assert_eq!(set.insert(key(3, 1)), step == 0);
        }
        assert_eq!(taken(&set), [key(7, 1), key(3, 1)], "oldest first");
        assert!(set.is_empty() && taken(&set).is_empty());
        assert!(set.insert(key(7, 1)));
        assert_eq!(taken(&set), [key(7, 1)]);
    }

    #[test]
    fn a_key_of_an_earlier_use_of_its_slot_hides_no_later_one() {
        let (gone, here) = (key(5, 1), key(5, 2));
        for order in [[gone, here], [here, gone]] {
            let set = WakeSet::new(8);
            for key in order {
                set.insert(key);
            }
            assert_eq!(taken(&set), [here]);
        }
    }

    #[test]
    fn an_index_that_waits_to_be_taken_is_not_queued_again() {
        let set = WakeSet::new(8);
        set.insert(key(2, 1));
        let indices: Vec<u32> = set.indices().collect();
        assert!(!set.insert(key(2, 1)) && set.is_empty());
        assert_eq!(indices, [2]);
        assert_eq!(set.take(2), key(2, 1));
        assert!(set.insert(key(2, 1)) && !set.is_empty());
    }

    /// A set with one key in it, what an inserter wrote first and what the taker did.
    struct Noted {
        set: WakeSet,
        inserter: AtomicU32,
        taker: AtomicU32,
    }

    fn noted() -> Arc<Noted> {
        let set = WakeSet::new(1);
        set.insert(key(0, 1));
        Arc::new(Noted {
            set,
            inserter: AtomicU32::new(0),
            taker: AtomicU32::new(0),
        })
    }

    #[test]
    fn loom_no_insert_is_lost_and_what_was_written_before_it_is_seen() {
        race(
            noted,
            |noted| {
                noted.inserter.store(1, Relaxed);
                noted.set.insert(key(0, 1))
            },
            |noted| {
                let taken = taken(&noted.set).len();
                (taken, noted.inserter.load(Relaxed))
            },
            |noted, is_new, (taken, seen)| {
                assert_eq!(taken, 1);
                let left = self::taken(&noted.set).len();
                assert_eq!(left, usize::from(is_new), "an insert was lost");
                assert!(is_new || seen == 1, "not yet visible");
            },
        );
    }

    #[test]
    fn loom_an_insert_anew_sees_that_the_index_was_taken() {
        race(
            noted,
            |noted| (noted.set.insert(key(0, 1)), noted.taker.load(Relaxed)),
            |noted| {
                for index in noted.set.indices() {
                    noted.taker.store(1, Relaxed);
                    noted.set.take(index);
                }
            },
            |_, (is_new, seen), ()| assert!(!is_new || seen == 1, "not yet visible"),
        );
    }

    #[test]
    fn loom_two_inserters_queue_an_index_once() {
        race(
            || Arc::new(WakeSet::new(1)),
            |set| set.insert(key(0, 1)),
            |set| set.insert(key(0, 2)),
            |set, left, right| {
                assert!(left != right, "one of them was first");
                assert_eq!(taken(set), [key(0, 2)]);
            },
        );
    }
}
