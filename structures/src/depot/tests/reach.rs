//! How far a magazine reaches: what its thread takes back, a part of all, and less when others are
//! short.

use super::ordinary::{MANY, held, put_all, take_some};
use super::*;

/// What a thread sways by, from a few to a thousand, it has in its own magazine after one wave.
#[test]
fn a_magazine_grows_with_what_its_thread_takes_back() {
    for wave in [17, 44, 45, 100, 1_000] {
        let marked = Marked::holding(8 * wave + 8, 0, &(0..wave).collect::<Vec<_>>());
        let all = take_some(&marked, 0, wave as usize);
        put_all(&marked, 0, all);
        assert_eq!(held(&marked, 0), wave);
        assert!(marked.depot.chains.is_empty(), "{wave}: all is at hand");
        let newest_first = take_some(&marked, 0, wave as usize);
        put_all(&marked, 0, newest_first.into_iter().rev());
        assert_eq!(held(&marked, 0), wave);
    }
}

/// Four threads that want 8 of 36 each: once each has had its share, none needs another's, nor the
/// stack.
#[test]
fn of_few_indices_a_thread_has_at_hand_what_it_sways_by() {
    let marked = Marked::holding(36, 0, &(0..36).collect::<Vec<_>>());
    for round in 0..4 {
        for thread in 0..4 {
            let before = held(&marked, thread as usize);
            let all = take_some(&marked, thread, 8);
            let after = held(&marked, thread as usize);
            assert!(round < 2 || before - after == 8, "all 8 were at hand");
            put_all(&marked, thread, all);
        }
    }
}

#[test]
fn a_magazine_does_not_grow_with_what_another_thread_gave_back() {
    let marked = Marked::holding(4_000, 0, &(0..400).collect::<Vec<_>>());
    let taken = take_some(&marked, 1, 300);
    put_all(&marked, 1, taken);
    assert!(held(&marked, 1) <= REACH_AT_FIRST);
}

#[test]
fn a_magazine_never_holds_more_than_its_part_of_all() {
    for capacity in [1, 7, 8, 36, 64, 100, 128, 800, 20_000] {
        let marked = Marked::holding(capacity, 0, &(0..capacity).collect::<Vec<_>>());
        for _ in 0..3 {
            let all = take_some(&marked, 0, capacity as usize);
            put_all(&marked, 0, all);
            let part = match capacity {
                ..32 => (capacity / 2).max(1),
                32..=128 => 16,
                _ => (capacity / 8).min(1024),
            };
            assert!(held(&marked, 0) <= part, "of {capacity}");
        }
    }
}

#[test]
fn a_thread_that_only_gives_back_from_now_on_keeps_little() {
    let capacity = 10_000;
    let marked = Marked::holding(capacity, 0, &(0..500).collect::<Vec<_>>());
    let all = take_some(&marked, 0, 500);
    put_all(&marked, 0, all);
    assert_eq!(held(&marked, 0), 500, "it sways by as much");
    put_all(&marked, 0, 500..capacity);
    assert!(held(&marked, 0) <= REACH_AT_FIRST);
}

#[test]
fn a_visit_makes_its_owner_keep_less() {
    let marked = Marked::holding(MANY, 0, &(0..REACH_AT_FIRST).collect::<Vec<_>>());
    assert!(marked.depot.take_last(1).is_some());
    let taken = take_some(&marked, 1, REACH_AT_FIRST as usize / 2 - 1);
    assert_eq!(held(&marked, 0), REACH_AT_FIRST / 2);
    put_all(&marked, 0, taken);
    assert!(held(&marked, 0) <= REACH_AT_FIRST / 2);
}
