//! The pool: bodies that the model checkers run as well. Loom counts the size_classes that are left
//! over, so a body that leaks a buffer fails; elsewhere the counts say so.

#[cfg(not(loom))]
mod larger;
#[cfg(not(any(loom, shuttle)))]
mod on_real_threads;

use super::*;
use crate::number::be_number;
use crate::sync::{Mutex, lock};
use crate::testing::race;

fn pool(classes: &[usize], budget_bytes: usize) -> Pool {
    Pool::new(PoolConfig {
        classes: classes.to_vec(),
        budget_bytes,
        zero: Zero::WhenLent,
    })
}

/// Takes, checks that nothing was left, writes and gives back.
fn use_once(pool: &Pool, thread: u32, bytes: usize) -> bool {
    be_number(thread);
    let Some(mut buffer) = pool.take(bytes) else {
        return false;
    };
    assert!(buffer.spare_mut().iter().all(|&byte| byte == 0), "P3");
    buffer.append(&[thread as u8 + 1; 4]);
    true
}

/// With one buffer of each of these sizes idle in the line of thread 0.
fn idle_pool(classes: &[usize], budget_bytes: usize, idle: &[usize]) -> Arc<Pool> {
    be_number(0);
    let pool = pool(classes, budget_bytes);
    let buffers: Vec<_> = idle.iter().map(|&bytes| pool.take(bytes)).collect();
    assert!(buffers.iter().all(Option::is_some));
    drop(buffers);
    Arc::new(pool)
}

#[test]
fn loom_what_another_thread_left_is_not_shown() {
    race(
        || idle_pool(&[8], 8, &[8]),
        |pool| use_once(pool, 0, 8),
        |pool| use_once(pool, 1, 8),
        |pool, left, right| {
            assert!(left || right, "one buffer, and no other holder");
            assert_eq!(pool.statistics().in_use_bytes, 0);
        },
    );
}

/// A pool and a buffer of it, each to be dropped by a thread of its own.
struct Ending {
    pool: Mutex<Option<Pool>>,
    buffers: Mutex<Vec<Buffer>>,
    size_class: Arc<SizeClass>,
}

impl Ending {
    fn new(buffers: usize) -> Arc<Ending> {
        be_number(0);
        let pool = pool(&[8], 8 * buffers);
        let buffers = (0..buffers).map_while(|_| pool.take(8)).collect();
        Arc::new(Ending {
            size_class: Arc::clone(&pool.size_classes[0]),
            pool: Mutex::new(Some(pool)),
            buffers: Mutex::new(buffers),
        })
    }

    fn drop_a_buffer(&self, thread: u32) {
        be_number(thread);
        let buffer = lock(&self.buffers).pop();
        let mut buffer = buffer.expect("one for each thread");
        buffer.append(b"late");
    }

    fn drop_the_pool(&self) {
        let pool = lock(&self.pool).take();
        drop(pool);
    }

    fn assert_all_freed(&self) {
        let counts = self.size_class.counts();
        assert_eq!(counts.freed, counts.allocated, "a buffer was left behind");
    }
}

#[test]
fn loom_teardown_frees_a_buffer_that_comes_back_beside_it() {
    race(
        || Ending::new(1),
        |ending| ending.drop_a_buffer(1),
        Ending::drop_the_pool,
        |ending, (), ()| ending.assert_all_freed(),
    );
}

/// P1: making room frees before it allocates, and a size that is taken meanwhile is not freed.
#[test]
fn loom_making_room_beside_a_take_keeps_the_budget() {
    race(
        || idle_pool(&[8, 16], 16, &[8, 8]),
        |pool| use_once(pool, 0, 8),
        |pool| use_once(pool, 1, 16),
        |pool, left, right| {
            assert!(left || right);
            assert!(pool.allocated_bytes() <= 16, "P1");
            let statistics = pool.statistics();
            assert_eq!(statistics.in_use_bytes, 0);
            assert_eq!(statistics.idle_bytes, pool.allocated_bytes());
        },
    );
}

/// P1: a charge frees idle buffers before it takes their bytes, and gives its own back once.
#[test]
fn loom_a_charge_beside_a_take_keeps_the_budget() {
    race(
        || idle_pool(&[8], 64, &[8]),
        |pool| use_once(pool, 0, 8),
        |pool| {
            be_number(1);
            pool.charge(0, 64).map(|charge| charge.bytes())
        },
        |pool, left, right| {
            assert!(left || right.is_some(), "one of the two finds room");
            let statistics = pool.statistics();
            assert_eq!((statistics.in_use_bytes, statistics.charged_bytes), (0, 0));
            assert_eq!(statistics.idle_bytes, pool.allocated_bytes());
        },
    );
}

#[test]
fn loom_trim_beside_a_take_frees_only_what_is_idle() {
    race(
        || idle_pool(&[8], 8, &[8]),
        |pool| use_once(pool, 0, 8),
        |pool| pool.trim(0),
        |pool, taken, freed| {
            // While it is being freed it is neither idle nor room for another.
            assert!(taken || freed == 8);
            let statistics = pool.statistics();
            assert_eq!(statistics.in_use_bytes, 0);
            assert_eq!(statistics.idle_bytes, pool.allocated_bytes());
        },
    );
}
