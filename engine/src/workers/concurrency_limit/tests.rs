//! What enters, what waits, in which order, and what is logged of it.

use super::*;
use crate::server::options::KeptWork;

fn limit(workers: u32, listeners: usize) -> ConcurrencyLimit<u32> {
    ConcurrencyLimit::divided(workers, listeners)
}

impl ConcurrencyLimit<u32> {
    fn divided(places: u32, members: usize) -> ConcurrencyLimit<u32> {
        ConcurrencyLimit::with_parts(places, &vec![&[][..]; members])
    }

    /// A job enters, or waits.
    fn offer(&mut self, member: usize, job: u32, rank: Rank) -> bool {
        let enters = self.enter_any(member, rank);
        if !enters {
            self.wait(member, job, rank);
        }
        enters
    }
}

/// How many jobs of a listener enter when it has as many as it likes.
fn enter(limit: &mut ConcurrencyLimit<u32>, member: usize) -> u32 {
    enter_as(limit, member, Rank::Next)
}

fn enter_as(limit: &mut ConcurrencyLimit<u32>, member: usize, rank: Rank) -> u32 {
    let offers = (0..1000).filter(|job| limit.offer(member, *job, rank));
    u32::try_from(offers.count()).expect("small")
}

#[test]
fn one_listener_alone_has_no_limit() {
    assert_eq!(enter(&mut limit(4, 1), 0), 1000);
}

#[test]
fn a_listener_leaves_what_is_guaranteed_to_the_others() {
    let mut limit = limit(128, 2);
    // A quarter is kept for both, sixteen for each; 96 are common.
    assert_eq!(enter(&mut limit, 0), 96 + 16);
    assert_eq!(enter(&mut limit, 1), 16);
}

#[test]
fn two_that_take_all_they_can_leave_the_third_its_own() {
    let mut limit = limit(12, 3);
    assert_eq!(enter(&mut limit, 0) + enter(&mut limit, 1), 11);
    assert_eq!(enter(&mut limit, 2), 1);
}

#[test]
fn with_fewer_workers_than_listeners_each_has_one() {
    let mut limit = limit(1, 2);
    assert_eq!((enter(&mut limit, 0), enter(&mut limit, 1)), (1, 1));
}

#[test]
fn a_limit_that_was_asked_for_holds_for_one_listener_alone_too() {
    let mut limit = limit(128, 1);
    limit.set_max(0, 3);
    assert_eq!(enter(&mut limit, 0), 3);
}

fn part(size: PartSize) -> WorkersPart {
    WorkersPart {
        name: "a part".into(),
        size,
    }
}

#[test]
fn a_part_has_its_own_and_the_others_have_the_rest() {
    let parts = [part(PartSize::Own(8)), part(PartSize::Common)];
    let mut limit = ConcurrencyLimit::with_parts(40, &[&parts]);
    // Of 32, eight are the listener's, one is the second part's, and 23 are common.
    assert_eq!(enter(&mut limit, 1), 8);
    assert_eq!(enter(&mut limit, 2), 24);
    assert_eq!(enter(&mut limit, 0), 8);
    let mut limit = ConcurrencyLimit::with_parts(40, &[&parts]);
    assert_eq!(enter(&mut limit, 0), 31, "all but nine");
    assert_eq!((enter(&mut limit, 1), enter(&mut limit, 2)), (8, 1));
}

#[test]
fn a_kept_part_is_one_for_all_listeners_and_whatever_is_asked_for_these() {
    let parts = [part(PartSize::Common), part(PartSize::Kept)];
    let all = [&parts[..], &parts[1..], &[]];
    let listeners = Listeners::new(64, &all);
    let of_part = |listener, part| listeners.member_of_part(listener, part);
    assert_eq!((of_part(0, 0), of_part(0, 1)), (Some(3), Some(4)));
    assert_eq!((of_part(1, 0), of_part(1, 1)), (Some(4), None));
    assert_eq!(of_part(2, 0), None);
    assert_eq!(listeners.part_of_member(4), Some((0, 1)));
    assert_eq!(listeners.part_of_member(2), None);

    let new = || ConcurrencyLimit::with_parts(64, &all);
    let mut limit = new();
    limit.set_max(0, 2);
    // Five for each listener, one for the part in common, four kept, and 44 in common.
    assert_eq!((enter(&mut limit, 0), enter(&mut limit, 1)), (2, 5 + 44));
    assert_eq!((enter(&mut limit, 2), enter(&mut limit, 3)), (5, 0));
    assert_eq!(enter(&mut limit, 4), 4, "no handler has them");
    let mut limit = new();
    assert_eq!(enter(&mut limit, 4), 4 + 44);
    assert_eq!((enter(&mut limit, 0), enter(&mut limit, 3)), (5, 1));
}

#[test]
fn a_crowd_leaves_half_of_a_kept_part_and_a_sixteenth_of_all_workers() {
    let parts = [part(PartSize::Kept)];
    let mut limit = ConcurrencyLimit::with_parts(64, &[&parts]);
    assert_eq!(enter(&mut limit, 0), 60);
    assert_eq!(enter_as(&mut limit, 1, Rank::AfterOthers), 2);
    assert_eq!(enter(&mut limit, 1), 2);
    for (workers, most) in [(1, 1), (15, 15), (16, 15), (128, 120)] {
        let mut alone = ConcurrencyLimit::divided(workers, 1);
        assert_eq!(enter_as(&mut alone, 0, Rank::AfterOthers), most);
        assert_eq!(enter(&mut alone, 0), 1000, "others have what there is");
    }
}

#[test]
fn each_kind_of_work_keeps_a_part_and_all_have_one_where_workers_are_few() {
    let kinds = [KeptWork::Handshakes, KeptWork::Passwords, KeptWork::Files];
    let parts = kinds.map(WorkersPart::kept);
    // With the sixteenth worker each has one: of the rest four are the listener's, nine common.
    for (workers, handlers, kept) in [(4, 3, 1), (15, 14, 1), (16, 13, 3), (64, 52, 12)] {
        let members: Vec<_> = numbered(workers, &[&parts]).map(|it| it.2).collect();
        let mut limit = ConcurrencyLimit::with_parts(workers, &[&parts]);
        assert_eq!(limit.most(0), handlers, "of {workers}");
        assert_eq!(enter(&mut limit, 0), handlers, "of {workers}");
        let inside: u32 = { members }
            .into_iter()
            .map(|member| enter(&mut limit, member))
            .sum();
        assert_eq!(inside, kept, "of {workers}");
    }
}

#[test]
fn parts_have_half_of_the_workers_at_most_and_one_at_least() {
    let parts = [30, 10].map(|asked| part(PartSize::Own(asked)));
    let mut limit = ConcurrencyLimit::with_parts(16, &[&parts, &[]]);
    assert_eq!((enter(&mut limit, 2), enter(&mut limit, 3)), (6, 2));
    assert_eq!(enter(&mut limit, 0) + enter(&mut limit, 1), 8);
    for (places, asked) in [(1, 0), (1, 9), (2, 1)] {
        let parts = [part(PartSize::Own(asked)), part(PartSize::Common)];
        let mut limit = ConcurrencyLimit::with_parts(places, &[&parts]);
        let inside = [0, 1, 2].map(|member| enter(&mut limit, member));
        assert_eq!(inside, [1, 1, 1], "{asked} of {places}");
    }
}

#[test]
fn a_listener_and_its_parts_are_together_within_what_was_asked_for_it() {
    let parts = [part(PartSize::Own(4)), part(PartSize::Common)];
    let mut limit = ConcurrencyLimit::with_parts(64, &[&parts, &[]]);
    limit.set_max(0, 6);
    assert_eq!(enter(&mut limit, 2), 4);
    assert_eq!(enter(&mut limit, 0), 2);
    assert_eq!(enter(&mut limit, 3), 0);
    // What leaves a part makes room for the listener, and the other way round.
    limit.leave_any(2);
    limit.set_max(1, 1);
    let mut next = |expected: [u32; 3]| {
        assert!(limit.next().is_some() && limit.next().is_none());
        let inside = [0, 2, 3].map(|member| limit.inside(member));
        assert_eq!(inside, expected);
        limit.leave_any(0);
    };
    next([3, 3, 0]);
    next([2, 4, 0]);
    next([1, 4, 1]);
}

#[test]
fn the_oldest_that_are_not_wanted_are_taken() {
    let mut limit = limit(2, 2);
    assert_eq!(enter(&mut limit, 0), 1);
    let taken = limit.take_oldest(0, |job| *job < 4 || *job > 6);
    assert_eq!((taken, limit.waiting()), (vec![1, 2, 3], 996));
    limit.leave(0);
    assert_eq!(limit.next(), Some(4));
}

#[test]
fn listeners_take_turns() {
    let mut limit = limit(8, 2);
    // One each, and six in common, which the first has taken.
    assert_eq!(enter(&mut limit, 0), 7);
    assert_eq!(enter(&mut limit, 1), 1);
    let mut insides = Vec::new();
    for _ in 0..4 {
        limit.leave(0);
        assert!(limit.next().is_some(), "one waits");
        assert!(limit.next().is_none(), "one left, one enters");
        insides.push((limit.inside(0), limit.inside(1)));
    }
    assert_eq!(insides, [(7, 1), (6, 2), (6, 2), (5, 3)]);
}

#[test]
fn jobs_that_come_after_others_leave_half_to_them() {
    let mut limit = limit(128, 2);
    // Sixteen are guaranteed, and half of 96 are left.
    assert_eq!(enter_as(&mut limit, 0, Rank::AfterOthers), 16 + 48);
    assert_eq!(enter(&mut limit, 0), 48);
    // Those whose turn it is enter instead of one that leaves.
    for _ in 0..2 {
        limit.leave(0);
        assert!(limit.next().is_some() && limit.next().is_none());
    }
    assert_eq!(limit.waiting(), 2000 - 112 - 2);
    let mut alone = ConcurrencyLimit::alone(3);
    assert_eq!(enter_as(&mut alone, 0, Rank::AfterOthers), 2);
    assert_eq!(enter(&mut alone, 0), 1);
}

#[test]
fn jobs_that_are_taken_wait_no_more_and_the_others_keep_their_order() {
    let mut limit = limit(2, 2);
    assert_eq!(enter(&mut limit, 0), 1);
    let taken = limit.take_waiting(|job| job % 2 == 0);
    assert_eq!((taken.len(), limit.waiting()), (499, 500));
    limit.leave(0);
    assert_eq!(limit.next(), Some(1));
    limit.leave(0);
    assert_eq!(limit.next(), Some(3));
}

#[test]
fn jobs_that_wait_for_long_are_logged_once() {
    let listeners = Listeners::new(2, &[&[], &[]]);
    let enter = |index, now_ns| listeners.enter((0, Rank::Next), (index, now_ns), || ());
    let late = LISTENER_PATIENCE_NS;
    assert!(enter(1, 0));
    assert!(!enter(2, 0));
    assert_eq!(listeners.long_waits(late - 1), []);
    let wait = LongWait {
        member: 0,
        waiting: 1,
        inside: 1,
    };
    assert_eq!(listeners.long_waits(late), [wait]);
    assert_eq!(listeners.long_waits(late + 1), []);
    assert_eq!(listeners.waiting(), 1);
    let went = Lock::new(Vec::new());
    assert!(listeners.leave(0, |index| went.lock().push(index)));
    assert_eq!((went.into_inner(), listeners.waiting()), (vec![2], 0));
    assert!(!listeners.leave(0, |_| unreachable!("none waits")));
    // Soon afterwards it is the same episode.
    assert!(enter(2, late));
    assert!(!enter(3, late + 2));
    assert_eq!(listeners.long_waits(2 * late + 2), []);
}

/// What should be so, counted by member.
struct Model {
    limit: ConcurrencyLimit<u32>,
    /// Of each listener, with its parts.
    most: Vec<u32>,
    /// The listener of each member that counts for one.
    listeners: Vec<Option<usize>>,
    /// By rank.
    offered: Vec<[u32; 2]>,
    entered: Vec<[u32; 2]>,
    left: Vec<u32>,
    parked: Vec<u32>,
    /// Jobs that were resumed: this number may be inside beyond the limits.
    beyond: u32,
}

impl Model {
    /// Listeners with their bounds and their parts.
    fn new(workers: u32, most: Vec<u32>, parts: &[Vec<WorkersPart>]) -> Model {
        let parts: Vec<_> = parts.iter().map(|parts| &**parts).collect();
        let mut limit = ConcurrencyLimit::with_parts(workers, &parts);
        for (at, most) in most.iter().enumerate() {
            limit.set_max(at, *most);
        }
        let mut listeners: Vec<Option<usize>> = (0..most.len()).map(Some).collect();
        for (at, part, member) in numbered(workers, &parts) {
            if member == listeners.len() {
                listeners.push((part.size != PartSize::Kept).then_some(at));
            }
        }
        let members = listeners.len();
        Model {
            limit,
            offered: vec![[0; 2]; members],
            entered: vec![[0; 2]; members],
            left: vec![0; members],
            parked: vec![0; members],
            most,
            listeners,
            beyond: 0,
        }
    }

    fn members(&self) -> usize {
        self.listeners.len()
    }

    fn inside(&self, at: usize) -> u32 {
        self.entered[at].iter().sum::<u32>() - self.left[at] - self.parked[at]
    }

    /// A job's number tells its member and its rank.
    fn entered(&mut self, job: u32) {
        let (at, rank) = ((job % 16) as usize, (job / 16 % 2) as usize);
        let entered = &mut self.entered[at][rank];
        assert_eq!(*entered, job / 32, "K3: out of order");
        *entered += 1;
    }

    fn offer(&mut self, at: usize, rank: Rank) {
        let offered = &mut self.offered[at][rank as usize];
        let job = *offered * 32 + rank as u32 * 16 + at as u32;
        *offered += 1;
        if self.limit.offer(at, job, rank) {
            self.entered(job);
        }
    }

    fn leave(&mut self, at: usize) {
        self.limit.leave_any(at);
        while let Some(job) = self.limit.next() {
            self.entered(job);
        }
    }

    fn finish(&mut self, at: usize) {
        self.left[at] += 1;
        self.leave(at);
    }

    fn park(&mut self, at: usize) {
        self.parked[at] += 1;
        self.leave(at);
    }

    fn resume(&mut self, at: usize) {
        self.parked[at] -= 1;
        self.beyond += 1;
        self.limit.enter_beyond(at);
    }

    fn check(&self) {
        let mut used = 0;
        let mut inside_of = vec![0; self.most.len()];
        for at in 0..self.members() {
            let inside = self.inside(at);
            assert_eq!(inside, self.limit.inside(at));
            if let Some(listener) = self.listeners[at] {
                inside_of[listener] += inside;
            }
            used += inside.saturating_sub(self.limit.members[at].guaranteed);
            for rank in [Rank::Next, Rank::AfterOthers] {
                let (offered, entered) = (self.offered[at], self.entered[at]);
                let waits = offered[rank as usize] > entered[rank as usize];
                assert!(!waits || !self.limit.may_enter_any(at, rank), "K2");
            }
        }
        for (inside, most) in inside_of.iter().zip(&self.most) {
            assert!(*inside <= most.saturating_add(self.beyond), "K4");
        }
        assert_eq!(used, self.limit.common_used, "K1");
        assert!(used <= self.limit.common + self.beyond, "K1");
    }
}

/// Random jobs that enter, leave, are parked and resumed, against the invariants: none that may
/// enter waits, none is forgotten, each member's jobs enter in order.
#[test]
fn model_no_job_that_may_enter_waits_and_none_is_forgotten() {
    for seed in 1..200_u64 {
        let mut random = seed;
        let mut draw = |sides: u64| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            (random >> 8) % sides
        };
        let count = 1 + draw(4) as usize;
        let workers = 1 + draw(12) as u32;
        let most = (0..count).map(|_| match draw(6) {
            drawn @ 0..3 => drawn as u32 + 1,
            _ => u32::MAX,
        });
        let most: Vec<u32> = most.collect();
        let parts = (0..count).map(|_| {
            let sizes = (0..draw(3)).map(|_| match draw(4) {
                0 => PartSize::Common,
                1 => PartSize::Kept,
                _ => PartSize::Own(draw(4) as u32),
            });
            sizes.map(part).collect()
        });
        let parts: Vec<Vec<WorkersPart>> = parts.collect();
        let mut model = Model::new(workers, most, &parts);
        let count = model.members();
        // Half of the runs without parking: there the limits hold exactly.
        let acts = 4 + 2 * (seed % 2);
        for _ in 0..300 {
            let at = draw(count as u64) as usize;
            match draw(acts) {
                0 => model.offer(at, Rank::Next),
                1 => model.offer(at, Rank::AfterOthers),
                2 | 3 if model.inside(at) > 0 => model.finish(at),
                4 if model.inside(at) > 0 => model.park(at),
                5 if model.parked[at] > 0 => model.resume(at),
                _ => {}
            }
            model.check();
        }
        // Everything is resumed and leaves, so everything enters.
        for at in 0..count {
            (0..model.parked[at]).for_each(|_| model.resume(at));
        }
        while let Some(at) = (0..count).find(|at| model.inside(*at) > 0) {
            model.finish(at);
        }
        assert_eq!(model.entered, model.offered, "seed {seed}: forgotten");
        assert_eq!(model.limit.waiting(), 0);
    }
}
