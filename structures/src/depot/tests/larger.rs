//! The depot with more threads than loom can finish; shuttle tries random schedules of it.

use super::*;
use crate::sync::spawn;
use crate::testing::{join, model};

/// One with a near magazine each, one with a far magazine, one with none.
const THREADS: [u32; 4] = [0, 1, NEAR_MAGAZINES, NO_NUMBER];

#[test]
fn shuttle_threads_with_and_without_a_magazine_lose_no_index() {
    model(|| {
        let marked = Marked::holding(6, 0, &[0, 1, 2, 3, 4, 5]);
        let threads = THREADS.map(|thread| {
            let marked = Arc::clone(&marked);
            spawn(move || {
                for _ in 0..2 {
                    let held = [marked.take(thread), marked.take(thread)];
                    for index in held.into_iter().flatten() {
                        marked.put(thread, index);
                    }
                }
            })
        });
        threads.into_iter().for_each(join);
        assert_eq!(marked.take_rest(0), 6);
    });
}

/// Trim and theft at once: what is taken aside goes back elsewhere.
#[test]
fn shuttle_a_trimmer_beside_three_takers_never_shares_an_index() {
    model(|| {
        let marked = Marked::holding(4, 1, &[0, 1, 2, 3]);
        let threads = THREADS.map(|thread| {
            let marked = Arc::clone(&marked);
            spawn(move || {
                for _ in 0..2 {
                    let index = match thread {
                        NO_NUMBER => marked.depot.withdraw(),
                        _ => marked.depot.take(thread),
                    };
                    let Some(index) = index else { continue };
                    marked.received(index);
                    marked.put(thread, index);
                }
            })
        });
        threads.into_iter().for_each(join);
        assert_eq!(marked.take_rest(0), 4);
    });
}

#[test]
fn shuttle_what_four_threads_put_while_the_depot_closes_is_disposed_of_once() {
    model(|| {
        // One of them spills: its magazine is full.
        let marked = Marked::new(REACH_AT_FIRST + 8);
        (0..REACH_AT_FIRST).for_each(|index| marked.put(0, index));
        let mut next = REACH_AT_FIRST;
        let threads = THREADS.map(|thread| {
            let (marked, own) = (Arc::clone(&marked), [next, next + 1]);
            next += 2;
            spawn(move || own.iter().for_each(|&index| marked.put(thread, index)))
        });
        marked.close();
        threads.into_iter().for_each(join);
        marked.assert_all_disposed();
    });
}
