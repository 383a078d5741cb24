//! What shares know of a job while a worker runs it: S3 of `blocking`.

use std::sync::{Arc, Weak};

use super::{Entry, Inside, Share, Taken};

/// A job on a worker, as shares know it.
#[derive(Debug)]
pub(crate) struct Visitor {
    pub(crate) workers_max: u32,
    /// A place that the job has waited for.
    pub(crate) granted: Option<Inside>,
    /// The share that the job has to wait for.
    pub(crate) parked: Option<Share>,
    /// The places that the job has taken in this run, as long as it has them (S3).
    entered: Vec<Weak<Taken>>,
}

impl Visitor {
    pub(crate) fn new(workers_max: u32, granted: Option<Inside>) -> Self {
        Self {
            workers_max,
            granted,
            parked: None,
            entered: Vec::new(),
        }
    }

    /// The job's place in a share, if it has one.
    pub(super) fn place_in(&self, share: &Share) -> Option<Inside> {
        let mut taken = self.entered.iter().filter_map(Weak::upgrade);
        taken.find(|taken| taken.share.is(share)).map(Inside)
    }

    pub(super) fn enters(&mut self, inside: Inside) -> Entry {
        self.entered.push(Arc::downgrade(&inside.0));
        Entry::Inside(inside)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::time::{Duration, Instant};

    use super::*;
    use crate::blocking::{Home, ShareLimits};

    const WORKERS_MAX: u32 = 4;
    const PATIENT: ShareLimits = ShareLimits {
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

            fn resume(&self, index: u32, granted: Option<Inside>) {
                let resumed = (index, granted.is_some());
                self.0.lock().expect("sound").push(resumed);
            }
        }

        let share = Share::new("a mount", PATIENT);
        let home = Arc::new(Resumed(Mutex::default()));
        let visit = || {
            let mut visitor = Visitor::new(WORKERS_MAX, None);
            share.enter_for(&mut visitor)
        };
        let inside = (visit(), visit());
        assert!(matches!(visit(), Entry::Later));
        // Its place was left between `Later` and `park`: no leaving comes that could resume it.
        drop(inside);
        share.park(Arc::clone(&home) as Arc<dyn Home>, 7);
        assert_eq!(*home.0.lock().expect("sound"), [(7, true)]);
        assert_eq!(share.figures().waiting, 0);
    }

    #[test]
    fn leaving_counts_as_movement() {
        let stuck_after = Duration::from_millis(1);
        let share = Share::new(
            "a mount",
            ShareLimits {
                stuck_after,
                ..PATIENT
            },
        );
        let before = Instant::now();
        assert!(share.state().enter(WORKERS_MAX));
        share.state().moved = before - stuck_after;
        assert!(share.is_stuck(&share.state()));
        drop(share.inside());
        assert!(share.state().moved >= before);
    }
}
