//! What needs real threads and a clock. Nothing is asserted about how long anything takes.

use super::*;
use crate::testing::{repeats, with_seeds, within_deadline};
use std::sync::mpsc;
use std::time::Duration;

const MILLISECOND: u64 = 1_000_000;
const DEADLINE_NS: u64 = 60_000 * MILLISECOND;

/// Waits until the idle stack has `count` members on it.
fn until_idle(crew: &Crew, count: u32) {
    while crew.idle() != count {
        std::thread::sleep(Duration::from_micros(200));
    }
}

#[test]
fn a_wake_without_members_finds_nobody() {
    let crew = patient_crew(2);
    assert_eq!(crew.wake_one(), Wake::NobodyIdle);
    let _busy = crew.join();
    assert_eq!(crew.wake_one(), Wake::NobodyIdle);
}

#[test]
fn no_more_join_than_the_maximum_and_none_after_stop() {
    let crew = patient_crew(2);
    let first = crew.join().expect("room");
    let second = crew.join();
    assert_eq!(crew.workers(), 2);
    assert!(second.is_some() && crew.join().is_none() && crew.grow().is_none());
    drop(first);
    assert_eq!(crew.workers(), 1);
    assert!(crew.join().is_some());
    crew.stop();
    drop(second);
    assert!(crew.join().is_none() && crew.grow().is_none());
    assert!(crew.wait_empty(DEADLINE_NS));
}

#[test]
fn growing_waits_until_the_one_before_has_arrived() {
    let crew = patient_crew(8);
    let mut first = crew.grow().expect("room");
    assert!(crew.grow().is_none(), "one at a time");
    assert!(crew.join().is_some(), "joining is not throttled");
    assert_eq!(first.wait(|| true), Wait::Work);
    let mut second = crew.grow().expect("the first has arrived");
    assert_eq!(second.took_work(|| false), None);
    let third = crew.grow().expect("the second has arrived");
    drop(third);
    assert!(
        crew.grow().is_some(),
        "a thread that was not started is no hindrance"
    );
}

#[test]
#[should_panic(expected = "minimum above the maximum")]
fn a_minimum_above_the_maximum_is_refused() {
    crew(3, 2, 0);
}

/// Hazard: no herd. While one that was woken looks for work, nobody else is woken.
#[test]
fn a_second_wake_does_not_wake_a_second_member() {
    within_deadline(|| {
        let (crew, items) = (patient_crew(2), Items::new(0));
        let sleeper = spawn_with(&crew, &items, serve);
        until_idle(&crew, 1);
        // The newer one stops in the middle of its look for work, once it was woken.
        let (asked, is_asked) = mpsc::channel();
        let (answer, answers) = mpsc::channel();
        let mut member = crew.join().expect("room");
        let looker = spawn(move || {
            member.wait(|| {
                asked.send(()).expect("the test listens");
                answers.recv().expect("the test answers")
            })
        });
        for _ in 0..2 {
            // Before it goes idle, and when it is idle.
            is_asked.recv().expect("it looks");
            answer.send(false).expect("it waits for the answer");
        }
        until_idle(&crew, 2);
        // It may not be asleep yet, which makes no difference to the waker.
        assert_eq!(crew.wake_one(), Wake::Woken);
        is_asked.recv().expect("it looks after it was woken");
        assert_eq!(crew.idle(), 1);
        assert_eq!(
            crew.wake_one(),
            Wake::AlreadyAwake,
            "the other one sleeps on"
        );
        answer.send(true).expect("it waits for the answer");
        // Work, and its member is dropped: the baton goes to the sleeper.
        assert_eq!(join(looker), Wait::Work);
        crew.stop();
        assert_eq!(join(sleeper), (0, Wait::Stop));
    });
}

#[test]
fn a_wake_that_found_nothing_is_counted() {
    within_deadline(|| {
        let (crew, items) = (patient_crew(1), Items::new(0));
        let worker = spawn_with(&crew, &items, serve);
        until_idle(&crew, 1);
        // A wake that comes between its listing and its last look makes it look, not wake up.
        while crew.statistics().wakes_that_found_nothing == 0 {
            crew.wake_one();
            std::thread::yield_now();
        }
        items.publish(1);
        crew.wake_one();
        crew.stop();
        assert_eq!(join(worker), (1, Wait::Stop));
        let statistics = crew.statistics();
        assert!(
            statistics.wakes >= statistics.wakes_that_found_nothing,
            "{statistics:?}"
        );
        assert_eq!((statistics.workers, statistics.idle), (0, 0));
    });
}

/// Hazard: a predicate with side effects. Only who waits for work can become the victim of a
/// request, not who looks on, wakes, or is busy.
#[test]
fn a_look_at_the_crew_makes_nobody_its_victim() {
    let crew = patient_crew(1);
    let mut member = crew.join().expect("room for a member");
    let departure = crew.stop_one().expect("there is a member");
    assert_eq!(crew.statistics().workers, 1);
    crew.wake_one();
    member.took_work(|| true);
    assert_eq!(crew.workers(), 1);
    assert!(!departure.wait(0));
    assert_eq!(member.wait(|| true), Wait::Stop);
    drop(member);
    assert!(departure.wait(0));
}

#[test]
fn idle_members_retire_down_to_the_minimum() {
    within_deadline(|| {
        let (crew, items) = (crew(2, 6, MILLISECOND), Items::new(0));
        let workers: Vec<_> = (0..6).map(|_| spawn_with(&crew, &items, serve)).collect();
        while crew.workers() != 2 {
            std::thread::yield_now();
        }
        until_idle(&crew, 2);
        assert_eq!(crew.workers(), 2);
        crew.stop();
        let reasons: Vec<Wait> = workers.into_iter().map(|worker| join(worker).1).collect();
        let stopped = reasons
            .iter()
            .filter(|reason| **reason == Wait::Stop)
            .count();
        assert_eq!(stopped, 2, "{reasons:?}");
    });
}

/// Hazard: un-listing discipline. Only the head leaves, however long the others have idled.
#[test]
fn a_member_that_idled_too_long_stays_while_it_is_buried() {
    within_deadline(|| {
        let crew = crew(0, 2, 10 * MILLISECOND);
        let mut buried = crew.join().expect("room");
        let (asked, is_asked) = mpsc::channel();
        let (answer, answers) = mpsc::channel::<()>();
        let mut above = crew.join().expect("room");
        let buried = spawn(move || buried.wait(|| false));
        while crew.idle() == 0 && crew.workers() == 2 {
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
        if crew.idle() == 2 {
            std::thread::sleep(Duration::from_millis(30));
            assert_eq!(
                (crew.idle(), crew.workers()),
                (2, 2),
                "nobody leaves from below"
            );
        }
        drop(answer);
        assert_eq!((join(above), join(buried)), (Wait::Retire, Wait::Retire));
        assert_eq!((crew.workers(), crew.idle()), (0, 0));
    });
}

/// A place that is given up is free at once: work that finds nobody idle at that moment gets a
/// new worker even if the old one is not gone yet.
#[test]
fn who_is_about_to_leave_is_no_hindrance_to_a_newcomer() {
    let crew = crew(0, 1, 0);
    let mut retired = crew.join().expect("room");
    assert_eq!(retired.wait(|| false), Wait::Retire);
    assert_eq!(crew.wake_one(), Wake::NobodyIdle);
    let mut victim = crew.grow().expect("the place is free");
    let departure = crew.stop_one().expect("a member");
    assert_eq!(victim.wait(|| true), Wait::Stop);
    let _newcomer = crew.grow().expect("the place is free");
    assert_eq!(retired.wait(|| true), Wait::Retire, "and it stays so");
    assert!(!departure.wait(0), "the victim is not gone yet");
    drop(victim);
    assert!(departure.wait(0));
    assert_eq!(crew.workers(), 1);
}

#[test]
fn stop_one_takes_a_busy_member_when_nobody_is_idle() {
    within_deadline(|| {
        let (crew, items) = (patient_crew(2), Items::new(0));
        let mut busy = [crew.join().expect("room"), crew.join().expect("room")];
        let departures = [crew.stop_one(), crew.stop_one()].map(|it| it.expect("a member"));
        assert!(crew.stop_one().is_none(), "all were asked");
        assert!(!departures[0].wait(0) && !departures[0].wait(MILLISECOND));
        items.publish(1);
        assert_eq!(
            busy[0].wait(|| items.are_left()),
            Wait::Stop,
            "even while work waits"
        );
        assert_eq!(
            busy[0].wait(|| items.are_left()),
            Wait::Stop,
            "and it stays so"
        );
        drop(busy);
        assert!(
            departures
                .iter()
                .all(|departure| departure.wait(DEADLINE_NS))
        );
        assert_eq!(crew.workers(), 0);
        assert!(crew.stop_one().is_none(), "nobody to ask");
    });
}

#[test]
fn a_departure_for_another_reason_answers_a_request() {
    let crew = patient_crew(2);
    let (first, mut second) = (crew.join().expect("room"), crew.join().expect("room"));
    let departure = crew.stop_one().expect("members");
    drop(first);
    assert!(departure.wait(0));
    assert_eq!(second.wait(|| true), Wait::Work, "no second victim");
}

/// Hazard: baton on exit, here because the worker panics with a wake in its hands.
#[test]
fn a_member_that_panics_passes_the_baton() {
    within_deadline(|| {
        let (crew, items) = (patient_crew(2), Items::new(0));
        let survivor = spawn_with(&crew, &items, take_one);
        until_idle(&crew, 1);
        let mut member = crew.join().expect("room");
        let looked = items.clone();
        let victim = spawn(move || {
            assert_eq!(member.wait(|| looked.are_left()), Wait::Work);
            panic!("on purpose");
        });
        until_idle(&crew, 2);
        items.publish(1);
        crew.wake_one();
        assert!(victim.join().is_err());
        drop(join(survivor));
        assert!(!items.are_left());
    });
}

/// Hazard: never proceed while on the list, or the entry is listed twice.
#[test]
fn a_panic_while_looking_for_work_leaves_nobody_listed() {
    within_deadline(|| {
        let (crew, items) = (patient_crew(2), Items::new(0));
        let mut member = crew.join().expect("room");
        let looks = AtomicU32::new(0);
        let attempt = std::panic::AssertUnwindSafe(|| {
            member.wait(|| match looks.fetch_add(1, Ordering::Relaxed) {
                0 => false,
                _ => panic!("on purpose"),
            })
        });
        assert!(std::panic::catch_unwind(attempt).is_err());
        assert_eq!(crew.idle(), 0);
        // The member is as good as before.
        let worker = {
            let items = items.clone();
            spawn(move || take_one(&items, member))
        };
        items.publish(1);
        crew.wake_one();
        drop(join(worker));
    });
}

#[test]
fn a_member_may_move_to_another_thread_between_waits() {
    within_deadline(|| {
        let (crew, items) = (patient_crew(1), Items::new(0));
        let mut member = crew.join().expect("room");
        for _ in 0..3 {
            let work = items.clone();
            let worker = spawn(move || take_one(&work, member));
            until_idle(&crew, 1);
            items.publish(1);
            crew.wake_one();
            member = join(worker);
        }
    });
}

/// Hazard: the token of the thread's park may be spent or set by somebody else.
#[test]
fn a_stray_unpark_neither_ends_the_wait_nor_spoils_the_next_wake() {
    within_deadline(|| {
        let (crew, items) = (patient_crew(1), Items::new(0));
        let mut member = crew.join().expect("room");
        let work = items.clone();
        let worker = spawn(move || {
            std::thread::current().unpark();
            assert_eq!(member.wait(|| work.are_left()), Wait::Work);
            assert!(work.take(), "it returned for work");
        });
        until_idle(&crew, 1);
        worker.thread().unpark();
        items.publish(1);
        crew.wake_one();
        worker.join().expect("no panic");
    });
}

#[test]
fn model_joins_and_departures_agree_with_a_count() {
    with_seeds(50, |random| {
        let workers_max = 1 + random.below(5);
        let crew = patient_crew(workers_max);
        let (mut members, mut asked, mut stopping) = (Vec::new(), 0, false);
        for _ in 0..repeats(200) {
            let count = members.len() as u32;
            match random.below(20) {
                0..=8 => {
                    let member = crew.join();
                    assert_eq!(member.is_some(), count < workers_max && !stopping);
                    members.extend(member);
                }
                9..=11 if count > 0 => {
                    drop(members.swap_remove(random.below(count) as usize));
                    asked -= u32::from(asked > 0);
                }
                12..=14 => {
                    let departure = crew.stop_one();
                    assert_eq!(departure.is_some(), asked < count);
                    asked += u32::from(asked < count);
                    assert!(departure.is_none_or(|departure| !departure.wait(0)));
                }
                15..=18 if count > 0 => {
                    let which = random.below(count) as usize;
                    let wait = members[which].wait(|| true);
                    assert_eq!(wait == Wait::Stop, asked > 0);
                    if wait == Wait::Stop {
                        drop(members.swap_remove(which));
                        asked -= 1;
                    } else {
                        assert_eq!(members[which].took_work(|| false).is_some(), stopping);
                    }
                }
                19 if random.below(10) == 0 => {
                    crew.stop();
                    stopping = true;
                }
                _ => {}
            }
            assert_eq!(crew.workers() as usize, members.len());
        }
        members.clear();
        assert!(crew.wait_empty(0));
    });
}

/// Everything at once: producers, growth, retirement, requests to leave; all work is done.
#[test]
fn stress_all_work_is_done_while_members_come_and_go() {
    const PRODUCERS: u32 = 3;
    let per_producer = repeats(3_000);
    within_deadline(move || {
        let (crew, items) = (crew(1, 8, MILLISECOND / 20), Items::new(0));
        let done = Arc::new(AtomicU32::new(0));
        let start = {
            let (items, done) = (items.clone(), Arc::clone(&done));
            move |member: Option<Member>| {
                if let Some(member) = member {
                    let (items, done) = (items.clone(), Arc::clone(&done));
                    spawn(move || done.fetch_add(serve(&items, member).0, Ordering::Relaxed));
                }
            }
        };
        start(crew.join());
        let producers: Vec<_> = (0..PRODUCERS)
            .map(|producer| {
                let (crew, items, start) = (crew.clone(), items.clone(), start.clone());
                spawn(move || {
                    for number in 0..per_producer {
                        items.publish(1);
                        if crew.wake_one() == Wake::NobodyIdle {
                            start(crew.grow());
                        }
                        if producer == 0 && number % 64 == 0 && crew.workers() > 2 {
                            drop(crew.stop_one());
                        }
                        if number % 16 == 0 {
                            std::thread::sleep(Duration::from_micros(30));
                        }
                    }
                })
            })
            .collect();
        producers.into_iter().for_each(join);
        // Requests to leave may have taken the last member.
        while items.are_left() {
            start(crew.join());
            crew.wake_one();
            std::thread::yield_now();
        }
        crew.stop();
        assert!(crew.wait_empty(DEADLINE_NS), "everybody leaves");
        while done.load(Ordering::Relaxed) != PRODUCERS * per_producer {
            std::thread::yield_now();
        }
        assert_eq!(crew.statistics().idle, 0);
    });
}
