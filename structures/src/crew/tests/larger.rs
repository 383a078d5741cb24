//! The crew with more threads than loom can finish, and with parks that end for no reason; shuttle
//! tries random schedules of it.

use super::*;

#[test]
fn shuttle_four_members_do_all_work_of_two_publishers_and_stop() {
    model(|| {
        let (crew, items) = (patient_crew(4), Items::new(0));
        let workers = [(); 4].map(|()| spawn_with(&crew, &items, serve));
        let publishers = [(); 2].map(|()| {
            let (crew, items) = (crew.clone(), items.clone());
            spawn(move || {
                for count in [1, 2] {
                    items.publish(count);
                    crew.wake_one();
                }
            })
        });
        publishers.into_iter().for_each(join);
        crew.stop();
        let taken: u32 = workers.map(join).iter().map(|(taken, _)| taken).sum();
        assert_eq!(taken, 6);
        assert!(crew.wait_empty(FOR_EVER));
    });
}

/// Two requests at once: two victims, whatever they were woken for; the third does what is left.
#[test]
fn shuttle_two_victims_leave_the_work_to_the_third() {
    model(|| {
        let (crew, items) = (patient_crew(3), Items::new(0));
        let workers = [(); 3].map(|()| spawn_with(&crew, &items, serve));
        let stopper = {
            let crew = crew.clone();
            spawn(move || {
                let requests = [(); 2].map(|()| crew.stop_one().expect("three to ask"));
                assert!(requests.iter().all(|departure| departure.wait(FOR_EVER)));
                assert_eq!(crew.workers(), 1);
            })
        };
        for _ in 0..3 {
            items.publish(1);
            crew.wake_one();
        }
        join(stopper);
        crew.stop();
        let taken: u32 = workers.map(join).iter().map(|(taken, _)| taken).sum();
        assert_eq!(taken, 3);
    });
}

/// Members that give up idling at once, and others that join: no item is left with nobody awake.
#[test]
fn shuttle_members_that_retire_and_join_leave_no_work_behind() {
    model(|| {
        let (crew, items) = (crew(1, 3, 0), Items::new(0));
        let workers = [(); 3].map(|()| spawn_with(&crew, &items, serve));
        for _ in 0..3 {
            items.publish(1);
            crew.wake_one();
        }
        crew.stop();
        let taken: u32 = workers.map(join).iter().map(|(taken, _)| taken).sum();
        assert_eq!(taken, 3);
    });
}
