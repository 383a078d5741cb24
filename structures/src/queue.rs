//! Queue: many threads push without a lock; one at a time pops, oldest first.
//!
//! Other names: Linux `lwq`. Two lists: `new`, newest first, where pushes land, and `ready`, oldest
//! first, which pops drain. A pop that finds `ready` empty takes `new` whole and turns it round.
//! Not lock-free as a whole: pop and take_all wait for each other. It has no length and no bound
//! other than its indices.
//!
//! | may run beside | push | pop, take_all   | is_empty |
//! |----------------|------|-----------------|----------|
//! | push           | yes  | yes             | yes      |
//! | pop, take_all  | yes  | yes, one by one | yes      |
//! | is_empty       | yes  | yes             | yes      |
//!
//! Invariants
//! - Q1: an index is pushed only by its holder, and is in the queue at most once.
//! - Q2: all of `ready` is older than all of `new`, so the queue is first in, first out for every
//!   order that the pushes themselves have.
//! - Q3: it never looks empty while an index is in it. While `new` moves over, the count of moves
//!   in the `ready` word is odd; and a thread that finds both empty reads `ready` again and
//!   believes it only if no move happened in between. (`lwq` looks once: its "empty" can be false,
//!   and is harmless there only because every successful dequeue wakes the next thread.)
//! - Q4: there is no ABA problem: a push may link to a head that left and came back, and the only
//!   way out of `new` takes it whole.
//!
//! `push` returns `true`, "may have been empty", if no pop was obliged to see the index.
//! `false` means that some pop, under way or yet to come, is followed by another look at the queue;
//! it does **not** mean that a consumer is awake. So a consumer that wants to be woken only on
//! `true` looks at the queue again, after a `fence(SeqCst)`, after every index it handled and
//! before it sleeps.
//!
//! Ordering
//! - QE1 publish: `push` (Release) -> the swap of `new` in `pop` and `take_all` (Acquire): the
//!   index, its link and what its holder wrote before.
//! - QE2 lock: what one pop turned round, the next one reads (the lock's own edge).
//! - QE3 move: the odd count, then the swap of `new` (Release) -> `new` in `is_empty` (Acquire): a
//!   thread that sees `new` taken sees the move in the second look at `ready`.
//! - QE4 last: `ready` becomes empty (Release) -> the first look in `is_empty` (Acquire): a
//!   thread that sees it empty sees what was pushed before that in `new`.
//! - QE5 empty: `push` puts its index in `new`, then looks at `ready`; a consumer empties `ready`,
//!   then, after its `fence(SeqCst)`, looks at `new`. One of the two sees the other.
//!
//! Cost: push is one compare-and-swap, retried only when another push won; a pop takes the lock,
//! and touches each index twice on average. One pop in a batch turns the batch round: O(its
//! length).

use crate::links::{END, Links};
use crate::sync::{AtomicU32, AtomicU64, Brief, Ordering, Padded, edge, lock_briefly, look_fence};

pub use crate::links::{Chain, INDICES_MAX};

const PUSH: Ordering = edge!("queue_push_publish", SeqCst, Relaxed);
const PUSH_LOOK: Ordering = Ordering::SeqCst;
const TAKE: Ordering = edge!("queue_take_acquire", AcqRel, Release);
const READY: Ordering = edge!("queue_ready_release", Release, Relaxed);
const LOOK_READY: Ordering = edge!("queue_look_ready_acquire", Acquire, Relaxed);
const LOOK_NEW: Ordering = edge!("queue_look_new_acquire", Acquire, Relaxed);

/// A queue of indices below its capacity. See the module for who may run beside whom.
///
/// ```
/// use flatpath_structures::queue::Queue;
///
/// let queue = Queue::new(16);
/// assert!(queue.push(3), "it was empty: the taker may have to be woken");
/// assert!(!queue.push(5));
/// assert_eq!(queue.pop(), Some(3));
/// queue.push(7);
/// assert_eq!(queue.take_all().collect::<Vec<_>>(), [5, 7]);
/// assert!(queue.is_empty());
/// ```
#[derive(Debug)]
pub struct Queue {
    /// The newest index, or END.
    new: Padded<AtomicU32>,
    ready: Padded<AtomicU64>,
    pops: Padded<Brief<()>>,
    links: Links,
}

impl Queue {
    /// An empty queue for the indices 0 to `capacity - 1`. Links are made as they are touched.
    ///
    /// # Panics
    /// If the capacity is above [`INDICES_MAX`].
    pub fn new(capacity: u32) -> Queue {
        Queue {
            new: Padded(AtomicU32::new(END)),
            ready: Padded(AtomicU64::new(
                Ready {
                    oldest: END,
                    moves: 0,
                }
                .word(),
            )),
            pops: Padded(Brief::new(())),
            links: Links::new(capacity),
        }
    }

    /// Appends `index`, which the caller holds. Returns whether the queue may have been empty.
    #[inline]
    pub fn push(&self, index: u32) -> bool {
        debug_assert!(
            !self.links.is_listed(index),
            "index {index} is pushed while it is listed"
        );
        let mut before = self.new.load(Ordering::Relaxed);
        loop {
            self.links.set(index, before);
            match self
                .new
                .compare_exchange_weak(before, index, PUSH, Ordering::Relaxed)
            {
                Ok(_) => break,
                Err(now) => before = now,
            }
        }
        if before != END {
            return false;
        }
        // ORDER: QE5. SeqCst on the swap above and the load below, a fence on the consumer's side.
        look_fence();
        Ready::of(self.ready.load(PUSH_LOOK)).is_empty()
    }

    /// Takes the oldest index off, or `None` if the queue was empty at one moment of the call.
    ///
    /// Waits for a pop or take_all that is under way.
    #[inline]
    pub fn pop(&self) -> Option<u32> {
        if self.is_empty() {
            return None;
        }
        let guard = lock_briefly(&self.pops);
        // ORDER: QE2. Only a holder of the lock writes `ready`.
        let ready = Ready::of(self.ready.load(Ordering::Relaxed));
        let (popped, rest) = if ready.oldest == END {
            self.move_over(ready)?
        } else {
            (
                ready.oldest,
                Ready {
                    oldest: self.links.next(ready.oldest),
                    moves: ready.moves,
                },
            )
        };
        self.ready.store(rest.word(), READY);
        drop(guard);
        self.links.unlist(popped);
        Some(popped)
    }

    /// Takes `new` whole and turns it round, under the lock. Returns its oldest, and what is ready
    /// after that one; `None` if there is nothing in it.
    fn move_over(&self, ready: Ready) -> Option<(u32, Ready)> {
        if self.new.load(Ordering::Relaxed) == END {
            return None;
        }
        let moving = Ready {
            oldest: END,
            moves: ready.moves + 1,
        };
        // ORDER: QE3. The swap below releases it.
        self.ready.store(moving.word(), Ordering::Relaxed);
        let (oldest, next) = self.links.reverse(self.new.swap(END, TAKE));
        Some((
            oldest,
            Ready {
                oldest: next,
                moves: ready.moves + 2,
            },
        ))
    }

    /// Takes everything off; the chain yields the oldest first.
    ///
    /// Waits for a pop or take_all that is under way. O(indices pushed since the last pop moved
    /// `new` over), outside the lock.
    pub fn take_all(&self) -> Chain<'_> {
        if self.is_empty() {
            return Chain::new(&self.links, END, END);
        }
        let guard = lock_briefly(&self.pops);
        let ready = Ready::of(self.ready.load(Ordering::Relaxed));
        // In either order: what is taken is the caller's, so the queue may look empty in between.
        let newest = self.new.swap(END, TAKE);
        if ready.oldest != END {
            self.ready.store(
                Ready {
                    oldest: END,
                    moves: ready.moves,
                }
                .word(),
                READY,
            );
        }
        drop(guard);
        Chain::new(&self.links, ready.oldest, self.turned_round(newest))
    }

    fn turned_round(&self, newest: u32) -> u32 {
        if newest == END {
            return END;
        }
        let (oldest, next) = self.links.reverse(newest);
        self.links.set(oldest, next);
        oldest
    }

    /// Whether the queue was empty at one moment of the call; `false` if it cannot tell.
    ///
    /// Two or three loads, no lock. A consumer that means to sleep on a `true` puts a
    /// `fence(SeqCst)` before it.
    #[inline]
    pub fn is_empty(&self) -> bool {
        let word = self.ready.load(LOOK_READY);
        if !Ready::of(word).is_empty() || self.new.load(LOOK_NEW) != END {
            return false;
        }
        // `ready` cannot have been filled and emptied in between without another count of moves.
        self.ready.load(Ordering::Relaxed) == word
    }
}

/// The ready word: the oldest index below; above it how often `new` began or ended to move over,
/// odd while it moves. The count wraps around after 2^39 moves, all of which a second look would
/// have to miss.
#[derive(Clone, Copy)]
struct Ready {
    oldest: u32,
    moves: u64,
}

const OLDEST_BITS: u32 = END.count_ones();

impl Ready {
    #[inline]
    fn of(word: u64) -> Ready {
        Ready {
            oldest: word as u32 & END,
            moves: word >> OLDEST_BITS,
        }
    }

    #[inline]
    fn word(self) -> u64 {
        self.moves << OLDEST_BITS | u64::from(self.oldest)
    }

    /// Nothing in it and nothing on the way to it.
    #[inline]
    fn is_empty(self) -> bool {
        self.oldest == END && self.moves.is_multiple_of(2)
    }
}

#[cfg(test)]
mod tests;
