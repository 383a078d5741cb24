//! Stack: many threads push indices; many threads pop them, newest first, one or all at a time.
//!
//! Other names: Linux `llist`, Treiber stack. Unlike `llist` it may have any number of poppers: the
//! head is one word of (index, generation), so a pop that was overtaken fails instead of tearing
//! the list. Not a queue: newest first, and the oldest may wait for ever.
//!
//! | may run beside | push | pop | pop_if_head | take_all | peek, is_empty |
//! |----------------|------|-----|-------------|----------|----------------|
//! | all of them    | yes  | yes | yes         | yes      | yes            |
//!
//! Invariants
//! - K1: an index is pushed only by its holder, and is in the stack at most once. Popping hands
//!   it over. (`llist`: adding an entry that is listed makes a list that ends in itself.)
//! - K2: the link of the topmost index does not change while the head word stays the same: every
//!   push changes the generation, so a head word never comes back. A pop may therefore read the
//!   link of an index that it does not hold, and let the compare-and-swap of the head decide.
//! - K3: links are never freed, so a late reader reads an old link, not freed memory.
//! - K4: every way out (pop, pop_if_head, a chain) marks the index as not listed.
//!
//! The generation has 40 bits: K2 fails only if a pop stalls between its load and its
//! compare-and-swap while exactly a multiple of 2^40 pushes go by, six hours at 50 million pushes a
//! second.
//!
//! Ordering
//! - KE1 publish: `push` (Release) -> `pop`, `pop_if_head`, `take_all`, `peek` (Acquire): the
//!   index, its link and what its holder wrote before. The swaps between them continue the release
//!   sequence.
//! - No fence: nothing here orders a push before a later look at something else. A thread
//!   that publishes work here and then looks for a sleeper puts a `fence(SeqCst)` between the two,
//!   and so does the sleeper.
//!
//! Cost: push and pop are lock-free, one compare-and-swap each, retried only when another one won;
//! take_all is one swap (wait-free). With two processors at it, the head's cache line costs 100 ns
//! or more per operation: what is hot and shared needs something per thread in front (see `pool`).

use crate::links::Links;
use crate::sync::{AtomicU64, Ordering, Padded, edge};

use crate::links::END;
pub use crate::links::{Chain, INDICES_MAX};

const PUSH: Ordering = edge!("stack_push_publish", Release, Relaxed);
const POP: Ordering = edge!("stack_pop_acquire", Acquire, Relaxed);
const POP_IF_HEAD: Ordering = edge!("stack_pop_if_head_acquire", Acquire, Relaxed);
const PEEK: Ordering = edge!("stack_peek_acquire", Acquire, Relaxed);
const TAKE_ALL: Ordering = edge!("stack_take_all_acquire", Acquire, Relaxed);

/// How far a push moves the generation: by nothing, and the ABA problem is back.
const GENERATION_STEP: u64 = 1;

/// A stack of indices below its capacity. See the module for who may run beside whom.
///
/// ```
/// use flatpath_structures::stack::Stack;
///
/// let stack = Stack::new(16);
/// assert!(stack.push(3), "it was empty");
/// assert!(!stack.push(5));
/// assert_eq!(stack.pop(), Some(5));
/// stack.push(7);
/// assert_eq!(stack.take_all().collect::<Vec<_>>(), [7, 3]);
/// assert!(stack.is_empty());
/// ```
#[derive(Debug)]
pub struct Stack {
    head: Padded<AtomicU64>,
    links: Links,
}

impl Stack {
    /// An empty stack for the indices 0 to `capacity - 1`. Links are made as they are touched.
    ///
    /// # Panics
    /// If the capacity is above [`INDICES_MAX`].
    pub fn new(capacity: u32) -> Stack {
        Stack::with_generation(capacity, 0)
    }

    fn with_generation(capacity: u32, generation: u64) -> Stack {
        let head = Padded(AtomicU64::new(
            Head {
                top: END,
                generation,
            }
            .word(),
        ));
        Stack {
            head,
            links: Links::new(capacity),
        }
    }

    /// Puts `index`, which the caller holds, on top. Returns whether the stack was empty before.
    ///
    /// Of all pushes between two moments of emptiness exactly one returns `true`.
    #[inline]
    pub fn push(&self, index: u32) -> bool {
        debug_assert!(
            !self.links.is_listed(index),
            "index {index} is pushed while it is listed"
        );
        let mut word = self.head.load(Ordering::Relaxed);
        loop {
            let head = Head::of(word);
            self.links.set(index, head.top);
            let pushed = Head {
                top: index,
                generation: head.generation + GENERATION_STEP,
            }
            .word();
            match self
                .head
                .compare_exchange_weak(word, pushed, PUSH, Ordering::Relaxed)
            {
                Ok(_) => return head.top == END,
                Err(now) => word = now,
            }
        }
    }

    /// Takes the newest index off, if there is one. Any number of threads may pop.
    #[inline]
    pub fn pop(&self) -> Option<u32> {
        let mut word = self.head.load(POP);
        loop {
            let head = Head::of(word);
            if head.top == END {
                return None;
            }
            match self.try_pop(word, POP) {
                Ok(()) => return Some(head.top),
                Err(now) => word = now,
            }
        }
    }

    /// Takes `index` off if it is the newest at this moment; `false` if it is buried or not listed.
    ///
    /// A thread that removes only its own index this way knows, when it gets `false`, that another
    /// thread pushed after it did.
    #[inline]
    pub fn pop_if_head(&self, index: u32) -> bool {
        let mut word = self.head.load(POP_IF_HEAD);
        while Head::of(word).top == index {
            match self.try_pop(word, POP_IF_HEAD) {
                Ok(()) => return true,
                Err(now) => word = now,
            }
        }
        false
    }

    /// Takes the top of `word` off if the head is still `word`; gives back the head if it is not.
    #[inline]
    fn try_pop(&self, word: u64, acquire: Ordering) -> Result<(), u64> {
        let head = Head::of(word);
        // ORDER: KE1. The link may be stale; then the head has moved on and the swap fails (K2).
        let below = Head {
            top: self.links.next(head.top) & END,
            generation: head.generation,
        }
        .word();
        self.head
            .compare_exchange_weak(word, below, acquire, acquire)?;
        self.links.unlist(head.top);
        Ok(())
    }

    /// Takes everything off in one step; the chain yields the newest first.
    #[inline]
    pub fn take_all(&self) -> Chain<'_> {
        let top = if self.is_empty() {
            // A hint that may be wrong only during a push; it saves the swap of a shared line.
            END
        } else {
            // An all-ones index is the end of the list, so or-ing it in empties the stack. The
            // generation stays: the next push moves it on before the old top can be back.
            Head::of(self.head.fetch_or(u64::from(END), TAKE_ALL)).top
        };
        Chain::new(&self.links, top, END)
    }

    /// The newest index, which may be gone already. What its holder wrote before the push is
    /// visible.
    #[inline]
    pub fn peek(&self) -> Option<u32> {
        let top = Head::of(self.head.load(PEEK)).top;
        (top != END).then_some(top)
    }

    /// Whether the stack was empty a moment ago. A hint: a pop after a `false` may still find
    /// nothing.
    #[inline]
    pub fn is_empty(&self) -> bool {
        Head::of(self.head.load(Ordering::Relaxed)).top == END
    }

    /// Whether `index` is in the stack. Exact for the thread that holds it or pushed it; else a
    /// hint.
    #[inline]
    pub fn is_listed(&self, index: u32) -> bool {
        self.links.is_listed(index)
    }
}

/// The head word: the topmost index below, the generation above it.
#[derive(Clone, Copy)]
struct Head {
    top: u32,
    generation: u64,
}

const TOP_BITS: u32 = END.count_ones();

impl Head {
    #[inline]
    fn of(word: u64) -> Head {
        Head {
            top: word as u32 & END,
            generation: word >> TOP_BITS,
        }
    }

    /// The generation wraps around: its upper bits fall off.
    #[inline]
    fn word(self) -> u64 {
        self.generation << TOP_BITS | u64::from(self.top)
    }
}

#[cfg(test)]
mod tests;
