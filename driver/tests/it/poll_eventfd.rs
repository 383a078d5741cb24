//! Watching eventfds: each test is written once and run on every kind of driver.

on_every_driver! {
    #[test] fn what_is_written_is_taken_once;
    #[test] fn what_was_written_before_is_found_when_the_watch_begins;
    #[test] fn another_thread_ends_the_wait_by_writing;
    #[test] fn no_count_is_lost_while_the_completion_queue_overflows;
    #[test] fn a_cancelled_watch_leaves_the_rest_in_the_eventfd;
    #[test] fn a_cancel_ends_the_watch_of_its_eventfd;
    #[test] fn an_eventfd_can_be_watched_again;
    #[test] fn a_driver_is_dropped_with_a_watch_under_way;
}

mod cases {
    use std::sync::Arc;
    use std::time::Duration;

    use flatpath_driver::{Completion, Driver, DriverConfig, Eventfd, Operation, Outcome};

    use crate::rig::{Make, Rig, small};

    fn eventfd() -> Arc<Eventfd> {
        Arc::new(Eventfd::new().expect("a descriptor"))
    }

    fn count_of(completion: &Completion) -> u64 {
        assert!(completion.more, "a poll lasts: {completion:?}");
        match completion.outcome {
            Outcome::Signalled(count) => count,
            _ => panic!("not signalled but {completion:?}"),
        }
    }

    /// Sums up counts until they are `wanted`.
    fn sum<D: Driver>(rig: &mut Rig<D>, user_data: u64, wanted: u64) {
        let mut sum = 0;
        while sum < wanted {
            sum += count_of(&rig.next(user_data));
        }
        assert_eq!(sum, wanted);
    }

    pub(crate) fn what_is_written_is_taken_once<M: Make>(_: &str) {
        let Some(mut rig) = Rig::new::<M>(&small()) else {
            return;
        };
        let event = eventfd();
        rig.driver.poll_eventfd(Arc::clone(&event), 7);
        for count in [1, 41, 1 << 40] {
            rig.turn();
            event.write(count).expect("room");
            assert_eq!(count_of(&rig.next(7)), count);
        }
        rig.turn();
        assert!(rig.arrived.is_empty(), "{:?}", rig.arrived);
    }

    pub(crate) fn what_was_written_before_is_found_when_the_watch_begins<M: Make>(_: &str) {
        let Some(mut rig) = Rig::new::<M>(&small()) else {
            return;
        };
        let event = eventfd();
        event.write(3).expect("room");
        event.write(4).expect("room");
        rig.driver.poll_eventfd(event, 7);
        assert_eq!(count_of(&rig.next(7)), 7);
    }

    pub(crate) fn another_thread_ends_the_wait_by_writing<M: Make>(_: &str) {
        let Some(mut rig) = Rig::new::<M>(&small()) else {
            return;
        };
        let event = eventfd();
        rig.driver.poll_eventfd(Arc::clone(&event), 7);
        rig.turn();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..100 {
                    event.write(1).expect("room");
                    std::thread::sleep(Duration::from_micros(100));
                }
            });
            sum(&mut rig, 7, 100);
        });
    }

    /// No wait runs while many polls fire: the queue of four overflows, and the kernel ends them.
    pub(crate) fn no_count_is_lost_while_the_completion_queue_overflows<M: Make>(_: &str) {
        let config = DriverConfig {
            completion_entries: 4,
            ..small()
        };
        let Some(mut rig) = Rig::new::<M>(&config) else {
            return;
        };
        let events: Vec<_> = (0..40).map(|_| eventfd()).collect();
        for (user_data, event) in (0..).zip(&events) {
            rig.driver.poll_eventfd(Arc::clone(event), user_data);
        }
        let nothing = rig.driver.wait(Some(0), &|| false, &mut rig.arrived);
        nothing.expect("the driver works");
        for round in 1..=3 {
            for event in &events {
                event.write(round).expect("room");
            }
            for user_data in 0..40 {
                sum(&mut rig, user_data, round);
            }
        }
    }

    pub(crate) fn a_cancel_ends_the_watch_of_its_eventfd<M: Make>(_: &str) {
        let Some(mut rig) = Rig::new::<M>(&small()) else {
            return;
        };
        let (stays, ends) = (eventfd(), eventfd());
        rig.driver.poll_eventfd(Arc::clone(&stays), 7);
        rig.driver.poll_eventfd(Arc::clone(&ends), 7);
        rig.driver.cancel(Operation::PollEventfd(&ends), 7);
        let end = rig.next_where("final completion", |completion| !completion.more);
        assert!(matches!(end.outcome, Outcome::Failed(_)), "{end:?}");
        ends.write(1).expect("room");
        stays.write(5).expect("room");
        assert_eq!(count_of(&rig.next(7)), 5);
    }

    pub(crate) fn a_cancelled_watch_leaves_the_rest_in_the_eventfd<M: Make>(_: &str) {
        let Some(mut rig) = Rig::new::<M>(&small()) else {
            return;
        };
        let event = eventfd();
        rig.driver.poll_eventfd(Arc::clone(&event), 7);
        rig.turn();
        rig.driver.cancel(Operation::PollEventfd(&event), 7);
        let end = rig.next_where("final completion", |completion| !completion.more);
        assert!(matches!(end.outcome, Outcome::Failed(_)), "{end:?}");
        event.write(5).expect("room");
        rig.turn();
        assert!(rig.arrived.is_empty(), "{:?}", rig.arrived);
        // The driver dropped it.
        assert_eq!(Arc::strong_count(&event), 1);
        rig.driver.poll_eventfd(Arc::clone(&event), 8);
        assert_eq!(count_of(&rig.next(8)), 5);
    }

    pub(crate) fn an_eventfd_can_be_watched_again<M: Make>(_: &str) {
        let Some(mut rig) = Rig::new::<M>(&small()) else {
            return;
        };
        let event = eventfd();
        for user_data in 0..50 {
            rig.driver.poll_eventfd(Arc::clone(&event), user_data);
            event.write(user_data + 1).expect("room");
            sum(&mut rig, user_data, user_data + 1);
            rig.driver.cancel(Operation::PollEventfd(&event), user_data);
            let end = rig.next(user_data);
            assert!(!end.more, "{end:?}");
        }
    }

    pub(crate) fn a_driver_is_dropped_with_a_watch_under_way<M: Make>(_: &str) {
        let Some(mut rig) = Rig::new::<M>(&small()) else {
            return;
        };
        let event = eventfd();
        rig.driver.poll_eventfd(Arc::clone(&event), 7);
        rig.turn();
        event.write(1).expect("room");
        drop(rig);
        assert_eq!(Arc::strong_count(&event), 1);
    }
}
