//! The pool with more threads than loom can finish, and with parks that end for no reason; shuttle
//! tries random schedules of it.

use super::*;

#[test]
fn shuttle_four_workers_do_all_work_of_two_publishers_and_stop() {
    model(|| {
        let (pool, items) = (patient_pool(4), Items::new(0));
        let threads = [(); 4].map(|()| spawn_with(&pool, &items, serve));
        let publishers = [(); 2].map(|()| {
            let (pool, items) = (pool.clone(), items.clone());
            spawn(move || {
                for count in [1, 2] {
                    items.publish(count);
                    pool.wake_one();
                }
            })
        });
        publishers.into_iter().for_each(join);
        pool.stop();
        let taken: u32 = threads.map(join).iter().map(|(taken, _)| taken).sum();
        assert_eq!(taken, 6);
        assert_eq!(pool.workers(), 0);
    });
}

/// Workers that give up idling at once, and others that join: no item is left without a worker
/// awake.
#[test]
fn shuttle_workers_that_retire_and_register_leave_no_work_behind() {
    model(|| {
        let (pool, items) = (pool(1, 3, 0), Items::new(0));
        let threads = [(); 3].map(|()| spawn_with(&pool, &items, serve));
        for _ in 0..3 {
            items.publish(1);
            pool.wake_one();
        }
        pool.stop();
        let taken: u32 = threads.map(join).iter().map(|(taken, _)| taken).sum();
        assert_eq!(taken, 3);
    });
}
