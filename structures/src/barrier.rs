//! Barrier: the two fences of a store-then-look handshake whose one side runs all the time and
//! whose other side runs hardly ever.
//!
//! Other names: asymmetric fences, Linux `membarrier`. Each side stores, fences, and looks at what
//! the other side stores: at least one of them sees the other's store. With two full fences both
//! sides pay as much as for a read-modify-write. Here [`fence_often`] keeps only the compiler from
//! exchanging store and look, and [`fence_seldom`] makes the kernel send every running thread of
//! the process through a full fence; one that does not run went through one when it stopped.
//!
//! | may run beside | prepare | fence_often | fence_seldom |
//! |----------------|---------|-------------|--------------|
//! | all of them    | yes     | yes         | yes          |
//!
//! Where the kernel cannot do that both are a `fence(SeqCst)`; so they are under loom, shuttle and
//! Miri, which know nothing of kernels. [`prepare`] finds out; whoever makes a structure that uses
//! these fences calls it first, so that both sides agree for as long as that structure lives.
//!
//! Cost: `fence_often` is a look at a word that is never written again. `fence_seldom` is a system
//! call of some microseconds that interrupts the other processors which run this process. The
//! first `prepare` takes up to some milliseconds if the process has threads already.
//!
//! What it does not do: survive a filter that is put on the process after `prepare` and refuses
//! `membarrier`. From then on both sides fence in full, but a store that was on its way at that
//! very moment may be missed.

pub(crate) use self::kind::{fence_often, fence_seldom, prepare};

#[cfg(all(target_os = "linux", not(any(loom, shuttle, miri))))]
mod kind {
    use crate::sync::{AtomicBool, OnceLock, Ordering, compiler_fence, fence};
    use rustix::thread::{MembarrierCommand, membarrier};

    /// Whether [`fence_seldom`] fences for both sides.
    static IS_LOPSIDED: AtomicBool = AtomicBool::new(false);
    static PREPARED: OnceLock<()> = OnceLock::new();

    /// Finds out what the kernel can do. Cheap from the second call on.
    pub(crate) fn prepare() {
        PREPARED.get_or_init(|| {
            let can = membarrier(MembarrierCommand::RegisterPrivateExpedited).is_ok();
            // ORDER: Relaxed: who uses a structure that was made after this sees it with that
            // structure.
            IS_LOPSIDED.store(can, Ordering::Relaxed);
        });
    }

    #[inline(always)]
    pub(crate) fn fence_often() {
        if IS_LOPSIDED.load(Ordering::Relaxed) {
            // ORDER: the handshake of the caller; `fence_seldom` is the rest of this fence.
            compiler_fence(Ordering::SeqCst);
        } else {
            fence_in_full();
        }
    }

    #[cold]
    fn fence_in_full() {
        // ORDER: the handshake of the caller.
        fence(Ordering::SeqCst);
    }

    pub(crate) fn fence_seldom() {
        // ORDER: the handshake of the caller, this side of it.
        fence(Ordering::SeqCst);
        let is_lopsided = IS_LOPSIDED.load(Ordering::Relaxed);
        if is_lopsided && membarrier(MembarrierCommand::PrivateExpedited).is_err() {
            // ORDER: Relaxed: too late for this handshake, early enough for others.
            IS_LOPSIDED.store(false, Ordering::Relaxed);
        }
        // ORDER: the look comes after what the kernel did.
        fence(Ordering::SeqCst);
    }
}

#[cfg(not(all(target_os = "linux", not(any(loom, shuttle, miri)))))]
mod kind {
    use crate::sync::{Ordering, fence};

    pub(crate) fn prepare() {}

    #[inline(always)]
    pub(crate) fn fence_often() {
        // ORDER: the handshake of the caller.
        fence(Ordering::SeqCst);
    }

    pub(crate) fn fence_seldom() {
        // ORDER: the handshake of the caller.
        fence(Ordering::SeqCst);
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::sync::{Arc, AtomicU32, Ordering::Relaxed, spawn};
    use crate::testing::{join, within_deadline};

    /// The handshake itself. Without a fence on either side a processor that stores late breaks it
    /// within some thousand rounds.
    #[test]
    fn stress_one_of_two_that_store_and_then_look_sees_the_other() {
        within_deadline(|| {
            prepare();
            let rounds = crate::testing::repeats(2_000);
            let words: Arc<Vec<[AtomicU32; 2]>> =
                Arc::new((0..rounds).map(|_| Default::default()).collect());
            let theirs = Arc::clone(&words);
            let seldom = spawn(move || {
                let handshake = |[often, seldom]: &[AtomicU32; 2]| {
                    seldom.store(1, Relaxed);
                    fence_seldom();
                    often.load(Relaxed)
                };
                theirs.iter().map(handshake).collect::<Vec<_>>()
            });
            let handshake = |[often, seldom]: &[AtomicU32; 2]| {
                often.store(1, Relaxed);
                fence_often();
                seldom.load(Relaxed)
            };
            let saw_seldom: Vec<u32> = words.iter().map(handshake).collect();
            let saw_often = join(seldom);
            let missed = saw_seldom
                .iter()
                .zip(&saw_often)
                .position(|saw| saw == (&0, &0));
            assert_eq!(missed, None, "both looked before the other's store");
        });
    }
}
