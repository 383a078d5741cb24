//! Fragments: received bytes that stay where they are for as long as a fragment refers to them.
//!
//! Invariants
//! - F1: a fragment holds one count of its page, so the page is not received into (region, G2).
//! - F2: a quota's `held` is the number of its live fragments.
//! - F3: a waker wakes once per `wait_below` that returned true, never without one.
//!
//! Ordering
//! - FE1 settle: `held` goes down, fence, look at the mark -> set the mark, fence, look at `held`:
//!   either the drop that reaches the mark sees it, or the waiter sees that it need not wait.
//!
//! Cost: clone two atomic additions, drop two subtractions and a fence. No allocation.

use std::ops::{Deref, Range};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering, fence};

use flatpath_structures::tokens::{Holder, PageToken, Pinned, TakeError};

use crate::region::{Region, RegionMemory};

/// Holds tokens of fragments for a user that may not be trusted with them. Its drop, on any thread,
/// gives back exactly what it still holds.
pub type Attachment = Holder<RegionMemory>;

/// Notified when a quota has fallen to the mark it waits for.
pub trait QuotaWaker: Send + Sync {
    /// The quota with this number has fallen below its mark. From any thread; must not block.
    fn wake(&self, number: u64);
}

/// Counts the fragments that one user holds; clones share the count.
#[derive(Clone)]
pub struct Quota(Arc<QuotaState>);

struct QuotaState {
    held: AtomicU32,
    /// `waker` is called when `held` is below this; 0 when nothing waits.
    mark: AtomicU32,
    number: u64,
    waker: Arc<dyn QuotaWaker>,
}

impl Quota {
    /// A quota that holds nothing.
    pub fn new(number: u64, waker: Arc<dyn QuotaWaker>) -> Quota {
        Quota(Arc::new(QuotaState {
            held: AtomicU32::new(0),
            mark: AtomicU32::new(0),
            number,
            waker,
        }))
    }

    /// Fragments held at this moment.
    pub fn held(&self) -> u32 {
        self.0.held.load(Ordering::Relaxed)
    }

    /// Asks for a wake when fewer than `mark` fragments are held. False: they are already, and no
    /// wake follows.
    pub fn wait_below(&self, mark: u32) -> bool {
        // ORDER: relaxed; the fence orders it (FE1).
        self.0.mark.store(mark, Ordering::Relaxed);
        // ORDER: FE1, the waiter's side.
        fence(Ordering::SeqCst);
        if self.0.held.load(Ordering::Relaxed) >= mark {
            return true;
        }
        // ORDER: relaxed: the thread that takes the mark down acts on it (F3).
        self.0.mark.swap(0, Ordering::Relaxed) == 0
    }
}

impl std::fmt::Debug for Quota {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Quota")
            .field("number", &self.0.number)
            .field("held", &self.held())
            .finish_non_exhaustive()
    }
}

/// One fragment on a quota.
struct QuotaGuard(Quota);

impl QuotaGuard {
    fn new(quota: &Quota) -> QuotaGuard {
        quota.0.held.fetch_add(1, Ordering::Relaxed);
        QuotaGuard(quota.clone())
    }
}

impl Drop for QuotaGuard {
    fn drop(&mut self) {
        let state = &*self.0.0;
        let held = state.held.fetch_sub(1, Ordering::Relaxed) - 1;
        // ORDER: FE1, the returner's side.
        fence(Ordering::SeqCst);
        let mark = state.mark.load(Ordering::Relaxed);
        // ORDER: relaxed: of the threads that see the mark, the one that takes it down wakes (F3).
        if held < mark && state.mark.swap(0, Ordering::Relaxed) != 0 {
            state.waker.wake(state.number);
        }
    }
}

/// Received bytes in a page of a region.
///
/// A fragment is an owned value: it may be held for any time, sent to another thread, cut and
/// cloned. Dropping it is the only way to give it back, so it cannot be given back twice, and it
/// cannot be forged. Another user of the page, such as another process, takes a token through an
/// [`Attachment`] while a fragment of the page lives; a token that is returned twice, forged or
/// stale is refused.
pub struct Fragment {
    /// Drops before the guard: a connection that is woken by it finds the page on its way back.
    pin: Pinned<RegionMemory>,
    quota: QuotaGuard,
    offset: u32,
    length: u32,
}

impl Fragment {
    pub(crate) fn new(
        pin: Pinned<RegionMemory>,
        quota: &Quota,
        offset: u32,
        length: u32,
    ) -> Fragment {
        Fragment {
            pin,
            quota: QuotaGuard::new(quota),
            offset,
            length,
        }
    }

    /// Names the region that the page is of: [`Region::serial`](crate::Region::serial).
    pub fn region_serial(&self) -> u64 {
        self.pin.refs().release().serial()
    }

    /// The region that the page is of.
    pub fn region(&self) -> Region {
        Region::from_tokens(self.pin.refs().clone())
    }

    /// The number of the page.
    pub fn page(&self) -> u32 {
        self.pin.page()
    }

    /// Where in the page the bytes begin.
    pub fn offset(&self) -> u32 {
        self.offset
    }

    /// How many bytes there are; never zero, unless all were taken off with
    /// [`Fragment::split_to`].
    pub fn len(&self) -> usize {
        self.length as usize
    }

    /// True when every byte was taken off.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Takes a token of its page: only from a live fragment can a page be counted on.
    ///
    /// # Errors
    /// [`TakeError::TooManyTokens`] when as many are held as may be; [`TakeError::NoSuchPage`] when
    /// the attachment is to another region.
    pub fn token(&self, attachment: &mut Attachment) -> Result<PageToken, TakeError> {
        if self.region_serial() != attachment.refs().release().serial() {
            return Err(TakeError::NoSuchPage);
        }
        attachment.take(self.page())
    }

    /// The bytes, where the kernel put them.
    pub fn bytes(&self) -> &[u8] {
        let pages = self.pin.refs().release();
        // SAFETY: F1: `pin` holds a count of the page, and lives as long as the borrow of self. The
        // bytes are part of a piece, checked when it was retained and only ever narrowed.
        unsafe { pages.bytes(self.pin.page(), self.offset, self.length) }
    }

    /// A part of it, as another reference to the page.
    ///
    /// # Panics
    /// When the range is beyond the fragment.
    #[must_use]
    pub fn slice(&self, range: Range<usize>) -> Fragment {
        assert!(
            range.start <= range.end && range.end <= self.len(),
            "no such bytes in the fragment"
        );
        let pin = self.pin.refs().pin(self.pin.page());
        let pin = pin.expect("2^31 references to a page do not fit in memory");
        let offset = self.offset + range.start as u32;
        let length = (range.end - range.start) as u32;
        Fragment::new(pin, &self.quota.0, offset, length)
    }

    /// Takes the first `bytes` off, as a fragment of their own.
    ///
    /// # Panics
    /// When there are fewer.
    #[must_use]
    pub fn split_to(&mut self, bytes: usize) -> Fragment {
        let front = self.slice(0..bytes);
        self.advance(bytes);
        front
    }

    /// Drops the first `bytes`.
    ///
    /// # Panics
    /// When there are fewer.
    pub fn advance(&mut self, bytes: usize) {
        assert!(bytes <= self.len(), "no such bytes in the fragment");
        self.offset += bytes as u32;
        self.length -= bytes as u32;
    }

    /// Copies `bytes` after the fragment, into what its page has left, so that small pieces do not
    /// take a page each. False, and nothing done: they do not fit, or the page has another
    /// reference.
    pub fn try_append(&mut self, bytes: &[u8]) -> bool {
        let region = self.pin.refs();
        let (pages, page) = (region.release(), self.pin.page());
        let end = self.offset + self.length;
        if bytes.len() > (pages.page_bytes() - end) as usize || region.uses(page) != 1 {
            return false;
        }
        // SAFETY: F1: the only count is this fragment's, borrowed mutably, so no other can be made
        // from it, no thread reads the page, and the kernel does not write to it.
        unsafe { pages.write(page, end, bytes) };
        self.length += bytes.len() as u32;
        true
    }

    /// Drops all but the first `bytes`; does nothing when there are fewer.
    pub fn truncate(&mut self, bytes: usize) {
        if bytes < self.length as usize {
            self.length = bytes as u32;
        }
    }
}

impl Clone for Fragment {
    fn clone(&self) -> Fragment {
        self.slice(0..self.len())
    }
}

impl Deref for Fragment {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.bytes()
    }
}

impl AsRef<[u8]> for Fragment {
    fn as_ref(&self) -> &[u8] {
        self.bytes()
    }
}

impl std::fmt::Debug for Fragment {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (bytes, page, offset) = (self.length, self.page(), self.offset);
        write!(
            formatter,
            "Fragment({bytes} bytes at {offset} of page {page})"
        )
    }
}
