//! Memory: one lease of a block at a time, a budget that holds, and no order of ends that leaks.

use super::*;
use crate::testing::race;

fn shelf(blocks: usize) -> Arc<Shelf> {
    const BLOCK_BYTES: usize = 8;
    let budget = Arc::new(Budget::new(blocks * BLOCK_BYTES, true));
    Arc::new(Shelf::new(BLOCK_BYTES, budget))
}

/// A lease by whichever way there is.
fn lease(shelf: &Arc<Shelf>) -> Option<Lease> {
    let claim = shelf.reuse().or_else(|| shelf.allocate());
    claim.map(Claim::lease)
}

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
    shelf.close();
}

#[test]
fn a_lease_that_ends_after_the_close_frees_its_block() {
    let shelf = shelf(1);
    let held = lease(&shelf);
    shelf.close();
    assert_eq!(shelf.counts().freed, 0);
    drop(held);
    assert_eq!(shelf.counts().freed, 1);
    assert_eq!(shelf.budget.allocated_bytes(), 0);
}

/// Two threads take, write all of the block and let go; debug builds assert S1 meanwhile.
#[test]
fn one_block_has_one_holder_at_a_time() {
    let hold = |shelf: &Arc<Shelf>| {
        let Some(mut held) = lease(shelf) else {
            return false;
        };
        held.parts().0.fill(7);
        true
    };
    race(
        || Arc::new(shelf(1)),
        hold,
        hold,
        |shelf, left, right| {
            assert!(left || right, "one block, and nobody else who had it");
            shelf.close();
        },
    );
}
