//! A job as limits see it while a worker runs it: T3 of `blocking`.

use std::sync::{Arc, Weak};

use super::{BlockingLimit, Entry, Permit, Taken};

/// A job on a worker, as limits know it.
#[derive(Debug)]
pub(crate) struct Visitor {
    pub(crate) workers_max: u32,
    /// A place that the job has waited for.
    pub(crate) granted: Option<Permit>,
    /// The limit that the job has to wait for.
    pub(crate) parked: Option<BlockingLimit>,
    /// The places that the job has taken in this run, as long as it has them (T3).
    entered: Vec<Weak<Taken>>,
}

impl Visitor {
    pub(crate) fn new(workers_max: u32, granted: Option<Permit>) -> Self {
        Self {
            workers_max,
            granted,
            parked: None,
            entered: Vec::new(),
        }
    }

    /// The job's place in a limit, if it has one.
    pub(super) fn place_in(&self, limit: &BlockingLimit) -> Option<Permit> {
        let mut taken = self.entered.iter().filter_map(Weak::upgrade);
        taken.find(|taken| taken.limit.is(limit)).map(Permit)
    }

    pub(super) fn enters(&mut self, inside: Permit) -> Entry {
        self.entered.push(Arc::downgrade(&inside.0));
        Entry::Entered(inside)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::time::{Duration, Instant};

    use super::*;
    use crate::workers::blocking::{Home, WaitLimits};

    const WORKERS_MAX: u32 = 4;
    const PATIENT: WaitLimits = WaitLimits {
        waiting_max: 8,
        stuck_after: Duration::from_secs(3_600),
    };

    #[test]
    fn a_place_that_is_left_before_the_job_is_parked_resumes_it_at_once() {
        struct Resumed(Mutex<Vec<(u32, bool)>>);

        impl Home for Resumed {
            fn workers_max(&self) -> u32 {
                WORKERS_MAX
            }

            fn resume(&self, index: u32, granted: Option<Permit>) {
                let resumed = (index, granted.is_some());
                self.0.lock().expect("sound").push(resumed);
            }
        }

        let limit = BlockingLimit::new("a mount", PATIENT);
        let home = Arc::new(Resumed(Mutex::default()));
        let visit = || {
            let mut visitor = Visitor::new(WORKERS_MAX, None);
            limit.enter_for(&mut visitor)
        };
        let inside = (visit(), visit());
        assert!(matches!(visit(), Entry::Parked));
        // Its place was left between `Parked` and `park`: no leaving comes that could resume it.
        drop(inside);
        limit.park(Arc::clone(&home) as Arc<dyn Home>, 7);
        assert_eq!(*home.0.lock().expect("sound"), [(7, true)]);
        assert_eq!(limit.figures().waiting, 0);
    }

    #[test]
    fn leaving_counts_as_movement() {
        let stuck_after = Duration::from_millis(1);
        let limit = BlockingLimit::new(
            "a mount",
            WaitLimits {
                stuck_after,
                ..PATIENT
            },
        );
        let before = Instant::now();
        assert!(limit.state().enter(WORKERS_MAX));
        limit.state().moved = before - stuck_after;
        assert!(limit.is_stuck(&limit.state()));
        drop(limit.permit());
        assert!(limit.state().moved >= before);
    }
}
