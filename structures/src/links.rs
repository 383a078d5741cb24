//! Links: one word per index, which says what comes after it in the list that it is on, or that it
//! is on none. Stack and queue each own a set of links, so an index may be in one of each at a
//! time.
//!
//! A link is written only by the holder of its index, or under the queue's lock. It may be read by
//! a thread that is late; such a reader finds some old or new index, and its compare-and-swap then
//! fails. Relaxed throughout: a link travels with the head that leads to it, which is released and
//! acquired.

use crate::sync::{AtomicU32, Ordering::Relaxed};
use crate::table::Table;

/// The end of a list, in links and heads. Heads keep 24 bits for it, the others for a generation.
pub(crate) const END: u32 = (1 << 24) - 1;

/// Most indices that a stack or a queue can link: 16,777,215.
pub const INDICES_MAX: u32 = END;

/// The link of an index that is on no list.
const OFF: u32 = u32::MAX;

/// The links of one structure.
#[derive(Debug)]
pub(crate) struct Links {
    words: Table<AtomicU32>,
}

impl Links {
    pub(crate) fn new(capacity: u32) -> Links {
        assert!(capacity <= INDICES_MAX, "more indices than a head can name");
        Links {
            words: Table::new(capacity, |_| AtomicU32::new(OFF)),
        }
    }

    #[inline]
    pub(crate) fn next(&self, index: u32) -> u32 {
        self.words[index].load(Relaxed)
    }

    #[inline]
    pub(crate) fn set(&self, index: u32, next: u32) {
        self.words[index].store(next, Relaxed);
    }

    /// The holder of `index` notes that it is on no list now.
    #[inline]
    pub(crate) fn unlist(&self, index: u32) {
        self.set(index, OFF);
    }

    #[inline]
    pub(crate) fn is_listed(&self, index: u32) -> bool {
        self.next(index) != OFF
    }

    /// Turns a list round; `newest` and all after it belong to the caller. O(its length).
    ///
    /// Returns the oldest and what now follows it; the link of the oldest itself is not written, as
    /// the caller is about to take it off.
    pub(crate) fn reverse(&self, newest: u32) -> (u32, u32) {
        let (mut index, mut reversed) = (newest, END);
        loop {
            let link = &self.words[index];
            let older = link.load(Relaxed);
            if older == END {
                return (index, reversed);
            }
            link.store(reversed, Relaxed);
            reversed = index;
            index = older;
        }
    }
}

/// A detached list, the caller's own: an iterator over its indices, which are off the list from
/// then on.
///
/// Indices that were not reached when it is dropped are off the list as well, and have no holder.
#[derive(Debug)]
#[must_use = "the indices were taken off the structure and are lost if they are not looked at"]
pub struct Chain<'a> {
    links: &'a Links,
    next: u32,
    then: u32,
}

impl<'a> Chain<'a> {
    /// The list that begins at `first`, followed by the list that begins at `then`.
    pub(crate) fn new(links: &'a Links, first: u32, then: u32) -> Chain<'a> {
        let (next, then) = if first == END {
            (then, END)
        } else {
            (first, then)
        };
        Chain { links, next, then }
    }

    /// Whether nothing is left.
    pub fn is_empty(&self) -> bool {
        self.next == END
    }
}

impl Iterator for Chain<'_> {
    type Item = u32;

    #[inline]
    fn next(&mut self) -> Option<u32> {
        if self.next == END {
            return None;
        }
        let index = self.next;
        self.next = self.links.next(index);
        if self.next == END {
            self.next = std::mem::replace(&mut self.then, END);
        }
        self.links.unlist(index);
        Some(index)
    }
}

impl Drop for Chain<'_> {
    fn drop(&mut self) {
        self.for_each(drop);
    }
}
