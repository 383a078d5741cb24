//! The pool with more threads than loom can finish; shuttle tries random schedules of it.

use super::*;
use crate::sync::spawn;
use crate::testing::{join, model};

#[test]
fn shuttle_four_threads_and_a_trim_keep_the_budget_and_the_counts() {
    const BUDGET: usize = 32;
    model(|| {
        let pool = idle_pool(&[8, 16], BUDGET, &[8, 16]);
        let threads = [0_u32, 1, 2, 3].map(|thread| {
            let pool = Arc::clone(&pool);
            spawn(move || {
                for round in 0..3 {
                    use_once(
                        &pool,
                        thread,
                        if (thread + round) % 2 == 0 { 8 } else { 16 },
                    );
                    if thread == 3 {
                        pool.trim(8);
                    }
                    assert!(pool.allocated_bytes() <= BUDGET, "P1");
                }
            })
        });
        threads.into_iter().for_each(join);
        let statistics = pool.statistics();
        assert_eq!(statistics.in_use_bytes, 0);
        assert_eq!(statistics.idle_bytes, pool.allocated_bytes());
    });
}

/// A buffer taken on one thread and dropped on the next, which may have to steal to take again.
#[test]
fn shuttle_buffers_dropped_elsewhere_are_found_again() {
    model(|| {
        let pool = idle_pool(&[8], 24, &[8, 8, 8]);
        // All before the first thread runs: no two may have a number at the same time.
        let given = [0_u32, 1, 2].map(|thread| {
            be_number(thread);
            let mut buffer = pool.take(8).expect("one for each");
            buffer.append(b"given");
            (thread, buffer)
        });
        let threads = given.map(|(thread, given)| {
            let pool = Arc::clone(&pool);
            spawn(move || {
                be_number((thread + 1) % 3);
                assert_eq!(given.filled(), b"given");
                drop(given);
                // Refused only while thieves carry what is idle from one line to the other.
                use_once(&pool, (thread + 1) % 3, 8);
            })
        });
        threads.into_iter().for_each(join);
        let again: Vec<_> = (0..3).map_while(|_| pool.take(8)).collect();
        assert_eq!((again.len(), pool.statistics().allocated), (3, 3));
    });
}

#[test]
fn shuttle_teardown_frees_three_buffers_that_come_back_beside_it() {
    model(|| {
        let ending = Ending::new(3);
        let threads = [0_u32, 1, 2].map(|thread| {
            let ending = Arc::clone(&ending);
            spawn(move || ending.drop_a_buffer(thread))
        });
        ending.drop_the_pool();
        threads.into_iter().for_each(join);
        ending.assert_all_freed();
    });
}
