//! Memory: one lease of a block at a time, a budget that holds, and no order of ends that leaks.
//!
//! Loom sees the accesses to a block through its watch, and counts the shelves that are left over:
//! a body that ends with a shelf alive has leaked a block.

use super::*;
use crate::number::{NO_NUMBER, be_number};
use crate::testing::race;

const BLOCK_BYTES: usize = 8;

fn shelf(blocks: usize) -> Arc<Shelf> {
    let budget = Arc::new(Budget::new(blocks * BLOCK_BYTES, true, Owners::new(0)));
    Arc::new(Shelf::new(BLOCK_BYTES, budget))
}

/// A lease by whichever way there is.
fn lease(shelf: &Arc<Shelf>) -> Option<Lease> {
    let claim = Shelf::reuse(shelf).or_else(|| Shelf::allocate(shelf));
    claim.map(Claim::lease)
}

/// As a shelf whose blocks are all idle in the line of thread 0.
fn idle_shelf(blocks: usize) -> Arc<Shelf> {
    be_number(0);
    let shelf = shelf(blocks);
    let leases: Vec<_> = (0..blocks).map(|_| lease(&shelf)).collect();
    drop(leases);
    shelf
}

/// Writes all of the block; what was there before is what `expected` allows.
fn write(lease: &mut Lease, byte: u8) {
    lease.parts().0.fill(byte);
}

mod loom_bodies {
    use super::*;

    /// Debug builds assert S1 meanwhile, and loom that the two accesses are ordered.
    #[test]
    fn loom_one_block_has_one_holder_at_a_time() {
        let hold = |shelf: &Arc<Shelf>, thread| {
            be_number(thread);
            let Some(mut held) = lease(shelf) else {
                return false;
            };
            write(&mut held, 7);
            true
        };
        race(
            || Arc::new(shelf(1)),
            move |shelf| hold(shelf, 0),
            move |shelf| hold(shelf, 1),
            |shelf, left, right| {
                assert!(left || right, "one block, and nobody else who had it");
                Shelf::close(shelf);
            },
        );
    }

    #[test]
    fn loom_a_thief_of_a_block_sees_what_its_last_holder_wrote() {
        race(
            || Arc::new(idle_shelf(1)),
            |shelf| {
                be_number(0);
                if let Some(claim) = Shelf::reuse(shelf) {
                    write(&mut claim.lease(), 3);
                }
            },
            |shelf| {
                be_number(1);
                let stolen = Shelf::reuse(shelf).map(Claim::lease);
                stolen.map(|lease| lease.memory()[0])
            },
            |shelf, (), seen| {
                assert!(matches!(seen, None | Some(0 | 3)));
                Shelf::close(shelf);
            },
        );
    }

    /// The thread that frees and the one that allocates share nothing but the budget.
    #[test]
    fn loom_who_has_the_bytes_of_a_freed_block_finds_its_index() {
        race(
            || Arc::new(idle_shelf(1)),
            |shelf| {
                be_number(0);
                let idle = Shelf::withdraw(shelf).expect("nobody else takes it");
                idle.lease().free();
            },
            |shelf| {
                be_number(1);
                if shelf.budget.reserve(BLOCK_BYTES) {
                    let index = Shelf::new_block(shelf).expect("the bytes come with an index");
                    drop(Claim { shelf, index }.lease());
                }
            },
            |shelf, (), ()| Shelf::close(shelf),
        );
    }

    #[test]
    fn loom_the_budget_bounds_what_two_threads_allocate_at_once() {
        let allocate = |shelf: &Arc<Shelf>| Shelf::allocate(shelf).map(Claim::lease);
        race(
            || Arc::new(shelf(1)),
            allocate,
            allocate,
            |shelf, left, right| {
                assert!(left.is_some() != right.is_some(), "room for one block");
                assert_eq!(shelf.budget.allocated_bytes(), BLOCK_BYTES);
                drop((left, right));
                Shelf::close(shelf);
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
                    let shelf = shelf(1);
                    let held = crate::sync::Mutex::new(lease(&shelf));
                    Arc::new((shelf, held))
                },
                move |state| {
                    be_number(thread);
                    let mut held = crate::sync::lock(&state.1).take().expect("leased");
                    write(&mut held, 1);
                },
                |state| Shelf::close(&state.0),
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
            |shelf| {
                be_number(0);
                let claim = Shelf::reuse(shelf)?;
                write(&mut claim.lease(), 5);
                Some(())
            },
            |shelf| {
                be_number(1);
                let claim = Shelf::withdraw(shelf)?;
                claim.lease().free();
                Some(())
            },
            |shelf, taken, trimmed| {
                assert!(taken.is_some() || trimmed.is_some());
                assert_eq!(shelf.counts().freed, u64::from(trimmed.is_some()));
                Shelf::close(shelf);
            },
        );
    }
}

#[cfg(not(any(loom, shuttle)))]
mod on_one_thread {
    use super::*;

    #[test]
    fn the_budget_bounds_what_is_allocated_and_comes_back_when_freed() {
        let shelf = shelf(2);
        let (one, two) = (lease(&shelf), lease(&shelf));
        assert!(one.is_some() && two.is_some());
        assert!(lease(&shelf).is_none());
        if let Some(one) = one {
            one.free();
        }
        assert!(lease(&shelf).is_some());
        drop(two);
        Shelf::close(&shelf);
    }

    #[test]
    fn a_lease_that_ends_after_the_close_frees_its_block() {
        let shelf = shelf(1);
        let held = lease(&shelf);
        Shelf::close(&shelf);
        assert_eq!(shelf.counts().freed, 0);
        drop(held);
        assert_eq!(shelf.counts().freed, 1);
        assert_eq!(shelf.budget.allocated_bytes(), 0);
    }
}
