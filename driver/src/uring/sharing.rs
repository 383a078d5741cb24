//! Pages that several receives share: a provided-buffer ring whose buffers the kernel fills little
//! by little (IOU_PBUF_RING_INC, Linux 6.12).
//!
//! The kernel fills the oldest page, receive after receive, each after the one before, and
//! continues with the next page when that one is full. A flag of each completion tells whether the
//! page will be named again, and it has been wrong in several releases, at the end of a stream
//! above all. So it is not used here:
//!
//! Invariants
//! - H1: what a completion brings begins where the one before it on the same page ended. A page is
//!   retired when its bytes add up, or when the kernel names a later page: it takes them in order.
//! - H2: a completion without bytes tells nothing about a page.
//! - H3: a page with retained bytes has a count on behalf of this ring (its base) until it is
//!   retired and all its pieces are recycled. So its count does not leave and
//!   return to 0, and it is not idle, while the kernel writes to what is left of it.
//!
//! `probe` tries H1 and H2 on this kernel; without them the ring is not made.
//!
//! Cost: a look into a small map for each receive and each put.

use std::collections::{HashMap, VecDeque};

use flatpath_structures::tokens::Pinned;

use super::entries::Entries;
use crate::region::RegionMemory;

pub(super) struct Sharing {
    pub(super) entries: Entries,
    /// With the kernel, in the order in which it takes them.
    queue: VecDeque<u16>,
    /// Bytes of the first page that are received already.
    filled: u32,
    page_bytes: u32,
    /// Most pages in the queue.
    level: usize,
    /// Pages of which something was received and not all is recycled.
    begun: HashMap<u16, Begun>,
}

#[derive(Default)]
struct Begun {
    /// Pieces that are out.
    pieces: u32,
    retired: bool,
    /// The count on behalf of this ring (H3).
    base: Option<Pinned<RegionMemory>>,
}

/// A retired page with no piece out.
pub(super) struct Released {
    pub(super) page: u16,
    /// Bytes of it are retained, or were: to be dropped when the page's state is changed.
    pub(super) base: Option<Pinned<RegionMemory>>,
}

impl Sharing {
    pub(super) fn new(entries: Entries, page_bytes: u32, level: u32) -> Sharing {
        Sharing {
            entries,
            queue: VecDeque::new(),
            filled: 0,
            page_bytes,
            level: level as usize,
            begun: HashMap::new(),
        }
    }

    /// Whether it has fewer pages than it should.
    pub(super) fn wants_page(&self) -> bool {
        self.queue.len() < self.level
    }

    /// Pages that are with the kernel.
    pub(super) fn with_kernel(&self) -> u32 {
        self.queue.len() as u32
    }

    /// A page was given to the kernel.
    pub(super) fn given(&mut self, page: u16) {
        self.queue.push_back(page);
    }

    /// The kernel has received `bytes` into this page: where they begin. The pages that the
    /// kernel is done with are added to `retired`.
    pub(super) fn receive(&mut self, page: u16, bytes: u32, retired: &mut Vec<u16>) -> u32 {
        // H1: it does not come back to those before.
        while self.queue.front().is_some_and(|first| *first != page) {
            self.retire(retired);
        }
        assert!(
            self.queue.front() == Some(&page) && bytes <= self.page_bytes - self.filled,
            "B1: the kernel was not given so much of page {page}"
        );
        let from = self.filled;
        self.filled += bytes;
        self.begun.entry(page).or_default().pieces += 1;
        if self.filled == self.page_bytes {
            self.retire(retired);
        }
        from
    }

    fn retire(&mut self, retired: &mut Vec<u16>) {
        self.filled = 0;
        if let Some(page) = self.queue.pop_front() {
            self.begun.entry(page).or_default().retired = true;
            retired.push(page);
        }
    }

    /// A piece is recycled, with its base if something of it was retained.
    pub(super) fn recycle(&mut self, page: u16, base: Option<Pinned<RegionMemory>>) {
        let Some(begun) = self.begun.get_mut(&page) else {
            debug_assert!(false, "H3: a piece of page {page} is out");
            return;
        };
        begun.pieces -= 1;
        // A second base is dropped; the page's count does not reach 0 by that.
        begun.base = begun.base.take().or(base);
    }

    /// The page, if nothing more will happen to it here.
    pub(super) fn release(&mut self, page: u16) -> Option<Released> {
        let begun = self.begun.get(&page)?;
        if !begun.retired || begun.pieces > 0 {
            return None;
        }
        let base = self.begun.remove(&page)?.base;
        Some(Released { page, base })
    }

    /// The page that is being filled, if this ring has a count of it (H3).
    pub(super) fn filling(&self) -> Option<u16> {
        let first = self.queue.front()?;
        self.begun.get(first)?.base.as_ref().map(|_| *first)
    }
}
