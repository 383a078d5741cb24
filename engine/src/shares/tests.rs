//! What goes out, what waits, in which order, and what is logged of it.

use super::*;

fn shares(workers: u32, listeners: usize) -> Shares<u32> {
    Shares::new(&ShareRule {
        workers: Some(workers),
        listeners: vec![None; listeners],
    })
}

/// How many jobs of listener 0 go out when it has as many as it likes.
fn goes_out(shares: &mut Shares<u32>, listener: u16) -> u32 {
    let offers = 0..1000;
    let gone = offers.filter(|job| shares.offer(listener, *job, 0).is_some());
    u32::try_from(gone.count()).expect("small")
}

#[test]
fn one_listener_alone_has_no_share() {
    let rule = ShareRule::of(4, (0, 1), 1, &[None]);
    assert_eq!(goes_out(&mut Shares::new(&rule), 0), 1000);
}

#[test]
fn a_listener_leaves_what_is_guaranteed_to_the_others() {
    let mut shares = shares(128, 2);
    // A quarter is kept for both, sixteen for each; 96 are common.
    assert_eq!(goes_out(&mut shares, 0), 96 + 16);
    assert_eq!(goes_out(&mut shares, 1), 16);
}

#[test]
fn two_that_take_all_they_can_leave_the_third_its_own() {
    let mut shares = shares(12, 3);
    assert_eq!(goes_out(&mut shares, 0) + goes_out(&mut shares, 1), 11);
    assert_eq!(goes_out(&mut shares, 2), 1);
}

#[test]
fn with_fewer_workers_than_listeners_each_has_one() {
    let mut shares = shares(1, 2);
    assert_eq!((goes_out(&mut shares, 0), goes_out(&mut shares, 1)), (1, 1));
}

#[test]
fn a_limit_that_was_asked_for_holds_for_one_listener_alone_too() {
    let rule = ShareRule::of(128, (0, 1), 1, &[Some(3)]);
    assert_eq!(goes_out(&mut Shares::new(&rule), 0), 3);
}

#[test]
fn threads_share_the_workers_out() {
    let parts: Vec<_> = (0..3)
        .map(|ring| ShareRule::of(8, (ring, 3), 2, &[None, Some(4)]))
        .collect();
    let workers: Vec<_> = parts.iter().map(|rule| rule.workers).collect();
    assert_eq!(workers, [Some(3), Some(3), Some(2)]);
    let most: Vec<_> = parts.iter().map(|rule| rule.listeners[1]).collect();
    assert_eq!(most, [Some(2), Some(1), Some(1)]);
}

#[test]
fn listeners_take_turns() {
    let mut shares = shares(8, 2);
    // One each, and six in common, which the first has taken.
    assert_eq!(goes_out(&mut shares, 0), 7);
    assert_eq!(goes_out(&mut shares, 1), 1);
    let mut order = Vec::new();
    for _ in 0..4 {
        shares.returned(0);
        order.push(shares.next(0).expect("one waits").0);
        assert!(shares.next(0).is_none(), "one came back, one goes out");
    }
    assert_eq!(order, [0, 1, 0, 1]);
}

#[test]
fn an_episode_is_logged_once() {
    let mut shares = shares(2, 2);
    let late = SHARE_PATIENCE_NS;
    assert_eq!(shares.offer(0, 1, 0), Some(1));
    assert_eq!(shares.offer(0, 2, 0), None);
    assert_eq!(shares.overdue(late - 1), []);
    assert_eq!(shares.overdue(late), [(0, 1, 1)]);
    assert_eq!(shares.overdue(late + 1), []);
    shares.returned(0);
    assert_eq!(shares.next(late), Some((0, 2)));
    // Soon afterwards it is the same episode, later it is another.
    for (began, lines) in [(late + 1, 0), (late + SHARE_LOG_NS, 1)] {
        assert_eq!(shares.offer(0, 3, began), None);
        assert_eq!(shares.overdue(began + late).len(), lines);
        shares.returned(0);
        assert_eq!(shares.next(late), Some((0, 3)));
    }
}

/// Random offers and returns against the invariants: nothing that may go waits, nothing is
/// forgotten, each listener's jobs go out in order.
#[test]
fn model_no_job_that_may_go_waits_and_none_is_forgotten() {
    for seed in 1..200_u64 {
        let mut random = seed;
        let mut dice = |sides: u64| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            (random >> 8) % sides
        };
        let count = 1 + dice(4) as usize;
        let workers = 1 + dice(12) as u32;
        let most = |dice: u64| (dice < 3).then_some(dice as u32 + 1);
        let rule = ShareRule {
            workers: Some(workers),
            listeners: (0..count).map(|_| most(dice(6))).collect(),
        };
        let mut shares = Shares::new(&rule);
        let mut offered = vec![0_u32; count];
        let mut gone = vec![0_u32; count];
        let mut back = vec![0_u32; count];
        let at = |gone: &mut Vec<u32>, listener: usize, job: u32| {
            assert_eq!(gone[listener], job, "seed {seed}: out of order");
            gone[listener] += 1;
        };
        for _ in 0..300 {
            let listener = dice(count as u64) as usize;
            let number = u16::try_from(listener).expect("small");
            if dice(2) == 0 {
                let job = offered[listener];
                offered[listener] += 1;
                if let Some(job) = shares.offer(number, job, 0) {
                    at(&mut gone, listener, job);
                }
            } else if gone[listener] > back[listener] {
                back[listener] += 1;
                shares.returned(number);
                while let Some((listener, job)) = shares.next(0) {
                    at(&mut gone, usize::from(listener), job);
                }
            }
            let mut used = 0;
            for listener in 0..count {
                let out = gone[listener] - back[listener];
                let most = rule.listeners[listener].unwrap_or(u32::MAX);
                assert!(out <= most, "seed {seed}");
                used += out.saturating_sub(shares.guaranteed);
                let waits = offered[listener] > gone[listener];
                assert!(!waits || !shares.may_go(listener), "seed {seed}: H2");
            }
            assert!(
                used == shares.common_used && used <= shares.common,
                "seed {seed}: H1"
            );
        }
        // Everything comes back, so everything goes out.
        while let Some(listener) = (0..count).find(|one| gone[*one] > back[*one]) {
            back[listener] += 1;
            shares.returned(u16::try_from(listener).expect("small"));
            while let Some((listener, job)) = shares.next(0) {
                at(&mut gone, usize::from(listener), job);
            }
        }
        assert_eq!(gone, offered, "seed {seed}: forgotten");
        assert_eq!(shares.waiting(), 0);
    }
}
