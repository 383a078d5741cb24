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
