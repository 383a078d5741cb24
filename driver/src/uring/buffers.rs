//! Provided-buffer rings: memory that the kernel picks receive buffers from, oldest first.
//!
//! The buffers are the pages of a region; a buffer number comes back with a completion. There are
//! up to two rings over the same pages: of one, each receive takes a whole page; of the other,
//! which a region may ask for, several receives share a page (`sharing`).
//!
//! Invariants
//! - B1: a buffer is with the kernel, with the caller, or retained. `states` says which; it changes
//!   in `take`, `take_page`, `recycle` and `reclaim` only, so a completion that names a buffer
//!   twice, or none of ours, is detected.
//! - B2: the memory is unmapped only after the io_uring that knows it has no operation left.
//! - B3: at most `level` buffers are with the kernel; the others that are not in use are `spare`.
//!   Each that the kernel fills is followed by a spare one at once.
//! - B4: pages to be shared are fewer than half of the region's reserve, so they are never all that
//!   is left for receives that want a whole one.
//!
//! The kernel takes the oldest first, so a ring with all the buffers of a region would go through
//! its whole memory, cold every time. A listener's region gives it a few megabytes at a time, and
//! the one that came back last goes back first.
//!
//! Cost: `recycle` writes 16 bytes and a tail; `take` is a test. No system call after set-up.

use io_uring::{IoUring, types};

use super::entries::Entries;
use super::sharing::{Released, Sharing};
use crate::completion::Piece;
use crate::refusal::Refusal;
use crate::region::{Filling, Region, RegionConfig, SmallReceives};
use crate::waker::Waker;

/// Memory of a listener's region that is with the kernel at a time, in bytes; about what stays in
/// a cache.
const LEVEL_BYTES: u32 = 4 << 20;
/// At least this many buffers are with the kernel, if there are as many.
const LEVEL_MIN: u32 = 16;

/// The kernel's number of a ring with shared pages is that of the other one and this.
const SHARED_GROUPS: u16 = 1 << 15;

/// Where a page is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PageState {
    /// Free, or with the kernel, or being received into.
    Driver,
    /// With the caller, as a piece.
    Caller,
    /// With the kernel to be shared by receives, or shared by pieces that are out.
    Shared,
    /// Some of it was retained when its piece was recycled.
    Retained,
}

pub(crate) struct BufferRing {
    entries: Entries,
    sharing: Option<Sharing>,
    region: Region,
    region_id: u16,
    /// The kernel's number of the first buffer.
    first: u16,
    states: Box<[PageState]>,
    out_count: u32,
    /// Most buffers that are with the kernel at a time, for receives that take a whole one.
    level: u32,
    with_kernel: u32,
    /// Buffers that are not in use, the warmest last.
    spare: Vec<u16>,
    /// Kept for its room.
    retired: Vec<u16>,
    awaits_whole: bool,
    awaits_sharing: bool,
}

impl BufferRing {
    /// Maps the memory and registers it; all buffers are with the kernel afterwards. The kernel
    /// knows them by numbers from `first` on, so that one number tells ring and page.
    pub(crate) fn new(
        ring: &IoUring,
        (region_id, first): (u16, u16),
        config: &RegionConfig,
        waker: &Waker,
    ) -> Result<Self, Refusal> {
        let buffers = BufferRing::without_waker(ring, (region_id, first), config)?;
        buffers.region.wakes(waker);
        Ok(buffers)
    }

    /// The same for `probe`.
    pub(crate) fn without_waker(
        ring: &IoUring,
        (region_id, first): (u16, u16),
        config: &RegionConfig,
    ) -> Result<Self, Refusal> {
        let region = Region::new(config)
            .map_err(|error| Refusal::of_error("mapping receive buffers", &error))?;
        let level = match (config.filling, region_id) {
            (Filling::Written, _) => 0,
            // Short bursts of many connections: none should find the ring empty.
            (Filling::Received, 0) => config.pages,
            (Filling::Received, _) => (LEVEL_BYTES / config.page_bytes)
                .max(LEVEL_MIN)
                .min(config.pages),
        };
        // Never all that the kernel has (B4).
        let shared = (level / 2).min(config.reserve_pages / 2);
        let sharing = match config.small_receives {
            SmallReceives::SharePages if shared > 0 => {
                let flags = types::IOU_PBUF_RING_INC as u16;
                let entries =
                    Entries::register(ring, SHARED_GROUPS | region_id, config.pages, flags)?;
                Some(Sharing::new(entries, config.page_bytes, shared))
            }
            SmallReceives::SharePages | SmallReceives::TakePages => None,
        };
        let mut buffers = BufferRing {
            // Power of two up to 32,768, checked with the region.
            entries: Entries::register(ring, region_id, config.pages, 0)?,
            sharing,
            region,
            region_id,
            first,
            states: vec![PageState::Driver; config.pages as usize].into_boxed_slice(),
            out_count: 0,
            level,
            with_kernel: 0,
            spare: (0..config.pages).rev().map(|page| page as u16).collect(),
            retired: Vec::new(),
            awaits_whole: false,
            awaits_sharing: false,
        };
        buffers.refill();
        Ok(buffers)
    }

    /// The kernel's number of the ring for a receive that takes a whole page.
    pub(crate) fn whole_group(&self) -> u16 {
        self.entries.group
    }

    /// The kernel's number of the ring for a receive that may share its page.
    pub(crate) fn shared_group(&self) -> u16 {
        match &self.sharing {
            Some(sharing) if sharing.with_kernel() > 0 => sharing.entries.group,
            _ => self.entries.group,
        }
    }

    /// The kernel's numbers of its rings.
    pub(crate) fn groups(&self) -> impl Iterator<Item = u16> {
        let shared = self.sharing.as_ref().map(|one| one.entries.group);
        std::iter::once(self.entries.group).chain(shared)
    }

    pub(crate) fn region(&self) -> &Region {
        &self.region
    }

    /// Buffers that can be received into whole: the kernel's, and the spare ones that follow them.
    pub(crate) fn free(&self) -> u32 {
        self.with_kernel + self.spare.len() as u32
    }

    /// Buffers that a receive which shares can be given.
    pub(crate) fn free_sharing(&self) -> u32 {
        let shared = self.sharing.as_ref().map_or(0, Sharing::with_kernel);
        self.free() + shared
    }

    /// A page for such a receive ends the next wait.
    pub(crate) fn await_sharing(&mut self) {
        self.awaits_sharing = true;
        self.region.await_page();
    }

    /// A whole page ends the next wait.
    pub(crate) fn await_whole(&mut self) {
        self.awaits_whole = true;
        self.region.await_page();
    }

    /// Whether a page is awaited and there is one.
    pub(crate) fn has_awaited(&self) -> bool {
        (self.awaits_whole && self.free() > 0) || (self.awaits_sharing && self.free_sharing() > 0)
    }

    /// The wait is over, and what it awaited with it.
    pub(crate) fn waited(&mut self) {
        if self.awaits_whole || self.awaits_sharing {
            (self.awaits_whole, self.awaits_sharing) = (false, false);
            self.region.waited();
        }
    }

    pub(crate) fn in_use(&self) -> u32 {
        self.out_count
    }

    /// Whether a number of the kernel's names one of these buffers.
    pub(crate) fn has(&self, number: u16) -> bool {
        number
            .checked_sub(self.first)
            .is_some_and(|buffer| usize::from(buffer) < self.states.len())
    }

    /// A completion named this buffer and brought bytes: they are the caller's now.
    pub(crate) fn take(&mut self, number: u16, bytes: u32) -> Piece {
        let buffer = number - self.first;
        let offset = if self.states[usize::from(buffer)] == PageState::Shared {
            self.take_shared(buffer, bytes)
        } else {
            self.take_whole(buffer);
            0
        };
        self.region.piece(self.region_id, buffer, offset, bytes)
    }

    /// A spare buffer for the caller to write.
    pub(crate) fn take_page(&mut self, bytes: usize) -> Option<Piece> {
        let page = self.spare.pop()?;
        self.states[usize::from(page)] = PageState::Caller;
        self.out_count += 1;
        let bytes = bytes as u32;
        Some(self.region.piece(self.region_id, page, 0, bytes))
    }

    /// A completion named this buffer and brought nothing, as some kernels do at the end of the
    /// stream or with an error.
    pub(crate) fn take_nothing(&mut self, number: u16) {
        // H2: a shared page has lost nothing.
        if self.states[usize::from(number - self.first)] != PageState::Shared {
            let empty = self.take(number, 0);
            self.recycle(empty);
        }
    }

    fn take_whole(&mut self, buffer: u16) {
        let state = &mut self.states[usize::from(buffer)];
        assert!(
            *state == PageState::Driver,
            "B1: the kernel gave out buffer {buffer} twice"
        );
        *state = PageState::Caller;
        self.out_count += 1;
        self.with_kernel -= 1;
        self.refill();
    }

    fn take_shared(&mut self, buffer: u16, bytes: u32) -> u32 {
        let mut retired = std::mem::take(&mut self.retired);
        let offset = match &mut self.sharing {
            Some(sharing) => sharing.receive(buffer, bytes, &mut retired),
            None => unreachable!("B1: only a ring that shares has shared pages"),
        };
        self.out_count += retired.len() as u32;
        for page in retired.drain(..) {
            self.release_shared(page);
        }
        self.retired = retired;
        self.refill();
        self.publish_filling();
        offset
    }

    /// The end of a shared page, if it has come: free, or retained.
    fn release_shared(&mut self, page: u16) {
        let released = self.sharing.as_mut().and_then(|one| one.release(page));
        let Some(Released { page, base }) = released else {
            return;
        };
        let state = &mut self.states[usize::from(page)];
        if let Some(base) = base {
            *state = PageState::Retained;
            drop(base);
        } else {
            *state = PageState::Driver;
            self.out_count -= 1;
            self.spare.push(page);
        }
    }

    /// For display: of the page that is being filled, the ring's own count does not count.
    fn publish_filling(&self) {
        if let Some(sharing) = &self.sharing {
            self.region.fills(sharing.filling().map(u32::from));
        }
    }

    /// The caller gives a buffer back.
    pub(crate) fn recycle(&mut self, piece: Piece) {
        self.region.check(&piece);
        let state = &mut self.states[usize::from(piece.buffer)];
        let base = piece.base.into_inner();
        if *state == PageState::Shared {
            if let Some(sharing) = &mut self.sharing {
                sharing.recycle(piece.buffer, base);
            }
            self.release_shared(piece.buffer);
            self.refill();
            return self.publish_filling();
        }
        if let Some(base) = base {
            *state = PageState::Retained;
            drop(base);
            return;
        }
        *state = PageState::Driver;
        self.out_count -= 1;
        self.spare.push(piece.buffer);
        self.refill();
    }

    /// B3: gives the kernel what it lacks, the warmest first; B4 lets shared pages come first.
    fn refill(&mut self) {
        let (mut whole, mut shared) = (false, false);
        while let Some(sharing) = self.sharing.as_mut().filter(|one| one.wants_page())
            && let Some(page) = self.spare.pop()
        {
            let address = self.region.address(u32::from(page));
            sharing
                .entries
                .give(address, self.region.page_bytes(), self.first + page);
            sharing.given(page);
            self.states[usize::from(page)] = PageState::Shared;
            shared = true;
        }
        while self.with_kernel < self.level
            && let Some(page) = self.spare.pop()
        {
            let address = self.region.address(u32::from(page));
            self.entries
                .give(address, self.region.page_bytes(), self.first + page);
            self.with_kernel += 1;
            whole = true;
        }
        if whole {
            self.entries.publish();
        }
        if let Some(sharing) = self.sharing.as_ref().filter(|_| shared) {
            sharing.entries.publish();
        }
    }

    /// Gives the kernel the pages that are no longer retained.
    pub(crate) fn reclaim(&mut self) {
        let Some(region) = self.region.clone_if_idle() else {
            return;
        };
        region.reclaim(|page| {
            let state = &mut self.states[page as usize];
            match state {
                // A piece that was dropped instead of recycled is gone with what was retained of
                // it.
                PageState::Retained | PageState::Caller => *state = PageState::Driver,
                // The same, and the ring does not know that it may have the page again: it is lost,
                // as the other pages of pieces that are dropped.
                PageState::Shared => return,
                PageState::Driver => unreachable!("B1: page {page} was neither retained nor out"),
            }
            self.out_count -= 1;
            self.spare.push(page as u16);
        });
        self.refill();
    }
}

impl Drop for BufferRing {
    fn drop(&mut self) {
        self.region.close();
    }
}
