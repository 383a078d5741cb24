//! The policy by tables, and in a small simulation of handlers.

use super::*;

const BOUNDS: Bounds = Bounds {
    min: 2,
    max: 128,
    processors: 2,
};

fn at(runnable: u32, locked: u32, sleeping: u32) -> Activity {
    Activity {
        runnable,
        locked,
        sleeping,
    }
}

/// Samples a millisecond apart.
struct Samples {
    growth: Growth,
    sample: Sample,
    looks: u32,
}

impl Samples {
    fn new(bounds: Bounds) -> Samples {
        Samples {
            growth: Growth::new(bounds),
            sample: Sample {
                active: bounds.min,
                ..Sample::default()
            },
            looks: 0,
        }
    }

    /// Work waits, `taken` jobs have been taken, and the active workers are at this.
    fn busy(&mut self, taken: u64, activity: Option<Activity>) -> u32 {
        self.sample.is_wanted = true;
        self.sample.queued = 1_000;
        self.next(taken, activity)
    }

    fn next(&mut self, taken: u64, activity: Option<Activity>) -> u32 {
        self.sample.taken += taken;
        self.sample.now += Duration::from_millis(1);
        let looks = &mut self.looks;
        let step = self.growth.sample(&self.sample, || {
            *looks += 1;
            activity
        });
        assert!(self.sample.active + step.more <= self.growth.bounds.max);
        step.more
    }
}

/// How many workers are added within this number of samples, at each of which the others took
/// `taken` jobs, while each added worker takes one job and gets stuck in it like those before.
fn added(samples: u32, taken: u64, activity: impl Fn(u32) -> Option<Activity>) -> u32 {
    let mut all = Samples::new(BOUNDS);
    let mut more = 0;
    for _ in 0..samples {
        more = all.busy(taken + u64::from(more), activity(all.sample.active));
        all.sample.active += more;
    }
    all.sample.active - BOUNDS.min
}

#[test]
fn what_busy_workers_are_at_decides_how_many_are_added() {
    type Look = fn(u32) -> Option<Activity>;
    // What they are at; added in 64 samples without progress, and with a job in each.
    let table: [(&str, Look, u32, u32); 6] = [
        ("sleep", |active| Some(at(0, 0, active)), 126, 7),
        (
            "sleep, one runs",
            |active| Some(at(1, 0, active - 1)),
            126,
            7,
        ),
        (
            "all wait for others",
            |active| Some(at(0, active, 0)),
            126,
            7,
        ),
        ("a lock", |active| Some(at(1, active - 1, 0)), 8, 8),
        ("processors", |active| Some(at(2, 0, active - 2)), 0, 0),
        ("nothing is known", |_| None, 126, 8),
    ];
    for (what, look, stuck, moving) in table {
        let seen = (added(64, 0, look), added(64, 1, look));
        assert_eq!(seen, (stuck, moving), "{what}");
    }
}

#[test]
fn handlers_that_do_not_move_get_company_whatever_they_are_at() {
    let computing = added(40 * STUCK_SAMPLES, 0, |active| Some(at(active, 0, 0)));
    assert_eq!(computing, 40, "for what computes without an end, slowly");
    let locked = added(200 * PATIENCE, 0, |active| Some(at(1, active - 1, 0)));
    assert_eq!(locked, 126, "for what waits for a lock, up to the bound");
}

#[test]
fn nothing_is_looked_at_where_no_work_waits() {
    let mut samples = Samples::new(BOUNDS);
    for _ in 0..1_000 {
        assert_eq!(samples.next(1, Some(at(0, 0, 2))), 0);
    }
    assert_eq!(samples.looks, 0);
    assert_eq!(samples.growth.active_max(), 2);
}

#[test]
fn workers_that_computing_handlers_took_over_from_sleeping_ones_are_taken_back() {
    let mut samples = Samples::new(BOUNDS);
    while samples.sample.active < 128 {
        let active = samples.sample.active;
        samples.sample.active += samples.busy(0, Some(at(0, 0, active)));
    }
    assert_eq!(samples.growth.active_max(), 128);
    samples.sample.is_wanted = false;
    for _ in 0..2 * 33 {
        samples.next(1, Some(at(128, 0, 0)));
    }
    assert_eq!(samples.growth.active_max(), 2);
}

#[test]
fn after_a_rest_the_limit_is_as_it_was() {
    let mut samples = Samples::new(BOUNDS);
    for _ in 0..16 {
        let active = samples.sample.active;
        samples.sample.active += samples.busy(0, Some(at(0, 0, active)));
    }
    assert_eq!(samples.growth.active_max(), 128);
    samples.sample.is_wanted = false;
    for rounds in 0.. {
        // Some are active at each look.
        samples.sample.active = 3;
        samples.next(1, Some(at(0, 0, 3)));
        if rounds == 2_000 {
            break;
        }
    }
    assert!(!samples.growth.is_at_rest());
    assert_eq!(samples.growth.active_max(), 128);
    samples.sample.active = 1;
    while !samples.growth.is_at_rest() {
        samples.next(0, None);
    }
    assert_eq!(samples.growth.active_max(), 2);
    samples.growth.wakes();
    assert!(!samples.growth.is_at_rest());
}

/// Jobs that a number of workers does in a millisecond, and what they are at meanwhile.
trait Handlers {
    fn rate(&self, active: u32) -> u64;
    fn activity(&self, active: u32) -> Activity;
}

/// One lock around everything: with each more that waits, the one that works is slower.
struct OneLock;

impl Handlers for OneLock {
    fn rate(&self, active: u32) -> u64 {
        u64::from(4_000 / (98 + active))
    }

    fn activity(&self, active: u32) -> Activity {
        at(1, active - 1, 0)
    }
}

/// Each waits for another program, parked, for 2 ms; up to 40 at a time are served.
struct Parked;

impl Handlers for Parked {
    fn rate(&self, active: u32) -> u64 {
        u64::from(active.min(40)) * 4
    }

    fn activity(&self, active: u32) -> Activity {
        at(1, active - 1, 0)
    }
}

/// The number of workers after a while of a queue that never ends, from `active` on.
fn settles(handlers: &impl Handlers, active: u32) -> (u32, u32) {
    let mut samples = Samples::new(BOUNDS);
    samples.growth.active_max = active;
    samples.sample.active = active;
    let (mut least, mut most) = (u32::MAX, 0);
    for millisecond in 0..60_000 {
        let active = samples.sample.active;
        let activity = Some(handlers.activity(active));
        let more = samples.busy(handlers.rate(active), activity);
        samples.sample.active = (active + more).min(samples.growth.active_max());
        // Those that the limit lets in are there at the next sample.
        samples.sample.active = samples.growth.active_max().min(BOUNDS.max);
        if millisecond > 30_000 {
            least = least.min(samples.sample.active);
            most = most.max(samples.sample.active);
        }
    }
    (least, most)
}

#[test]
fn handlers_of_one_lock_keep_few_workers_from_wherever_they_begin() {
    for begin in [2, 10, 50, 128] {
        let (least, most) = settles(&OneLock, begin);
        assert!(least == 2 && most <= 3, "{least} to {most} from {begin}");
    }
}

#[test]
fn handlers_that_wait_for_something_slow_get_as_many_as_help() {
    for begin in [2, 40, 128] {
        let (least, most) = settles(&Parked, begin);
        assert!(least >= 30 && most <= 72, "{least} to {most} from {begin}");
    }
}
