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
//! Miri, which know nothing of kernels. [`prepare`] finds out; a structure that uses these fences
//! calls it when it is made, so that both sides agree for as long as that structure lives.
//!
//! Cost: `fence_often` is a look at a word that is never written again. `fence_seldom` is a system
//! call of some microseconds that interrupts the other processors which run this process. The
//! first `prepare` takes up to some milliseconds if the process has threads already.
//!
//! A filter that is put on the process after `prepare` may refuse `membarrier`. Then `fence_seldom`
//! returns false, and does so from then on: a store of the other side may be missed, also of one
//! that has not heard yet that it is to fence in full. The caller must not free what the missed
//! side may still touch, nor touch what is the missed side's.

pub(crate) use self::kind::{fence_often, fence_seldom, prepare};

#[cfg(all(target_os = "linux", not(any(loom, shuttle, miri))))]
mod kind {
    use crate::sync::{AtomicBool, OnceLock, Ordering, compiler_fence, fence};
    use flatpath_sys::process::{fence_other_threads, register_fence};

    /// Whether [`fence_seldom`] fences for both sides.
    static IS_LOPSIDED: AtomicBool = AtomicBool::new(false);
    static PREPARED: OnceLock<()> = OnceLock::new();
    /// The kernel has refused to.
    static IS_REFUSED: AtomicBool = AtomicBool::new(false);

    /// Finds out what the kernel can do. Cheap from the second call on.
    pub(crate) fn prepare() {
        PREPARED.get_or_init(|| {
            let can = register_fence().is_ok();
            // ORDER: Relaxed: a thread that uses a structure made after this sees it with that
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

    /// False: the kernel refused, now or before, and the other side's store may be missed.
    #[must_use]
    pub(crate) fn fence_seldom() -> bool {
        // ORDER: the handshake of the caller, this side of it.
        fence(Ordering::SeqCst);
        let is_lopsided = IS_LOPSIDED.load(Ordering::Relaxed);
        if is_lopsided && fence_other_threads().is_err() {
            // ORDER: Relaxed: each thread asks the kernel, which refuses them all.
            IS_REFUSED.store(true, Ordering::Relaxed);
        }
        // ORDER: the look comes after what the kernel did.
        fence(Ordering::SeqCst);
        !IS_REFUSED.load(Ordering::Relaxed)
    }
}

#[cfg(not(all(target_os = "linux", not(any(loom, shuttle, miri)))))]
mod kind {
    use crate::sync::{Ordering, fence};

    pub(crate) fn prepare() {}

    #[inline(always)]
    pub(crate) fn fence_often() {
        #[cfg(all(test, loom))]
        if super::refused::is_refused() {
            return;
        }
        // ORDER: the handshake of the caller.
        fence(Ordering::SeqCst);
    }

    #[must_use]
    pub(crate) fn fence_seldom() -> bool {
        // ORDER: the handshake of the caller.
        fence(Ordering::SeqCst);
        #[cfg(all(test, loom))]
        if super::refused::is_refused() {
            return false;
        }
        true
    }
}

/// The fences after a refusal, for models: none on the one side, this thread's fence on the other.
#[cfg(all(test, loom))]
pub(crate) mod refused {
    use std::cell::Cell;

    std::thread_local! {
        // All threads of a model run on one of the system's; other models are not concerned.
        static IS_REFUSED: Cell<bool> = const { Cell::new(false) };
    }

    pub(super) fn is_refused() -> bool {
        IS_REFUSED.get()
    }

    /// From now on, in this model, the kernel refuses.
    pub(crate) fn refuse() {
        IS_REFUSED.set(true);
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::sync::{
        Arc, AtomicU32,
        Ordering::{Relaxed, SeqCst},
        spawn, spin_loop, yield_now,
    };
    use crate::testing::{join, repeats, within_deadline};
    #[cfg(all(target_os = "linux", not(miri)))]
    use flatpath_sys::process::register_fence;
    use std::time::{Duration, Instant};

    const ROUNDS: usize = repeats(100_000) as usize;
    /// On a machine that is busy with other things, a round may take some milliseconds.
    const ENOUGH: Duration = Duration::from_secs(1);

    /// The words of one round: that each side is there, and what it stores.
    #[derive(Default)]
    struct Round {
        here: [AtomicU32; 2],
        stored: [AtomicU32; 2],
    }

    impl Round {
        /// Stores, fences and looks, right after the other side has come. Returns what it saw.
        fn meet(&self, side: usize, act: impl FnOnce()) -> u32 {
            self.here[side].store(1, SeqCst);
            let mut looks = 0_u32;
            while self.here[1 - side].load(SeqCst) == 0 {
                looks += 1;
                if looks.is_multiple_of(1_000) {
                    yield_now();
                }
                spin_loop();
            }
            self.stored[side].store(1, Relaxed);
            act();
            self.stored[1 - side].load(Relaxed)
        }
    }

    /// The handshake itself, with both sides at it together in every round. Without the kernel's
    /// part a processor that stores late breaks it about once in a hundred rounds.
    #[test]
    fn stress_one_of_two_that_store_and_then_look_sees_the_other() {
        within_deadline(|| {
            prepare();
            let rounds: Arc<Vec<Round>> = Arc::new((0..ROUNDS).map(|_| Round::default()).collect());
            // How many rounds there will be, once that is known: the seldom side then stops.
            let last = Arc::new(AtomicU32::new(u32::MAX));
            let (theirs, their_last) = (Arc::clone(&rounds), Arc::clone(&last));
            let seldom = spawn(move || {
                let mut saw = vec![];
                for (number, round) in (0_u32..).zip(theirs.iter()) {
                    saw.push(round.meet(1, || assert!(fence_seldom(), "the kernel refused")));
                    if number == their_last.load(SeqCst) {
                        break;
                    }
                }
                saw
            });
            let end = Instant::now() + ENOUGH;
            let mut saw_seldom = vec![];
            for (number, round) in (0_u32..).zip(rounds.iter()) {
                let is_last = Instant::now() > end;
                if is_last {
                    last.store(number, SeqCst);
                }
                saw_seldom.push(round.meet(0, fence_often));
                if is_last {
                    break;
                }
            }
            let saw_often = join(seldom);
            let mut both = saw_seldom.iter().zip(&saw_often);
            let missed = both.position(|saw| saw == (&0, &0));
            assert_eq!(missed, None, "both looked before the other's store");
        });
    }

    /// The same without chance: a kernel that refuses is noticed by the thread that asks it, in
    /// each handshake. In a process of its own, as it never fences again.
    #[cfg(all(target_os = "linux", not(miri)))]
    #[test]
    fn the_seldom_side_asks_the_kernel_and_says_so_when_it_is_refused() {
        const ALONE: &str = "FLATPATH_BARRIER_TEST_ALONE";
        if std::env::var_os(ALONE).is_none() {
            let this = std::env::current_exe().expect("a test has a path");
            let mut alone = std::process::Command::new(this);
            alone.env(ALONE, "1").arg("the_seldom_side_asks_the_kernel");
            let output = alone.output().expect("it runs");
            let said = String::from_utf8_lossy(&output.stdout);
            let mut from_panic = said
                .lines()
                .skip_while(|line| !line.contains("panicked at"));
            let why = from_panic.nth(1).unwrap_or(&said);
            return assert!(output.status.success(), "{why}");
        }
        if register_fence().is_err() {
            return println!("not tested: this kernel has no membarrier");
        }
        prepare();
        assert!(fence_seldom(), "the kernel refused");
        refuse_from_now_on();
        assert!(!fence_seldom(), "the kernel was not asked");
        assert!(!fence_seldom(), "what others have seen is not known");
    }

    /// Has the kernel refuse `membarrier` to this thread.
    #[cfg(all(target_os = "linux", not(miri)))]
    fn refuse_from_now_on() {
        use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, apply_filter};
        const MEMBARRIER: i64 = if cfg!(target_arch = "x86_64") {
            324
        } else {
            283
        };
        const EPERM: u32 = 1;
        let here = std::env::consts::ARCH.try_into();
        let filter = SeccompFilter::new(
            [(MEMBARRIER, vec![])].into(),
            SeccompAction::Allow,
            SeccompAction::Errno(EPERM),
            here.expect("a known architecture"),
        );
        let program = BpfProgram::try_from(filter.expect("a filter")).expect("a program");
        apply_filter(&program).expect("a filter may be added");
    }
}
