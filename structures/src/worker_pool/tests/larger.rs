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

/// A limit that goes up and down while work comes: no item is left without a worker awake.
#[test]
fn shuttle_a_limit_that_changes_leaves_no_work_behind() {
    model(|| {
        let (pool, items, taken) = (patient_pool(3), Items::new(0), Arc::new(AtomicU32::new(0)));
        let threads = [(); 3].map(|()| {
            let worker = pool.register().expect("room for a worker");
            let (items, taken) = (items.clone(), Arc::clone(&taken));
            spawn(move || serve_until(&items, &taken, 4, worker))
        });
        let limiting = {
            let pool = pool.clone();
            spawn(move || [1, 3, 2, 1].map(|most| pool.set_active_max(most)))
        };
        for _ in 0..4 {
            items.publish(1);
            pool.wake_one();
        }
        join(limiting);
        threads.into_iter().for_each(join);
        assert!(!items.are_left());
    });
}
