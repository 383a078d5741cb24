//! Tests of the crew: bodies for the model checkers first, then what needs real time.

use super::*;
use crate::testing::{join, model};

use crate::sync::{AtomicU32, JoinHandle, spawn};

const FOR_EVER: u64 = u64::MAX;

fn crew(workers_min: u32, workers_max: u32, idle_ns_max: u64) -> Crew {
    Crew::new(CrewLimits {
        workers_min,
        workers_max,
        idle_ns_max,
    })
}

fn patient_crew(workers: u32) -> Crew {
    crew(workers, workers, FOR_EVER)
}

/// Work that is only a number of items. Relaxed throughout: the crew's fences alone must do.
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
/// the crew any more, but has not left either.
fn take_one(items: &Items, member: Member) -> Member {
    take_one_or_leave(items, member).expect("nobody is asked to leave")
}

/// The same, unless it is told to leave first.
fn take_one_or_leave(items: &Items, mut member: Member) -> Option<Member> {
    loop {
        match member.wait(|| items.are_left()) {
            Wait::Work if items.take() => {
                member.took_work(|| items.are_left());
                return Some(member);
            }
            Wait::Work => {}
            Wait::Retire | Wait::Stop => return None,
        }
    }
}

/// Takes items until it is told to leave. Returns how many it took, and why it left.
fn serve(items: &Items, mut member: Member) -> (u32, Wait) {
    let mut taken = 0;
    loop {
        match member.wait(|| items.are_left()) {
            Wait::Work if items.take() => {
                taken += 1;
                member.took_work(|| items.are_left());
            }
            Wait::Work => {}
            reason => return (taken, reason),
        }
    }
}

fn spawn_with<T: Send + 'static>(
    crew: &Crew,
    items: &Items,
    body: fn(&Items, Member) -> T,
) -> JoinHandle<T> {
    let member = crew.join().expect("room for a member");
    let items = items.clone();
    spawn(move || body(&items, member))
}

/// Hazard: lost wake-up (store-then-look on both sides).
#[test]
fn loom_work_published_beside_a_member_going_idle_is_not_missed() {
    model(|| {
        let (crew, items) = (patient_crew(1), Items::new(0));
        let worker = spawn_with(&crew, &items, take_one);
        items.publish(1);
        crew.wake_one();
        join(worker);
        assert!(!items.are_left());
    });
}

/// Hazard: one wake for two items; the baton is part of correctness.
#[test]
fn loom_who_takes_work_wakes_the_next_one() {
    model(|| {
        let (crew, items) = (patient_crew(2), Items::new(0));
        let workers = [(); 2].map(|()| spawn_with(&crew, &items, take_one));
        items.publish(2);
        crew.wake_one();
        let members = workers.map(join);
        assert!(!items.are_left());
        drop(members);
    });
}

/// Hazard: a queue may look empty while its items are moved from one half to the other. Who went
/// idle for that reason is woken by the one who moved them.
#[test]
fn loom_a_member_misled_by_a_queue_in_transit_is_woken_by_the_taker() {
    model(|| {
        let crew = patient_crew(2);
        let (ready, new) = (Items::new(0), Items::new(0));
        let mut taker = crew.join().expect("room for a member");
        let mut other = crew.join().expect("room for a member");
        let (its_ready, its_new) = (ready.clone(), new.clone());
        let taking = spawn(move || {
            its_new.publish(2);
            taker.crew().wake_one();
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

/// Hazard: skipping a wake because somebody is awake is safe only if that one looks again.
#[test]
fn loom_a_wake_skipped_because_somebody_is_awake_is_not_lost() {
    model(|| {
        let (crew, items) = (patient_crew(2), Items::new(0));
        let workers = [(); 2].map(|()| spawn_with(&crew, &items, take_one));
        for _ in 0..2 {
            items.publish(1);
            crew.wake_one();
        }
        let members = workers.map(join);
        assert!(!items.are_left());
        drop(members);
    });
}

/// Hazard: read the stop before testing for work, or the last item is left behind.
#[test]
fn loom_work_published_before_stop_is_done() {
    model(|| {
        let (crew, items) = (patient_crew(1), Items::new(0));
        let worker = spawn_with(&crew, &items, serve);
        items.publish(1);
        crew.stop();
        assert_eq!(join(worker), (1, Wait::Stop));
    });
}

/// Hazard: baton on exit; only the head is ever woken, so each that leaves wakes the next.
#[test]
fn loom_stop_reaches_members_that_are_buried() {
    model(|| {
        let (crew, items) = (patient_crew(2), Items::new(0));
        let workers = [(); 2].map(|()| spawn_with(&crew, &items, serve));
        crew.stop();
        for worker in workers {
            assert_eq!(join(worker), (0, Wait::Stop));
        }
        assert_eq!(crew.workers(), 0);
    });
}

/// Hazard: a member that gives up idling may have absorbed a wake.
#[test]
fn loom_a_member_that_retires_leaves_no_work_that_it_was_woken_for() {
    model(|| {
        let (crew, items) = (crew(0, 1, 0), Items::new(0));
        let worker = spawn_with(&crew, &items, |items, mut member| {
            let wait = member.wait(|| items.are_left());
            assert_ne!(wait, Wait::Stop);
            wait
        });
        items.publish(1);
        let wake = crew.wake_one();
        if join(worker) == Wait::Retire {
            assert_eq!(wake, Wake::NobodyIdle, "the publisher relied on a member");
        }
    });
}

/// Hazard: exactly one victim per request, and the victim passes on a wake that it absorbed.
#[test]
fn loom_stop_one_beside_a_wake_takes_one_victim_and_loses_no_work() {
    model(|| {
        let (crew, items) = (patient_crew(2), Items::new(0));
        let workers = [(); 2].map(|()| spawn_with(&crew, &items, take_one_or_leave));
        items.publish(1);
        crew.wake_one();
        let departure = crew.stop_one().expect("there are members");
        let stayed = workers.map(join);
        assert_eq!(stayed.iter().flatten().count(), 1, "one victim");
        assert!(!items.are_left(), "and the other one took the item");
        assert!(departure.wait(0));
        assert_eq!(crew.workers(), 1);
    });
}

/// Hazard: the peeked member may be gone and its entry taken over; entries are type-stable.
#[test]
fn loom_a_late_waker_of_a_member_that_left_does_not_starve_the_next() {
    model(|| {
        let (crew, items) = (patient_crew(1), Items::new(0));
        let (workplace, work) = (crew.clone(), items.clone());
        let worker = spawn(move || {
            for _ in 0..2 {
                let member = workplace.join().expect("the one before has left");
                take_one(&work, member);
            }
        });
        for _ in 0..2 {
            items.publish(1);
            crew.wake_one();
        }
        join(worker);
        assert!(!items.are_left());
    });
}

/// Hazard: lifetime at the last thread; the stopper holds what it waits on.
#[test]
fn loom_a_stopper_may_outlast_the_last_member_and_every_handle() {
    model(|| {
        let (crew, items) = (patient_crew(1), Items::new(0));
        let worker = spawn_with(&crew, &items, serve);
        let departure = crew.stop_one().expect("there is a member");
        drop(crew);
        assert!(departure.wait(FOR_EVER));
        assert_eq!(join(worker), (0, Wait::Stop));
    });
}

#[cfg(not(loom))]
mod larger;
#[cfg(not(any(loom, shuttle)))]
mod on_real_threads;
