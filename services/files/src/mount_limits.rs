//! How many workers are in the mounts at and below what a service serves, for display.

use std::sync::Arc;

use flatpath::blocking::BlockingFigures;
use flatpath::metrics::Metric;

use crate::homes::Homes;

/// How many workers are in each mount that may block. A clone stays true while the server runs,
/// whichever directory is served.
#[derive(Clone, Debug, Default)]
pub struct MountLimits(Vec<Arc<Homes>>);

impl MountLimits {
    pub(crate) fn of(homes: &Arc<Homes>) -> Self {
        Self(vec![Arc::clone(homes)])
    }

    /// With those of another directory, for a listener that serves both.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        self.0.extend(other.0);
        self
    }

    /// The mounts by name, in no order, without mounts that never held a request up. One that
    /// several directories have is there once, as it has one limit; of the mounts that links lead
    /// to, those of the first such directory are.
    pub fn figures(&self) -> Vec<(String, BlockingFigures)> {
        let mut found: Vec<(String, BlockingFigures)> = Vec::new();
        for limit in self.0.iter().flat_map(|homes| homes.limits()) {
            let name = limit.name().trim_start_matches("mount ");
            let is_known = found.iter().any(|(known, _)| known == name);
            let figures = limit.figures();
            if !is_known && figures != BlockingFigures::default() {
                found.push((name.to_owned(), figures));
            }
        }
        found
    }
}

/// The metrics of mounts; for display. A mount that several listeners serve is shown with each.
#[rustfmt::skip]
pub const METRICS: &[Metric<MountLimits>] = &[
    Metric::gauge("flatpath_mount_jobs",
        "Requests for a mount that may block: in a worker, or waiting for their turn.",
        &["mount", "state"],
        |it, out| {
            for (mount, limit) in it.figures() {
                out.put(&[&mount, "running"], limit.inside);
                out.put(&[&mount, "waiting"], limit.waiting);
            }
        }),
    Metric::counter("flatpath_mount_jobs_waited_total",
        "Requests that had to wait for their turn in a mount that may block.", &["mount"],
        |it, out| {
            for (mount, limit) in it.figures() {
                out.put(&[&mount], limit.waited);
            }
        }),
    Metric::counter("flatpath_mount_jobs_refused_total",
        "Requests refused because too many waited for their mount, or it was stuck.", &["mount"],
        |it, out| {
            for (mount, limit) in it.figures() {
                out.put(&[&mount], limit.refused);
            }
        }),
];
