//! Tests of the pool: bodies for the model checkers first, then what needs real time.

use super::*;
use crate::testing::{join, model};

use crate::sync::{AtomicU32, JoinHandle, spawn};

const FOR_EVER: u64 = u64::MAX;

fn pool(workers_min: u32, workers_max: u32, idle_ns_max: u64) -> WorkerPool {
    WorkerPool::new(WorkerPoolLimits {
        workers_min,
        workers_max,
        idle_ns_max,
    })
}

fn patient_pool(workers: u32) -> WorkerPool {
    pool(workers, workers, FOR_EVER)
}

/// Work that is only a number of items. Relaxed throughout: the pool's fences alone must do.
#[derive(Clone)]
struct Items {
    left: Arc<AtomicU32>,
}

impl Items {
    fn new(count: u32) -> Items {
        Items {
            left: Arc::new(AtomicU32::new(count)),
        }
    }

    fn publish(&self, count: u32) {
        self.left.fetch_add(count, Ordering::Relaxed);
    }

    fn are_left(&self) -> bool {
        self.left.load(Ordering::Relaxed) != 0
    }

    fn take(&self) -> bool {
        let less = |left: u32| left.checked_sub(1);
        let relaxed = Ordering::Relaxed;
        self.left.fetch_update(relaxed, relaxed, less).is_ok()
    }
}

/// Takes one item and then stays away, as if it were busy with it for ever: it takes no part in
/// the pool any more, but has not left either.
fn take_one(items: &Items, mut worker: Worker) -> Worker {
    loop {
        assert_eq!(worker.wait(|| items.are_left()), Wait::Work);
        if items.take() {
            worker.took_work(|| items.are_left());
            return worker;
        }
    }
}

/// Takes items until it is told to leave. Returns how many it took, and why it left.
fn serve(items: &Items, mut worker: Worker) -> (u32, Wait) {
    let mut taken = 0;
    loop {
        match worker.wait(|| items.are_left()) {
            Wait::Work if items.take() => {
                taken += 1;
                worker.took_work(|| items.are_left());
            }
            Wait::Work => {}
            reason => return (taken, reason),
        }
    }
}

fn spawn_with<T: Send + 'static>(
    pool: &WorkerPool,
    items: &Items,
    body: fn(&Items, Worker) -> T,
) -> JoinHandle<T> {
    let worker = pool.register().expect("room for a worker");
    let items = items.clone();
    spawn(move || body(&items, worker))
}

/// Hazard: lost wake-up (store-then-look on both sides).
#[test]
fn loom_work_published_beside_a_worker_going_idle_is_not_missed() {
    model(|| {
        let (pool, items) = (patient_pool(1), Items::new(0));
        let thread = spawn_with(&pool, &items, take_one);
        items.publish(1);
        pool.wake_one();
        join(thread);
        assert!(!items.are_left());
    });
}

/// Hazard: one wake for two items; chaining the wake is part of correctness.
#[test]
fn loom_a_worker_that_takes_work_wakes_the_next_one() {
    model(|| {
        let (pool, items) = (patient_pool(2), Items::new(0));
        let threads = [(); 2].map(|()| spawn_with(&pool, &items, take_one));
        items.publish(2);
        pool.wake_one();
        let workers = threads.map(join);
        assert!(!items.are_left());
        drop(workers);
    });
}

/// Hazard: a queue may look empty while its items are moved from one half to the other. Who went
/// idle for that reason is woken by the one who moved them.
#[test]
fn loom_a_worker_misled_by_a_queue_in_transit_is_woken_by_the_taker() {
    model(|| {
        let pool = patient_pool(2);
        let (ready, new) = (Items::new(0), Items::new(0));
        let mut taker = pool.register().expect("room for a worker");
        let mut other = pool.register().expect("room for a worker");
        let (its_ready, its_new) = (ready.clone(), new.clone());
        let taking = spawn(move || {
            its_new.publish(2);
            taker.pool().wake_one();
            // A queue of two halves: marked as not empty, taken whole; one item stays for others.
            its_ready.publish(1);
            assert_eq!(its_new.left.swap(0, Ordering::AcqRel), 2);
            taker.took_work(|| its_ready.are_left() || its_new.are_left());
            taker
        });
        let other = spawn(move || {
            loop {
                let wait = other.wait(|| ready.are_left() || new.are_left());
                assert_eq!(wait, Wait::Work);
                if !new.are_left() && ready.take() {
                    return other;
                }
                // Taking waits for the taker's lock.
                crate::sync::yield_now();
            }
        });
        drop((join(taking), join(other)));
    });
}

/// Hazard: a wake may be skipped because a worker is awake only if that worker looks again.
#[test]
fn loom_a_wake_skipped_because_a_worker_is_awake_is_not_lost() {
    model(|| {
        let (pool, items) = (patient_pool(2), Items::new(0));
        let threads = [(); 2].map(|()| spawn_with(&pool, &items, take_one));
        for _ in 0..2 {
            items.publish(1);
            pool.wake_one();
        }
        let workers = threads.map(join);
        assert!(!items.are_left());
        drop(workers);
    });
}

/// Hazard: read the stop before testing for work, or the last item is left behind.
#[test]
fn loom_work_published_before_stop_is_done() {
    model(|| {
        let (pool, items) = (patient_pool(1), Items::new(0));
        let thread = spawn_with(&pool, &items, serve);
        items.publish(1);
        pool.stop();
        assert_eq!(join(thread), (1, Wait::Stop));
    });
}

/// Hazard: wake chaining on exit; only the head is ever woken, so each that leaves wakes the next.
#[test]
fn loom_stop_reaches_workers_that_are_buried() {
    model(|| {
        let (pool, items) = (patient_pool(2), Items::new(0));
        let threads = [(); 2].map(|()| spawn_with(&pool, &items, serve));
        pool.stop();
        for thread in threads {
            assert_eq!(join(thread), (0, Wait::Stop));
        }
        assert_eq!(pool.workers(), 0);
    });
}

/// Hazard: a worker that gives up idling may have absorbed a wake.
#[test]
fn loom_a_worker_that_retires_leaves_no_work_that_it_was_woken_for() {
    model(|| {
        let (pool, items) = (pool(0, 1, 0), Items::new(0));
        let thread = spawn_with(&pool, &items, |items, mut worker| {
            let wait = worker.wait(|| items.are_left());
            assert_ne!(wait, Wait::Stop);
            wait
        });
        items.publish(1);
        let wake = pool.wake_one();
        if join(thread) == Wait::Retire {
            assert_eq!(wake, Wake::NoneIdle, "the publisher relied on a worker");
        }
    });
}

/// Hazard: the peeked worker may be gone and its entry taken over; entries are type-stable.
#[test]
fn loom_a_late_waker_of_a_worker_that_left_does_not_starve_the_next() {
    model(|| {
        let (pool, items) = (patient_pool(1), Items::new(0));
        let (workplace, work) = (pool.clone(), items.clone());
        let thread = spawn(move || {
            for _ in 0..2 {
                let worker = workplace.register().expect("the one before has left");
                take_one(&work, worker);
            }
        });
        for _ in 0..2 {
            items.publish(1);
            pool.wake_one();
        }
        join(thread);
        assert!(!items.are_left());
    });
}

/// Takes items until `count` have been taken in all, and stops the pool then.
fn serve_until(items: &Items, taken: &Arc<AtomicU32>, count: u32, mut worker: Worker) {
    while worker.wait(|| items.are_left()) == Wait::Work {
        if items.take() {
            worker.took_work(|| items.are_left());
            if taken.fetch_add(1, Ordering::Relaxed) + 1 == count {
                worker.pool().stop();
            }
        }
    }
}

/// Hazard: a publisher that finds as many active as may be wakes none; the active one must look.
#[test]
fn loom_work_published_at_the_limit_is_taken_by_the_active_worker() {
    model(|| {
        let (pool, items, taken) = (patient_pool(1), Items::new(0), Arc::new(AtomicU32::new(0)));
        pool.set_active_max(1);
        let worker = pool.register().expect("room for a worker");
        let (its_items, its_taken) = (items.clone(), Arc::clone(&taken));
        let thread = spawn(move || serve_until(&its_items, &its_taken, 2, worker));
        for _ in 0..2 {
            items.publish(1);
            pool.wake_one();
        }
        join(thread);
        assert!(!items.are_left());
    });
}

/// Hazard: the limit is raised while a worker goes idle because of it.
#[test]
fn loom_a_limit_that_is_raised_lets_a_sleeping_worker_take_the_work() {
    model(|| {
        let (pool, items) = (patient_pool(2), Items::new(2));
        pool.set_active_max(1);
        let threads = [(); 2].map(|()| spawn_with(&pool, &items, take_one));
        // One of the two is busy for ever.
        pool.set_active_max(2);
        let workers = threads.map(join);
        assert!(!items.are_left());
        drop(workers);
    });
}

/// Hazard: lifetime at the last thread, which frees what it was stopped with.
#[test]
fn loom_the_last_worker_may_outlast_every_handle() {
    model(|| {
        let (pool, items) = (patient_pool(1), Items::new(0));
        let thread = spawn_with(&pool, &items, serve);
        pool.stop();
        drop(pool);
        assert_eq!(join(thread), (0, Wait::Stop));
    });
}

#[cfg(not(loom))]
mod larger;
#[cfg(not(any(loom, shuttle)))]
mod on_real_threads;
