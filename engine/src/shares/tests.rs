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
    let gone = offers.filter(|job| shares.offer(listener, *job, Rank::Next, 0).is_some());
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
        .map(|thread| ShareRule::of(8, (thread, 3), 2, &[None, Some(4)]))
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
fn jobs_that_come_after_others_leave_half_to_them() {
    for (listeners, most, kept) in [(2, 96 + 16, 48), (1, 96 + 32, 48)] {
        let mut shares = shares(128, listeners);
        let offers = 0..1000;
        let later = offers.filter(|job| shares.offer(0, *job, Rank::AfterOthers, 0).is_some());
        let later = later.count();
        assert_eq!(later, most - kept);
        let offers = (0..1000).filter(|job| shares.offer(0, *job, Rank::Next, 0).is_some());
        assert_eq!(offers.count(), kept);
        // What comes back makes room for those whose turn it is.
        (0..2).for_each(|_| shares.returned(0));
        assert!(shares.next(0).is_some() && shares.next(0).is_some() && shares.next(0).is_none());
        assert_eq!(shares.waiting(), 2000 - most - 2);
    }
}

#[test]
fn an_episode_is_logged_once() {
    let mut shares = shares(2, 2);
    let late = SHARE_PATIENCE_NS;
    assert_eq!(shares.offer(0, 1, Rank::Next, 0), Some(1));
    assert_eq!(shares.offer(0, 2, Rank::Next, 0), None);
    assert_eq!(shares.overdue(late - 1), []);
    assert_eq!(shares.overdue(late), [(0, 1, 1)]);
    assert_eq!(shares.overdue(late + 1), []);
    shares.returned(0);
    assert_eq!(shares.next(late), Some((0, 2)));
    // Soon afterwards it is the same episode, later it is another.
    for (began, lines) in [(late + 1, 0), (late + SHARE_LOG_NS, 1)] {
        assert_eq!(shares.offer(0, 3, Rank::Next, began), None);
        assert_eq!(shares.overdue(began + late).len(), lines);
        shares.returned(0);
        assert_eq!(shares.next(late), Some((0, 3)));
    }
}

/// What should be so, counted by listener.
struct Model {
    shares: Shares<(Rank, u32)>,
    most: Vec<u32>,
    /// By rank.
    offered: Vec<[u32; 2]>,
    gone: Vec<[u32; 2]>,
    back: Vec<u32>,
    parked: Vec<u32>,
    /// Jobs that were resumed: so many may be out beyond the shares.
    beyond: u32,
}

impl Model {
    fn new(rule: &ShareRule) -> Model {
        let most = rule.listeners.iter().map(|most| most.unwrap_or(u32::MAX));
        let most: Vec<_> = most.collect();
        let none = vec![0; most.len()];
        Model {
            shares: Shares::new(rule),
            offered: vec![[0; 2]; most.len()],
            gone: vec![[0; 2]; most.len()],
            back: none.clone(),
            parked: none,
            most,
            beyond: 0,
        }
    }

    fn out(&self, at: usize) -> u32 {
        self.gone[at].iter().sum::<u32>() - self.back[at] - self.parked[at]
    }

    fn went(&mut self, at: usize, (rank, job): (Rank, u32)) {
        let gone = &mut self.gone[at][rank as usize];
        assert_eq!(*gone, job, "out of order");
        *gone += 1;
    }

    fn let_go(&mut self) {
        while let Some((listener, job)) = self.shares.next(0) {
            self.went(usize::from(listener), job);
        }
    }

    fn offer(&mut self, at: usize, rank: Rank) {
        let offered = &mut self.offered[at][rank as usize];
        let job = (rank, *offered);
        *offered += 1;
        if let Some(job) = self.shares.offer(at as u16, job, rank, 0) {
            self.went(at, job);
        }
    }

    fn give_back(&mut self, at: usize) {
        self.back[at] += 1;
        self.shares.returned(at as u16);
        self.let_go();
    }

    fn park(&mut self, at: usize, parked: u32) {
        let before = std::mem::replace(&mut self.parked[at], parked);
        self.beyond += before.saturating_sub(parked);
        self.shares.parked(at as u16, parked);
        self.let_go();
    }

    fn check(&self) {
        let mut used = 0;
        for at in 0..self.most.len() {
            let out = self.out(at);
            assert!(out <= self.most[at].saturating_add(self.beyond));
            used += out.saturating_sub(self.shares.guaranteed);
            for rank in [Rank::Next, Rank::AfterOthers] {
                let (offered, gone) = (self.offered[at], self.gone[at]);
                let waits = offered[rank as usize] > gone[rank as usize];
                assert!(!waits || !self.shares.may_go(at, rank), "H2");
            }
        }
        assert_eq!(used, self.shares.common_used, "H1");
        assert!(used <= self.shares.common + self.beyond, "H1");
    }
}

/// Random offers, returns, and jobs parked and resumed, against the invariants: nothing that may
/// go waits, nothing is forgotten, each listener's jobs go out in order.
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
        let mut model = Model::new(&ShareRule {
            workers: Some(workers),
            listeners: (0..count).map(|_| most(dice(6))).collect(),
        });
        // Half of the runs without parking: there the shares hold exactly.
        let acts = 4 + seed % 2;
        for _ in 0..300 {
            let at = dice(count as u64) as usize;
            let out = model.out(at);
            match dice(acts) {
                0 => model.offer(at, Rank::Next),
                1 => model.offer(at, Rank::AfterOthers),
                2 | 3 if out > 0 => model.give_back(at),
                4 => {
                    let most = model.parked[at] + out;
                    model.park(at, dice(u64::from(most) + 1) as u32);
                }
                _ => {}
            }
            model.check();
        }
        // Everything is resumed and comes back, so everything goes out.
        (0..count).for_each(|at| model.park(at, 0));
        while let Some(at) = (0..count).find(|at| model.out(*at) > 0) {
            model.give_back(at);
        }
        assert_eq!(model.gone, model.offered, "seed {seed}: forgotten");
        assert_eq!(model.shares.waiting(), 0);
    }
}
