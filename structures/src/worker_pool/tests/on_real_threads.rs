//! What needs real threads and a clock. Nothing is asserted about how long anything takes.

use super::*;
use crate::testing::{repeats, with_seeds, within_deadline};
use std::sync::mpsc;
use std::time::Duration;

const MILLISECOND: u64 = 1_000_000;

/// Waits until the idle stack has `count` workers on it.
fn until_idle(pool: &WorkerPool, count: u32) {
    while pool.statistics().idle != count {
        std::thread::sleep(Duration::from_micros(200));
    }
}

#[test]
fn a_wake_without_workers_finds_none() {
    let pool = patient_pool(2);
    assert_eq!(pool.wake_one(), Wake::NoneIdle);
    let _busy = pool.register();
    assert_eq!(pool.wake_one(), Wake::NoneIdle);
}

#[test]
fn no_more_register_than_the_maximum_and_none_after_stop() {
    let pool = patient_pool(2);
    let first = pool.register().expect("room");
    let second = pool.register();
    assert_eq!(pool.workers(), 2);
    assert!(second.is_some() && pool.register().is_none());
    drop(first);
    assert_eq!(pool.workers(), 1);
    assert!(pool.register().is_some());
    pool.stop();
    drop(second);
    assert!(pool.register().is_none() && !pool.may_grow());
    assert_eq!(pool.workers(), 0);
}

#[test]
fn no_more_are_active_than_may_be_although_work_waits() {
    within_deadline(|| {
        let (pool, items) = (patient_pool(3), Items::new(3));
        assert!(pool.may_grow(), "there is room for workers");
        let mut workers = [(); 3].map(|()| pool.register().expect("room"));
        assert!(!pool.may_grow());
        for worker in &mut workers {
            assert_eq!(worker.wait(|| items.are_left()), Wait::Work);
        }
        pool.set_active_max(2);
        assert!(pool.may_grow(), "the limit may be raised");
        assert_eq!((pool.active(), pool.active_max()), (3, 2));
        assert_eq!(workers[1].took_work(|| true), Some(Wake::NoneIdle));
        // The first that looks for work goes idle, and sleeps until it may be active.
        let [mut first, mut second, third] = workers;
        let thread = spawn(move || (first.wait(|| true), first));
        until_idle(&pool, 1);
        assert_eq!((pool.active(), pool.wake_one()), (2, Wake::Limited));
        assert!(!pool.has_idle(), "none that might work");
        assert_eq!(second.wait(|| true), Wait::Work);
        drop(third);
        let (wait, first) = join(thread);
        assert_eq!((wait, pool.active()), (Wait::Work, 2));
        drop((first, second));
        assert_eq!(pool.active(), 0);
    });
}

#[test]
fn a_pool_that_stops_has_no_limit() {
    within_deadline(|| {
        let (pool, items) = (patient_pool(3), Items::new(0));
        pool.set_active_max(1);
        let threads = [(); 3].map(|()| spawn_with(&pool, &items, serve));
        until_idle(&pool, 3);
        pool.stop();
        pool.set_active_max(1);
        assert_eq!(pool.active_max(), 3);
        threads.into_iter().map(join).for_each(drop);
    });
}

#[test]
#[should_panic(expected = "minimum above the maximum")]
fn a_minimum_above_the_maximum_is_refused() {
    pool(3, 2, 0);
}

/// Hazard: no herd. While a woken worker looks for work, no other is woken.
#[test]
fn a_second_wake_does_not_wake_a_second_worker() {
    within_deadline(|| {
        let (pool, items) = (patient_pool(2), Items::new(0));
        let sleeper = spawn_with(&pool, &items, serve);
        until_idle(&pool, 1);
        // The newer one stops in the middle of its look for work, once it was woken.
        let (asked, is_asked) = mpsc::channel();
        let (answer, answers) = mpsc::channel();
        let mut worker = pool.register().expect("room");
        let looker = spawn(move || {
            worker.wait(|| {
                asked.send(()).expect("the test listens");
                answers.recv().expect("the test answers")
            })
        });
        for _ in 0..2 {
            // Before it goes idle, and when it is idle.
            is_asked.recv().expect("it looks");
            answer.send(false).expect("it waits for the answer");
        }
        until_idle(&pool, 2);
        // It may not be asleep yet, which makes no difference to the waker.
        assert_eq!(pool.wake_one(), Wake::Woken);
        is_asked.recv().expect("it looks after it was woken");
        assert_eq!(pool.statistics().idle, 1);
        assert_eq!(
            pool.wake_one(),
            Wake::AlreadyAwake,
            "the other one sleeps on"
        );
        answer.send(true).expect("it waits for the answer");
        // Work, and its worker is dropped: the sleeper is woken next.
        assert_eq!(join(looker), Wait::Work);
        pool.stop();
        assert_eq!(join(sleeper), (0, Wait::Stop));
    });
}

#[test]
fn a_wake_that_found_nothing_is_counted() {
    within_deadline(|| {
        let (pool, items) = (patient_pool(1), Items::new(0));
        let thread = spawn_with(&pool, &items, serve);
        until_idle(&pool, 1);
        // A wake that comes between its listing and its last look makes it look, not wake up.
        while pool.statistics().wakes_that_found_nothing == 0 {
            pool.wake_one();
            std::thread::yield_now();
        }
        items.publish(1);
        pool.wake_one();
        pool.stop();
        assert_eq!(join(thread), (1, Wait::Stop));
        let statistics = pool.statistics();
        assert!(
            statistics.wakes >= statistics.wakes_that_found_nothing,
            "{statistics:?}"
        );
        assert_eq!((statistics.workers, statistics.idle), (0, 0));
    });
}

#[test]
fn idle_workers_retire_down_to_the_minimum() {
    within_deadline(|| {
        let (pool, items) = (pool(2, 6, MILLISECOND), Items::new(0));
        let threads: Vec<_> = (0..6).map(|_| spawn_with(&pool, &items, serve)).collect();
        while pool.workers() != 2 {
            std::thread::yield_now();
        }
        until_idle(&pool, 2);
        assert_eq!(pool.workers(), 2);
        pool.stop();
        let reasons: Vec<Wait> = threads.into_iter().map(|thread| join(thread).1).collect();
        let stopped = reasons
            .iter()
            .filter(|reason| **reason == Wait::Stop)
            .count();
        assert_eq!(stopped, 2, "{reasons:?}");
    });
}

/// Hazard: un-listing discipline. Only the head leaves, however long the others have idled.
#[test]
fn a_worker_that_idled_too_long_stays_while_it_is_buried() {
    within_deadline(|| {
        let pool = pool(0, 2, 10 * MILLISECOND);
        let mut buried = pool.register().expect("room");
        let (asked, is_asked) = mpsc::channel();
        let (answer, answers) = mpsc::channel::<()>();
        let mut above = pool.register().expect("room");
        let buried = spawn(move || buried.wait(|| false));
        while pool.statistics().idle == 0 && pool.workers() == 2 {
            std::thread::yield_now();
        }
        let above = spawn(move || {
            above.wait(|| {
                // Stops while it is on the list, above the other one, until the test is done.
                asked.send(()).expect("the test listens");
                // Fails once the test has dropped its end.
                let _ = answers.recv();
                false
            })
        });
        is_asked.recv().expect("before it goes idle");
        answer.send(()).expect("it waits for the answer");
        is_asked.recv().expect("while it is listed");
        // Unless this took so long that the other one had retired before it was buried.
        if pool.statistics().idle == 2 {
            std::thread::sleep(Duration::from_millis(30));
            assert_eq!(
                (pool.statistics().idle, pool.workers()),
                (2, 2),
                "none leaves from below"
            );
        }
        drop(answer);
        assert_eq!((join(above), join(buried)), (Wait::Retire, Wait::Retire));
        assert_eq!((pool.workers(), pool.statistics().idle), (0, 0));
    });
}

/// A place that is given up is free at once: work that finds no idle worker at that moment gets a
/// new thread even if the old one is not gone yet.
#[test]
fn a_worker_about_to_leave_is_no_hindrance_to_a_newcomer() {
    let pool = pool(0, 1, 0);
    let mut retired = pool.register().expect("room");
    assert_eq!(retired.wait(|| false), Wait::Retire);
    assert_eq!(pool.wake_one(), Wake::NoneIdle);
    let _newcomer = pool.register().expect("the place is free");
    assert_eq!(retired.wait(|| true), Wait::Retire, "and it stays so");
    drop(retired);
    assert_eq!(pool.workers(), 1);
}

/// Hazard: wake chaining on exit, here because the thread panics with a wake in its hands.
#[test]
fn a_worker_that_panics_wakes_the_next_one() {
    within_deadline(|| {
        let (pool, items) = (patient_pool(2), Items::new(0));
        let survivor = spawn_with(&pool, &items, take_one);
        until_idle(&pool, 1);
        let mut worker = pool.register().expect("room");
        let looked = items.clone();
        let victim = spawn(move || {
            assert_eq!(worker.wait(|| looked.are_left()), Wait::Work);
            panic!("on purpose");
        });
        until_idle(&pool, 2);
        items.publish(1);
        pool.wake_one();
        assert!(victim.join().is_err());
        drop(join(survivor));
        assert!(!items.are_left());
    });
}

/// Hazard: never proceed while on the list, or the entry is listed twice.
#[test]
fn a_panic_while_looking_for_work_leaves_no_worker_listed() {
    within_deadline(|| {
        let (pool, items) = (patient_pool(2), Items::new(0));
        let mut worker = pool.register().expect("room");
        let looks = AtomicU32::new(0);
        let attempt = std::panic::AssertUnwindSafe(|| {
            worker.wait(|| match looks.fetch_add(1, Ordering::Relaxed) {
                0 => false,
                _ => panic!("on purpose"),
            })
        });
        assert!(std::panic::catch_unwind(attempt).is_err());
        assert_eq!(pool.statistics().idle, 0);
        // The worker is as good as before.
        let thread = {
            let items = items.clone();
            spawn(move || take_one(&items, worker))
        };
        items.publish(1);
        pool.wake_one();
        drop(join(thread));
    });
}

#[test]
fn a_worker_may_move_to_another_thread_between_waits() {
    within_deadline(|| {
        let (pool, items) = (patient_pool(1), Items::new(0));
        let mut worker = pool.register().expect("room");
        for _ in 0..3 {
            let work = items.clone();
            let thread = spawn(move || take_one(&work, worker));
            until_idle(&pool, 1);
            items.publish(1);
            pool.wake_one();
            worker = join(thread);
        }
    });
}

/// Hazard: the token of the thread's park may be spent or set by other code.
#[test]
fn a_stray_unpark_neither_ends_the_wait_nor_spoils_the_next_wake() {
    within_deadline(|| {
        let (pool, items) = (patient_pool(1), Items::new(0));
        let mut worker = pool.register().expect("room");
        let work = items.clone();
        let thread = spawn(move || {
            std::thread::current().unpark();
            assert_eq!(worker.wait(|| work.are_left()), Wait::Work);
            assert!(work.take(), "it returned for work");
        });
        until_idle(&pool, 1);
        thread.thread().unpark();
        items.publish(1);
        pool.wake_one();
        thread.join().expect("no panic");
    });
}

#[test]
fn model_registrations_and_departures_agree_with_a_count() {
    with_seeds(50, |random| {
        let workers_max = 1 + random.below(5);
        let pool = patient_pool(workers_max);
        let (mut workers, mut stopping) = (Vec::new(), false);
        for _ in 0..repeats(200) {
            let count = workers.len() as u32;
            match random.below(20) {
                0..=8 => {
                    let worker = pool.register();
                    assert_eq!(worker.is_some(), count < workers_max && !stopping);
                    workers.extend(worker);
                }
                9..=11 if count > 0 => {
                    drop(workers.swap_remove(random.below(count) as usize));
                }
                12..=15 if count > 0 => {
                    let which = random.below(count) as usize;
                    assert_eq!(workers[which].wait(|| true), Wait::Work);
                    assert_eq!(workers[which].took_work(|| false).is_some(), stopping);
                }
                16..=18 if count > 0 && stopping => {
                    let which = random.below(count) as usize;
                    assert_eq!(workers[which].wait(|| false), Wait::Stop);
                    drop(workers.swap_remove(which));
                }
                19 if random.below(10) == 0 => {
                    pool.stop();
                    stopping = true;
                }
                _ => {}
            }
            assert_eq!(pool.workers() as usize, workers.len());
        }
        workers.clear();
        assert_eq!(pool.workers(), 0);
    });
}

/// Everything at once: producers, growth, retirement; all work is done.
#[test]
fn stress_all_work_is_done_while_workers_come_and_go() {
    const PRODUCERS: u32 = 3;
    let per_producer = repeats(3_000);
    within_deadline(move || {
        let (pool, items) = (pool(1, 8, MILLISECOND / 20), Items::new(0));
        let done = Arc::new(AtomicU32::new(0));
        let start = {
            let (items, done) = (items.clone(), Arc::clone(&done));
            move |worker: Option<Worker>| {
                if let Some(worker) = worker {
                    let (items, done) = (items.clone(), Arc::clone(&done));
                    spawn(move || done.fetch_add(serve(&items, worker).0, Ordering::Relaxed));
                }
            }
        };
        start(pool.register());
        let producers: Vec<_> = (0..PRODUCERS)
            .map(|_| {
                let (pool, items, start) = (pool.clone(), items.clone(), start.clone());
                spawn(move || {
                    for number in 0..per_producer {
                        items.publish(1);
                        if pool.wake_one() == Wake::NoneIdle {
                            start(pool.register());
                        }
                        if number % 64 == 0 {
                            pool.set_active_max(1 + number / 64 % 8);
                        }
                        if number % 16 == 0 {
                            std::thread::sleep(Duration::from_micros(30));
                        }
                    }
                })
            })
            .collect();
        producers.into_iter().for_each(join);
        pool.stop();
        while pool.workers() > 0 {
            std::thread::yield_now();
        }
        while done.load(Ordering::Relaxed) != PRODUCERS * per_producer {
            std::thread::yield_now();
        }
        assert_eq!(pool.statistics().idle, 0);
    });
}
