//! Memory: one lease of a block at a time, a budget that holds, and no order of ends that leaks.
//!
//! Loom sees the accesses to a block through its watch, and counts the size_classes that are left
//! over: a body that ends with a size_class alive has leaked a block.

use super::*;
use crate::number::{NO_NUMBER, be_number};
use crate::testing::race;

const BLOCK_BYTES: usize = 8;

fn size_class(blocks: usize) -> Arc<SizeClass> {
    let budget = Arc::new(Budget::new(blocks * BLOCK_BYTES, true, Owners::new(0)));
    Arc::new(SizeClass::new(BLOCK_BYTES, budget))
}

/// A lease by whichever way there is.
fn block(size_class: &Arc<SizeClass>) -> Option<OwnedBlock> {
    let claim = SizeClass::reuse(size_class)
        .or_else(|| SizeClass::allocate(size_class))
        .or_else(|| SizeClass::reuse_last(size_class));
    claim.map(Claim::into_block)
}

/// As a size_class whose blocks are all idle in the line of thread 0.
fn idle_shelf(blocks: usize) -> Arc<SizeClass> {
    be_number(0);
    let size_class = size_class(blocks);
    let leases: Vec<_> = (0..blocks).map(|_| block(&size_class)).collect();
    drop(leases);
    size_class
}

/// Writes all of the block; what was there before is what `expected` allows.
fn write(block: &mut OwnedBlock, byte: u8) {
    block.parts().0.fill(byte);
}

mod loom_bodies {
    use super::*;

    /// Debug builds assert M1 meanwhile, and loom that the two accesses are ordered.
    #[test]
    fn loom_one_block_has_one_holder_at_a_time() {
        let hold = |size_class: &Arc<SizeClass>, thread| {
            be_number(thread);
            let Some(mut held) = block(size_class) else {
                return false;
            };
            write(&mut held, 7);
            true
        };
        race(
            || Arc::new(size_class(1)),
            move |size_class| hold(size_class, 0),
            move |size_class| hold(size_class, 1),
            |size_class, left, right| {
                assert!(left || right, "one block, and no other holder");
                SizeClass::close(size_class);
            },
        );
    }

    #[test]
    fn loom_a_visitor_for_a_block_sees_what_its_last_holder_wrote() {
        race(
            || Arc::new(idle_shelf(1)),
            |size_class| {
                be_number(0);
                if let Some(claim) = SizeClass::reuse(size_class) {
                    write(&mut claim.into_block(), 3);
                }
            },
            |size_class| {
                be_number(1);
                let taken = SizeClass::reuse_last(size_class).map(Claim::into_block);
                taken.map(|block| block.memory()[0])
            },
            |size_class, (), seen| {
                assert!(matches!(seen, None | Some(0 | 3)));
                SizeClass::close(size_class);
            },
        );
    }

    /// The thread that frees and the one that allocates share nothing but the budget.
    #[test]
    fn loom_a_thread_with_the_bytes_of_a_freed_block_finds_its_index() {
        race(
            || Arc::new(idle_shelf(1)),
            |size_class| {
                be_number(0);
                let idle = SizeClass::withdraw(size_class).expect("no other takes it");
                idle.into_block().free();
            },
            |size_class| {
                be_number(1);
                if size_class.budget.reserve(BLOCK_BYTES) {
                    let index =
                        SizeClass::new_block(size_class).expect("the bytes come with an index");
                    drop(Claim { size_class, index }.into_block());
                }
            },
            |size_class, (), ()| SizeClass::close(size_class),
        );
    }

    #[test]
    fn loom_the_budget_bounds_what_two_threads_allocate_at_once() {
        let allocate =
            |size_class: &Arc<SizeClass>| SizeClass::allocate(size_class).map(Claim::into_block);
        race(
            || Arc::new(size_class(1)),
            allocate,
            allocate,
            |size_class, left, right| {
                assert!(left.is_some() != right.is_some(), "room for one block");
                assert_eq!(size_class.budget.allocated_bytes(), BLOCK_BYTES);
                drop((left, right));
                SizeClass::close(size_class);
            },
        );
    }

    /// Teardown: what comes back beside the close is freed, by one of the two.
    #[test]
    fn loom_a_block_that_comes_back_beside_the_close_is_freed_once() {
        for thread in [0, NO_NUMBER] {
            race(
                move || {
                    be_number(0);
                    let size_class = size_class(1);
                    let held = crate::sync::Mutex::new(block(&size_class));
                    Arc::new((size_class, held))
                },
                move |state| {
                    be_number(thread);
                    let mut held = crate::sync::lock(&state.1).take().expect("leased");
                    write(&mut held, 1);
                },
                |state| SizeClass::close(&state.0),
                |state, (), ()| {
                    assert_eq!(state.0.counts().freed, 1);
                    assert_eq!(state.0.budget.allocated_bytes(), 0);
                },
            );
        }
    }

    /// Trim: a block goes to the one who takes it or to the one who frees it, not to both.
    #[test]
    fn loom_an_idle_block_is_taken_or_trimmed_and_never_both() {
        race(
            || Arc::new(idle_shelf(1)),
            |size_class| {
                be_number(0);
                let claim = SizeClass::reuse(size_class)?;
                write(&mut claim.into_block(), 5);
                Some(())
            },
            |size_class| {
                be_number(1);
                let claim = SizeClass::withdraw(size_class)?;
                claim.into_block().free();
                Some(())
            },
            |size_class, taken, trimmed| {
                assert!(taken.is_some() || trimmed.is_some());
                assert_eq!(size_class.counts().freed, u64::from(trimmed.is_some()));
                SizeClass::close(size_class);
            },
        );
    }
}

#[cfg(not(any(loom, shuttle)))]
mod on_one_thread {
    use super::*;

    #[test]
    fn the_budget_bounds_what_is_allocated_and_comes_back_when_freed() {
        let size_class = size_class(2);
        let (one, two) = (block(&size_class), block(&size_class));
        assert!(one.is_some() && two.is_some());
        assert!(block(&size_class).is_none());
        if let Some(one) = one {
            one.free();
        }
        assert!(block(&size_class).is_some());
        drop(two);
        SizeClass::close(&size_class);
    }

    #[test]
    fn a_lease_that_ends_after_the_close_frees_its_block() {
        let size_class = size_class(1);
        let held = block(&size_class);
        SizeClass::close(&size_class);
        assert_eq!(size_class.counts().freed, 0);
        drop(held);
        assert_eq!(size_class.counts().freed, 1);
        assert_eq!(size_class.budget.allocated_bytes(), 0);
    }
}
